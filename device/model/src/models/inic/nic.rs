//! The card: host, port, and the circuit of its assembly.

mod firmware_reload;

use alloc::boxed::Box;
use alloc::vec::Vec;

use niclab_abi::control::PortOpen;
use niclab_abi::firmware::{FirmwareLoad, STATUS_FIRMWARE_SIZE};
use niclab_abi::inic::{POST_ANY_SOURCE, PostRules};
use niclab_abi::receive::StatusLine;
use niclab_components::Checked;

use self::firmware_reload::{Refusal, Stage};
use crate::models::inic::arrivals::Number;
use crate::models::inic::assembling::{Assembled, Site, assemble};
use crate::models::inic::card::{Card, PORT};
use crate::models::inic::collectives::Collectives;
use crate::models::inic::command::Command;
use crate::models::inic::config::{Config, ConfigError};
use crate::models::inic::control::Operation;
use crate::models::inic::counters::{Counters, Effects};
use crate::models::inic::token::{Packet, Token};
use crate::nic::firmware_reload::{FirmwareReloadError, FirmwareReloadStep, Progress, Switch};
use crate::nic::{Input, Nic, Observed, PageStore, Register, Statistics};
use crate::parts::card::{nic_of_effects, observed_of_effects};
use crate::parts::control::{self, Answer, ControlError, Controlled};
use crate::parts::effects::{Machine, ReplyDue, WORD_BYTES, WorkPrices, empty_reply, reply_of};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::parts::image_reads::ImageReads;
use crate::parts::region_control::Carried;
use crate::parts::regions::{RegionError, Regions};
use crate::platform::node_bus::NodeBus;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Maximum length of an image that the card reads for a driver: longer than that of any assembly. Ours: a bound.
const MAX_IMAGE_BYTES: u32 = 64 << 10;

/// Work prices: the card checks long inputs and copies long outputs.
const WORK: WorkPrices =
    WorkPrices { input: 40, checked_bytes_in_unit: 16, output: 8, copied_bytes_in_unit: 64 };

/// An INIC card.
pub struct Inic {
    config: Config,
    card: Card,
    assembled: Assembled,
    collectives: Collectives,
    /// Progress of a firmware reload.
    stage: Stage,
    /// Firmware reloads so far. Frames contain it.
    epoch: u16,
    /// Images that the card is reading for the driver.
    images: ImageReads,
    /// Messages posted so far.
    messages: u64,
}

