//! The ledger in random runs of ULTRA cards and conventional NICs: its sums, its recorded stages, and their messages.

use std::collections::BTreeMap;

use niclab_model::conventional::Conventional;
use niclab_model::fabric::faults::Faults;
use niclab_model::models::ultra::config::FlowControl;
use niclab_model::nic::Observed;
use niclab_model::platform::histogram::Histogram;
use niclab_model::platform::ledger::{Ledger, Line, StageRecord, Transaction};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::random::Chance;
use niclab_model::time::{Span, Time};
use proptest::prelude::*;

use crate::support::simulation::{End, Rules, Simulation};

const STEPS: usize = 800;
const KEEP_ALL: usize = usize::MAX;

fn add(sum: &mut Line, line: &Line) {
    sum.count += line.count;
    sum.bytes += line.bytes;
    sum.price_ps += line.price_ps;
    sum.waited_ps += line.waited_ps;
}

/// The sums of these stages, as lines.
fn lines_of<'a>(stages: impl IntoIterator<Item = &'a StageRecord>) -> Vec<(Transaction, Line)> {
    let mut lines = [Line::default(); Transaction::ALL.len()];
    stages.into_iter().for_each(|stage| add(&mut lines[stage.transaction as usize], &stage.line()));
    Transaction::ALL.into_iter().zip(lines).collect()
}

/// Three nodes with a ring of connections. All ledgers record their stages.
fn simulation(seed: u64, faults: Faults) -> Simulation {
    let rules = Rules { nodes: 3, slices: 16, flow_control: FlowControl::Credit, faults, is_restless: false };
    let mut simulation = Simulation::new(seed, rules);
    for ledger in ledgers(&mut simulation) {
        ledger.record_stages(KEEP_ALL);
    }
    let ends: Vec<End> = (0..6).map(|i| simulation.open(i % 3).unwrap()).collect();
    for (i, &from) in ends.iter().enumerate() {
        let to = ends[(i + 1) % ends.len()];
        assert!(simulation.route(from, to) && simulation.authorize(to, from, 2));
    }
    simulation
}

fn ledgers(simulation: &mut Simulation) -> Vec<&mut Ledger> {
    let nodes = simulation.nodes.iter_mut().map(|node| node.nic.ledger_mut());
    nodes.chain(simulation.fabric.ledgers_mut()).collect()
}

fn run(simulation: &mut Simulation) {
    (0..STEPS).for_each(|_| simulation.step());
    simulation.settle();
}

fn trouble() -> Faults {
    let some = Chance::from_probability(0.1);
    Faults { loss: some, duplicate: some, corrupt: some, reorder: some, ..Faults::NONE }
}

