//! Which node of its cluster the guest is, and becoming it.
//!
//! The agent does here what others start programs for: in an emulated guest each program costs more than all of this.

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

/// Where the system keeps what holds until it starts again. The guest's init makes this folder.
const STATE: &str = "run/niclab";

/// In there: the guest is a node, and not to be made one again.
const JOINED: &str = "joined";

/// In there: the node's variables, for whoever wants to read them.
const NODE_ENV: &str = "node.env";

/// Does what needs programs of the image.
const SCRIPT: &str = "/usr/lib/niclab/node";

/// The one program for which there is something to do in [`SCRIPT`].
const SSH_DAEMON: &str = "/usr/sbin/sshd";

/// How long all else waits for a network interface, which takes no time where the machine is not busy with others.
const INTERFACE_TIMEOUT: Duration = Duration::from_secs(20);

/// The 9p tag under which QEMU offers the host's folder.
const SHARE_TAG: &str = "cwd";

/// `cache=none`, because the host and other guests write to the same files. Each read and write goes to QEMU, which
/// opened the file with the guest's `O_APPEND`: the host's kernel finds the end of the file, and the writer gets its
/// error. Any other mode keeps pages in the guest (the kernel's Documentation/filesystems/9p.rst). Programs start by
/// private mappings, which this mode has.
const SHARE_OPTIONS: &std::ffi::CStr = c"trans=virtio,version=9p2000.L,msize=524288,cache=none";

/// What the agent knows of the node that its guest is. None before the host said it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    env: BTreeMap<String, String>,
}

impl Node {
    /// The node of this identity, unless no program could be given its environment.
    pub fn new(identity: &Identity) -> Result<Self, Refusal> {
        for (name, value) in &identity.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("the variable {name:?} with the value {value:?} fits no environment");
                return Err(Refusal { message, code: 126 });
            }
        }
        Ok(Self { env: identity.env.clone() })
    }

    /// What every command finds in its environment.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// The folder of commands that name none, if it is there.
    pub fn folder(&self) -> Option<&Path> {
        self.get("NICLAB_CWD").map(Path::new).filter(|folder| folder.is_dir())
    }

    /// The host's folder that this guest sees, at the same path.
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

/// Makes the system this node, unless it is one since it started. What does not succeed is said on the console, and the
/// rest is done all the same: a guest can be looked into only once it is a node.
pub fn enter(node: &Node, join: &Join) {
    let root = Path::new("/");
    if !is_guest(root) {
        eprintln!("niclab-agent: no init of a niclab guest was here, so the system stays as it is");
        return;
    }
    if is_joined(root) {
        return;
    }
    // First, so that all that is drawn and dated below is this node's own.
    tell("mix the host's randomness in", random::mix(&join.entropy));
    tell("set the clock", set_clock(join.wall_time_ns));
    tell("set the host name", rustix::system::sethostname(node.name().as_bytes()).map_err(io::Error::from));
    let machine_id = random::machine_id();
    tell(
        "write the node's files",
        machine_id.and_then(|id| write_files(root, node, &join.identity.hosts, &id)),
    );
    tell("set up the network", set_up_network(node));
    tell("set up the card's interface", set_up_nic_network(root, node));
    tell("mount the host's folder", mount_share(node));
    if Path::new(SSH_DAEMON).exists() {
        tell("set up ssh", run_script(node));
    }
    tell("note that it is done", fs::write(root.join(STATE).join(JOINED), ""));
}

fn tell(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("niclab-agent: cannot {what}: {error}");
    }
}

/// Whether the system is a guest. An agent that is started on somebody's own machine, by mistake or by a test gone
/// wrong, must not make a node of that.
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

/// The files that say who this is, below `root`.
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

/// The same for a card that carries other protocols by an interface of its own, which its driver registers before it
/// publishes the card: where that is there and the interface is not, none comes, and the driver has said why.
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

/// The address, with the length of its prefix, that this variable says; none where there is no such variable.
fn address_in(node: &Node, name: &str) -> io::Result<Option<(Ipv4Addr, u8)>> {
    let Some(text) = node.get(name) else { return Ok(None) };
    network::parse_address(text).map(Some).ok_or_else(|| wrong(format!("{text} is no address")))
}

/// Mounts the host's folder, at the path it has there.
fn mount_share(node: &Node) -> io::Result<()> {
    // The root is the guest's own.
    let Some(folder) = node.shared_folder().filter(|folder| *folder != "/") else { return Ok(()) };
    fs::create_dir_all(folder)?;
    match mount(SHARE_TAG, folder, "9p", MountFlags::empty(), SHARE_OPTIONS) {
        // An agent that ended before it was done has mounted it.
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
    fn the_files_name_the_node_and_its_peers() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("etc")).unwrap();
        assert!(!is_guest(root), "somebody's own machine");
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
        assert!(!is_joined(root), "there is more to do");
        fs::write(root.join(STATE).join(JOINED), "").unwrap();
        assert!(is_joined(root));
    }

    #[test]
    fn a_folder_is_that_of_commands_if_it_is_there_and_the_hosts_if_it_is_shared() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().to_str().unwrap();
        assert_eq!(node(&[("NICLAB_CWD", path)]).folder(), Some(here.path()));
        assert_eq!(node(&[("NICLAB_CWD", "/no/such")]).folder(), None);
        assert_eq!(node(&[("NICLAB_CWD", path)]).shared_folder(), None);
        assert_eq!(node(&[("NICLAB_CWD", path), ("NICLAB_SHARE", "1")]).shared_folder(), Some(path));
    }

    #[test]
    fn what_fits_no_environment_is_refused() {
        for (name, value) in [("", "1"), ("A=B", "1"), ("A\0", "1"), ("A", "\0")] {
            let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            assert!(Node::new(&Identity { env, hosts: String::new() }).is_err(), "{name:?}");
        }
    }
}
