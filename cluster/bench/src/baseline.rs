//! What the NIC is compared with: a second network card in two guests, QEMU's own virtio-net with the offloads it has by
//! default, and a `-netdev stream` between the two QEMUs over a unix socket.

use std::{net::Ipv4Addr, path::Path, time::Duration};

use anyhow::Result;
use niclab_cluster::boot::command::{self, NodeCommand};
use niclab_cluster::{boot::running::RunningCluster, plan::Plan};

/// How long a guest may take to bring the interface up.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Brings up the interface with the Ethernet address `$1`, with the IP address `$2`. The peer's QEMU may not have
/// connected yet, so the first answer is waited for: `$3` is the peer.
const SETUP: &str = r#"
for path in /sys/class/net/*; do
    [ "$(cat "$path/address")" = "$1" ] && name=${path##*/}
done
[ -n "$name" ] || { echo "no interface has the address $1" >&2; exit 1; }
ip link set "$name" up && ip addr add "$2/24" dev "$name" || exit 1
tries=20
until ping -c 1 -W 1 "$3" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "$3 does not answer" >&2; exit 1; }
done
"#;

/// The addresses of both ends, as `niclab-perf` takes them. No other network of a cluster uses them.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];

/// Locally administered, and not of the cards' own range.
fn mac(rank: usize) -> String {
    format!("52:54:00:78:00:{:02x}", rank + 1)
}

/// Puts the cards into the plan of a cluster of two nodes, whose files are in `folder`.
pub fn add(plan: &mut Plan, folder: &Path) {
    // In the option list a comma stands doubled.
    let path = folder.join("baseline").display().to_string().replace(',', ",,");
    for (rank, node) in plan.nodes.iter_mut().enumerate().take(ADDRESSES.len()) {
        // The second QEMU may start first; it then tries again until there is somebody to connect to.
        let role = if rank == 0 { "server=on" } else { "server=off,reconnect-ms=50" };
        node.qemu.args.extend([
            "-netdev".to_owned(),
            format!("stream,id=baseline,{role},addr.type=unix,addr.path={path}"),
            "-device".to_owned(),
            // `romfile=` because a boot ROM would look for a network to boot from first.
            format!("virtio-net-pci,netdev=baseline,mac={},romfile=", mac(rank)),
        ]);
    }
}

/// Gives the cards their addresses, and waits until each end reaches the other.
///
/// # Errors
/// When a guest has no such card, or its peer does not answer.
pub fn set_up(running: &mut RunningCluster) -> Result<()> {
    let commands: Vec<NodeCommand> = (0..ADDRESSES.len())
        .zip(ADDRESSES)
        .zip(ADDRESSES.iter().rev())
        .map(|((rank, own), peer)| {
            NodeCommand::shell(rank, SETUP, &[mac(rank), own.to_string(), peer.to_string()])
        })
        .collect();
    command::run(running, &commands, SETUP_TIMEOUT)?;
    Ok(())
}
