//! A budget: a limit on a count or on a model time of a run.
//!
//! Counts and model time are exact, so a budget on them gives the same verdict on any machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::nearest;

/// A budget. It has exactly one of `exact`, `at_most` and `at_least`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The quantity: one of [`QUANTITIES`], or a kind of transaction such as `pio_write`.
    pub what: String,
    /// The node to count on. Default: the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The unit that the limit applies to.
    #[serde(default)]
    pub per: Per,
    /// The exact value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<f64>,
    /// The maximum value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The minimum value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
}

/// The unit that a budget's limit applies to. With `node`, it counts the messages of that node alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// The whole run.
    #[default]
    Run,
    /// One received message, as `received`.
    Message,
    /// One sent message.
    Sent,
    /// One received message.
    Received,
    /// A million bytes of received payload.
    Megabyte,
}

impl Per {
    /// All units.
    pub const ALL: [Self; 5] = [Self::Run, Self::Message, Self::Sent, Self::Received, Self::Megabyte];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Message => "message",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Megabyte => "megabyte",
        }
    }

    /// The unit in a sentence, after "per".
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Message => "message",
            Self::Sent => "sent message",
            Self::Received => "received message",
            Self::Megabyte => "megabyte",
        }
    }
}

/// Quantities for budgets, besides the kinds of transactions: name and meaning.
pub const QUANTITIES: &[(&str, &str)] = &[
    ("messages", "messages received"),
    (LOST_MESSAGES, "messages sent that no host received; whole cluster only"),
    ("interrupts", "interrupts raised by the modelled NIC"),
    ("ethernet_interrupts", "interrupts raised by the Ethernet function"),
    ("guest_interrupts", "increase of the guests' /proc/interrupts for the modelled NIC; live only"),
    ("doorbells", "doorbells rung by the host; live only"),
    ("dma_operations", "DMA reads and writes of data and descriptors"),
    ("dma_bytes", "bytes of dma_operations"),
    ("crossings", "bus transactions: programmed I/O, DMA, doorbells and interrupts"),
    ("crossing_bytes", "bytes of crossings"),
    ("violations", "forbidden operations of hosts"),
    ("model_latency_min_ps", "shortest message, model time"),
    ("model_latency_p50_ps", "median message, model time"),
    ("model_latency_p99_ps", "99th percentile of messages, model time"),
    ("model_latency_max_ps", "longest message, model time"),
    ("model_bandwidth_bytes_per_s", "payload received per second of model time"),
    ("model_messages_per_s", "messages received per second of model time"),
];

/// The quantity of messages that were sent and not received.
pub const LOST_MESSAGES: &str = "lost_messages";

/// Kinds of transactions: the names of the ledger's entries.
pub const CROSSINGS: &[&str] = &[
    "pio_write",
    "pio_read",
    "doorbell",
    "dma_write",
    "dma_read",
    "descriptor_fetch",
    "descriptor_write_back",
    "device_to_device",
    "interrupt",
    "local_bus",
    "ni_cycles",
    "host_send",
    "host_receive",
    "host_interrupt",
    "host_copy",
    "serialization",
    "switch_fall_through",
];

/// Maximum limit of a budget; no run comes near it.
const MAX_LIMIT: f64 = 1e18;

/// A value of a budget that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetProblem {
    /// The key of [`Budget`].
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub remedy: String,
}

impl Budget {
    /// No message may be lost.
    #[must_use]
    pub fn nothing_lost() -> Self {
        Self { what: LOST_MESSAGES.to_owned(), exact: Some(0.0), ..Self::default() }
    }

    /// Whether the budget limits a model time or a rate, which cannot be divided by messages or bytes.
    #[must_use]
    pub fn is_model_figure(&self) -> bool {
        self.what.starts_with("model_")
    }

    /// Whether a run that loses messages may break the budget, because it counts delivered or lost messages.
    #[must_use]
    pub fn is_about_delivery(&self) -> bool {
        let needs_messages = self.what == "messages" && self.at_most.is_none();
        self.what == LOST_MESSAGES || needs_messages
    }

    /// The quantity, its unit and its node in words: `doorbells per sent message of node0`.
    #[must_use]
    pub fn subject(&self) -> String {
        let per = match self.per {
            Per::Run => String::new(),
            per => format!(" per {}", per.unit()),
        };
        let node = self.node.as_ref().map_or_else(String::new, |node| format!(" of {node}"));
        format!("{}{per}{node}", self.what)
    }

    /// The limit in words: `exactly 3`, `at most 2`.
    #[must_use]
    pub fn limit(&self) -> String {
        let (word, value) = match (self.exact, self.at_most, self.at_least) {
            (Some(value), ..) => ("exactly", value),
            (_, Some(value), _) => ("at most", value),
            (.., value) => ("at least", value.unwrap_or_default()),
        };
        format!("{word} {value}")
    }

