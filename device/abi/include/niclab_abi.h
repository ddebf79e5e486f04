/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Generated from the niclab-abi crate by niclab-abi-header; do not edit.
 * References in brackets name items of that crate. All fields are little-endian.
 */
#ifndef NICLAB_ABI_H
#define NICLAB_ABI_H

#include <linux/types.h>

#ifdef __cplusplus
#define NICLAB_ASSERT_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "size of " #type)
#else
#define NICLAB_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#endif

/*
 * What a host and a niclab NIC agree on, and nothing else.
 *
 * Every layout that crosses the boundary between a guest and the device is defined here once: the kernel driver
 * uses it through the generated C header (`include/niclab_abi.h`), the user library and the device daemon directly.
 * All fields are little-endian; all structures are `repr(C)` without implicit padding, and their sizes are asserted
 * at compile time.
 *
 * Read in this order:
 *
 * 1. [`config`]: what a driver reads first, in the virtio configuration space;
 * 2. [`bar`]: the information page, and the requester and completer pages of a port;
 * 3. [`receive`]: slices and the status line, which the device writes into host memory;
 * 4. [`control`]: requests on the control queue;
 * 5. [`event`]: what an interrupt tells;
 * 6. [`ioctl`]: the character device between the kernel driver and a user program.
 *
 * `docs/DEVICE.md` is the prose of this crate: the device programmer's manual.
 */

/* Version of everything in this crate. A driver refuses a device that speaks another version. */
#define NICLAB_ABI_VERSION 1U

/*
 * First word of the configuration space and of the BAR's information page: the bytes `niclab\0\x01`.
 *
 * The virtio identity 38 is not ours alone, so that the driver must recognise the device by this word.
 */
#define NICLAB_MAGIC 0x10062616c63696eULL

/* Virtio device identity of the cluster function: one that QEMU's name table knows and no Linux driver claims. */
#define NICLAB_VIRTIO_ID 38U

/* Bytes of a page: of the BAR, and of a queue-notify register's own page. */
#define NICLAB_PAGE_BYTES 4096U

/* Virtqueues of the cluster function; `num_vqs` on QEMU's command line. */
#define NICLAB_QUEUES 5U

/* Descriptors of each virtqueue; `vq_size` on QEMU's command line. */
#define NICLAB_QUEUE_SIZE 256U

/* Requests and replies, [`control`]. */
#define NICLAB_QUEUE_CONTROL 0U

/* Buffers that the device fills with an [`event::Event`] each; the only queue that interrupts. */
#define NICLAB_QUEUE_EVENT 1U

/* Transmit descriptor ring of the models that send by descriptor. ULTRA leaves it idle. */
#define NICLAB_QUEUE_TRANSMIT 2U

/* Receive descriptor ring of the models that receive by descriptor. ULTRA leaves it idle. */
#define NICLAB_QUEUE_RECEIVE 3U

/*
 * Never holds a descriptor: its notify register, which has a page of its own, is the doorbell of all requester and
 * completer pages, mapped into user programs.
 */
#define NICLAB_QUEUE_DOORBELL 4U

/*
 * The virtio configuration space of the cluster function: what a driver reads before anything else.
 */

/* Bytes of configuration space; `config_size` on QEMU's command line, which aborts above 256. */
#define NICLAB_CONFIG_BYTES 256U

/* [`DeviceConfig::model`]: protocol assembled from hardware primitives. */
#define NICLAB_MODEL_INIC 1U

/* [`DeviceConfig::model`]: logical channels and active messages. */
#define NICLAB_MODEL_GRIM 2U

/* [`DeviceConfig::model`]: microcoded match engine. */
#define NICLAB_MODEL_MATCH 3U

/* [`DeviceConfig::model`]: requester and completer, one I/O cycle a message. */
#define NICLAB_MODEL_ULTRA 4U

/* [`DeviceConfig::model`]: descriptor DMA, active ports, credit window. */
#define NICLAB_MODEL_GAMMA 5U

/* Configuration space, read-only for the guest. Bytes past the structure are zero. */
struct niclab_device_config {

