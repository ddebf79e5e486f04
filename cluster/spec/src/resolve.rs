//! Turns a cluster file into a cluster in which every node has all its values and every value is valid.

use std::{
    collections::{BTreeSet, HashSet},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use niclab_abi::{config::FEATURE_RINGS, rings::RING_STATION};
use niclab_model::fabric::ethernet::mac_of_endpoint;

use crate::{
    AcceleratorChoice, BootChoice, ClusterFile, ClusterName, DeviceFaults, Faults, Forwarding, Framing,
    LinkConfig, LinkEntry, MacAddress, NicConfig, NodeEntry, OnNodeExit, Problem, Profile, RuleChecking,
    Source, SpecError,
    name::{ClusterNameError, LABEL_REMEDY, is_label},
    pci::MAX_QUEUE_PAIRS,
    renamed,
};

/// Maximum number of nodes of a simulated cluster.
pub const MAX_NODES: u32 = 4_096;

/// Maximum number of nodes of a booted cluster, in which each node is a QEMU.
pub const MAX_BOOTED_NODES: u32 = 64;

/// Minimum memory, in MiB, in which the guest kernel can unpack its initramfs.
pub const MIN_MEMORY_MIB: u32 = 96;

/// A cluster with all its values, which are valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The name in the file, if any.
    pub name: Option<ClusterName>,
    /// The nodes, by rank. Never empty.
    pub nodes: Vec<Node>,
    /// The kernel of all nodes.
    pub kernel: GuestKernel,
    /// A root file system of the user's own.
    pub image: Option<PathBuf>,
    /// More arguments for every QEMU.
    pub qemu_args: Vec<String>,
    /// How QEMU executes the guests' instructions.
    pub accelerator: AcceleratorChoice,
    /// How nodes start.
    pub boot: BootChoice,
    /// The prices.
    pub profile: Profile,
    /// How the switch forwards.
    pub forwarding: Forwarding,
    /// Framing on the links.
    pub framing: Framing,
    /// Programs run in lockstep: one at a time, in the order of model time.
    pub lockstep: bool,
    /// What happens when a driver breaks a rule.
    pub rules: RuleChecking,
    /// What happens to the other nodes when a node ends.
    pub on_node_exit: OnNodeExit,
    /// The seed of all random decisions.
    pub seed: u64,
}

/// The kernel that guests run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GuestKernel {
    /// Debian's kernel.
    #[default]
    Stock,
    /// The same release, built with debugging tools, which find bugs of drivers.
    Debug,
    /// A kernel of the user's own.
    Own(PathBuf),
}

impl GuestKernel {
    /// The name of [`Self::Debug`] in cluster files and on the command line.
    pub const DEBUG: &str = "debug";

    /// Whether `name`, which a user gave as the kernel, means [`Self::Debug`].
    #[must_use]
    pub fn is_debug(name: &Path) -> bool {
        name.to_str().is_some_and(|name| renamed::new_name(&renamed::VALUES, name) == Self::DEBUG)
    }

    /// The factor for all timeouts of guests. With the debug kernel, QEMU also emulates all the kernel's checks.
    #[must_use]
    pub const fn timeout_factor(&self) -> u32 {
        match self {
            Self::Stock | Self::Own(_) => 1,
            Self::Debug => 8,
        }
    }

    /// Minimum memory of a node, in MiB. The debug kernel needs more for its own records.
    #[must_use]
    pub const fn least_memory_mib(&self) -> u32 {
        match self {
            Self::Stock | Self::Own(_) => MIN_MEMORY_MIB,
            Self::Debug => 512,
        }
    }
}

impl Cluster {
    /// Sets the kernel of all nodes, and raises their memory to its minimum.
    pub fn set_kernel(&mut self, kernel: GuestKernel) {
        for node in &mut self.nodes {
            node.memory_mib = node.memory_mib.max(kernel.least_memory_mib());
        }
        self.kernel = kernel;
    }
}

/// One node of a [`Cluster`].
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Position in the cluster, from 0.
    pub rank: u16,
    /// Host name.
    pub name: String,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Queue pairs of the Ethernet function.
    pub queues: u32,
    /// Debian packages, sorted, each once.
    pub packages: Vec<String>,
    /// The NIC.
    pub nic: NicConfig,
    /// Faults of the NIC.
    pub device_faults: DeviceFaults,
    /// Seed of the NIC's adversarial mode; `None` if it is not adversarial.
    pub adversarial: Option<u64>,
    /// The link to the switch.
    pub link: LinkConfig,
    /// A driver of the user's own, instead of niclab's.
    pub driver: Option<Driver>,
}

/// A driver of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The folder of its source, or the module.
    pub path: PathBuf,
    /// Its parameters, in `insmod`'s form.
    pub args: Vec<String>,
}

