//! Everything that a cluster will start, as data: every process with its arguments, every file with its text.
//!
//! Nothing here looks at the system or changes it. `niclab plan` prints a plan; `niclab run` and `up` carry it out.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use niclab_agent::Identity;
use niclab_images::Images;
use niclab_spec::{
    Cluster, ClusterName, LinkConfig, MacAddress, Node,
    daemon::{DaemonConfig, NodeSockets},
    pci,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::accelerator::{Accelerator, Kind};

/// The version of the plan's JSON.
pub const PLAN_VERSION: u32 = 2;

/// QEMU's name of each guest's Ethernet function.
pub const ETHERNET_DEVICE: &str = "ethernet-function";

/// The slot in which each guest finds its card.
const CARD_SLOT: &str = "0x5";

/// `panic=-1` with `-no-reboot` makes a guest panic end its QEMU, which the launcher notices at once. `no_timer_check`
/// because the kernel otherwise counts timer ticks while it spins, and panics ("IO-APIC + timer doesn't work") where
/// a loaded host gave QEMU's timer thread no turn meanwhile.
///
/// Self-tests of ciphers, and of the entropy source that counts timer jitter, are a fifth of an emulated boot. They prove
/// nothing about an emulated processor, and the guest has a random number device.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests \
                                initcall_blacklist=jent_mod_init,crypto_kdf108_init";

/// Below this a tmpfs, which takes at most half the memory, cannot hold the initramfs, and files in it would silently
/// stay empty. A ramfs takes what it needs; with more memory the limit is worth having.
const TMPFS_MEMORY_MIB: u32 = 160;

/// A plan cannot be made.
#[derive(Debug, Error)]
pub enum PlanError {
    /// JSON and QEMU's arguments are text.
    #[error("the path {} is not UTF-8; move it to one that is", .0.display())]
    NotUtf8(PathBuf),
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The cluster's name.
    pub name: &'a ClusterName,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The images of each node, by rank.
    pub images: &'a [Images],
    /// The daemon's program.
    pub device: &'a Path,
    /// The cluster's folder, for sockets, logs and files.
    pub folder: &'a Path,
    /// The accelerator.
    pub accelerator: &'a Accelerator,
    /// The host's folder that guests see at the same path.
    pub share: Option<&'a Path>,
}

/// A whole plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// The cluster's name.
    pub name: ClusterName,
    /// The NIC model.
    pub nic: String,
    /// The accelerator, and why.
    pub accelerator: Accelerator,
    /// QEMU's version.
    pub qemu_version: String,
    /// Release of the guest kernel.
    pub kernel_release: String,
    /// Files to write first.
    pub files: Vec<FilePlan>,
    /// The daemon, which starts first.
    pub daemon: ProcessPlan,
    /// Where the daemon answers questions.
    pub monitor_socket: PathBuf,
    /// The guests, by rank.
    pub nodes: Vec<NodePlan>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlan {
    /// Where.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPlan {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to the environment.
    pub env: BTreeMap<String, String>,
    /// Where its messages go.
    pub log: PathBuf,
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
    /// What the guest writes to its serial console.
    pub console: PathBuf,
    /// Where the guest's agent is reached.
    pub agent_socket: PathBuf,
    /// Where QEMU itself is reached.
    pub qmp_socket: PathBuf,
    /// The link is cut from the start: the guest's Ethernet function has no carrier.
    pub is_cut: bool,
    /// What its agent is told that it is.
    pub identity: Identity,
}

impl Plan {
    /// Makes the plan.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn new(inputs: &Inputs<'_>) -> Result<Self, PlanError> {
        let Inputs { name, cluster, images, device, folder, accelerator, .. } = *inputs;
        let monitor_socket = folder.join("monitor.sock");
        let config = DaemonConfig::new(cluster, name, monitor_socket.clone(), |rank| NodeSockets {
            cluster_socket: folder.join(format!("{rank}.cluster")),
            ethernet_socket: folder.join(format!("{rank}.ether")),
        });
        let config_path = folder.join("daemon.json");
        // A struct of strings, numbers and lists always has a JSON form.
        let config_text = serde_json::to_string_pretty(&config).unwrap_or_default();
        let files = vec![FilePlan { path: config_path.clone(), text: config_text }];
        let mut nodes = Vec::new();
        for ((node, sockets), images) in cluster.nodes.iter().zip(&config.nodes).zip(images) {
            let cards = [text(&sockets.ethernet_socket)?, text(&sockets.cluster_socket)?];
            nodes.push(node_plan(inputs, node, images, cards)?);
        }
        let about = images.first();
        Ok(Self {
            version: PLAN_VERSION,
            name: name.clone(),
            nic: cluster.nodes.first().map_or("", |node| node.nic.model.name()).to_owned(),
            accelerator: accelerator.clone(),
            qemu_version: about.map(|images| images.qemu_version.clone()).unwrap_or_default(),
            kernel_release: about.map(|images| images.kernel_release.clone()).unwrap_or_default(),
            files,
            daemon: ProcessPlan {
                program: device.to_owned(),
                args: vec!["--config".to_owned(), text(&config_path)?],
                env: BTreeMap::new(),
                log: folder.join("daemon.log"),
            },
            monitor_socket,
            nodes,
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
    cards: [String; 2],
) -> Result<NodePlan, PlanError> {
    let (folder, rank) = (inputs.folder, node.rank);
    let mut plan = NodePlan {
        rank,
        name: node.name.clone(),
        address: node.address(),
        mac: node.mac(),
        qemu: ProcessPlan {
            program: images.qemu.program.clone(),
            args: Vec::new(),
            env: BTreeMap::new(),
            log: folder.join(format!("{rank}.qemu.log")),
        },
        console: folder.join(format!("{rank}.console")),
        agent_socket: folder.join(format!("{rank}.agent")),
        qmp_socket: folder.join(format!("{rank}.qmp")),
        is_cut: node.link.faults.partition,
        identity: Identity { env: node_env(inputs, node)?, hosts: hosts(inputs.cluster) },
    };
    for leading in &images.qemu.leading_args {
        plan.qemu.args.push(text(Path::new(leading))?);
    }
    let mut args = Arguments(&mut plan.qemu.args);
    args.machine(inputs.name, node, inputs.accelerator);
    args.boot(node, images)?;
    args.card(node, &cards);
    args.console(&plan.console)?;
    args.agent(&plan.agent_socket)?;
    args.pair("-qmp", format!("unix:{},server=on,wait=off", escaped(&plan.qmp_socket)?));
    args.share(inputs.share)?;
    plan.qemu.args.extend(inputs.cluster.qemu_args.iter().cloned());
    Ok(plan)
}

/// QEMU's arguments, each group with the reason for it.
struct Arguments<'a>(&'a mut Vec<String>);

impl Arguments<'_> {
    fn pair(&mut self, option: &str, value: impl Into<String>) {
        self.0.extend([option.to_owned(), value.into()]);
    }

    fn machine(&mut self, cluster: &ClusterName, node: &Node, accelerator: &Accelerator) {
        self.pair("-name", format!("{cluster}/{}", node.name));
        // Nothing that is not asked for: each default device costs boot time.
        self.0.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
        self.pair("-display", "none");
        // The daemon reads and writes guest memory, so it is a file that both map.
        self.pair("-machine", "q35,memory-backend=mem,vmport=off");
        self.pair("-m", format!("{}M", node.memory_mib));
        self.pair("-object", format!("memory-backend-memfd,id=mem,size={}M,share=on", node.memory_mib));
        self.pair("-smp", node.vcpus.to_string());
        let (accelerator, cpu) = match accelerator.kind {
            Kind::Kvm => ("kvm", "host"),
            // All that TCG can do, so that programs built for newer processors run.
            Kind::Tcg => ("tcg,thread=multi", "max"),
        };
        self.pair("-accel", accelerator);
        self.pair("-cpu", cpu);
        self.pair("-device", "virtio-rng-pci");
    }

    fn boot(&mut self, node: &Node, images: &Images) -> Result<(), PlanError> {
        self.pair("-kernel", text(&images.kernel)?);
        self.pair("-initrd", text(&images.initramfs)?);
        let root = if node.memory_mib < TMPFS_MEMORY_MIB { " rootfstype=ramfs" } else { "" };
        self.pair("-append", format!("{KERNEL_ARGUMENTS}{root}"));
        if let Some(disk) = &images.root_disk {
            // Shared by all nodes, so it is neither written nor locked.
            let file = escaped(disk)?;
            self.pair(
                "-blockdev",
                format!("driver=file,node-name=root,filename={file},read-only=on,locking=off"),
            );
            self.pair("-device", "virtio-blk-pci,drive=root,serial=niclab-root");
        }
        Ok(())
    }

    /// One card with two functions: Ethernet (which must say that there is another one) and cluster.
    fn card(&mut self, node: &Node, [ethernet_socket, cluster_socket]: &[String; 2]) {
        let mac = node.mac();
        self.pair("-chardev", format!("socket,id=ethernet,path={}", double_commas(ethernet_socket)));
        self.pair("-netdev", "vhost-user,id=net,chardev=ethernet");
        // Guests know the usual MTU by themselves.
        let mtu = match node.link.mtu_bytes {
            LinkConfig::DEFAULT_MTU_BYTES => String::new(),
            bytes => format!(",host_mtu={bytes}"),
        };
        // `romfile=` because a boot ROM would look for a network to boot from first.
        self.pair(
            "-device",
            format!(
                "virtio-net-pci,id={ETHERNET_DEVICE},netdev=net,mac={mac}{mtu},romfile=,addr={CARD_SLOT}.0,\
                 multifunction=on"
            ),
        );
        self.pair("-chardev", format!("socket,id=cluster,path={}", double_commas(cluster_socket)));
        // `page-per-vq=on` gives the doorbell a page of its own, which can then be mapped into a program.
        self.pair(
            "-device",
            format!(
                "vhost-user-test-device-pci,chardev=cluster,virtio-id={},num_vqs={},vq_size={},config_size={},\
                 page-per-vq=on,addr={CARD_SLOT}.1",
                pci::VIRTIO_ID,
                pci::CLUSTER_QUEUES,
                pci::QUEUE_SIZE,
                pci::CONFIG_SIZE
            ),
        );
    }

    fn console(&mut self, console: &Path) -> Result<(), PlanError> {
        self.pair("-chardev", format!("file,id=console,path={}", escaped(console)?));
        self.pair("-serial", "chardev:console");
        Ok(())
    }

    fn agent(&mut self, socket: &Path) -> Result<(), PlanError> {
        self.pair("-device", "virtio-serial-pci");
        self.pair("-chardev", format!("socket,id=agent,path={},server=on,wait=off", escaped(socket)?));
        self.pair("-device", format!("virtserialport,chardev=agent,name={}", niclab_agent::PORT_NAME));
        Ok(())
    }

    fn share(&mut self, folder: Option<&Path>) -> Result<(), PlanError> {
        let Some(folder) = folder else { return Ok(()) };
        // `none` keeps owners and modes as they are, and asks for no privileges; `remap` lets the folder hold mounts.
        let options = "security_model=none,multidevs=remap";
        self.pair("-fsdev", format!("local,id=cwd,path={},{options}", escaped(folder)?));
        self.pair("-device", "virtio-9p-pci,fsdev=cwd,mount_tag=cwd");
        Ok(())
    }
}

/// `/etc/hosts` of every node, without the loopback, which the guest adds.
fn hosts(cluster: &Cluster) -> String {
    cluster.nodes.iter().fold(String::new(), |mut text, node| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {}", node.address(), node.name);
        text
    })
}

