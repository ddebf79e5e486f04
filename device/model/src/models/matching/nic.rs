//! The card: both ends of messages over one transport, and the host's control requests.

use alloc::vec::Vec;

use niclab_abi::PAGE_BYTES;
use niclab_abi::control::PortOpen;
use niclab_abi::firmware::FirmwareLoad;
use niclab_abi::matching::SpillOpen;
use niclab_isa::image::{self, ImageError};

use crate::models::matching::command::{Command, Transfer};
use crate::models::matching::config::{Config, ConfigError, PORTS};
use crate::models::matching::control::{Operation, image_error, loaded};
use crate::models::matching::counters::{Counters, Effects};
use crate::models::matching::endpoints::Endpoints;
use crate::models::matching::engine::ENTRY_BYTES;
use crate::models::matching::port::MatchPort;
use crate::models::matching::program;
use crate::models::matching::transport::Transport;
use crate::models::matching::wire::seal;
use crate::nic::{Finish, FrameBytes, Input, Nic, Observed, PageStore, Register, Statistics};
use crate::parts::card::{nic_of_effects, observed_of_effects};
use crate::parts::control::{self, Answer, ControlError, Controlled};
use crate::parts::effects::{Machine, ReplyDue, WORD_BYTES, WorkPrices, empty_reply};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::parts::image_reads::ImageReads;
use crate::parts::region_control::Carried;
use crate::parts::regions::RegionError;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Only checking long inputs and copying long outputs depends on a length.
const WORK: WorkPrices =
    WorkPrices { input: 20, checked_bytes_in_unit: 16, output: 8, copied_bytes_in_unit: 64 };

/// A Match card.
pub struct Match {
    config: Config,
    ends: Endpoints,
    pub(super) transport: Transport,
    /// Firmware images that are being read.
    images: ImageReads,
    /// Puts and gets posted so far.
    messages: u64,
}

