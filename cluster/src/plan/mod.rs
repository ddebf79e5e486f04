//! Everything that a cluster will start, as data: every process with its arguments, every file with its content.
//!
//! This module neither reads nor changes the system. `niclab plan` prints a plan; `niclab run` and `up` carry it out.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use niclab_agent::Identity;
use niclab_images::{Cache, DebugKernel, DriverModule, Images};
use niclab_spec::{
    Cluster, ClusterName, MacAddress, Node, OnNodeExit, RuleChecking,
    daemon::{DaemonConfig, NodeSockets},
    descriptors,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use self::{
    accelerator::Accelerator,
    qemu::{Arguments, Connection, MemorySource},
    recipe::Recipe,
    start::{Start, StartMode},
};
use crate::host::process::ProcessPlan;

pub mod accelerator;
pub mod qemu;
pub mod recipe;
pub mod start;

/// The version of the plan's JSON.
pub const PLAN_VERSION: u32 = 2;

/// Why a plan cannot be made.
#[derive(Debug, Error)]
pub enum PlanError {
    /// JSON and QEMU's arguments need UTF-8 text.
    #[error("the path {} is not UTF-8 text; rename the file or folder", .0.display())]
    NotUtf8(PathBuf),
}

/// The inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The cluster's name.
    pub name: &'a ClusterName,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The images of each node, by rank.
    pub images: &'a [Images],
    /// Each node's driver of the user's own, by rank.
    pub drivers: &'a [Option<DriverModule>],
    /// The daemon's program.
    pub device: &'a Path,
    /// The cluster's folder, for sockets, logs and files.
    pub folder: &'a Path,
    /// The accelerator.
    pub accelerator: &'a Accelerator,
    /// The folder of the host that guests mount at the same path.
    pub share: Option<&'a Path>,
    /// Whether nodes boot or are restored from templates.
    pub start: &'a Start,
    /// The cache, which contains the templates.
    pub cache: &'a Cache,
}

/// A complete plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// The cluster's name.
    pub name: ClusterName,
    /// The NIC model.
    pub nic: String,
    /// The accelerator, and the reason.
    pub accelerator: Accelerator,
    /// Whether nodes boot, and the reason.
    pub start: Start,
    /// QEMU's version.
    pub qemu_version: String,
    /// Release of the guest kernel.
    pub kernel_release: String,
    /// The guest kernel as its package contains it, for comparison.
    pub packed_kernel: String,
    /// The guests' debug kernel, if they have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug_kernel: Option<DebugKernelPlan>,
    /// The factor on all of the guests' time limits.
    #[serde(default = "recipe::default_timeout_factor")]
    pub timeout_factor: u32,
    /// Files to write first.
    pub files: Vec<FilePlan>,
    /// The daemon, which starts first.
    pub daemon: ProcessPlan,
    /// Maximum number of file descriptors that the daemon needs.
    #[serde(default)]
    pub daemon_descriptors: u64,
    /// The daemon's monitor socket.
    pub monitor_socket: PathBuf,
    /// The guests, by rank.
    pub nodes: Vec<NodePlan>,
    /// The templates that must be in the cache, each once.
    pub templates: Vec<Recipe>,
    /// What the daemon does when a driver breaks a rule.
    #[serde(default)]
    pub rules: RuleChecking,
    /// What happens to the other nodes when a node ends. A new plan has `Stop`: benchmarks and tests need all nodes.
    #[serde(default)]
    pub on_node_exit: OnNodeExit,
}

/// A debug kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugKernelPlan {
    /// The kernel.
    pub kernel: DebugKernel,
    /// niclab's driver for it.
    pub driver: Option<DriverModule>,
}