	/* [`crate::MAGIC`]; anything else is a foreign device with the same virtio identity. */
	__u64 magic;

	/* [`crate::ABI_VERSION`]. */
	__u32 abi_version;

	/* Which NIC model answers: one of the `MODEL_` constants. */
	__u32 model;

	/* This node's number, from 0. It is the node part of an address on the cluster network. */
	__u32 node;

	/* Nodes of the cluster. */
	__u32 nodes;

	/* Ports that can be open at a time (ULTRA: 8, paper section 3.1). */
	__u32 ports;

	/* Most slices of one port's receive queue. */
	__u32 max_slices;

	/* Authorization entries of one port. */
	__u32 authorizations;

	/* Pages of the BAR: the information page, then [`crate::bar::PAGES_PER_PORT`] for each port, then spare. */
	__u32 bar_pages;

	/*
	 * Longest time a control request may take, milliseconds of wall time. A driver that waited longer takes the
	 * device for dead.
	 */
	__u32 control_timeout_ms;

	/* Zero. */
	__u32 reserved0;

	/* Ethernet address of the card, first byte lowest; the upper two bytes are zero. */
	__u64 mac;

	/* Zero. */
	__u64 reserved1;
};
NICLAB_ASSERT_SIZE(struct niclab_device_config, 64);

/*
 * The BAR: shared-memory region [`REGION`] of the cluster function.
 *
 * Page 0 is the information page. Port `p` owns two pages: its requester page, [`requester_page`], from which it
 * sends, and its completer page, [`completer_page`], in which it says what it has received. The kernel driver maps a
 * port's pages to its owner alone, and the device takes the page's number as the identity of the sender.
 *
 * The paper (ULTRA, section 3.3) codes length and flags into the twelve address bits of the store. This BAR is
 * memory, where a device cannot see the address of a store, so that the page is a ring of [`SLOTS`] slots and the
 * twelve bits travel in the slot's launch word, which is stored last.
 */

/* Shared-memory region (virtio `shmid`) of the BAR. */
#define NICLAB_REGION 0U

/* Pages that each port owns in the BAR. */
#define NICLAB_PAGES_PER_PORT 2U

/*
 * Page 0, read-only for user programs. The device writes [`InfoPage::magic`] last: a driver waits for it, bounded
 * in time, because the region is mapped a moment after the driver announced itself.
 */
struct niclab_info_page {

	/* [`crate::MAGIC`] once all else is valid, zero before. */
	__u64 magic;

	/* [`crate::ABI_VERSION`]. */
	__u32 abi_version;

	/* Pages of the BAR, this one included. */
	__u32 pages;

	/* Ports; each owns [`PAGES_PER_PORT`] pages. */
	__u32 ports;

	/* Slots of a requester page: [`SLOTS`]. */
	__u32 slots;

	/* Zero. */
	__u64 reserved0;

	/* Zero. */
	__u64 reserved1;

	/* Zero. */
	__u64 reserved2;

	/* Zero. */
	__u64 reserved3;

	/* Zero. */
	__u64 reserved4;

	/*
	 * [`DOORBELL_WANTED`] when the device sleeps and a launch or a register write must be followed by a doorbell;
	 * [`DOORBELL_SPARED`] while it polls the pages. On a cache line of its own.
	 *
	 * A sender stores, executes a full memory barrier, and only then reads this word; the device writes it,
	 * executes a full barrier, and looks at the pages once more before it sleeps.
	 */
	__u64 doorbell;
};
NICLAB_ASSERT_SIZE(struct niclab_info_page, 72);

/* Byte offset of [`InfoPage::doorbell`]. */
#define NICLAB_INFO_DOORBELL_OFFSET 64U

/* The device polls: no doorbell is needed. */
#define NICLAB_DOORBELL_SPARED 0U

/* The device sleeps: ring the doorbell after a store. */
#define NICLAB_DOORBELL_WANTED 1U

/* Slots of a requester page. */
#define NICLAB_SLOTS 32U

/* Bytes of a slot. */
#define NICLAB_SLOT_BYTES 128U

/* 64-bit words of a slot. */
#define NICLAB_SLOT_WORDS 16U

