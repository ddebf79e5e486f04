//! Both ends of messages on one card, over its transport: the messages that its programs begin, and those that arrive.

use alloc::boxed::Box;

use niclab_abi::matching::{EVENT_REFUSED, ListEvent, RESULT_BAD_RANGE, RESULT_BAD_REGION, RESULT_OK};
use niclab_abi::receive::REFUSED_COMMAND;

use crate::models::matching::config::{Config, ConfigError, PORTS};
use crate::models::matching::counters::Effects;
use crate::models::matching::initiator::Initiator;
use crate::models::matching::port::{EVENTS_AT_ONCE, MatchPort, Told};
use crate::models::matching::target::{Missed, Target, Verdict};
use crate::models::matching::transport::{Arrived, Beginning, MessageUser, Outgoing, Owner, RegionPart};
use crate::models::matching::wire::{Header, Operation};
use crate::parts::regions::{Region, Regions};
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Both ends of a card's messages.
pub(super) struct Endpoints {
    node: u16,
    pub(super) ports: [Option<Box<MatchPort>>; PORTS],
    pub(super) regions: [Regions; PORTS],
    pub(super) initiator: Initiator,
    pub(super) target: Target,
    pub(super) effects: Effects,
}

impl Endpoints {
    pub(super) fn new(config: &Config, effects: Effects) -> Result<Self, ConfigError> {
        let (regions, extents) = (config.regions_per_port, config.extents_per_port);
        Ok(Self {
            node: config.node,
            ports: Default::default(),
            regions: core::array::from_fn(|_| Regions::new(regions, extents)),
            initiator: Initiator::new(config.node),
            target: Target::new(config, &effects.interface)?,
            effects,
        })
    }

    /// Whether the port accepts a command of any kind: the event queue has room, fewer than `max_in_flight` commands
    /// are in flight, and no append waits.
    #[inline]
    pub(super) fn accepts_command(&self, index: usize, max_in_flight: usize) -> bool {
        let port = self.ports.get(index).and_then(Option::as_ref);
        port.is_some_and(|port| port.queue.has_room(EVENTS_AT_ONCE))
            && !self.target.is_appending(index)
            && self.initiator.in_flight(index) < max_in_flight
    }

    /// Checks that memory is part of one of the port's regions.
    ///
    /// # Errors
    /// The `RESULT_` constant that gives the reason for the refusal.
    pub(super) fn check_memory(&self, index: usize, memory: &RegionPart) -> Result<(), u32> {
        if memory.bytes == 0 {
            return Ok(());
        }
        let region = self.regions[index].get(memory.region).ok_or(RESULT_BAD_REGION)?;
        if region.holds(memory.offset, memory.bytes) { Ok(()) } else { Err(RESULT_BAD_RANGE) }
    }

    /// Reports that the card has refused a command without any effect.
    pub(super) fn refuse_command(&mut self, at: Time, index: usize, handle: u32, user: u64, result: u32) {
        let Some(port) = &mut self.ports[index] else {
            debug_assert!(false, "a port that posted a command is open");
            return;
        };
        self.effects.counters.commands_refused += 1;
        let event = ListEvent { user, ..ListEvent::default() };
        let (node, own) = (self.node, index as u8);
        let told = Told { kind: EVENT_REFUSED, result, node, port: own, handle, event, ..Told::default() };
        let place = port.queue.promise(1);
        port.tell(at, place, &told, &mut self.effects);
        port.page.refuse(at, REFUSED_COMMAND, &mut self.effects);
    }

    /// Closes a port. Returns when its last effect is visible, or `None` if it is not open.
    pub(super) fn close(&mut self, index: usize) -> Option<Time> {
        let port = self.ports[index].take()?;
        self.initiator.close(index);
        self.target.close(index, &mut self.effects);
        self.regions[index].close_all();
        Some(port.last_effect())
    }

    /// Ends all operations that read a closed region, or that wait for data into it.
    pub(super) fn end_reads(&mut self, now: Time, index: usize, region: u32) {
        let commands = self.initiator.commands_in(index, region).map(Owner::Initiator);
        let owners: alloc::vec::Vec<Owner> =
            commands.chain(self.target.served_from(index, region).map(Owner::Target)).collect();
        for owner in owners {
            self.on_left(now, index, owner, RESULT_BAD_REGION);
        }
        self.target.forget_unlinked(index);
    }

    /// The head of an answer to a message of another card.
    const fn answer_to(&self, header: &Header) -> Header {
        Header {
            source_node: self.node,
            source_port: header.target_port,
            target_port: header.source_port,
            wants_answer: false,
            interrupt: false,
            message: 0,
            ..*header
        }
    }

