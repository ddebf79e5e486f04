//! CPU-driven transfers, the 3C595's mode (section 4). Received frames wait in the card's FIFO. The processor reads the
//! header there by programmed I/O and derives the destination of the data. It has the card store the data there, and
//! waits until the card is done. To send, the processor stores the header into the card, has the card read the data,
//! and waits. So no data is copied, and transfers do not overlap (section 2: store and forward).
//!
//! Control requests stand for the registers of such a card. A model does not see a store into the BAR before the driver
//! notifies it, and a load from the BAR has no side effect. The requests have the prices of the register accesses. A
//! status word, or eight bytes of a header, is one programmed read for which the processor waits. Address, length and
//! command are two stores.

use core::mem;

use niclab_abi::event::CAUSE_FRAMES;
use niclab_abi::rings::{FIFO_HEAD_BYTES, FifoHead, FifoSend, FifoTake, RING_ERROR};

use crate::fabric::ethernet::HEADER_BYTES;
use crate::models::gamma::config::Config;
use crate::models::gamma::counters::Effects;
use crate::models::gamma::receive::{Counted, Receive, count_received};
use crate::models::gamma::transmit::{Ready, Transmit};
use crate::models::gamma::wire::{self, Carried};
use crate::nic::{FrameBytes, HostRange};
use crate::parts::control::ControlError;
use crate::parts::effects::{ReplyDue, WORD_BYTES, empty_reply};
use crate::parts::host_interface::BusTransfer;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Bytes of the two stores that start a transfer: the address; the length with the command.
const COMMAND_BYTES: u64 = 2 * WORD_BYTES;
/// Bytes of the length field that the processor stores before a frame to send. Ours: the layout of the FIFO.
const PREAMBLE_BYTES: u64 = 4;

/// A frame that the processor sends. The processor waits until it is sent.
#[derive(Debug)]
struct Sending {
    send: FifoSend,
    head: FrameBytes,
    carried: Carried,
    message: Option<TraceTag>,
    due: ReplyDue,
    /// Token of the DMA read of its data; none before the FIFO has room.
    token: Option<u64>,
}

/// State of CPU-driven transfers.
#[derive(Debug, Default)]
pub(super) struct Direct {
    sending: Option<Sending>,
    /// The card interrupted the host, which has not found the FIFO empty since then.
    is_told: bool,
}

impl Drop for Direct {
    /// A dropped card owes no reply: the pending request becomes void.
    fn drop(&mut self) {
        mem::take(&mut self.sending).into_iter().for_each(|sending| sending.due.void());
    }
}

impl Direct {
    /// The driver has gone or restarts: the card refuses the request that the driver waits for.
    pub(super) fn reset(&mut self, effects: &mut Effects) {
        self.is_told = false;
        if let Some(Sending { due, .. }) = self.sending.take() {
            effects.refuse(effects.interface.host_clock(), due, ControlError::PortBusy.status());
        }
    }

    /// Interrupts the host if a frame waits and the host was not interrupted for it.
    pub(super) fn on_arrived(&mut self, now: Time, receive: &Receive, effects: &mut Effects) {
        let Some(first) = receive.first().filter(|_| !self.is_told) else { return };
        self.is_told = true;
        effects.attribute(first.message);
        effects.interrupt(now, CAUSE_FRAMES, 0, first.message);
    }