impl Cluster {
    /// Makes every card adversarial with this seed, if there is one.
    pub fn make_adversarial(&mut self, seed: Option<u64>) {
        if seed.is_some() {
            self.nodes.iter_mut().for_each(|node| node.adversarial = seed);
        }
    }
}

impl Node {
    /// Length of the cluster network's prefix.
    pub const PREFIX_LENGTH: u8 = 24;

    /// The address of the Ethernet function: 10.77.0.1 for rank 0. The network is the cluster's own and is not routed,
    /// so all clusters use the same.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        let host = u32::from(self.rank) + 1;
        Ipv4Addr::from_bits(Ipv4Addr::new(10, 77, 0, 0).to_bits() + host)
    }

    /// The Ethernet address of the card.
    #[must_use]
    pub fn mac(&self) -> MacAddress {
        MacAddress::of_rank(self.rank)
    }

    /// Whether the card also carries other protocols, with a network interface of its own.
    #[must_use]
    pub fn has_nic_interface(&self) -> bool {
        self.nic.model.has(FEATURE_RINGS)
    }

    /// The address of the card's own interface: 10.79.0.1 for rank 0. This network differs from that of the Ethernet
    /// functions, so the address selects the path of packets.
    #[must_use]
    pub fn nic_address(&self) -> Option<Ipv4Addr> {
        let host = u32::from(self.rank) + 1;
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 79, 0, 0).to_bits() + host);
        self.has_nic_interface().then_some(address)
    }

    /// The Ethernet address of the card's own interface.
    #[must_use]
    pub fn nic_mac(&self) -> Option<MacAddress> {
        self.has_nic_interface().then(|| MacAddress(mac_of_endpoint(self.rank, RING_STATION)))
    }

    /// The host name of the card's own interface in `/etc/hosts`: the node's name and the model's.
    #[must_use]
    pub fn nic_name(&self) -> Option<String> {
        self.has_nic_interface().then(|| format!("{}-{}", self.name, self.nic.model.name))
    }
}

/// The number of nodes.
fn count_of(file: &ClusterFile) -> u32 {
    let listed = u32::try_from(file.node.len()).unwrap_or(u32::MAX);
    file.nodes.unwrap_or(if listed == 0 { 2 } else { listed })
}

impl Source {
    /// Reads this text as a cluster file; [`Self::resolve`] is the next step.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] with the location of the syntax error.
    pub fn cluster_file(&self) -> Result<ClusterFile, SpecError> {
        self.parse()
    }

    /// Completes and checks all values. `file` is the contents of this source, with changes of the command line.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] with every invalid value and its location; [`SpecError::Read`] for a profile that cannot
    /// be read.
    pub fn resolve(&self, file: &ClusterFile) -> Result<Cluster, SpecError> {
        let profile = self.load_profile(file)?;
        let mut check = Checker { source: self, problems: Vec::new() };
        let own_name = check.name(file);
        check.cluster(file);
        check.own_files(file);
        check.drivers(file);
        let names = check.node_names(file);
        check.links(file, &names);
        check.machines(file, &profile);
        if !check.problems.is_empty() {
            return Err(SpecError::Invalid(check.problems));
        }
        let nodes =
            (0u16..).zip(&names).map(|(rank, name)| self.node_of(file, rank, name, &profile)).collect();
        let mut cluster = Cluster {
            name: own_name,
            nodes,
            kernel: GuestKernel::Stock,
            image: file.image.as_deref().map(|path| self.path_of(path)),
            qemu_args: file.qemu_args.clone(),
            accelerator: file.accelerator,
            boot: file.boot,
            forwarding: file.forwarding.unwrap_or(profile.forwarding),
            framing: file.framing.unwrap_or(profile.framing),
            profile,
            lockstep: file.lockstep.unwrap_or(false),
            rules: file.rules,
            on_node_exit: file.on_node_exit,
            seed: file.seed,
        };
        cluster.set_kernel(self.kernel_of(file));
        Ok(cluster)
    }

    fn kernel_of(&self, file: &ClusterFile) -> GuestKernel {
        match file.kernel.as_deref() {
            None => GuestKernel::Stock,
            Some(name) if GuestKernel::is_debug(name) => GuestKernel::Debug,
            Some(path) => GuestKernel::Own(self.path_of(path)),
        }
    }

    /// [`Self::resolve`] for a cluster that is booted, not simulated.
    ///
    /// # Errors
    /// As [`Self::resolve`], and [`SpecError::Invalid`] if this number of nodes cannot be booted.
    pub fn resolve_booted(&self, file: &ClusterFile) -> Result<Cluster, SpecError> {
        let count = count_of(file);
        if !(1..=MAX_BOOTED_NODES).contains(&count) {
            // Before all else, because the other limits are those of a simulation.
            let what = format!("{count} nodes cannot be booted; each node is a virtual machine");
            let remedy =
                format!("use 1 to {MAX_BOOTED_NODES}, or simulate up to {MAX_NODES} with `niclab sim`");
            return Err(SpecError::Invalid(vec![self.problem("nodes", what, remedy)]));
        }
        let cluster = self.resolve(file)?;
        match self.check_booted(&cluster) {
            Some(problem) => Err(SpecError::Invalid(vec![problem])),
            None => Ok(cluster),
        }
    }

