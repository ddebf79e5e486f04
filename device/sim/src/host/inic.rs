//! Hosts of cards with posts.

use niclab_abi::config::FEATURE_POSTS;
use niclab_workloads::inic::PostTransport;

use super::card::CardHost;
use super::{HostMaker, HostSeat};

/// Makes hosts of such cards.
pub const MAKER: HostMaker = HostMaker {
    feature: FEATURE_POSTS,
    make: |HostSeat { number, nic, ethernet, posts, .. }| {
        let transport = move |plan: &_| Some(PostTransport::new(number, plan, posts));
        Box::new(CardHost::new(number, nic, ethernet, transport))
    },
};