/* Most payload words of a packet: one cache line (ULTRA, section 3.3). */
#define NICLAB_PAYLOAD_WORDS 8U

/* Tag words; every packet carries them (ULTRA, section 4). */
#define NICLAB_TAG_WORDS 2U

/*
 * Word of the slot where the tag begins. The payload ends right before it: `n` payload words take the words
 * `8 - n .. 8`, so that payload and tag are one burst of consecutive addresses that always ends at the same place.
 */
#define NICLAB_SLOT_TAG_WORD 8U

/*
 * Word of the slot that says what the program had received when it launched: [`RECEIVED_KNOWN`] and, in bits 0..32, the
 * low half of the number of slices that it had consumed. Zero: not said.
 *
 * No hardware needs it. A device outside of the guest looks at the pages when it gets to it, and learns from this word
 * whether it carries the launch out in the place that it has among the port's other events, which is what makes the
 * model time of a live run exact (docs/LEDGER.md).
 */
#define NICLAB_SLOT_RECEIVED_WORD 14U

/* Bit of [`SLOT_RECEIVED_WORD`]: the count is said. */
#define NICLAB_RECEIVED_KNOWN 0x8000000000000000ULL

/* Word of the slot that launches it, stored last with release ordering. */
#define NICLAB_SLOT_LAUNCH_WORD 15U

/* Lowest bit of the sequence number in a launch word. */
#define NICLAB_LAUNCH_SEQUENCE_SHIFT 32U

/*
 * Page-offset code, lowest bit of the length field (bits 3..7). The field holds the word of the slot where the burst
 * begins: `8 - payload words`, that is 8 for a packet of the tag alone and 0 for a whole cache line; 9..16 are not
 * valid.
 *
 * The paper says that the field counts up during the burst, so that zero means seven and the reverse: with one to
 * eight words coded as 0..=7 that is exactly this field's lower three bits, and the carry into its fourth bit is the
 * step from the payload to the "additional tag".
 */
#define NICLAB_CODE_LENGTH_SHIFT 3U

/* Page-offset code: the requester writes the status line as soon as the packet left it (local completion). */
#define NICLAB_CODE_NOTIFY 128U

/* Page-offset code: the receiving NIC interrupts its host once the slice is stored. */
#define NICLAB_CODE_INTERRUPT 256U

/*
 * Page-offset code: the receiving NIC returns an acknowledgement once the slice is stored; the sender's status line
 * counts it.
 */
#define NICLAB_CODE_ACKNOWLEDGE 512U

/* Bits of the code that must be zero: alignment (0..3) and the two unused of the five upper bits (10, 11). */
#define NICLAB_CODE_RESERVED 3079U

/*
 * Registers of a completer page, stored by the owner of the port (posted writes; followed by a doorbell when
 * [`InfoPage::doorbell`] wants one). All else on the page is spare.
 */
struct niclab_completer_page {

	/*
	 * Slices that the program has consumed since the port was opened. Frees them for new packets. Written once for
	 * every quarter of the queue, not for every message. A value that falls, or runs ahead of what was stored, is a
	 * violation and is ignored.
	 */
	__u64 released;

	/*
	 * Number of a slice (the first is 1): one interrupt is raised as soon as that slice is stored, at once when it
	 * is already. Zero: no interrupt. One shot: write a new number to arm again.
	 */
	__u64 armed;

	/*
	 * How many slices the program consumes between two stores of [`CompleterPage::released`], where it keeps to an
	 * interval; zero: not said. Stored before a sender is authorized whose credits need it, and without a price: with
	 * it the device knows in model time when each release is due, however late it looks at the register.
	 */
	__u64 release_interval;
};
NICLAB_ASSERT_SIZE(struct niclab_completer_page, 24);

/* Byte offset of [`CompleterPage::released`]. */
#define NICLAB_COMPLETER_RELEASED_OFFSET 0U

/* Byte offset of [`CompleterPage::armed`]. */
#define NICLAB_COMPLETER_ARMED_OFFSET 8U

/* Byte offset of [`CompleterPage::release_interval`]. */
#define NICLAB_COMPLETER_INTERVAL_OFFSET 16U

