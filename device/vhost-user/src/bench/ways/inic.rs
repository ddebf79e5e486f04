//! Attacks of a guest that posts messages.

use std::sync::Arc;

use niclab_abi::PAGE_BYTES;
use niclab_abi::config::FEATURE_POSTS;
use niclab_model::random::Random;
use niclab_port::inic::{Part, Receive, Send};
use niclab_spec::monitor::Request;

use crate::bench::hostile::{Attack, MonitorClient, NODES, Scene, Setting};
use crate::bench::{BenchError, card_with};
use crate::frontend::ClusterGuest;
use crate::frontend::matching::PostPort;

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "buffers posted and the port closed",
        features: FEATURE_POSTS,
        parameters: &[],
        run: closed_rooms,
    },
    Attack {
        name: "messages of 16 MiB without end",
        features: FEATURE_POSTS,
        parameters: &[],
        run: long_messages,
    },
    Attack {
        name: "messages without a posted buffer",
        features: FEATURE_POSTS,
        parameters: &[],
        run: unwanted,
    },
    Attack {
        name: "messages to a node without a program",
        features: FEATURE_POSTS,
        parameters: &[],
        run: unanswered,
    },
    Attack {
        name: "regions closed under messages",
        features: FEATURE_POSTS,
        parameters: &[],
        run: closed_regions,
    },
    Attack { name: "invalid commands", features: FEATURE_POSTS, parameters: &[], run: no_commands },
    Attack {
        name: "16 MiB in packets of 4 bytes",
        features: FEATURE_POSTS,
        parameters: &[SHORT_PACKETS],
        run: long_messages,
    },
    Attack {
        name: "16 MiB in packets of 4 bytes, unreliable",
        features: FEATURE_POSTS,
        parameters: &[SHORT_PACKETS, UNRELIABLE],
        run: long_messages,
    },
    Attack {
        name: "packets of 4 bytes whose buffers are posted late",
        features: FEATURE_POSTS,
        parameters: &[SHORT_PACKETS, UNRELIABLE],
        run: late_rooms,
    },
    Attack {
        name: "a packet for each second of model time",
        features: FEATURE_POSTS,
        parameters: &[
            ("assembly", Setting::Word("rate_controlled")),
            ("rate_interval_us", Setting::Number(1_000_000)),
        ],
        run: long_messages,
    },
    Attack {
        name: "assemblies loaded through the monitor",
        features: FEATURE_POSTS,
        parameters: &[],
        run: |scene| load(scene, |_| Ok(())),
    },
    Attack {
        name: "assemblies loaded, and messages of 16 MiB",
        features: FEATURE_POSTS,
        parameters: &[],
        run: |scene| load(scene, long_messages),
    },
];

const SHORT_PACKETS: (&str, Setting) = ("packet_bytes", Setting::Number(4));
const UNRELIABLE: (&str, Setting) = ("assembly", Setting::Word("unreliable_ordered"));

/// The maximum message of a card with default parameters.
const LONG_BYTES: u64 = 16 << 20;
/// The node that helps the attacker.
const PARTNER: u32 = 1;

/// A guest that posts messages, with an open port, and a region of its memory.
struct Program {
    _guest: Arc<ClusterGuest>,
    port: PostPort,
    address: u64,
    part: Part,
}

impl Program {
    fn new(scene: &Scene<'_>, node: usize, bytes: u64) -> Result<Self, BenchError> {
        let guest = Arc::new(ClusterGuest::connect(scene.lab.cluster_socket(node)?, bytes + (4 << 20))?);
        let port = PostPort::open(&guest, 256)?;
        let address = guest.memory().allocate(bytes, PAGE_BYTES)?;
        let region = port.register(address, bytes)?;
        Ok(Self { _guest: guest, port, address, part: Part { region, offset: 0, bytes } })
    }

    /// Sends its memory, if the page has room.
    fn send(&mut self, scene: &Scene<'_>) {
        match self.port.try_launch(&Send::new(PARTNER, self.part).tell_sent()) {
            Some(_) => scene.count(1),
            None => self.port.announce(),
        }
        while self.port.try_event().is_some() {}
    }

