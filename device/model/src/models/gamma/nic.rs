//! The card: transmit half, receive half, and interrupts.

use alloc::vec::Vec;

use niclab_abi::control::PortOpen;
use niclab_abi::gamma::ACTIVE_PORTS;
use niclab_abi::rings::{
    RING_MAX_SKIP_BYTES, RING_RECEIVE, RING_TRANSMIT, RingInterrupts, RingStart, RingTerms,
};

use crate::models::gamma::config::{Config, ConfigError};
use crate::models::gamma::control::Operation;
use crate::models::gamma::counters::{Counters, Effects};
use crate::models::gamma::direct::Direct;
use crate::models::gamma::interrupts::Interrupts;
use crate::models::gamma::receive::{Receive, Stores};
use crate::models::gamma::transmit::Transmit;
use crate::nic::frame::SharedFrame;
use crate::nic::{DescriptorQueue, Input, Nic, Observed, Statistics};
use crate::parts::card::{nic_of_effects, observed_of_effects};
use crate::parts::control::{self, Answer, ControlError, Controlled};
use crate::parts::descriptor_ring::RingFault;
use crate::parts::effects::{ReplyDue, WorkPrices, empty_reply, reply_of};
use crate::parts::host_interface::HostInterface;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Work prices: the card checks and copies frames.
const WORK: WorkPrices =
    WorkPrices { input: 15, checked_bytes_in_unit: 16, output: 8, copied_bytes_in_unit: 64 };

/// Maximum frames for one interrupt. Ours: a bound.
const MAX_MITIGATED: u32 = 1_024;

/// A GAMMA card.
pub struct Gamma {
    config: Config,
    transmit: Transmit,
    receive: Receive,
    interrupts: Interrupts,
    direct: Direct,
    /// Number of drivers that have read the terms. A reset keeps it.
    drivers: u32,
    /// Messages stored for each active port.
    delivered: [u64; ACTIVE_PORTS as usize],
    effects: Effects,
}

