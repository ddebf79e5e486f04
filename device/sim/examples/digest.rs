//! Prints one line for each seed of a swarm: its configuration, its number of events, and a digest of its report. If
//! two commits print the same lines, they simulate the same, byte by byte:
//!
//! ```text
//! cargo run --release --example digest -- 300 > after
//! cargo run --release --example digest -- 300 NAME > after
//! ```

use std::hash::{DefaultHasher, Hash, Hasher};

use niclab_sim::run::{Options, run};
use niclab_sim::swarm::{configuration_of, recording};
use niclab_spec::NicModel;

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100);
    let model = std::env::args().nth(2);
    let model = model.map(|name| NicModel::named(&name).expect("the name of a NIC model"));
    for seed in 1..=count {
        let config = configuration_of(seed, model);
        let recording = recording(&config);
        let options = Options { heals: true, recording: recording.as_deref(), ..Options::default() };
        let digest = |text: &str| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        };
        let nodes = config.nodes.len();
        let (kind, model) = (config.workload.kind.name(), config.nodes[0].nic.model.name);
        match run(&config, &options) {
            Ok(outcome) => {
                let report = digest(&outcome.report.to_json());
                println!("{seed} {model} {kind} {nodes} nodes, {} events: {report:016x}", outcome.events);
            }
            Err(error) => println!("{seed} {model} {kind} {nodes} nodes: {error}"),
        }
    }
}
