//! Finds the node's network interfaces and sets their addresses.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The interval at which the agent polls for an interface that has not appeared yet. It is short, because a restored
/// guest waits for the interface.
const INTERVAL: Duration = Duration::from_millis(5);

/// The same after the timeout: the interface may never appear.
const LATE_INTERVAL: Duration = Duration::from_millis(200);

/// A network interface of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// The result of waiting for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The interface exists.
    Found(Interface),
    /// The interface does not exist and will not appear.
    Never,
    /// The interface does not exist yet.
    NotYet,
}

/// Waits for the interface with this MAC address, until `until` if given. `is_final` returns whether an interface that
/// does not exist now will never appear. `sys` is `/sys`.
pub fn wait_for_interface(
    sys: &Path,
    mac: &str,
    until: Option<Instant>,
    is_final: impl Fn() -> bool,
) -> Awaited {
    loop {
        // `is_final` comes first: its answer must hold for the search that follows.
        let is_last = is_final();
        let is_late = until.is_some_and(|until| Instant::now() >= until);
        match find_interface(sys, mac) {
            Some(interface) => return Awaited::Found(interface),
            None if is_last => return Awaited::Never,
            None if is_late => return Awaited::NotYet,
            None => thread::sleep(if until.is_some() { INTERVAL } else { LATE_INTERVAL }),
        }
    }
}

/// Calls `act` with the interface: before this returns if the interface appears within `timeout`, else in a thread as
/// soon as it appears. A busy host can delay a device's appearance in the guest without limit. `whose` names the owner
/// of the address in messages on the console.
///
/// # Errors
/// The error of `act`, or that no such interface will appear.
pub fn with_interface(
    sys: PathBuf,
    mac: &str,
    whose: &str,
    timeout: Duration,
    is_final: impl Fn() -> bool + Send + 'static,
    act: impl FnOnce(&Interface) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let missing = format!("no network interface has {whose} MAC address {mac}");
    match wait_for_interface(&sys, mac, Some(Instant::now() + timeout), &is_final) {
        Awaited::Found(interface) => return act(&interface),
        Awaited::Never => return Err(io::Error::new(io::ErrorKind::NotFound, missing)),
        Awaited::NotYet => eprintln!("niclab-agent: {missing} yet; the agent sets it up once it appears"),
    }
    let mac = mac.to_owned();
    let late = move || {
        let done = match wait_for_interface(&sys, &mac, None, is_final) {
            Awaited::Found(interface) => act(&interface),
            Awaited::Never | Awaited::NotYet => Err(io::Error::new(io::ErrorKind::NotFound, missing)),
        };
        if let Err(error) = done {
            eprintln!("niclab-agent: cannot set up a late network interface: {error}");
        }
    };
    thread::Builder::new().name("interface".to_owned()).spawn(late).map(drop)
}

/// Restricts an interface that shares its network with another interface of the same system. It answers ARP requests
/// only for its own address, and no other interface answers for it (`arp_ignore`, `arp_announce`,
/// Documentation/networking/ip-sysctl.rst). It has no IPv6, which would report its groups at times of its own during a
/// measurement. `proc` is `/proc`.
pub fn keep_to_itself(proc: &Path, name: &str) -> io::Result<()> {
    let net = proc.join("sys/net");
    let set = |path: PathBuf, value: &str| match fs::write(&path, value) {
        // A user's kernel may lack the setting.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    set(net.join("ipv4/conf/all/arp_ignore"), "1")?;
    set(net.join("ipv4/conf/all/arp_announce"), "2")?;
    set(net.join("ipv6/conf").join(name).join("disable_ipv6"), "1")
}

fn find_interface(sys: &Path, mac: &str) -> Option<Interface> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mut interfaces = fs::read_dir(sys.join("class/net")).ok()?.flatten().map(|entry| entry.path());
    // Some interfaces have no address; an empty `mac` must not match them.
    let is_it = |path: &PathBuf| !mac.is_empty() && read(&path.join("address")).eq_ignore_ascii_case(mac);
    let interface = interfaces.find(is_it)?;
    let index = read(&interface.join("ifindex")).parse().ok()?;
    Some(Interface { index, name: interface.file_name()?.to_str()?.to_owned() })
}

