//! Timelines in the JSON format of Chrome's tracing, which <https://ui.perfetto.dev> opens.
//!
//! A node is a process, and each of its resources is a thread of it. The network is a separate process. So is each
//! other bus master of a node that has its own ledger: the Ethernet function and the peripherals.
//!
//! A transfer is a slice as long as it keeps its resource busy, so slices of one track never overlap. The slice's
//! arguments have the end of the transfer with its latency, its price and its waiting time. A flow connects the slices
//! of one message in the order of model time.
//!
//! The format: "Trace Event Format", sections "Complete Events" and "Flow Events". Its times are microseconds, written
//! with six decimals: exact to the picosecond.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use niclab_model::nic::Observed;
use niclab_model::platform::ledger::{Ledger, ResourceName, StageRecord};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Span, Time};
use serde_json::Value;

/// Maximum number of open flows. One more message has the oldest flow written as far as it is known.
const MAX_OPEN_FLOWS: usize = 16 * 1024;
/// Maximum number of slices of a flow; further slices of the message are not connected.
const MAX_FLOW_SLICES: usize = 256;

/// The process of the network. Nodes follow it.
const NETWORK: u32 = 0;

/// Owner of the resource that a stage used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Links and switch.
    Network,
    /// A node, by rank.
    Node(u16),
    /// The Ethernet function of a node, by rank.
    Ethernet(u16),
    /// Another card on a node's bus.
    Peripheral {
        /// The node, by rank.
        node: u16,
        /// Index among the node's peripherals.
        place: u16,
        /// Its name.
        name: &'static str,
    },
}

impl Owner {
    /// Visits the ledgers of a node's card and of its peripherals.
    pub fn visit<N: Observed + ?Sized>(node: u16, nic: &mut N, mut visit: impl FnMut(Self, &mut Ledger)) {
        visit(Self::Node(node), nic.ledger_mut());
        let names: Vec<&'static str> = nic.peripherals().into_iter().map(|(name, _)| name).collect();
        for ((place, name), ledger) in (0..).zip(names).zip(nic.peripheral_ledgers_mut()) {
            visit(Self::Peripheral { node, place, name }, ledger);
        }
    }
}

/// A message: its sending node, whether its sender is the Ethernet function, and its number there.
type Key = (u16, bool, u64);

/// The start of a slice that a flow connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Touch {
    at: Time,
    /// Orders slices that begin at the same time: the one that ends first comes first.
    end: Time,
    process: u32,
    thread: u32,
}

/// A timeline that is being written.
pub struct Timeline<W: Write> {
    out: W,
    names: Vec<String>,
    /// Named processes of Ethernet functions and peripherals.
    others: BTreeMap<Owner, u32>,
    /// Number of peripherals among them.
    peripherals: u32,
    /// Named threads, by process and place.
    threads: BTreeMap<(u32, ResourceName), u32>,
    flows: BTreeMap<Key, Vec<Touch>>,
    /// Open flows, oldest first.
    order: VecDeque<Key>,
    is_first: bool,
    stages: u64,
    lost: u64,
}

