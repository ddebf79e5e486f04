//! The node's network interface: which one it is, and giving it its address.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Between two looks for an interface that has still to appear. A restored guest waits for it, so it is short.
const INTERVAL: Duration = Duration::from_millis(5);

/// The same for one that has let others wait in vain, and may never come.
const LATE_INTERVAL: Duration = Duration::from_millis(200);

/// An interface of the system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// What became of waiting for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It is there.
    Found(Interface),
    /// It is not there, and none comes.
    Never,
    /// It is not there yet.
    NotYet,
}

/// Waits for the interface with this Ethernet address, until then, or as long as it takes. `is_coming_no_more` says
/// when it is known that none comes which is not there. `sys` is `/sys`.
pub fn wait_for_interface(
    sys: &Path,
    mac: &str,
    until: Option<Instant>,
    is_coming_no_more: impl Fn() -> bool,
) -> Awaited {
    loop {
        // In this order: what was known before the look holds for what the look did not find.
        let is_last = is_coming_no_more();
        let is_late = until.is_some_and(|until| Instant::now() >= until);
        match find_interface(sys, mac) {
            Some(interface) => return Awaited::Found(interface),
            None if is_last => return Awaited::Never,
            None if is_late => return Awaited::NotYet,
            None => thread::sleep(if until.is_some() { INTERVAL } else { LATE_INTERVAL }),
        }
    }
}

/// Does what is to be done with an interface: before this returns where it comes within `patience`, else whenever it
/// comes, for a host that others use can keep a guest's kernel busy with a device for as long as it likes. `whose`
/// address it is, for those who read the console.
///
/// # Errors
/// What could not be done; that no such interface comes.
pub fn with_interface(
    sys: PathBuf,
    mac: &str,
    whose: &str,
    timeout: Duration,
    is_coming_no_more: impl Fn() -> bool + Send + 'static,
    act: impl FnOnce(&Interface) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let missing = format!("no network interface has {whose} address {mac}");
    match wait_for_interface(&sys, mac, Some(Instant::now() + timeout), &is_coming_no_more) {
        Awaited::Found(interface) => return act(&interface),
        Awaited::Never => return Err(io::Error::new(io::ErrorKind::NotFound, missing)),
        Awaited::NotYet => eprintln!("niclab-agent: {missing} yet: it is set up when there is one"),
    }
    let mac = mac.to_owned();
    let late = move || {
        let done = match wait_for_interface(&sys, &mac, None, is_coming_no_more) {
            Awaited::Found(interface) => act(&interface),
            Awaited::Never | Awaited::NotYet => Err(io::Error::new(io::ErrorKind::NotFound, missing)),
        };
        if let Err(error) = done {
            eprintln!("niclab-agent: cannot set up a late network interface: {error}");
        }
    };
    thread::Builder::new().name("interface".to_owned()).spawn(late).map(drop)
}

/// Has an interface that shares its network with another of the same system speak for its own address alone, and only
/// when it is asked to: who asks for the address is answered by this interface and by no other (`arp_ignore`,
/// `arp_announce`, Documentation/networking/ip-sysctl.rst), and IP version 6, which would report its groups at times of
/// its own, into whatever is being measured, is left out. `proc` is `/proc`.
pub fn keep_to_itself(proc: &Path, name: &str) -> io::Result<()> {
    let net = proc.join("sys/net");
    let set = |path: PathBuf, value: &str| match fs::write(&path, value) {
        // A kernel of the user's own may be without.
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
    // Some interfaces have no address; a node that is told none is none of them.
    let is_it = |path: &PathBuf| !mac.is_empty() && read(&path.join("address")).eq_ignore_ascii_case(mac);
    let interface = interfaces.find(is_it)?;
    let index = read(&interface.join("ifindex")).parse().ok()?;
    Some(Interface { index, name: interface.file_name()?.to_str()?.to_owned() })
}

/// An address with the length of its prefix, as in `10.77.0.1/24`.
pub fn parse_address(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 32)?))
}

/// Gives the interface the address and switches it on, as `ip addr replace` and `ip link set up` do: who sees that it
/// is on can use the address. An emulated guest takes longer to start these programs than to do everything else that
/// makes it a node.
pub fn set_up(index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    tell_kernel(&[new_address(index, address, prefix), link_up(index)])
}

