//! Hosts of cards with receive queues of slices.

use niclab_abi::config::FEATURE_SLICES;
use niclab_workloads::slices::SliceTransport;

use super::card::CardHost;
use super::{HostMaker, HostSeat};

/// Makes hosts of such cards.
pub const MAKER: HostMaker = HostMaker {
    feature: FEATURE_SLICES,
    make: |HostSeat { number, nic, ethernet, .. }| {
        let transport = move |plan: &_| Some(SliceTransport::new(number, plan));
        Box::new(CardHost::new(number, nic, ethernet, transport))
    },
};
