//! Firmware reload under running guests: the old assembly drains, the card programs the FPGAs (section 1: in
//! milliseconds), and reports this to the host.
//!
//! Messages that programs post during the reload wait in the card. The old assembly finishes earlier messages: it sends
//! them, gets their acknowledgements if it uses them, and received packets no longer wait for room. An assembly may be
//! unable to finish, because a node does not answer or a program posts no room. If no message ends for [`DRAIN_LIMIT`],
//! the card gives the assembly up, and each remaining message fails. While the card programs the FPGAs, it loses frames
//! that arrive. Port, regions, room and waiting messages belong to the card, and stay.
//!
//! Constants: ours.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;

use niclab_abi::event::CAUSE_HANDED_OVER;
use niclab_abi::firmware::{
    FirmwareLoaded, STATUS_FIRMWARE_BUSY, STATUS_FIRMWARE_CHECKSUM, STATUS_FIRMWARE_IMAGE,
    STATUS_FIRMWARE_SIZE, STATUS_FIRMWARE_UNFIT, STATUS_FIRMWARE_VERSION, STATUS_FIRMWARE_WORD,
};
use niclab_components::image::ImageError;
use niclab_components::{Assembly, Checked, Fault};
use thiserror::Error;

use crate::models::inic::card::{Left, PORT};
use crate::models::inic::config::ConfigError;
use crate::models::inic::nic::Inic;
use crate::models::inic::token::{Message, Token};
use crate::nic::firmware_reload::{FirmwareReloadError, FirmwareReloadStep, Progress, Switch};
use crate::time::{Span, Time};

/// How long a draining assembly may make no progress, in model time. Far longer than any round trip, and shorter than
/// the timeouts of users and simulations. In live runs it is as long in wall time, because programs that post no
/// room may only be without a core.
const DRAIN_LIMIT: Span = Span::from_ns(2_000_000_000);

/// How long received messages alone may count as progress. Cards that do not reload may send messages without limit.
const LONGEST_WAIT: Span = Span::from_ns(30_000_000_000);

/// The machine that programs the FPGAs, in profiles and in timelines.
const MACHINE: &str = "reconfigure";

/// Progress of a firmware reload.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// No reload is requested.
    #[default]
    Runs,
    /// The old assembly drains.
    Drains(Next, Time),
    /// The card programs the FPGAs until this time.
    Switches(Next, Time),
}

/// The new assembly, and the messages that wait for it.
#[derive(Debug)]
pub(super) struct Next {
    assembly: Box<Checked>,
    epoch: u16,
    waits_for_word: bool,
    /// Messages posted during the reload, with the time at which the card had them.
    held: VecDeque<(Time, Message)>,
    /// The first of their names. The old assembly finishes messages with smaller names.
    first_held: u64,
    /// Remaining work at the last progress, and messages received by then.
    left: Left,
    came: u64,
    /// When received messages no longer count as progress.
    latest: Time,
}

/// Why the card refuses an image.
#[derive(Debug, Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    Image(#[from] ImageError),
    #[error("the assembly is invalid: {0}")]
    Senseless(Box<Fault>),
    #[error("{0}")]
    Unfit(#[from] ConfigError),
    #[error("the card is loading another assembly")]
    Busy,
}

impl Refusal {
    /// The reason in the reply to a driver.
    pub(super) const fn status(&self) -> u32 {
        match self {
            Self::Image(error) => match error {
                ImageError::Magic | ImageError::Truncated { .. } | ImageError::Excess { .. } => {
                    STATUS_FIRMWARE_IMAGE
                }
                ImageError::Check { .. } => STATUS_FIRMWARE_CHECKSUM,
                ImageError::Version { .. } => STATUS_FIRMWARE_VERSION,
                ImageError::Size { .. } => STATUS_FIRMWARE_SIZE,
                _ => STATUS_FIRMWARE_WORD,
            },
            Self::Senseless(_) | Self::Unfit(_) => STATUS_FIRMWARE_UNFIT,
            Self::Busy => STATUS_FIRMWARE_BUSY,
        }
    }
}

impl Stage {
    /// The next deadline.
    pub(super) const fn deadline(&self) -> Option<Time> {
        match self {
            Self::Runs => None,
            Self::Drains(_, at) | Self::Switches(_, at) => Some(*at),
        }
    }

    /// Whether the FPGAs are being programmed, so that there is no circuit.
    pub(super) const fn is_switching(&self) -> bool {
        matches!(self, Self::Switches(..))
    }

    /// Keeps a posted message if it must wait for the reload; otherwise returns it.
    pub(super) fn hold(&mut self, ready: Time, message: Message) -> Option<Message> {
        match self {
            Self::Runs => Some(message),
            Self::Drains(next, _) | Self::Switches(next, _) => {
                next.held.push_back((ready, message));
                None
            }
        }
    }
}

