//! Makes packets (section 4.2): fetches the data of the next packet, and writes its header. Only this component and
//! `split_packet` know the format.

use alloc::boxed::Box;

use niclab_abi::inic::POST_BAD_REGION;

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::{AckInfo, Packet, Payload, Pinfo, Token};
use crate::models::inic::wire::{Ack, CHECK_BYTES, Dialect, Header, head_bytes};
use crate::nic::FrameBytes;
use crate::nic::frame::SharedFrame;
use crate::time::Time;

const PINFO: usize = 0;
const ACKS: usize = 1;

/// A packet whose data comes from the host.
#[derive(Debug)]
struct Reading {
    token: u64,
    send: u64,
    pinfo: Box<Pinfo>,
    ack: Option<AckInfo>,
    /// When the data has arrived.
    here: Time,
}

pub(in crate::models::inic) struct Xmit {
    dialect: Dialect,
    /// Whether `build_acks` provides acknowledgements; otherwise a stub.
    has_acks: bool,
    reading: Option<Reading>,
    /// A packet to send when there is room.
    finished: Option<(Time, Box<Packet>)>,
}

impl Xmit {
    pub(in crate::models::inic) const fn new(dialect: Dialect, has_acks: bool) -> Self {
        Self { dialect, has_acks, reading: None, finished: None }
    }

    /// Sends a separate acknowledgement.
    fn acknowledge(&mut self, at: Time, ack: &AckInfo, io: &mut Io<'_>) {
        let header = Header {
            source: io.card.node,
            destination: ack.node,
            sequence: 0,
            has_data: false,
            is_last: false,
            is_again: false,
            for_card: false,
            ack: ack.ack.map(|(base, mask)| Ack { base: base.get(), mask }),
        };
        io.card.effects.card().acknowledgements_sent += 1;
        let mut frame = FrameBytes::from_elem(0, head_bytes(self.dialect.format));
        header.finish(self.dialect, &mut frame);
        let sent = self.cross(at, &frame, io);
        let packet = Packet { frame: frame.into(), message: None, is_too_much: false };
        self.finished = Some((sent, Box::new(packet)));
    }

    /// Charges a frame on the machine and on the card's internal bus.
    fn cross(&self, at: Time, frame: &FrameBytes, io: &mut Io<'_>) -> Time {
        let mut at = io.work(at, frame.len());
        for _ in 0..io.card.crossings[0] {
            at = io.card.effects.interface.local_bus(at, frame.len() as u64).end;
        }
        at
    }

