//! QEMU's command line, each group of arguments with the reason for it.
//!
//! A guest that is restored finds the machine on which it was saved, so what its devices are and in which order they
//! come is said in one place, [`Arguments::devices`], for guests that boot, for the one that is saved and for those
//! that are restored. Sockets, files and the network behind them may differ, and come in the other groups.

use std::{os::fd::AsRawFd, path::Path};

use niclab_images::Images;
use niclab_spec::{LinkConfig, Node, pci};
use serde_json::{Value, json};

use super::accelerator::{Accelerator, Kind};
use super::{PlanError, double_commas, escaped, text};

/// QEMU's name of each guest's Ethernet function.
pub const ETHERNET_DEVICE: &str = "ethernet-function";

/// The PCI Express port that each guest's card is plugged into.
const CARD_PORT: &str = "card";

/// `panic=-1` with `-no-reboot` makes a guest panic end its QEMU, which the launcher notices at once. `no_timer_check`
/// because the kernel otherwise counts timer ticks while it spins, and panics ("IO-APIC + timer doesn't work") where
/// a loaded host gave QEMU's timer thread no turn meanwhile.
///
/// Self-tests of ciphers, and of the entropy source that counts timer jitter, are a fifth of an emulated boot. They
/// prove nothing about an emulated processor, and the guest has a random number device.
///
/// `tsc=reliable` because the time stamp counter is the host's own. The kernel otherwise compares it with its count of
/// timer ticks, of which a loaded host delivers too few, finds it wrong, and reads a slow clock ever after; in a
/// template all nodes would.
const KERNEL_ARGUMENTS: &str = "panic=-1 no_timer_check tsc=reliable cryptomgr.notests \
                                initcall_blacklist=jent_mod_init,crypto_kdf108_init";

/// What the kernel's console shows: errors.
const QUIET: &str = "quiet";

/// The same of a debug kernel: warnings as well, for what it finds is one, and each as often as it is found. A
/// kernel that is this slow would take itself for stalled. kmemleak is on only where it is asked for, and KASAN goes
/// silent after its first report otherwise. Pages that are freed are cleared: a device to which they still belong sees
/// that somebody else stored there.
const ON_DEBUG_KERNEL: &str =
    "loglevel=5 rcupdate.rcu_cpu_stall_suppress=1 kmemleak=on kasan_multi_shot init_on_free=1";

/// Leaves niclab's driver out of a guest whose card is another's: its first program reads this (`images/guest/init`).
/// What such a driver does wrong ends the run and is told, even where the kernel would go on without the program that
/// met it.
const OWN_DRIVER: &str = " niclab_driver=none oops=panic";

/// Below this a tmpfs, which takes at most half the memory, cannot hold the initramfs, and files in it would silently
/// stay empty. A ramfs takes what it needs; with more memory the limit is worth having.
const TMPFS_MEMORY_MIB: u32 = 160;

/// Where the guest's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// QEMU makes it.
    Own,
    /// It is QEMU's standard input: a file without a name, which the launcher made. QEMU leaves memory out of what it
    /// saves only if it came from a named file.
    StandardInput,
}

