//! Hosts of cards with receive queues of slices.

use niclab_abi::config::FEATURE_SLICES;
use niclab_workloads::slices::SliceTransport;

use super::HostMaker;
use super::card::CardHost;

/// Makes hosts of such cards.
pub const MAKER: HostMaker = HostMaker {
    feature: FEATURE_SLICES,
    make: |seat| {
        let node = seat.number;
        Box::new(CardHost::new(node, seat.nic, move |plan| Some(SliceTransport::new(node, plan))))
    },
};