/// An address with a prefix length, such as `10.77.0.1/24`.
pub fn parse_address(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 32)?))
}

/// Sets the address of the interface and sets the interface up, as `ip addr replace` and `ip link set up` do. Once the
/// interface is up, programs can use the address. An emulated guest takes longer to start these programs than for all
/// other steps that make it a node.
pub fn set_up(index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    request(&[new_address(index, address, prefix), link_up(index)])
}

/// Waits until the kernel has registered the interface completely. The interface appears in `/sys` before all its
/// settings appear in `/proc`. Any change of an interface, even an empty one, takes the lock that covers the whole
/// registration (`rtnl_lock`).
pub fn wait_until_registered(index: u32) -> io::Result<()> {
    request(&[link_flags(index, 0)])
}

fn request(messages: &[Vec<u8>]) -> io::Result<()> {
    // For NETLINK_ROUTE the protocol is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    for message in messages {
        // An unconnected socket sends to the kernel.
        send(&socket, message, SendFlags::empty())?;
        let mut answer = [0; 1024];
        let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        acknowledged(answer.get(..length).unwrap_or_default())?;
    }
    Ok(())
}

// rtnetlink(7) and include/uapi/linux/{netlink,rtnetlink,if_addr}.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const ATTRIBUTE_BYTES: u16 = 8;

/// `struct nlmsghdr`, then the body.
fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    // Sequence number and sender: not needed, because the agent sends one request at a time.
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

fn link_up(index: u32) -> Vec<u8> {
    link_flags(index, IFF_UP)
}

