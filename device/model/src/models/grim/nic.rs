//! The card: ports, links to other cards, and one processor that does one task at a time.

mod beside;
mod inbound;
mod outbound;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use niclab_abi::control::PortOpen;
use niclab_abi::grim::{CHANNEL_MASK, CHANNEL_SEGMENT, ChannelExpose, ChannelPayload};
use niclab_abi::receive::{MAX_SLICES, REFUSED_SEGMENT, StatusLine};

use self::outbound::Reading;
use crate::models::grim::channel::Channel;
use crate::models::grim::command::{Command, Message, words_of};
use crate::models::grim::config::{Config, ConfigError, MAX_CHANNELS};
use crate::models::grim::control::Operation;
use crate::models::grim::counters::{Counters, Effects};
use crate::models::grim::endpoint::Endpoint;
use crate::models::grim::link::Link;
use crate::models::grim::peripheral_port::PeripheralPort;
use crate::models::grim::schedule::Schedule;
use crate::nic::{Input, Nic, Observed, PageStore, Register, Statistics};
use crate::parts::card::{nic_of_effects, observed_of_effects};
use crate::parts::control::{self, Answer, ControlError, Controlled};
use crate::parts::effects::{ReplyDue, WORD_BYTES, WorkPrices, empty_reply};
use crate::parts::host_interface::{BusTransfer, HostInterface, Machine};
use crate::parts::port::{ReceiveQueue, RequesterPage};
use crate::parts::region_control::Carried;
use crate::parts::regions::Regions;
use crate::parts::timers::{TimerName, Timers};
use crate::platform::ledger::Ledger;
use crate::platform::profile::MachineCycles;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// Work prices: the card checks and copies frames.
const WORK: WorkPrices =
    WorkPrices { input: 20, checked_bytes_in_unit: 64, output: 8, copied_bytes_in_unit: 64 };

/// The timers of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Of a link: the card retransmits frames without acknowledgement, or after the pause that follows a refusal.
    Again,
    /// Of a port: the program has stopped pushing a message.
    Stall,
    /// Of the card: messages wait for room that incomplete messages may hold without progress.
    Room,
}

impl TimerName for Timer {
    const ALL: &'static [Self] = &[Self::Again, Self::Stall, Self::Room];
}

/// Cycles of the processor's programs.
#[derive(Clone, Copy, Debug)]
struct Firmware {
    send: MachineCycles,
    receive: MachineCycles,
    acknowledge: MachineCycles,
}

/// An open port: a logical channel, and an endpoint.
struct GrimPort {
    channel: Channel,
    endpoint: Endpoint,
}

/// A GRIM card.
pub struct Grim {
    config: Config,
    ports: Vec<Option<GrimPort>>,
    /// Peer devices on the node's bus, each with a port that programs cannot open.
    peripherals: Vec<PeripheralPort>,
    /// Regions by port. They outlive the port.
    regions: Vec<Regions>,
    /// Channels between this card and other cards, in order of first use. At most one for each node and channel.
    links: Vec<Link>,
    places: BTreeMap<(u16, u8), usize>,
    schedule: Schedule,
    processor: Machine,
    firmware: Firmware,
    /// When the busy processor polls for work again; none if it has no work.
    work_due: Option<Time>,
    timers: Timers<Timer>,
    /// Links with frames in card memory, in arrival order of their first frames.
    waiting: VecDeque<usize>,
    /// Bytes of card memory that these frames occupy.
    held_bytes: u64,
    /// An abandoned message has freed its room.
    has_room_back: bool,
    /// Frames whose payload the card is reading.
    readings: VecDeque<(u64, Reading)>,
    effects: Effects,
    messages: u64,
}