impl Match {
    /// A card without open ports.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let effects = Effects::new(HostInterface::new(config.profile.clone()), WORK);
        Ok(Self {
            ends: Endpoints::new(&config, effects)?,
            transport: Transport::new(&config),
            images: ImageReads::default(),
            messages: 0,
            config,
        })
    }

    /// The card's configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The card's counters.
    pub const fn counters(&self) -> &Counters {
        &self.ends.effects.counters
    }

    /// Processes an input. The caller has attached the node's bus.
    #[inline]
    fn take(&mut self, now: Time, input: Input<'_>) {
        self.ends.effects.on_input(&input);
        match input {
            Input::PageStore(store) => self.on_store(now, &store),
            Input::Frame { frame, message, .. } => {
                self.transport.on_frame(now, frame, message, &mut self.ends);
            }
            Input::BorrowedFrame { frame, message, .. } => {
                self.transport.on_borrowed_frame(now, frame, message, &mut self.ends);
            }
            Input::DmaData { token, bytes, is_whole } => self.on_data(now, token, bytes, is_whole),
            Input::Borrowed { token, into } => self.transport.on_borrowed(token, into, &mut self.ends),
            Input::Register { port, register } => self.on_register(now, port as usize, register),
            Input::Control { token, request } => control::on_control(self, now, token, request),
            Input::ShellCounts(counts) => self.ends.effects.shell_counts = counts,
            // This model's host interface consists of pages alone.
            Input::Descriptor(_) | Input::PollDemand { .. } => {}
            Input::Timeout => self.transport.on_timeout(now, &mut self.ends),
            Input::HostReset => {
                control::on_host_reset(self, now);
                self.transport.on_host_reset();
                self.images.clear();
            }
        }
    }

    /// A program posted a command: a burst of programmed I/O, and the Load machine. While the port accepts no command,
    /// the shell leaves the store in its page. If the shell passed it on nevertheless, the card would drop it.
    fn on_store(&mut self, now: Time, store: &PageStore) {
        let index = store.port as usize;
        if !self.accepts_store(store.port) {
            return;
        }
        let Some(port) = self.ends.ports.get_mut(index).and_then(Option::as_mut) else {
            debug_assert!(false, "a port that accepts a command is open");
            return;
        };
        let now = port.page.launched_at(now);
        self.ends.effects.counters.unreported += u64::from(core::mem::take(&mut port.has_counted));
        let (launched, is_line_due) = port.page.count_launch();
        let handle = launched as u32;
        let command = Command::decode(store.code, &store.words, &self.config);
        let message = match &command {
            Ok(Command::Transfer(transfer)) => Some(self.tag(now, store.port, transfer)),
            _ => None,
        };
        let effects = &mut self.ends.effects;
        effects.attribute(message);
        let bytes = store.words.len() as u64 * WORD_BYTES;
        let software_done = effects.interface.host_send(now, bytes);
        let arrived = effects.interface.transfer(BusTransfer::PioWrite, software_done, bytes).end;
        let ready = effects.work(Machine::Load, arrived, bytes).end;
        let done = command.and_then(|command| self.perform(ready, index, handle, command, message));
        if let Err(result) = done {
            self.ends.refuse_command(ready, index, handle, store.words[2], result);
        } else if is_line_due && let Some(port) = &mut self.ends.ports[index] {
            port.page.write(ready, &mut self.ends.effects);
        }
    }

    /// The tag, for the ledger, of the message that a command begins.
    fn tag(&mut self, now: Time, port: u32, transfer: &Transfer) -> TraceTag {
        self.messages += 1;
        TraceTag {
            node: self.config.node,
            port: port as u16,
            number: self.messages,
            launched: now.max(self.ends.effects.interface.host_clock()),
            bytes: transfer.memory.bytes as u32,
        }
    }

    fn perform(
        &mut self,
        ready: Time,
        index: usize,
        handle: u32,
        command: Command,
        message: Option<TraceTag>,
    ) -> Result<(), u32> {
        match &command {
            Command::Transfer(transfer) => self.ends.check_memory(index, &transfer.memory)?,
            Command::Append(append) => self.ends.check_memory(index, &append.memory)?,
            Command::Unlink { .. } | Command::ArmCounter { .. } => {}
        }
        let Endpoints { ports, initiator, target, effects, .. } = &mut self.ends;
        let Some(port) = &mut ports[index] else {
            debug_assert!(false, "a port that accepts a command is open");
            return Ok(());
        };
        match command {
            Command::Transfer(transfer) => {
                let outgoing = initiator.begin(ready, handle, transfer, message, port, effects);
                self.transport.send(outgoing, &mut self.ends);
            }
            Command::Append(append) => target.append(ready, handle, &append, port, effects)?,
            Command::Unlink { handle } => target.unlink(ready, handle, port, effects),
            Command::ArmCounter { counter, threshold } => {
                port.arm_counter(ready, counter, threshold, effects)
            }
        }
        Ok(())
    }

    /// A store to a register of the completer page.
    fn on_register(&mut self, now: Time, index: usize, register: Register) {
        let Endpoints { ports, target, effects, .. } = &mut self.ends;
        // A register store to a closed port has no effect.
        let Some(port) = ports.get_mut(index).and_then(Option::as_mut) else { return };
        let MatchPort { queue, page, .. } = &mut **port;
        let Some(released) = queue.on_register(now, index, register, page, effects) else { return };
        let due = core::iter::from_fn(|| queue.take_due(released)).last();
        let release = queue.take_early(now, released, effects).or(due);
        target.search_unexpected(release.map_or(now, |release| release.at), port, effects);
    }

    /// The data of a read has arrived.
    fn on_data(&mut self, now: Time, token: u64, bytes: FrameBytes, is_whole: bool) {
        let Some(bytes) = self.transport.on_data(token, bytes, is_whole, &mut self.ends) else { return };
        // Data that was read before a host reset belongs to no request.
        let Some(due) = self.images.take(token) else { return };
        let taken = if is_whole { self.take_firmware(&bytes) } else { Err(ControlError::BadAddress) };
        let effects = &mut self.ends.effects;
        match taken {
            // Messages that arrived before are matched by then.
            Ok(()) => effects.reply(now.max(self.ends.target.engine.unit_idle()), due, loaded(&bytes)),
            Err(error) => effects.refuse(now, due, error.status()),
        }
    }

    /// A firmware image was read. The card loads it, or refuses it and changes nothing.
    fn take_firmware(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        // Checking and decoding a program word of 24 bytes takes about 200 ns.
        self.ends.effects.spend(bytes.len() as u64);
        let program = image::read(bytes, self.config.control_store_words as usize).map_err(image_error)?;
        self.ends.target.engine.load(Some(&program)).map_err(image_error)
    }

    /// Loads the built-in program, or begins to read the requested one and replies when it has arrived.
    fn load_firmware(
        &mut self,
        at: &mut Time,
        load: &FirmwareLoad,
        due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        let Some(range) = ImageReads::checked(load)? else {
            self.ends.target.engine.load(None).map_err(image_error)?;
            *at = (*at).max(self.ends.target.engine.unit_idle());
            return Ok(Answer::Now(loaded(program::PORTALS)));
        };
        let most = self.config.control_store_words as usize;
        let bytes = load.bytes as usize;
        if bytes > image::HEADER_BYTES + most * image::WORD_BYTES {
            return Err(image_error(ImageError::Words { found: bytes / image::WORD_BYTES, most }));
        }
        Ok(self.images.begin(*at, range, due, &mut self.ends.effects))
    }

    fn open_spill(&mut self, open: &SpillOpen) -> Result<(), ControlError> {
        let is_inside = open.address.checked_add(open.bytes).is_some();
        if !open.address.is_multiple_of(ENTRY_BYTES) || !is_inside {
            return Err(ControlError::BadAddress);
        }
        if open.bytes == 0 || !open.bytes.is_multiple_of(ENTRY_BYTES) {
            return Err(ControlError::BadValue);
        }
        let is_new = self.ends.target.engine.open_spill(open.address, open.bytes);
        if is_new { Ok(()) } else { Err(ControlError::PortBusy) }
    }

    /// Closes a region. Returns when the last effect of its port is visible.
    fn close_region(&mut self, now: Time, index: usize, region: u32) -> Result<Time, ControlError> {
        let ends = &mut self.ends;
        if !ends.regions[index].close(region) {
            return Err(RegionError::NotFound.into());
        }
        ends.target.unlink_region(index, region, &mut ends.effects);
        self.transport.close_region(now, index, region, ends);
        ends.end_reads(now, index, region);
        let last = ends.ports[index].as_ref().map_or(now, |port| port.last_effect());
        self.transport.pump_all(now, ends);
        Ok(last)
    }
}

