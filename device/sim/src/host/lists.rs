//! Hosts of cards with lists of posted receives.

use niclab_abi::config::FEATURE_LISTS;
use niclab_model::models::matching::descriptor::MODEL;
use niclab_spec::SimConfig;
use niclab_workloads::lists::{Limits, ListTransport, Receive, Terms};

use super::HostMaker;
use super::card::CardHost;
use crate::run::max_bytes;

/// Makes hosts of cards with lists of posted receives.
pub const MAKER: HostMaker = HostMaker {
    feature: FEATURE_LISTS,
    make: |seat| {
        let (node, terms) = (seat.number, terms(seat.config, seat.max_partners));
        // A window of no messages: the cards have too little room.
        let has_room = terms.window > 0;
        let transport = move |plan: &_| has_room.then(|| ListTransport::new(node, plan, terms));
        Box::new(CardHost::new(node, seat.nic, transport))
    },
};

/// What the ports of all these cards are opened with.
fn terms(config: &SimConfig, partners: u64) -> Terms {
    let workload = &config.workload;
    let receive = match workload.receive {
        niclab_spec::Receive::Posted => Receive::Posted,
        niclab_spec::Receive::Unexpected => Receive::Unexpected,
        niclab_spec::Receive::Get => Receive::Get,
    };
    let least = |key| {
        let cards = config.nodes.iter().filter(|node| node.nic.model.descriptor() == &MODEL);
        cards.map(|node| node.nic.values().number(key)).min().unwrap_or(0)
    };
    let limits = Limits {
        events: workload.slices,
        entries: least("match_entries") / u64::from(MODEL.ports),
        unexpected_messages: least("unexpected_messages"),
        partners,
    };
    Terms::new(receive, max_bytes(workload).into(), &limits)
}
