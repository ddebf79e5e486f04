//! The card: ports, regions, the match unit with its lists, and the links to the other cards.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use niclab_abi::control::Statistics;
use niclab_abi::matching::MatchStatistics;
use niclab_abi::receive::REFUSED_RELEASE;

use crate::matching::config::{Config, ConfigError, PORTS};
use crate::matching::control;
use crate::matching::counters::Counters;
use crate::matching::effects::{Effects, WORD_BYTES};
use crate::matching::engine::Engine;
use crate::matching::messages::{Peers, Reading};
use crate::matching::port::Port;
use crate::matching::regions::Regions;
use crate::nic::{FrameBytes, HostRanges, Input, Nic, Output, Register, ShellCounts};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::parts::ledger::Ledger;
use crate::time::Time;

/// What any input costs, as [`Nic::work_done`] counts; what it is long for costs more.
const INPUT_WORK: u64 = 20;
/// Bytes of a frame or a request that are checked in a unit of work.
const CHECKED_BYTES_IN_UNIT: usize = 16;
/// What any output costs.
const OUTPUT_WORK: u64 = 8;
/// Bytes that are copied for an output in a unit of work.
const COPIED_BYTES_IN_UNIT: u64 = 64;

/// What a read of host memory is for.
#[derive(Clone, Debug)]
pub(super) enum Read {
    /// A frame's data.
    Frame(Reading),
    /// A firmware image; the token of the control request that asked for it.
    Firmware(u64),
}

/// A Match card.
pub struct Match {
    pub(super) config: Config,
    pub(super) ports: [Option<Box<Port>>; PORTS],
    pub(super) regions: [Regions; PORTS],
    pub(super) engine: Engine,
    pub(super) peers: Peers,
    pub(super) effects: Effects,
    /// Reads that were asked for and not answered, by token.
    pub(super) reads: VecDeque<(u64, Read)>,
    pub(super) shell_counts: ShellCounts,
    /// Puts and gets launched so far.
    pub(super) messages: u64,
    tokens: u64,
}

impl Match {
    /// A card with no port open.
    ///
    /// # Errors
    /// When there can be no such card.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            ports: Default::default(),
            regions: core::array::from_fn(|_| Regions::new(config.regions_per_port, config.extents_per_port)),
            engine: Engine::new(&config)?,
            peers: Peers::new(&config),
            effects: Effects::new(HostInterface::new(config.profile.clone())),
            reads: VecDeque::new(),
            shell_counts: ShellCounts::default(),
            messages: 0,
            tokens: 0,
            config,
        })
    }

    /// What the card was made with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What the card has counted.
    pub const fn counters(&self) -> &Counters {
        &self.effects.counters
    }

    /// The counts of this model, as a driver reads them.
    pub fn match_statistics(&self) -> MatchStatistics {
        let (entries, spilled) = self.engine.entries();
        self.effects.counters.match_statistics(entries, spilled)
    }

    /// A number that no other command, read or message of this card has.
    pub(super) const fn next_token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// A store to a register of the completer page.
    fn on_register(&mut self, now: Time, index: usize, register: Register) {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let effects = &mut self.effects;
        match register {
            Register::ReleaseInterval(events) => port.events.set_release_interval(events),
            Register::Armed(event) => {
                effects.counters.unordered += 1;
                let arrived = store_register(now, effects);
                port.events.arm(event);
                if event != 0 && port.events.take_armed() {
                    let at = arrived.max(port.events.last_visible());
                    effects.interrupt(at, niclab_abi::event::CAUSE_ARMED, index, None);
                }
            }
            Register::Released(released) if !port.events.may_release(released) => {
                effects.counters.unordered += 1;
                let arrived = store_register(now, effects);
                port.refuse(arrived, REFUSED_RELEASE, effects);
            }
            Register::Released(released) => {
                let mut at = port.events.on_released(released).unwrap_or(now);
                if port.events.is_off_the_beat(released) {
                    effects.counters.unordered += 1;
                    at = store_register(now, effects);
                    port.events.release_off_the_beat(released);
                }
                self.search_unexpected(at, index);
            }
        }
    }

    /// The answer to a read.
    fn on_data(&mut self, now: Time, token: u64, bytes: FrameBytes, is_whole: bool) {
        let Some(place) = self.reads.iter().position(|(read, _)| *read == token) else { return };
        match self.reads.remove(place) {
            Some((_, Read::Frame(reading))) => self.on_frame_data(reading, bytes, is_whole),
            Some((_, Read::Firmware(token))) => self.on_firmware(now, token, &bytes, is_whole),
            None => {}
        }
    }
}