/*
 * What the device writes into host memory: the slices of a port's receive queue, and its status line.
 */

/* 64-bit words of a slice: payload, tag, status (ULTRA port slice, section 3.4 and figure 5). */
#define NICLAB_SLICE_WORDS 11U

/* Bytes of a slice. */
#define NICLAB_SLICE_BYTES 88U

/* Word of the slice with its status, written last; the payload and the tag end right before it. */
#define NICLAB_SLICE_STATUS_WORD 10U

/* Word of the slice where the tag begins; `n` payload words take the words `8 - n .. 8`. */
#define NICLAB_SLICE_TAG_WORD 8U

/* Fewest slices of a receive queue. A queue's slices are a power of two. */
#define NICLAB_MIN_SLICES 8U

/* Most slices of a receive queue. */
#define NICLAB_MAX_SLICES 4096U

/* Slice status: payload words, bits 0..4. */
#define NICLAB_SLICE_WORDS_MASK 15U

/* Slice status: the sender asked for an interrupt. */
#define NICLAB_SLICE_INTERRUPT 16U

/* Slice status: the sender asked for an acknowledgement. */
#define NICLAB_SLICE_ACKNOWLEDGE 32U

/* Slice status: set in every slice that was ever written. */
#define NICLAB_SLICE_VALID 128U

/* Slice status: the sender's port, eight bits from here. */
#define NICLAB_SLICE_PORT_SHIFT 8U

/* Slice status: the sender's node, sixteen bits from here. */
#define NICLAB_SLICE_NODE_SHIFT 16U

/*
 * Slice status: number of the slice, 32 bits from here: 1 for the first since the port was opened, wrapping.
 *
 * The paper has a valid bit that the host must clear. The number makes clearing unnecessary: a slice is new exactly
 * when it carries the number that the reader expects.
 */
#define NICLAB_SLICE_NUMBER_SHIFT 32U

/*
 * Launches after which the device writes the status line unasked: a quarter of the requester page, so that a sender
 * that fills the page always learns of free slots.
 */
#define NICLAB_STATUS_LINE_INTERVAL 8U

/*
 * A port's status line: one burst, written by the device every [`STATUS_LINE_INTERVAL`] launches, after a launch
 * with [`crate::bar::CODE_NOTIFY`], on an acknowledgement and on a violation. Every word only grows.
 */
struct niclab_status_line {

	/*
	 * Slots taken out of the requester page since the port was opened: `launched + SLOTS` is the last number that
	 * the program may launch.
	 */
	__u64 launched;

	/* Launches with the notification flag that left the requester. */
	__u64 notified;

	/* Acknowledgements that returned. */
	__u64 acknowledged;

	/* Packets that left for the network. */
	__u64 sent;

	/* Launches refused for a bad code or because the port has no route, and register writes refused. */
	__u64 refused;

	/* Why the last one was refused: a `REFUSED_` constant; zero when none was. */
	__u64 refusal;

	/* Zero. */
	__u64 reserved0;

	/* Zero. */
	__u64 reserved1;
};
NICLAB_ASSERT_SIZE(struct niclab_status_line, 64);

/* [`StatusLine::refusal`]: reserved bits of the launch word were set. */
#define NICLAB_REFUSED_RESERVED_BITS 1U

/* [`StatusLine::refusal`]: the length field holds 9..16. */
#define NICLAB_REFUSED_LENGTH 2U

/* [`StatusLine::refusal`]: the port has no route. */
#define NICLAB_REFUSED_NO_ROUTE 3U

/* [`StatusLine::refusal`]: [`crate::bar::CompleterPage::released`] fell or ran ahead of what was stored. */
#define NICLAB_REFUSED_RELEASE 4U

/*
 * Requests on the control queue.
 *
 * A request is one descriptor chain: the driver's part, a [`Request`] header and the operation's body, then the
 * device's part, a [`Reply`] header and the answer's body. Bodies of another length than the operation's are refused.
 * The device completes every chain that it takes, with a status; a chain without room for a [`Reply`] is completed
 * with no bytes written and counted.
 */

/* Head of a request. */
struct niclab_request {

