//! Measures the wall time of one message through the complete ULTRA model, on one core.
//!
//!     cargo run --release -p niclab-model --example ultra_rate -- [MESSAGES]

use std::error::Error;
use std::time::Instant;

use niclab_abi::control::{Authorize, OP_AUTHORIZE, OP_PORT_OPEN, OP_ROUTE, PortOpen, Request, Route};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::fabric::link::LinkConfig;
use niclab_model::fabric::{Deliveries, Fabric, FabricConfig, Forwarding};
use niclab_model::models::ultra::config::ConfigError;
use niclab_model::models::ultra::{Config, Ultra};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::{Input, Nic, Output, PageStore, Register};
use niclab_model::platform::profile::Profile;
use niclab_model::time::{Passage, Span};

const SLICES: u32 = 256;
const MESSAGES: u64 = 5_000_000;
/// Page-offset codes: a packet with the tag alone, and one with a complete cache line.
const CODES: [(&str, u32); 2] = [("16 bytes", 8 << 3), ("80 bytes", 0)];

/// Two cards and the network between them.
struct Simulation {
    nics: [Alone<Ultra>; 2],
    fabric: Fabric,
    slices_written: u64,
}

impl Simulation {
    fn new() -> Result<Self, Box<dyn Error>> {
        let profile = Profile::ultra_200mhz_htx();
        let config = FabricConfig {
            links: vec![LinkConfig::ethernet(10_000_000_000); 2],
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::from_ps(profile.network.switch_fall_through_ps),
            seed: 1,
        };
        let card =
            |node| Ok::<_, ConfigError>(Alone::new(Ultra::new(Config::new(node, 2, profile.clone()))?));
        Ok(Self { nics: [card(0)?, card(1)?], fabric: Fabric::new(&config)?, slices_written: 0 })
    }

    /// Applies all outputs of a card, and everything that follows.
    fn carry(&mut self, from: usize) {
        while let Some(output) = self.nics[from].poll_output() {
            match &output {
                Output::Frame { at, tail, frame, message } => {
                    let mut deliveries = Deliveries::new();
                    let ready = Passage { head: *at, tail: *tail };
                    self.fabric.forward(ready, from as u16, frame, *message, &mut deliveries);
                    for delivery in &deliveries {
                        let to = usize::from(delivery.to);
                        self.nics[to].handle(
                            delivery.at,
                            Input::Frame { head: delivery.head, frame, message: *message },
                        );
                        self.carry(to);
                    }
                }
                Output::DmaWrite { .. } if from == 1 => self.slices_written += 1,
                _ => {}
            }
        }
    }

    fn control(&mut self, node: usize, operation: u32, body: &impl ToBytes) {
        let mut request = vec![0; Request::BYTES + size_of_val(body)];
        let (head, rest) = request.split_at_mut(Request::BYTES);
        Request { operation, body_bytes: rest.len() as u32 }.to_bytes(head);
        body.to_bytes(rest);
        let now = self.nics[node].host_clock();
        self.nics[node].handle(now, Input::Control { token: 0, request: &request });
        self.carry(node);
    }

    fn connect(&mut self) {
        for node in 0..2 {
            let (slices_address, status_address) = (0x1000, 0x100);
            let open = PortOpen { slices: SLICES, slices_address, status_address, ..PortOpen::default() };
            self.control(node, OP_PORT_OPEN, &open);
        }
        self.control(0, OP_ROUTE, &Route { node: 1, ..Route::default() });
        self.control(1, OP_AUTHORIZE, &Authorize { credits: SLICES, ..Authorize::default() });
    }

    /// Sends one message. The receiver releases a quarter of its slices at a time.
    fn send(&mut self, code: u32) {
        let store = PageStore { port: 0, code, words: [self.slices_written; 10] };
        let now = self.nics[0].host_clock();
        self.nics[0].handle(now, Input::PageStore(store));
        self.carry(0);
        if self.slices_written.is_multiple_of(u64::from(SLICES / 4)) {
            let register = Register::Released(self.slices_written);
            let now = self.nics[1].host_clock();
            self.nics[1].handle(now, Input::Register { port: 0, register });
            self.carry(1);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let messages = std::env::args().nth(1).map_or(Ok(MESSAGES), |count| count.parse())?;
    println!("{:>10} {:>12} {:>18} {:>22}", "packet", "messages", "wall ns/message", "model MB/s");
    for (name, code) in CODES {
        let mut simulation = Simulation::new()?;
        simulation.connect();
        let begin = Instant::now();
        for _ in 0..messages {
            simulation.send(code);
        }
        let wall_ns = begin.elapsed().as_nanos() as f64 / messages as f64;
        let counters = simulation.nics[1].counters();
        if counters.card.messages_received != messages {
            return Err(format!("{} of {messages} messages arrived", counters.card.messages_received).into());
        }
        let model_ps = simulation.nics[1].host_clock().as_ps() as f64;
        let megabytes_per_s = counters.card.bytes_received as f64 * 1e6 / model_ps;
        println!("{name:>10} {messages:>12} {wall_ns:>18.1} {megabytes_per_s:>22.1}");
    }
    Ok(())
}