    /// Posts its memory as a buffer until the page is full, and drops received messages. Returns the number of posts.
    fn receive(&mut self) -> u64 {
        let mut posted = 0;
        while posted < 64 && self.port.try_launch(&Receive::new(self.part).interrupt()).is_some() {
            posted += 1;
        }
        self.port.announce();
        while self.port.try_event().is_some() {}
        posted
    }
}

fn closed_rooms(scene: &Scene<'_>) -> Result<(), BenchError> {
    while scene.goes_on() {
        let mut program = Program::new(scene, 0, PAGE_BYTES)?;
        // More than its queue has slots for events: some posts are still in the page.
        for _ in 0..8 {
            scene.count(program.receive());
        }
        program.port.close()?;
    }
    Ok(())
}

fn long_messages(scene: &Scene<'_>) -> Result<(), BenchError> {
    let (mut from, mut to) = (Program::new(scene, 0, LONG_BYTES)?, Program::new(scene, 1, LONG_BYTES)?);
    while scene.goes_on() {
        from.send(scene);
        to.receive();
    }
    Ok(())
}

/// Packets fill the card's memory while they wait for buffers, which then come all at once.
fn late_rooms(scene: &Scene<'_>) -> Result<(), BenchError> {
    const ROUNDS: u64 = 1_000;
    let (mut from, mut to) = (Program::new(scene, 0, LONG_BYTES)?, Program::new(scene, 1, LONG_BYTES)?);
    while scene.goes_on() {
        (0..ROUNDS).for_each(|_| from.send(scene));
        to.receive();
    }
    Ok(())
}

/// Loads an assembly repeatedly, while a guest does something else.
fn load(scene: &Scene<'_>, meanwhile: fn(&Scene<'_>) -> Result<(), BenchError>) -> Result<(), BenchError> {
    let mut random = Random::new(1, 0);
    let programs = card_with(FEATURE_POSTS).programs.as_ref();
    let image = programs
        .map_or_else(Vec::new, |programs| (programs.draw)(&mut |below| random.below(below), NODES.into()));
    std::thread::scope(|scope| {
        let guest = scope.spawn(|| meanwhile(scene));
        let mut monitor = MonitorClient::connect(scene.lab)?;
        while scene.goes_on() {
            monitor.ask(&Request::Load { nodes: Vec::new(), image: image.clone() })?;
            scene.count(1);
        }
        guest.join().map_err(|_| BenchError::Attacker { attack: "assemblies loaded" })?
    })
}

fn unwanted(scene: &Scene<'_>) -> Result<(), BenchError> {
    let (mut from, _to) = (Program::new(scene, 0, PAGE_BYTES)?, Program::new(scene, 1, PAGE_BYTES)?);
    while scene.goes_on() {
        from.send(scene);
    }
    Ok(())
}

fn unanswered(scene: &Scene<'_>) -> Result<(), BenchError> {
    let mut from = Program::new(scene, 0, LONG_BYTES)?;
    while scene.goes_on() {
        from.send(scene);
    }
    Ok(())
}

fn closed_regions(scene: &Scene<'_>) -> Result<(), BenchError> {
    const BYTES: u64 = 1 << 20;
    let (mut from, mut to) = (Program::new(scene, 0, BYTES)?, Program::new(scene, 1, BYTES)?);
    while scene.goes_on() {
        from.send(scene);
        to.receive();
        for program in [&mut from, &mut to] {
            program.port.deregister(program.part.region)?;
            program.part.region = program.port.register(program.address, BYTES)?;
        }
    }
    Ok(())
}

fn no_commands(scene: &Scene<'_>) -> Result<(), BenchError> {
    let mut from = Program::new(scene, 0, PAGE_BYTES)?;
    let region = u64::from(from.part.region);
    for number in 0_u64.. {
        if !scene.goes_on() {
            break;
        }
        let words = [
            number,
            region | number << 32,
            number.wrapping_mul(PAGE_BYTES),
            u64::MAX - number,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        match from.port.port_mut().try_command(number as u32, &words) {
            Some(_) => scene.count(1),
            None => from.port.announce(),
        }
        while from.port.try_event().is_some() {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_send_the_maximum_message_of_the_card() {
        let model = crate::bench::card_with(FEATURE_POSTS);
        let longest = model.parameter("max_message_bytes").map(|parameter| parameter.default_value());
        assert_eq!(longest, Some(niclab_model::nic::registry::Value::Number(LONG_BYTES)));
    }
}
