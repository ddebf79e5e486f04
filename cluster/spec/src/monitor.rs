//! The daemon's monitor protocol: one JSON [`Request`] per line over a unix socket, and one [`Answer`] per line back.
//!
//! A connection may send any number of requests. Counts are exact integers. Names end in the unit; the name of a time
//! also gives its clock, as in a report.

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

/// How long a request waits for the daemon's global lock before the answer is [`Answer::Stuck`]. A thread holds the
/// lock for milliseconds at most.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long [`Request::AwaitBrokenRules`] waits.
pub const RULES_WAIT: Duration = Duration::from_secs(10);

/// A query or a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "query", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Does the daemon serve guests? The answer is [`Answer::Heartbeat`] after it got the global lock, else
    /// [`Answer::Stuck`].
    Heartbeat,
    /// All counters. Answered by [`Answer::Stats`].
    Stats,
    /// All counters. Latencies are reset, so that a later [`Request::Stats`] has only the latencies since then. The
    /// clocks of all hosts are set to the same instant of model time, at which nothing is busy. Answered by
    /// [`Answer::Stats`].
    BeginMeasurement,
    /// The state of all connections. Answered by [`Answer::Health`].
    Health,
    /// Watch the cluster from now on, until the client shuts the connection down for writing. Answered by
    /// [`Answer::Watching`]; the connection then carries a file in the form of [`crate::watch`] and takes no more
    /// requests.
    Watch(WatchRequest),
    /// The faults of all links and NICs. Answered by [`Answer::Faults`].
    Faults,
    /// Change the faults of one node's link from now on. Answered by [`Answer::Faults`], after the change.
    ChangeFaults {
        /// The node, by name.
        node: String,
        /// The faults to change.
        change: FaultsChange,
    },
    /// Replace the faults of one node's link from now on. Answered by [`Answer::Done`].
    SetFaults {
        /// The node, by name.
        node: String,
        /// The new faults.
        faults: Faults,
    },
    /// Change the faults of one node's NIC from now on. Answered by [`Answer::Faults`], after the change.
    ChangeDeviceFaults {
        /// The node, by name.
        node: String,
        /// The faults to change.
        change: DeviceFaultsChange,
    },
    /// Replace the faults of one node's NIC from now on. Answered by [`Answer::Done`].
    SetDeviceFaults {
        /// The node, by name.
        node: String,
        /// The new faults.
        faults: DeviceFaults,
    },
    /// Give adversarial cards another seed, all at the same instant. From then on they make the random decisions of
    /// cards that start with this seed. Outputs that are delayed already keep their time. Only for cards that were
    /// adversarial from the start. Answered by [`Answer::Done`].
    #[serde(alias = "set-unkind-seed")]
    SetAdversarialSeed {
        /// The nodes, by name; all if empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<String>,
        /// The seed.
        seed: u64,
    },
    /// Start or stop to check all cards for broken rules. Answered by [`Answer::Done`].
    SetRules {
        /// What to do about broken rules.
        rules: RuleChecking,
    },
    /// Wait until more rules are broken than the client knows of. Answered by [`Answer::BrokenRules`], after
    /// [`RULES_WAIT`] at the latest.
    AwaitBrokenRules {
        /// Number of broken rules that the client knows of, of all nodes together.
        seen: u64,
    },
    /// Add the guest's position to a broken rule. Answered by [`Answer::Done`], even if the log no longer has the rule.
    PlaceBrokenRule {
        /// The node, by name.
        node: String,
        /// The rule: [`BrokenRule::number`].
        number: u64,
        /// [`BrokenRule::guest_at`].
        guest_at: String,
    },
    /// Load another program into cards, all together. Answered by [`Answer::Loaded`] when it runs.
    Load {
        /// The nodes, by name; all if empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<String>,
        /// The program, as the model's tools write it, in hexadecimal digits. Empty: each card's original program.
        #[serde(with = "hex::serde")]
        #[schemars(with = "String")]
        image: Vec<u8>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Heartbeat`].
    Heartbeat(Heartbeat),
    /// To any request that needs all nodes: the global lock is held too long, so the guests are not served either.
    Stuck(Stuck),
    /// To [`Request::Stats`].
    Stats(DaemonStats),
    /// To [`Request::Health`].
    Health(DaemonHealth),
    /// To [`Request::Watch`]: a file in chunks follows, and then [`Answer::Watched`].
    Watching,
    /// The watch has ended, and the file is complete.
    Watched(WatchSummary),
    /// To [`Request::Faults`], [`Request::ChangeFaults`] and [`Request::ChangeDeviceFaults`].
    Faults(LinkStates),
    /// To [`Request::AwaitBrokenRules`].
    BrokenRules(BrokenRules),
    /// To [`Request::Load`]: the program runs.
    Loaded {
        /// Model time from the request until the cards were drained and programmed.
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

/// The answer of a daemon that serves guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// Wall time until the daemon's monitor got the global lock.
    pub wall_waited_ns: u64,
}

/// A thread does not release the global lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stuck {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// Wall time since the first request that did not get the lock. No request got it since, so it has been held for at
    /// least this time.
    pub wall_held_ms: u64,
}

/// All counters since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonStats {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// Wall time since the daemon was ready.
    pub wall_uptime_ns: u64,
    /// Model time. Rates are 0: only the launcher knows when the run began, and computes them.
    pub model: ModelFigures,
    /// The nodes, by rank.
    pub nodes: Vec<NodeFigures>,
    /// Links and switch.
    pub fabric: FabricFigures,
}

/// The rules that drivers have broken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokenRules {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// Number of broken rules of all nodes since the daemon started.
    pub total: u64,
    /// The nodes that broke rules, each with its log.
    pub nodes: Vec<BrokenRulesOfNode>,
}

/// The rules that one node broke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokenRulesOfNode {
    /// Host name.
    pub name: String,
    /// As [`NodeFigures::broken_rules`].
    pub broken_rules: BTreeMap<String, u64>,
    /// As [`NodeFigures::broken_rule_log`].
    pub broken_rule_log: Vec<BrokenRule>,
}

/// The state of all connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonHealth {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// The nodes, by rank.
    pub nodes: Vec<NodeHealth>,
}

/// The state of one node's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeHealth {
    /// Host name.
    pub name: String,
    /// QEMU is connected to the cluster function's socket.
    pub cluster_connected: bool,
    /// QEMU is connected to the Ethernet function's socket.
    pub ethernet_connected: bool,
    /// The guest's driver initialised the cluster function (DRIVER_OK).
    pub cluster_driver_ok: bool,
    /// The guest's driver initialised the Ethernet function (DRIVER_OK).
    pub ethernet_driver_ok: bool,
    /// The requester pages are mapped into the guest's BAR.
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

/// The faults of links and NICs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStates {
    /// [`STATS_VERSION`].
    pub version: u32,
    /// The nodes, by rank.
    pub nodes: Vec<LinkState>,
}

/// The faults of one node's link and NIC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkState {
    /// Host name.
    pub name: String,
    /// The current faults of the link.
    pub faults: Faults,
    /// Number of frames that faults and limits dropped or changed since the daemon started, by name, as in
    /// [`NodeFigures::link_events`]; counts of 0 are omitted.
    pub link_events: BTreeMap<String, u64>,
    /// The current faults of the NIC.
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
                    transaction: "doorbell".into(),
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
            assert!(!text.contains('\n'), "an answer is one line");
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
        }
    }
}
