//! `niclab extcap`: offers running clusters to Wireshark as capture interfaces, by its extcap protocol (extcap(4)).
//!
//! Wireshark calls the program to list the interfaces, to list an interface's link types, to list its options, and to
//! capture. A capture goes into a FIFO until Wireshark closes the FIFO or sends a signal.

use std::path::Path;

use anyhow::{Result, bail};
use niclab_cluster::{host::runtime::RuntimeRoot, supervisor::control::PLAN};
use niclab_output::OutputFile;
use niclab_spec::{ClusterName, watch::WatchSubject};

use super::{
    plan_of, terminal,
    watch::{Until, watch_into},
};
use crate::extcap::ExtcapArgs;

/// The prefix of an interface's name; the cluster's name follows.
const PREFIX: &str = "niclab-";

/// The value of `--link` that means all links. No node has such a name.
const ALL_LINKS: &str = "*";

/// The help page that Wireshark shows.
const HELP: &str = "https://github.com/niclab/niclab/blob/main/docs/use/OBSERVE.md";

/// Answers one call from Wireshark.
///
/// # Errors
/// When the interface names no running cluster, or the FIFO cannot be written.
pub fn run(args: &ExtcapArgs) -> Result<u8> {
    if args.extcap_interfaces {
        terminal::print(&interfaces()?)?;
        return Ok(0);
    }
    let Some(interface) = &args.extcap_interface else {
        bail!("Wireshark calls this command; give --extcap-interfaces to list its interfaces")
    };
    let name = cluster_of(interface)?;
    if args.capture {
        let Some(fifo) = &args.fifo else { bail!("a capture needs --fifo") };
        return capture(&name, fifo, &args.link);
    }
    if args.extcap_dlts {
        terminal::print("dlt {number=1}{name=EN10MB}{display=Ethernet}")?;
    } else if args.extcap_config {
        terminal::print(&options(&name)?)?;
    } else if args.extcap_capture_filter.as_ref().is_some_and(|filter| !filter.is_empty()) {
        // Wireshark rejects the filter if anything is printed.
        terminal::print(
            "niclab captures whole links: leave the capture filter empty, and use a display filter",
        )?;
    }
    Ok(0)
}

/// The running clusters that other commands can reach.
fn interfaces() -> Result<String> {
    let root = RuntimeRoot::locate()?;
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("extcap {{version={version}}}{{help={HELP}}}{{display=niclab}}\n");
    let is_reachable = |name: &&ClusterName| root.is_alive(name) && root.folder(name).join(PLAN).exists();
    for name in root.names()?.iter().filter(is_reachable) {
        text += &format!("interface {{value={PREFIX}{name}}}{{display=niclab cluster {name}}}\n");
    }
    Ok(text)
}

fn cluster_of(interface: &str) -> Result<ClusterName> {
    let Some(name) = interface.strip_prefix(PREFIX) else {
        bail!("niclab has no interface `{interface}`: the names of its interfaces begin with `{PREFIX}`")
    };
    Ok(name.parse()?)
}

/// The option `--link`: all links, or one.
fn options(name: &ClusterName) -> Result<String> {
    let mut text = "arg {number=0}{call=--link}{display=Link}{tooltip=Links are named after their nodes}\
                    {type=selector}\n"
        .to_owned();
    text += &format!("value {{arg=0}}{{value={ALL_LINKS}}}{{display=all links}}{{default=true}}\n");
    for node in &plan_of(name)?.nodes {
        text += &format!("value {{arg=0}}{{value={0}}}{{display={0}}}{{default=false}}\n", node.name);
    }
    Ok(text)
}

fn capture(name: &ClusterName, fifo: &Path, link: &str) -> Result<u8> {
    let links: Vec<String> = (link != ALL_LINKS).then(|| link.to_owned()).into_iter().collect();
    let socket = plan_of(name)?.monitor_socket;
    let file = OutputFile::create(fifo, &[])?;
    watch_into(&socket, file, WatchSubject::Capture, &links, &Until::default()).map(|_| 0)
}