impl DebugKernelPlan {
    fn of(images: &Images) -> Option<Self> {
        Some(Self { kernel: images.debug_kernel.clone()?, driver: images.driver.clone() })
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlan {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Position in the cluster, from 0.
    pub rank: u16,
    /// Host name.
    pub name: String,
    /// Address of the Ethernet function.
    pub address: Ipv4Addr,
    /// Ethernet address of the card.
    pub mac: MacAddress,
    /// Its QEMU.
    pub qemu: ProcessPlan,
    /// How the node is restored; without this it boots.
    pub restore: Option<RestorePlan>,
    /// The file of the guest's serial console.
    pub console: PathBuf,
    /// The socket of the guest's agent.
    pub agent_socket: PathBuf,
    /// QEMU's control socket.
    pub qmp_socket: PathBuf,
    /// Whether the link is cut from the start, so that the guest's Ethernet function has no carrier.
    pub is_cut: bool,
    /// The identity that its agent receives.
    pub identity: Identity,
    /// The driver that the guest loads for its card, if that is not niclab's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverPlan>,
}

/// A driver of the user's own on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverPlan {
    /// The module.
    pub module: DriverModule,
    /// Its parameters.
    pub args: Vec<String>,
}

/// How a node is restored from a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestorePlan {
    /// Bytes of the guest's memory.
    pub memory_bytes: u64,
    /// The template's folder. QEMU reads the state there; the launcher passes a copy of the memory as standard input.
    pub template: PathBuf,
    /// The functions of the card, in the order in which they are plugged into the running guest.
    pub card: Vec<Value>,
}

impl Plan {
    /// One line for each driver of the user's own, with the nodes to whose cards it is bound. For a cluster that is up.
    #[must_use]
    pub fn drivers_in_use(&self) -> Vec<String> {
        let mut nodes_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for node in &self.nodes {
            let driver = node.driver.iter().map(|driver| driver.module.name.as_str());
            driver.for_each(|name| nodes_of.entry(name).or_default().push(&node.name));
        }
        let line = |(name, nodes): (&str, Vec<&str>)| {
            format!("{}: driver {name} bound to the card", nodes.join(", "))
        };
        nodes_of.into_iter().map(line).collect()
    }

