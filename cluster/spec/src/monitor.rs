//! How the launcher asks a running daemon: one JSON [`Request`] a line over a unix socket, one [`Answer`] a line back.
//!
//! A connection may ask any number of times. Counts are exact integers. Names end in the unit; what is not a count
//! says which clock it is of, as in a report.

mod difference;

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    DeviceFaults, DeviceFaultsChange, Faults, FaultsChange, RuleChecking,
    report::{BrokenRule, FabricFigures, ModelFigures, NodeFigures},
    watch::{WatchRequest, WatchSummary},
};

/// The version of [`DaemonStats`] and [`DaemonHealth`] that this build writes and reads.
pub const STATS_VERSION: u32 = 2;

/// The longest request line that the daemon reads, in bytes; it hangs up on a longer one.
pub const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// How long a request waits for the world's lock before it is answered by [`Answer::Stuck`]. Whoever holds the lock
/// gives it back within milliseconds.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long [`Request::AwaitBrokenRules`] waits.
pub const RULES_WAIT: Duration = Duration::from_secs(10);

/// One question, or one change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "query", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Are guests served? Answered by [`Answer::Heartbeat`] once the world's lock was had, else by [`Answer::Stuck`].
    Heartbeat,
    /// All counters. Answered by [`Answer::Stats`].
    Stats,
    /// All counters, and from now on latencies are counted anew, so that a later [`Request::Stats`] tells the latency
    /// of what happened in between. The clocks of all hosts are set to the same instant of model time, at which nothing
    /// is busy. Answered by [`Answer::Stats`].
    BeginMeasurement,
    /// What is connected. Answered by [`Answer::Health`].
    Health,
    /// Watch the cluster from now on, until the asking end is shut down for writing. Answered by [`Answer::Watching`];
    /// the connection then carries what [`crate::watch`] says and takes no further request.
    Watch(WatchRequest),
    /// What goes wrong on all links and in all NICs. Answered by [`Answer::Faults`].
    Faults,
    /// Change what goes wrong on one node's link from now on. Answered by [`Answer::Faults`], after the change.
    ChangeFaults {
        /// The node, by name.
        node: String,
        /// What changes; the rest stays.
        change: FaultsChange,
    },
    /// Replace the faults of one node's link from now on. Answered by [`Answer::Done`].
    SetFaults {
        /// The node, by name.
        node: String,
        /// The new faults.
        faults: Faults,
    },
    /// Change what goes wrong in one node's NIC from now on. Answered by [`Answer::Faults`], after the change.
    ChangeDeviceFaults {
        /// The node, by name.
        node: String,
        /// What changes; the rest stays.
        change: DeviceFaultsChange,
    },
    /// Replace what goes wrong in one node's NIC from now on. Answered by [`Answer::Done`].
    SetDeviceFaults {
        /// The node, by name.
        node: String,
        /// The new faults.
        faults: DeviceFaults,
    },
    /// Have cards be adversarial by another seed, from the same instant on: whatever is drawn from then on is what cards
    /// draw that begin with it. What is kept back comes when it was to come. For cards that were adversarial from the start.
    /// Answered by [`Answer::Done`].
    #[serde(alias = "set-unkind-seed")]
    SetAdversarialSeed {
        /// The nodes, by name; all where none is named.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<String>,
        /// The seed.
        seed: u64,
    },
    /// Look for broken rules in all cards from now on, or do not. Answered by [`Answer::Done`].
    SetRules {
        /// Whether.
        rules: RuleChecking,
    },
    /// Tell when more rules were broken than the asker knows of. Answered by [`Answer::BrokenRules`], at the latest
    /// after [`RULES_WAIT`].
    AwaitBrokenRules {
        /// How many it knows of, of all nodes together.
        seen: u64,
    },
    /// Keep with a broken rule where the guest was. Answered by [`Answer::Done`], though the rule is in the log no
    /// more.
    PlaceBrokenRule {
        /// The node, by name.
        node: String,
        /// Which: [`BrokenRule::number`].
        number: u64,
        /// [`BrokenRule::guest_at`].
        guest_at: String,
    },
    /// Give cards another program, all together. Answered by [`Answer::Loaded`] when it runs.
    Load {
        /// The nodes, by name; all where none is named.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<String>,
        /// The program, as the model's own tools write it, in hexadecimal digits. Empty: the one that each card was
        /// made with.
        #[serde(with = "hex::serde")]
        #[schemars(with = "String")]
        image: Vec<u8>,
    },
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Heartbeat`].
    Heartbeat(Heartbeat),
    /// To any request that needs the world: its lock was not to be had, so the guests are not served either.
    Stuck(Stuck),
    /// To [`Request::Stats`].
    Stats(DaemonStats),
    /// To [`Request::Health`].
    Health(DaemonHealth),
    /// To [`Request::Watch`]: a file in chunks follows, and then [`Answer::Watched`].
    Watching,
    /// The watching is over, and the file is whole.
    Watched(WatchSummary),
    /// To [`Request::Faults`], [`Request::ChangeFaults`] and [`Request::ChangeDeviceFaults`].
    Faults(LinkStates),
    /// To [`Request::AwaitBrokenRules`].
    BrokenRules(BrokenRules),
    /// To [`Request::Load`]: the program runs.
    Loaded {
        /// Model time since it was given to the cards: until they were drained, and programmed.
        model_time_ps: u64,
    },
    /// The change was made.
    Done,
    /// The request was not understood or is impossible.
    Error {
        /// What is wrong, and the fix.
        message: String,
    },
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// Wall time until the world's lock was had.
    pub wall_waited_ns: u64,
}

/// The world's lock is not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stuck {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// Wall time since the first request that did not get the lock, as none did since: it is held for at least so long.
    pub wall_held_ms: u64,
}

/// All counters since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonStats {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// Wall time since the daemon was ready.
    pub wall_uptime_ns: u64,
    /// Model time. Rates are left at 0: only whoever knows when the run began can say them.
    pub model: ModelFigures,
    /// The nodes, by rank.
    pub nodes: Vec<NodeFigures>,
    /// Links and switch.
    pub fabric: FabricFigures,
}

/// Rules that were broken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokenRules {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// How many, of all nodes together, since the daemon started.
    pub total: u64,
    /// The nodes that broke any, each with its log.
    pub nodes: Vec<BrokenRulesOfNode>,
}

/// Rules that a node broke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokenRulesOfNode {
    /// Host name.
    pub name: String,
    /// As [`NodeFigures::broken_rules`].
    pub broken_rules: BTreeMap<String, u64>,
    /// As [`NodeFigures::broken_rule_log`].
    pub broken_rule_log: Vec<BrokenRule>,
}

/// What is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonHealth {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// The nodes, by rank.
    pub nodes: Vec<NodeHealth>,
}

/// What of one node is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeHealth {
    /// Host name.
    pub name: String,
    /// QEMU holds the cluster function's socket.
    pub cluster_connected: bool,
    /// QEMU holds the Ethernet function's socket.
    pub ethernet_connected: bool,
    /// The guest's driver took over the cluster function (DRIVER_OK).
    pub cluster_driver_ok: bool,
    /// The guest's driver took over the Ethernet function (DRIVER_OK).
    pub ethernet_driver_ok: bool,
    /// The requester pages stand in the guest's BAR.
    pub bar_mapped: bool,
}

impl NodeHealth {
    /// Whether everything is connected.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.cluster_connected
            && self.ethernet_connected
            && self.cluster_driver_ok
            && self.ethernet_driver_ok
            && self.bar_mapped
    }
}

/// What goes wrong on links and in NICs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStates {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// The nodes, by rank.
    pub nodes: Vec<LinkState>,
}

/// What goes wrong on one node's link and in its NIC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkState {
    /// Host name.
    pub name: String,
    /// The faults in force.
    pub faults: Faults,
    /// What faults and bounds did to frames since the daemon started, by name, as in
    /// [`NodeFigures::link_events`]; what never happened is not there.
    pub link_events: BTreeMap<String, u64>,
    /// The faults in force of its NIC.
    pub device_faults: DeviceFaults,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::LedgerEntry;

    #[test]
    fn requests_look_as_documented() {
        let json = |request| serde_json::to_string(&request).unwrap();
        assert_eq!(json(Request::Stats), r#"{"query":"stats"}"#);
        assert_eq!(json(Request::Health), r#"{"query":"health"}"#);
        assert_eq!(json(Request::Heartbeat), r#"{"query":"heartbeat"}"#);
        let cut = Request::SetFaults {
            node: "node0".into(),
            faults: Faults { partition: true, ..Faults::default() },
        };
        assert_eq!(serde_json::from_str::<Request>(&json(cut.clone())).unwrap(), cut);
        let change = FaultsChange { loss: Some(0.5), ..FaultsChange::default() };
        let change = Request::ChangeFaults { node: "node0".into(), change };
        let line = r#"{"query":"change-faults","node":"node0","change":{"loss":0.5}}"#;
        assert_eq!(json(change.clone()), line);
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), change);
        let short = r#"{"query":"set-faults","node":"node0","faults":{"partition":true}}"#;
        assert_eq!(serde_json::from_str::<Request>(short).unwrap(), cut);
        let short = r#"{"query":"set-device-faults","node":"node0","faults":{"stale_at":[3]}}"#;
        let faults = DeviceFaults { stale_at: vec![3], ..DeviceFaults::default() };
        let stale = Request::SetDeviceFaults { node: "node0".into(), faults };
        assert_eq!(serde_json::from_str::<Request>(short).unwrap(), stale);
        let line = r#"{"query":"change-device-faults","node":"node0","change":{"short_at":[3],"stale":0.5}}"#;
        let change = [("short_at".to_owned(), [3].as_slice().into()), ("stale".to_owned(), 0.5.into())];
        let change =
            Request::ChangeDeviceFaults { node: "node0".into(), change: change.into_iter().collect() };
        assert_eq!(json(change.clone()), line);
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), change);
        let line = r#"{"query":"set-adversarial-seed","seed":8}"#;
        let reseed = Request::SetAdversarialSeed { nodes: Vec::new(), seed: 8 };
        assert_eq!(json(reseed.clone()), line);
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), reseed);
    }

    #[test]
    fn the_longest_request_is_read() {
        let at = vec![u64::MAX; DeviceFaults::MAX_AT];
        let faults = DeviceFaults {
            stale_at: at.clone(),
            short_at: at.clone(),
            bad_status_at: at.clone(),
            delay_at: at.clone(),
            lost_interrupt_at: at.clone(),
            duplicated_interrupt_at: at.clone(),
            invalid_value_at: at,
            ..DeviceFaults::default()
        };
        let request = Request::SetDeviceFaults { node: "n".repeat(32), faults };
        assert!(serde_json::to_string(&request).unwrap().len() < MAX_REQUEST_BYTES);
    }

    #[test]
    fn answers_round_trip() {
        let stats = DaemonStats {
            version: STATS_VERSION,
            nodes: vec![NodeFigures {
                name: "node0".into(),
                interrupts: [("notification".to_owned(), 3)].into(),
                ledger: vec![LedgerEntry {
                    crossing: "doorbell".into(),
                    count: 1,
                    bytes: 4,
                    model_price_ps: 7,
                    model_waited_ps: 0,
                }],
                ..NodeFigures::default()
            }],
            ..DaemonStats::default()
        };
        for answer in [Answer::Stats(stats), Answer::Health(DaemonHealth::default()), Answer::Done] {
            let text = serde_json::to_string(&answer).unwrap();
            assert!(!text.contains('\n'), "one answer a line");
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
        }
    }
}