    /// The problem that prevents a boot of `cluster`, which this source describes.
    fn check_booted(&self, cluster: &Cluster) -> Option<Problem> {
        // Access to the wire depends on all nodes at each instant, but guests run freely.
        let what = "a wire that all nodes share works only in the simulator";
        let remedy = "use `niclab sim`, or forwarding = \"cut-through\"";
        cluster.forwarding.is_shared().then(|| self.problem("forwarding", what, remedy))
    }

    fn node_of(&self, file: &ClusterFile, rank: u16, name: &str, profile: &Profile) -> Node {
        let own = file.node.get(usize::from(rank)).cloned().unwrap_or_default();
        let packages: BTreeSet<String> =
            own.packages.unwrap_or_else(|| file.packages.clone()).into_iter().collect();
        let args = own.driver_args.as_ref().unwrap_or(&file.driver_args);
        let driver = own.driver.as_ref().or(file.driver.as_ref()).map(|path| Driver {
            path: self.path_of(path),
            args: args.split_whitespace().map(str::to_owned).collect(),
        });
        Node {
            rank,
            name: name.to_owned(),
            memory_mib: own.memory_mib.unwrap_or(file.memory_mib),
            vcpus: own.vcpus.unwrap_or(file.vcpus),
            queues: own.queues.unwrap_or(file.queues),
            packages: packages.into_iter().collect(),
            nic: own.nic.unwrap_or_else(|| file.nic.clone()),
            device_faults: own.device_faults.unwrap_or_else(|| file.device_faults.clone()),
            adversarial: own.adversarial.or(file.adversarial),
            link: link_of(file, name, profile),
            driver,
        }
    }

    fn load_profile(&self, file: &ClusterFile) -> Result<Profile, SpecError> {
        let wanted = file.profile.as_deref().unwrap_or_else(|| file.nic.model.default_profile);
        if Profile::is_path(wanted) {
            return Profile::read(&self.path_of(Path::new(wanted)));
        }
        Profile::bundled(wanted).ok_or_else(|| {
            let what = format!("there is no profile `{wanted}`");
            SpecError::Invalid(vec![self.problem("profile", what, Profile::remedy_of_name(wanted))])
        })
    }
}

/// The node's own entry overrides the entry for all nodes, which overrides the profile.
fn link_of(file: &ClusterFile, name: &str, profile: &Profile) -> LinkConfig {
    let own = file.link.iter().find(|link| link.node.as_deref() == Some(name));
    let common = file.link.iter().find(|link| link.node.is_none());
    let entries = || own.into_iter().chain(common);
    LinkConfig {
        bandwidth_bits_per_s: entries()
            .find_map(|l| l.bandwidth_bits_per_s)
            .unwrap_or(profile.network.link_bandwidth_bits_per_s.value),
        latency_ns: entries().find_map(|l| l.latency_ns).unwrap_or(profile.network.link_latency_ns.value),
        mtu_bytes: entries().find_map(|l| l.mtu_bytes).unwrap_or(LinkConfig::DEFAULT_MTU_BYTES),
        queue_frames: entries().find_map(|l| l.queue_frames).unwrap_or(LinkConfig::DEFAULT_QUEUE_FRAMES),
        faults: entries().find_map(|l| l.faults).unwrap_or_default(),
    }
}