/// What every command finds in its environment, and the agent reads to make the guest this node.
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
    if let Some(folder) = inputs.share {
        env.extend([("NICLAB_SHARE", "1".to_owned()), ("NICLAB_CWD", text(folder)?)]);
    }
    Ok(env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn text(path: &Path) -> Result<String, PlanError> {
    path.to_str().map(str::to_owned).ok_or_else(|| PlanError::NotUtf8(path.to_owned()))
}

/// A path as the value of an option list, in which a comma stands doubled.
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

    use super::*;

    fn plan_of(file: &str, share: Option<&str>, root_disk: Option<&str>) -> Plan {
        let source = Source::from_text("c.toml", file);
        let cluster = source.resolve(&source.cluster_file().unwrap()).unwrap();
        let images = Images {
            qemu: QemuCommand { program: "/t/ld.so".into(), leading_args: vec![OsString::from("/t/qemu")] },
            qemu_version: "11.1.3".into(),
            kernel: "/t/vmlinuz".into(),
            kernel_release: "6.12".into(),
            initramfs: "/t/initramfs".into(),
            root_disk: root_disk.map(PathBuf::from),
        };
        Plan::new(&Inputs {
            name: &"c".parse().unwrap(),
            cluster: &cluster,
            images: &vec![images; cluster.nodes.len()],
            device: Path::new("/t/niclab-device"),
            folder: Path::new("/r,un/c"),
            accelerator: &Accelerator { kind: Kind::Tcg, reason: String::new() },
            share: share.map(Path::new),
        })
        .unwrap()
    }

    fn values<'a>(plan: &'a Plan, rank: usize, option: &str) -> Vec<&'a str> {
        let args = &plan.nodes[rank].qemu.args;
        args.iter().zip(&args[1..]).filter(|(a, _)| *a == option).map(|(_, b)| b.as_str()).collect()
    }

    #[test]
    fn a_node_has_one_card_with_two_functions() {
        let plan = plan_of("", None, None);
        let devices = values(&plan, 1, "-device");
        let ethernet = devices.iter().find(|d| d.starts_with("virtio-net-pci")).unwrap();
        assert!(
            ethernet.contains("addr=0x5.0,multifunction=on") && ethernet.contains("romfile=,"),
            "{ethernet}"
        );
        assert!(ethernet.contains(&format!("mac={}", plan.nodes[1].mac)));
        let cluster = devices.iter().find(|d| d.starts_with("vhost-user-test-device-pci")).unwrap();
        for part in
            ["virtio-id=38", "num_vqs=5", "vq_size=256", "config_size=256", "page-per-vq=on", "addr=0x5.1"]
        {
            assert!(cluster.contains(part), "{cluster}");
        }
    }

    #[test]
    fn a_guest_is_told_an_unusual_mtu_and_the_launcher_of_a_cut_link() {
        let file = "[[link]]\nnode = \"node1\"\nmtu_bytes = 9000\nfaults = { partition = true }";
        let plan = plan_of(file, None, None);
        let of_ethernet =
            |rank| values(&plan, rank, "-device").into_iter().find(|d| d.starts_with("virtio-net-pci"));
        assert!(!of_ethernet(0).unwrap().contains("host_mtu"));
        assert!(of_ethernet(1).unwrap().contains(",host_mtu=9000,"));
        assert!(of_ethernet(1).unwrap().contains(&format!("id={ETHERNET_DEVICE},")));
        assert_eq!(plan.nodes.iter().map(|node| node.is_cut).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn sockets_match_the_daemons_configuration_with_commas_escaped_for_qemu_only() {
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
    fn an_identity_names_rank_size_and_peers() {
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
        assert!(!plan_of("", None, None).nodes[0].identity.env.contains_key("NICLAB_CWD"));
    }

    #[test]
    fn what_a_node_is_its_agent_is_told_and_not_qemu() {
        // So that it does not matter where the guest comes from.
        let plan = plan_of("", None, None);
        let args = |rank: usize| plan.nodes[rank].qemu.args.join(" ");
        for word in ["fw_cfg", "10.77.0.1", "NICLAB_"] {
            assert!(!args(0).contains(word), "{}", args(0));
        }
        assert_eq!(plan.files.len(), 1, "the daemon's configuration: {:?}", plan.files);
    }

    #[test]
    fn the_folder_is_shared_only_when_asked_for() {
        assert!(values(&plan_of("", None, None), 0, "-fsdev").is_empty());
        let plan = plan_of("", Some("/a,b"), None);
        assert!(values(&plan, 0, "-fsdev")[0].starts_with("local,id=cwd,path=/a,,b,security_model=none"));
    }

    #[test]
    fn a_root_disk_is_shared_read_only() {
        let plan = plan_of("", None, Some("/t/disk"));
        let drive = values(&plan, 0, "-blockdev")[0];
        assert!(drive.contains("read-only=on") && drive.contains("locking=off"), "{drive}");
        assert!(values(&plan, 0, "-device").contains(&"virtio-blk-pci,drive=root,serial=niclab-root"));
    }

    #[test]
    fn the_users_arguments_come_last_so_that_they_win() {
        let plan = plan_of("qemu_args = [\"-smp\", \"3\"]", None, None);
        assert!(plan.nodes[0].qemu.args.ends_with(&["-smp".into(), "3".into()]));
        assert_eq!(plan.nodes[0].qemu.args[0], "/t/qemu");
    }

    #[test]
    fn a_plan_survives_json() {
        let plan = plan_of("", None, None);
        assert_eq!(serde_json::from_str::<Plan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    }

    #[test]
    fn a_path_that_is_not_text_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/\xff"));
        assert!(matches!(text(path), Err(PlanError::NotUtf8(_))));
    }
}
