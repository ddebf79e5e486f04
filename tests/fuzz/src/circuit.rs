//! Two cards with the same assembly, which may be any, on a fault-free network: messages in both directions, for a
//! bounded time.

use niclab_abi::FromBytes;
use niclab_abi::control::{OP_PORT_OPEN, Reply, Request};
use niclab_abi::inic::{POST_RECEIVE, POST_SEND, POST_TELL_SENT};
use niclab_abi::region::{OP_REGION_OPEN, RegionOpened};
use niclab_components::check::Checked;
use niclab_model::models::inic::descriptor::{MODEL, config};
use niclab_model::models::inic::{Config, Inic};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::registry::{CardContext, Values};
use niclab_model::nic::{Input, Nic, Output, PageStore};
use niclab_model::platform::profile::Profile;
use niclab_model::time::Time;

use crate::scene::{bytes_of, opening, region_open};

/// The maximum number of events.
const MAX_STEPS: u32 = 2_000;
/// The number of messages in each direction.
pub const MESSAGES: u64 = 6;
const ROOM: u64 = 8_192;

/// A card, and its effects.
struct Side {
    nic: Alone<Inic>,
    region: u64,
}

impl Side {
    fn control(&mut self, operation: u32, body: &[u8]) -> Vec<u8> {
        let mut request = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
        request.extend(body);
        self.nic.handle(Time::ZERO, Input::Control { token: 0, request: &request });
        let mut reply = Vec::new();
        while let Some(output) = self.nic.poll_output() {
            if let Output::Reply { bytes, .. } = output {
                reply = bytes.to_vec();
            }
        }
        reply.split_off(reply.len().min(Reply::BYTES))
    }

    fn launch(&mut self, now: Time, code: u32, [user, target, offset, bytes]: [u64; 4]) {
        if self.nic.accepts_store(0) {
            let words = [user, target | self.region, offset, bytes, 0, 0, 0, 0, 0, 0];
            self.nic.handle(now, Input::PageStore(PageStore { port: 0, code, words }));
        }
    }
}

/// Two cards with this assembly, on links that carry its packets; `None` if no link can.
fn sides(assembly: &Checked) -> Option<[Side; 2]> {
    let side = |node| {
        let context = CardContext { node, nodes: 2, mtu_bytes: 9_000, profile: Profile::default().into() };
        let plain = config(&Values::defaults(&MODEL), context).ok()?;
        let nic = Inic::new(Config { assembly: assembly.clone(), ..plain }).ok()?;
        let mut side = Side { nic: Alone::new(nic), region: 0 };
        side.control(OP_PORT_OPEN, &bytes_of(&opening()));
        let reply = side.control(OP_REGION_OPEN, &region_open());
        side.region = RegionOpened::from_bytes(&reply)?.region.into();
        Some(side)
    };
    Some([side(0)?, side(1)?])
}

/// Runs the assembly. Returns the number of messages that arrived.
pub fn run(assembly: &Checked) -> u64 {
    let Some(mut sides) = sides(assembly) else { return 0 };
    carry(&mut sides);
    sides.iter().map(|side| side.nic.counters().card.messages_received).sum()
}

/// Exchanges messages in both directions until the cards are idle, or the limit is reached.
fn carry(sides: &mut [Side; 2]) {
    let mut now = Time::ZERO;
    for number in 0..MESSAGES {
        for (to, side) in (0..).zip(sides.iter_mut().rev()) {
            side.launch(now, POST_RECEIVE, [number, 0, number * ROOM, ROOM]);
            side.launch(now, POST_SEND | POST_TELL_SENT, [number, to << 32, 0, 4 + number * 1_000]);
        }
    }
    let mut flying = std::collections::VecDeque::new();
    for _ in 0..MAX_STEPS {
        for (node, side) in sides.iter_mut().enumerate() {
            while let Some(output) = side.nic.poll_output() {
                match output {
                    Output::DmaRead { token, ranges, mut into, .. } => {
                        let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
                        into.resize(into.len() + bytes as usize, 7);
                        side.nic.handle(now, Input::DmaData { token, bytes: into, is_whole: true });
                    }
                    Output::Frame { at, frame, message, .. } => {
                        flying.push_back((at, 1 - node, frame, message))
                    }
                    _ => {}
                }
            }
        }
        if let Some((at, to, frame, message)) = flying.pop_front() {
            now = now.max(at);
            if let Some(side) = sides.get_mut(to) {
                side.nic.handle(now, Input::Frame { frame: &frame, head: at, message });
            }
            continue;
        }
        let due =
            sides.iter().enumerate().filter_map(|(node, side)| Some((side.nic.poll_timeout()?, node))).min();
        let Some((due, node)) = due else { return };
        now = now.max(due);
        if let Some(side) = sides.get_mut(node) {
            side.nic.handle(now, Input::Timeout);
        }
    }
}