struct Checker<'a> {
    source: &'a Source,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn report(&mut self, path: &str, what: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(self.source.problem(path, what, remedy));
    }

    fn name(&mut self, file: &ClusterFile) -> Option<ClusterName> {
        let parsed = file.name.as_deref()?.parse();
        parsed
            .map_err(|ClusterNameError(name)| {
                self.report("name", format!("`{name}` is not a cluster name"), LABEL_REMEDY);
            })
            .ok()
    }

    fn cluster(&mut self, file: &ClusterFile) {
        self.memory("memory_mib", Some(file.memory_mib));
        self.vcpus("vcpus", Some(file.vcpus));
        self.queues("queues", Some(file.queues));
        self.packages("packages", &file.packages);
        self.nic("nic", &file.nic);
        self.device_faults("device_faults", &file.device_faults);
        for (i, node) in file.node.iter().enumerate() {
            self.node(&format!("node[{i}]"), node);
        }
    }

    fn node(&mut self, path: &str, node: &NodeEntry) {
        self.memory(&format!("{path}.memory_mib"), node.memory_mib);
        self.vcpus(&format!("{path}.vcpus"), node.vcpus);
        self.queues(&format!("{path}.queues"), node.queues);
        self.packages(&format!("{path}.packages"), node.packages.as_deref().unwrap_or_default());
        if let Some(nic) = &node.nic {
            self.nic(&format!("{path}.nic"), nic);
        }
        if let Some(faults) = &node.device_faults {
            self.device_faults(&format!("{path}.device_faults"), faults);
        }
    }

    fn drivers(&mut self, file: &ClusterFile) {
        let nodes = file.node.iter().enumerate();
        let of_nodes = nodes.map(|(i, node)| {
            (format!("node[{i}]."), node.driver.as_ref(), node.driver_args.as_deref().unwrap_or_default())
        });
        let of_cluster = [(String::new(), file.driver.as_ref(), file.driver_args.as_str())];
        for (place, driver, args) in of_cluster.into_iter().chain(of_nodes) {
            if let Some(path) = driver.map(|path| self.source.path_of(path))
                && !path.exists()
            {
                let what = format!("there is neither a folder nor a file {}", path.display());
                let fix = "correct the path, which starts at the folder of the cluster file";
                self.report(&format!("{place}driver"), what, fix);
            }
            // The cluster's parameters apply to every node that has a driver of its own.
            let has_driver = driver.is_some()
                || file.driver.is_some()
                || (place.is_empty() && file.node.iter().any(|node| node.driver.is_some()));
            if !args.is_empty() && !has_driver {
                let (what, fix) =
                    ("there are parameters, but no driver of your own", "give one: driver = \"FOLDER\"");
                self.report(&format!("{place}driver_args"), what, fix);
            }
        }
    }

    fn own_files(&mut self, file: &ClusterFile) {
        let kernel = match self.source.kernel_of(file) {
            GuestKernel::Own(path) => Some(path),
            GuestKernel::Stock | GuestKernel::Debug => None,
        };
        let image = file.image.as_deref().map(|path| self.source.path_of(path));
        let of_image = "correct the path, which starts at the folder of the cluster file";
        let of_kernel = format!(
            "{of_image}, or write `{}`: the kernel that `niclab kernel build` makes",
            GuestKernel::DEBUG
        );
        if let Some(path) = kernel.filter(|path| !path.exists()) {
            let what = format!("there is neither a file nor a folder {}", path.display());
            self.report("kernel", what, &of_kernel);
        }
        if let Some(path) = image.filter(|path| !path.is_file()) {
            self.report("image", format!("there is no file {}", path.display()), of_image);
        }
        let nodes_packages = file.node.iter().filter_map(|node| node.packages.as_ref());
        if file.image.is_some() && nodes_packages.chain([&file.packages]).any(|packages| !packages.is_empty())
        {
            self.report(
                "image",
                "an image of your own cannot be combined with `packages`",
                "omit `image` or `packages`",
            );
        }
    }

    fn memory(&mut self, path: &str, memory_mib: Option<u32>) {
        if let Some(mib) = memory_mib.filter(|mib| !(MIN_MEMORY_MIB..=1 << 20).contains(mib)) {
            self.report(
                path,
                format!("{mib} MiB of memory is not valid: the kernel needs at least {MIN_MEMORY_MIB} MiB"),
                format!("use {MIN_MEMORY_MIB} to 1048576"),
            );
        }
    }

    fn vcpus(&mut self, path: &str, vcpus: Option<u32>) {
        if let Some(vcpus) = vcpus.filter(|vcpus| !(1..=64).contains(vcpus)) {
            self.report(path, format!("{vcpus} virtual CPUs are not supported"), "use 1 to 64");
        }
    }

    fn queues(&mut self, path: &str, queues: Option<u32>) {
        if let Some(queues) = queues.filter(|queues| !(1..=MAX_QUEUE_PAIRS).contains(queues)) {
            let what = format!("an Ethernet function with {queues} queue pairs is not supported");
            self.report(path, what, format!("use 1 to {MAX_QUEUE_PAIRS}"));
        }
    }

    fn packages(&mut self, path: &str, packages: &[String]) {
        for name in packages.iter().filter(|name| !is_package_name(name)) {
            // The names become arguments of apt-get, where a name with a leading hyphen would be an option.
            self.report(
                path,
                format!("`{name}` is not a Debian package name"),
                "package names consist of lower-case letters, digits, `+`, `-` and `.`, as in iperf3 or libstdc++6",
            );
        }
    }

    fn nic(&mut self, path: &str, nic: &NicConfig) {
        for (key, what, remedy) in nic.problems() {
            self.report(&format!("{path}.{key}"), what, remedy);
        }
    }

    fn device_faults(&mut self, path: &str, faults: &DeviceFaults) {
        for problem in faults.problems() {
            self.report(&format!("{path}.{}", problem.key), problem.what, problem.remedy);
        }
    }

    /// The name of every node, by rank; the number of names is the number of nodes.
    fn node_names(&mut self, file: &ClusterFile) -> Vec<String> {
        let listed = u32::try_from(file.node.len()).unwrap_or(u32::MAX);
        let count = count_of(file);
        if !(1..=MAX_NODES).contains(&count) {
            self.report(
                "nodes",
                format!("a cluster of {count} nodes is not supported"),
                format!("use 1 to {MAX_NODES}"),
            );
        }
        if listed > count {
            self.report(
                "nodes",
                format!("`nodes` is {count}, but there are {listed} [[node]] entries"),
                "omit `nodes`, or raise it",
            );
        }
        let mut names = Vec::new();
        let mut seen = HashSet::new();
        for rank in 0..count.min(MAX_NODES) as usize {
            let own = file.node.get(rank).and_then(|node| node.name.clone());
            let path = format!("node[{rank}].name");
            let name = own.unwrap_or_else(|| format!("node{rank}"));
            if !is_label(&name) || matches!(name.as_str(), "localhost" | "host") {
                self.report(&path, format!("`{name}` is not valid as the host name of a node"), LABEL_REMEDY);
            }
            if !seen.insert(name.clone()) {
                self.report(
                    &path,
                    format!("two nodes have the name `{name}`"),
                    "give each node a name of its own",
                );
            }
            names.push(name);
        }
        names
    }

    /// Checks that the profile has prices for all machines of the card.
    fn machines(&mut self, file: &ClusterFile, profile: &Profile) {
        let model = file.nic.model;
        for machine in model.machines {
            if profile.ni.all_machines().all(|(name, ..)| name != *machine) {
                self.problems.push(self.source.problem(
                    "profile",
                    format!(
                        "`{}` has no price for `{machine}`, a machine of {}",
                        profile.name,
                        model.a_card()
                    ),
                    format!("add `[ni.machines.{machine}]` to the profile, or use another one"),
                ));
            }
        }
    }

    fn links(&mut self, file: &ClusterFile, names: &[String]) {
        let mut seen = HashSet::new();
        for (i, link) in file.link.iter().enumerate() {
            let path = format!("link[{i}]");
            let node_path = format!("{path}.node");
            if let Some(node) = &link.node
                && !names.contains(node)
            {
                self.report(
                    &node_path,
                    format!("there is no node `{node}`"),
                    format!("the nodes are {}", names.join(", ")),
                );
            }
            if !seen.insert(&link.node) {
                let whose = link.node.as_deref().unwrap_or("all nodes");
                self.report(
                    &node_path,
                    format!("there is a second link entry for {whose}"),
                    "put both into one entry",
                );
            }
            self.link(&path, link);
        }
    }

    fn link(&mut self, path: &str, link: &LinkEntry) {
        if link.bandwidth_bits_per_s == Some(0) {
            self.report(
                &format!("{path}.bandwidth_bits_per_s"),
                "a link with a bandwidth of 0 never delivers a frame",
                "use at least 1; to cut the link, use faults = { partition = true }",
            );
        }
        // The product with 10^12 ps/s must stay far below the maximum of the clock's 64 bits.
        if let Some(latency_ns) = link.latency_ns.filter(|&ns| ns > 1_000_000_000) {
            self.report(
                &format!("{path}.latency_ns"),
                format!("a latency of {latency_ns} ns is longer than a second"),
                "use at most 1000000000",
            );
        }
        let mtu_range = LinkConfig::MIN_MTU_BYTES..=LinkConfig::MAX_MTU_BYTES;
        if let Some(mtu) = link.mtu_bytes.filter(|mtu| !mtu_range.contains(mtu)) {
            self.report(
                &format!("{path}.mtu_bytes"),
                format!("an MTU of {mtu} bytes is not supported"),
                format!("use {} to {}", mtu_range.start(), mtu_range.end()),
            );
        }
        if let Some(frames) = link.queue_frames.filter(|frames| !(1..=1 << 20).contains(frames)) {
            self.report(
                &format!("{path}.queue_frames"),
                format!("a queue of {frames} frames is not supported"),
                "use 1 to 1048576",
            );
        }
        self.faults(path, &link.faults.unwrap_or_default());
    }

    fn faults(&mut self, path: &str, faults: &Faults) {
        for (name, value) in faults.probabilities() {
            if !(0.0..=1.0).contains(&value) {
                self.report(
                    &format!("{path}.faults.{name}"),
                    format!("{value} is not a probability"),
                    "use 0.0 (never) to 1.0 (always)",
                );
            }
        }
        if faults.delay_ns > Faults::MAX_DELAY_NS {
            self.report(
                &format!("{path}.faults.delay_ns"),
                format!("a delay of {} ns is longer than a second", faults.delay_ns),
                "use at most 1000000000",
            );
        }
    }
}