fn faults() -> impl Strategy<Value = Faults> {
    prop_oneof![Just(Faults::NONE), Just(trouble())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stages_add_up_to_the_lines_and_lines_to_the_totals(seed: u64, faults in faults()) {
        let mut simulation = simulation(seed, faults);
        run(&mut simulation);
        let mut cluster = Ledger::default();
        let mut all = Vec::new();
        for ledger in ledgers(&mut simulation) {
            let (stages, lost) = ledger.take_stages();
            prop_assert_eq!(lost, 0);
            prop_assert_eq!(lines_of(&stages), ledger.lines().collect::<Vec<_>>());
            let mut total = Line::default();
            ledger.lines().for_each(|(_, line)| add(&mut total, &line));
            prop_assert_eq!(ledger.total(), total);
            cluster.add(ledger);
            all.extend(stages);
        }
        let lines: Vec<_> = cluster.lines().collect();
        prop_assert_eq!(lines_of(&all), lines, "the cluster is the sum of nodes and fabric");
        let is_in_order = |stage: &StageRecord| {
            stage.ready <= stage.start && stage.start <= stage.released && stage.released <= stage.end
        };
        prop_assert!(all.iter().all(is_in_order));
        prop_assert!(all.iter().any(|stage| stage.start > stage.ready), "at least one stage had to wait");
    }

    #[test]
    fn a_resource_handles_one_transaction_at_a_time(seed: u64, faults in faults()) {
        let mut simulation = simulation(seed, faults);
        run(&mut simulation);
        for ledger in ledgers(&mut simulation) {
            let mut free: BTreeMap<_, Time> = BTreeMap::new();
            for stage in ledger.take_stages().0 {
                // An interrupt line and the switch serve any number at once.
                let is_exclusive =
                    !matches!(stage.transaction, Transaction::Interrupt | Transaction::SwitchFallThrough);
                let free = free.entry((is_exclusive, stage.resource)).or_default();
                prop_assert!(!is_exclusive || stage.start >= *free, "{:?}", stage);
                *free = stage.released;
            }
        }
    }

    #[test]
    fn stages_cover_a_message_from_post_to_receipt(seed: u64) {
        let mut simulation = simulation(seed, Faults::NONE);
        run(&mut simulation);
        let mut messages: BTreeMap<TraceTag, Vec<StageRecord>> = BTreeMap::new();
        for ledger in ledgers(&mut simulation) {
            for stage in ledger.take_stages().0 {
                if let Some(message) = stage.message {
                    messages.entry(message).or_default().push(stage);
                }
            }
        }
        let mut latency = Histogram::default();
        for (message, stages) in &messages {
            let end = stages.iter().find(|stage| stage.transaction == Transaction::HostReceive).unwrap().end;
            latency.enter(end.since(message.launched).as_ps());
            prop_assert_eq!(stages.iter().map(|stage| stage.start).min(), Some(message.launched));
            prop_assert!(stages.iter().all(|stage| stage.end <= end), "{:?}", stages);
            for (transaction, count) in [
                (Transaction::HostSend, 1),
                (Transaction::PioWrite, 1),
                (Transaction::NiCycles, 4),
                (Transaction::Serialization, 2),
                (Transaction::SwitchFallThrough, 1),
                (Transaction::DmaWrite, 1),
                (Transaction::HostReceive, 1),
            ] {
                let of_kind = stages.iter().filter(|stage| stage.transaction == transaction).count();
                prop_assert_eq!(of_kind, count, "{:?} of {:?}", transaction, message);
            }
        }
        let mut entered = Histogram::default();
        ledgers(&mut simulation).iter().for_each(|ledger| entered.merge(ledger.latency()));
        prop_assert_eq!(entered, latency);
        prop_assert_eq!(simulation.totals().1, messages.len());
    }

    #[test]
    fn a_disabled_ledger_records_nothing(seed: u64) {
        let mut simulation = simulation(seed, Faults::NONE);
        let before: Vec<Ledger> = ledgers(&mut simulation)
            .into_iter()
            .map(|ledger| {
                ledger.set_on(false);
                ledger.clone()
            })
            .collect();
        run(&mut simulation);
        prop_assert!(simulation.totals().1 > 0, "messages arrive nevertheless");
        for (ledger, before) in ledgers(&mut simulation).into_iter().zip(&before) {
            prop_assert_eq!((ledger.total(), ledger.latency()), (before.total(), before.latency()));
        }
    }

    #[test]
    fn every_transaction_of_a_conventional_nic_is_priced(
        frames in prop::collection::vec((0..3_u8, 0..10_000_u64, 60..9_000_u64, any::<bool>()), 1..200),
    ) {
        let (mut nic, mut node) = (Conventional::new(Profile::ultra_200mhz_htx()), NodeBus::default());
        nic.ledger_mut().record_stages(KEEP_ALL);
        let mut now = Time::ZERO;
        let (mut sent, mut received, mut rung, mut interrupts) = (0, 0, 0, 0);
        for (what, wait_ns, bytes, has_doorbell) in frames {
            now += Span::from_ns(wait_ns);
            let clock = node.clock();
            match what {
                0 => {
                    prop_assert!(nic.transmit(now, bytes, has_doorbell, &mut node) > now);
                    sent += bytes;
                    rung += u64::from(has_doorbell);
                }
                1 => {
                    prop_assert!(nic.receive(now, bytes, &mut node) > now);
                    received += bytes;
                }
                _ => {
                    prop_assert!(nic.interrupt(now, &mut node) >= now);
                    interrupts += 1;
                }
            }
            prop_assert!(node.clock() > clock);
        }
        let ledger = nic.ledger_mut();
        let (stages, _) = ledger.take_stages();
        prop_assert_eq!(lines_of(&stages), ledger.lines().collect::<Vec<_>>());
        let line = |transaction| ledger.line(transaction);
        prop_assert_eq!((line(Transaction::DmaRead).bytes, line(Transaction::DmaWrite).bytes), (sent, received));
        prop_assert_eq!(line(Transaction::HostCopy).bytes, sent + received, "one copy each");
        prop_assert_eq!(line(Transaction::DescriptorFetch).count, line(Transaction::DescriptorWriteBack).count);
        prop_assert_eq!((line(Transaction::Doorbell).count, line(Transaction::Interrupt).count), (rung, interrupts));
    }
}

#[test]
fn stages_beyond_the_record_limit_are_counted() {
    let (mut nic, mut node) = (Conventional::new(Profile::ultra_200mhz_htx()), NodeBus::default());
    nic.transmit(Time::ZERO, 64, true, &mut node);
    assert_eq!(nic.ledger_mut().take_stages(), (Vec::new(), 0), "off at first");
    nic.ledger_mut().record_stages(4);
    nic.transmit(Time::ZERO, 64, true, &mut node);
    let (stages, lost) = nic.ledger_mut().take_stages();
    assert_eq!((stages.len(), lost), (4, 2));
    nic.ledger_mut().record_stages(0);
    nic.transmit(Time::ZERO, 64, true, &mut node);
    assert_eq!(nic.ledger_mut().take_stages(), (Vec::new(), 0));
}

#[test]
fn the_manual_names_every_kind() {
    let manual = include_str!("../../../../docs/use/LEDGER.md");
    for transaction in Transaction::ALL {
        let row = format!("\n| `{}` |", transaction.name());
        assert_eq!(manual.matches(&row).count(), 1, "docs/use/LEDGER.md must have one row for {row:?}");
    }
}