impl Inic {
    /// Creates a card with a closed port.
    ///
    /// # Errors
    /// If the parameters are invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let effects = Effects::new(HostInterface::new(config.profile.clone()), WORK);
        let assembled = assemble(&config.assembly, &site(&config, &effects), 0);
        let collectives = Collectives::new(&effects.interface, &config.assembly);
        let regions = Regions::new(config.regions_per_port, config.extents_per_port);
        let card = Card::new(&config, effects, regions);
        Ok(Self {
            card,
            assembled,
            collectives,
            stage: Stage::Runs,
            epoch: 0,
            images: ImageReads::default(),
            messages: 0,
            config,
        })
    }

    /// The circuit of an assembly in the card's epoch.
    fn assemble(&self, assembly: &Checked) -> Assembled {
        assemble(assembly, &site(&self.config, &self.card.effects), self.epoch)
    }

    /// The configuration of the card.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The card's counters.
    pub const fn counters(&self) -> &Counters {
        &self.card.effects.counters
    }

    /// Takes an input, between [`Nic::handle`]'s copies of the node's bus state.
    fn take(&mut self, now: Time, input: Input<'_>) {
        self.card.effects.on_input(&input);
        match input {
            Input::PageStore(store) => self.on_store(now, &store),
            // The FPGAs have no circuit that could take the frame.
            Input::Frame { .. } if self.stage.is_switching() => {
                self.card.effects.counters.lost_at_firmware_reload += 1;
            }
            Input::Frame { frame, message, .. } => {
                self.card.effects.attribute(message);
                let packet = Packet { frame: frame.clone(), message, is_too_much: false };
                let packet = Token::Packet(Box::new(packet));
                let Assembled { circuit, wire_in, .. } = &mut self.assembled;
                circuit.inject(*wire_in, now, now, packet, &mut self.card);
            }
            Input::DmaData { token, bytes, is_whole }
                if self.collectives.on_data(now, token, &bytes, is_whole, &mut self.card) => {}
            Input::DmaData { token, bytes, is_whole } => {
                if let Some(due) = self.images.take(token) {
                    return self.on_image(now, &bytes, is_whole, due);
                }
                self.assembled.circuit.on_data(now, token, bytes, is_whole, &mut self.card);
            }
            Input::Register { port, register } => self.on_register(now, port as usize, register),
            Input::Control { token, request } => control::on_control(self, now, token, request),
            Input::ShellCounts(counts) => self.card.effects.shell_counts = counts,
            // The card gets no borrowed payload.
            Input::Borrowed { .. } | Input::BorrowedFrame { .. } => {}
            // The host passes all work in pages.
            Input::Descriptor(_) | Input::PollDemand { .. } => {}
            Input::Timeout => {
                self.collectives.on_timeout(now, &mut self.card);
                self.assembled.circuit.on_timeout(now, &mut self.card);
            }
            Input::HostReset => {
                control::on_host_reset(self, now);
                self.images.clear();
            }
        }
        self.collect(now);
        self.go_on_handing_over(now);
        self.collect(now);
    }

    /// Moves messages between cards from the circuit to the unit and back, until none is left.
    fn collect(&mut self, now: Time) {
        while let Some((at, message)) = self.collectives.next(now, &mut self.card) {
            let Some(message) = self.stage.hold(at, message) else { continue };
            let Assembled { circuit, host_send, .. } = &mut self.assembled;
            circuit.inject(*host_send, now, at, Token::Message(message), &mut self.card);
        }
        self.collectives.watch(now);
    }

    /// Takes a posted descriptor, a burst of programmed I/O. The shell leaves it in the page while the port accepts
    /// none. The card would drop a descriptor that the shell passed on nonetheless.
    fn on_store(&mut self, now: Time, store: &PageStore) {
        if !self.accepts_store(store.port) {
            return;
        }
        let Some(port) = self.card.port.as_mut() else { return };
        let now = port.page.launched_at(now);
        let (_, is_line_due) = port.page.count_launch();
        let command = Command::decode(store.code, &store.words, &self.config);
        let message = match &command {
            Ok(Command::Send(send)) => {
                self.messages += 1;
                Some(TraceTag {
                    node: self.config.node,
                    port: PORT as u16,
                    number: self.messages,
                    launched: now.max(self.card.effects.interface.host_clock()),
                    bytes: send.memory.bytes as u32,
                })
            }
            _ => None,
        };
        let effects = &mut self.card.effects;
        effects.attribute(message);
        let bytes = store.words.len() as u64 * WORD_BYTES;
        let software_done = effects.interface.host_send(now, bytes);
        let arrived = effects.interface.transfer(BusTransfer::PioWrite, software_done, bytes).end;
        let ready = effects.work(Machine::Load, arrived, bytes).end;
        if let Err(result) = command.and_then(|command| self.execute(now, ready, &command, message)) {
            let user = store.words.first().copied().unwrap_or(0);
            self.card.refuse_command(ready, user, result);
        } else if is_line_due && let Some(port) = &mut self.card.port {
            port.page.write(ready, &mut self.card.effects);
        }
    }

    fn execute(
        &mut self,
        now: Time,
        ready: Time,
        command: &Command,
        message: Option<TraceTag>,
    ) -> Result<(), u32> {
        let Assembled { circuit, host_send, host_receive, .. } = &mut self.assembled;
        match (command, message) {
            (Command::Send(send), Some(message)) => {
                self.card.check(&send.memory)?;
                let message = self.card.send(*send, message);
                if let Some(message) = message.and_then(|message| self.stage.hold(ready, message)) {
                    circuit.inject(*host_send, now, ready, Token::Message(message), &mut self.card);
                }
            }
            (Command::Receive(receive), _) => {
                self.card.check(&receive.memory)?;
                self.card.receive(ready, *receive);
                circuit.wake(*host_receive, now, &mut self.card);
                self.collectives.on_room(ready, &mut self.card);
            }
            (Command::Collective(wanted), _) => {
                if wanted.memory.bytes > 0 {
                    self.card.check(&wanted.memory)?;
                }
                self.collectives.ask(ready, wanted, &mut self.card)?;
            }
            (Command::Send(_), None) => debug_assert!(false, "a sent message has a trace tag"),
        }
        Ok(())
    }

    /// Changes the interrupt rules.
    fn set_rules(&mut self, rules: &PostRules) -> Result<(), ControlError> {
        let PostRules { at_end, rcv_chunk_size, min_message_bytes, source, .. } = *rules;
        if at_end > 1 || (source != POST_ANY_SOURCE && source >= u64::from(self.config.nodes)) {
            return Err(ControlError::BadValue);
        }
        let values = [
            ("at_end", at_end.into()),
            ("rcv_chunk_size", rcv_chunk_size),
            ("min_message_bytes", min_message_bytes),
            ("source", source),
        ];
        let circuit = &mut self.assembled.circuit;
        let is_set = values.iter().all(|(parameter, value)| circuit.set(parameter, *value));
        if is_set { Ok(()) } else { Err(ControlError::BadOperation) }
    }

    /// Makes a group, or drops it if the request names no members.
    fn set_group(&mut self, now: Time, name: u32, members: &[u32]) -> Result<(), ControlError> {
        if members.is_empty() {
            return self.collectives.drop_group(now, name, &mut self.card);
        }
        let nodes: Option<Vec<u16>> = members.iter().map(|node| u16::try_from(*node).ok()).collect();
        let nodes = nodes.ok_or(ControlError::BadValue)?;
        self.collectives.make(now, name, nodes, self.config.nodes, &mut self.card)
    }

    /// A driver loads another assembly: the card reads the image, and notifies the driver when it has the image.
    fn load(
        &mut self,
        at: Time,
        load: &FirmwareLoad,
        due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        let Some(range) = ImageReads::checked(load)? else {
            let loaded = self.begin_reload(at, &[], Switch::Drained);
            return loaded.map(|loaded| Answer::Now(reply_of(&loaded))).map_err(refused);
        };
        if load.bytes > MAX_IMAGE_BYTES {
            return Err(ControlError::Own(STATUS_FIRMWARE_SIZE));
        }
        Ok(self.images.begin(at, range, due, &mut self.card.effects))
    }

    /// The card has read the image.
    fn on_image(&mut self, now: Time, image: &[u8], is_whole: bool, due: ReplyDue) {
        let taken = if is_whole {
            self.begin_reload(now, image, Switch::Drained).map_err(refused)
        } else {
            Err(ControlError::BadAddress)
        };
        match taken {
            Ok(loaded) => self.card.effects.reply(now, due, reply_of(&loaded)),
            Err(error) => self.card.effects.refuse(now, due, error.status()),
        }
    }

    /// A store to a register of the completer page.
    fn on_register(&mut self, now: Time, index: usize, register: Register) {
        let Card { port, effects, .. } = &mut self.card;
        // The registers of a closed port have no effect.
        let Some(port) = port.as_mut().filter(|_| index == PORT) else { return };
        let Some(released) = port.queue.on_register(now, index, register, &mut port.page, effects) else {
            return;
        };
        let due = core::iter::from_fn(|| port.queue.take_due(released)).last();
        let release = port.queue.take_early(now, released, effects).or(due);
        self.card.tell_failures(release.map_or(now, |release| release.at));
    }
}