/// How long the agent's socket is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The launcher connects when it likes.
    Later,
    /// QEMU starts when the launcher has connected, so that a restored guest has its host from the first instruction
    /// on.
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

    /// The machine and all its devices but the card, for a node with these properties. Whoever adds them has to add the
    /// character devices `console` and `agent`, and the file system device `cwd` if `has_share`, before.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn devices(
        &mut self,
        node: &Node,
        images: &Images,
        accelerator: &Accelerator,
        has_share: bool,
    ) -> Result<(), PlanError> {
        // Nothing that is not asked for: each default device costs boot time.
        self.0.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
        self.pair("-display", "none");
        // The daemon reads and writes guest memory, so it is a file that both map. Linux starts the HPET, turns to the
        // timer of its processor and leaves the HPET ticking: QEMU would wake 500 times a second for each guest that
        // does nothing.
        self.pair("-machine", "q35,memory-backend=mem,vmport=off,hpet=off");
        self.pair("-m", format!("{}M", node.memory_mib));
        self.pair("-smp", node.vcpus.to_string());
        let (accelerator, cpu) = match accelerator.kind {
            Kind::Kvm => ("kvm", "host"),
            // All that TCG can do, so that programs built for newer processors run.
            Kind::Tcg => ("tcg,thread=multi", "max"),
        };
        self.pair("-accel", accelerator);
        self.pair("-cpu", cpu);
        self.pair("-device", "virtio-rng-pci");
        // Tells a restored guest that it is another one now, so that it draws other random numbers.
        self.pair("-device", "vmgenid,guid=auto");
        if let Some(disk) = &images.root_disk {
            self.root_disk(disk)?;
        }
        // A port of its own, so that the card can be plugged into a guest that runs. Room for the cluster function's
        // BAR is kept free behind it, because the guest gives out addresses before the card is there.
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

    /// What a guest boots. One that is restored has it in its memory, and QEMU would read it for nothing: that is half
    /// the processor time that QEMU takes to start.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
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
        // Shared by all nodes, so it is neither written nor locked.
        let file = escaped(disk)?;
        let options = "read-only=on,locking=off";
        self.pair("-blockdev", format!("driver=file,node-name=root,filename={file},{options}"));
        self.pair("-device", "virtio-blk-pci,drive=root,serial=niclab-root");
        Ok(())
    }

    /// The guest's memory.
    pub fn memory(&mut self, mib: u32, memory: Memory) {
        self.pair(
            "-object",
            match memory {
                Memory::Own => format!("memory-backend-memfd,id=mem,size={mib}M,share=on"),
                Memory::StandardInput => {
                    format!("memory-backend-file,id=mem,size={mib}M,share=on,mem-path=/proc/self/fd/0")
                }
            },
        );
    }

    /// What is behind the console: a file, to which is written at its end.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn console(&mut self, file: &Path) -> Result<(), PlanError> {
        self.pair("-chardev", format!("file,id=console,path={},append=on", escaped(file)?));
        Ok(())
    }

    /// What is behind the agent's port: a socket on which QEMU listens.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn agent(&mut self, socket: &Path, connection: Connection) -> Result<(), PlanError> {
        let wait = if connection == Connection::First { "on" } else { "off" };
        self.pair("-chardev", format!("socket,id=agent,path={},server=on,wait={wait}", escaped(socket)?));
        Ok(())
    }

    /// What is behind the agent's port: the other end of a connection, which QEMU is to inherit.
    pub fn agent_over(&mut self, end: &impl AsRawFd) {
        self.pair("-chardev", format!("socket,id=agent,fd={}", end.as_raw_fd()));
    }

    /// As [`Self::control`], over the other end of a connection, which QEMU is to inherit.
    pub fn control_over(&mut self, end: &impl AsRawFd) {
        self.pair("-chardev", format!("socket,id=control,fd={}", end.as_raw_fd()));
        self.pair("-mon", "chardev=control,mode=control");
    }

    /// Where QEMU itself is reached.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn control(&mut self, socket: &Path) -> Result<(), PlanError> {
        self.pair("-qmp", format!("unix:{},server=on,wait=off", escaped(socket)?));
        Ok(())
    }

    /// What is behind the guest's shared file system: a folder of the host's.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn share(&mut self, folder: &Path) -> Result<(), PlanError> {
        // `none` keeps owners and modes as they are, and asks for no privileges; `remap` lets the folder hold mounts.
        let options = "security_model=none,multidevs=remap";
        self.pair("-fsdev", format!("local,id=cwd,path={},{options}", escaped(folder)?));
        Ok(())
    }

    /// Starts with a saved state, whose memory is there already.
    ///
    /// # Errors
    /// [`PlanError`] for a path that QEMU cannot be told.
    pub fn incoming(&mut self, state: &Path) -> Result<(), PlanError> {
        self.pair("-global", "migration.x-ignore-shared=on");
        self.pair("-incoming", format!("file:{}", text(state)?));
        Ok(())
    }

    /// What is behind the card: the daemon's two sockets of this node. The Ethernet function has `queues` queue pairs.
    pub fn network(&mut self, ethernet_socket: &str, cluster_socket: &str, queues: u32) {
        self.pair("-chardev", format!("socket,id=ethernet,path={}", double_commas(ethernet_socket)));
        let several = if queues > 1 { format!(",queues={queues}") } else { String::new() };
        self.pair("-netdev", format!("vhost-user,id=net,chardev=ethernet{several}"));
        self.pair("-chardev", format!("socket,id=cluster,path={}", double_commas(cluster_socket)));
    }
}

/// One card with two functions, as `-device` and `device_add` take them. Function 0 comes last: it is what tells a
/// guest that runs that there is a card.
#[must_use]
pub fn card(node: &Node) -> [Value; 2] {
    // `page-per-vq` gives the doorbell a page of its own, which can then be mapped into a program.
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
    // `romfile` because a boot ROM would look for a network to boot from first. `host_mtu` because a guest that is not
    // given the MTU accepts any, and the link then drops its long frames. `speed` and `duplex` because bonding (LACP)
    // leaves out a link whose speed it does not know.
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
        // An interrupt vector for each queue, for the control queue, and for changes of configuration.
        ethernet["mq"] = true.into();
        ethernet["vectors"] = (2 * node.queues + 2).into();
    }
    [cluster, ethernet]
}

/// The link's rate as virtio-net has it: in Mb/s, and a signed number of 32 bits in QEMU. Zero would be a link of
/// unknown speed to the guest, so a link of less than 1 Mb/s counts as one of 1 Mb/s.
fn speed_mbit_per_s(link: &LinkConfig) -> i32 {
    let rounded = link.bandwidth_bits_per_s.saturating_add(500_000) / 1_000_000;
    i32::try_from(rounded).unwrap_or(i32::MAX).max(1)
}
