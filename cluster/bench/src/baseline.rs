//! The networks that the NIC is compared with: a second network card in two guests. The card is QEMU's own virtio-net
//! with its default offloads, or a model of real hardware. A `-netdev stream` connects the two QEMUs over a unix
//! socket.

use std::{net::Ipv4Addr, path::Path, time::Duration};

use anyhow::Result;
use niclab_cluster::boot::command::{self, NodeCommand};
use niclab_cluster::{boot::running::RunningCluster, plan::Plan};

/// How long a guest may take to bring the interface up.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Brings up the interface with the Ethernet address `$1` and the IP address `$2`. Then waits until the peer `$3`
/// answers, because its QEMU may not have connected yet. `$4` is the driver's module, which may be loaded already.
const SETUP: &str = r#"
modprobe -q "$4"
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

/// A network card.
#[derive(Debug)]
pub struct Card {
    /// Its name, unique among the cards of a node.
    name: &'static str,
    /// QEMU's device.
    device: &'static str,
    /// Linux's driver module.
    module: &'static str,
    /// The network's number, a part of its IP and Ethernet addresses.
    network: u8,
}

/// QEMU's own virtio-net.
pub const STREAM: Card =
    Card { name: "baseline", device: "virtio-net-pci", module: "virtio_net", network: 78 };

/// A DEC 21143, with the kernel's own driver.
pub const TULIP: Card = Card { name: "tulip", device: "tulip", module: "tulip", network: 80 };

/// The IP addresses of both ends of [`STREAM`].
pub const ADDRESSES: [Ipv4Addr; 2] = STREAM.addresses();

impl Card {
    /// The IP addresses of both ends, for `niclab-perf`. No other network of a cluster uses them.
    pub const fn addresses(&self) -> [Ipv4Addr; 2] {
        [Ipv4Addr::new(10, self.network, 0, 1), Ipv4Addr::new(10, self.network, 0, 2)]
    }

    /// An Ethernet address: locally administered, and outside of the range of the cluster's cards.
    fn mac(&self, rank: usize) -> String {
        format!("52:54:00:{}:00:{:02x}", self.network, rank + 1)
    }

    /// Adds this card to the first two nodes of a cluster's plan. `folder` has the cluster's files.
    pub fn add(&self, plan: &mut Plan, folder: &Path) {
        let Self { name, device, .. } = self;
        // QEMU's option lists need each comma twice.
        let path = folder.join(name).display().to_string().replace(',', ",,");
        for (rank, node) in plan.nodes.iter_mut().enumerate().take(2) {
            // The second QEMU may start first; it then retries until the first one listens.
            let role = if rank == 0 { "server=on" } else { "server=off,reconnect-ms=50" };
            node.qemu.args.extend([
                "-netdev".to_owned(),
                format!("stream,id={name},{role},addr.type=unix,addr.path={path}"),
                "-device".to_owned(),
                // Without `romfile=`, the boot ROM would first try to boot from the network.
                format!("{device},netdev={name},mac={},romfile=", self.mac(rank)),
            ]);
        }
    }

    /// Configures the cards' addresses, and waits until each end reaches the other.
    ///
    /// # Errors
    /// When a guest has no such card, or its peer does not answer.
    pub fn set_up(&self, running: &mut RunningCluster) -> Result<()> {
        let [first, second] = self.addresses();
        let commands: Vec<NodeCommand> = [(first, second), (second, first)]
            .into_iter()
            .enumerate()
            .map(|(rank, (own, peer))| {
                let arguments = [self.mac(rank), own.to_string(), peer.to_string(), self.module.to_owned()];
                NodeCommand::shell(rank, SETUP, &arguments)
            })
            .collect();
        command::run(running, &commands, SETUP_TIMEOUT)?;
        Ok(())
    }
}