impl Controlled for Match {
    type Own = Operation;
    type Counters = Counters;
    const PORTS: usize = PORTS;
    // The counters follow the status line.
    const STATUS_BYTES: u64 = PAGE_BYTES;

    fn effects(&mut self) -> &mut Effects {
        &mut self.ends.effects
    }

    fn max_slices(&self) -> u32 {
        self.config.max_events
    }

    fn is_open(&self, port: usize) -> bool {
        self.ends.ports.get(port).is_some_and(Option::is_some)
    }

    fn check_open(&self, open: &PortOpen) -> Result<(), ControlError> {
        if open.fifo_words == 0 { Ok(()) } else { Err(ControlError::BadValue) }
    }

    fn open_port(&mut self, port: usize, open: &PortOpen) -> Result<(), ControlError> {
        self.ends.ports[port] = Some(MatchPort::new(port, open).into());
        Ok(())
    }

    fn close_port(&mut self, now: Time, port: usize) -> Time {
        let Some(last) = self.ends.close(port) else { return Time::ZERO };
        self.transport.close_port(now, port, &mut self.ends);
        last
    }

    fn on_reset(&mut self) {
        self.ends.target.engine.close_spill();
    }

    fn statistics(&self) -> Statistics {
        self.counters().statistics(&self.ends.effects.shell_counts)
    }

    /// In addition to the counters of reports: the entries that are linked now, and those of them that are spilled.
    fn own_counters(&self) -> Vec<(&'static str, u64)> {
        let (entries, spilled) = self.ends.target.engine.entries();
        let linked = [("entries", entries), ("entries_spilled", spilled)];
        self.counters().by_name().into_iter().chain(linked).collect()
    }

    fn carry_out(
        &mut self,
        at: &mut Time,
        own: Operation,
        due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        match own {
            Operation::Region(region) => {
                let Endpoints { ports, regions, .. } = &mut self.ends;
                let open = |port: u32| match ports.get(port as usize) {
                    Some(Some(_)) => Ok(port as usize),
                    _ => Err(ControlError::BadPort),
                };
                match region.carry_out(open, regions)? {
                    Carried::Done(reply) => return Ok(Answer::Now(reply)),
                    Carried::Close { port, region } => *at = (*at).max(self.close_region(*at, port, region)?),
                }
            }
            Operation::FirmwareLoad(load) => return self.load_firmware(at, &load, due),
            Operation::SpillOpen(open) => self.open_spill(&open)?,
        }
        Ok(Answer::Now(empty_reply()))
    }
}

impl Nic for Match {
    nic_of_effects!(ends.effects);

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.transport.next_deadline()
    }

    #[inline]
    fn accepts_store(&self, port: u32) -> bool {
        self.ends.accepts_command(port as usize, self.config.commands_in_flight as usize)
    }

    #[inline]
    fn is_open(&self, port: u32) -> bool {
        Controlled::is_open(self, port as usize)
    }

    #[inline]
    fn borrows(&self) -> Option<Finish> {
        Some(seal)
    }

    #[inline]
    fn work_done(&self) -> u64 {
        self.ends.effects.spent() + self.ends.target.engine.work()
    }
}

impl Observed for Match {
    observed_of_effects!(ends.effects);

    fn delivered(&self, port: u32) -> u64 {
        self.ends.ports.get(port as usize).and_then(Option::as_ref).map_or(0, |port| port.queue.stored())
    }

    fn unreported(&self) -> u64 {
        self.counters().unreported
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters().by_name().into()
    }
}
