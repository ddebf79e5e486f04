//! What keeps the list: hardware, or a program on a unit of its own.

use niclab_model::models::matching::item::Item;
use niclab_model::models::matching::list_manager::inspect::Matching;
use niclab_model::models::matching::list_manager::{Handle, ListManager, Misbehaved, Timing};
use niclab_model::models::matching::queue_manager::{
    Fault, MAX_ITEMS, MatchQueue, Party, QueueManager, QueueState,
};
use niclab_model::models::matching::unit::Unit;

use super::{Setup, SetupError, UnitView};
use crate::firmware::Firmware;

/// What can be seen of what keeps the list, between two cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerView {
    /// The header that is being matched. What a program has sent for it is not counted.
    pub matching: Option<Matching>,
    /// Headers behind it.
    pub headers_waiting: usize,
    /// In hardware: no header begins before this cycle.
    pub free_at: Option<u64>,
    /// As a program: what the hardware around it holds.
    pub program: Option<QueueState>,
}

#[derive(Clone, Debug)]
pub enum Manager {
    Hardware(Box<ListManager>),
    Program(Box<QueueManager>),
}

impl Manager {
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let unit = |party, firmware: &Firmware| {
            Unit::new(firmware.words()).map_err(|error| SetupError::Program { party, error })
        };
        let matcher = unit(Party::Matcher, &setup.firmware)?;
        let timing = Timing::default();
        let Some(queue) = &setup.queue else {
            return Ok(Self::Hardware(Box::new(ListManager::new(timing, setup.uses, matcher))));
        };
        let items = setup.items.len();
        if items > MAX_ITEMS {
            return Err(SetupError::Items { items });
        }
        let queue = unit(Party::Queue, queue)?;
        Ok(Self::Program(Box::new(QueueManager::new(timing, setup.uses, queue, matcher))))
    }

    pub fn queue(&self) -> &dyn MatchQueue {
        match self {
            Self::Hardware(manager) => manager.as_ref(),
            Self::Program(manager) => manager.as_ref(),
        }
    }

    /// Appends an item before the first cycle. A program does so when it begins.
    pub fn append(&mut self, item: Item) -> Handle {
        match self {
            Self::Hardware(manager) => manager.preload(item),
            Self::Program(manager) => manager.append(item),
        }
    }

    pub fn queue_mut(&mut self) -> &mut dyn MatchQueue {
        match self {
            Self::Hardware(manager) => manager.as_mut(),
            Self::Program(manager) => manager.as_mut(),
        }
    }

    pub fn is_idle(&self) -> bool {
        match self {
            Self::Hardware(manager) => manager.is_idle(),
            Self::Program(manager) => manager.is_idle(),
        }
    }

    pub fn change_cycles(&self) -> u64 {
        match self {
            Self::Hardware(manager) => manager.change_cycles(),
            Self::Program(manager) => manager.change_cycles(),
        }
    }

    pub fn tick(&mut self) -> Result<(), Fault> {
        match self {
            Self::Hardware(manager) => manager.tick().map_err(|why| Fault { party: Party::Matcher, why }),
            Self::Program(manager) => manager.tick(),
        }
    }

    /// Who takes longer than `watchdog` cycles for what is being done, if somebody does.
    pub fn overdue(&self, watchdog: u64) -> Option<Fault> {
        match self {
            Self::Hardware(manager) => {
                let began = manager.state().matching?.began;
                let why = Misbehaved::Watchdog { cycles: watchdog };
                (manager.cycle() - began > watchdog).then_some(Fault { party: Party::Matcher, why })
            }
            Self::Program(manager) => manager.overdue(watchdog),
        }
    }

    /// One of both units; the one that matches where there is but that.
    pub fn unit(&self, party: Party) -> &Unit {
        match self {
            Self::Hardware(manager) => manager.unit(),
            Self::Program(manager) => manager.unit(party),
        }
    }

    pub fn view(&self, party: Party) -> UnitView {
        let (input, output) = match self {
            Self::Hardware(manager) => {
                let state = manager.state();
                (state.input, state.output)
            }
            Self::Program(manager) => (manager.input(party).collect(), manager.output(party).collect()),
        };
        UnitView::new(self.unit(party), input, output)
    }

    /// What it holds, and the item that is being judged.
    pub fn look(&self) -> (ManagerView, Option<Handle>) {
        match self {
            Self::Hardware(manager) => {
                let state = manager.state();
                let judged = state.matching.and_then(|matching| manager.linked().nth(matching.judged));
                let view = ManagerView {
                    matching: state.matching,
                    headers_waiting: state.headers_waiting,
                    free_at: Some(state.free_at),
                    program: None,
                };
                (view, judged.map(|(handle, _)| handle))
            }
            Self::Program(manager) => {
                let state = manager.state();
                let matching = |began| Matching { began, sent: 0, judged: state.failed, phase: state.phase };
                let view = ManagerView {
                    matching: state.began.map(matching),
                    headers_waiting: state.headers_waiting,
                    free_at: None,
                    program: Some(state.clone()),
                };
                (view, state.judged.filter(|_| state.began.is_some()))
            }
        }
    }

    /// The items that are linked; with their slots where a program keeps them.
    pub fn list(&self) -> Vec<(Option<u16>, Handle, Item)> {
        match self {
            Self::Hardware(manager) => manager.linked().map(|(handle, item)| (None, handle, *item)).collect(),
            Self::Program(manager) => {
                manager.slots().map(|(slot, handle, item)| (Some(slot), handle, item)).collect()
            }
        }
    }
}
