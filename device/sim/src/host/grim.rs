//! Hosts of cards with channels.

use niclab_abi::config::FEATURE_CHANNELS;
use niclab_workloads::grim::ChannelTransport;

use super::card::CardHost;
use super::{HostMaker, HostSeat};

/// Makes hosts of such cards.
pub const MAKER: HostMaker = HostMaker {
    feature: FEATURE_CHANNELS,
    make: |HostSeat { number, nic, ethernet, channels, .. }| {
        let transport = move |plan: &_| Some(ChannelTransport::new(number, plan, channels));
        Box::new(CardHost::new(number, nic, ethernet, transport))
    },
};
