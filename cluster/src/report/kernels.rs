//! The guests' own counters: interrupts in `/proc/interrupts`, and the time of their processors in `/proc/stat`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use niclab_agent::interrupts_of;
use niclab_spec::report::{Checked, GuestTime, NodeFigures};

use crate::{
    boot::{
        command::{self, CommandError, NodeCommand},
        running::RunningCluster,
    },
    plan::NodePlan,
};

/// The cluster function in [`Counts`].
const CLUSTER: &str = "cluster";

/// The prefix of the causes of the Ethernet function's interrupts.
const ETHERNET: &str = "ethernet_";

/// Interrupts by function: `cluster` and `ethernet`.
pub type Counts = BTreeMap<String, u64>;

/// The unit of `/proc/stat`, which every Linux presents to programs.
const TICK_NS: u64 = 10_000_000;

/// The counts of a kernel since its boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Interrupts.
    pub interrupts: Counts,
    /// Time of its processors, without the node's name.
    pub time: GuestTime,
}

/// Time limit for the guests to print a file.
const LIMIT: Duration = Duration::from_secs(30);

/// The guest's script. It prints which virtio device is each function of the card with the MAC address `$1`, for any
/// driver, and then the kernel's counts. It needs only a shell and `cat`.
const SCRIPT: &str = r#"
for device in /sys/bus/virtio/devices/*; do
    read -r id <"$device/device" && [ "$id" = 0x0026 ] && echo "cluster ${device##*/}"
done 2>/dev/null
for interface in /sys/class/net/*; do
    read -r address <"$interface/address" && [ "$address" = "$1" ] || continue
    cd -P "$interface/device" 2>/dev/null && echo "ethernet ${PWD##*/}"
done
read -r times </proc/stat && echo "$times"
echo
cat /proc/interrupts
"#;