    /// The first invalid value of the budget in a cluster of nodes with these names. `is_live`: whether guests run, so
    /// that quantities exist that a simulation does not count.
    #[must_use]
    pub fn problem(&self, nodes: &[&str], is_live: bool) -> Option<BudgetProblem> {
        let wrong =
            |key, what: String, remedy: &str| Some(BudgetProblem { key, what, remedy: remedy.into() });
        let what = self.what.as_str();
        if let Some(problem) = self.unknown_quantity() {
            return Some(problem);
        }
        if let Some(node) = self.node.as_deref().filter(|node| !nodes.contains(node)) {
            let remedy = match nearest(node, nodes) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "use the name of a node of this cluster".to_owned(),
            };
            return wrong("node", format!("there is no node `{node}`"), &remedy);
        }
        if self.is_model_figure() && self.per != Per::Run {
            return wrong("per", format!("`{what}` is not a sum, so it cannot be divided"), "omit `per`");
        }
        if self.node.is_some() && is_of_cluster(what) {
            return wrong("node", format!("`{what}` exists only for the whole cluster"), "omit `node`");
        }
        if matches!(what, "guest_interrupts" | "doorbells") && !is_live {
            return wrong(
                "what",
                format!("a simulation has no {what}, so this can never fail"),
                "use mode = \"live\" or \"both\", or another budget",
            );
        }
        self.wrong_limit()
    }

    fn unknown_quantity(&self) -> Option<BudgetProblem> {
        let names = QUANTITIES.iter().map(|(name, _)| *name);
        let known: Vec<&str> = names.chain(CROSSINGS.iter().copied()).collect();
        let what = self.what.as_str();
        (!known.contains(&what)).then(|| BudgetProblem {
            key: "what",
            what: format!("there is no quantity `{what}`"),
            remedy: nearest(what, &known).map_or_else(
                || format!("use one of {}", known.join(", ")),
                |near| format!("did you mean `{near}`?"),
            ),
        })
    }

    fn wrong_limit(&self) -> Option<BudgetProblem> {
        let wrong =
            |key, what: String, remedy: &str| Some(BudgetProblem { key, what, remedy: remedy.into() });
        let limits = [("exact", self.exact), ("at_most", self.at_most), ("at_least", self.at_least)];
        let given: Vec<(&'static str, f64)> =
            limits.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let &[(key, value)] = given.as_slice() else {
            let what = format!("{} limits are given", given.len());
            return wrong("what", what, "give one of `exact`, `at_most` and `at_least`");
        };
        if !value.is_finite() || value < 0.0 {
            return wrong(key, format!("{value} is not valid"), "use 0 or more");
        }
        if key == "at_least" && value == 0.0 {
            return wrong(key, "no value is below 0, so this can never fail".to_owned(), "use more than 0");
        }
        if value > MAX_LIMIT {
            let what = format!("no run comes near {value:e}, so this limits nothing");
            return wrong(key, what, "use a realistic limit");
        }
        None
    }
}

/// Whether the quantity exists only for the whole cluster.
pub(crate) fn is_of_cluster(what: &str) -> bool {
    [LOST_MESSAGES, "model_bandwidth_bytes_per_s", "model_messages_per_s"].contains(&what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(what: &str) -> Budget {
        Budget { what: what.into(), exact: Some(1.0), ..Budget::default() }
    }

    #[test]
    fn subject_has_quantity_unit_and_node_without_the_limit() {
        let of_node = Budget { node: Some("node0".into()), per: Per::Sent, ..budget("doorbells") };
        assert_eq!(of_node.subject(), "doorbells per sent message of node0");
        assert_eq!(of_node.limit(), "exactly 1");
        assert_eq!(budget("interrupts").subject(), "interrupts");
    }

    #[test]
    fn only_limits_that_losses_break_are_about_delivery() {
        assert!(Budget::nothing_lost().is_about_delivery() && budget("messages").is_about_delivery());
        let at_most = Budget { exact: None, at_most: Some(9.0), ..budget("messages") };
        assert!(!at_most.is_about_delivery() && !budget("interrupts").is_about_delivery());
    }

    #[test]
    fn quantity_of_the_whole_cluster_refuses_a_node() {
        for what in ["lost_messages", "model_messages_per_s"] {
            let of_node = Budget { node: Some("a".into()), ..budget(what) };
            assert_eq!(of_node.problem(&["a"], true).unwrap().key, "node");
            assert_eq!(budget(what).problem(&["a"], true), None);
        }
    }
}