    /// Makes the plan.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn new(inputs: &Inputs<'_>) -> Result<Self, PlanError> {
        let Inputs { name, cluster, images, device, folder, accelerator, .. } = *inputs;
        let monitor_socket = folder.join("monitor.sock");
        let config = DaemonConfig::new(cluster, name, monitor_socket.clone(), |rank| NodeSockets {
            cluster_socket: folder.join(format!("{rank}.cluster")),
            ethernet_socket: folder.join(format!("{rank}.ether")),
        });
        let config_path = folder.join("daemon.json");
        // A struct of strings, numbers and lists always serialises to JSON.
        let config_text = serde_json::to_string_pretty(&config).unwrap_or_default();
        let files = vec![FilePlan { path: config_path.clone(), text: config_text }];
        let (mut nodes, mut templates) = (Vec::new(), Vec::new());
        for ((node, sockets), images) in cluster.nodes.iter().zip(&config.nodes).zip(images) {
            let cards = [text(&sockets.ethernet_socket)?, text(&sockets.cluster_socket)?];
            let template = match inputs.start.way {
                StartMode::Template => {
                    let recipe = Recipe::new(inputs, node, images)?;
                    let folder = recipe.folder(inputs.cache);
                    if !templates.contains(&recipe) {
                        templates.push(recipe);
                    }
                    Some(folder)
                }
                StartMode::Cold => None,
            };
            let mut plan = node_plan(inputs, node, images, cards, template)?;
            let module = inputs.drivers.get(usize::from(node.rank)).cloned().flatten();
            plan.driver = node
                .driver
                .as_ref()
                .zip(module)
                .map(|(driver, module)| DriverPlan { module, args: driver.args.clone() });
            nodes.push(plan);
        }
        let about = images.first();
        Ok(Self {
            version: PLAN_VERSION,
            name: name.clone(),
            nic: cluster.nodes.first().map_or("", |node| node.nic.model.name).to_owned(),
            accelerator: accelerator.clone(),
            start: inputs.start.clone(),
            qemu_version: about.map(|images| images.qemu_version.clone()).unwrap_or_default(),
            kernel_release: about.map(|images| images.kernel_release.clone()).unwrap_or_default(),
            packed_kernel: about.map(|images| text(&images.packed_kernel)).transpose()?.unwrap_or_default(),
            debug_kernel: about.and_then(DebugKernelPlan::of),
            timeout_factor: cluster.kernel.timeout_factor(),
            files,
            daemon: ProcessPlan {
                program: device.to_owned(),
                args: vec!["--config".to_owned(), text(&config_path)?],
                env: BTreeMap::new(),
                log: folder.join("daemon.log"),
            },
            daemon_descriptors: descriptors::needed_by_daemon(cluster.nodes.iter().map(|node| node.queues)),
            monitor_socket,
            nodes,
            templates,
            rules: cluster.rules,
            on_node_exit: OnNodeExit::Stop,
        })
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodePlan> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

fn node_plan(
    inputs: &Inputs<'_>,
    node: &Node,
    images: &Images,
    [ethernet_socket, cluster_socket]: [String; 2],
    template: Option<PathBuf>,
) -> Result<NodePlan, PlanError> {
    let (folder, rank) = (inputs.folder, node.rank);
    let mut plan = NodePlan {
        rank,
        name: node.name.clone(),
        address: node.address(),
        mac: node.mac(),
        qemu: qemu_process(images, folder.join(format!("{rank}.qemu.log")))?,
        restore: None,
        console: folder.join(format!("{rank}.console")),
        agent_socket: folder.join(format!("{rank}.agent")),
        qmp_socket: folder.join(format!("{rank}.qmp")),
        is_cut: node.link.faults.partition,
        identity: Identity { env: node_env(inputs, node)?, hosts: hosts(inputs.cluster) },
        driver: None,
    };
    let (memory, connection) = match template {
        Some(_) => (MemorySource::StandardInput, Connection::First),
        None => (MemorySource::Own, Connection::Later),
    };
    let mut args = Arguments::default();
    args.pair("-name", format!("{}/{}", inputs.name, node.name));
    args.memory(node.memory_mib, memory);
    args.console(&plan.console)?;
    args.agent(&plan.agent_socket, connection)?;
    args.control(&plan.qmp_socket)?;
    if let Some(share) = inputs.share {
        args.share(share)?;
    }
    args.network(&ethernet_socket, &cluster_socket, node.queues);
    // With `-no-reboot` a restored guest never boots a kernel; the user's own arguments may change that.
    if template.is_none() || !inputs.cluster.qemu_args.is_empty() {
        args.kernel(node, images)?;
    }
    args.devices(node, images, inputs.accelerator, inputs.share.is_some())?;
    let card = qemu::card(node);
    match template {
        Some(template) => {
            args.incoming(&Recipe::state(&template))?;
            plan.restore = Some(RestorePlan {
                memory_bytes: u64::from(node.memory_mib) << 20,
                template,
                card: card.into(),
            });
        }
        None => card.iter().for_each(|function| args.pair("-device", function.to_string())),
    }
    plan.qemu.args.extend(args.0);
    plan.qemu.args.extend(inputs.cluster.qemu_args.iter().cloned());
    Ok(plan)
}

/// QEMU's process, without the node's arguments.
fn qemu_process(images: &Images, log: PathBuf) -> Result<ProcessPlan, PlanError> {
    let args = images.qemu.leading_args.iter().map(|leading| text(Path::new(leading)));
    let args = args.collect::<Result<_, _>>()?;
    Ok(ProcessPlan { program: images.qemu.program.clone(), args, env: BTreeMap::new(), log })
}

/// `/etc/hosts` of every node, without the loopback, which the guest adds. It lists the nodes, then those cards that
/// are hosts of their own. If a node has the name of a card, the first line counts, which is the node's.
fn hosts(cluster: &Cluster) -> String {
    let nodes = cluster.nodes.iter().map(|node| (node.address(), node.name.clone()));
    let cards = cluster.nodes.iter().filter_map(|node| Some((node.nic_address()?, node.nic_name()?)));
    nodes.chain(cards).fold(String::new(), |mut text, (address, name)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address} {name}");
        text
    })
}