/// Whether the name is valid by Debian policy, section 5.6.7.
fn is_package_name(name: &str) -> bool {
    name.len() >= 2
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Result<Cluster, SpecError> {
        let source = Source::from_text("c.toml", text);
        source.resolve(&source.cluster_file()?)
    }

    /// The first problem as `(line, key, whole text)`.
    fn problem(text: &str) -> (usize, String, String) {
        match resolve(text) {
            Err(SpecError::Invalid(problems)) => {
                let first = &problems[0];
                (first.location.as_ref().map_or(0, |p| p.line), first.key.clone(), first.to_string())
            }
            other => panic!("expected a problem, got {other:?}"),
        }
    }

    #[test]
    fn empty_file_gives_two_nodes() {
        let cluster = resolve("").unwrap();
        assert_eq!(cluster.nodes.len(), 2);
        assert_eq!(cluster.nodes[1].name, "node1");
        assert_eq!(cluster.nodes[1].address().to_string(), "10.77.0.2");
        assert_eq!(cluster.nodes[0].memory_mib, 256);
        assert_eq!(cluster.profile.name, "htx-200mhz");
    }

    #[test]
    fn card_with_network_interface_has_an_address_of_its_own() {
        let node = &resolve("[nic]\nmodel = \"gamma\"").unwrap().nodes[1];
        let address = node.nic_address().map(|address| address.to_string());
        let mac = node.nic_mac().map(|mac| mac.to_string());
        assert_eq!(address.as_deref(), Some("10.79.0.2"));
        assert_eq!(mac.as_deref(), Some("02:6e:6c:01:00:01"));
        assert_eq!(node.nic_name().as_deref(), Some("node1-gamma"));
        let node = &resolve("").unwrap().nodes[1];
        assert_eq!((node.nic_address(), node.nic_mac(), node.nic_name()), (None, None, None));
    }

    #[test]
    fn model_selects_its_default_profile() {
        let cluster = resolve("[nic]\nmodel = \"match\"\n[nic.match]\nmatch_entries = 16").unwrap();
        assert_eq!(cluster.profile.name, "match-500mhz");
        let nic = &cluster.nodes[1].nic;
        let of = |key| nic.values().number(key);
        assert_eq!((nic.model.name, of("match_entries"), of("window_frames")), ("match", 16, 32));
    }

    #[test]
    fn unknown_key_is_refused_with_location_and_suggestion() {
        let (line, key, text) = problem("nodes = 2\nmemory = 512\n");
        assert_eq!((line, key.as_str()), (2, "memory"));
        assert!(text.starts_with("c.toml:2:1: `memory`: unknown field"), "{text}");
        assert!(text.contains("did you mean `memory_mib`?"), "{text}");
        assert_eq!(problem("[nic.ultra]\nfifo = 3").1, "nic.ultra.fifo");
    }

    #[test]
    fn wrong_type_is_reported_at_its_line() {
        let (line, key, _) = problem("[[node]]\nname = \"a\"\nvcpus = \"two\"\n");
        assert_eq!((line, key.as_str()), (3, "node[0].vcpus"));
    }

    #[test]
    fn syntax_error_is_reported_at_its_line() {
        assert_eq!(problem("nodes = 2\nmemory_mib = = 5\n").0, 2);
    }

    #[test]
    fn profile_without_a_machine_of_the_card_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../../profiles/pci-32-33.toml");
        let (head, rest) = text.split_once("[ni.machines.store]").unwrap();
        let rest = &rest[rest.find("\n[").unwrap()..];
        let path = folder.path().join("p.toml");
        std::fs::write(&path, format!("{head}{rest}")).unwrap();
        let (line, key, text) = problem(&format!("nodes = 2\nprofile = \"{}\"", path.display()));
        assert_eq!((line, key.as_str()), (2, "profile"));
        assert!(text.contains("no price for `store`, a machine of an"), "{text}");
        assert!(text.contains("add `[ni.machines.store]`"), "{text}");
    }

    #[test]
    fn cluster_file_overrides_the_profiles_forwarding() {
        assert_eq!(resolve("nodes = 2").unwrap().forwarding, Forwarding::CutThrough);
        let cluster = resolve("nodes = 2\nforwarding = \"store-and-forward\"").unwrap();
        assert_eq!(cluster.forwarding, Forwarding::StoreAndForward);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        let text = include_str!("../../../profiles/htx-200mhz.toml");
        std::fs::write(&path, format!("forwarding = \"store-and-forward\"\n{text}")).unwrap();
        let named =
            |more: &str| resolve(&format!("profile = \"{}\"\n{more}", path.display())).unwrap().forwarding;
        assert_eq!(named(""), Forwarding::StoreAndForward);
        assert_eq!(named("forwarding = \"cut-through\""), Forwarding::CutThrough);
        assert_eq!(problem("nodes = 2\nforwarding = \"fast\"").0, 2);
        let shared = Source::from_text("cluster.toml", "nodes = 2\nforwarding = \"repeater\"");
        let file: ClusterFile = shared.parse().unwrap();
        assert_eq!(shared.resolve(&file).unwrap().forwarding, Forwarding::Repeater);
        assert!(
            shared.resolve_booted(&file).unwrap_err().to_string().contains("works only in the simulator")
        );
    }

    #[test]
    fn cluster_file_overrides_the_profiles_framing() {
        let framing = |text: &str| resolve(text).unwrap().framing;
        assert_eq!(framing("nodes = 2"), Framing::Native, "the default NIC's own network");
        assert_eq!(framing("nodes = 2\nframing = \"ethernet\""), Framing::Ethernet);
        assert_eq!(framing("nodes = 2\nprofile = \"pcie4-100g\""), Framing::Ethernet);
        assert_eq!(framing("nodes = 2\nprofile = \"pcie4-100g\"\nframing = \"native\""), Framing::Native);
        assert_eq!(problem("nodes = 2\nframing = \"none\"").0, 2);
    }

    #[test]
    fn limit_of_nodes_is_higher_in_simulations() {
        let source = Source::from_text("c.toml", "seed = 1\nnodes = 65");
        let file = source.cluster_file().unwrap();
        assert_eq!(source.resolve(&file).unwrap().nodes.len(), 65);
        let error = source.resolve_booted(&file).unwrap_err().to_string();
        assert!(
            error.contains("c.toml:2:") && error.contains("use 1 to 64, or simulate up to 4096"),
            "{error}"
        );
        let largest = resolve("nodes = 4096").unwrap();
        assert_eq!(largest.nodes.last().map(|node| node.rank), Some(4_095));
    }

    #[test]
    fn invalid_values_are_refused_at_their_line() {
        for (text, line, key) in [
            ("\nnodes = 0", 2, "nodes"),
            ("nodes = 4097", 1, "nodes"),
            ("nodes = 1\n[[node]]\n[[node]]", 1, "nodes"),
            ("memory_mib = 64", 1, "memory_mib"),
            ("[[node]]\nmemory_mib = 64", 2, "node[0].memory_mib"),
            ("vcpus = 0", 1, "vcpus"),
            ("queues = 0", 1, "queues"),
            ("[[node]]\nqueues = 33", 2, "node[0].queues"),
            ("name = \"A b\"", 1, "name"),
            ("name = \"../x\"", 1, "name"),
            ("[[node]]\nname = \"-x\"", 2, "node[0].name"),
            ("[[node]]\nname = \"a\"\n[[node]]\nname = \"a\"", 4, "node[1].name"),
            ("packages = [\"--force\"]", 1, "packages"),
            ("profile = \"nothing\"", 1, "profile"),
            ("kernel = \"/does/not/exist\"", 1, "kernel"),
            ("driver = \"/does/not/exist\"", 1, "driver"),
            ("[[node]]\ndriver = \"/does/not/exist\"", 2, "node[0].driver"),
            ("driver_args = \"debug=1\"", 1, "driver_args"),
            ("packages = [\"iperf3\"]\nimage = \"/etc/passwd\"", 2, "image"),
            ("[[link]]\nnode = \"x\"", 2, "link[0].node"),
            ("[[link]]\n[[link]]", 2, "link[1].node"),
            ("[[link]]\nmtu_bytes = 20", 2, "link[0].mtu_bytes"),
            ("[[link]]\nbandwidth_bits_per_s = 0", 2, "link[0].bandwidth_bits_per_s"),
            ("[[link]]\nfaults = { loss = 1.5 }", 2, "link[0].faults.loss"),
            ("[[link]]\n[link.faults]\ncorrupt = -0.1", 3, "link[0].faults.corrupt"),
            ("[[link]]\nfaults.reorder = nan", 2, "link[0].faults.reorder"),
            (
                "[nic.ultra]\nfifo_words_per_port = [128, 10, 0, 0, 0, 0, 0, 0]",
                2,
                "nic.ultra.fifo_words_per_port",
            ),
            (
                "[nic.ultra]\nfifo_words_per_port = [9, 0, 0, 0, 0, 0, 0, 0]",
                2,
                "nic.ultra.fifo_words_per_port",
            ),
            ("[device_faults]\nstale = 1.5", 2, "device_faults.stale"),
            ("[device_faults]\nshort_at = [0]", 2, "device_faults.short_at"),
            ("[[node]]\ndevice_faults = { delay_ns = 0 }", 2, "node[0].device_faults.delay_ns"),
            ("[nic.ultra]\nauthorized_partners_per_port = 0", 2, "nic.ultra.authorized_partners_per_port"),
            ("[nic.match]\nmatch_entries = 15", 2, "nic.match.match_entries"),
            ("[[node]]\n[node.nic.match]\nwindow_frames = 0", 3, "node[0].nic.match.window_frames"),
        ] {
            let (found_line, found_key, message) = problem(text);
            assert_eq!((found_line, found_key.as_str()), (line, key), "{text}: {message}");
            assert!(message.contains("fix: "), "{message}");
        }
    }

    #[test]
    fn node_overrides_the_clusters_driver_and_parameters() {
        let file = "nodes = 3\ndriver = \"/etc\"\ndriver_args = \"debug=1 peer=2\"\n[[node]]\ndriver = \"/usr\"\n\
                    [[node]]\ndriver_args = \"\"";
        let drivers: Vec<Driver> =
            resolve(file).unwrap().nodes.into_iter().filter_map(|node| node.driver).collect();
        let driver = |path: &str, args: &[&str]| Driver {
            path: path.into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        };
        let args = ["debug=1", "peer=2"];
        assert_eq!(drivers, [driver("/usr", &args), driver("/etc", &[]), driver("/etc", &args)]);
        assert!(
            resolve("[[node]]\ndriver = \"/etc\"").is_ok_and(|cluster| cluster.nodes[0].driver.is_some())
        );
        // The cluster's parameters apply to every node that has a driver of its own.
        let one = resolve("nodes = 2\ndriver_args = \"a=1\"\n[[node]]\ndriver = \"/etc\"").unwrap();
        assert_eq!(one.nodes[0].driver, Some(driver("/etc", &["a=1"])));
        assert_eq!(one.nodes[1].driver, None);
    }

    #[test]
    fn debug_kernel_needs_more_memory_and_time() {
        let debug_kernel =
            resolve("kernel = \"debug\"\nmemory_mib = 128\n[[node]]\nmemory_mib = 1024").unwrap();
        assert_eq!(debug_kernel.kernel, GuestKernel::Debug);
        assert_eq!(debug_kernel.nodes[0].memory_mib, 1024, "more memory than the minimum stays");
        let both = resolve("kernel = \"debug\"\ndriver = \"/etc\"").unwrap();
        assert!(both.nodes.iter().all(|node| node.memory_mib == 512 && node.driver.is_some()));
        assert!(both.kernel.timeout_factor() > GuestKernel::Stock.timeout_factor());
        let own = resolve("kernel = \"/etc/passwd\"\nmemory_mib = 128").unwrap();
        assert_eq!((own.kernel, own.nodes[0].memory_mib), (GuestKernel::Own("/etc/passwd".into()), 128));
        let with_driver = resolve("kernel = \"/etc\"\ndriver = \"/etc\"").unwrap();
        assert_eq!(
            with_driver.kernel,
            GuestKernel::Own("/etc".into()),
            "a folder may be a kernel's build tree"
        );
        assert_eq!(problem("kernel = \"./debug\"").1, "kernel", "`./debug` means a file");
        let misspelt = problem("kernel = \"debgu\"").2;
        assert!(misspelt.contains("write `debug`"), "{misspelt}");
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let Err(SpecError::Invalid(problems)) = resolve("nodes = 0\nvcpus = 0\nmemory_mib = 1") else {
            panic!("accepted")
        };
        assert_eq!(problems.len(), 3);
    }

    #[test]
    fn node_overrides_the_clusters_values() {
        let cluster = resolve(
            "nodes = 3\nmemory_mib = 128\npackages = [\"b2\", \"a2\", \"b2\"]\ndevice_faults.stale_at = [4]\n\
             [[node]]\nname = \"big\"\nmemory_mib = 512\npackages = []\ndevice_faults = { short_at = [2] }\n\
             [[link]]\nmtu_bytes = 9000\nfaults = { loss = 0.5 }\n\
             [[link]]\nnode = \"big\"\nlatency_ns = 7\n",
        )
        .unwrap();
        let [big, other, _] = cluster.nodes.as_slice() else { panic!("three nodes") };
        assert_eq!((big.name.as_str(), big.memory_mib, other.memory_mib), ("big", 512, 128));
        assert_eq!((big.packages.len(), &other.packages[..]), (0, &["a2".to_owned(), "b2".to_owned()][..]));
        assert_eq!((&big.device_faults.short_at[..], &big.device_faults.stale_at[..]), (&[2][..], &[][..]));
        assert_eq!(other.device_faults.stale_at, [4]);
        assert_eq!((big.link.latency_ns, big.link.mtu_bytes, other.link.mtu_bytes), (7, 9000, 9000));
        assert!((big.link.faults.loss - 0.5).abs() < f64::EPSILON);
    }
}
