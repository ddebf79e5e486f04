//! The list manager: hardware, or a program on its own unit.

use niclab_model::models::matching::item::Item;
use niclab_model::models::matching::list_manager::inspect::Matching;
use niclab_model::models::matching::list_manager::{Handle, ListManager, Misbehaved, Timing};
use niclab_model::models::matching::queue_manager::{
    Fault, MAX_ITEMS, MatchQueue, Party, QueueManager, QueueState,
};
use niclab_model::models::matching::unit::Unit;

use super::{Setup, SetupError, UnitView};
use crate::firmware::Firmware;

/// The list manager's state between two cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerView {
    /// The header in progress. Its count of sent words is zero if a program keeps the list.
    pub matching: Option<Matching>,
    /// Number of headers waiting after it.
    pub headers_waiting: usize,
    /// For hardware: the first cycle in which a header can begin.
    pub free_at: Option<u64>,
    /// For a program: the state of the hardware around it.
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

    /// Appends an item before the first cycle. A program appends it when it starts.
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

    /// The program that has exceeded `watchdog` cycles for its current work, if any.
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

    /// The unit of this party. Without a queue program, always the matching unit.
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

    /// Its state, and the item under comparison.
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

    /// The linked items. A program's items have slots.
    pub fn list(&self) -> Vec<(Option<u16>, Handle, Item)> {
        match self {
            Self::Hardware(manager) => manager.linked().map(|(handle, item)| (None, handle, *item)).collect(),
            Self::Program(manager) => {
                manager.slots().map(|(slot, handle, item)| (Some(slot), handle, item)).collect()
            }
        }
    }
}