/// The environment of the card's assemblies.
fn site<'a>(config: &Config, effects: &'a Effects) -> Site<'a> {
    Site { interface: &effects.interface, nodes: config.nodes, first: Number::new(config.first_number) }
}

fn refused(refusal: Refusal) -> ControlError {
    ControlError::Own(refusal.status())
}

impl Controlled for Inic {
    type Own = Operation;
    type Counters = Counters;
    const PORTS: usize = 1;
    const STATUS_BYTES: u64 = size_of::<StatusLine>() as u64;

    fn effects(&mut self) -> &mut Effects {
        &mut self.card.effects
    }

    fn max_slices(&self) -> u32 {
        niclab_abi::receive::MAX_SLICES
    }

    fn is_open(&self, port: usize) -> bool {
        port == PORT && self.card.port.is_some()
    }

    fn check_open(&self, open: &PortOpen) -> Result<(), ControlError> {
        // The card has no shared FIFO.
        if open.fifo_words == 0 { Ok(()) } else { Err(ControlError::BadValue) }
    }

    fn open_port(&mut self, _: usize, open: &PortOpen) -> Result<(), ControlError> {
        self.card.open(open);
        Ok(())
    }

    fn close_port(&mut self, now: Time, port: usize) -> Time {
        if port != PORT {
            return Time::ZERO;
        }
        let Some(last) = self.card.close() else { return Time::ZERO };
        self.assembled.circuit.on_close(now, &mut self.card);
        self.collectives.on_close(now, &mut self.card);
        last
    }