/// Bytes that an input brings from outside.
#[inline]
fn bytes_of(input: &Input<'_>) -> usize {
    match input {
        Input::Frame { frame, .. } => frame.len(),
        Input::Control { request, .. } => request.len(),
        Input::DmaData { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

/// Bytes that a shell copies for an output.
#[inline]
fn bytes_moved(output: &Output) -> u64 {
    match output {
        Output::DmaFrame { ranges, .. } | Output::DmaRead { ranges, .. } => {
            ranges.iter().map(|range| range.bytes).sum()
        }
        Output::Frame { frame, .. } => frame.len() as u64,
        _ => 0,
    }
}

/// The host stores a register of a completer page. Returns when it is there.
fn store_register(now: Time, effects: &mut Effects) -> Time {
    effects.interface.transfer(BusTransfer::PioWrite, now, WORD_BYTES).end
}

impl Nic for Match {
    #[inline]
    fn handle(&mut self, now: Time, input: Input<'_>) {
        self.effects.interface.ledger_mut().attribute(None);
        self.effects.spent += INPUT_WORK + (bytes_of(&input) / CHECKED_BYTES_IN_UNIT) as u64;
        match input {
            Input::PageStore(store) => self.on_store(now, &store),
            Input::Frame { frame, message } => self.on_frame(now, frame, message),
            Input::DmaData { token, bytes, is_whole } => self.on_data(now, token, bytes, is_whole),
            Input::Register { port, register } => self.on_register(now, port as usize, register),
            Input::Control { token, request } => self.on_control(now, token, request),
            Input::ShellCounts(counts) => self.shell_counts = counts,
            Input::Timeout => while self.retransmit(now) {},
            Input::HostReset => {
                for port in 0..PORTS {
                    self.close_port(now, port);
                }
                self.engine.close_spill();
                self.reads.clear();
                let is_for_the_host = |output: &Output| !matches!(output, Output::Frame { .. });
                self.effects.outputs.retain(|output| !is_for_the_host(output));
            }
        }
    }

    fn memory_named_by(&self, request: &[u8]) -> HostRanges {
        control::memory_named_by(request)
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        let output = self.effects.outputs.pop_front();
        if let Some(output) = &output {
            self.effects.spent += OUTPUT_WORK + bytes_moved(output) / COPIED_BYTES_IN_UNIT;
        }
        output
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.peers.next_deadline()
    }

    #[inline]
    fn accepts_store(&self, port: u32) -> bool {
        let port = self.ports.get(port as usize).and_then(Option::as_ref);
        port.is_some_and(|port| port.accepts_command(self.config.commands_under_way as usize))
    }

    #[inline]
    fn is_open(&self, port: u32) -> bool {
        self.ports.get(port as usize).is_some_and(Option::is_some)
    }

    #[inline]
    fn host_clock(&self) -> Time {
        self.effects.interface.host_clock()
    }

    fn delivered(&self, port: u32) -> u64 {
        self.ports.get(port as usize).and_then(Option::as_ref).map_or(0, |port| port.events.stored())
    }

    #[inline]
    fn work_done(&self) -> u64 {
        self.effects.spent + self.engine.work()
    }

    fn unordered(&self) -> u64 {
        self.effects.counters.unordered
    }

    fn ledger(&self) -> &Ledger {
        self.effects.interface.ledger()
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        self.effects.interface.ledger_mut()
    }

    fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.effects.counters.statistics(shell)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.effects.counters.by_name().into()
    }
}