/// The environment of every command, which the agent also reads to configure the guest as this node.
fn node_env(inputs: &Inputs<'_>, node: &Node) -> Result<BTreeMap<String, String>, PlanError> {
    let nodes = &inputs.cluster.nodes;
    let list = |value: fn(&Node) -> String| nodes.iter().map(value).collect::<Vec<_>>().join(",");
    let mut env = vec![
        ("NICLAB_RANK", node.rank.to_string()),
        ("NICLAB_SIZE", nodes.len().to_string()),
        ("NICLAB_NODE", node.name.clone()),
        ("NICLAB_PEERS", list(|peer| peer.name.clone())),
        ("NICLAB_ADDRESSES", list(|peer| peer.address().to_string())),
        ("NICLAB_ADDRESS", format!("{}/{}", node.address(), Node::PREFIX_LENGTH)),
        ("NICLAB_MAC", node.mac().to_string()),
    ];
    if let (Some(address), Some(mac)) = (node.nic_address(), node.nic_mac()) {
        let all = nodes.iter().filter_map(Node::nic_address).map(|address| address.to_string());
        env.push(("NICLAB_NIC_ADDRESSES", all.collect::<Vec<_>>().join(",")));
        // The agent waits for this interface, but a driver of the user's own is loaded later, so it gets no such
        // address.
        if node.driver.is_none() {
            env.push(("NICLAB_NIC_ADDRESS", format!("{address}/{}", Node::PREFIX_LENGTH)));
            env.push(("NICLAB_NIC_MAC", mac.to_string()));
        }
    }
    if let Some(folder) = inputs.share {
        env.extend([("NICLAB_SHARE", "1".to_owned()), ("NICLAB_CWD", text(folder)?)]);
    }
    Ok(env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn text(path: &Path) -> Result<String, PlanError> {
    path.to_str().map(str::to_owned).ok_or_else(|| PlanError::NotUtf8(path.to_owned()))
}

/// A path as a value in an option list, which escapes a comma by a second one.
fn escaped(path: &Path) -> Result<String, PlanError> {
    Ok(double_commas(&text(path)?))
}

fn double_commas(text: &str) -> String {
    text.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use niclab_images::QemuCommand;
    use niclab_spec::Source;
    use serde_json::json;

    use super::*;
    use crate::plan::accelerator::AcceleratorKind;

    /// The plan of nodes that boot.
    fn plan_of(file: &str, share: Option<&str>, root_disk: Option<&str>) -> Plan {
        plan_by(StartMode::Cold, file, share, root_disk)
    }

    fn plan_by(way: StartMode, file: &str, share: Option<&str>, root_disk: Option<&str>) -> Plan {
        let source = Source::from_text("c.toml", file);
        let cluster = source.resolve(&source.cluster_file().unwrap()).unwrap();
        let images = Images {
            qemu: QemuCommand { program: "/t/ld.so".into(), leading_args: vec![OsString::from("/t/qemu")] },
            qemu_version: "11.1.3".into(),
            kernel: "/t/vmlinuz".into(),
            kernel_release: "6.12".into(),
            packed_kernel: "/t/packed".into(),
            initramfs: "/t/initramfs".into(),
            root_disk: root_disk.map(PathBuf::from),
            debug_kernel: None,
            driver: None,
        };
        Plan::new(&Inputs {
            name: &"c".parse().unwrap(),
            cluster: &cluster,
            images: &vec![images; cluster.nodes.len()],
            drivers: &vec![None; cluster.nodes.len()],
            device: Path::new("/t/niclab-device"),
            folder: Path::new("/r,un/c"),
            accelerator: &Accelerator { kind: AcceleratorKind::Tcg, reason: String::new() },
            share: share.map(Path::new),
            start: &Start { way, obstacle: None },
            cache: &Cache::at(Path::new("/cache")).unwrap(),
        })
        .unwrap()
    }

    fn values<'a>(plan: &'a Plan, rank: usize, option: &str) -> Vec<&'a str> {
        let args = &plan.nodes[rank].qemu.args;
        args.iter().zip(&args[1..]).filter(|(a, _)| *a == option).map(|(_, b)| b.as_str()).collect()
    }

    fn devices(plan: &Plan, rank: usize) -> Vec<Value> {
        let devices = values(plan, rank, "-device").into_iter();
        devices.filter_map(|device| serde_json::from_str(device).ok()).collect()
    }

    #[test]
    fn node_has_one_card_with_two_functions_in_its_own_port() {
        let plan = plan_of("", None, None);
        let port = values(&plan, 1, "-device").into_iter().find(|d| d.starts_with("pcie-root-port")).unwrap();
        let [cluster, ethernet] = <[Value; 2]>::try_from(devices(&plan, 1)).unwrap();
        for (function, addr) in [(&cluster, "0.1"), (&ethernet, "0.0")] {
            assert_eq!((&function["addr"], &function["multifunction"]), (&addr.into(), &true.into()));
            assert!(port.contains(&format!("id={},", function["bus"].as_str().unwrap())), "{port}");
        }
        assert_eq!(ethernet["mac"], plan.nodes[1].mac.to_string());
        assert_eq!(ethernet["romfile"], "");
        for (key, value) in [("virtio-id", 38), ("num_vqs", 5), ("vq_size", 256), ("config_size", 256)] {
            assert_eq!(cluster[key], value, "{cluster}");
        }
        assert_eq!(cluster["page-per-vq"], true);
    }

    #[test]
    fn restored_node_has_the_saved_machine_and_a_later_card() {
        let file = "nodes = 3\nmemory_mib = 128\n[[node]]\nname = \"large\"\nmemory_mib = 512";
        let [cold, warm] =
            [StartMode::Cold, StartMode::Template].map(|way| plan_by(way, file, Some("/home/me"), None));
        for (rank, (booted, restored)) in cold.nodes.iter().zip(&warm.nodes).enumerate() {
            let restore = restored.restore.as_ref().unwrap();
            assert_eq!(restore.card, devices(&cold, rank), "the same card");
            assert!(devices(&warm, rank).is_empty() && booted.restore.is_none());
            let recipe = warm
                .templates
                .iter()
                .find(|recipe| u64::from(recipe.memory_mib) << 20 == restore.memory_bytes);
            // The saved guest's arguments in the same order, followed only by arguments that the guest cannot see.
            let saved = &recipe.unwrap().qemu.args;
            let first = saved.iter().position(|arg| arg == "-nodefaults").unwrap();
            let machine = &saved[first..];
            assert!(restored.qemu.args.windows(machine.len()).any(|args| args == machine), "{machine:?}");
            assert!(restore.template.starts_with("/cache/v1/template"));
            assert_eq!(
                values(&warm, rank, "-incoming"),
                [format!("file:{}/state", restore.template.display())]
            );
            assert!(values(&warm, rank, "-object")[0].ends_with("share=on,mem-path=/proc/self/fd/0"));
            // The host is connected from the first instruction on.
            assert!(
                values(&warm, rank, "-chardev")
                    .iter()
                    .any(|c| c.contains("id=agent,") && c.ends_with("wait=on"))
            );
        }
        assert_eq!(warm.templates.len(), 2, "nodes that are alike share one");
        assert_eq!(
            warm.nodes[1].restore.as_ref().unwrap().template,
            warm.nodes[2].restore.as_ref().unwrap().template
        );
        assert_ne!(
            warm.nodes[0].restore.as_ref().unwrap().template,
            warm.nodes[1].restore.as_ref().unwrap().template
        );
    }

    #[test]
    fn restored_node_has_a_kernel_only_if_it_can_reboot() {
        let kernels = |way, file| values(&plan_by(way, file, None, None), 0, "-kernel").len();
        assert_eq!(kernels(StartMode::Cold, ""), 1);
        assert_eq!(kernels(StartMode::Template, ""), 0);
        assert_eq!(kernels(StartMode::Template, "qemu_args = [\"-action\", \"reboot=reset\"]"), 1);
        let template = &plan_by(StartMode::Template, "", None, None).templates[0].qemu.args;
        assert!(template.iter().any(|arg| arg == "-kernel"), "the one that is saved boots");
    }

    #[test]
    fn different_machines_have_different_templates() {
        let folder = |file: &str, share: Option<&str>, disk: Option<&str>| {
            let plan = plan_by(StartMode::Template, file, share, disk);
            plan.nodes[0].restore.as_ref().unwrap().template.clone()
        };
        let usual = folder("", None, None);
        // Backends and the node's identity make no difference.
        assert_eq!(
            folder("seed = 7\n[[node]]\nname = \"other\"\n[nic]\nmodel = \"match\"", None, None),
            usual
        );
        assert_eq!(folder("[[link]]\nmtu_bytes = 9000", None, None), usual);
        let shared = folder("", Some("/home/me"), None);
        assert_eq!(folder("", Some("/home/you"), None), shared);
        let mut others = vec![
            usual,
            shared,
            folder("memory_mib = 128", None, None),
            folder("vcpus = 2", None, None),
            folder("", None, Some("/t/disk")),
        ];
        let disk = tempfile::NamedTempFile::new().unwrap();
        others.push(folder("", None, disk.path().to_str()));
        std::fs::write(disk.path(), "changed").unwrap();
        others.push(folder("", None, disk.path().to_str()));
        let count = others.len();
        others.sort();
        others.dedup();
        assert_eq!(others.len(), count);
    }

    #[test]
    fn node_has_the_queue_pairs_of_the_cluster_file() {
        let plan = plan_of("queues = 4\n[[node]]\nqueues = 1\n[[node]]", None, None);
        let config: DaemonConfig = serde_json::from_str(&plan.files[0].text).unwrap();
        assert_eq!(config.nodes.iter().map(|node| node.queues).collect::<Vec<_>>(), [1, 4]);
        let of = |rank| {
            let card = devices(&plan, rank).into_iter().find(|d| d["driver"] == "virtio-net-pci").unwrap();
            (values(&plan, rank, "-netdev")[0].to_owned(), card["mq"].clone(), card["vectors"].clone())
        };
        assert_eq!(of(0), ("vhost-user,id=net,chardev=ethernet".to_owned(), Value::Null, Value::Null));
        assert_eq!(of(1), ("vhost-user,id=net,chardev=ethernet,queues=4".to_owned(), json!(true), json!(10)));
    }

    #[test]
    fn guest_has_its_links_mtu_and_speed() {
        let file = "nodes = 3\n[[link]]\nbandwidth_bits_per_s = 2_500_000_000\n\
                    [[link]]\nnode = \"node1\"\nmtu_bytes = 9000\nbandwidth_bits_per_s = 1\n\
                    faults = { partition = true }\n\
                    [[link]]\nnode = \"node2\"\nbandwidth_bits_per_s = 9_000_000_000_000_000_000";
        let plan = plan_of(file, None, None);
        let of_ethernet =
            |rank| devices(&plan, rank).into_iter().find(|d| d["driver"] == "virtio-net-pci").unwrap();
        for (rank, mtu, speed) in [(0, 1500, 2_500), (1, 9000, 1), (2, 1500, i32::MAX)] {
            let card = of_ethernet(rank);
            let found = [&card["host_mtu"], &card["speed"], &card["duplex"], &card["id"]];
            assert_eq!(found, [&json!(mtu), &json!(speed), &json!("full"), &json!(qemu::ETHERNET_DEVICE)]);
        }
        assert_eq!(plan.nodes.iter().map(|node| node.is_cut).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn sockets_match_daemon_config_with_commas_escaped_for_qemu() {
        let plan = plan_of("", None, None);
        let config: DaemonConfig = serde_json::from_str(&plan.files[0].text).unwrap();
        assert_eq!(plan.daemon.args, ["--config", plan.files[0].path.to_str().unwrap()]);
        for (rank, node) in config.nodes.iter().enumerate() {
            let chardevs = values(&plan, rank, "-chardev");
            for (id, socket) in [("cluster", &node.cluster_socket), ("ethernet", &node.ethernet_socket)] {
                assert!(socket.starts_with("/r,un/c"));
                let expected = format!("socket,id={id},path={}", socket.to_str().unwrap().replace(',', ",,"));
                assert!(chardevs.contains(&expected.as_str()), "{chardevs:?}");
            }
        }
    }

    #[test]
    fn guest_memory_is_shared_with_the_daemon() {
        let plan = plan_of("[[node]]\nmemory_mib = 128", None, None);
        assert!(values(&plan, 0, "-object").contains(&"memory-backend-memfd,id=mem,size=128M,share=on"));
        assert_eq!(values(&plan, 0, "-m"), ["128M"]);
        assert!(values(&plan, 0, "-append")[0].ends_with("rootfstype=ramfs"), "little memory");
    }

    #[test]
    fn identity_names_rank_size_and_peers() {
        let plan = plan_of("nodes = 3\n[[node]]\nname = \"head\"", Some("/home/me"), None);
        let Identity { env, hosts } = &plan.nodes[1].identity;
        for (name, value) in [
            ("NICLAB_RANK", "1"),
            ("NICLAB_SIZE", "3"),
            ("NICLAB_NODE", "node1"),
            ("NICLAB_PEERS", "head,node1,node2"),
            ("NICLAB_ADDRESSES", "10.77.0.1,10.77.0.2,10.77.0.3"),
            ("NICLAB_ADDRESS", "10.77.0.2/24"),
            ("NICLAB_MAC", &plan.nodes[1].mac.to_string()),
            ("NICLAB_SHARE", "1"),
            ("NICLAB_CWD", "/home/me"),
        ] {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(hosts.lines().any(|line| line == "10.77.0.1 head"), "{hosts}");
        assert!(!env.contains_key("NICLAB_NIC_ADDRESS"), "that card carries nothing else");
        assert!(!plan_of("", None, None).nodes[0].identity.env.contains_key("NICLAB_CWD"));
    }

    #[test]
    fn card_that_is_a_host_has_its_addresses_in_the_identity() {
        let file = "[nic]\nmodel = \"gamma\"\n[[node]]\nname = \"node1-gamma\"\n[[node]]";
        let plan = plan_of(file, None, None);
        let Identity { env, hosts } = &plan.nodes[1].identity;
        for (name, value) in [
            ("NICLAB_NIC_ADDRESSES", "10.79.0.1,10.79.0.2"),
            ("NICLAB_NIC_ADDRESS", "10.79.0.2/24"),
            ("NICLAB_NIC_MAC", "02:6e:6c:01:00:01"),
        ] {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
        }
        let first = hosts.lines().find(|line| line.ends_with(" node1-gamma"));
        assert_eq!(first, Some("10.77.0.1 node1-gamma"), "the node's name comes first\n{hosts}");
        assert!(hosts.lines().any(|line| line == "10.79.0.2 node1-gamma"), "{hosts}");
        let any_folder = env!("CARGO_MANIFEST_DIR");
        let plan = plan_of(&format!("driver = \"{any_folder}\"\n{file}"), None, None);
        let env = &plan.nodes[1].identity.env;
        assert!(
            !env.contains_key("NICLAB_NIC_ADDRESS"),
            "its driver is loaded later, and has perhaps no interface"
        );
        assert!(env.contains_key("NICLAB_NIC_ADDRESSES"), "its peers may have one");
    }

    #[test]
    fn identity_goes_to_the_agent_and_not_to_qemu() {
        // So that the source of the guest does not matter.
        let plan = plan_of("", None, None);
        let args = |rank: usize| plan.nodes[rank].qemu.args.join(" ");
        for word in ["fw_cfg", "10.77.0.1", "NICLAB_"] {
            assert!(!args(0).contains(word), "{}", args(0));
        }
        assert_eq!(plan.files.len(), 1, "the daemon's configuration: {:?}", plan.files);
    }

    #[test]
    fn folder_is_shared_only_on_request() {
        assert!(values(&plan_of("", None, None), 0, "-fsdev").is_empty());
        let plan = plan_of("", Some("/a,b"), None);
        assert!(values(&plan, 0, "-fsdev")[0].starts_with("local,id=cwd,path=/a,,b,security_model=none"));
    }

    #[test]
    fn root_disk_is_shared_read_only() {
        let plan = plan_of("", None, Some("/t/disk"));
        let drive = values(&plan, 0, "-blockdev")[0];
        assert!(drive.contains("read-only=on") && drive.contains("locking=off"), "{drive}");
        assert!(values(&plan, 0, "-device").contains(&"virtio-blk-pci,drive=root,serial=niclab-root"));
    }

    #[test]
    fn users_arguments_come_last_and_take_precedence() {
        let plan = plan_of("qemu_args = [\"-smp\", \"3\"]", None, None);
        assert!(plan.nodes[0].qemu.args.ends_with(&["-smp".into(), "3".into()]));
        assert_eq!(plan.nodes[0].qemu.args[0], "/t/qemu");
    }

    #[test]
    fn plan_survives_json() {
        let plan = plan_of("", None, None);
        assert_eq!(serde_json::from_str::<Plan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    }

    #[test]
    fn path_that_is_not_utf8_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/\xff"));
        assert!(matches!(text(path), Err(PlanError::NotUtf8(_))));
    }
}
