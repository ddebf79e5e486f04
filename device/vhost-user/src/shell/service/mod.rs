//! Serves nodes: each function handles one notification of a driver or a front end, within one budget.
//!
//! * [`queues`]: the control, descriptor and event queues;
//! * [`device`]: reset, stop and start of a device;
//! * [`ethernet_function`]: transmit and receive queues of Ethernet functions;
//! * [`adversarial`]: how adversarial cards poll.

pub mod adversarial;
pub mod device;
pub mod ethernet_function;
pub mod queues;

use super::budget::Budget;
use super::dispatch::{pages, run_until_idle};
use super::locks::LockedNodes;
use super::lockstep;
use super::pages::grants;

/// The result of one poll of a node's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Slots taken and registers read.
    pub work: u32,
    /// There is more, and the budget is spent.
    pub more: bool,
}

impl Found {
    /// The result of this poll and a later one.
    #[inline]
    pub const fn and(self, later: Self) -> Self {
        Self { work: self.work + later.work, more: later.more }
    }
}

/// Polls the open pages of `node`: takes posted slots, reads registers, and carries out everything that follows.
#[inline]
pub fn serve_pages(locked: &mut LockedNodes<'_>, node: usize) -> Found {
    locked.common.budget = Budget::FULL;
    if locked.nodes.card(node).is_some_and(|card| card.host.state.is_stopped()) {
        return Found::default();
    }
    if let Some(more) = lockstep::serve(locked, node) {
        return Found { work: 1, more };
    }
    let adversarial = if locked.common.is_adversarial { adversarial::poll(locked, node) } else { None };
    let mut found =
        adversarial.unwrap_or_else(|| Found { work: pages::serve_ports(locked, node), ..Found::default() });
    // What another thread left in flight comes after this node's posts, which may precede it in model time.
    if locked.has_pending() && !locked.common.budget.is_spent() {
        found.work += 1;
        run_until_idle(locked, node);
    }
    pages::serve_stalled(locked);
    found.more |= locked.common.budget.is_spent() || locked.common.network.frames.is_moving();
    found
}

