//! Nodes that end while the others continue.

use crate::boot::failure::{Failure, KernelPanic};

/// Why a node ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEnd {
    /// The reason, which names the node.
    pub reason: String,
    /// The end of its QEMU's messages and of its console.
    pub details: String,
}

impl NodeEnd {
    /// The end that `failure` reports, if it is the end of a single node.
    #[must_use]
    pub fn of(failure: &Failure) -> Option<Self> {
        match failure {
            Failure::SwitchedOff { node, console } => {
                Some(Self { reason: format!("{node} powered off or rebooted"), details: console.clone() })
            }
            Failure::QemuEnded { node, how, log, console } => Some(Self {
                reason: format!("QEMU of {node} ended ({how})"),
                details: format!("{log}\n{console}").trim_start().to_owned(),
            }),
            Failure::Panicked(panics) => {
                let [panic] = panics.as_slice() else { return None };
                Some(Self::of_panic(panic))
            }
            _ => None,
        }
    }

    /// The end of this node, if `failure` reports it, perhaps with the ends of others.
    #[must_use]
    pub fn of_node(failure: &Failure, name: &str) -> Option<Self> {
        match failure {
            Failure::Kept { failure, .. } | Failure::Exhausted { failure, .. } => {
                Self::of_node(failure, name)
            }
            Failure::Panicked(panics) => panics.iter().find(|panic| panic.node == name).map(Self::of_panic),
            Failure::SwitchedOff { node, .. } | Failure::QemuEnded { node, .. } if node == name => {
                Self::of(failure)
            }
            _ => None,
        }
    }

    fn of_panic(panic: &KernelPanic) -> Self {
        let text = panic.to_string();
        let (reason, details) = text.split_once('\n').unwrap_or((&text, ""));
        Self { reason: reason.to_owned(), details: details.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_node_is_found_among_others_and_in_its_wrapping() {
        let panic = |node: &str| KernelPanic {
            node: node.into(),
            reason: "Oops".into(),
            locations: Vec::new(),
            text: "text".into(),
        };
        let both = Failure::Panicked(vec![panic("node0"), panic("node2")]);
        let kept = Failure::Kept { failure: Box::new(both), folder: "/f".into() };
        let reason = |name| NodeEnd::of_node(&kept, name).map(|end| end.reason);
        assert_eq!(reason("node2").as_deref(), Some("the kernel of node2 panicked: Oops"));
        assert_eq!(reason("node1"), None);
        let off = Failure::SwitchedOff { node: "node1".into(), console: String::new() };
        assert!(NodeEnd::of_node(&off, "node1").is_some() && NodeEnd::of_node(&off, "node0").is_none());
    }

    #[test]
    fn reason_is_one_line_that_names_the_node() {
        let (node, console) = ("node1".to_owned(), "line 1\nline 2".to_owned());
        let panic = KernelPanic {
            node: node.clone(),
            reason: "Oops: 0002".into(),
            locations: Vec::new(),
            text: console.clone(),
        };
        let end = |failure: &Failure| NodeEnd::of(failure).map(|end| (end.reason, end.details));
        let switched_off = Failure::SwitchedOff { node: node.clone(), console: console.clone() };
        assert_eq!(
            end(&switched_off),
            Some(("node1 powered off or rebooted".into(), "line 1\nline 2".into()))
        );
        let (how, log) = ("signal 9".to_owned(), "qemu: no".to_owned());
        assert_eq!(
            end(&Failure::QemuEnded { node, how, log, console }),
            Some(("QEMU of node1 ended (signal 9)".into(), "qemu: no\nline 1\nline 2".into()))
        );
        assert_eq!(
            end(&Failure::Panicked(vec![panic.clone()])),
            Some((
                "the kernel of node1 panicked: Oops: 0002".into(),
                " console of node1:\n  line 1\n  line 2".into()
            ))
        );
        assert_eq!(end(&Failure::Panicked(vec![panic.clone(), panic])), None);
        assert_eq!(end(&Failure::DaemonEnded { how: "x".into(), log: String::new() }), None);
    }
}
