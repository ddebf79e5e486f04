//! Prints the report of one seed of a swarm as JSON, to see the counters of a failed run.
//!
//! ```text
//! cargo run --release --example report -p niclab-sim -- 21 MODEL
//! ```

use niclab_sim::run::{Options, run};
use niclab_sim::swarm::{configuration_of, recording};
use niclab_spec::NicModel;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seed = arguments.next().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let config = configuration_of(seed, arguments.next().and_then(|name| NicModel::named(&name)));
    let recording = recording(&config);
    eprintln!("{:?}", config.nodes.first().map(|node| (&node.nic, &node.link)));
    match run(&config, &Options { heals: true, recording: recording.as_deref(), ..Options::default() }) {
        Ok(outcome) => println!("{}", outcome.report.to_json()),
        Err(error) => eprintln!("{error}"),
    }
}