impl Grim {
    /// Creates a card without open ports.
    ///
    /// # Errors
    /// [`ConfigError`] if the parameters are invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let effects = Effects::new(HostInterface::new(config.profile.clone()), WORK);
        let ni = &config.profile.ni;
        let cycles = |name| ni.machines.get(name);
        Ok(Self {
            ports: (0..MAX_CHANNELS).map(|_| None).collect(),
            peripherals: config
                .peripherals
                .iter()
                .map(|(port, kind)| PeripheralPort::new(*port, kind, &config))
                .collect(),
            regions: (0..MAX_CHANNELS)
                .map(|_| Regions::new(config.regions_per_port, config.extents_per_port))
                .collect(),
            links: Vec::new(),
            places: BTreeMap::new(),
            schedule: Schedule::new(config.channels as usize, ni.span(cycles("scan"), 0)),
            processor: effects.interface.machine("processor_send", "processor"),
            firmware: Firmware {
                send: cycles("processor_send"),
                receive: cycles("processor_receive"),
                acknowledge: cycles("processor_acknowledge"),
            },
            work_due: None,
            timers: Timers::default(),
            waiting: VecDeque::new(),
            held_bytes: 0,
            has_room_back: false,
            readings: VecDeque::new(),
            effects,
            messages: 0,
            config,
        })
    }

    /// The card's counters.
    pub const fn counters(&self) -> &Counters {
        &self.effects.counters
    }

    fn port(&self, port: u32) -> Option<&GrimPort> {
        self.ports.get(port as usize)?.as_ref()
    }

    /// Runs a program of the processor: first for `more`, then over `bytes` bytes. Returns its end.
    fn work(&mut self, program: MachineCycles, ready: Time, bytes: u64, more: Span) -> Time {
        let span = self.config.profile.ni.span(program, bytes.div_ceil(WORD_BYTES)) + more;
        self.effects.interface.work_for(&mut self.processor, ready, bytes, span).end
    }

    /// The index of the channel between this card and another one.
    fn place_of(&mut self, node: u16, channel: u8) -> usize {
        let Self { links, places, config, .. } = self;
        *places.entry((node, channel)).or_insert_with(|| {
            links.push(Link::new(node, channel, config.link()));
            links.len() - 1
        })
    }

    /// Takes a posted slot. The shell leaves slots in the page while the header ring is full.
    fn on_store(&mut self, now: Time, store: &PageStore) {
        let index = store.port as usize;
        let Self { ports, effects, config, .. } = self;
        let Some(GrimPort { channel, .. }) = ports.get_mut(index).and_then(Option::as_mut) else { return };
        if !channel.has_room() {
            return;
        }
        let now = channel.page.launched_at(now);
        let (_, is_line_due) = channel.page.count_launch();
        let decoded = Command::decode(store.code, &store.words, config).and_then(|command| match command {
            Command::Message(_) if channel.is_pushing() => Err(REFUSED_SEGMENT),
            Command::Message(message) => Ok((command, message.pushed, None)),
            Command::Segment(pushed) => {
                channel.check_segment(pushed).map(|(more, tag)| (command, more, Some(tag)))
            }
        });
        let (payload, tag) = match decoded {
            Ok((Command::Message(message), pushed, _)) => {
                self.messages += 1;
                let tag = TraceTag {
                    node: config.node,
                    port: store.port as u16,
                    number: self.messages,
                    launched: now.max(effects.interface.host_clock()),
                    bytes: message.payload.bytes,
                };
                (pushed, Some(tag))
            }
            Ok((Command::Segment(_), pushed, tag)) => (pushed, tag),
            Err(_) => (0, None),
        };
        effects.attribute(tag);
        let header_bytes = words_of(store.code) * WORD_BYTES;
        let mut ready = effects.interface.host_send(now, header_bytes + u64::from(payload));
        if payload > 0 {
            // Stores of payload are write-combined; those of headers and registers are not (section 5.2).
            let bytes = u64::from(payload).next_multiple_of(WORD_BYTES);
            ready = effects.interface.transfer(BusTransfer::PioWrite, ready, bytes).released;
        }
        let arrived = effects.interface.transfer(BusTransfer::PioWriteUncombined, ready, header_bytes).end;
        let refused = match (decoded, tag) {
            (Err(reason), _) => {
                if store.code & CHANNEL_MASK != CHANNEL_SEGMENT {
                    channel.pass_over();
                }
                Some(reason)
            }
            (Ok((Command::Message(message), ..)), Some(tag)) => {
                count_message(&message, effects);
                channel.launch(message, tag, arrived).err()
            }
            (Ok((Command::Segment(pushed), ..)), _) => {
                effects.counters.segments += 1;
                channel.push(pushed, arrived);
                None
            }
            (Ok(_), None) => None,
        };
        let stall = channel.is_pushing().then(|| arrived + config.stall);
        self.timers.set(Timer::Stall, index, stall);
        match refused {
            Some(reason) => channel.page.refuse(arrived, reason, effects),
            None if is_line_due => channel.page.write(arrived, effects),
            None => {}
        }
        self.pump(now);
    }

    /// Runs expired timers, and work that waited for the processor.
    fn on_timeout(&mut self, now: Time) {
        while let Some((timer, place)) = self.timers.take_expired(now) {
            match timer {
                Timer::Again => self.send_again(now, place),
                Timer::Stall => self.give_up(now, place),
                Timer::Room => self.take_room_back(now),
            }
        }
        self.finish_peripherals(now);
        self.pump(now);
    }

    /// A store to a register of the completer page.
    fn on_register(&mut self, now: Time, index: usize, register: Register) {
        let effects = &mut self.effects;
        let Some(GrimPort { channel, endpoint }) = self.ports.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let Some(released) = endpoint.queue.on_register(now, index, register, &mut channel.page, effects)
        else {
            return;
        };
        let mut releases: Vec<_> = core::iter::from_fn(|| endpoint.queue.take_due(released)).collect();
        releases.extend(endpoint.queue.take_early(now, released, effects));
        for release in releases {
            if let Some(GrimPort { endpoint, .. }) = &mut self.ports[index] {
                endpoint.on_released(release.places.end);
            }
            self.drain(release.at);
        }
        self.pump(now);
    }

    fn set_payload(&mut self, payload: &ChannelPayload) -> Result<(), ControlError> {
        let index = self.open_index(payload.port)?;
        let end = payload.offset.checked_add(payload.bytes).ok_or(ControlError::BadValue)?;
        let Some(GrimPort { endpoint, .. }) = &mut self.ports[index] else {
            return Err(ControlError::BadPort);
        };
        endpoint.set_payload(payload.region, payload.offset..end, &self.regions[index])
    }

    fn expose(&mut self, expose: &ChannelExpose) -> Result<(), ControlError> {
        let ChannelExpose { port, region, is_exposed, reserved } = *expose;
        let index = self.open_index(port)?;
        if is_exposed > 1 || reserved != 0 {
            return Err(ControlError::BadValue);
        }
        self.regions[index].get(region).ok_or(ControlError::NotFound)?;
        let Some(GrimPort { endpoint, .. }) = &mut self.ports[index] else {
            return Err(ControlError::BadPort);
        };
        endpoint.expose(region, is_exposed == 1);
        Ok(())
    }
}

