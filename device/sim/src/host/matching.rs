//! Hosts of cards with lists of posted receives.

use niclab_abi::config::FEATURE_LISTS;
use niclab_workloads::matching::ListTransport;

use super::card::CardHost;
use super::{HostMaker, HostSeat};

/// Makes hosts of such cards.
pub const MAKER: HostMaker = HostMaker {
    feature: FEATURE_LISTS,
    make: |HostSeat { number, nic, ethernet, terms, .. }| {
        // Without a window, the card has too little room.
        let has_room = terms.window > 0;
        let transport = move |plan: &_| has_room.then(|| ListTransport::new(number, plan, terms));
        Box::new(CardHost::new(number, nic, ethernet, transport))
    },
};