	/* One of the `OP_` constants. */
	__u32 operation;

	/* Bytes of the body that follows. */
	__u32 body_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_request, 8);

/* Head of a reply. */
struct niclab_reply {

	/* [`STATUS_OK`] or the reason of the refusal, a `STATUS_` constant. */
	__u32 status;

	/* Bytes of the body that follows; zero unless the status is [`STATUS_OK`]. */
	__u32 body_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_reply, 8);

/* Does nothing: asks whether the device lives. No bodies. */
#define NICLAB_OP_PING 1U

/* Opens a port: [`PortOpen`], answered by [`PortOpened`]. */
#define NICLAB_OP_PORT_OPEN 2U

/*
 * Closes a port: [`PortName`]. Packets not yet sent are discarded and counted. Once answered, the device writes no
 * more into the port's memory. The driver then zeroes the port's pages of the BAR, as it does with all pages when it
 * starts: the pages of a closed port hold no launch.
 */
#define NICLAB_OP_PORT_CLOSE 3U

/* Sets where the port sends: [`Route`]. Fills the port's entry of the descriptor look-up table. */
#define NICLAB_OP_ROUTE 4U

/* Lets a remote port send to this one: [`Authorize`]. Adds an entry to the port authorization table. */
#define NICLAB_OP_AUTHORIZE 5U

/* Takes that right back: [`Revoke`]. */
#define NICLAB_OP_REVOKE 6U

/* Reads the counters of the device: no body, answered by [`Statistics`]. */
#define NICLAB_OP_STATISTICS 7U

/* Closes every port, as a driver does before it goes. No bodies. */
#define NICLAB_OP_RESET 8U

/* Done. */
#define NICLAB_STATUS_OK 0U

/* The operation is not known to this model. */
#define NICLAB_STATUS_BAD_OPERATION 1U

/* The request is shorter than its header or body, or there is no room for the reply. */
#define NICLAB_STATUS_BAD_LENGTH 2U

/* The port does not exist or is not open. */
#define NICLAB_STATUS_BAD_PORT 3U

/* The port is open already, or with [`PORT_ANY`] all are. */
#define NICLAB_STATUS_PORT_BUSY 4U

/* The memory is not aligned, or not all of it is memory of this guest. */
#define NICLAB_STATUS_BAD_ADDRESS 5U

/* A value is out of its range. */
#define NICLAB_STATUS_BAD_VALUE 6U

/* The table is full: authorizations, FIFO memory, or credits beyond the receive queue. */
#define NICLAB_STATUS_NO_SPACE 7U

/* There is no such entry. */
#define NICLAB_STATUS_NOT_FOUND 8U

/* [`PortOpen::port`]: any free port. */
#define NICLAB_PORT_ANY 0xffffffffU

/* Body of [`OP_PORT_OPEN`]. */
struct niclab_port_open {

	/* The port wanted, or [`PORT_ANY`]. */
	__u32 port;

	/*
	 * Slices of the receive queue: a power of two in [`crate::receive::MIN_SLICES`]..=
	 * [`crate::config::DeviceConfig::max_slices`].
	 */
	__u32 slices;

	/* Guest-physical address of the first slice, aligned to 8 bytes. */
	__u64 slices_address;

	/* Guest-physical address of the [`crate::receive::StatusLine`], aligned to 64 bytes. */
	__u64 status_address;

	/* Share of the requester's FIFO memory in 64-bit words (ULTRA pointer memory), or zero for an equal share. */
	__u32 fifo_words;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_port_open, 32);

/* Answer to [`OP_PORT_OPEN`]. */
struct niclab_port_opened {

	/* The port that was opened. */
	__u32 port;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_port_opened, 8);

/* Body of [`OP_PORT_CLOSE`]. */
struct niclab_port_name {

	/* The port. */
	__u32 port;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_port_name, 8);

/* Body of [`OP_ROUTE`]. */
struct niclab_route {

	/* The sending port, on this node. */
	__u32 port;

	/* The receiving node. */
	__u32 node;

	/* The receiving port on that node (ULTRA: target port identification). */
	__u32 node_port;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_route, 16);

