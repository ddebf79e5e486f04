//! QEMU's command line; each group of arguments has a comment with its reason.
//!
//! A restored guest expects the machine on which it was saved. So one function, [`Arguments::devices`], defines the
//! devices and their order, for guests that boot, for the saved one and for restored ones. Sockets, files and network
//! backends may differ, and are in the other groups.

use std::{os::fd::AsRawFd, path::Path};

use niclab_images::Images;
use niclab_spec::{LinkConfig, Node, pci};
use serde_json::{Value, json};

use super::accelerator::{Accelerator, AcceleratorKind};
use super::{PlanError, double_commas, escaped, text};

/// QEMU's name of each guest's Ethernet function.
pub const ETHERNET_DEVICE: &str = "ethernet-function";

/// The PCI Express port into which each guest's card is plugged.
const CARD_PORT: &str = "card";

/// `panic=-1` with `-no-reboot`: a guest's panic ends its QEMU, which the launcher notices at once.
///
/// `no_timer_check`: the kernel otherwise counts timer ticks while it spins. It panics ("IO-APIC + timer doesn't work")
/// if a loaded host does not schedule QEMU's timer thread meanwhile.
///
/// `cryptomgr.notests` and `initcall_blacklist`: self-tests of ciphers, and of the entropy source that counts timer
/// jitter, take a fifth of an emulated boot. They prove nothing about an emulated processor, and the guest has a random
/// number device.
///
/// `tsc=reliable`: the time stamp counter is the host's own. The kernel otherwise compares it with its count of timer
/// ticks, of which a loaded host delivers too few. It then distrusts the counter and uses a slow clock from then on.
/// With a template, all nodes would.
const KERNEL_ARGUMENTS: &str = "panic=-1 no_timer_check tsc=reliable cryptomgr.notests \
                                initcall_blacklist=jent_mod_init,crypto_kdf108_init";

/// The stock kernel's console shows only errors.
const QUIET: &str = "quiet";

/// A debug kernel's console also shows warnings, because its findings are warnings, and each occurrence of them. This
/// kernel is so slow that it would report itself as stalled. kmemleak must be requested, and KASAN is silent after its
/// first report otherwise. Freed pages are cleared, so that a device that still uses them notices foreign stores.
const ON_DEBUG_KERNEL: &str =
    "loglevel=5 rcupdate.rcu_cpu_stall_suppress=1 kmemleak=on kasan_multi_shot init_on_free=1";

/// Keeps niclab's driver out of a guest whose card has another driver; `images/guest/init` reads this. An oops of such
/// a driver ends the run with a report, even if the kernel could continue.
const OWN_DRIVER: &str = " niclab_driver=none oops=panic";

/// Below this size a tmpfs, which takes at most half the memory, cannot hold the initramfs, and its files would
/// silently stay empty. A ramfs has no such limit. With more memory the tmpfs's limit is useful.
const TMPFS_MEMORY_MIB: u32 = 160;

/// The source of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// QEMU allocates it.
    Own,
    /// QEMU's standard input: a file without a name, which the launcher made. QEMU excludes memory from the saved state
    /// only if it came from a named file.
    StandardInput,
}

/// When QEMU starts the guest, relative to the connection to the agent's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The launcher may connect at any time.
    Later,
    /// QEMU starts the guest after the launcher has connected. So a restored guest has its host from the first
    /// instruction on.
    First,
}

/// Arguments of one QEMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(pub Vec<String>);

impl Arguments {
    /// An option with its value.
    pub fn pair(&mut self, option: &str, value: impl Into<String>) {
        self.0.extend([option.to_owned(), value.into()]);
    }

