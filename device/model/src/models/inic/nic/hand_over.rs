//! Another assembly under running guests: the one before drains, the FPGAs are programmed (section 1: in milliseconds),
//! and the host is told.
//!
//! From the beginning on, messages that are posted wait in the card. What was posted before ends by the assembly
//! before: it is sent, acknowledged where that is waited for, and what has come waits no longer for room. When an
//! assembly cannot end, because a node does not answer or a program posts no room, and nothing comes to its end for
//! [`DRAIN_LIMIT`], it is given up: what is left fails by name. While the FPGAs are programmed frames that come are
//! lost. Port, regions, room and messages that wait are the card's, and stay.
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
use crate::nic::hand_over::{HandOver, HandOverError, Progress, Switch};
use crate::time::{Span, Time};

/// How long an assembly that drains may get nowhere, in model time. Far longer than any round trip, and shorter than
/// the patience of people and of simulations. Live it is as long in wall time: programs that post no room may merely
/// have lost their cores.
const DRAIN_LIMIT: Span = Span::from_ns(2_000_000_000);

/// How long it may go on getting somewhere by nothing but messages that come: from cards that take no other assembly
/// they never end.
const LONGEST_WAIT: Span = Span::from_ns(30_000_000_000);

/// The machine that programs the FPGAs, in profiles and in timelines.
const MACHINE: &str = "reconfigure";

/// How far the card is with another assembly.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// None is wanted.
    #[default]
    Runs,
    /// The assembly before drains.
    Drains(Next, Time),
    /// The FPGAs are being programmed, until then.
    Switches(Next, Time),
}

/// What comes, and what waits for it.
#[derive(Debug)]
pub(super) struct Next {
    assembly: Box<Checked>,
    epoch: u16,
    waits_for_word: bool,
    /// Messages that were posted meanwhile, and when the card had them.
    held: VecDeque<(Time, Message)>,
    /// The first of their names: those before it end by the assembly before.
    first_held: u64,
    /// What was left when something ended last, and messages that had come by then.
    left: Left,
    came: u64,
    /// When it no longer matters that messages come.
    latest: Time,
}

/// Why an image is not taken.
#[derive(Debug, Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    Image(#[from] ImageError),
    #[error("the assembly makes no sense: {0}")]
    Senseless(Box<Fault>),
    #[error("{0}")]
    Unfit(#[from] ConfigError),
    #[error("another is being taken already")]
    Busy,
}

impl Refusal {
    /// The reason as the reply to a driver gives it.
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
    /// When it has something to do though nothing comes.
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

    /// Keeps a message that is posted, where it has to wait. Else gives it back.
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
    /// Takes an image, or the assembly that the card was made with where it is empty, from the next switch on.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing has changed.
    pub(super) fn begin_hand_over(
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

    /// Messages that have ended here, whole or not.
    const fn messages_that_came(&self) -> u64 {
        let counters = &self.card.effects.counters;
        counters.card.messages_received + counters.incomplete
    }

    /// Whether nothing is under way that the assembly before began.
    fn has_drained(&self, next: &Next) -> bool {
        !self.card.has_sends_before(next.first_held) && self.assembled.circuit.is_idle()
    }

    /// Goes on, after anything that may have ended what was under way.
    pub(super) fn go_on_handing_over(&mut self, now: Time) {
        let came = self.messages_that_came();
        if let Stage::Drains(next, limit) = &mut self.stage {
            let left = self.card.left_before(next.first_held);
            // What comes ends what another card has left, which would lose it if this one went ahead.
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

    /// The FPGAs are programmed from now on. What is left of the assembly before fails.
    fn begin_switch(&mut self, now: Time) {
        let Stage::Drains(next, _) = core::mem::take(&mut self.stage) else { return };
        self.card.fail_before(now, next.first_held);
        self.assembled.circuit.on_hand_over(now, &mut self.card);
        self.card.begin_anew();
        let interface = &mut self.card.effects.interface;
        let mut machine = interface.machine(MACHINE, MACHINE);
        let until = interface.work(&mut machine, now, 0).end;
        self.stage = Stage::Switches(next, until);
        self.go_on_handing_over(now);
    }

    /// The next assembly runs.
    fn end_switch(&mut self, now: Time) {
        let Stage::Switches(next, _) = core::mem::take(&mut self.stage) else { return };
        let Next { assembly, epoch, held, .. } = next;
        self.epoch = epoch;
        self.card.effects.counters.hand_overs += 1;
        self.assembled = self.assemble(&assembly);
        self.collectives.on_assembly(now, &assembly, &mut self.card);
        self.card.effects.attribute(None);
        // The driver is told, whether a program has the port open or not: it may have loaded the assembly.
        self.card.effects.interrupt(now, CAUSE_HANDED_OVER, PORT, None);
        self.begin_held(now, held);
    }

    /// Messages that waited are sent.
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

    /// A step of a hand-over.
    ///
    /// # Errors
    /// [`HandOverError`] where it does not begin.
    pub(super) fn take_step(&mut self, now: Time, step: HandOver<'_>) -> Result<(), HandOverError> {
        match step {
            HandOver::Begin { image, switch } => {
                self.begin_hand_over(now, image, switch).map_err(|refusal| match refusal {
                    Refusal::Busy => HandOverError::Busy,
                    refusal => HandOverError::Image(refusal.to_string()),
                })?;
            }
            HandOver::Switch if self.waits_for_word() => self.begin_switch(now),
            HandOver::Cancel if self.waits_for_word() => {
                if let Stage::Drains(next, _) = core::mem::take(&mut self.stage) {
                    self.begin_held(now, next.held);
                }
            }
            HandOver::Switch | HandOver::Cancel => {}
        }
        Ok(())
    }

    /// How far it is.
    pub(super) fn hand_over_progress(&self) -> Progress {
        match &self.stage {
            Stage::Runs => Progress::Runs,
            Stage::Drains(next, _) if self.has_drained(next) => Progress::Drained,
            Stage::Drains(..) => Progress::Drains,
            Stage::Switches(..) => Progress::Switches,
        }
    }
}
