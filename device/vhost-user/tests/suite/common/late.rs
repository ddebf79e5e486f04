//! A card that answers each request when the next one arrives, with a status that the test chooses.

use niclab_abi::ToBytes;
use niclab_abi::control::Reply;
use niclab_device::lab::Lab;
use niclab_model::nic::{HostRanges, Input, Nic, Observed, Output, ShellCounts, Statistics};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::Time;

/// The card.
#[derive(Default)]
pub struct Late {
    status: u32,
    waiting: Option<u64>,
    answer: Option<u64>,
    ledger: Ledger,
}

impl Late {
    /// Replaces the card of node 0 by one that answers with this status.
    pub fn put(lab: &Lab, status: u32) {
        lab.daemon().shell().lock_all().nodes[0].card.nic = Box::new(Self { status, ..Self::default() });
    }
}

impl Nic for Late {
    fn handle(&mut self, _: Time, input: Input<'_>, _: &mut NodeBus) {
        if let Input::Control { token, .. } = input {
            self.answer = self.waiting.replace(token);
        }
    }

    fn memory_named_by(&self, _: &[u8]) -> HostRanges {
        HostRanges::new()
    }

    fn poll_output(&mut self) -> Option<Output> {
        let token = self.answer.take()?;
        let mut bytes = [0; 8];
        Reply { status: self.status, body_bytes: 0 }.to_bytes(&mut bytes);
        Some(Output::Reply { at: Time::ZERO, token, bytes: bytes.as_slice().into() })
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn accepts_store(&self, _: u32) -> bool {
        false
    }

    fn is_open(&self, _: u32) -> bool {
        false
    }
}

impl Observed for Late {
    fn delivered(&self, _: u32) -> u64 {
        0
    }

    fn unordered(&self) -> u64 {
        0
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    fn statistics(&self, _: &ShellCounts) -> Statistics {
        Statistics::default()
    }
}
