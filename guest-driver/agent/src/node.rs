//! Makes the guest a node of its cluster.
//!
//! The agent itself does what other systems start programs for: in an emulated guest, starting one program takes longer
//! than all these steps.

use std::{
    collections::BTreeMap,
    fs, io,
    net::Ipv4Addr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use niclab_agent::{Identity, Join, Refusal};
use rustix::{
    mount::{MountFlags, mount},
    time::{ClockId, Timespec, clock_settime},
};

use crate::network::{self, Interface};
use crate::random;

/// The folder for state that lasts until the system restarts. The guest's init creates it.
const STATE: &str = "run/niclab";

/// A file in [`STATE`]: the guest is already a node.
const JOINED: &str = "joined";

/// A file in [`STATE`]: the node's variables, for any program to read.
const NODE_ENV: &str = "node.env";

/// The script for the steps that need programs of the image.
const SCRIPT: &str = "/usr/lib/niclab/node";

/// The only program that [`SCRIPT`] has steps for.
const SSH_DAEMON: &str = "/usr/sbin/sshd";

/// The timeout for a network interface, for which the other steps wait. On an idle machine the interface appears at
/// once.
const INTERFACE_TIMEOUT: Duration = Duration::from_secs(20);

/// The 9p tag of the host's folder in QEMU.
const SHARE_TAG: &str = "cwd";

/// `cache=none`, because the host and other guests write to the same files. Each read and write goes to QEMU, which
/// opened the file with the guest's `O_APPEND`. So the host's kernel finds the end of the file, and the writer gets its
/// error. Any other mode keeps pages in the guest (the kernel's Documentation/filesystems/9p.rst). Programs are started
/// from private mappings, which this mode supports.
const SHARE_OPTIONS: &std::ffi::CStr = c"trans=virtio,version=9p2000.L,msize=524288,cache=none";

/// What the agent knows of the node that its guest is; empty before the host sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    env: BTreeMap<String, String>,
}

impl Node {
    /// The node of this identity. Refused if a variable is invalid in an environment.
    pub fn new(identity: &Identity) -> Result<Self, Refusal> {
        for (name, value) in &identity.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!(
                    "the variable {name:?} with the value {value:?} is invalid in an environment: the name must not \
                     be empty or contain `=`, and neither may contain NUL"
                );
                return Err(Refusal { message, code: 126 });
            }
        }
        Ok(Self { env: identity.env.clone() })
    }

    /// The environment of every command.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// The working folder of commands that name none, if it exists.
    pub fn folder(&self) -> Option<&Path> {
        self.get("NICLAB_CWD").map(Path::new).filter(|folder| folder.is_dir())
    }

    /// The host's folder that this guest sees at the same path.
    pub fn shared_folder(&self) -> Option<&str> {
        self.get("NICLAB_CWD").filter(|_| self.get("NICLAB_SHARE") == Some("1"))
    }

    fn name(&self) -> &str {
        self.get("NICLAB_NODE").unwrap_or("niclab")
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }
}

/// Makes the system this node, unless it has become one since it started. A step that fails is reported on the console
/// and the others follow, because a user can inspect a guest only once it is a node.
pub fn enter(node: &Node, join: &Join) {
    let root = Path::new("/");
    if !is_guest(root) {
        eprintln!(
            "niclab-agent: this system is not a niclab guest: it has no /run/niclab; it stays unchanged"
        );
        return;
    }
    if is_joined(root) {
        return;
    }
    // First, so that later random numbers and timestamps belong to this node.
    report("mix in the host's entropy", random::mix(&join.entropy));
    report("set the clock", set_clock(join.wall_time_ns));
    report("set the host name", rustix::system::sethostname(node.name().as_bytes()).map_err(io::Error::from));
    let machine_id = random::machine_id();
    report(
        "write the node's files",
        machine_id.and_then(|id| write_files(root, node, &join.identity.hosts, &id)),
    );
    report("set up the network", set_up_network(node));
    report("set up the card's interface", set_up_nic_network(root, node));
    report("mount the host's folder", mount_share(node));
    if Path::new(SSH_DAEMON).exists() {
        report("set up ssh", run_script(node));
    }
    report("record that the guest has joined", fs::write(root.join(STATE).join(JOINED), ""));
}

fn report(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("niclab-agent: cannot {what}: {error}");
    }
}

/// Whether the system is a guest. An agent that is started on a user's own machine, by mistake or by a broken test,
/// must not turn that into a node.
fn is_guest(root: &Path) -> bool {
    root.join(STATE).is_dir()
}

fn is_joined(root: &Path) -> bool {
    root.join(STATE).join(JOINED).exists()
}

fn set_clock(wall_time_ns: u64) -> io::Result<()> {
    let time = Timespec::try_from(Duration::from_nanos(wall_time_ns))
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(clock_settime(ClockId::Realtime, time)?)
}

