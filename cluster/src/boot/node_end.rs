//! Nodes that end while the others continue.

use crate::boot::failure::Failure;

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
                let text = panic.to_string();
                let (reason, details) = text.split_once('\n').unwrap_or((&text, ""));
                Some(Self { reason: reason.to_owned(), details: details.to_owned() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::failure::KernelPanic;

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
