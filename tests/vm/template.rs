//! Nodes restored from a template: each has its own identity, and is the same machine as a node that booted.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use niclab_harness::{Niclab, Outcome, compile};

/// How a property of two nodes must differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Differs {
    /// The launcher gives each node a different value, the same at each start.
    Given,
    /// A random value, different at each start of each node.
    Random,
    /// Numbers that rise with time, from a secret key that must differ.
    Secret,
}

/// All properties in which nodes must differ, and the command that prints each in a guest.
const DIFFERENCES: [(&str, Differs, &str); 14] = [
    ("host name", Differs::Given, "hostname"),
    ("/etc/hostname", Differs::Given, "cat /etc/hostname"),
    ("IPv4 address", Differs::Given, "ip -4 addr show eth0 | grep -o 'inet [0-9.]*'"),
    ("Ethernet address", Differs::Given, "cat /sys/class/net/eth0/address"),
    ("link-local address", Differs::Given, "ip -6 addr show eth0 | grep -o 'inet6 fe80[0-9a-f:]*'"),
    ("rank", Differs::Given, "echo $NICLAB_RANK; grep RANK /run/niclab/node.env"),
    ("machine id", Differs::Random, "cat /etc/machine-id"),
    ("boot id", Differs::Random, "cat /proc/sys/kernel/random/boot_id"),
    ("UUID", Differs::Random, "cat /proc/sys/kernel/random/uuid"),
    ("random bytes", Differs::Random, "od -An -N32 -tx1 /dev/urandom"),
    ("start of a stack", Differs::Random, "sed -n '/stack/s/-.*//p' /proc/self/maps"),
    ("AT_RANDOM", Differs::Random, "./seeds at-random"),
    ("random bytes by system call", Differs::Random, "./seeds getrandom"),
    ("TCP sequence numbers", Differs::Secret, "./seeds tcp"),
];

/// Prints values that only a program can see. Initial sequence numbers are a keyed hash of the connection plus the time
/// in units of 64 ns. The program subtracts the time. The connections are the same in each guest, so the rest differs
/// only by the key.
const SEEDS: &str = r#"
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

static int print_bytes(const unsigned char *bytes)
{
    for (int i = 0; i < 16; i++)
        printf("%02x", bytes[i]);
    return puts("") < 0;
}

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int print_sequence(unsigned short port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(port + 1000)};
    int one = 1, queue = TCP_SEND_QUEUE;
    unsigned sequence;
    socklen_t size = sizeof sequence;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&to, sizeof to) || listen(listener, 1) || bind(client, (void *)&from, sizeof from))
        return perror("bind"), 1;
    unsigned long long began_ns = now_ns();
    if (connect(client, (void *)&to, sizeof to))
        return perror("connect"), 1;
    if (setsockopt(client, IPPROTO_TCP, TCP_REPAIR, &one, sizeof one)
        || setsockopt(client, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof queue)
        || getsockopt(client, IPPROTO_TCP, TCP_QUEUE_SEQ, &sequence, &size))
        return perror("sequence number"), 1;
    return printf("%u ", sequence - (unsigned)(began_ns >> 6)) < 0;
}

int main(int argc, char **argv)
{
    unsigned char bytes[16];
    if (argc == 2 && !strcmp(argv[1], "at-random"))
        return print_bytes((void *)getauxval(AT_RANDOM));
    if (argc == 2 && !strcmp(argv[1], "getrandom"))
        return getrandom(bytes, sizeof bytes, 0) != sizeof bytes || print_bytes(bytes);
    for (unsigned short port = 5000; port < 5004; port++)
        if (print_sequence(port))
            return 1;
    return puts("") < 0;
}
"#;

/// The delay of the program's clock reading that the test tolerates, in units of 64 ns.
const LATE: u32 = (Duration::from_millis(500).as_nanos() / 64) as u32;

/// Whether two lists of sequence numbers have different keys. By chance all four numbers are close together once in
/// 10^9 pairs.
fn differ_in_key(one: &str, other: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    };
    let (one, other) = (numbers(one), numbers(other));
    assert_eq!((one.len(), other.len()), (4, 4));
    one.iter().zip(&other).any(|(a, b)| a.wrapping_sub(*b).min(b.wrapping_sub(*a)) > LATE)
}