/* Body of [`OP_AUTHORIZE`]. Repeating it for the same remote port changes nothing but the credits. */
struct niclab_authorize {

	/* The receiving port, on this node. */
	__u32 port;

	/* The node that may send. */
	__u32 node;

	/* Its port that may send. */
	__u32 node_port;

	/*
	 * Slices of the receive queue set aside for this sender. The sum over a port is at most its slices, so that an
	 * authorized sender never overruns the queue.
	 */
	__u32 credits;
};
NICLAB_ASSERT_SIZE(struct niclab_authorize, 16);

/* Body of [`OP_REVOKE`]. */
struct niclab_revoke {

	/* The receiving port, on this node. */
	__u32 port;

	/* The node. */
	__u32 node;

	/* Its port. */
	__u32 node_port;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_revoke, 16);

/* Answer to [`OP_STATISTICS`]: counts since the device was made, never reset by a driver. */
struct niclab_statistics {

	/* Packets sent to the network. */
	__u64 packets_sent;

	/* Packets received from the network and stored. */
	__u64 packets_received;

	/* Payload and tag bytes sent. */
	__u64 bytes_sent;

	/* Payload and tag bytes stored. */
	__u64 bytes_received;

	/* Doorbells rung by the guest. */
	__u64 doorbells;

	/* Launches that were found by polling, with no doorbell. */
	__u64 doorbells_spared;

	/* Interrupts raised. */
	__u64 interrupts;

	/* Packets discarded because their sender is not authorized. */
	__u64 unauthorized;

	/* Packets discarded because a FLIT's check sequence was wrong. */
	__u64 crc_errors;

	/* Packets discarded for another fault of format: length, port, kind, stale connection. */
	__u64 malformed;

	/* Packets discarded because the receive queue was full (only without credit flow control). */
	__u64 overruns;

	/* Launches and register writes refused. */
	__u64 refused;

	/* Acknowledgements sent. */
	__u64 acknowledgements_sent;

	/* Packets discarded unsent because their port was closed. */
	__u64 discarded_at_close;

	/* Control requests refused. */
	__u64 control_refused;

	/* Events merged into a later one because the driver had left no event buffer. */
	__u64 events_merged;
};
NICLAB_ASSERT_SIZE(struct niclab_statistics, 128);

/*
 * What an interrupt tells: one buffer of the event queue, one cause.
 *
 * The card has one interrupt line, so that the cause travels in memory. The device fills one buffer for each interrupt
 * that it raises. When the driver has left no buffer, causes of the same kind and port are merged into one, which is
 * delivered as soon as there is one again: a cause is never lost.
 */

/* A buffer of [`crate::QUEUE_EVENT`], at least this long. */
struct niclab_event {

	/* One of the `CAUSE_` constants. */
	__u32 cause;

	/* The port it concerns. */
	__u32 port;

	/* Causes that this event stands for: 1, or more when events were merged. */
	__u64 count;
};
NICLAB_ASSERT_SIZE(struct niclab_event, 16);

/* A packet with the interrupt flag was stored ([`crate::bar::CODE_INTERRUPT`]). */
#define NICLAB_CAUSE_MESSAGE 1U

/* The slice that [`crate::bar::CompleterPage::armed`] waits for was stored. */
#define NICLAB_CAUSE_ARMED 2U

/*
 * A packet from a sender without authorization was discarded, and the NIC is configured to raise that (ULTRA, section
 * 3.2: "a system interrupt is thrown").
 */
#define NICLAB_CAUSE_UNAUTHORIZED 3U