impl Inic {
    /// Requests the reload of an image; an empty image stands for the assembly that the card started with.
    ///
    /// # Errors
    /// [`Refusal`]. The card is then unchanged.
    pub(super) fn begin_reload(
        &mut self,
        now: Time,
        image: &[u8],
        switch: Switch,
    ) -> Result<FirmwareLoaded, Refusal> {
        if !matches!(self.stage, Stage::Runs) {
            return Err(Refusal::Busy);
        }
        let assembly = if image.is_empty() {
            self.config.assembly.clone()
        } else {
            let first = |faults: alloc::vec::Vec<Fault>| faults.into_iter().next();
            Assembly::decode(image)?.check().map_err(|faults| match first(faults) {
                Some(fault) => Refusal::Senseless(fault.into()),
                None => Refusal::Busy,
            })?
        };
        self.config.check_assembly(&assembly)?;
        // A check follows every connection back through the components.
        let checked = assembly.components().len() * assembly.connections().len();
        self.card.effects.spend((image.len() + checked) as u64);
        let loaded =
            FirmwareLoaded { words: assembly.components().len() as u32, checksum: assembly.id().into() };
        let (epoch, waits_for_word) = match switch {
            Switch::Drained => (self.epoch.wrapping_add(1), false),
            Switch::Told { epoch } => (epoch, true),
        };
        let first_held = self.card.effects.next_token();
        let (left, came) = (self.card.left_before(first_held), self.messages_that_came());
        let next = Next {
            assembly: assembly.into(),
            epoch,
            waits_for_word,
            held: VecDeque::new(),
            first_held,
            left,
            came,
            latest: now + LONGEST_WAIT,
        };
        self.stage = Stage::Drains(next, now + DRAIN_LIMIT);
        self.go_on_handing_over(now);
        Ok(loaded)
    }

    /// Messages to this card that have ended, complete or not.
    const fn messages_that_came(&self) -> u64 {
        let counters = &self.card.effects.counters;
        counters.card.messages_received + counters.incomplete
    }

    /// Whether the old assembly has no work in flight.
    fn has_drained(&self, next: &Next) -> bool {
        !self.card.has_sends_before(next.first_held) && self.assembled.circuit.is_idle()
    }

    /// Continues the reload after an event that may have ended work in flight.
    pub(super) fn go_on_handing_over(&mut self, now: Time) {
        let came = self.messages_that_came();
        if let Stage::Drains(next, limit) = &mut self.stage {
            let left = self.card.left_before(next.first_held);
            // Received messages complete the work of another card, whose messages would be lost if this card
            // continued.
            if left < next.left || (came > next.came && now < next.latest) {
                (next.left, next.came, *limit) = (left, came, now + DRAIN_LIMIT);
            }
        }
        match &self.stage {
            Stage::Drains(next, limit) if *limit <= now || !next.waits_for_word && self.has_drained(next) => {
                self.begin_switch(now);
            }
            Stage::Switches(_, until) if *until <= now => self.end_switch(now),
            _ => {}
        }
    }

    /// Starts to program the FPGAs. Remaining work of the old assembly fails.
    fn begin_switch(&mut self, now: Time) {
        let Stage::Drains(next, _) = core::mem::take(&mut self.stage) else { return };
        self.card.fail_before(now, next.first_held);
        self.assembled.circuit.on_firmware_reload(now, &mut self.card);
        self.card.restart();
        let interface = &mut self.card.effects.interface;
        let mut machine = interface.machine(MACHINE, MACHINE);
        let until = interface.work(&mut machine, now, 0).end;
        self.stage = Stage::Switches(next, until);
        self.go_on_handing_over(now);
    }

    /// The new assembly runs.
    fn end_switch(&mut self, now: Time) {
        let Stage::Switches(next, _) = core::mem::take(&mut self.stage) else { return };
        let Next { assembly, epoch, held, .. } = next;
        self.epoch = epoch;
        self.card.effects.counters.firmware_reloads += 1;
        self.assembled = self.assemble(&assembly);
        self.collectives.on_assembly(now, &assembly, &mut self.card);
        self.card.effects.attribute(None);
        // The card interrupts the driver even if no program has the port open, because the driver may have requested
        // the reload.
        self.card.effects.interrupt(now, CAUSE_HANDED_OVER, PORT, None);
        self.begin_held(now, held);
    }

    /// Sends the messages that waited.
    fn begin_held(&mut self, now: Time, held: VecDeque<(Time, Message)>) {
        let host_send = self.assembled.host_send;
        for (ready, message) in held {
            let token = Token::Message(message);
            self.assembled.circuit.inject(host_send, now, ready.max(now), token, &mut self.card);
        }
    }

    fn waits_for_word(&self) -> bool {
        matches!(&self.stage, Stage::Drains(next, _) if next.waits_for_word)
    }

    /// A step of a reload.
    ///
    /// # Errors
    /// [`FirmwareReloadError`] if the reload does not begin.
    pub(super) fn take_step(
        &mut self,
        now: Time,
        step: FirmwareReloadStep<'_>,
    ) -> Result<(), FirmwareReloadError> {
        match step {
            FirmwareReloadStep::Begin { image, switch } => {
                self.begin_reload(now, image, switch).map_err(|refusal| match refusal {
                    Refusal::Busy => FirmwareReloadError::Busy,
                    refusal => FirmwareReloadError::Image(refusal.to_string()),
                })?;
            }
            FirmwareReloadStep::Switch if self.waits_for_word() => self.begin_switch(now),
            FirmwareReloadStep::Cancel if self.waits_for_word() => {
                if let Stage::Drains(next, _) = core::mem::take(&mut self.stage) {
                    self.begin_held(now, next.held);
                }
            }
            FirmwareReloadStep::Switch | FirmwareReloadStep::Cancel => {}
        }
        Ok(())
    }

    /// Progress of the reload.
    pub(super) fn reload_progress(&self) -> Progress {
        match &self.stage {
            Stage::Runs => Progress::Runs,
            Stage::Drains(next, _) if self.has_drained(next) => Progress::Drained,
            Stage::Drains(..) => Progress::Drains,
            Stage::Switches(..) => Progress::Switches,
        }
    }
}