    /// The processor reads status and header of the first frame in the FIFO.
    pub(super) fn look(&mut self, at: &mut Time, receive: &Receive, effects: &mut Effects) -> FifoHead {
        let first = receive.first();
        effects.attribute(first.and_then(|arrived| arrived.message));
        *at = read_word(*at, effects);
        let Some(arrived) = first else {
            self.is_told = false;
            return FifoHead::default();
        };
        let mut words = [0; FIFO_HEAD_BYTES as usize / WORD_BYTES as usize];
        let (chunks, _) = arrived.frame.as_chunks::<{ WORD_BYTES as usize }>();
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *at = read_word(*at, effects);
            *word = u64::from_le_bytes(*chunk);
        }
        let [head_0, head_1, head_2] = words;
        FifoHead { bytes: arrived.bytes as u32, status: arrived.fault & !RING_ERROR, head_0, head_1, head_2 }
    }

    /// The processor has the card store a part of the first frame in host memory. Returns the port if this completes
    /// a message.
    pub(super) fn take(
        at: &mut Time,
        take: &FifoTake,
        receive: &mut Receive,
        effects: &mut Effects,
    ) -> Result<Option<u8>, ControlError> {
        let first = receive.first().ok_or(ControlError::NotFound)?;
        let (frame, message) = (first.frame.clone(), first.message);
        let begin = take.skip_bytes as usize;
        let end = begin.checked_add(take.bytes as usize).filter(|end| *end <= first.bytes);
        let part = begin..end.ok_or(ControlError::BadValue)?;
        take.address.checked_add(take.bytes.into()).ok_or(ControlError::BadAddress)?;
        effects.attribute(message);
        let mut done = (*at).max(effects.interface.host_clock());
        if !part.is_empty() {
            let told = effects.interface.transfer(BusTransfer::PioWriteUncombined, done, COMMAND_BYTES).end;
            let range = HostRange { address: take.address, bytes: take.bytes.into() };
            let stored = effects.dma_frame(told, &frame, part, [range].into_iter().collect());
            done = read_word(stored, effects);
        }
        // This store discards the frame, so that the next one becomes the first.
        effects.interface.transfer(BusTransfer::PioWriteUncombined, done, WORD_BYTES);
        let Some(arrived) = receive.drop_first(done) else { return Err(ControlError::NotFound) };
        let is_sound = arrived.fault == 0;
        let Counted { copied_bytes, port, is_last } =
            count_received(&frame, arrived.bytes, is_sound, effects);
        done = effects.interface.host_receive(done, arrived.bytes as u64);
        if port.is_none() && copied_bytes > 0 {
            // A frame of another protocol: the driver does not know its final destination, so it copies the data.
            done = effects.interface.host_copy(done, copied_bytes);
        }
        if let Some(message) = message.filter(|_| is_last) {
            effects.interface.ledger_mut().complete(&message, done);
        }
        *at = done;
        Ok(port.filter(|_| is_last))
    }

    /// The processor sends a frame and waits, so at most one frame is in flight.
    pub(super) fn send(
        &mut self,
        now: Time,
        send: &FifoSend,
        due: &mut Option<ReplyDue>,
        (transmit, config): (&mut Transmit, &Config),
        effects: &mut Effects,
    ) -> Result<(), ControlError> {
        if self.sending.is_some() {
            return Err(ControlError::PortBusy);
        }
        let head = head_of(send, config).inspect_err(|_| {
            effects.counters.bad_length += 1;
            effects.counters.card.refused += 1;
        })?;
        send.address.checked_add(send.bytes.into()).ok_or(ControlError::BadAddress)?;
        // The header passes as a frame without data, for all checks except those of the data.
        if wire::seal(head.clone(), config.node).is_err() {
            effects.counters.forged += 1;
            effects.counters.card.refused += 1;
            return Err(ControlError::BadValue);
        }
        let carried = Carried::by(&head);
        let is_call = !matches!(carried, Carried::Data { is_first: false, .. });
        effects.attribute(None);
        let ready =
            if is_call { transmit.on_call(now, effects) } else { now.max(effects.interface.host_clock()) };
        let message = transmit.message_of(&carried, config.node, send.message_bytes);
        let Some(due) = due.take() else { return Err(ControlError::PortBusy) };
        self.sending = Some(Sending { send: *send, head, carried, message, due, token: None });
        self.go_on(ready, transmit, config, effects);
        Ok(())
    }

    /// Resumes the pending frame if the transmit FIFO has room.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        transmit: &mut Transmit,
        config: &Config,
        effects: &mut Effects,
    ) {
        let Some(sending) = &mut self.sending else { return };
        let FifoSend { address, bytes, head_bytes, .. } = sending.send;
        if sending.token.is_some() || !transmit.has_room(u64::from(head_bytes) + u64::from(bytes), config) {
            return;
        }
        effects.attribute(sending.message);
        let ready = now.max(effects.interface.host_clock());
        let stores = u64::from(head_bytes) + PREAMBLE_BYTES;
        let stored = effects.interface.transfer(BusTransfer::PioWriteUncombined, ready, stores).end;
        let token = effects.next_token();
        sending.token = Some(token);
        if bytes == 0 {
            let head = sending.head.clone();
            return self.finish(stored, head, transmit, config, effects);
        }
        let told = effects.interface.transfer(BusTransfer::PioWriteUncombined, stored, COMMAND_BYTES).end;
        let range = HostRange { address, bytes: bytes.into() };
        effects.dma_read(told, token, [range].into_iter().collect(), sending.head.clone());
    }

    /// Accepts DMA data for the processor's frame. Returns false if the token belongs to another read.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        (token, bytes, is_whole): (u64, &FrameBytes, bool),
        (transmit, config): (&mut Transmit, &Config),
        effects: &mut Effects,
    ) -> bool {
        if self.sending.as_ref().and_then(|sending| sending.token) != Some(token) {
            return false;
        }
        if is_whole {
            self.finish(now, bytes.clone(), transmit, config, effects);
        } else if let Some(Sending { due, .. }) = self.sending.take() {
            effects.counters.bad_address += 1;
            effects.counters.card.refused += 1;
            effects.refuse(now, due, ControlError::BadAddress.status());
        }
        true
    }

    /// The whole frame is in the FIFO: the card sends it, and the processor reads the status that ends its wait.
    fn finish(
        &mut self,
        now: Time,
        bytes: FrameBytes,
        transmit: &mut Transmit,
        config: &Config,
        effects: &mut Effects,
    ) {
        let Some(Sending { carried, message, due, .. }) = self.sending.take() else { return };
        let read = bytes.len();
        match wire::seal(bytes, config.node) {
            Ok(frame) => {
                let now = transmit.leave(now, Ready { frame, carried, message, read }, config, effects);
                effects.attribute(message);
                let seen = read_word(now, effects);
                effects.reply(seen, due, empty_reply());
            }
            // Cannot happen: `send` has checked the same header.
            Err(_) => effects.refuse(now, due, ControlError::BadValue.status()),
        }
    }
}

/// Builds the header of a frame to send.
///
/// # Errors
/// [`ControlError::BadValue`] if the length of the header or of the frame is invalid.
fn head_of(send: &FifoSend, config: &Config) -> Result<FrameBytes, ControlError> {
    let FifoSend { head_0, head_1, head_2, head_bytes, bytes, .. } = *send;
    let all = u64::from(head_bytes) + u64::from(bytes) + u64::from(niclab_abi::gamma::CHECK_BYTES);
    let is_frame = (HEADER_BYTES as u32..=FIFO_HEAD_BYTES).contains(&head_bytes)
        && all <= u64::from(config.mtu_bytes) + HEADER_BYTES as u64;
    if !is_frame {
        return Err(ControlError::BadValue);
    }
    let bytes = [head_0, head_1, head_2].into_iter().flat_map(u64::to_le_bytes);
    Ok(bytes.take(head_bytes as usize).collect())
}

/// The processor reads a word from the card and waits for it. Returns the time at which it has the word.
fn read_word(ready: Time, effects: &mut Effects) -> Time {
    let ready = ready.max(effects.interface.host_clock());
    effects.interface.transfer(BusTransfer::PioRead, ready, WORD_BYTES).end
}