/// Writes the files that identify the node, below `root`.
fn write_files(root: &Path, node: &Node, hosts: &str, machine_id: &str) -> io::Result<()> {
    let lines: String = node.env.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    fs::write(root.join(STATE).join(NODE_ENV), lines)?;
    let etc = root.join("etc");
    fs::write(etc.join("hostname"), format!("{}\n", node.name()))?;
    fs::write(etc.join("hosts"), format!("127.0.0.1 localhost\n{hosts}"))?;
    fs::write(etc.join("machine-id"), format!("{machine_id}\n"))
}

fn set_up_network(node: &Node) -> io::Result<()> {
    let Some((ip, prefix)) = address_in(node, "NICLAB_ADDRESS")? else { return Ok(()) };
    let mac = node.get("NICLAB_MAC").unwrap_or_default();
    let set_up = move |interface: &Interface| network::set_up(interface.index, ip, prefix);
    network::with_interface("/sys".into(), mac, "the node's", INTERFACE_TIMEOUT, || false, set_up)
}

/// Sets up the interface of a card that carries other protocols. Its driver registers the interface before it publishes
/// the card. If the card exists without the interface, none will appear, and the driver has logged the reason.
fn set_up_nic_network(root: &Path, node: &Node) -> io::Result<()> {
    let Some((ip, prefix)) = address_in(node, "NICLAB_NIC_ADDRESS")? else { return Ok(()) };
    let mac = node.get("NICLAB_NIC_MAC").unwrap_or_default();
    let (cards, proc) = (root.join("sys/class/niclab"), root.join("proc"));
    let is_published = move || {
        let mut cards = fs::read_dir(&cards).into_iter().flatten();
        cards.next().is_some()
    };
    let set_up = move |interface: &Interface| {
        network::wait_until_registered(interface.index)?;
        network::keep_to_itself(&proc, &interface.name)?;
        network::set_up(interface.index, ip, prefix)
    };
    let sys = root.join("sys");
    network::with_interface(sys, mac, "the card's", INTERFACE_TIMEOUT, is_published, set_up)
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The address with prefix length in this variable; `None` if the variable does not exist.
fn address_in(node: &Node, name: &str) -> io::Result<Option<(Ipv4Addr, u8)>> {
    let Some(text) = node.get(name) else { return Ok(None) };
    network::parse_address(text).map(Some).ok_or_else(|| {
        wrong(format!("`{text}` in {name} is not an IPv4 address with a prefix length, such as 10.77.0.1/24"))
    })
}

/// Mounts the host's folder at its path on the host.
fn mount_share(node: &Node) -> io::Result<()> {
    // The root folder is the guest's own.
    let Some(folder) = node.shared_folder().filter(|folder| *folder != "/") else { return Ok(()) };
    fs::create_dir_all(folder)?;
    match mount(SHARE_TAG, folder, "9p", MountFlags::empty(), SHARE_OPTIONS) {
        // An agent that ended before it had finished has already mounted it.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn run_script(node: &Node) -> io::Result<()> {
    let status = Command::new(SCRIPT).envs(node.env()).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{SCRIPT} ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(variables: &[(&str, &str)]) -> Node {
        let env = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Node::new(&Identity { env, hosts: String::new() }).unwrap()
    }

    #[test]
    fn files_name_the_node_and_its_peers() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("etc")).unwrap();
        assert!(!is_guest(root), "a user's own machine");
        fs::create_dir_all(root.join(STATE)).unwrap();
        assert!(is_guest(root));
        fs::write(root.join("etc/machine-id"), "of the image\n").unwrap();
        let node = node(&[("NICLAB_NODE", "head"), ("NICLAB_RANK", "0")]);
        write_files(root, &node, "10.77.0.1 head\n", "00112233445566778899aabbccddeeff").unwrap();
        for (file, text) in [
            ("etc/hostname", "head\n"),
            ("etc/hosts", "127.0.0.1 localhost\n10.77.0.1 head\n"),
            ("etc/machine-id", "00112233445566778899aabbccddeeff\n"),
            ("run/niclab/node.env", "NICLAB_NODE=head\nNICLAB_RANK=0\n"),
        ] {
            assert_eq!(fs::read_to_string(root.join(file)).unwrap(), text, "{file}");
        }
        assert!(!is_joined(root), "the node has not joined yet");
        fs::write(root.join(STATE).join(JOINED), "").unwrap();
        assert!(is_joined(root));
    }

    #[test]
    fn commands_use_an_existing_folder_even_if_it_is_not_shared() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().to_str().unwrap();
        assert_eq!(node(&[("NICLAB_CWD", path)]).folder(), Some(here.path()));
        assert_eq!(node(&[("NICLAB_CWD", "/no/such")]).folder(), None);
        assert_eq!(node(&[("NICLAB_CWD", path)]).shared_folder(), None);
        assert_eq!(node(&[("NICLAB_CWD", path), ("NICLAB_SHARE", "1")]).shared_folder(), Some(path));
    }

    #[test]
    fn variable_that_is_invalid_in_an_environment_is_refused() {
        for (name, value) in [("", "1"), ("A=B", "1"), ("A\0", "1"), ("A", "\0")] {
            let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            assert!(Node::new(&Identity { env, hosts: String::new() }).is_err(), "{name:?}");
        }
    }
}