fn count_message(message: &Message, effects: &mut Effects) {
    use crate::models::grim::wire::Purpose;
    let counters = &mut effects.counters;
    match message.purpose {
        Purpose::Memory { .. } => counters.memory_sent += 1,
        Purpose::Handler { .. } if message.payload.bytes == 0 => counters.short_sent += 1,
        Purpose::Handler { .. } => counters.bulk_sent += 1,
    }
}

impl Controlled for Grim {
    type Own = Operation;
    type Counters = Counters;
    const PORTS: usize = MAX_CHANNELS;
    const STATUS_BYTES: u64 = size_of::<StatusLine>() as u64;

    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    fn max_slices(&self) -> u32 {
        MAX_SLICES
    }

    fn is_open(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(Option::is_some)
    }

    fn check_open(&self, open: &PortOpen) -> Result<(), ControlError> {
        // The card has no shared FIFO.
        if open.fifo_words == 0 { Ok(()) } else { Err(ControlError::BadValue) }
    }

    fn may_open(&self, port: usize, _: &PortOpen) -> bool {
        port < self.config.channels as usize && self.peripheral(port).is_none()
    }

    fn open_port(&mut self, port: usize, open: &PortOpen) -> Result<(), ControlError> {
        let page = RequesterPage::new(open.status_address);
        self.ports[port] = Some(GrimPort {
            channel: Channel::new(page, self.config.headers),
            endpoint: Endpoint::new(ReceiveQueue::new(open)),
        });
        Ok(())
    }