    fn on_reset(&mut self) {}

    fn statistics(&self) -> Statistics {
        self.counters().statistics(&self.card.effects.shell_counts)
    }

    /// The counters of reports, and the card's assembly.
    fn own_counters(&self) -> Vec<(&'static str, u64)> {
        let runs = ("program", u64::from(self.assembled.id));
        self.counters().by_name().into_iter().chain([runs]).collect()
    }

    fn carry_out(
        &mut self,
        at: &mut Time,
        own: Operation,
        due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        let is_open = self.card.port.is_some();
        let open =
            |port: u32| if is_open && port == PORT as u32 { Ok(PORT) } else { Err(ControlError::BadPort) };
        let region = match own {
            Operation::Region(region) => region,
            Operation::Load(load) => return self.load(*at, &load, due),
            Operation::Rules(rules) => {
                open(rules.port)?;
                self.set_rules(&rules)?;
                return Ok(Answer::Now(empty_reply()));
            }
            Operation::Group(group, members) => {
                open(group.port)?;
                self.set_group(*at, group.group, &members)?;
                return Ok(Answer::Now(empty_reply()));
            }
        };
        match region.carry_out(open, &mut self.card.regions)? {
            Carried::Done(reply) => Ok(Answer::Now(reply)),
            Carried::Close { port, region } => {
                if !self.card.regions[port].close(region) {
                    return Err(RegionError::NotFound.into());
                }
                self.card.close_region(*at, region);
                self.collectives.on_close_region(*at, region, &mut self.card);
                *at = (*at).max(self.card.last_effect());
                Ok(Answer::Now(empty_reply()))
            }
        }
    }
}

impl Nic for Inic {
    nic_of_effects!(card.effects);

    fn reload_firmware(
        &mut self,
        now: Time,
        step: FirmwareReloadStep<'_>,
        node: &mut NodeBus,
    ) -> Result<(), FirmwareReloadError> {
        self.card.effects.interface.enter(node);
        let begun = self.take_step(now, step);
        self.collect(now);
        self.card.effects.interface.leave(node);
        begun
    }

    fn progress(&self) -> Progress {
        self.reload_progress()
    }

    fn epoch(&self) -> u16 {
        self.epoch
    }

    fn poll_timeout(&self) -> Option<Time> {
        let circuit = if self.stage.is_switching() { None } else { self.assembled.circuit.deadline() };
        circuit.into_iter().chain(self.stage.deadline()).chain(self.collectives.deadline()).min()
    }

    fn poll_work(&self) -> Option<Time> {
        if self.stage.is_switching() { None } else { self.assembled.circuit.work_at() }
    }

    fn accepts_store(&self, port: u32) -> bool {
        port == PORT as u32 && self.card.accepts_command()
    }

    fn is_open(&self, port: u32) -> bool {
        Controlled::is_open(self, port as usize)
    }

    fn work_done(&self) -> u64 {
        self.card.effects.spent()
    }
}

impl Observed for Inic {
    observed_of_effects!(card.effects);

    fn delivered(&self, port: u32) -> u64 {
        let port = self.card.port.as_ref().filter(|_| port == PORT as u32);
        port.map_or(0, |port| port.queue.stored())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters().by_name().into()
    }
}