/// Returns when the kernel is done with registering the interface. It shows in `/sys` before it has all of its settings
/// in `/proc`; whoever changes an interface, be it in nothing, waits for the lock under which all of that happens
/// (`rtnl_lock`).
pub fn wait_until_registered(index: u32) -> io::Result<()> {
    tell_kernel(&[link_flags(index, 0)])
}

fn tell_kernel(messages: &[Vec<u8>]) -> io::Result<()> {
    // For NETLINK_ROUTE the protocol is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    for message in messages {
        // A socket that is not connected sends to the kernel.
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
    // Sequence number and sender: whoever asks one thing at a time needs neither.
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

fn link_up(index: u32) -> Vec<u8> {
    link_flags(index, IFF_UP)
}

/// Sets these flags of an interface, and leaves the others as they are.
fn link_flags(index: u32, flags: u32) -> Vec<u8> {
    // `struct ifinfomsg`: family, padding, type, index, flags, and which of the flags are meant.
    let mut body = vec![AF_UNSPEC, 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    message(RTM_NEWLINK, 0, &body)
}

fn new_address(index: u32, address: Ipv4Addr, prefix: u8) -> Vec<u8> {
    // `struct ifaddrmsg`: family, length of the prefix, flags, scope (0 is everywhere), index; then attributes.
    let mut body = vec![AF_INET, prefix, 0, 0];
    body.extend(index.to_ne_bytes());
    for kind in [IFA_LOCAL, IFA_ADDRESS] {
        body.extend(ATTRIBUTE_BYTES.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(address.octets());
    }
    message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body)
}

/// `struct nlmsghdr`, then `struct nlmsgerr`, whose first number is 0 or an error's with a minus.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel gave no acknowledgement")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_found_by_its_address_and_waited_for() {
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
        assert!(now() < until, "and none was waited for");
        thread::scope(|scope| {
            let waiting = scope.spawn(move || wait_for_interface(sys, mac, until, || false));
            add("eth1", mac, "7");
            let expected = Interface { index: 7, name: "eth1".into() };
            assert_eq!(waiting.join().unwrap(), Awaited::Found(expected));
        });
    }

    #[test]
    fn an_interface_that_comes_late_is_set_up_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (mac, (tell, told)) = ("52:54:00:4e:4c:01", std::sync::mpsc::channel());
        let act = move |interface: &Interface| tell.send(interface.index).map_err(io::Error::other);
        let sys = folder.path().to_owned();
        let never = with_interface(sys.clone(), mac, "the node's", Duration::ZERO, || true, act.clone());
        let text = never.map_err(|error| error.to_string());
        assert_eq!(text, Err(format!("no network interface has the node's address {mac}")));
        with_interface(sys.clone(), mac, "the node's", Duration::ZERO, || false, act).unwrap();
        assert!(told.try_recv().is_err(), "there is none");
        let interface = sys.join("class/net/eth0");
        fs::create_dir_all(&interface).unwrap();
        fs::write(interface.join("ifindex"), "7\n").unwrap();
        // Last: by this it is found.
        fs::write(interface.join("address"), format!("{mac}\n")).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(7));
    }

    #[test]
    fn an_interface_beside_another_answers_for_its_own_address_alone() {
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
    fn messages_are_laid_out_as_the_kernel_reads_them() {
        // On a little-endian machine, which guests are.
        let expected: &[u8] = &[
            40, 0, 0, 0, 20, 0, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 2, 24, 0, 0, 3, 0, 0, 0, 8, 0, 2, 0, 10, 77, 0,
            2, 8, 0, 1, 0, 10, 77, 0, 2,
        ];
        assert_eq!(new_address(3, Ipv4Addr::new(10, 77, 0, 2), 24), expected);
        assert_eq!(link_up(3)[16..], [0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(link_flags(3, 0)[16..], [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_refusal_is_an_error() {
        // Nobody has an interface of this number; without privileges the kernel does not even look.
        const NOBODY: u32 = 0x7fff_fff0;
        let expected = [rustix::io::Errno::NODEV, rustix::io::Errno::PERM].map(|errno| errno.raw_os_error());
        for refused in [set_up(NOBODY, Ipv4Addr::new(10, 77, 0, 2), 24), wait_until_registered(NOBODY)] {
            let error = refused.unwrap_err();
            assert!(error.raw_os_error().is_some_and(|error| expected.contains(&error)), "{error}");
        }
        assert!(acknowledged(&[]).is_err() && acknowledged(&[0; 40]).is_err());
    }
}