    /// The machine and all its devices but the card, for a node with these properties. The caller must first add the
    /// character devices `console` and `agent`, and with `has_share` the file system device `cwd`.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn devices(
        &mut self,
        node: &Node,
        images: &Images,
        accelerator: &Accelerator,
        has_share: bool,
    ) -> Result<(), PlanError> {
        // No default devices: each one costs boot time.
        self.0.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
        self.pair("-display", "none");
        // The daemon reads and writes guest memory, so the memory is a file that both map. Linux starts the HPET, then
        // switches to the processor's timer and leaves the HPET ticking. QEMU would wake 500 times per second for each
        // idle guest.
        self.pair("-machine", "q35,memory-backend=mem,vmport=off,hpet=off");
        self.pair("-m", format!("{}M", node.memory_mib));
        self.pair("-smp", node.vcpus.to_string());
        let (accelerator, cpu) = match accelerator.kind {
            AcceleratorKind::Kvm => ("kvm", "host"),
            // All features of TCG, so that programs built for newer processors run.
            AcceleratorKind::Tcg => ("tcg,thread=multi", "max"),
        };
        self.pair("-accel", accelerator);
        self.pair("-cpu", cpu);
        self.pair("-device", "virtio-rng-pci");
        // A restored guest notices the new generation, and reseeds its random numbers.
        self.pair("-device", "vmgenid,guid=auto");
        if let Some(disk) = &images.root_disk {
            self.root_disk(disk)?;
        }
        // A port of its own, so that the card can be plugged into a running guest. The port reserves room for the
        // cluster function's BAR, because the guest assigns addresses before the card exists.
        self.pair(
            "-device",
            format!("pcie-root-port,id={CARD_PORT},chassis=1,slot=1,pref64-reserve=32M,mem-reserve=4M"),
        );
        self.pair("-serial", "chardev:console");
        self.pair("-device", "virtio-serial-pci");
        self.pair("-device", format!("virtserialport,chardev=agent,name={}", niclab_agent::PORT_NAME));
        if has_share {
            self.pair("-device", "virtio-9p-pci,fsdev=cwd,mount_tag=cwd");
        }
        Ok(())
    }

    /// The kernel that a guest boots. A restored guest has it in its memory already, and loading it would take half of
    /// the processor time of QEMU's start.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn kernel(&mut self, node: &Node, images: &Images) -> Result<(), PlanError> {
        self.pair("-kernel", text(&images.kernel)?);
        self.pair("-initrd", text(&images.initramfs)?);
        let root = if node.memory_mib < TMPFS_MEMORY_MIB { " rootfstype=ramfs" } else { "" };
        let driver = if node.driver.is_some() { OWN_DRIVER } else { "" };
        let shown = if images.debug_kernel.is_none() { QUIET } else { ON_DEBUG_KERNEL };
        self.pair("-append", format!("console=ttyS0 {shown} {KERNEL_ARGUMENTS}{root}{driver}"));
        Ok(())
    }

    fn root_disk(&mut self, disk: &Path) -> Result<(), PlanError> {
        // All nodes share the disk, so it is neither written nor locked.
        let file = escaped(disk)?;
        let options = "read-only=on,locking=off";
        self.pair("-blockdev", format!("driver=file,node-name=root,filename={file},{options}"));
        self.pair("-device", "virtio-blk-pci,drive=root,serial=niclab-root");
        Ok(())
    }

    /// The guest's memory.
    pub fn memory(&mut self, mib: u32, memory: MemorySource) {
        self.pair(
            "-object",
            match memory {
                MemorySource::Own => format!("memory-backend-memfd,id=mem,size={mib}M,share=on"),
                MemorySource::StandardInput => {
                    format!("memory-backend-file,id=mem,size={mib}M,share=on,mem-path=/proc/self/fd/0")
                }
            },
        );
    }

    /// The console's backend: a file, to which QEMU appends.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn console(&mut self, file: &Path) -> Result<(), PlanError> {
        self.pair("-chardev", format!("file,id=console,path={},append=on", escaped(file)?));
        Ok(())
    }

    /// The backend of the agent's port: a socket on which QEMU listens.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn agent(&mut self, socket: &Path, connection: Connection) -> Result<(), PlanError> {
        let wait = if connection == Connection::First { "on" } else { "off" };
        self.pair("-chardev", format!("socket,id=agent,path={},server=on,wait={wait}", escaped(socket)?));
        Ok(())
    }

    /// The backend of the agent's port: the other end of a connection, which QEMU inherits.
    pub fn agent_over(&mut self, end: &impl AsRawFd) {
        self.pair("-chardev", format!("socket,id=agent,fd={}", end.as_raw_fd()));
    }

    /// As [`Self::control`], over the other end of a connection, which QEMU inherits.
    pub fn control_over(&mut self, end: &impl AsRawFd) {
        self.pair("-chardev", format!("socket,id=control,fd={}", end.as_raw_fd()));
        self.pair("-mon", "chardev=control,mode=control");
    }

    /// QEMU's control socket.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn control(&mut self, socket: &Path) -> Result<(), PlanError> {
        self.pair("-qmp", format!("unix:{},server=on,wait=off", escaped(socket)?));
        Ok(())
    }

    /// The backend of the shared file system: a folder of the host.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn share(&mut self, folder: &Path) -> Result<(), PlanError> {
        // `none` keeps owners and modes, and needs no privileges; `remap` allows mounts in the folder.
        let options = "security_model=none,multidevs=remap";
        self.pair("-fsdev", format!("local,id=cwd,path={},{options}", escaped(folder)?));
        Ok(())
    }

    /// Starts from a saved state; the memory is already in place.
    ///
    /// # Errors
    /// [`PlanError`] for a path that cannot be passed to QEMU.
    pub fn incoming(&mut self, state: &Path) -> Result<(), PlanError> {
        self.pair("-global", "migration.x-ignore-shared=on");
        self.pair("-incoming", format!("file:{}", text(state)?));
        Ok(())
    }

    /// The card's backends: the daemon's two sockets of this node. The Ethernet function has `queues` queue pairs.
    pub fn network(&mut self, ethernet_socket: &str, cluster_socket: &str, queues: u32) {
        self.pair("-chardev", format!("socket,id=ethernet,path={}", double_commas(ethernet_socket)));
        let several = if queues > 1 { format!(",queues={queues}") } else { String::new() };
        self.pair("-netdev", format!("vhost-user,id=net,chardev=ethernet{several}"));
        self.pair("-chardev", format!("socket,id=cluster,path={}", double_commas(cluster_socket)));
    }
}