/// Each node's values by rank; the last one is its time in seconds.
fn start(niclab: &Niclab, nodes: usize) -> Vec<Vec<String>> {
    let asked: String = (DIFFERENCES.iter().map(|(.., ask)| *ask))
        .chain(["date +%s"])
        .enumerate()
        .map(|(at, ask)| format!("echo \"answer {at} \" $({ask})\n"))
        .collect();
    let begin = seconds();
    let outcome = niclab.run(["run", "--nodes", &nodes.to_string(), "--", "sh", "-c", &asked]).success();
    let end = seconds();
    assert!(outcome.stderr.contains("restoring"), "the nodes are restored from a template\n{outcome}");
    let answers = |rank: usize| -> Vec<String> {
        let answer = |at: usize| {
            let prefix = format!("node{rank} | answer {at} ");
            let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(&prefix));
            let line = line.unwrap_or_default().trim().to_owned();
            assert!(!line.is_empty(), "node{rank} has no value {at}\n{outcome}");
            line
        };
        (0..=DIFFERENCES.len()).map(answer).collect()
    };
    let answers: Vec<_> = (0..nodes).map(answers).collect();
    for (rank, said) in answers.iter().enumerate() {
        let time: u64 = said[DIFFERENCES.len()].parse().expect("seconds");
        // The template was saved earlier; the node must have the present time.
        let here = begin.saturating_sub(1)..=end + 1;
        assert!(here.contains(&time), "node{rank} has the time {time}, but the host's was {here:?}");
    }
    answers
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
}

#[test]
fn nodes_of_one_template_differ_and_have_the_hosts_time() {
    let niclab = Niclab::new();
    compile(&niclab, "seeds", SEEDS);
    // A new template has the host's time by itself, so this one is built before.
    niclab.run(["run", "--nodes", "1", "--", "true"]).success();
    let starts = [start(&niclab, 3), start(&niclab, 3)];
    let mut equal = Vec::new();
    for (at, (what, differs, _)) in DIFFERENCES.into_iter().enumerate() {
        let mut said: Vec<(String, &str)> = Vec::new();
        for (start, nodes) in starts.iter().enumerate() {
            for (rank, answers) in nodes.iter().enumerate() {
                said.push((format!("node{rank} of start {start}"), &answers[at]));
            }
        }
        for (index, (one, a)) in said.iter().enumerate() {
            for (other, b) in &said[index + 1..] {
                let is_same_node = one[..5] == other[..5];
                let is_good = match differs {
                    Differs::Given => (a == b) == is_same_node,
                    Differs::Random => a != b,
                    Differs::Secret => differ_in_key(a, b),
                };
                if !is_good {
                    equal.push(format!("{what}: {one} has {a}, {other} has {b}"));
                }
            }
        }
    }
    assert!(equal.is_empty(), "{}", equal.join("\n"));
}