/*
 * The character device `/dev/niclabN`, between the kernel driver and a user program.
 *
 * One open file owns at most one port. Closing the file, or the death of its process, closes the port.
 *
 * `mmap` offsets choose what is mapped; only the owner of a port can map its pages. `poll` reports readable after an
 * interrupt for the port; `read` of eight bytes returns how many there were since the last `read` (`EAGAIN` when none
 * and the file is non-blocking). When the device is gone every call fails with `ENODEV`, and `poll` reports `POLLERR |
 * POLLHUP`; mappings that exist stay readable while the driver is bound.
 *
 * A request, `read` or `mmap` that takes a port fails with `ENOTCONN` when the file has none; a bad argument with
 * `EINVAL`. What the device refuses comes back as `EBUSY` ([`crate::control::STATUS_PORT_BUSY`]), `ENOSPC`
 * (`STATUS_NO_SPACE`), `ENOENT` (`STATUS_NOT_FOUND`), `EINVAL` (`STATUS_BAD_VALUE`), `ENXIO` (`STATUS_BAD_PORT`),
 * `EFAULT` (`STATUS_BAD_ADDRESS`), `EOPNOTSUPP` (`STATUS_BAD_OPERATION`), or else as `EPROTO`. `mmap` wants
 * `MAP_SHARED`, fails with `EACCES` when it asks for more than the window allows, and with `ENXIO` when this machine's
 * doorbell cannot be mapped.
 */

/* `mmap` offset of the information page: read-only. */
#define NICLAB_MAP_INFO 0U

/* `mmap` offset of the port's requester page. */
#define NICLAB_MAP_REQUESTER 4096U

/* `mmap` offset of the port's completer page. */
#define NICLAB_MAP_COMPLETER 8192U

/* `mmap` offset of the doorbell page: a 16-bit store of [`crate::QUEUE_DOORBELL`] at its first byte rings. */
#define NICLAB_MAP_DOORBELL 0x3000U

/*
 * `mmap` offset of the port's receive memory: the status line at its first byte, the slices from
 * [`RECEIVE_SLICES_OFFSET`] on; [`OpenPort::receive_bytes`] long. Read-only for the program.
 */
#define NICLAB_MAP_RECEIVE 0x100000U

/* Byte offset of the first slice in the receive memory. */
#define NICLAB_RECEIVE_SLICES_OFFSET 4096U

/* `type` byte of all requests. */
#define NICLAB_IOCTL_TYPE 245U

/* Argument of [`IOCTL_OPEN_PORT`]. */
struct niclab_open_port {

	/* In: the port wanted or [`crate::control::PORT_ANY`]. Out: the port. */
	__u32 port;

	/* In: slices of the receive queue, a power of two, or zero for 256. Out: the slices. */
	__u32 slices;

	/* In: words of requester FIFO, or zero for an equal share. */
	__u32 fifo_words;

	/* Zero. */
	__u32 reserved0;

	/* Out: bytes to map at [`MAP_RECEIVE`]. */
	__u64 receive_bytes;

	/* Zero. */
	__u64 reserved1;
};
NICLAB_ASSERT_SIZE(struct niclab_open_port, 32);

/* Argument of [`IOCTL_ROUTE`], [`IOCTL_AUTHORIZE`] and [`IOCTL_REVOKE`]; the file's port is meant. */
struct niclab_peer {

	/* The other node. */
	__u32 node;

	/* Its port. */
	__u32 port;

	/* [`IOCTL_AUTHORIZE`]: slices set aside for it. Otherwise zero. */
	__u32 credits;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_peer, 16);

/* Copies the [`crate::config::DeviceConfig`] out. */
#define NICLAB_IOCTL_INFO 0x8040f500U

/* Opens a port for this file, [`OpenPort`]. `EBUSY`: the file or the port has one already; `ENOSPC`: none is free. */
#define NICLAB_IOCTL_OPEN_PORT 0xc020f501U

/* Closes the file's port. Its mappings are gone: touching them raises `SIGBUS`. */
#define NICLAB_IOCTL_CLOSE_PORT 0xf502U

/* Sets where the port sends, [`Peer`]. */
#define NICLAB_IOCTL_ROUTE 0x4010f503U

/* Lets [`Peer`] send to the port. */
#define NICLAB_IOCTL_AUTHORIZE 0x4010f504U

/* Takes that right back. */
#define NICLAB_IOCTL_REVOKE 0x4010f505U

/*
 * Asks the device whether it lives: `ENODEV` when it does not answer within
 * [`crate::config::DeviceConfig::control_timeout_ms`]. The file needs no port.
 */
#define NICLAB_IOCTL_CHECK 0xf506U

#endif /* NICLAB_ABI_H */
