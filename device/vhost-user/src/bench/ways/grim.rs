//! Attacks of a guest that pushes messages into channels.

use std::sync::Arc;

use niclab_abi::config::FEATURE_CHANNELS;
use niclab_abi::grim::{
    BulkHeader, CHANNEL_APPLY, CHANNEL_BULK, CHANNEL_INTERRUPT, CHANNEL_LOAD, CHANNEL_MAX_BULK_BYTES,
    CHANNEL_SEGMENT, CHANNEL_SHORT, CHANNEL_STORE, ChannelPayload, MessageHeader, OP_CHANNEL_PAYLOAD,
    STORAGE_BLOCK_BYTES, Segment,
};
use niclab_abi::{PAGE_BYTES, ToBytes, to_words};

use crate::bench::BenchError;
use crate::bench::hostile::{Attack, Scene, Setting};
use crate::frontend::matching::ChannelPort;
use crate::frontend::{ClusterGuest, FrontendError};

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "short messages that interrupt, without end",
        features: FEATURE_CHANNELS,
        parameters: &[],
        run: interrupts,
    },
    Attack {
        name: "messages of 48 KiB without end",
        features: FEATURE_CHANNELS,
        parameters: &[],
        run: long_messages,
    },
    Attack {
        name: "messages to an endpoint that never releases",
        features: FEATURE_CHANNELS,
        parameters: &[],
        run: unread,
    },
    Attack {
        name: "messages begun and the port closed",
        features: FEATURE_CHANNELS,
        parameters: &[],
        run: closed_ports,
    },
    Attack { name: "segments of one byte", features: FEATURE_CHANNELS, parameters: &[], run: crumbs },
    Attack {
        name: "payload regions closed under messages",
        features: FEATURE_CHANNELS,
        parameters: &[],
        run: closed_regions,
    },
    Attack {
        name: "slots with invalid messages",
        features: FEATURE_CHANNELS,
        parameters: &[],
        run: no_messages,
    },
    Attack {
        name: "messages of 48 KiB to a function card",
        features: FEATURE_CHANNELS,
        parameters: &[("function_card_channel", Setting::Number(CARD as u64))],
        run: |scene| to_card(scene, CHANNEL_APPLY),
    },
    Attack {
        name: "blocks stored on an I/O card without end",
        features: FEATURE_CHANNELS,
        parameters: &[("io_card_channel", Setting::Number(CARD as u64))],
        run: |scene| to_card(scene, CHANNEL_STORE),
    },
    Attack {
        name: "blocks loaded from an I/O card without end",
        features: FEATURE_CHANNELS,
        parameters: &[("io_card_channel", Setting::Number(CARD as u64))],
        run: |scene| to_card(scene, CHANNEL_LOAD),
    },
];

/// The channel of a peer device on the node's bus.
const CARD: u16 = 1;

const LONG_BYTES: u32 = CHANNEL_MAX_BULK_BYTES as u32;
/// Bytes of a payload region, with room for several long messages.
const PAYLOAD_BYTES: u64 = 4 * CHANNEL_MAX_BULK_BYTES;
/// The node that helps the attacker.
const PARTNER: u16 = 1;
/// Words of a slot, whose last words are a header.
const WORDS: usize = 10;

/// A guest with an open channel, and room for the payload of received messages.
struct Program {
    node: usize,
    guest: Arc<ClusterGuest>,
    port: ChannelPort,
    address: u64,
    region: u32,
}

impl Program {
    fn new(scene: &Scene<'_>, node: usize) -> Result<Self, BenchError> {
        let socket = scene.lab.cluster_socket(node)?;
        let guest = Arc::new(ClusterGuest::connect(socket, PAYLOAD_BYTES + (4 << 20))?);
        let port = ChannelPort::open(&guest, 64)?;
        let address = guest.memory().allocate(PAYLOAD_BYTES, PAGE_BYTES)?;
        let mut program = Self { node, guest, port, address, region: 0 };
        program.take_payload()?;
        Ok(program)
    }

    /// Registers the payload region, and announces it to the card.
    fn take_payload(&mut self) -> Result<(), BenchError> {
        self.region = self.port.register(self.address, PAYLOAD_BYTES)?;
        let (port, region) = (self.port.port().number(), self.region);
        let payload = ChannelPayload { port, region, offset: 0, bytes: PAYLOAD_BYTES };
        self.guest.command(OP_CHANNEL_PAYLOAD, &payload)?;
        Ok(())
    }

    /// Closes the port with its messages in flight, and opens another.
    fn reopen(self, scene: &Scene<'_>) -> Result<Self, BenchError> {
        let Self { node, guest, port, address, .. } = self;
        port.close()?;
        let port = match ChannelPort::open(&guest, 64) {
            Ok(port) => port,
            // A front end never frees memory, so a new guest replaces one whose memory is used up.
            Err(FrontendError::OutOfMemory { .. }) => {
                drop(guest);
                return Self::new(scene, node);
            }
            Err(error) => return Err(error.into()),
        };
        let mut program = Self { node, guest, port, address, region: 0 };
        program.take_payload()?;
        Ok(program)
    }