    /// Starts the next packet.
    fn begin(&mut self, at: Time, pinfo: Box<Pinfo>, ack: Option<AckInfo>, io: &mut Io<'_>) {
        let head_bytes = head_bytes(self.dialect.format);
        io.card.effects.attribute(pinfo.message);
        match &pinfo.payload {
            Payload::Host { send, bytes, place } => {
                let mut into = FrameBytes::with_capacity(
                    head_bytes + 8 + (bytes.end - bytes.start) as usize + CHECK_BYTES,
                );
                into.resize(head_bytes, 0);
                if let Some((message, packet)) = place {
                    into.extend_from_slice(&message.to_be_bytes());
                    into.extend_from_slice(&packet.to_be_bytes());
                }
                let memory = io.card.memory_of(*send);
                let ranges =
                    memory.map(|memory| io.card.ranges(&memory, bytes.start, bytes.end - bytes.start));
                let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) else {
                    return self.finish_void(at, &pinfo, ack, io);
                };
                let token = io.card.effects.next_token();
                let here = io.card.effects.dma_read(at, token, ranges, into);
                self.reading = Some(Reading { token, send: *send, pinfo, ack, here });
            }
            Payload::Own(data) => {
                let mut frame = FrameBytes::with_capacity(head_bytes + data.len() + CHECK_BYTES);
                frame.resize(head_bytes, 0);
                frame.extend_from_slice(data);
                self.finish(at, &pinfo, ack, frame, io);
            }
            Payload::Card => {
                let kept = io.card.kept.get(pinfo.node, pinfo.number.get());
                let data =
                    kept.and_then(|frame| frame.get(head_bytes..frame.len().saturating_sub(CHECK_BYTES)));
                let Some(data) = data else { return self.finish_void(at, &pinfo, ack, io) };
                let mut frame = FrameBytes::from_elem(0, head_bytes);
                frame.extend_from_slice(data);
                self.finish(at, &pinfo, ack, frame, io);
            }
            Payload::Void => self.finish_void(at, &pinfo, ack, io),
        }
    }

    /// Sends a packet without data, because its message failed. The card's memory gets an empty frame, so that a
    /// retransmission has no data either.
    fn finish_void(&mut self, at: Time, pinfo: &Pinfo, ack: Option<AckInfo>, io: &mut Io<'_>) {
        let frame = FrameBytes::from_elem(0, head_bytes(self.dialect.format));
        if pinfo.is_kept && !pinfo.is_again {
            io.card.kept.keep(pinfo.node, pinfo.number.get(), &SharedFrame::default());
        }
        // Without data, a packet that is not its message's last has a number only as a retransmission.
        let is_again = pinfo.is_again || !pinfo.is_last;
        let pinfo = Pinfo { is_again, is_kept: false, for_card: false, message: None, ..pinfo.clone() };
        self.finish(at, &pinfo, ack, frame, io);
    }

    /// Writes the head before the data.
    fn finish(
        &mut self,
        at: Time,
        pinfo: &Pinfo,
        ack: Option<AckInfo>,
        mut frame: FrameBytes,
        io: &mut Io<'_>,
    ) {
        let ack = ack.and_then(|told| told.ack);
        let header = Header {
            source: io.card.node,
            destination: pinfo.node,
            sequence: pinfo.number.get(),
            has_data: frame.len() > head_bytes(self.dialect.format),
            is_last: pinfo.is_last,
            is_again: pinfo.is_again,
            for_card: pinfo.for_card,
            ack: ack.map(|(base, mask)| Ack { base: base.get(), mask }),
        };
        header.finish(self.dialect, &mut frame);
        let sent = self.cross(at, &frame, io);
        let frame = frame.into();
        if pinfo.is_kept && !pinfo.is_again {
            io.card.kept.keep(pinfo.node, pinfo.number.get(), &frame);
        }
        let packet = Packet { frame, message: pinfo.message, is_too_much: false };
        self.finished = Some((sent, Box::new(packet)));
    }
}

impl Component for Xmit {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        let has_work = self.finished.is_some() || io.has(PINFO) || (self.has_acks && io.has(ACKS));
        if self.reading.is_some() || !has_work || !io.has_room(0) {
            return false;
        }
        if let Some((at, packet)) = self.finished.take() {
            io.put(0, at, Token::Packet(packet));
            return true;
        }
        if !self.has_acks {
            let Some((at, Token::Pinfo(pinfo))) = io.take(PINFO) else { return false };
            self.begin(at, pinfo, None, io);
            return true;
        }
        match io.peek(ACKS) {
            Some((_, Token::Ack(ack))) if ack.is_forced => {
                let Some((at, Token::Ack(ack))) = io.take(ACKS) else { return false };
                io.card.effects.attribute(None);
                self.acknowledge(at, &ack, io);
                true
            }
            // The acknowledgement for the next packet: both tokens were put at once.
            Some(_) if io.peek(PINFO).is_some() => {
                let (Some((told, Token::Ack(ack))), Some((at, Token::Pinfo(pinfo)))) =
                    (io.take(ACKS), io.take(PINFO))
                else {
                    return false;
                };
                self.begin(at.max(told), pinfo, Some(ack), io);
                true
            }
            _ => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.reading.is_none() && self.finished.is_none()
    }

    fn is_reader(&self) -> bool {
        true
    }

    fn on_data(&mut self, io: &mut Io<'_>, token: u64, bytes: &mut FrameBytes, is_whole: bool) -> bool {
        let Some(reading) = self.reading.take_if(|reading| reading.token == token) else { return false };
        let Reading { send, pinfo, ack, here, .. } = reading;
        io.card.effects.attribute(pinfo.message);
        let at = here.max(io.now);
        if is_whole {
            self.finish(at, &pinfo, ack, core::mem::take(bytes), io);
            if pinfo.is_last {
                io.card.on_read(at, send);
            }
            if !pinfo.is_kept {
                io.card.on_packet_over(send);
            }
        } else {
            io.card.fail(at, send, POST_BAD_REGION);
            self.finish_void(at, &pinfo, ack, io);
        }
        true
    }
}
