//! `niclab plan`: shows every process and file of a cluster. It starts and writes nothing.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use niclab_cluster::{
    boot::prepare,
    host::{process::ProcessPlan, runtime::RuntimeRoot},
    plan::{NodePlan, Plan, RestorePlan},
};
use niclab_spec::descriptors;

use super::terminal;
use crate::arguments::PlanArgs;

/// Prints the plan.
///
/// # Errors
/// When the cluster file is invalid, or an image is not in the cache yet.
pub fn run(args: &PlanArgs) -> Result<u8> {
    let cluster = prepare::cluster(&args.cluster)?;
    let name = cluster.name.clone().unwrap_or_default();
    let plan = prepare::preview(&args.cluster, &cluster, &name, &RuntimeRoot::locate()?)
        .context("`niclab plan` needs the images in the cache; `niclab run` builds them")?;
    terminal::print(&if args.json { serde_json::to_string_pretty(&plan)? } else { text(&plan) })?;
    Ok(0)
}

fn text(plan: &Plan) -> String {
    let mut text = format!(
        "# cluster {}: NIC {}, QEMU {}, kernel {}\n# accelerator {}: {}\n",
        plan.name,
        plan.nic,
        plan.qemu_version,
        plan.kernel_release,
        plan.accelerator.name(),
        plan.accelerator.reason
    );
    if let Some(obstacle) = &plan.start.obstacle {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# the nodes boot: {obstacle}");
    }
    for file in &plan.files {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n# file {}\n{}", file.path.display(), file.text.trim_end());
    }
    let limit = descriptors::hard_limit();
    let fit = descriptors::nodes_within(limit);
    let _ = writeln!(
        text,
        "\n# daemon: up to {} open files of {limit} (ulimit -Hn), enough for {fit} nodes with one queue pair each\n{}",
        plan.daemon_descriptors,
        shell_line(&plan.daemon)
    );
    for template in &plan.templates {
        let _ = writeln!(
            text,
            "\n# template of {} MiB, made once: boots a guest without a card and saves it\n{}",
            template.memory_mib,
            shell_line(&template.qemu)
        );
    }
    for node in &plan.nodes {
        let _ =
            writeln!(text, "\n# {} ({}, {})\n{}", node.name, node.address, node.mac, shell_line(&node.qemu));
        text += &node.restore.as_ref().map(restore).unwrap_or_default();
        text += &identity(node);
    }
    text.trim_end().to_owned()
}

/// How a node's QEMU restores its guest.
fn restore(restore: &RestorePlan) -> String {
    let mut text = format!(
        "# standard input: {} MiB of memory, copied out of {}\n",
        restore.memory_bytes >> 20,
        restore.template.join("memory").display()
    );
    for function in &restore.card {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# device_add, once the guest runs: {function}");
    }
    text
}

/// The identity that the node's agent gets, as the environment and files that it leads to in the guest.
fn identity(node: &NodePlan) -> String {
    let mut text = format!("\n# {}: what its commands find in their environment\n", node.name);
    for (name, value) in &node.identity.env {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}={}", quoted(value));
    }
    let _ = writeln!(
        text,
        "\n# {}: /etc/hosts, besides the loopback\n{}",
        node.name,
        node.identity.hosts.trim_end()
    );
    text
}

/// The process as a shell command, one option per line.
fn shell_line(process: &ProcessPlan) -> String {
    let mut line = quoted(&process.program.display().to_string());
    for argument in &process.args {
        line += if argument.starts_with('-') { " \\\n  " } else { " " };
        line += &quoted(argument);
    }
    line
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_survive_a_shell() {
        let words = ["plain", "two words", "it's", "", "$HOME", "a\\b"];
        let process = ProcessPlan {
            program: "/usr/bin/printf".into(),
            args: std::iter::once("%s\\n").chain(words).map(str::to_owned).collect(),
            env: Default::default(),
            log: "/dev/null".into(),
        };
        let output = std::process::Command::new("sh").args(["-c", &shell_line(&process)]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), words);
    }
}