/// One card with two functions, as `-device` and `device_add` take them. Function 0 comes last, because it announces
/// the card to a running guest.
#[must_use]
pub fn card(node: &Node) -> [Value; 2] {
    // `page-per-vq` gives the doorbell a page of its own, so that a program can map it.
    let cluster = json!({
        "driver": "vhost-user-test-device-pci",
        "id": "cluster-function",
        "chardev": "cluster",
        "virtio-id": pci::VIRTIO_ID,
        "num_vqs": pci::CLUSTER_QUEUES,
        "vq_size": pci::QUEUE_SIZE,
        "config_size": pci::CONFIG_SIZE,
        "page-per-vq": true,
        "bus": CARD_PORT,
        "addr": "0.1",
        "multifunction": true,
    });
    // `romfile`: a boot ROM would first try to boot from the network. `host_mtu`: without it a guest accepts any MTU,
    // and the link then drops its long frames. `speed` and `duplex`: bonding (LACP) ignores a link of unknown speed.
    let mut ethernet = json!({
        "driver": "virtio-net-pci",
        "id": ETHERNET_DEVICE,
        "netdev": "net",
        "mac": node.mac().to_string(),
        "romfile": "",
        "bus": CARD_PORT,
        "addr": "0.0",
        "multifunction": true,
        "host_mtu": node.link.mtu_bytes,
        "speed": speed_mbit_per_s(&node.link),
        "duplex": "full",
    });
    if node.queues > 1 {
        // One interrupt vector for each queue, one for the control queue, and one for changes of the configuration.
        ethernet["mq"] = true.into();
        ethernet["vectors"] = (2 * node.queues + 2).into();
    }
    [cluster, ethernet]
}

/// The link's rate for virtio-net: in Mb/s, a signed number of 32 bits in QEMU. To the guest, zero means unknown speed.
/// So a link of less than 1 Mb/s counts as 1 Mb/s.
fn speed_mbit_per_s(link: &LinkConfig) -> i32 {
    let rounded = link.bandwidth_bits_per_s.saturating_add(500_000) / 1_000_000;
    i32::try_from(rounded).unwrap_or(i32::MAX).max(1)
}
