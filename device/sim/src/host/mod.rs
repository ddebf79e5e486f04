//! Hosts: what a program and its library do with a NIC, operation by operation, one module for each kind of NIC.
//!
//! A host is sans-IO as the models are: it is told what happens at which instant, and says what it wants done by
//! [`Effects`].

pub mod ethernet;
pub mod memory;
pub mod ultra;

use niclab_model::nic::FrameBytes;
use niclab_model::parts::ledger::Ledger;
use niclab_model::parts::message::Message;
use niclab_model::parts::mischief::Rates;
use niclab_model::time::Time;

use self::ethernet::EthernetHost;
use self::ultra::UltraHost;
use crate::judge::{Check, Judge};
use crate::script::Script;

/// A frame, and whose message it carries.
pub type Parcel = (FrameBytes, Option<Message>);

/// What a host and its NIC want done.
#[derive(Debug, Default)]
pub struct Effects {
    /// Frames for the link, each with the instant at which it is ready.
    pub frames: Vec<(Time, Parcel)>,
}

/// A host and the NIC that its program uses.
pub enum Host {
    /// With an ULTRA card.
    Ultra(Box<UltraHost>),
    /// With the Ethernet function.
    Ethernet(Box<EthernetHost>),
}

impl Host {
    /// The later of the end of the host's last operation and its last delivery.
    #[must_use]
    pub fn clock(&self) -> Time {
        match self {
            Self::Ultra(host) => host.clock(),
            Self::Ethernet(host) => host.nic().host_clock(),
        }
    }

    /// The instant from which on nothing that was begun is busy any more.
    #[must_use]
    pub fn rest(&self) -> Time {
        match self {
            Self::Ultra(host) => host.rest(),
            Self::Ethernet(host) => host.nic().host_clock(),
        }
    }

    /// A measured part begins at `begin`.
    pub fn begin_at(&mut self, begin: Time) {
        if let Self::Ultra(host) = self {
            host.begin_at(begin);
        }
    }

    /// The NIC's next deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self {
            Self::Ultra(host) => host.nic().poll_timeout(),
            Self::Ethernet(_) => None,
        }
    }

    /// What every crossing of the node has cost.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        match self {
            Self::Ultra(host) => host.nic().ledger(),
            Self::Ethernet(host) => host.nic().ledger(),
        }
    }

    /// The same, to tell it what to keep.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        match self {
            Self::Ultra(host) => host.nic_mut().ledger_mut(),
            Self::Ethernet(host) => host.nic_mut().ledger_mut(),
        }
    }

    /// Frames sent.
    #[must_use]
    pub const fn sent_frames(&self) -> u64 {
        match self {
            Self::Ultra(host) => host.tally().sent_frames,
            Self::Ethernet(host) => host.tally().sent_frames,
        }
    }

    /// A frame is there.
    pub fn arrive(&mut self, now: Time, parcel: &Parcel, judge: &mut Judge, effects: &mut Effects) {
        match self {
            Self::Ultra(host) => host.arrive(now, parcel, judge, effects),
            Self::Ethernet(host) => host.arrive(now, parcel),
        }
    }

    /// The NIC's deadline has come.
    pub fn timeout(&mut self, now: Time, judge: &mut Judge, effects: &mut Effects) {
        match self {
            Self::Ultra(host) => host.timeout(now, judge, effects),
            Self::Ethernet(_) => {}
        }
    }

    /// The program goes on.
    pub fn step(&mut self, now: Time, script: &mut Script, judge: &mut Judge, effects: &mut Effects) {
        match self {
            Self::Ultra(host) => host.step(now, script, judge, effects),
            Self::Ethernet(host) => host.step(now, script, judge, effects),
        }
    }

    /// When the program has something to do next, at `earliest` or later; none if that is not before `known`.
    pub fn wake(&mut self, earliest: Time, known: Option<Time>, script: &mut Script) -> Option<Time> {
        let is_news = |at: &Time| known.is_none_or(|known| *at < known);
        let soonest = match self {
            Self::Ultra(host) => host.soonest(),
            Self::Ethernet(host) => host.soonest(),
        };
        // Most often it is known, and the program need not be asked.
        Some(earliest.max(soonest)).filter(is_news)?;
        let next = match self {
            Self::Ultra(host) => host.wake(script),
            Self::Ethernet(host) => host.wake(script),
        };
        next.map(|at| at.max(earliest)).filter(is_news)
    }

    /// Whether a fault of the device keeps the program from seeing that it may send.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        match self {
            Self::Ultra(host) => host.is_stuck(),
            Self::Ethernet(_) => false,
        }
    }

    /// Sets what goes wrong in the NIC from now on. A NIC that was made without faults never has any.
    pub fn set_device_faults(&mut self, rates: Rates) {
        if let Self::Ultra(host) = self
            && let Some(saboteur) = host.nic_mut().saboteur_mut()
        {
            saboteur.set_rates(rates);
        }
    }

    /// The checks at the end of a run.
    pub fn finish(&mut self, judge: &mut Judge) {
        match self {
            Self::Ultra(host) => host.finish(judge),
            Self::Ethernet(host) => {
                let unread = host.unread();
                if unread > 0 {
                    judge.fail(Check::Drained, || format!("{unread} messages arrived and were not received"));
                }
            }
        }
    }
}