/// The machine as a guest sees it, as sizes, flags and names. Addresses change when a card is plugged in, and interrupt
/// numbers depend on the order of drivers.
const MACHINE: &str = r#"
    for device in /sys/bus/pci/devices/*; do
        for file in vendor device class revision subsystem_vendor subsystem_device; do
            echo "${device##*/} $file $(cat $device/$file)"
        done
        number=0
        while read -r begin end flags; do
            echo "${device##*/} resource $number: $(($end - $begin)) $flags"
            number=$((number + 1))
        done <$device/resource
    done
    sed -n 's/^ *[0-9]*: *[0-9 ]* \(.*\)/interrupt \1/p' /proc/interrupts | sed 's/  */ /g; s/IO-APIC [0-9]*/IO-APIC/'
    for device in /sys/bus/virtio/devices/*; do
        echo "virtio $(cat $device/device) $(cat $device/features)"
    done
    cat /proc/cmdline
    sed -n '/^flags\|^model name/p' /proc/cpuinfo
    grep MemTotal /proc/meminfo
    nproc
    lsmod | cut -d ' ' -f 1"#;

/// Whether a guest was restored from a template, according to its own log.
pub(crate) const IS_RESTORED: &str = "dmesg | grep -q 'virtual machine fork'";

fn lines(outcome: &Outcome) -> BTreeSet<String> {
    outcome.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn a_restored_node_is_the_machine_that_boots() {
    let niclab = Niclab::new();
    fs::write(niclab.folder().join("machine"), MACHINE).expect("a script");
    niclab.run(["up", "--nodes", "1"]).success();
    let exec = |script: &str| niclab.run(["exec", "node0", "--", "sh", "-c", script]);
    assert_eq!(exec(IS_RESTORED).code(), 0, "the node is restored\n{}", exec("dmesg"));
    let restored = exec(". ./machine").success();
    niclab.run(["down"]).success();

    let up = niclab.run(["up", "--nodes", "1", "--cold"]).success();
    assert!(up.stderr.contains("booting"), "{up}");
    assert_ne!(exec(IS_RESTORED).code(), 0, "the node booted\n{}", exec("dmesg"));
    let booted = exec(". ./machine").success();
    niclab.run(["down"]).success();
    let (restored, booted) = (lines(&restored), lines(&booted));
    let [lacks, has] = [booted.difference(&restored), restored.difference(&booted)];
    let (lacks, has) = (lacks.collect::<Vec<_>>(), has.collect::<Vec<_>>());
    assert!(restored.len() > 50, "{restored:#?}");
    assert!(lacks.is_empty() && has.is_empty(), "a restored node lacks {lacks:#?}\nand has {has:#?}");
}

#[test]
fn the_reason_against_a_template_is_one_line() {
    let niclab = Niclab::new();
    let plan = |arguments: &[&str]| niclab.run([&["plan", "--json"], arguments].concat()).success().json();
    let incoming = |plan: &serde_json::Value| {
        let args = plan["nodes"][0]["qemu"]["args"].as_array().expect("arguments");
        args.iter().any(|arg| arg == "-incoming")
    };
    let usual = plan(&[]);
    assert!(incoming(&usual) && usual["start"]["way"] == "template", "{usual:#}");
    let smp = plan(&["--vcpus", "2"]);
    assert!(incoming(&smp), "{smp:#}");
    assert_ne!(smp["nodes"][0]["restore"]["template"], usual["nodes"][0]["restore"]["template"]);
    let cold = plan(&["--cold"]);
    assert!(!incoming(&cold) && cold["start"]["obstacle"].is_null(), "{cold:#}");

    // The default kernel, given as the user's own.
    let args = cold["nodes"][0]["qemu"]["args"].as_array().expect("arguments");
    let kernel = args.iter().skip_while(|arg| *arg != "-kernel").nth(1).expect("a kernel");
    let device = "qemu_args = [\"-device\", \"edu\"]\n";
    for (file, words) in
        [(format!("kernel = {kernel}\n"), "a kernel of your own"), (device.to_owned(), "has `-device`")]
    {
        fs::write(niclab.folder().join("c.toml"), file).expect("a cluster file");
        let plan = plan(&["--cluster", "c.toml"]);
        let obstacle = plan["start"]["obstacle"].as_str().unwrap_or_default();
        assert!(!incoming(&plan) && obstacle.contains(words), "{words}: {plan:#}");
    }
    let outcome = niclab.run([
        "run",
        "--cluster",
        "c.toml",
        "--nodes",
        "1",
        "--",
        "sh",
        "-c",
        "grep -l 0x11e8 /sys/bus/pci/devices/*/device",
    ]);
    let said: Vec<_> = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("the nodes boot: qemu_args has `-device`"))
        .collect();
    assert_eq!(said.len(), 1, "{outcome}");
    outcome.success();

    let smp = niclab
        .run(["run", "--vcpus", "2", "--nodes", "1", "--", "sh", "-c", &format!("{IS_RESTORED} && nproc")])
        .success();
    assert_eq!(smp.stdout, "node0 | 2\n", "{smp}");
}