    /// The answer to a put's initiator, if it wants one.
    fn answer_put(&self, at: Time, header: &Header, verdict: Verdict) -> Option<Outgoing> {
        let Verdict { bytes, offset, result } = verdict;
        let answer = Header {
            operation: Operation::Ack,
            bytes,
            offset,
            result: result as u8,
            ..self.answer_to(header)
        };
        header.wants_answer.then_some(Outgoing {
            node: header.source_node,
            header: answer,
            memory: RegionPart::NONE,
            ready: at,
            message: None,
            owner: Owner::Unowned,
        })
    }

    fn begin_put(&mut self, now: Time, header: &Header) -> Beginning {
        let port = self.ports.get_mut(usize::from(header.target_port)).and_then(Option::as_deref_mut);
        match self.target.begin_put(now, header, port, &mut self.effects) {
            Ok(found) => Beginning {
                owner: Owner::Target(found.number),
                memory: found.memory,
                ready: found.at,
                answer: None,
            },
            Err(Missed { at, result }) => Beginning {
                answer: self.answer_put(at, header, Verdict { bytes: 0, offset: 0, result }),
                ..nobodys(now)
            },
        }
    }

    /// Answers a get, with data or with the reason why there is none.
    fn begin_get(&mut self, now: Time, header: &Header, message: Option<TraceTag>) -> Outgoing {
        let port = self.ports.get_mut(usize::from(header.target_port)).and_then(Option::as_deref_mut);
        let found = self.target.begin_get(now, header, port, &mut self.effects);
        let (at, result, memory, offset, owner) = match found {
            Ok(found) => (found.at, found.result, found.memory, found.offset, Owner::Target(found.number)),
            Err(Missed { at, result }) => (at, result, RegionPart::NONE, 0, Owner::Unowned),
        };
        let answer = Header {
            operation: Operation::Reply,
            bytes: memory.bytes,
            offset,
            result: result as u8,
            ..self.answer_to(header)
        };
        Outgoing { node: header.source_node, header: answer, memory, ready: at, message, owner }
    }
}

/// A message that no operation takes.
const fn nobodys(now: Time) -> Beginning {
    Beginning { owner: Owner::Unowned, memory: RegionPart::NONE, ready: now, answer: None }
}

impl MessageUser for Endpoints {
    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    fn region(&self, port: usize, name: u32) -> Option<&Region> {
        self.regions.get(port)?.get(name)
    }

    fn on_begin(&mut self, now: Time, header: &Header, message: Option<TraceTag>) -> Beginning {
        match header.operation {
            Operation::Put => self.begin_put(now, header),
            Operation::Get => {
                Beginning { answer: Some(self.begin_get(now, header, message)), ..nobodys(now) }
            }
            Operation::Ack => {
                let port = self.ports.get_mut(usize::from(header.target_port)).and_then(Option::as_mut);
                if let Some(port) = port {
                    self.initiator.on_answer(now, header, port, &mut self.effects);
                }
                nobodys(now)
            }
            Operation::Reply => self.initiator.expect_reply(header).map_or(nobodys(now), |memory| {
                Beginning { owner: Owner::Initiator(header.token), memory, ..nobodys(now) }
            }),
        }
    }

    fn on_end(&mut self, at: Time, arrived: Arrived) -> Option<Outgoing> {
        let Arrived { owner, header, .. } = arrived;
        let port = self.ports.get_mut(arrived.port).and_then(Option::as_deref_mut);
        match (owner, port) {
            (Owner::Target(number), Some(port)) => {
                let verdict = self.target.end_put(at, number, &arrived, port, &mut self.effects);
                self.answer_put(at, &header, verdict)
            }
            // The port was closed in the meantime.
            (Owner::Target(_), None) => {
                let verdict = Verdict { bytes: 0, offset: 0, result: arrived.result };
                self.answer_put(at, &header, verdict)
            }
            (Owner::Initiator(token), Some(port)) => {
                self.initiator.on_reply(at, token, &arrived, port, &mut self.effects);
                None
            }
            (Owner::Initiator(_), None) | (Owner::Unowned, _) => None,
        }
    }

    fn on_left(&mut self, at: Time, port: usize, owner: Owner, result: u32) {
        // A port that was closed in the meantime waits for nothing.
        let Some(port) = self.ports.get_mut(port).and_then(Option::as_mut) else { return };
        let effects = &mut self.effects;
        match owner {
            Owner::Unowned => {}
            Owner::Initiator(token) if result == RESULT_OK => {
                self.initiator.on_sent(at, token, port, effects)
            }
            Owner::Initiator(token) => self.initiator.fail(at, token, result, port, effects),
            Owner::Target(number) => self.target.end_get(at, number, result, port, effects),
        }
    }
}