impl Gamma {
    /// A card without rings.
    ///
    /// # Errors
    /// [`ConfigError`] if the parameters are invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            transmit: Transmit::new(),
            receive: Receive::new(),
            interrupts: Interrupts::default(),
            direct: Direct::default(),
            drivers: 0,
            delivered: [0; ACTIVE_PORTS as usize],
            effects: Effects::new(HostInterface::new(config.profile.clone()), WORK),
            config,
        })
    }

    /// What the card has counted.
    pub const fn counters(&self) -> &Counters {
        &self.effects.counters
    }

    fn take(&mut self, now: Time, input: Input<'_>) {
        self.effects.on_input(&input);
        match input {
            Input::PollDemand { queue } => self.on_demand(now, queue),
            Input::Frame { frame, head, message } => self.on_frame(head, now, frame, message),
            Input::DmaData { token, bytes, is_whole } => {
                let Self { transmit, direct, config, effects, .. } = self;
                if direct.on_data(now, (token, &bytes, is_whole), (transmit, config), effects) {
                    return;
                }
                match self.receiving(|receive, config, effects| {
                    receive.on_data(now, token, &bytes, is_whole, config, effects)
                }) {
                    Some(stores) => self.on_stored(stores),
                    None => {
                        let Self { transmit, config, effects, .. } = self;
                        transmit.on_data(now, token, bytes, is_whole, config, effects);
                        self.order_sent();
                    }
                }
            }
            Input::Control { token, request } => control::on_control(self, now, token, request),
            Input::ShellCounts(counts) => self.effects.shell_counts = counts,
            Input::Timeout => {
                self.transmit.on_timeout(now, &self.config, &mut self.effects);
                self.direct.go_on(now, &mut self.transmit, &self.config, &mut self.effects);
                while let Some(stores) =
                    self.receiving(|receive, config, effects| receive.on_timeout(now, config, effects))
                {
                    self.on_stored(stores);
                }
                self.tell(now);
                self.interrupts.on_timeout(now, &mut self.effects);
            }
            Input::HostReset => control::on_host_reset(self, now),
            // The card gets no borrowed payload.
            Input::Borrowed { .. } | Input::BorrowedFrame { .. } => {}
            // The host passes all work in descriptors.
            Input::PageStore(_) | Input::Register { .. } | Input::Descriptor(_) => {}
        }
    }

    fn on_demand(&mut self, now: Time, queue: DescriptorQueue) {
        self.effects.counters.demands += 1;
        match queue {
            DescriptorQueue::Transmit => self.transmit.on_demand(now, &self.config, &mut self.effects),
            DescriptorQueue::Receive => self.receiving(|receive, _, effects| receive.on_demand(now, effects)),
        }
    }

    /// Runs the receive half with bus priority over the reads of the transmit half (21143 Hardware Reference Manual,
    /// CSR0, bit 1: the receive process has priority). The transmit half may be far ahead in model time. Even then the
    /// FIFO loses no frame because of a busy bus.
    fn receiving<R>(&mut self, act: impl FnOnce(&mut Receive, &Config, &mut Effects) -> R) -> R {
        let Self { receive, config, effects, .. } = self;
        effects.interface.go_first(true);
        let done = act(receive, config, effects);
        effects.interface.go_first(false);
        done
    }

    fn on_frame(&mut self, head: Time, now: Time, frame: &SharedFrame, message: Option<TraceTag>) {
        let stores = self.receiving(|receive, config, effects| {
            receive.on_frame((head, now), frame, message, config, effects)
        });
        self.on_stored(stores);
        self.tell(now);
    }

    /// Interrupts a processor that drives all transfers for the first waiting frame.
    fn tell(&mut self, now: Time) {
        if self.config.is_cpu_driven && !self.interrupts.is_polled() {
            self.direct.on_arrived(now, &self.receive, &mut self.effects);
        }
    }

    fn on_stored(&mut self, stores: Stores) {
        for stored in stores {
            if let Some(port) = stored.port.filter(|_| stored.is_last)
                && let Some(delivered) = self.delivered.get_mut(usize::from(port))
            {
                *delivered += 1;
            }
            self.interrupts.on_stored(stored, &mut self.effects);
        }
    }

    /// Counts race-decided order. A frame is sent at the host's clock, which is later than all frames reported to the
    /// host. If the driver had not taken all of them when it sent the frame, wall time decided the order.
    fn order_sent(&mut self) {
        let is_unordered = self.transmit.take_received().is_some_and(|known| known != self.interrupts.told());
        self.effects.counters.card.unordered += u64::from(is_unordered);
    }

    fn start(&mut self, now: Time, start: &RingStart) -> Result<(), ControlError> {
        let RingStart { ring, skip_bytes, first, reserved } = *start;
        let is_skip = skip_bytes <= RING_MAX_SKIP_BYTES && skip_bytes.is_multiple_of(8) && skip_bytes > 0;
        if !is_skip || reserved != 0 {
            return Err(ControlError::BadValue);
        }
        if u32::try_from(first).is_err() {
            return Err(ControlError::BadAddress);
        }
        let Self { transmit, receive, interrupts, config, effects, .. } = self;
        let started = match ring {
            RING_TRANSMIT => transmit.start(now, first, skip_bytes, config, effects),
            RING_RECEIVE => {
                receive.start(now, first, skip_bytes, effects).inspect(|()| interrupts.on_started())
            }
            _ => return Err(ControlError::NotFound),
        };
        started.map_err(|fault| match fault {
            RingFault::Moved { .. } => ControlError::PortBusy,
            RingFault::Unaligned { .. } | RingFault::OutsideMemory { .. } => ControlError::BadAddress,
        })
    }

    fn set_interrupts(&mut self, now: Time, wanted: &RingInterrupts) -> Result<(), ControlError> {
        if wanted.frames > MAX_MITIGATED || wanted.reserved != 0 {
            return Err(ControlError::BadValue);
        }
        self.interrupts.set(now, wanted, &mut self.effects);
        Ok(())
    }

    /// Refuses a request of the other transfer mode.
    fn check_mode(&self, is_cpu_driven: bool) -> Result<(), ControlError> {
        if self.config.is_cpu_driven == is_cpu_driven { Ok(()) } else { Err(ControlError::BadOperation) }
    }
}