    fn close_port(&mut self, now: Time, port: usize) -> Time {
        let Some(GrimPort { channel, endpoint }) = self.ports.get_mut(port).and_then(Option::take) else {
            return Time::ZERO;
        };
        self.timers.stop(Timer::Stall, port);
        self.regions[port].close_all();
        self.void_messages(now, port, &channel);
        self.end_receptions(now, port);
        channel.page.visible().max(endpoint.queue.visible())
    }

    fn on_reset(&mut self) {}

    fn statistics(&self) -> Statistics {
        self.effects.counters.statistics(&self.effects.shell_counts)
    }

    fn own_counters(&self) -> Vec<(&'static str, u64)> {
        self.all_counters().by_name().into()
    }

    fn carry_out(
        &mut self,
        at: &mut Time,
        own: Operation,
        _due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        match own {
            Operation::Payload(payload) => self.set_payload(&payload)?,
            Operation::Expose(expose) => self.expose(&expose)?,
            Operation::Region(region) => {
                let Self { ports, regions, .. } = self;
                let open = |port: u32| {
                    let is_open = ports.get(port as usize).is_some_and(Option::is_some);
                    is_open.then_some(port as usize).ok_or(ControlError::BadPort)
                };
                match region.carry_out(open, regions)? {
                    Carried::Done(bytes) => return Ok(Answer::Now(bytes)),
                    Carried::Close { port, region } => {
                        if !self.regions[port].close(region) {
                            return Err(ControlError::NotFound);
                        }
                        if let Some(GrimPort { endpoint, .. }) = &mut self.ports[port] {
                            endpoint.forget_region(region);
                        }
                        // Messages that wait for room in this region must not wait any longer.
                        self.drain(*at);
                    }
                }
            }
        }
        Ok(Answer::Now(empty_reply()))
    }
}

impl Grim {
    fn take(&mut self, now: Time, input: Input<'_>) {
        self.effects.on_input(&input);
        match input {
            Input::PageStore(store) => self.on_store(now, &store),
            Input::Frame { frame, message, .. } => self.on_frame(now, frame, message),
            Input::DmaData { token, bytes, is_whole } => self.on_payload(token, bytes, is_whole),
            Input::Register { port, register } => self.on_register(now, port as usize, register),
            Input::Control { token, request } => control::on_control(self, now, token, request),
            Input::ShellCounts(counts) => self.effects.shell_counts = counts,
            // The card gets no borrowed payload.
            Input::Borrowed { .. } | Input::BorrowedFrame { .. } => {}
            // The host passes all work in pages.
            Input::Descriptor(_) | Input::PollDemand { .. } => {}
            Input::Timeout => self.on_timeout(now),
            Input::HostReset => control::on_host_reset(self, now),
        }
    }
}

impl Nic for Grim {
    nic_of_effects!(effects);

    fn poll_timeout(&self) -> Option<Time> {
        self.timers.next().into_iter().chain(self.poll_work()).min()
    }

    fn poll_work(&self) -> Option<Time> {
        self.work_due.into_iter().chain(self.peripherals.iter().filter_map(PeripheralPort::due)).min()
    }

    fn has_mac_endpoints(&self) -> bool {
        self.peripherals.iter().any(PeripheralPort::has_mac_endpoint)
    }

    fn accepts_store(&self, port: u32) -> bool {
        self.port(port).is_some_and(|port| port.channel.has_room())
    }

    fn is_open(&self, port: u32) -> bool {
        self.port(port).is_some()
    }

    fn work_done(&self) -> u64 {
        self.effects.spent() + self.peripherals.iter().map(|peripheral| peripheral.spent).sum::<u64>()
    }
}

impl Observed for Grim {
    observed_of_effects!(effects);

    fn delivered(&self, port: u32) -> u64 {
        self.port(port).map_or(0, |port| port.endpoint.queue.stored())
    }

    fn begin_part(&mut self, at: Time) {
        self.processor.rest_until(at);
        self.schedule.restart();
    }

    fn peripherals(&self) -> Vec<(&'static str, &Ledger)> {
        self.peripherals.iter().map(|port| (port.name(), port.ledger())).collect()
    }

    fn peripheral_ledgers_mut(&mut self) -> Vec<&mut Ledger> {
        self.peripherals.iter_mut().map(PeripheralPort::ledger_mut).collect()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.all_counters().by_name().into()
    }
}