/// The counts of all guests, by rank; `None` if one guest cannot report, which is logged. Those of a node that has
/// ended are empty.
///
/// # Errors
/// [`crate::boot::running::Failure`] if the cluster ends.
pub fn read(running: &mut RunningCluster) -> Result<Option<Vec<Kernel>>> {
    let command = |rank, node: &NodePlan| NodeCommand::shell(rank, SCRIPT, &[node.mac.to_string()]);
    let limit = LIMIT * running.plan().timeout_factor;
    match command::run_on_all(running, command, limit) {
        Ok(texts) => {
            Ok(Some(texts.iter().map(|text| text.as_deref().map(parse).unwrap_or_default()).collect()))
        }
        Err(error) if error.is::<CommandError>() => {
            log::warn!("the report does not contain the guests' own counts: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The difference between two readings. A guest that was reset in between counts from zero.
pub fn difference(before: &Kernel, after: &Kernel) -> Kernel {
    let added = |(function, count): (&String, &u64)| {
        let before = before.interrupts.get(function).copied().unwrap_or(0);
        (function.clone(), count.saturating_sub(before))
    };
    let (one, other) = (&before.time, &after.time);
    let time = GuestTime {
        user_ns: other.user_ns.saturating_sub(one.user_ns),
        system_ns: other.system_ns.saturating_sub(one.system_ns),
        interrupts_ns: other.interrupts_ns.saturating_sub(one.interrupts_ns),
        idle_ns: other.idle_ns.saturating_sub(one.idle_ns),
        ..GuestTime::default()
    };
    Kernel { interrupts: after.interrupts.iter().map(added).collect(), time }
}

/// Further interrupts of an adversarial device; each such event causes at most one.
const ADVERSARIAL_INTERRUPTS: [&str; 2] = ["interrupt_spurious", "interrupt_shared"];

/// Compares the kernels' own counts of the cluster function with the device's; `None` if no guest reported.
///
/// If the device raises a line again before the kernel took the interrupt, the kernel counts one interrupt. So a kernel
/// may count fewer interrupts than the device raised, but never more, and never zero. The Ethernet function is not
/// compared, because a guest's own stack may send at any time, also between the two readings. An adversarial device
/// also raises spurious interrupts, possibly later than it counts them. So for such a device only the maximum is
/// checked.
pub fn check(nodes: &[NodeFigures]) -> Option<Checked> {
    let pairs = nodes.iter().filter_map(|node| {
        let guest = *node.guest_interrupts.as_ref()?.get(CLUSTER)?;
        let of_cluster = node.interrupts.iter().filter(|(cause, _)| !cause.starts_with(ETHERNET));
        Some((node, of_cluster.fold(0_u64, |sum, (_, count)| sum.wrapping_add(*count)), guest))
    });
    let pairs: Vec<(&NodeFigures, u64, u64)> = pairs.collect();
    if pairs.is_empty() {
        return None;
    }
    let is_possible = |node: &NodeFigures, device: u64, guest: u64| {
        let of_nothing = ADVERSARIAL_INTERRUPTS.iter().filter_map(|kind| node.adversarial.get(*kind));
        let most = of_nothing.fold(device, |sum, count| sum.saturating_add(*count));
        guest <= most && (guest > 0 || device == 0 || !node.adversarial.is_empty())
    };
    let impossible = pairs.iter().filter(|(node, device, guest)| !is_possible(node, *device, *guest));
    let line = |(node, device, guest): &(&NodeFigures, u64, u64)| {
        format!("{}: {device} raised by the device, {guest} counted in /proc/interrupts", node.name)
    };
    let broken: Vec<String> = impossible.map(line).collect();
    let held = broken.is_empty();
    let detail = if held { pairs.iter().map(line).collect() } else { broken };
    Some(Checked { name: "guest-interrupts".to_owned(), held, detail: detail.join("; ") })
}

/// Parses the output of [`SCRIPT`].
fn parse(text: &str) -> Kernel {
    let (names, table) = text.split_once("\n\n").unwrap_or((text, ""));
    let time = names.lines().find_map(|line| line.strip_prefix("cpu ")).map(time_of).unwrap_or_default();
    let named = names.lines().filter_map(|line| line.split_once(' '));
    let interrupts = named
        .filter_map(|(function, device)| Some((function.to_owned(), interrupts_of(table, device)?)))
        .collect();
    Kernel { interrupts, time }
}

/// The first line of `/proc/stat`, for all processors: user, nice, system, idle, waiting for storage, interrupts, and
/// soft interrupts.
fn time_of(line: &str) -> GuestTime {
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let ns = |places: &[usize]| {
        let sum: u64 = places
            .iter()
            .filter_map(|place| ticks.get(*place))
            .fold(0, |sum, ticks| sum.wrapping_add(*ticks));
        sum.saturating_mul(TICK_NS)
    };
    GuestTime {
        user_ns: ns(&[0, 1]),
        system_ns: ns(&[2]),
        interrupts_ns: ns(&[5, 6]),
        idle_ns: ns(&[3, 4]),
        ..GuestTime::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "cluster virtio1
ethernet virtio10
cpu  700 3 40 9000 1 5 6 0 0 0

           CPU0       CPU1
 10:        100         23   IO-APIC  10-fasteoi   uhci_hcd:usb1, virtio1
 24:          0          7   PCI-MSIX-0000:00:03.0   0-edge      virtio10-config
 25:          5          0   PCI-MSIX-0000:00:03.0   1-edge      virtio10-input.0
NMI:          1          2   Non-maskable interrupts
";

    #[test]
    fn each_function_has_its_counts_over_all_processors() {
        let interrupts = [("cluster".to_owned(), 123), ("ethernet".to_owned(), 12)].into();
        assert_eq!(parse(OUTPUT).interrupts, interrupts);
        assert_eq!(parse("cluster virtio9\n\nNMI: 1\n"), Kernel::default(), "a device without a line");
        assert_eq!(parse("\nNMI: 1\n"), Kernel::default(), "a guest without the driver");
    }

    #[test]
    fn tick_is_a_hundredth_of_a_second() {
        let time = GuestTime {
            user_ns: 7_030_000_000,
            system_ns: 400_000_000,
            interrupts_ns: 110_000_000,
            idle_ns: 90_010_000_000,
            ..GuestTime::default()
        };
        assert_eq!(parse(OUTPUT).time, time);
        assert_eq!(parse("cpu  7\n\n").time, GuestTime { user_ns: 70_000_000, ..GuestTime::default() });
    }

    #[test]
    fn kernel_may_merge_interrupts_but_not_add_or_miss_them() {
        let held = |device: u64, guest: u64| {
            let node = NodeFigures {
                interrupts: [("message".to_owned(), device), ("ethernet_receive".to_owned(), 9)].into(),
                guest_interrupts: Some([("cluster".to_owned(), guest)].into()),
                ..NodeFigures::new("node0")
            };
            check(&[NodeFigures::new("silent"), node]).unwrap()
        };
        for (device, guest, is_possible) in
            [(0, 0, true), (7, 7, true), (7, 3, true), (7, 8, false), (7, 0, false), (0, 1, false)]
        {
            let checked = held(device, guest);
            assert_eq!(checked.held, is_possible, "{checked:?}");
            assert!(checked.detail.starts_with(&format!("node0: {device} raised")), "{checked:?}");
        }
        assert_eq!(check(&[NodeFigures::new("silent")]), None);
    }

    #[test]
    fn spurious_interrupts_stay_within_the_adversarial_count() {
        let held = |guest| {
            let mut node = NodeFigures::new("node0");
            node.interrupts = [("message".to_owned(), 4)].into();
            node.adversarial = [("interrupt_spurious".to_owned(), 2), ("slots_left".to_owned(), 9)].into();
            node.guest_interrupts = Some([(CLUSTER.to_owned(), guest)].into());
            check(&[node]).unwrap().held
        };
        assert!(held(0) && held(4) && held(6));
        assert!(!held(7));
    }

    #[test]
    fn difference_subtracts_every_count() {
        let kernel = |count| Kernel {
            interrupts: [("cluster".to_owned(), count)].into(),
            time: GuestTime {
                user_ns: count,
                system_ns: 2 * count,
                interrupts_ns: 3 * count,
                idle_ns: 4 * count,
                ..GuestTime::default()
            },
        };
        assert_eq!(difference(&kernel(100), &kernel(123)), kernel(23));
        assert_eq!(difference(&Kernel::default(), &kernel(7)), kernel(7));
    }
}
