//! The NIC and the peer devices on its node's bus: it delivers messages to them, and takes their messages.

use super::{Grim, GrimPort};
use crate::fabric::ethernet::{ETHER_TYPE_CLUSTER, Frame, endpoint_of_mac, is_group};
use crate::models::grim::channel::Channel;
use crate::models::grim::config::HEADER_BYTES;
use crate::models::grim::counters::Counters;
use crate::models::grim::link::{Held, Joining, Sink};
use crate::models::grim::peripheral_port::PeripheralPort;
use crate::models::grim::peripherals::Arrival;
use crate::models::grim::wire::{HEAD_BYTES, Purpose};
use crate::nic::Address;
use crate::nic::frame::SharedFrame;
use crate::parts::effects::WORD_BYTES;
use crate::parts::host_interface::BusTransfer;
use crate::time::Time;

/// Bytes that one work unit copies into the memory of a peer device. Ours: how work is counted.
const STORED_BYTES_IN_UNIT: u64 = 64;

impl Grim {
    /// The peer device with this port.
    pub(super) fn peripheral(&self, port: usize) -> Option<&PeripheralPort> {
        self.peripherals.iter().find(|peripheral| usize::from(peripheral.number) == port)
    }

    pub(super) fn peripheral_mut(&mut self, port: usize) -> Option<&mut PeripheralPort> {
        self.peripherals.iter_mut().find(|peripheral| usize::from(peripheral.number) == port)
    }

    /// The outbound queue of a program or of a peer device.
    pub(super) fn channel(&self, index: usize) -> Option<&Channel> {
        match self.ports.get(index)? {
            Some(port) => Some(&port.channel),
            None => self.peripheral(index).map(|peripheral| &peripheral.channel),
        }
    }

    pub(super) fn channel_mut(&mut self, index: usize) -> Option<&mut Channel> {
        channel_of(&mut self.ports, &mut self.peripherals, index)
    }

    /// The card's counters, with those of its peer devices.
    pub(super) fn all_counters(&self) -> Counters {
        let mut counters = self.effects.counters;
        for peripheral in &self.peripherals {
            counters.peripheral_handled += peripheral.handled;
            counters.peripheral_unsendable += peripheral.unsendable;
            counters.peripheral_dropped_frames += peripheral.dropped_frames;
        }
        counters
    }

    /// Copies payload of a message into the memory of a peer device.
    pub(super) fn store_beside(&mut self, at: Time, held: &Held, joining: &mut Joining, bytes: usize) {
        let Sink::Peripheral(payload) = &mut joining.sink else { return };
        payload.extend_from_slice(held.frame.get(HEAD_BYTES..HEAD_BYTES + bytes).unwrap_or_default());
        let stage = self.effects.interface.transfer(BusTransfer::DeviceToDevice, at, bytes as u64);
        joining.visible = joining.visible.max(stage.end);
        self.effects.card().bytes_received += bytes as u64;
        self.effects.spend(bytes as u64 / STORED_BYTES_IN_UNIT);
    }

    /// All payload of a message is in the peer device's memory: the NIC now writes the header.
    pub(super) fn finish_beside(&mut self, place: usize, held: &Held, joining: Joining) {
        let Joining { fragment, sink, visible, .. } = joining;
        let (Sink::Peripheral(payload), Purpose::Handler { handler, arguments }) = (sink, fragment.purpose)
        else {
            return;
        };
        let link = &self.links[place];
        let from = Address { node: link.node, port: link.channel };
        let arrival = Arrival { from, handler, arguments, payload, interrupt: fragment.interrupt };
        let visible = self.effects.interface.transfer(BusTransfer::DeviceToDevice, visible, HEADER_BYTES).end;
        self.effects.card().messages_received += 1;
        if let Some(peripheral) = self.peripheral_mut(fragment.endpoint.into()) {
            peripheral.deliver(arrival, visible, held.message);
        }
    }

    /// Delivers an ordinary Ethernet frame to the Ethernet ports of peer devices. Returns false for a cluster frame.
    pub(super) fn on_ethernet(&mut self, now: Time, frame: &SharedFrame) -> bool {
        let Some(ethernet) = Frame::new_checked(frame) else { return false };
        if ethernet.ether_type() == ETHER_TYPE_CLUSTER {
            return false;
        }
        let destination = ethernet.destination();
        let endpoint = endpoint_of_mac(&destination).and_then(|(_, endpoint)| endpoint);
        for peripheral in &mut self.peripherals {
            let is_its = endpoint == Some(peripheral.number) || is_group(&destination);
            if is_its && peripheral.has_mac_endpoint() {
                peripheral.on_frame(now, frame);
            }
        }
        true
    }

    /// Ends jobs of peer devices that are done by `now`: sends their output, and gives the freed room to waiting
    /// messages.
    pub(super) fn finish_peripherals(&mut self, now: Time) {
        for index in 0..self.peripherals.len() {
            while let Some(done) = self.peripherals[index].finish(now) {
                let mut tag = done.tag;
                for frame in done.frames {
                    self.effects.frame(done.at, frame, tag);
                }
                if let Some(tag) = tag.take() {
                    self.effects.interface.ledger_mut().complete(&tag, done.at);
                }
                self.push_beside(index);
                self.drain(done.at);
            }
        }
    }

    /// A peer device pushes its messages while its outbound queue has room.
    fn push_beside(&mut self, index: usize) {
        let Self { peripherals, effects, config, messages, .. } = self;
        if let Some(peripheral) = peripherals.get_mut(index) {
            peripheral.push(config, messages, &mut effects.interface);
        }
    }

    /// Messages of a peer device may have left its outbound queue. The NIC reports this if the device may wait for it.
    /// Failed messages are only counted: a peer device has no program that could get a report.
    pub(super) fn tell_beside(&mut self, at: Time, place: usize, refused: u32, is_line_due: bool) {
        let channel = self.links[place].channel;
        let Some(index) = self.peripherals.iter().position(|peripheral| peripheral.number == channel) else {
            return;
        };
        if is_line_due {
            self.effects.interface.transfer(BusTransfer::DeviceToDevice, at, WORD_BYTES);
        }
        let peripheral = &mut self.peripherals[index];
        peripheral.unsendable += u64::from(refused);
        peripheral.on_left();
        self.push_beside(index);
    }
}

/// The outbound queue of a program or of a peer device.
pub(super) fn channel_of<'a>(
    ports: &'a mut [Option<GrimPort>],
    peripherals: &'a mut [PeripheralPort],
    index: usize,
) -> Option<&'a mut Channel> {
    match ports.get_mut(index)? {
        Some(port) => Some(&mut port.channel),
        None => {
            let mut peripherals = peripherals.iter_mut();
            let peripheral = peripherals.find(|peripheral| usize::from(peripheral.number) == index)?;
            Some(&mut peripheral.channel)
        }
    }
}
