//! The I/O card: an i960 with 4 MB of memory and an Ethernet port (sections 5, 6: a Cyclone IQ960-RP). Its handlers
//! send a message back, bridge messages to Ethernet, and store blocks.

use alloc::boxed::Box;

use niclab_abi::grim::{CHANNEL_BRIDGE, CHANNEL_LOAD, CHANNEL_PING, CHANNEL_PONG, CHANNEL_STORE};

use super::bridge::Bridge;
use super::storage::Storage;
use super::{Arrival, Peripheral, PeripheralContext, PeripheralKind, Work};

/// Its memory (section 6).
const MEMORY_BYTES: u64 = 4 << 20;
/// Bytes of this for blocks. Assumed: most of the card's 4 MB (section 6).
const STORAGE_BYTES: u64 = 3 << 20;

pub(super) static KIND: PeripheralKind = PeripheralKind {
    name: "io-card",
    channel_key: "io_card_channel",
    help: "The channel of an I/O card on the node's bus: an endpoint that answers pings, bridges messages to Ethernet \
           and stores blocks, without the host. 0: the node has no such card.",
    memory_bytes: MEMORY_BYTES - STORAGE_BYTES,
    has_mac_endpoint: true,
    machines: ["io_card_receive", "io_card_send"],
    build: |context| Box::new(IoCard::new(context)),
};

/// An I/O card.
struct IoCard {
    bridge: Bridge,
    storage: Storage,
}

impl IoCard {
    const fn new(context: PeripheralContext) -> Self {
        Self { bridge: Bridge::new(context), storage: Storage::new(STORAGE_BYTES) }
    }
}

impl Peripheral for IoCard {
    fn on_message(&mut self, message: &Arrival, work: &mut Work) -> bool {
        match message.handler {
            CHANNEL_PING => {
                work.answer(message, CHANNEL_PONG, message.arguments, message.payload.clone());
            }
            CHANNEL_BRIDGE => self.bridge.send(message, work),
            CHANNEL_STORE => self.storage.store(message, work),
            CHANNEL_LOAD => self.storage.load(message, work),
            _ => return false,
        }
        true
    }

    fn on_frame(&mut self, frame: &[u8], work: &mut Work) {
        self.bridge.on_frame(frame, work);
    }
}