/// Whether a poll of the open pages of `node` would find something. A slot that its model does not accept does not
/// count: the thread that makes room for it serves it ([`pages::serve_stalled`]).
pub fn has_new_posts(locked: &LockedNodes<'_>, node: usize) -> bool {
    let Some(card) = locked.nodes.card(node).filter(|card| !card.host.state.is_stopped()) else {
        return false;
    };
    // A program that is ready for its first lockstep grant stores only that report.
    let has_report = |port| locked.common.lockstep.is_some() && grants::has_report(&card.host.pages, port);
    (0..card.ports()).any(|port| card.is_open(port) && (card.has_news(port) || has_report(port)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::{Arc, Mutex};

    use niclab_abi::PAGE_BYTES;
    use niclab_abi::bar::{COMPLETER_RELEASED_OFFSET, SLOT_LAUNCH_WORD, launch_word};
    use niclab_model::fabric::ethernet::FrameClass;
    use niclab_model::fabric::link::LinkConfig;
    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
    use niclab_model::nic::Statistics;
    use niclab_model::nic::frame::SharedFrame;
    use niclab_model::nic::windows::PAGES_OF_PORTS;
    use niclab_model::nic::{HostRange, Input, Nic, Observed, Output, Register, ShellCounts};
    use niclab_model::platform::ledger::Ledger;
    use niclab_model::platform::node_bus::NodeBus;
    use niclab_model::time::{Span, Time};
    use smallvec::SmallVec;

    use super::*;
    use crate::shell::card_frame::{CardFrame, SentFrame};
    use crate::shell::cluster::Cluster;
    use crate::shell::dispatch;
    use crate::shell::locks::MoreLocks;
    use crate::shell::pages::Pages;

    /// A card whose program releases a slice and posts while the device polls its pages.
    struct Busy {
        bar: File,
        requester_page: u32,
        completer_page: u32,
        inputs: Arc<Mutex<Vec<&'static str>>>,
        /// The card has taken a post, and continues with it later.
        is_at_work: bool,
        /// An input has caused an output.
        has_output: bool,
        ledger: Ledger,
    }

    impl Busy {
        fn store(&self, page: u32, offset: u64, word: u64) {
            self.bar.write_all_at(&word.to_le_bytes(), u64::from(page) * PAGE_BYTES + offset).unwrap();
        }
    }

    impl Nic for Busy {
        fn handle(&mut self, _: Time, input: Input<'_>, _: &mut NodeBus) {
            let name = match input {
                Input::Register { register: Register::Released(1), .. } => "released",
                Input::PageStore(_) => "posted",
                Input::Timeout => "resumed",
                _ => "something else",
            };
            self.is_at_work = name == "posted";
            self.has_output = name == "something else";
            self.inputs.lock().unwrap().push(name);
        }

        fn accepts_store(&self, _: u32) -> bool {
            self.store(self.completer_page, COMPLETER_RELEASED_OFFSET, 1);
            self.store(self.requester_page, SLOT_LAUNCH_WORD as u64 * 8, launch_word(64, 1));
            true
        }

        fn memory_named_by(&self, _: &[u8]) -> SmallVec<[HostRange; 2]> {
            SmallVec::new()
        }

        fn poll_output(&mut self) -> Option<Output> {
            std::mem::take(&mut self.has_output).then_some(Output::Complete {
                at: Time::ZERO,
                token: 1,
                bytes: 0,
            })
        }

        fn poll_timeout(&self) -> Option<Time> {
            None
        }

        fn poll_work(&self) -> Option<Time> {
            self.is_at_work.then_some(Time::from_ps(7))
        }

        fn is_open(&self, port: u32) -> bool {
            port == 0
        }
    }

    impl Observed for Busy {
        fn delivered(&self, _: u32) -> u64 {
            1
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

    /// A cluster of one node with a [`Busy`] card.
    fn alone() -> (Cluster, Arc<Mutex<Vec<&'static str>>>) {
        let fabric = Fabric::new(&FabricConfig {
            links: vec![LinkConfig::ethernet(1_000_000_000)],
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::ZERO,
            seed: 1,
        });
        let pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
        let inputs = Arc::default();
        let nic = Busy {
            bar: pages.bar.file().try_clone().unwrap(),
            requester_page: pages.bar.requester_page(0),
            completer_page: pages.bar.completer_page(0),
            inputs: Arc::clone(&inputs),
            is_at_work: false,
            has_output: false,
            ledger: Ledger::default(),
        };
        let cluster = Cluster::new(vec![(Box::new(nic), pages, 1)], &Arc::default(), fabric.unwrap(), 1);
        (cluster, inputs)
    }

    #[test]
    fn deferred_frames_keep_their_order() {
        let (cluster, _) = alone();
        let mut locked = cluster.lock_all();
        let frame = |number: u8| Output::Frame {
            at: Time::ZERO,
            tail: Time::ZERO,
            frame: SharedFrame::from(&[number; 64][..]),
            message: None,
        };
        let sent = |number: u8| SentFrame {
            ready: Time::ZERO.into(),
            frame: CardFrame::Owned(SharedFrame::from(&[number; 64][..])),
            message: None,
            class: FrameClass::Card,
        };
        // The domain lacks a lock for the first frame. The later ones of the card wait.
        locked.set_aside(0, sent(1), false);
        locked.set_aside(0, sent(2), true);
        locked.set_aside(0, sent(3), true);
        assert_eq!(locked.next_output(0), Some(frame(1)));
        // The next domain sends the first one, and lacks a lock for the second.
        assert_eq!(locked.next_output(0), Some(frame(2)));
        locked.set_aside(0, sent(2), false);
        locked.set_aside(0, sent(4), true);
        assert_eq!([(); 3].map(|()| locked.next_output(0)), [2, 3, 4].map(|number| Some(frame(number))));
    }

    #[test]
    fn nothing_overtakes_a_deferred_read() {
        let (cluster, _) = alone();
        let mut locked = cluster.lock_all();
        let (card, bus) = locked.nodes.card_and_bus(0).unwrap();
        card.nic.handle(Time::ZERO, Input::HostReset, bus);
        let read = Output::DmaRead {
            at: Time::ZERO,
            token: 2,
            ranges: SmallVec::new(),
            into: SmallVec::new(),
            message: None,
        };
        // The domain lacks a lock for a frame. The card has read since, and decided more.
        locked.common.more_locks = Some(MoreLocks::All);
        locked.defer(0, read.clone());
        assert_eq!(locked.next_output(0), None);
        locked.common.more_locks = None;
        assert_eq!(locked.next_output(0), Some(read));
        assert!(matches!(locked.next_output(0), Some(Output::Complete { token: 1, .. })));
    }

    #[test]
    fn pending_work_at_the_end_of_a_budget_is_resumed() {
        let (cluster, inputs) = alone();
        let mut locked = cluster.lock_all();
        locked.nodes[0].card.follow_ports();
        // Posted, and the budget is spent before the card continues.
        locked.nodes[0].card.nic.accepts_store(0);
        let launch = locked.nodes[0].card.host.pages.take(0).unwrap();
        let (card, bus) = locked.nodes.card_and_bus(0).unwrap();
        card.store(launch, bus);
        locked.common.budget = Budget::SPENT;
        run_until_idle(&mut locked, 0);
        assert_eq!(inputs.lock().unwrap().last(), Some(&"posted"));
        assert!(locked.common.has_deferred && !locked.may_split());
        assert!(!dispatch::resume(&mut locked));
        assert_eq!(inputs.lock().unwrap().last(), Some(&"resumed"));
    }

    #[test]
    fn registers_precede_the_post_and_the_card_continues_at_once() {
        let (cluster, inputs) = alone();
        let mut locked = cluster.lock_all();
        locked.nodes[0].card.follow_ports();
        serve_pages(&mut locked, 0);
        assert_eq!(*inputs.lock().unwrap(), ["released", "posted", "resumed"]);
    }
}