impl<W: Write> Timeline<W> {
    /// Begins a timeline of nodes with these names, by rank.
    ///
    /// # Errors Errors of `out`.
    pub fn new(mut out: W, names: &[String]) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut timeline = Self {
            out,
            names: names.to_vec(),
            others: BTreeMap::new(),
            peripherals: 0,
            threads: BTreeMap::new(),
            flows: BTreeMap::new(),
            order: VecDeque::new(),
            is_first: true,
            stages: 0,
            lost: 0,
        };
        timeline.name_process(NETWORK, "network")?;
        for (process, name) in (NETWORK + 1..).zip(names) {
            timeline.name_process(process, name)?;
        }
        Ok(timeline)
    }

    /// Adds a stage.
    ///
    /// # Errors Errors of the writer.
    pub fn add(&mut self, owner: Owner, stage: &StageRecord) -> io::Result<()> {
        let process = self.process(owner)?;
        let thread = self.thread(process, stage.resource)?;
        let line = stage.line();
        let (name, ts) = (stage.transaction.name(), Us(stage.start.as_ps()));
        let duration = Us(stage.released.since(stage.start).as_ps());
        self.separate()?;
        write!(
            self.out,
            r#"{{"ph":"X","cat":"stage","name":"{name}","pid":{process},"tid":{thread},"ts":{ts},"dur":{duration},"#
        )?;
        write!(
            self.out,
            r#""args":{{"count":{},"bytes":{},"model_price_ps":{},"model_waited_ps":{},"model_end_ps":{}"#,
            line.count,
            line.bytes,
            line.price_ps,
            line.waited_ps,
            stage.end.as_ps()
        )?;
        if let Some(message) = &stage.message {
            let from = Value::from(self.name(message.node));
            write!(self.out, r#","from":{from},"message":{}"#, message.number)?;
            match message.is_ethernet() {
                true => write!(self.out, r#","function":"ethernet""#)?,
                false => write!(self.out, r#","port":{}"#, message.port)?,
            }
            write!(self.out, r#","message_bytes":{}"#, message.bytes)?;
        }
        self.out.write_all(b"}}")?;
        self.stages += 1;
        match &stage.message {
            Some(message) => self.touch(message, Touch { at: stage.start, end: stage.end, process, thread }),
            None => Ok(()),
        }
    }

    /// Counts stages for which a ledger had no room; the file has their number.
    pub const fn add_lost(&mut self, stages: u64) {
        self.lost = self.lost.saturating_add(stages);
    }

    /// Flushes the writer.
    ///
    /// # Errors Errors of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the open flows and the end of the file, flushes the writer and returns it.
    ///
    /// # Errors Errors of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        while let Some(key) = self.order.pop_front() {
            self.close(key)?;
        }
        write!(
            self.out,
            "\n],\"otherData\":{{\"clock\":\"model time\",\"unit\":\"us, exact to the ps\",\"stages\":{},\
             \"stages_lost\":{},\"niclab_version\":\"{}\"}}}}\n",
            self.stages,
            self.lost,
            env!("CARGO_PKG_VERSION")
        )?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn name(&self, node: u16) -> String {
        self.names.get(usize::from(node)).cloned().unwrap_or_else(|| format!("node {node}"))
    }

    /// The process of an owner. The nodes' processes come first, then the Ethernet functions', then the peripherals' in
    /// the order of their first use. A process of the latter two kinds is named at its first use.
    fn process(&mut self, owner: Owner) -> io::Result<u32> {
        if let Some(process) = self.others.get(&owner) {
            return Ok(*process);
        }
        let nodes = self.names.len() as u32;
        let (process, name) = match owner {
            Owner::Network => return Ok(NETWORK),
            Owner::Node(node) => return Ok(NETWORK + 1 + u32::from(node)),
            Owner::Ethernet(node) => {
                (NETWORK + 1 + nodes + u32::from(node), format!("{}, Ethernet function", self.name(node)))
            }
            Owner::Peripheral { node, name, .. } => {
                self.peripherals += 1;
                (NETWORK + 2 * nodes + self.peripherals, format!("{} {name}", self.name(node)))
            }
        };
        self.others.insert(owner, process);
        self.name_process(process, &name)?;
        Ok(process)
    }

    fn separate(&mut self) -> io::Result<()> {
        let separator: &[u8] = if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" };
        self.out.write_all(separator)
    }

    fn name_process(&mut self, process: u32, name: &str) -> io::Result<()> {
        self.separate()?;
        let name = Value::from(format!("{name} (model time)"));
        write!(self.out, r#"{{"ph":"M","name":"process_name","pid":{process},"args":{{"name":{name}}}}}"#)
    }

    /// The thread of a resource, named at its first use.
    fn thread(&mut self, process: u32, resource: ResourceName) -> io::Result<u32> {
        if let Some(thread) = self.threads.get(&(process, resource)) {
            return Ok(*thread);
        }
        let thread = self.threads.len() as u32 + 1;
        self.threads.insert((process, resource), thread);
        let name = Value::from(self.resource_name(resource));
        self.separate()?;
        write!(
            self.out,
            r#"{{"ph":"M","name":"thread_name","pid":{process},"tid":{thread},"args":{{"name":{name}}}}}"#
        )?;
        Ok(thread)
    }

    fn resource_name(&self, resource: ResourceName) -> String {
        match resource {
            ResourceName::Host => "host processor".to_owned(),
            ResourceName::BusInward => "bus to the NIC".to_owned(),
            ResourceName::BusOutward => "bus to the host".to_owned(),
            ResourceName::InterruptLine => "interrupt line".to_owned(),
            ResourceName::LocalBus => "local bus".to_owned(),
            ResourceName::Machine(name) => name.to_owned(),
            ResourceName::LinkToSwitch(node) => format!("link {} to switch", self.name(node)),
            ResourceName::LinkToNode(node) => format!("link switch to {}", self.name(node)),
            ResourceName::Switch => "switch".to_owned(),
        }
    }

    fn touch(&mut self, message: &TraceTag, touch: Touch) -> io::Result<()> {
        let key = (message.node, message.is_ethernet(), message.number);
        if let Some(touches) = self.flows.get_mut(&key) {
            // The bound on memory for a message of many transfers: a flow connects only its first slices.
            if touches.len() < MAX_FLOW_SLICES {
                touches.push(touch);
            }
            return Ok(());
        }
        if self.flows.len() >= MAX_OPEN_FLOWS
            && let Some(oldest) = self.order.pop_front()
        {
            self.close(oldest)?;
        }
        self.flows.insert(key, vec![touch]);
        self.order.push_back(key);
        Ok(())
    }

    /// Writes a flow: start, steps and finish, each bound to the slice that begins at its time.
    fn close(&mut self, key: Key) -> io::Result<()> {
        let mut touches = self.flows.remove(&key).unwrap_or_default();
        touches.sort_unstable();
        let (node, is_ethernet, number) = key;
        let function = if is_ethernet { "e" } else { "" };
        let last = touches.len().saturating_sub(1);
        if last == 0 {
            return Ok(());
        }
        for (place, touch) in touches.iter().enumerate() {
            let phase = match place {
                0 => r#""s""#,
                place if place == last => r#""f","bp":"e""#,
                _ => r#""t""#,
            };
            self.separate()?;
            write!(
                self.out,
                r#"{{"ph":{phase},"cat":"message","name":"message","id":"{node}.{function}{number}","#
            )?;
            write!(
                self.out,
                r#""pid":{},"tid":{},"ts":{}}}"#,
                touch.process,
                touch.thread,
                Us(touch.at.as_ps())
            )?;
        }
        Ok(())
    }
}

/// Picoseconds, displayed as microseconds with six decimals.
struct Us(u64);

impl std::fmt::Display for Us {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per_us = Span::from_ns(1_000).as_ps();
        write!(f, "{}.{:06}", self.0 / per_us, self.0 % per_us)
    }
}

#[cfg(test)]
mod tests {
    use niclab_model::platform::ledger::{Cost, Resource, Transaction};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    /// Picoseconds of a decimal time in the text.
    fn ps(text: &str, key: &str) -> u64 {
        let rest = text.split_once(&format!("\"{key}\":")).unwrap().1;
        let (us, rest) = rest.split_once('.').unwrap();
        us.parse::<u64>().unwrap() * 1_000_000 + rest[..6].parse::<u64>().unwrap()
    }

    fn message(number: u64) -> TraceTag {
        TraceTag { node: 0, port: 1, number, launched: Time::ZERO, bytes: 8 }
    }

    fn draw(ledger: &mut Ledger) -> String {
        let mut timeline = Timeline::new(Vec::new(), &["a\"b".to_owned()]).unwrap();
        let (stages, lost) = ledger.take_stages();
        stages.iter().for_each(|stage| timeline.add(Owner::Node(0), stage).unwrap());
        timeline.add_lost(lost);
        String::from_utf8(timeline.finish().unwrap()).unwrap()
    }

    #[test]
    fn times_are_exact_to_the_picosecond() {
        assert_eq!(Us(18_446_744_073_709_551_615).to_string(), "18446744073709.551615");
        assert_eq!(Us(7).to_string(), "0.000007");
    }

    #[test]
    fn each_bus_master_has_its_own_tracks_and_message_numbers() {
        let mut timeline = Timeline::new(Vec::new(), &["a".to_owned(), "b".to_owned()]).unwrap();
        let mut ledger = Ledger::default();
        ledger.record_stages(10);
        let mut host = Resource::new(ResourceName::Host);
        for port in [1, TraceTag::ETHERNET] {
            ledger.attribute(Some(TraceTag { port, ..message(7) }));
            for _ in 0..2 {
                ledger.charge(Transaction::HostSend, &mut host, Time::ZERO, Cost::once(0, Span::from_ps(1)));
            }
        }
        let stages = ledger.take_stages().0;
        let card = |node, place| Owner::Peripheral { node, place, name: "io-card" };
        let owners = [Owner::Node(0), Owner::Node(0), Owner::Ethernet(0), Owner::Ethernet(0)];
        let peripherals = [card(1, 0), card(0, 1), card(0, 0), card(0, 1)];
        let owners =
            owners.into_iter().zip(&stages).chain(peripherals.into_iter().zip(stages.iter().take(2).cycle()));
        owners.for_each(|(owner, stage)| timeline.add(owner, stage).unwrap());
        let all: Value = serde_json::from_slice(&timeline.finish().unwrap()).unwrap();
        let events = all["traceEvents"].as_array().unwrap();
        let of = |key: &str, phase: &str| -> BTreeSet<String> {
            events.iter().filter(|event| event["ph"] == phase).map(|event| event[key].to_string()).collect()
        };
        assert_eq!(of("pid", "X"), ["1", "3", "5", "6", "7"].map(str::to_owned).into());
        assert_eq!(of("tid", "X").len(), 5);
        let names = events.iter().filter(|event| event["name"] == "process_name");
        let names: Vec<_> = names.map(|event| event["args"]["name"].as_str().unwrap()).collect();
        let expected = ["network", "a", "b", "a, Ethernet function", "b io-card", "a io-card", "a io-card"];
        assert_eq!(names, expected.map(|name| format!("{name} (model time)")));
        assert_eq!(of("id", "f"), ["\"0.7\"".to_owned(), "\"0.e7\"".to_owned()].into());
        assert_eq!(events.iter().filter(|event| event["args"]["function"] == "ethernet").count(), 2);
    }

    #[test]
    fn the_file_counts_the_stages_that_the_ledger_lost() {
        let mut ledger = Ledger::default();
        ledger.record_stages(1);
        let mut host = Resource::new(ResourceName::Host);
        for _ in 0..3 {
            ledger.charge(Transaction::HostSend, &mut host, Time::ZERO, Cost::once(0, Span::from_ps(1)));
        }
        let all: Value = serde_json::from_str(&draw(&mut ledger)).unwrap();
        assert_eq!((&all["otherData"]["stages"], &all["otherData"]["stages_lost"]), (&1.into(), &2.into()));
        assert_eq!(all["otherData"]["clock"], "model time");
    }

    proptest! {
        #[test]
        fn events_match_the_ledger_without_overlap_and_flows_connect(
            transfers in prop::collection::vec(
                (0..Transaction::ALL.len(), 0..3_usize, 0..9_000_000_u64, 0..9_000_u64, 0..900_u64, 0..5_u64), 0..120),
        ) {
            let mut ledger = Ledger::default();
            ledger.record_stages(1000);
            let places = [ResourceName::Host, ResourceName::BusInward, ResourceName::Machine("RX")];
            let mut resources = places.map(Resource::new);
            let mut stages_of = BTreeMap::<u64, u64>::new();
            for (kind, place, ready, occupancy, latency, number) in transfers {
                ledger.attribute((number > 0).then(|| message(number)));
                *stages_of.entry(number).or_default() += u64::from(number > 0);
                let (occupancy, latency) = (Span::from_ps(occupancy), Span::from_ps(latency));
                let cost = Cost { count: 2, bytes: 8, occupancy, latency };
                ledger.charge(Transaction::ALL[kind], &mut resources[place], Time::from_ps(ready), cost);
            }
            let text = draw(&mut ledger);
            let all: Value = serde_json::from_str(&text).unwrap();
            let mut sums = BTreeMap::<String, [u64; 4]>::new();
            let mut tracks = BTreeMap::<u64, Vec<(u64, u64)>>::new();
            let mut flows = BTreeMap::<String, Vec<(u64, String)>>::new();
            let mut starts = std::collections::BTreeSet::new();
            let lines: Vec<&str> = text.lines().filter(|line| line.contains("\"ph\"")).collect();
            for (event, line) in all["traceEvents"].as_array().unwrap().iter().zip(lines) {
                let thread = event["tid"].as_u64().unwrap_or_default();
                match event["ph"].as_str().unwrap() {
                    "M" => {}
                    "X" => {
                        let sum = sums.entry(event["name"].as_str().unwrap().to_owned()).or_default();
                        let keys = ["count", "bytes", "model_price_ps", "model_waited_ps"];
                        for (sum, key) in sum.iter_mut().zip(keys) {
                            *sum += event["args"][key].as_u64().unwrap();
                        }
                        let (start, length) = (ps(line, "ts"), ps(line, "dur"));
                        starts.insert((thread, start));
                        tracks.entry(thread).or_default().push((start, start + length));
                    }
                    phase => {
                        let at = ps(line, "ts");
                        prop_assert!(starts.contains(&(thread, at)), "a flow event is bound to no slice");
                        let id = event["id"].as_str().unwrap().to_owned();
                        flows.entry(id).or_default().push((at, phase.to_owned()));
                    }
                }
            }
            for (transaction, line) in ledger.lines() {
                let sum = sums.get(transaction.name()).copied().unwrap_or_default();
                prop_assert_eq!(sum, [line.count, line.bytes, line.price_ps, line.waited_ps]);
            }
            for track in tracks.values_mut() {
                track.sort_unstable();
                prop_assert!(track.windows(2).all(|pair| pair[0].1 <= pair[1].0), "slices of a track overlap");
            }
            for (number, stages) in stages_of.into_iter().filter(|(_, stages)| *stages > 1) {
                let flow = &flows[&format!("0.{number}")];
                prop_assert_eq!(flow.len() as u64, stages);
                prop_assert!(flow.is_sorted_by_key(|(at, _)| *at));
                prop_assert_eq!((&*flow[0].1, &*flow[flow.len() - 1].1), ("s", "f"));
            }
        }
    }
}