impl Controlled for Gamma {
    type Own = Operation;
    type Counters = Counters;
    /// The driver implements the active ports.
    const PORTS: usize = 0;
    /// Ours: the interface.
    const STATUS_BYTES: u64 = 8;

    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    fn max_slices(&self) -> u32 {
        niclab_abi::receive::MAX_SLICES
    }

    fn is_open(&self, _: usize) -> bool {
        false
    }

    fn check_open(&self, _: &PortOpen) -> Result<(), ControlError> {
        Err(ControlError::BadOperation)
    }

    fn open_port(&mut self, _: usize, _: &PortOpen) -> Result<(), ControlError> {
        Err(ControlError::BadPort)
    }

    fn close_port(&mut self, _: Time, _: usize) -> Time {
        Time::ZERO
    }

    fn on_reset(&mut self) {
        self.transmit.stop();
        self.receive.stop();
        self.interrupts.reset();
        self.direct.reset(&mut self.effects);
    }

    fn statistics(&self) -> Statistics {
        self.effects.counters.statistics(&self.effects.shell_counts)
    }

    fn own_counters(&self) -> Vec<(&'static str, u64)> {
        self.effects.counters.by_name().into()
    }

    fn carry_out(
        &mut self,
        at: &mut Time,
        own: Operation,
        due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        match own {
            Operation::Look => {
                self.check_mode(true)?;
                return Ok(Answer::Now(reply_of(&self.direct.look(at, &self.receive, &mut self.effects))));
            }
            Operation::Take(take) => {
                self.check_mode(true)?;
                let port = Direct::take(at, &take, &mut self.receive, &mut self.effects)?;
                if let Some(delivered) = port.and_then(|port| self.delivered.get_mut(usize::from(port))) {
                    *delivered += 1;
                }
            }
            Operation::Send(send) => {
                self.check_mode(true)?;
                let Self { direct, transmit, config, effects, .. } = self;
                direct.send(*at, &send, due, (transmit, config), effects)?;
                return Ok(Answer::Later);
            }
            Operation::Start(start) => {
                self.check_mode(false)?;
                self.start(*at, &start)?;
            }
            Operation::Stop(name) if name.reserved != 0 => return Err(ControlError::BadValue),
            Operation::Stop(name) => {
                let visible = match name.ring {
                    RING_TRANSMIT => self.transmit.stop(),
                    RING_RECEIVE => self.receive.stop(),
                    _ => return Err(ControlError::NotFound),
                };
                *at = (*at).max(visible);
            }
            Operation::Interrupts(wanted) => self.set_interrupts(*at, &wanted)?,
            Operation::Terms => {
                self.drivers = self.drivers.wrapping_add(1);
                let terms = RingTerms { incarnation: self.drivers, ..self.config.terms() };
                return Ok(Answer::Now(reply_of(&terms)));
            }
        }
        Ok(Answer::Now(empty_reply()))
    }
}

impl Nic for Gamma {
    nic_of_effects!(effects);

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_work()
    }

    /// Frames in the FIFO leave, and stored frames are reported. Neither waits for an event that may not happen.
    fn poll_work(&self) -> Option<Time> {
        let halves = [self.transmit.deadline(), self.receive.deadline(), self.interrupts.deadline()];
        halves.into_iter().flatten().min()
    }

    fn has_mac_endpoints(&self) -> bool {
        self.receive.is_started() || self.config.is_cpu_driven
    }

    fn accepts_store(&self, _: u32) -> bool {
        false
    }

    fn is_open(&self, _: u32) -> bool {
        false
    }

    fn work_done(&self) -> u64 {
        self.effects.spent()
    }
}

impl Observed for Gamma {
    observed_of_effects!(effects);

    fn delivered(&self, port: u32) -> u64 {
        self.delivered.get(port as usize).copied().unwrap_or(0)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.effects.counters.by_name().into()
    }
}