    /// Posts a slot, if the page has room.
    fn launch(&mut self, scene: &Scene<'_>, code: u32, header: &impl ToBytes) {
        fn words_of<T: ToBytes>(header: &T) -> [u64; WORDS] {
            let mut words = to_words(header);
            words.rotate_right(WORDS - T::BYTES / 8);
            words
        }
        match self.port.port_mut().try_command(code, &words_of(header)) {
            Some(_) => scene.count(1),
            None => self.port.announce(),
        }
    }

    /// Sends a message whose first `pushed` bytes are pushed. The contents of the payload region do not matter.
    fn send(&mut self, scene: &Scene<'_>, bytes: u32, pushed: u32) {
        let header = BulkHeader { node: PARTNER, handler: 20, bytes, pushed, ..BulkHeader::default() };
        self.launch(scene, CHANNEL_BULK, &header);
    }

    /// Takes the messages that have arrived.
    fn receive(&mut self) {
        while self.port.port_mut().try_receive().is_some() {}
        self.port.announce();
    }
}

fn partners(scene: &Scene<'_>) -> Result<[Program; 2], BenchError> {
    Ok([Program::new(scene, 0)?, Program::new(scene, PARTNER.into())?])
}

fn interrupts(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [mut from, mut to] = partners(scene)?;
    while scene.goes_on() {
        let header = MessageHeader { node: PARTNER, handler: 20, ..MessageHeader::default() };
        from.launch(scene, CHANNEL_SHORT | CHANNEL_INTERRUPT, &header);
        to.receive();
    }
    Ok(())
}

fn long_messages(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [mut from, mut to] = partners(scene)?;
    while scene.goes_on() {
        from.send(scene, LONG_BYTES, LONG_BYTES);
        to.receive();
    }
    Ok(())
}

/// Has the peer device on the attacker's bus handle messages.
fn to_card(scene: &Scene<'_>, handler: u32) -> Result<(), BenchError> {
    /// Blocks of a request to load some: the maximum of an answer.
    const BLOCKS: u32 = CHANNEL_MAX_BULK_BYTES as u32 / STORAGE_BLOCK_BYTES;
    let mut from = Program::new(scene, 0)?;
    while scene.goes_on() {
        let bulk = BulkHeader {
            endpoint: CARD,
            handler,
            bytes: LONG_BYTES,
            pushed: LONG_BYTES,
            ..BulkHeader::default()
        };
        if handler == CHANNEL_LOAD {
            let load =
                MessageHeader { endpoint: CARD, handler, argument1: BLOCKS, ..MessageHeader::default() };
            from.launch(scene, CHANNEL_SHORT, &load);
        } else {
            from.launch(scene, CHANNEL_BULK, &bulk);
        }
        from.receive();
    }
    Ok(())
}

fn unread(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [mut from, _to] = partners(scene)?;
    while scene.goes_on() {
        from.send(scene, LONG_BYTES, LONG_BYTES);
    }
    Ok(())
}

fn closed_ports(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [mut from, mut to] = partners(scene)?;
    while scene.goes_on() {
        (0..4).for_each(|_| from.send(scene, LONG_BYTES, LONG_BYTES));
        from.send(scene, LONG_BYTES, LONG_BYTES / 2);
        from.port.announce();
        to.receive();
        from = from.reopen(scene)?;
    }
    Ok(())
}

fn crumbs(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [mut from, mut to] = partners(scene)?;
    let mut pushed = 0;
    while scene.goes_on() {
        pushed = pushed % LONG_BYTES + 1;
        if pushed == 1 {
            from.send(scene, LONG_BYTES, pushed);
        } else {
            // If the page has no room for a segment, the next segment replaces it.
            from.launch(scene, CHANNEL_SEGMENT, &Segment { pushed, reserved: 0 });
        }
        to.receive();
    }
    Ok(())
}

fn closed_regions(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [mut from, mut to] = partners(scene)?;
    while scene.goes_on() {
        (0..8).for_each(|_| from.send(scene, LONG_BYTES, LONG_BYTES));
        to.port.deregister(to.region)?;
        to = to.reopen(scene)?;
    }
    Ok(())
}

fn no_messages(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [mut from, mut to] = partners(scene)?;
    for number in 0_u32.. {
        if !scene.goes_on() {
            break;
        }
        let header = BulkHeader {
            node: number as u16 % 3,
            endpoint: (number >> 2) as u16,
            offset: number.wrapping_mul(PAGE_BYTES as u32),
            bytes: u32::MAX - number,
            pushed: number,
            ..BulkHeader::default()
        };
        from.launch(scene, number, &header);
        to.receive();
    }
    Ok(())
}