/// Sets these flags of an interface, and leaves the others unchanged.
fn link_flags(index: u32, flags: u32) -> Vec<u8> {
    // `struct ifinfomsg`: family, padding, type, index, flags, and the mask of the flags to change.
    let mut body = vec![AF_UNSPEC, 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    message(RTM_NEWLINK, 0, &body)
}

fn new_address(index: u32, address: Ipv4Addr, prefix: u8) -> Vec<u8> {
    // `struct ifaddrmsg`: family, prefix length, flags, scope (0 is universe), index; then attributes.
    let mut body = vec![AF_INET, prefix, 0, 0];
    body.extend(index.to_ne_bytes());
    for kind in [IFA_LOCAL, IFA_ADDRESS] {
        body.extend(ATTRIBUTE_BYTES.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(address.octets());
    }
    message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body)
}

/// `struct nlmsghdr`, then `struct nlmsgerr`, whose first number is 0 or a negative error number.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel did not acknowledge the request")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_awaited_and_found_by_its_mac_address() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        let add = |name: &str, mac: &str, index: &str| {
            let interface = sys.join("class/net").join(name);
            fs::create_dir_all(&interface).unwrap();
            fs::write(interface.join("ifindex"), format!("{index}\n")).unwrap();
            fs::write(interface.join("address"), format!("{mac}\n")).unwrap();
        };
        let mac = "52:54:00:4e:4c:01";
        add("lo", "00:00:00:00:00:00", "1");
        add("eth0", "52:54:00:4e:4c:02", "2");
        add("tunnel", "", "3");
        let until = Some(Instant::now() + Duration::from_secs(30));
        let now = || Some(Instant::now());
        assert_eq!(wait_for_interface(sys, mac, now(), || false), Awaited::NotYet);
        assert_eq!(wait_for_interface(sys, "", now(), || false), Awaited::NotYet);
        assert_eq!(wait_for_interface(sys, mac, until, || true), Awaited::Never);
        assert!(now() < until, "a final answer must not wait");
        thread::scope(|scope| {
            let waiting = scope.spawn(move || wait_for_interface(sys, mac, until, || false));
            add("eth1", mac, "7");
            let expected = Interface { index: 7, name: "eth1".into() };
            assert_eq!(waiting.join().unwrap(), Awaited::Found(expected));
        });
    }

    #[test]
    fn late_interface_is_set_up_in_the_background() {
        let folder = tempfile::tempdir().unwrap();
        let (mac, (sender, receiver)) = ("52:54:00:4e:4c:01", std::sync::mpsc::channel());
        let act = move |interface: &Interface| sender.send(interface.index).map_err(io::Error::other);
        let sys = folder.path().to_owned();
        let never = with_interface(sys.clone(), mac, "the node's", Duration::ZERO, || true, act.clone());
        let text = never.map_err(|error| error.to_string());
        assert_eq!(text, Err(format!("no network interface has the node's MAC address {mac}")));
        with_interface(sys.clone(), mac, "the node's", Duration::ZERO, || false, act).unwrap();
        assert!(receiver.try_recv().is_err(), "no interface exists");
        let interface = sys.join("class/net/eth0");
        fs::create_dir_all(&interface).unwrap();
        fs::write(interface.join("ifindex"), "7\n").unwrap();
        // Last, because the search is by the address.
        fs::write(interface.join("address"), format!("{mac}\n")).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(7));
    }

    #[test]
    fn interface_answers_arp_only_for_its_own_address() {
        let folder = tempfile::tempdir().unwrap();
        let (all, own) = ("sys/net/ipv4/conf/all", "sys/net/ipv6/conf/card0");
        for conf in [all, own] {
            fs::create_dir_all(folder.path().join(conf)).unwrap();
        }
        keep_to_itself(folder.path(), "card0").unwrap();
        let read = |conf: &str, key| fs::read_to_string(folder.path().join(conf).join(key)).unwrap();
        assert_eq!((read(all, "arp_ignore"), read(all, "arp_announce")), ("1".into(), "2".into()));
        assert_eq!(read(own, "disable_ipv6"), "1");
        keep_to_itself(folder.path(), "other0").unwrap();
    }

    #[test]
    fn addresses_have_prefixes() {
        assert_eq!(parse_address("10.77.0.2/24"), Some((Ipv4Addr::new(10, 77, 0, 2), 24)));
        for bad in ["10.77.0.2", "10.77.0/24", "10.77.0.2/33", "10.77.0.2/", ""] {
            assert_eq!(parse_address(bad), None, "{bad}");
        }
    }

    #[test]
    fn requests_have_the_layout_of_rtnetlink() {
        // On a little-endian machine, such as all guests.
        let expected: &[u8] = &[
            40, 0, 0, 0, 20, 0, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 2, 24, 0, 0, 3, 0, 0, 0, 8, 0, 2, 0, 10, 77, 0,
            2, 8, 0, 1, 0, 10, 77, 0, 2,
        ];
        assert_eq!(new_address(3, Ipv4Addr::new(10, 77, 0, 2), 24), expected);
        assert_eq!(link_up(3)[16..], [0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(link_flags(3, 0)[16..], [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn refused_request_is_an_error() {
        // No interface has this number. Without privileges the kernel refuses the request before it searches.
        const UNUSED: u32 = 0x7fff_fff0;
        let expected = [rustix::io::Errno::NODEV, rustix::io::Errno::PERM].map(|errno| errno.raw_os_error());
        for refused in [set_up(UNUSED, Ipv4Addr::new(10, 77, 0, 2), 24), wait_until_registered(UNUSED)] {
            let error = refused.unwrap_err();
            assert!(error.raw_os_error().is_some_and(|error| expected.contains(&error)), "{error}");
        }
        assert!(acknowledged(&[]).is_err() && acknowledged(&[0; 40]).is_err());
    }
}
