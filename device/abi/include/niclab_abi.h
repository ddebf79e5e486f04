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
 * 2. [`bar`]: the information page and its table of windows, and the requester and completer pages of a port;
 * 3. [`receive`]: slices and the status line, which the device writes into host memory;
 * 4. [`control`]: requests on the control queue;
 * 5. [`event`]: what an interrupt tells;
 * 6. what cards with these features add: [`region`], memory that a program registers; [`lists`], posted receives, with
 * commands and events; [`posts`], messages to any node, the same; [`channels`], active messages that are pushed;
 * [`rings`], frames by descriptors, and [`active_ports`], what drivers send in them; [`firmware`];
 * 7. [`ioctl`]: the character device between the kernel driver and a user program;
 * 8. [`rules`]: what a driver must do, by name.
 *
 * `docs/driver/DEVICE.md` is the prose of this crate: the device programmer's manual.
 */

/* Version of everything in this crate. A driver refuses a device that speaks another version. */
#define NICLAB_ABI_VERSION 2U

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

/* Requests and replies, [`control`]. Interrupts for each reply. */
#define NICLAB_QUEUE_CONTROL 0U

/* Buffers that the device fills with an [`event::Event`] each. Interrupts for each event. */
#define NICLAB_QUEUE_EVENT 1U

/*
 * Transmit descriptor ring of the models that send by descriptor; the others leave it idle. Interrupts for chains that
 * come back.
 */
#define NICLAB_QUEUE_TRANSMIT 2U

/*
 * Receive descriptor ring of the models that receive by descriptor; the others leave it idle. Interrupts for chains
 * that come back.
 */
#define NICLAB_QUEUE_RECEIVE 3U

/*
 * Never holds a descriptor and never interrupts: its notify register, which has a page of its own, is the doorbell of
 * all requester and completer pages, mapped into user programs.
 */
#define NICLAB_QUEUE_DOORBELL 4U

/*
 * The virtio configuration space of the cluster function: what a driver reads before anything else.
 */

/* Bytes of configuration space; `config_size` on QEMU's command line, which aborts above 256. */
#define NICLAB_CONFIG_BYTES 256U

/* Bytes of a model's name, filled up with zeros. */
#define NICLAB_NAME_BYTES 16U

/* A receive queue of slices, written by whom the port authorizes and where it routes. */
#define NICLAB_FEATURE_SLICES 1U

/* Lists of posted receives: slots carry commands, and a queue of events tells what became of them ([`crate::lists`]). */
#define NICLAB_FEATURE_LISTS 2U

/* Host memory is registered as regions ([`crate::region`]). */
#define NICLAB_FEATURE_REGIONS 4U

/* Firmware can be loaded ([`crate::firmware`]). */
#define NICLAB_FEATURE_FIRMWARE 8U

/* List entries that the card does not hold go on in host memory ([`crate::lists::OP_SPILL_OPEN`]). */
#define NICLAB_FEATURE_SPILL 16U

/*
 * Programs take turns in model time ([`crate::bar::CompleterPage::turn`]): a device that is told to do so says it, of
 * whatever model.
 */
#define NICLAB_FEATURE_TURNS 32U

/*
 * Messages out of registered memory to any node, from the card's one port, into memory that is posted there
 * ([`crate::posts`]).
 */
#define NICLAB_FEATURE_POSTS 64U

/* Firmware is handed over while the card runs: loading is told by an event ([`crate::firmware::OP_FIRMWARE_LOAD`]). */
#define NICLAB_FEATURE_HAND_OVER 128U

/*
 * Barriers, multicasts and reductions of groups of nodes, which cards carry out among themselves
 * ([`crate::posts::PostGroup`]). With [`FEATURE_POSTS`].
 */
#define NICLAB_FEATURE_COLLECTIVES 256U

/* Active messages over logical channels, pushed into the card, from each port to any ([`crate::channels`]). */
#define NICLAB_FEATURE_CHANNELS 512U

/*
 * Frames by rings of descriptors in the host's memory ([`crate::rings`]). The card has no ports of its own: they are
 * the driver's.
 */
#define NICLAB_FEATURE_RINGS 1024U

/*
 * Configuration space, read-only for the guest. Bytes past the structure are zero. Magic word and version stand
 * where they stood in every version.
 */
struct niclab_device_config {

	/* [`crate::MAGIC`]; anything else is a foreign device with the same virtio identity. */
	__u64 magic;

	/* [`crate::ABI_VERSION`]. */
	__u32 abi_version;

	/* This node's number, from 0. It is the node part of an address on the cluster network. */
	__u32 node;

	/* Name of the NIC model, first byte lowest: for people. What a driver may ask of the card, `features` says. */
	__u64 name_first;

	/* The other half of the name. */
	__u64 name_rest;

	/* `FEATURE_` bits. A driver ignores those that it does not know. */
	__u64 features;

	/* Nodes of the cluster. */
	__u32 nodes;

	/* Ports that can be open at a time. */
	__u32 ports;

	/* Most slices of one port's receive queue, or events. */
	__u32 max_slices;

	/* Authorization entries of one port; zero where senders need none. */
	__u32 authorizations;

	/*
	 * Pages of the BAR: the information page, then the windows of which it has a table, then spare; at most
	 * [`crate::bar::MAX_BAR_PAGES`].
	 */
	__u32 bar_pages;

	/*
	 * Longest time a control request may take, milliseconds of wall time. A driver that waited longer takes the
	 * device for dead.
	 */
	__u32 control_timeout_ms;

	/* [`FEATURE_LISTS`]: entries that fit into device memory. Otherwise zero. */
	__u32 list_entries;

	/* A message is a multiple of so many bytes. */
	__u32 message_unit_bytes;

	/* Most bytes of a message. */
	__u64 max_message_bytes;

	/* Ethernet address of the card, first byte lowest; the upper two bytes are zero. */
	__u64 mac;

	/* [`FEATURE_CHANNELS`]: bytes of a channel's payload region that the card offers. Otherwise zero. */
	__u32 channel_payload_bytes;

	/*
	 * [`FEATURE_CHANNELS`]: bytes of a message that programs push first, before segments that double; zero: they
	 * push whole messages.
	 */
	__u32 channel_segment_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_device_config, 96);

/*
 * The BAR: shared-memory region [`REGION`] of the cluster function.
 *
 * Page 0 is the information page. All else is windows, which the card's model declares, and of which the information
 * page has a table ([`Window`]). Most belong to ports: each port has its own part of such a window, which the kernel
 * driver maps to the port's owner alone, so that the device takes the place of a store as the identity of the sender.
 * A window of the card is the same for all. Two windows of a port are common to all models: its requester page
 * ([`WINDOW_REQUESTER`]), from which it sends, and its completer page ([`WINDOW_COMPLETER`]), in which it says what it
 * has received.
 *
 * The requester page is that of Fröning, Litz and Brüning (2007), whose section 3.3 codes length and flags into the
 * twelve address bits of the store. This BAR is memory, where a device cannot see the address of a store, so that the
 * page is a ring of [`SLOTS`] slots and the twelve bits travel in the slot's launch word, which is stored last.
 */

/* Shared-memory region (virtio `shmid`) of the BAR. */
#define NICLAB_REGION 0U

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

	/* Ports. */
	__u32 ports;

	/* Slots of a requester page: [`SLOTS`]. */
	__u32 slots;

	/* Windows: so many rows of the table at [`INFO_WINDOWS_OFFSET`]. */
	__u32 windows;

	/* Zero. */
	__u32 reserved0;

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

/*
 * One row of the table of windows. Page `n` of port `p`'s part is page `first_page + stride * p + n` of the BAR.
 * From the first port's part to the end of the last one's, a window has nothing of another window in it. Kinds are
 * all different.
 */
struct niclab_window {

	/*
	 * What it is for: [`WINDOW_REQUESTER`], [`WINDOW_COMPLETER`], or a number of the model's from
	 * [`WINDOW_OF_MODEL`] on.
	 */
	__u32 kind;

	/* How it is to be mapped, a `CACHING_`. */
	__u32 caching;

	/* What programs may do there, an `ACCESS_`. */
	__u32 access;

	/* Page of the BAR where it begins; never page 0. */
	__u32 first_page;

	/* Pages of each port's part, or of the whole where it is the card's; at least one. */
	__u32 pages;

	/*
	 * Pages from one port's part to the next one's, at least `pages`. Zero: there is one part, the card's, for any
	 * open port.
	 */
	__u32 stride;
};
NICLAB_ASSERT_SIZE(struct niclab_window, 24);

/* Byte offset of the table of windows in the information page; on cache lines of its own. */
#define NICLAB_INFO_WINDOWS_OFFSET 128U

/* Most windows of a BAR. */
#define NICLAB_MAX_WINDOWS 8U

/* Most pages of a BAR: 16 MiB, half of the room that a virtual PCI slot sets aside for a card that is plugged in. */
#define NICLAB_MAX_BAR_PAGES 4096U

/* [`Window::kind`]: the port's requester page. One page of each port. */
#define NICLAB_WINDOW_REQUESTER 1U

/* [`Window::kind`]: the port's completer page, [`CompleterPage`]. One page of each port. */
#define NICLAB_WINDOW_COMPLETER 2U

/* [`Window::kind`]: from here on a model says what a number means. */
#define NICLAB_WINDOW_OF_MODEL 16U

/* [`Window::caching`]: every store goes out by itself, and every load comes from the device. */
#define NICLAB_CACHING_UNCACHED 1U

/* [`Window::caching`]: stores may be joined, and go out in any order up to the next fence. */
#define NICLAB_CACHING_WRITE_COMBINING 2U

/* [`Window::caching`]: as ordinary memory. */
#define NICLAB_CACHING_WRITE_BACK 3U

/* [`Window::access`]: programs read, the device writes. */
#define NICLAB_ACCESS_READ_ONLY 1U

/* [`Window::access`]: programs read and write. */
#define NICLAB_ACCESS_READ_WRITE 2U

/* Slots of a requester page. */
#define NICLAB_SLOTS 32U

/* Bytes of a slot. */
#define NICLAB_SLOT_BYTES 128U

/* 64-bit words of a slot. */
#define NICLAB_SLOT_WORDS 16U

/* Most payload words of a packet: one cache line (section 3.3). */
#define NICLAB_PAYLOAD_WORDS 8U

/* Tag words; every packet carries them (section 4). */
#define NICLAB_TAG_WORDS 2U

/*
 * Word of the slot where the tag begins. The payload ends right before it: `n` payload words take the words
 * `8 - n .. 8`, so that payload and tag are one burst of consecutive addresses that always ends at the same place.
 */
#define NICLAB_SLOT_TAG_WORD 8U

/*
 * Word of the slot that says what the program had received when it launched: [`RECEIVED_KNOWN`] and, in bits 0..32,
 * the low half of the number of slices that it had consumed. Zero: not said.
 *
 * No hardware needs it. A device outside of the guest looks at the pages when it gets to it, and learns from this word
 * whether it carries the launch out in the place that it has among the port's other events, which is what makes the
 * model time of a live run exact (docs/use/LEDGER.md).
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
 * [`InfoPage::doorbell`] wants one), and the words by which programs take turns. All else on the page is spare.
 *
 * Turns are how a live run has the simulator's model time ([`crate::config::FEATURE_TURNS`]). No hardware has
 * them, and they have no price. A program uses them on one port, the first that it opens.
 */
struct niclab_completer_page {

	/*
	 * Slices that the program has consumed since the port was opened. Frees them for new packets. Written once for
	 * every quarter of the queue, not for every message. A value that falls, or runs ahead of what was stored, is
	 * a violation and is ignored.
	 */
	__u64 released;

	/*
	 * Number of a slice (the first is 1): one interrupt is raised as soon as that slice is stored, at once when it
	 * is already. Zero: no interrupt. One shot: write a new number to arm again.
	 */
	__u64 armed;

	/*
	 * How many slices the program consumes between two stores of [`CompleterPage::released`], where it keeps to an
	 * interval; zero: not said. Stored before a sender is authorized whose credits need it, and without a price:
	 * with it the device knows in model time when each release is due, however late it looks at the register.
	 */
	__u64 release_interval;

	/* Stored by the device: how many turns the program had, [`TURN_OVER`] set while it may go on without. */
	__u64 turn;

	/* Stored by the device before [`CompleterPage::turn`]: model time of the turn, in picoseconds. */
	__u64 turn_time_ps;

	/*
	 * Stored by the program: what it did of its last turn, a `REPORT_` in bits 0..2, and the number of that turn
	 * above.
	 */
	__u64 report;

	/*
	 * Stored by the program before [`CompleterPage::report`]: model time, in picoseconds, before which an idle
	 * program wants no turn unless something comes; zero: none until something comes.
	 */
	__u64 wake_ps;
};
NICLAB_ASSERT_SIZE(struct niclab_completer_page, 56);

/* Byte offset of [`CompleterPage::released`]. */
#define NICLAB_COMPLETER_RELEASED_OFFSET 0U

/* Byte offset of [`CompleterPage::armed`]. */
#define NICLAB_COMPLETER_ARMED_OFFSET 8U

/* Byte offset of [`CompleterPage::release_interval`]. */
#define NICLAB_COMPLETER_INTERVAL_OFFSET 16U

/* Byte offset of [`CompleterPage::turn`]. */
#define NICLAB_COMPLETER_TURN_OFFSET 24U

/* Byte offset of [`CompleterPage::turn_time_ps`]. */
#define NICLAB_COMPLETER_TURN_TIME_OFFSET 32U

/* Byte offset of [`CompleterPage::report`]. */
#define NICLAB_COMPLETER_REPORT_OFFSET 40U

/* Byte offset of [`CompleterPage::wake_ps`]. */
#define NICLAB_COMPLETER_WAKE_OFFSET 48U

/* [`CompleterPage::turn`]: nothing is under way, no program has anything to do, and none waits for a turn. */
#define NICLAB_TURN_OVER 0x8000000000000000ULL

/*
 * [`CompleterPage::report`]: the program begins something, and waits for its first turn. All nodes' programs begin
 * together.
 */
#define NICLAB_REPORT_READY 1U

/* [`CompleterPage::report`]: it did one operation, and wants another turn. */
#define NICLAB_REPORT_ACTED 2U

/* [`CompleterPage::report`]: it found nothing to do. */
#define NICLAB_REPORT_IDLE 3U

/* Bits of a `REPORT_`. */
#define NICLAB_REPORT_BITS 2U

/*
 * What the device writes into host memory: the slices of a port's receive queue, and its status line.
 */

/* 64-bit words of a slice: payload, tag, status (Fröning, Litz, Brüning 2007, section 3.4 and figure 5). */
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

	/*
	 * Why the last launch or register write was refused: a `REFUSED_` constant; zero when none was. The words are
	 * stored in ascending order: whoever loads this one behind `refused` has the reason of that refusal, or of a
	 * later one.
	 */
	__u64 refusal;

	/* Launches refused for a bad code or because the port has no route, and register writes refused. */
	__u64 refused;

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

/* [`StatusLine::refusal`]: the command was refused; the event says why. */
#define NICLAB_REFUSED_COMMAND 5U

/* [`StatusLine::refusal`]: there is no such command, or a reserved field of it is not zero. */
#define NICLAB_REFUSED_HEADER 6U

/* [`StatusLine::refusal`]: there is no such node, or no such endpoint on a node. */
#define NICLAB_REFUSED_TARGET 7U

/* [`StatusLine::refusal`]: the payload is empty, too long, or beyond the payload region. */
#define NICLAB_REFUSED_PAYLOAD 8U

/*
 * [`StatusLine::refusal`]: a segment that runs backwards, goes past its message, or belongs to none; a message
 * launched before the one before it was pushed whole; or one of which no more was pushed for so long that the card
 * gave it up.
 */
#define NICLAB_REFUSED_SEGMENT 9U

/* [`StatusLine::refusal`]: no program has the target endpoint open. */
#define NICLAB_REFUSED_CLOSED 10U

/* [`StatusLine::refusal`]: the target endpoint has no payload region, or a smaller one than the payload. */
#define NICLAB_REFUSED_NO_PAYLOAD 11U

/* [`StatusLine::refusal`]: the target endpoint has not exposed the memory that a message was for. */
#define NICLAB_REFUSED_MEMORY 12U

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

/*
 * Reads counters of the device, by name as `ethtool -S` does: [`CountersFrom`], answered by [`CountersHead`] and so
 * many [`Counter`]s.
 */
#define NICLAB_OP_COUNTERS 7U

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

/* Counters of one answer to [`OP_COUNTERS`]. */
#define NICLAB_COUNTERS_PER_REPLY 16U

/* Most counters of a device. */
#define NICLAB_MAX_COUNTERS 128U

/* Bytes of a counter's name, its last zero included. */
#define NICLAB_COUNTER_NAME_BYTES 32U

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

	/*
	 * Guest-physical address of the [`crate::receive::StatusLine`], aligned to 64 bytes; with
	 * [`crate::config::FEATURE_LISTS`] that of a page, aligned to [`crate::PAGE_BYTES`].
	 */
	__u64 status_address;

	/* Share of the requester's FIFO memory in 64-bit words or zero for an equal share. */
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

	/* The receiving port on that node. */
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

/* Body of [`OP_COUNTERS`]. */
struct niclab_counters_from {

	/* Number of the first counter wanted, from 0. Numbers and names of a device do not change. */
	__u32 first;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_counters_from, 8);

/* Begin of the answer to [`OP_COUNTERS`]; [`COUNTERS_PER_REPLY`] times [`Counter`] follow. */
struct niclab_counters_head {

	/* Counters of the device, at most [`MAX_COUNTERS`]. */
	__u32 total;

	/* How many of those that follow are counters; the others are zero. */
	__u32 count;
};
NICLAB_ASSERT_SIZE(struct niclab_counters_head, 8);

/* A counter: since the device was made, never reset by a driver. */
struct niclab_counter {

	/*
	 * Name, first byte lowest, filled up with zeros, the last byte of them always zero: lower-case letters, digits
	 * and underscores. No two counters of a device have the same.
	 */
	__u64 name_0;

	/* More of it. */
	__u64 name_1;

	/* More of it. */
	__u64 name_2;

	/* More of it. */
	__u64 name_3;

	/* The count. */
	__u64 value;
};
NICLAB_ASSERT_SIZE(struct niclab_counter, 40);

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
 * A packet from a sender without authorization was discarded, and the NIC is configured to raise that (Fröning et
 * al., section 3.2: "a system interrupt is thrown").
 */
#define NICLAB_CAUSE_UNAUTHORIZED 3U

/* The firmware misbehaved: the device has taken its built-in program and goes on with it. No port is meant. */
#define NICLAB_CAUSE_FIRMWARE 4U

/* The program that was loaded runs from now on ([`crate::config::FEATURE_HAND_OVER`]). No port is meant. */
#define NICLAB_CAUSE_HANDED_OVER 5U

/* Frames were received ([`crate::config::FEATURE_RINGS`]). No port is meant: the driver looks into its ring. */
#define NICLAB_CAUSE_FRAMES 6U

/*
 * The link of a card with stations of its own was cut, and `port` is 1, or is whole again, and `port` is 0. Of the two
 * the later one alone waits for a buffer. A driver whose link is cut when it leaves its first buffers is told at once.
 */
#define NICLAB_CAUSE_LINK 7U

/*
 * Regions of host memory ([`crate::config::FEATURE_REGIONS`]): what a program registers so that the card may read and
 * write it.
 */

/* Registers a region of host memory for a port: [`RegionOpen`] and its extents, answered by [`RegionOpened`]. */
#define NICLAB_OP_REGION_OPEN 9U

/* Adds extents to a region that has not all yet: [`RegionName`] with their number, and the extents. No answer's body. */
#define NICLAB_OP_REGION_EXTEND 10U

/*
 * Closes a region: [`RegionName`] with no extents. Its entries are unlinked without events; once answered, the device
 * touches the memory no more.
 */
#define NICLAB_OP_REGION_CLOSE 11U

/* Most extents in one request. */
#define NICLAB_MAX_EXTENTS 128U

/* A stretch of host memory: part of a region. */
struct niclab_extent {

	/* Guest-physical address. */
	__u64 address;

	/* Bytes. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_extent, 16);

/* Body of [`OP_REGION_OPEN`]; `extents` [`Extent`]s follow. */
struct niclab_region_open {

	/* The port. */
	__u32 port;

	/* Extents that follow in this request, 1..=[`MAX_EXTENTS`]. */
	__u32 extents;

	/* Bytes of the region, all extents together. Until so many are there no command may use it. */
	__u64 bytes;

	/* Zero. */
	__u64 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_region_open, 24);

/* Answer to [`OP_REGION_OPEN`]. */
struct niclab_region_opened {

	/*
	 * The region's name: 16 bits of number and, above, 16 bits that differ from those of earlier regions of the
	 * number.
	 */
	__u32 region;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_region_opened, 8);

/* Body of [`OP_REGION_EXTEND`], where `extents` [`Extent`]s follow, and of [`OP_REGION_CLOSE`]. */
struct niclab_region_name {

	/* The port. */
	__u32 port;

	/* The region. */
	__u32 region;

	/* Extents that follow in this request. */
	__u32 extents;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_region_name, 16);

/*
 * Lists of posted receives ([`crate::config::FEATURE_LISTS`]): commands in the requester page, events in the receive
 * queue, counters beside the status line.
 *
 * Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
 * ([`crate::bar`], [`crate::receive`]). A slot carries a command where that of a card with slices carries a packet,
 * and a slice carries an event in place of a message: the status word, which is written last, has the number of the
 * event in the same bits as a slice has its own, and is polled in the same way.
 *
 * Semantics are those of Portals 3.0: a port has [`PORTALS`] portal table entries, each with a list of posted match
 * entries and an overflow list behind it. A match entry and its memory descriptor are one here.
 */

/* Portal table entries of each port. */
#define NICLAB_PORTALS 8U

/* Counters of each port. */
#define NICLAB_COUNTERS 32U

/*
 * Most match entries of a device, over all lists of all ports, wherever they lie (Portals 4:
 * `ptl_ni_limits_t.max_entries`).
 */
#define NICLAB_MAX_ENTRIES 8192U

/* Most match entries of a portal, posted and for overflow together (Portals 4: `ptl_ni_limits_t.max_list_size`). */
#define NICLAB_MAX_LIST_SIZE 4096U

/* Launch word, bits 0..8: the command, a `COMMAND_` constant. Bits 8..32 are its flags. */
#define NICLAB_COMMAND_MASK 255U

/*
 * Command, a [`TransferCommand`]: sends part of a region to a portal of another port. Words of the slot behind a
 * command's layout are zero.
 */
#define NICLAB_COMMAND_PUT 1U

/* Command, a [`TransferCommand`]: fetches what a portal of another port has into part of a region. */
#define NICLAB_COMMAND_GET 2U

/*
 * Command, an [`AppendCommand`]: appends a match entry to a list of this port. Its handle is the launch's sequence
 * number. Before it is linked, the unexpected messages of the portal are searched, oldest first: those that it matches
 * are its own at once ([`EVENT_PUT_OVERFLOW`]).
 */
#define NICLAB_COMMAND_APPEND 3U

/*
 * Command, an [`UnlinkCommand`]: unlinks a match entry. Answered by [`EVENT_UNLINKED`]. Messages that it has begun to
 * take are taken to their end.
 */
#define NICLAB_COMMAND_UNLINK 4U

/*
 * Command, an [`ArmCounterCommand`]: one interrupt as soon as a counter has so many successes, at once when it has
 * them already.
 */
#define NICLAB_COMMAND_ARM_COUNTER 5U

/* The words of [`COMMAND_PUT`] and [`COMMAND_GET`]. */
struct niclab_transfer_command {

	/* Match bits. */
	__u64 match_bits;

	/* Header data, given to the receiver with the event. */
	__u64 header_data;

	/* User value, given back with every event of this command. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* Portal of the target. */
	__u8 portal;

	/* Target port. */
	__u8 port;

	/* Target node. */
	__u16 node;

	/* Offset in the region. */
	__u64 offset;

	/* Bytes; of none, region and offset are not looked at. */
	__u64 bytes;

	/* Remote offset, for entries with [`ENTRY_REMOTE_OFFSET`]. */
	__u64 remote_offset;

	/*
	 * Counter plus one, or zero: counts what would have been an event of [`EVENT_SENT`] and [`EVENT_ACK`], or of
	 * [`EVENT_REPLY`].
	 */
	__u64 counter;
};
NICLAB_ASSERT_SIZE(struct niclab_transfer_command, 64);

/* The words of [`COMMAND_APPEND`]. */
struct niclab_append_command {

	/* Match bits. */
	__u64 match_bits;

	/* Ignore bits: those that are not compared. */
	__u64 ignore_bits;

	/* User value, given back with every event of this entry. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* Portal. */
	__u8 portal;

	/* Source port, or [`ANY_PORT`]. */
	__u8 port;

	/* Source node, or [`ANY_NODE`]. */
	__u16 node;

	/* Offset in the region. */
	__u64 offset;

	/* Bytes. */
	__u64 bytes;

	/* Threshold: operations after which it is unlinked, 1.., or [`THRESHOLD_INFINITE`]. */
	__u64 threshold;

	/* Counter plus one, or zero: counts its operations. */
	__u64 counter;

	/*
	 * With [`ENTRY_MAX_SIZE`]: the entry is unlinked once fewer bytes than this are left; with [`ENTRY_TRUNCATE`],
	 * too, it says nothing. Otherwise zero.
	 */
	__u64 max_size;
};
NICLAB_ASSERT_SIZE(struct niclab_append_command, 72);

/* The words of [`COMMAND_UNLINK`]. */
struct niclab_unlink_command {

	/* Handle of the match entry. */
	__u32 handle;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_unlink_command, 8);

/* The words of [`COMMAND_ARM_COUNTER`]. */
struct niclab_arm_counter_command {

	/* The counter. */
	__u64 counter;

	/* Successes; zero disarms. */
	__u64 threshold;
};
NICLAB_ASSERT_SIZE(struct niclab_arm_counter_command, 16);

/* Flag of [`COMMAND_PUT`]: the receiving NIC interrupts its host once the event is stored. */
#define NICLAB_COMMAND_INTERRUPT 256U

/* Flag of [`COMMAND_PUT`]: [`EVENT_ACK`] tells what became of it at the receiver. */
#define NICLAB_COMMAND_ACK 512U

/* Flag of [`COMMAND_PUT`]: [`EVENT_SENT`] tells when the memory may be used again. */
#define NICLAB_COMMAND_SENT 1024U

/*
 * Flag of [`COMMAND_PUT`], [`COMMAND_GET`] and [`COMMAND_APPEND`]: successes are counted and not told by events, but
 * for [`EVENT_UNLINKED`]. Failures are always told by events.
 */
#define NICLAB_COMMAND_COUNT_ONLY 2048U

/* Flag of [`COMMAND_APPEND`]: answers puts. */
#define NICLAB_ENTRY_PUT 0x10000U

/* Flag of [`COMMAND_APPEND`]: answers gets. */
#define NICLAB_ENTRY_GET 0x20000U

/* Flag of [`COMMAND_APPEND`]: the initiator says the offset. Otherwise the entry keeps its own, which moves on. */
#define NICLAB_ENTRY_REMOTE_OFFSET 0x40000U

/*
 * Flag of [`COMMAND_APPEND`]: [`AppendCommand::max_size`] counts, unless a longer message is cut ([`ENTRY_TRUNCATE`]).
 * An entry whose offset the initiator says is not unlinked by it: a message at whose offset fewer bytes are left does
 * not match.
 */
#define NICLAB_ENTRY_MAX_SIZE 0x80000U

/* Flag of [`COMMAND_APPEND`]: a longer message is cut; otherwise it does not match. */
#define NICLAB_ENTRY_TRUNCATE 0x100000U

/* Flag of [`COMMAND_APPEND`]: for the overflow list. */
#define NICLAB_ENTRY_OVERFLOW 0x200000U

/* Flag of [`COMMAND_APPEND`]: no event when it unlinks itself. */
#define NICLAB_ENTRY_NO_UNLINK_EVENT 0x400000U

/* Source of [`COMMAND_APPEND`]: from any node. */
#define NICLAB_ANY_NODE 0xffffU

/* Source of [`COMMAND_APPEND`]: from any port. */
#define NICLAB_ANY_PORT 255U

/* Threshold of [`COMMAND_APPEND`]: never unlinks itself for it. */
#define NICLAB_THRESHOLD_INFINITE 0xffffffffU

/* An event: what a slice of the receive queue carries. The words are stored in ascending order, the status last. */
struct niclab_list_event {

	/* User value of the entry, or of the command. */
	__u64 user;

	/* Match bits of the message. */
	__u64 match_bits;

	/* Header data of the put. */
	__u64 header_data;

	/* Bytes that the initiator asked for. */
	__u64 requested_bytes;

	/* Bytes that were stored or sent. */
	__u64 moved_bytes;

	/* Offset of the first of them in the entry's memory, or in the command's. */
	__u64 offset;

	/* Initiator: node, bits 48..64; port, 32..48. Handle of the entry, or of the command, 0..32. [`event_source`]. */
	__u64 source;

	/* [`EVENT_PUT_OVERFLOW`]: the handle of the overflow entry in whose memory the message is. Otherwise zero. */
	__u64 overflow_handle;

	/* [`EVENT_PUT_OVERFLOW`]: the user value of that entry. Otherwise zero. */
	__u64 overflow_user;

	/* Zero. */
	__u64 reserved;

	/*
	 * Kind, bits 0..8; result, 8..16; portal, 16..24; zero, 24..32; the event's number, from 1 and wrapping,
	 * 32..64.
	 */
	__u64 status;
};
NICLAB_ASSERT_SIZE(struct niclab_list_event, 88);

/* [`ListEvent::status`]: lowest bit of the result. */
#define NICLAB_EVENT_RESULT_SHIFT 8U

/* [`ListEvent::status`]: lowest bit of the portal. */
#define NICLAB_EVENT_PORTAL_SHIFT 16U

/* Kind: a put was stored in a posted entry. */
#define NICLAB_EVENT_PUT 1U

/* Kind: a put was stored in an overflow entry: it was not expected. */
#define NICLAB_EVENT_PUT_UNEXPECTED 2U

/* Kind: an entry that is appended takes a message that came before it. The data is in the overflow entry's memory. */
#define NICLAB_EVENT_PUT_OVERFLOW 3U

/* Kind: a get has read a posted entry. */
#define NICLAB_EVENT_GET 4U

/*
 * Kind: all of a put has left the memory: the other card has it. Also tells that a put ended without, where it wants
 * no other event.
 */
#define NICLAB_EVENT_SENT 5U

/* Kind: a put was stored at the receiver, or was not. */
#define NICLAB_EVENT_ACK 6U

/* Kind: what a get asked for was stored, or could not be had. */
#define NICLAB_EVENT_REPLY 7U

/*
 * Kind: an entry is not linked any more, and the last operation that it had begun is over: its memory is the
 * program's. With result [`RESULT_NOT_FOUND`] it was not when [`COMMAND_UNLINK`] came.
 */
#define NICLAB_EVENT_UNLINKED 8U

/* Kind: a command was refused; the result says why. Nothing of it was done. */
#define NICLAB_EVENT_REFUSED 9U

/* Result: done. */
#define NICLAB_RESULT_OK 0U

/* Result: done, but cut: the entry had less room than the message is long. */
#define NICLAB_RESULT_TRUNCATED 1U

/* Result: no entry matched at the target, neither posted nor for overflow. */
#define NICLAB_RESULT_NO_MATCH 2U

/* Result: the target had no room: for events, for unexpected messages, or the port does not read. */
#define NICLAB_RESULT_NO_ROOM 3U

/* Result: the target port is not open, or there is no such node or portal. */
#define NICLAB_RESULT_NO_TARGET 4U

/* Result: the region is closed, or never was one of this port; or memory of it went away meanwhile. */
#define NICLAB_RESULT_BAD_REGION 5U

/* Result: offset and bytes go beyond the region. */
#define NICLAB_RESULT_BAD_RANGE 6U

/* Result: reserved bits or words are not zero, or a value is out of its range. */
#define NICLAB_RESULT_BAD_VALUE 7U

/* Result: there is no such command. */
#define NICLAB_RESULT_BAD_COMMAND 8U

/* Result: no such entry is linked. */
#define NICLAB_RESULT_NOT_FOUND 9U

/*
 * Result: no room for another match entry: device memory is full and so is the spill area, the device has
 * [`MAX_ENTRIES`], or the portal has [`MAX_LIST_SIZE`].
 */
#define NICLAB_RESULT_LIST_FULL 10U

/*
 * A counter, in the port's first page of receive memory: counter `c` is at [`COUNTERS_OFFSET`]` + 16 c`. Both only
 * grow. Written as one burst, `success` last.
 */
struct niclab_list_counter {

	/* Operations that failed. */
	__u64 failure;

	/* Operations that were done. */
	__u64 success;
};
NICLAB_ASSERT_SIZE(struct niclab_list_counter, 16);

/*
 * Byte offset, from the status line, of a port's counters. The memory that a port opens with the status line is a
 * whole page on such cards.
 */
#define NICLAB_COUNTERS_OFFSET 1024U

/*
 * Gives the device host memory for match entries that its own does not hold: [`SpillOpen`], once, by the driver. The
 * device forgets it with [`crate::control::OP_RESET`], or with its own reset: then the memory is the driver's again.
 */
#define NICLAB_OP_SPILL_OPEN 13U

/* Body of [`OP_SPILL_OPEN`]. */
struct niclab_spill_open {

	/* Guest-physical address, aligned to 64 bytes. */
	__u64 address;

	/* Bytes: 64 for each match entry. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_spill_open, 16);

/*
 * Posts ([`crate::config::FEATURE_POSTS`]): messages that are sent out of registered memory to nodes, and received
 * into memory that is posted for whatever comes next.
 *
 * Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
 * ([`crate::bar`], [`crate::receive`]); memory is part of regions ([`crate::region`]). A slot carries a command, and a
 * slice of the receive queue an event, whose status word is polled as a slice's is. A card has one port, which sends
 * to every node: the header on its network names nodes, and no ports (Jaganathan, Underwood, Sass 2003).
 *
 * The device takes a command only while the receive queue has a place for the event that it is due: until then the
 * launch waits in the page. A receive holds its place until its message is there, a send until the card has its data.
 */

/* Launch word, bits 0..8: the command, a `POST_SEND` or a `POST_RECEIVE`. Bits 8..32 are its flags. */
#define NICLAB_POST_MASK 255U

/* Command, a [`SendCommand`]: sends part of a region to a node. Words of the slot behind a command's layout are zero. */
#define NICLAB_POST_SEND 1U

/*
 * Command, a [`ReceiveCommand`]: part of a region becomes room for one message, from whichever node. Room is taken in
 * the order in which it was posted, as the first packets of messages arrive.
 */
#define NICLAB_POST_RECEIVE 2U

/* Command, a [`BarrierCommand`]: is done once every member of the group has asked for it. */
#define NICLAB_POST_BARRIER 3U

/*
 * Command, a [`MulticastCommand`]: sends part of a region to every other member of a group, where it is an ordinary
 * message ([`POST_EVENT_RECEIVED`]). Is done once all have it in their memory.
 */
#define NICLAB_POST_MULTICAST 4U

/*
 * Command, a [`ReduceCommand`]: every member names values in its memory, and has in their place what the operator
 * makes of those of all members.
 */
#define NICLAB_POST_REDUCE 5U

/*
 * Flag of [`POST_RECEIVE`]: one interrupt once the event of its message is stored. The network's header has no bit for
 * it, so that the receiver asks, and not the sender. Of [`POST_BARRIER`], [`POST_MULTICAST`] and [`POST_REDUCE`]: one
 * once [`POST_EVENT_DONE`] is stored.
 */
#define NICLAB_POST_INTERRUPT 256U

/*
 * Flag of [`POST_SEND`]: [`POST_EVENT_SENT`] tells when the card has the data: the memory may be used again. Messages
 * to several nodes may be sent in another order than that of their launches.
 */
#define NICLAB_POST_TELL_SENT 512U

/* A message is a multiple of so many bytes, and not empty. */
#define NICLAB_POST_UNIT_BYTES 4U

/* The longest message of any card, in bytes; a card may be made for shorter ones. */
#define NICLAB_POST_MAX_MESSAGE_BYTES 0x40000000U

/* The words of [`POST_SEND`]. */
struct niclab_send_command {

	/* User value, given back with every event of this command. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* Target node. */
	__u16 node;

	/* Zero. */
	__u16 reserved;

	/* Offset in the region. */
	__u64 offset;

	/* Bytes of the message. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_send_command, 32);

/* The words of [`POST_RECEIVE`]. */
struct niclab_receive_command {

	/* User value, given back with the event of this command. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* Zero. */
	__u32 reserved;

	/* Offset in the region. */
	__u64 offset;

	/* Bytes of room: as those of a message. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_receive_command, 32);

/* The words of [`POST_BARRIER`]. */
struct niclab_barrier_command {

	/* User value, given back with the event of this command. */
	__u64 user;

	/* The group. */
	__u32 group;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_barrier_command, 16);

/* The words of [`POST_MULTICAST`]. */
struct niclab_multicast_command {

	/* User value, given back with the event of this command. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* The group. */
	__u32 group;

	/* Offset in the region. */
	__u64 offset;

	/* Bytes, as those of a message, at most [`POST_MAX_COLLECTIVE_BYTES`]. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_multicast_command, 32);

/* The words of [`POST_REDUCE`]. */
struct niclab_reduce_command {

	/* User value, given back with the event of this command. */
	__u64 user;

	/* Region of the values, and of what is made of them. */
	__u32 region;

	/* The group. */
	__u32 group;

	/* Offset in the region. */
	__u64 offset;

	/* Bytes of the values: a whole number of them, not none, at most [`POST_MAX_COLLECTIVE_BYTES`]. */
	__u64 bytes;

	/* [`POST_SUM`], [`POST_MIN`] or [`POST_MAX`]. */
	__u32 operator;

	/* What the values are: a `POST_` constant from [`POST_SIGNED_32`] to [`POST_DOUBLE`]. */
	__u32 element;
};
NICLAB_ASSERT_SIZE(struct niclab_reduce_command, 40);

/* Most bytes of a multicast or a reduction. */
#define NICLAB_POST_MAX_COLLECTIVE_BYTES 0x10000U

/*
 * Operator: the sum. Integers wrap; doubles are added in an order that the group's alone decides, so that every member
 * has the same bits. A sum that is no number is the one that [`POST_MIN`] names.
 */
#define NICLAB_POST_SUM 1U

/*
 * Operator: the least. Of doubles, -0 is less than 0, and with any that is no number the result is the quiet one
 * without sign and payload, `0x7ff8000000000000`.
 */
#define NICLAB_POST_MIN 2U

/* Operator: the greatest, as [`POST_MIN`]. */
#define NICLAB_POST_MAX 3U

/* Values: integers of 32 bits with sign. */
#define NICLAB_POST_SIGNED_32 1U

/* Values: integers of 64 bits with sign. */
#define NICLAB_POST_SIGNED_64 2U

/* Values: integers of 32 bits without sign. */
#define NICLAB_POST_UNSIGNED_32 3U

/* Values: integers of 64 bits without sign. */
#define NICLAB_POST_UNSIGNED_64 4U

/* Values: IEEE 754 binary64. */
#define NICLAB_POST_DOUBLE 5U

/* An event: what a slice of the receive queue carries. The words are stored in ascending order, the status last. */
struct niclab_post_event {

	/* User value of the command. */
	__u64 user;

	/* Bytes of the message; of a refused command, those that it asked for. */
	__u64 bytes;

	/* Bytes that were stored or sent. */
	__u64 moved_bytes;

	/*
	 * [`POST_EVENT_RECEIVED`]: the node that sent the message. [`POST_EVENT_DONE`]: the group. Else the node that
	 * it was for.
	 */
	__u64 source;

	/*
	 * Number of the message among those between this node and the other, as the card counts them, from 1; zero
	 * where it does not, and of multicasts. [`POST_EVENT_DONE`]: zero.
	 */
	__u64 message;

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

	/* Kind, bits 0..8; result, 8..16; zero, 16..32; the event's number, from 1 and wrapping, 32..64. */
	__u64 status;
};
NICLAB_ASSERT_SIZE(struct niclab_post_event, 88);

/* [`PostEvent::status`]: lowest bit of the result. */
#define NICLAB_POST_RESULT_SHIFT 8U

/* Kind: the card has all data of a message with [`POST_TELL_SENT`], or has given it up, and needs the memory no more. */
#define NICLAB_POST_EVENT_SENT 1U

/* Kind: a message is in the memory that was posted for it. */
#define NICLAB_POST_EVENT_RECEIVED 2U

/* Kind: a command was refused; the result says why. Nothing of it was done. */
#define NICLAB_POST_EVENT_REFUSED 3U

/*
 * Kind: a message was not delivered, as far as the card knows, and it has given up. Comes once the queue has a place,
 * as none is held for it.
 */
#define NICLAB_POST_EVENT_FAILED 4U

/* Kind: a barrier, a multicast or a reduction that this member asked for is over; the result says whether it is done. */
#define NICLAB_POST_EVENT_DONE 5U

/* Result: done. */
#define NICLAB_POST_OK 0U

/* Result: done, but cut: the message is longer than the room that was posted for it. */
#define NICLAB_POST_TRUNCATED 1U

/* Result: the region is closed, or never was one of this port; or memory of it went away meanwhile. */
#define NICLAB_POST_BAD_REGION 2U

/* Result: offset and bytes go beyond the region. */
#define NICLAB_POST_BAD_RANGE 3U

/* Result: reserved bits or words are not zero, or a length is none of a message, or too long for the card. */
#define NICLAB_POST_BAD_VALUE 4U

/* Result: there is no such command. */
#define NICLAB_POST_BAD_COMMAND 5U

/* Result: there is no such node. */
#define NICLAB_POST_NO_TARGET 6U

/* Result: the other card has not acknowledged it, as often as it was sent. */
#define NICLAB_POST_UNREACHABLE 7U

/* Result: parts of the message never came, and nobody sends them again. The memory holds those that came. */
#define NICLAB_POST_INCOMPLETE 8U

/* Result: the card was given another program before the message had arrived. */
#define NICLAB_POST_HANDED_OVER 9U

/* Result: there is no such group here. */
#define NICLAB_POST_NO_GROUP 10U

/* Result: the card's protocol loses messages. What cards do among themselves needs one that delivers. */
#define NICLAB_POST_NOT_RELIABLE 11U

/* Result: a member has dropped the group, or its program is gone. */
#define NICLAB_POST_LEFT 12U

/* Result: members have asked for different things, or have made the group of different members. */
#define NICLAB_POST_UNALIKE 13U

/*
 * Changes when the card interrupts the host of a port, while it runs: [`PostRules`]. Refused where the card's protocol
 * has no component for it.
 */
#define NICLAB_OP_POST_RULES 14U

/* Body of [`OP_POST_RULES`]. Zero turns a rule off. */
struct niclab_post_rules {

	/* The port. */
	__u32 port;

	/* One: at the end of a message the host is interrupted for the bytes that are pooled. */
	__u32 at_end;

	/* An interrupt for so many bytes that came. */
	__u64 rcv_chunk_size;

	/* An interrupt for each message of so many bytes or more. */
	__u64 min_message_bytes;

	/* The rules are about messages of this node; [`POST_ANY_SOURCE`]: of all. */
	__u64 source;
};
NICLAB_ASSERT_SIZE(struct niclab_post_rules, 32);

/* [`PostRules::source`]: any node. */
#define NICLAB_POST_ANY_SOURCE 0xffffU

/*
 * Makes a group of nodes, or drops it: [`PostGroup`]. Refused with [`crate::control::STATUS_BAD_VALUE`] where there is
 * a group of this name, or the members are none of a group; with [`crate::control::STATUS_NO_SPACE`] beyond
 * [`POST_GROUPS`]; with [`crate::control::STATUS_BAD_OPERATION`] where the card's protocol loses messages. To be
 * dropped there must be one, else [`crate::control::STATUS_NOT_FOUND`].
 */
#define NICLAB_OP_POST_GROUP 15U

/* Most groups of a card at a time. */
#define NICLAB_POST_GROUPS 16U

/* Most members of a group. */
#define NICLAB_POST_MAX_MEMBERS 256U

/* Body of [`OP_POST_GROUP`], which so many [`PostMember`]s follow. */
struct niclab_post_group {

	/* The port. */
	__u32 port;

	/* Name of the group: any number, the same at every member. */
	__u32 group;

	/*
	 * Members, at most [`POST_MAX_MEMBERS`], this node among them, none twice, in the same order at every member;
	 * none: the group is dropped.
	 */
	__u32 members;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_post_group, 16);

/* A member of a group. */
struct niclab_post_member {

	/* Its node. */
	__u32 node;
};
NICLAB_ASSERT_SIZE(struct niclab_post_member, 4);

/*
 * Channels ([`crate::config::FEATURE_CHANNELS`]): active messages over logical channels (Ulmer, Yalamanchili).
 *
 * Each port of the card is a logical channel, owned by the program that opened the port. A message is *pushed*: the
 * program stores its header into a slot of the requester page, the header ring of the channel's outbound queue, and
 * what more belongs to it into the queue's payload region, a window of its own ([`WINDOW_CHANNEL_PAYLOAD`]). Nothing
 * is read from the program's memory.
 *
 * A long message may be pushed in segments, so that the card sends its begin while the program still pushes its end:
 * the first launch says how much of it is there, and each [`CHANNEL_SEGMENT`] behind it how much there is by then. A
 * header and its segments are launched one behind the other, with nothing between them.
 *
 * A message that comes is a slice of the receive queue ([`crate::receive`]) with one payload word, the handler, and
 * the four integers as its tag; one with payload has another word before these, which says where in the endpoint's
 * payload region it is ([`payload_place`]). The program gives the room of a payload back with its slice.
 * [`crate::receive::SliceStatus`] names the sender's channel.
 *
 * A message stays in the outbound queue until the other card has acknowledged all of it.
 * [`crate::receive::StatusLine::sent`] counts the messages that have left it, in the order of their launches: by that
 * the program knows which part of the payload region is free. The card writes a status line for each message with
 * payload that leaves, and for each that asked for it ([`CHANNEL_NOTIFY`]). What another card refuses for good is
 * counted as refused there, with the reason, and as one that has left. A header that the card itself refuses counts
 * likewise, in its place, but for one with [`crate::receive::REFUSED_SEGMENT`].
 */

/*
 * [`crate::bar::Window::kind`]: the payload region of a channel's outbound queue. [`CHANNEL_PAYLOAD_BYTES`] for each
 * port, of which a card may offer less.
 */
#define NICLAB_WINDOW_CHANNEL_PAYLOAD 16U

/* Pages of a channel's payload region in the BAR. */
#define NICLAB_CHANNEL_PAYLOAD_PAGES 48U

/* Bytes of a channel's payload region in the BAR. */
#define NICLAB_CHANNEL_PAYLOAD_BYTES 0x30000U

/* Launch word, bits 0..8: what is pushed. Bits 8..32 are flags. */
#define NICLAB_CHANNEL_MASK 255U

/* A message without payload, [`MessageHeader`]. */
#define NICLAB_CHANNEL_SHORT 1U

/* A message with payload, [`BulkHeader`]. */
#define NICLAB_CHANNEL_BULK 2U

/* Bytes for a region of another program's memory, [`MemoryHeader`]: no handler, and nothing tells the receiver. */
#define NICLAB_CHANNEL_MEMORY 3U

/* More of the message launched last is in the payload region, [`Segment`]. */
#define NICLAB_CHANNEL_SEGMENT 4U

/* Flag of [`CHANNEL_SHORT`] and [`CHANNEL_BULK`]: the receiving card interrupts its host once the message is stored. */
#define NICLAB_CHANNEL_INTERRUPT 256U

/* Flag of the same: the card writes a status line once the message has left, as it does for all with payload. */
#define NICLAB_CHANNEL_NOTIFY 512U

/* Most bytes of the payload of one message (section 5.1). */
#define NICLAB_CHANNEL_MAX_BULK_BYTES 0xc000U

/*
 * Handlers below this number are predefined, the same everywhere: the library's own, and from [`CHANNEL_PING`] on
 * those of peripherals.
 */
#define NICLAB_CHANNEL_FIRST_HANDLER 32U

/* Answer to a message for a handler that is not there: its number is the first integer. */
#define NICLAB_CHANNEL_UNKNOWN 1U

/* Any peripheral: sends the integers and the payload back to its sender, for [`CHANNEL_PONG`]. */
#define NICLAB_CHANNEL_PING 16U

/* Answer to [`CHANNEL_PING`]. */
#define NICLAB_CHANNEL_PONG 17U

/*
 * A bridge: sends the payload over its Ethernet port, in UDP datagrams. Integers: the node that gets them; its IPv4
 * address; the bridge's own; the ports, [`bridge_ports`].
 */
#define NICLAB_CHANNEL_BRIDGE 18U

/*
 * From a bridge, to who last sent by its address and port: a datagram that came there. Integers: the node that it is
 * from, 65535 for somebody else; its IPv4 address; the bridge's own; the ports, [`bridge_ports`].
 */
#define NICLAB_CHANNEL_BRIDGED 19U

/* Block storage: stores the payload. Integers: the first block; three that come back. */
#define NICLAB_CHANNEL_STORE 20U

/*
 * Answer to [`CHANNEL_STORE`]. Integers: how many blocks were stored, 0 where there is no room for them; the three of
 * the request.
 */
#define NICLAB_CHANNEL_STORED 21U

/* Block storage: sends blocks. Integers: the first; how many; two that come back. */
#define NICLAB_CHANNEL_LOAD 22U

/*
 * Answer to [`CHANNEL_LOAD`] with the blocks. Integers: the first; how many, 0 where they are not there; the two of
 * the request.
 */
#define NICLAB_CHANNEL_LOADED 23U

/* A card with a function: applies it to the payload. The integers come back. */
#define NICLAB_CHANNEL_APPLY 24U

/* Answer to [`CHANNEL_APPLY`] with what the function makes of it. */
#define NICLAB_CHANNEL_APPLIED 25U

/* Bytes of a block of a peripheral's storage. */
#define NICLAB_STORAGE_BLOCK_BYTES 512U

/*
 * The words of [`CHANNEL_SHORT`]. Of the 28 bytes of a short message (section 5.1) four are the channel, which the
 * place of the store says, four the handler and 16 the integers; the others are the destination. With the word
 * that tells the card of it the burst has 32.
 */
struct niclab_message_header {

	/* Target node. */
	__u16 node;

	/* Target endpoint: its port. */
	__u16 endpoint;

	/* Number of the handler. */
	__u32 handler;

	/* First integer for the handler. */
	__u32 argument0;

	/* Second. */
	__u32 argument1;

	/* Third. */
	__u32 argument2;

	/* Fourth. */
	__u32 argument3;

	/* Bytes of the payload that are in the region: zero. */
	__u32 pushed;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_message_header, 32);

/* The words of [`CHANNEL_BULK`]. */
struct niclab_bulk_header {

	/* Target node. */
	__u16 node;

	/* Target endpoint: its port. */
	__u16 endpoint;

	/* Number of the handler. */
	__u32 handler;

	/* First integer for the handler. */
	__u32 argument0;

	/* Second. */
	__u32 argument1;

	/* Third. */
	__u32 argument2;

	/* Fourth. */
	__u32 argument3;

	/* Where in the payload region the payload begins. */
	__u32 offset;

	/* Its bytes: 1..=[`CHANNEL_MAX_BULK_BYTES`]. */
	__u32 bytes;

	/* Of these, from the first on, so many are in the region. */
	__u32 pushed;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_bulk_header, 40);

/* The words of [`CHANNEL_MEMORY`]. */
struct niclab_memory_header {

	/* Target node. */
	__u16 node;

	/* Target endpoint: the port whose program registered the region. */
	__u16 endpoint;

	/* Name of the region there, which must be exposed ([`OP_CHANNEL_EXPOSE`]). */
	__u32 region;

	/* Offset in that region. */
	__u64 place;

	/* Where in the payload region the bytes begin. */
	__u32 offset;

	/* How many: 1..=[`CHANNEL_MAX_BULK_BYTES`]. */
	__u32 bytes;

	/* Of these, from the first on, so many are in the region. */
	__u32 pushed;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_memory_header, 32);

/* The words of [`CHANNEL_SEGMENT`]. */
struct niclab_segment {

	/* Bytes of the message that are in the payload region by now: more than before, and not more than it has. */
	__u32 pushed;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_segment, 8);

/*
 * Says where the payload of messages for a port goes: [`ChannelPayload`]. Until then messages with payload for it are
 * refused. Refused itself with [`crate::control::STATUS_PORT_BUSY`] while payload is in the region before.
 */
#define NICLAB_OP_CHANNEL_PAYLOAD 16U

/* Lets memory messages write into a region, or takes that back: [`ChannelExpose`]. */
#define NICLAB_OP_CHANNEL_EXPOSE 17U

/* Body of [`OP_CHANNEL_PAYLOAD`]. */
struct niclab_channel_payload {

	/* The port. */
	__u32 port;

	/* A region of the port. */
	__u32 region;

	/* Where in it the payload region begins, a multiple of 64. */
	__u64 offset;

	/* Its bytes, a multiple of 64. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_channel_payload, 24);

/* Body of [`OP_CHANNEL_EXPOSE`]. */
struct niclab_channel_expose {

	/* The port. */
	__u32 port;

	/* A region of the port. */
	__u32 region;

	/* One: memory messages may write into it. Zero: they may not. */
	__u32 is_exposed;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_channel_expose, 16);

/*
 * Descriptor rings ([`crate::config::FEATURE_RINGS`]): frames are sent out of memory, and received into memory, that
 * descriptors in the host's memory name. The card walks them by itself.
 *
 * A descriptor has the 16 bytes of the DEC 21140 (*21140A PCI Fast Ethernet LAN Controller Hardware Reference Manual*,
 * section 4.2), in two words of 64 bits, least significant byte first:
 *
 * | word | bits | what |
 * |---|---|---|
 * | 0 | 31 | [`RING_OWN`]: the card's |
 * | 0 | 0..31 | status, once it is the host's again: `RING_` bits and, of what was received, the length |
 * | 0 | 32..43 | bytes of the first buffer |
 * | 0 | 43..54 | bytes of the second buffer |
 * | 0 | 56 | [`RING_CHAINED`]: the second address is that of the next descriptor |
 * | 0 | 57 | [`RING_END`]: the next descriptor is the ring's first |
 * | 0 | 61, 62 | [`RING_FIRST`], [`RING_LAST`], of what is sent: the frame begins, ends here |
 * | 1 | 0..32, 32..64 | addresses of the buffers |
 *
 * Between two descriptors that are not chained the card skips so many bytes as [`RingStart::skip_bytes`] says; behind
 * a chained one lie as many. They are the driver's, but for the first word of them in what is sent
 * ([`RING_MESSAGE_WORD`]), which no hardware would read: it tells reports how long the message is whose first frame
 * begins there, and what the driver knew when it sent the frame. Where that is all that the card had told it by then,
 * the order in which the host did things is known, and with it when they were done in model time.
 *
 * The driver fills all words but the first, then stores the first, which makes the descriptor the card's; the card
 * gives it back by the same word. Then it notifies queue 2 or 3 ([`crate::QUEUE_TRANSMIT`], [`crate::QUEUE_RECEIVE`]),
 * which never hold a chain: a poll demand.
 */

/* Says where a ring begins, and that the card shall walk it: [`RingStart`]. No answer's body. */
#define NICLAB_OP_RING_START 18U

/* The card walks a ring no more: [`RingName`]. Once answered, it touches neither descriptors nor buffers. */
#define NICLAB_OP_RING_STOP 19U

/* Says when frames that were received interrupt: [`RingInterrupts`]. No answer's body. */
#define NICLAB_OP_RING_INTERRUPTS 20U

/* Asks what the drivers of this cluster have agreed on. No body, answered by [`RingTerms`]. */
#define NICLAB_OP_RING_TERMS 21U

/*
 * CPU-driven ([`RingTerms::receive_buffers`] is zero): reads status and head of the first frame in the card's FIFO. No
 * body, answered by [`FifoHead`].
 */
#define NICLAB_OP_FIFO_LOOK 22U

/*
 * CPU-driven: stores a part of the first frame in the FIFO where it belongs, and drops the frame: [`FifoTake`].
 * Answered, without a body, when it is stored.
 */
#define NICLAB_OP_FIFO_TAKE 23U

/*
 * CPU-driven: puts a frame into the FIFO in front of the wire, a head that the processor stores and data that the card
 * reads: [`FifoSend`]. Answered, without a body, when the card has read all of it.
 */
#define NICLAB_OP_FIFO_SEND 24U

/* [`RingStart::ring`], [`RingName::ring`]: what is to be sent. */
#define NICLAB_RING_TRANSMIT 0U

/* [`RingStart::ring`], [`RingName::ring`]: room for what comes. */
#define NICLAB_RING_RECEIVE 1U

/* Body of [`OP_RING_START`]. */
struct niclab_ring_start {

	/* [`RING_TRANSMIT`] or [`RING_RECEIVE`]. */
	__u32 ring;

	/* Bytes between two descriptors: a multiple of eight, eight at least, [`RING_MAX_SKIP_BYTES`] at most. */
	__u32 skip_bytes;

	/* Guest-physical address of the first descriptor: a multiple of eight, below 4 GiB. */
	__u64 first;

	/* Zero. */
	__u64 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_ring_start, 24);

/* Body of [`OP_RING_STOP`]. */
struct niclab_ring_name {

	/* [`RING_TRANSMIT`] or [`RING_RECEIVE`]. */
	__u32 ring;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_ring_name, 8);

/* Body of [`OP_RING_INTERRUPTS`]. */
struct niclab_ring_interrupts {

	/* Frames after which one interrupt is raised; 0: none ever, for drivers that poll. */
	__u32 frames;

	/* Model time in nanoseconds after which an interrupt is raised for fewer frames than that. */
	__u32 delay_ns;

	/* Zero. */
	__u64 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_ring_interrupts, 16);

/* Answer to [`OP_RING_TERMS`]. */
struct niclab_ring_terms {

	/*
	 * Descriptors that the receive ring shall have, each with a buffer for a whole frame. 0: there are no rings,
	 * and the processor drives each transfer ([`OP_FIFO_LOOK`]).
	 */
	__u32 receive_buffers;

	/* Frames that may be on their way from one node to another without acknowledgement; 0: any number. */
	__u32 window;

	/* Frames of a node after which its window is given back to it. */
	__u32 acknowledge_every;

	/* Buffers that are no window's and no acknowledgement's: other protocols may use so many. */
	__u32 other_buffers;

	/* Ethernet address by which other protocols of this node are known, first byte lowest. */
	__u64 station;

	/* Most bytes of a frame that the driver gives to the card: of active ports, without the check sequence. */
	__u32 frame_bytes;

	/* [`RingInterrupts::frames`], as drivers set it unless somebody wants otherwise. */
	__u32 interrupt_frames;

	/* [`RingInterrupts::delay_ns`], likewise. */
	__u32 interrupt_delay_ns;

	/* [`crate::active_ports::FrameHead::protocol`] of frames that the card sends and takes. */
	__u32 protocol;

	/*
	 * How many drivers have asked this card for its terms, this one included: what a driver of hardware would
	 * count in the card's serial memory. See [`crate::active_ports::INCARNATIONS`].
	 */
	__u32 incarnation;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_ring_terms, 48);

/*
 * Most bytes of the head of a frame that the processor reads or stores: an Ethernet header and
 * [`crate::active_ports::FrameHead`] are 22.
 */
#define NICLAB_FIFO_HEAD_BYTES 24U

/* Answer to [`OP_FIFO_LOOK`]. */
struct niclab_fifo_head {

	/* Bytes of the first frame in the FIFO; zero: there is none. */
	__u32 bytes;

	/* [`RING_STATUS_DAMAGED`] where its check sequence is wrong, else zero. */
	__u32 status;

	/* The first [`FIFO_HEAD_BYTES`] of it, first byte lowest, zeros behind its end. */
	__u64 head_0;

	/* The next eight. */
	__u64 head_1;

	/* The last eight. */
	__u64 head_2;
};
NICLAB_ASSERT_SIZE(struct niclab_fifo_head, 32);

/* Body of [`OP_FIFO_TAKE`]. */
struct niclab_fifo_take {

	/* Guest-physical address of where the part goes. */
	__u64 address;

	/* Bytes of the frame in front of the part. */
	__u32 skip_bytes;

	/* Bytes of the part; zero: the frame is dropped, and nothing is stored. */
	__u32 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_fifo_take, 16);

/* Body of [`OP_FIFO_SEND`]. */
struct niclab_fifo_send {

	/* The head of the frame, first byte lowest. */
	__u64 head_0;

	/* The next eight bytes. */
	__u64 head_1;

	/* The last eight bytes. */
	__u64 head_2;

	/* Bytes of the head: [`FIFO_HEAD_BYTES`] at most. */
	__u32 head_bytes;

	/* Bytes of the data behind it. */
	__u32 bytes;

	/* Guest-physical address of the data. */
	__u64 address;

	/* Bytes of the message whose first frame this is, else zero: for reports, no hardware would read it. */
	__u64 message_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_fifo_send, 48);

/* Last but two of the bytes of [`RingTerms::station`], less one: which of the node's stations other protocols are. */
#define NICLAB_RING_STATION 0U

/* Most bytes between two descriptors (CSR0, bits 2 to 6: 31 words of 32 bits, here in whole words of 64). */
#define NICLAB_RING_MAX_SKIP_BYTES 120U

/*
 * Word of a descriptor and what lies behind it, of 64 bits, of a descriptor in which a frame begins that is sent. Its
 * lower half, where the frame is a message's first: the bytes of the message. Its upper half, [`RING_RECEIVED_SHIFT`]:
 * the frames that the driver had taken out of the receive ring since it was started, modulo 2^32.
 */
#define NICLAB_RING_MESSAGE_WORD 2U

/* The upper half of that word. */
#define NICLAB_RING_RECEIVED_SHIFT 32U

/* First word: the descriptor is the card's. */
#define NICLAB_RING_OWN 0x80000000U

/* First word: the second address is that of the next descriptor. */
#define NICLAB_RING_CHAINED 0x100000000000000ULL

/* First word: the next descriptor is the ring's first; stronger than [`RING_CHAINED`]. */
#define NICLAB_RING_END 0x200000000000000ULL

/* First word, of what is sent: the frame begins in this descriptor. */
#define NICLAB_RING_FIRST 0x2000000000000000ULL

/* First word, of what is sent: the frame ends in this descriptor. */
#define NICLAB_RING_LAST 0x4000000000000000ULL

/* First word: lowest bit of the size of the first buffer. */
#define NICLAB_RING_SIZE_SHIFT 32U

/* First word: lowest bit of the size of the second buffer. */
#define NICLAB_RING_SECOND_SIZE_SHIFT 43U

/* Most bytes of a buffer. */
#define NICLAB_RING_MAX_BUFFER_BYTES 2047U

/* Status: something is wrong, and other bits say what (ES). */
#define NICLAB_RING_ERROR 0x8000U

/* Status of what was received: the frame begins in this descriptor (FS). */
#define NICLAB_RING_STATUS_FIRST 512U

/* Status of what was received: the frame ends in this descriptor, and the length is valid (LS). */
#define NICLAB_RING_STATUS_LAST 256U

/* Status of what was received: the check sequence is wrong (CE). */
#define NICLAB_RING_STATUS_DAMAGED 2U

/* Status of what was received: the ring had too little room for the whole frame (DE). */
#define NICLAB_RING_STATUS_TRUNCATED 0x4000U

/*
 * Status of what was received: lowest bit of the length in bytes, from the Ethernet header to the last byte that is
 * stored.
 */
#define NICLAB_RING_LENGTH_SHIFT 16U

/*
 * Status of what was sent: the frame is shorter than its headers, longer than the network's, or its buffers are in too
 * many descriptors.
 */
#define NICLAB_RING_STATUS_LENGTH 4U

/* Status of what was sent: a buffer is not memory of the guest. */
#define NICLAB_RING_STATUS_ADDRESS 8U

/*
 * Status of what was sent: the source address is not the node's, or the frame is of a protocol that is not this
 * card's.
 */
#define NICLAB_RING_STATUS_FORGED 16U

/* Status of what was sent: a descriptor that begins a frame within another, or goes on with none. */
#define NICLAB_RING_STATUS_SEGMENT 32U

/*
 * Active ports: what the drivers of two nodes whose cards have descriptor rings ([`crate::rings`]) say to one another
 * (Chiola, Ciaccio, Mancini, Rotondo, the paper on DEC 2114x with efficient flow control).
 *
 * A message is cut into frames. Behind the Ethernet header each has a [`FrameHead`], least significant byte first, and
 * then its part of the message; the card puts a check sequence of [`CHECK_BYTES`] behind it, and takes it away. That
 * and the head are 12 bytes: 12.2 of Fast Ethernet's 12.5 MB/s within 1 % leave 13.
 *
 * All frames from one node to another are numbered from 1, but for acknowledgements, so that a driver knows when one
 * was lost. Nothing is ever sent again. A node that has sent as many as its window has waits until the other has taken
 * them out of its receive ring and says so ([`FRAME_ACKNOWLEDGEMENT`]).
 *
 * A driver that was loaded again knows nothing of what its predecessor sent and took. So frames say which of a node's
 * drivers, one after another ([`INCARNATIONS`]), they are of and for. Who hears of a later one of a node than before
 * begins anew with it: both number from 1, with a whole window. What is of an earlier one is dropped, and so is what
 * is for an earlier one, which is answered by an acknowledgement. A driver that has a predecessor tells all others so
 * as it starts, by an acknowledgement of nothing.
 */

/* Active ports of a node. */
#define NICLAB_ACTIVE_PORTS 8U

/* The longest message, in bytes. */
#define NICLAB_ACTIVE_PORT_MAX_MESSAGE_BYTES 0x100000U

/*
 * EtherType of frames between active ports. Their addresses are those of the cards
 * ([`crate::config::DeviceConfig::mac`]), which have the node's number as their last two bytes, the higher one first.
 */
#define NICLAB_ACTIVE_ETHER_TYPE 0x88b5U

/* Bytes of the check sequence behind each frame. */
#define NICLAB_CHECK_BYTES 4U

/* What stands behind the Ethernet header of each frame. */
struct niclab_frame_head {

	/* The protocol's number. */
	__u8 protocol;

	/* A `FRAME_` kind, and for [`FRAME_DATA`] its flags. */
	__u8 kind;

	/*
	 * The sending port, [`PORT_MASK`], zero in acknowledgements; and which driver of the sending node sends it,
	 * [`INCARNATION_SHIFT`].
	 */
	__u8 source_port;

	/* The receiving port, likewise; and which driver of the receiving node is meant. */
	__u8 target_port;

	/*
	 * Number of the frame, from 1 and wrapping; of an acknowledgement, of the last frame that was taken, zero
	 * where none was.
	 */
	__u32 number;
};
NICLAB_ASSERT_SIZE(struct niclab_frame_head, 8);

/* Kind, the lower four bits of [`FrameHead::kind`]: part of a message. */
#define NICLAB_FRAME_DATA 1U

/* Kind: all frames up to the number have been taken out of the receive ring. */
#define NICLAB_FRAME_ACKNOWLEDGEMENT 2U

/* [`FrameHead::kind`]: the kind. */
#define NICLAB_FRAME_KIND_MASK 15U

/* [`FrameHead::source_port`], [`FrameHead::target_port`]: the port. */
#define NICLAB_PORT_MASK 15U

/*
 * [`FrameHead::source_port`], [`FrameHead::target_port`]: lowest bit of the driver's number; zero: the sender does not
 * know it, or there is but one.
 */
#define NICLAB_INCARNATION_SHIFT 4U

/*
 * A driver's number is 1 more than what is left of [`crate::rings::RingTerms::incarnation`], less 1, divided by this.
 * Of two, that one is later which is reached by fewer steps upwards, modulo this.
 */
#define NICLAB_INCARNATIONS 15U

/* Flag of [`FRAME_DATA`]: the message begins here. */
#define NICLAB_FRAME_FIRST 16U

/* Flag of [`FRAME_DATA`]: the message ends here. */
#define NICLAB_FRAME_LAST 32U

/*
 * Firmware ([`crate::config::FEATURE_FIRMWARE`]): the program that the card's processor runs.
 */

/*
 * Loads firmware into the match unit: [`FirmwareLoad`], answered by [`FirmwareLoaded`]. Headers that arrived before
 * are matched by the program before; a refused image changes nothing. It stays until another is loaded, whatever a
 * driver resets.
 *
 * A card with [`crate::config::FEATURE_HAND_OVER`] answers once it has read the image and found it good. What it has
 * under way then ends by the program before; meanwhile it takes commands, and begins no message.
 * [`crate::event::CAUSE_HANDED_OVER`] tells when the new program runs.
 */
#define NICLAB_OP_FIRMWARE_LOAD 12U

/* Body of [`OP_FIRMWARE_LOAD`]. */
struct niclab_firmware_load {

	/* Guest-physical address of the image. */
	__u64 address;

	/* Bytes of the image; zero: the built-in program again. */
	__u32 bytes;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_firmware_load, 16);

/* Answer to [`OP_FIRMWARE_LOAD`]. */
struct niclab_firmware_loaded {

	/* Words of the program. */
	__u32 words;

	/* Its checksum. */
	__u32 checksum;
};
NICLAB_ASSERT_SIZE(struct niclab_firmware_loaded, 8);

/* No firmware image, or one that is cut: wrong magic word or length. */
#define NICLAB_STATUS_FIRMWARE_IMAGE 9U

/* The image's checksum does not fit its content. */
#define NICLAB_STATUS_FIRMWARE_CHECKSUM 10U

/* The image is of a version that this device does not run. */
#define NICLAB_STATUS_FIRMWARE_VERSION 11U

/* A word of the program has a value that is not defined. */
#define NICLAB_STATUS_FIRMWARE_WORD 12U

/* The program is longer than the control store. */
#define NICLAB_STATUS_FIRMWARE_SIZE 13U

/*
 * The image is whole, and makes no sense on this card: a protocol's parts that do not fit together, or packets longer
 * than the network carries.
 */
#define NICLAB_STATUS_FIRMWARE_UNFIT 14U

/* The card is taking another program already. */
#define NICLAB_STATUS_FIRMWARE_BUSY 15U

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

/* `mmap` offset of the doorbell page: a 16-bit store of [`crate::QUEUE_DOORBELL`] at its first byte rings. */
#define NICLAB_MAP_DOORBELL 4096U

/*
 * `mmap` offset of the port's receive memory: the status line at its first byte, the slices from
 * [`RECEIVE_SLICES_OFFSET`] on; [`OpenPort::receive_bytes`] long. Read-only for the program.
 */
#define NICLAB_MAP_RECEIVE 0x100000U

/*
 * `mmap` offset of the first window of the BAR; of the others, each [`MAP_WINDOW_STRIDE`] further, in the order of the
 * table ([`crate::bar::Window`]). Of a window that ports have parts of, the part of the file's port. A mapping may
 * begin at a later page, and ends with the window at the latest.
 */
#define NICLAB_MAP_WINDOWS 0x10000000U

/* Bytes from one window's `mmap` offset to the next one's. */
#define NICLAB_MAP_WINDOW_STRIDE 0x1000000U

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

/* Argument of [`IOCTL_REGISTER`] and [`IOCTL_DEREGISTER`]. */
struct niclab_registration {

	/* [`IOCTL_REGISTER`]: first byte in the program's memory; the memory must be writable. */
	__u64 address;

	/* [`IOCTL_REGISTER`]: its length, 1..=[`MAX_REGISTRATION_BYTES`]; need not be whole pages. */
	__u64 bytes;

	/* The region: out of [`IOCTL_REGISTER`], into [`IOCTL_DEREGISTER`]. */
	__u32 region;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_registration, 24);

/* Argument of [`IOCTL_GROUP`]; the file's port is meant. */
struct niclab_group_of {

	/* Name of the group, as [`crate::posts::PostGroup::group`]. */
	__u32 group;

	/* Members, at most [`crate::posts::POST_MAX_MEMBERS`]; none: the group is dropped. */
	__u32 members;

	/* Address of their node numbers, of 32 bits each. */
	__u64 nodes;
};
NICLAB_ASSERT_SIZE(struct niclab_group_of, 16);

/* Argument of [`IOCTL_ACTIVE_OPEN`]. */
struct niclab_active_open {

	/* In: the port wanted or [`crate::control::PORT_ANY`]. Out: the port. */
	__u32 port;

	/* Receive buffers, 1..=[`ACTIVE_MAX_BUFFERS`]. */
	__u32 buffers;

	/* First byte of the first in the program's memory, which must be writable; the others lie behind it. */
	__u64 address;

	/* Bytes of each: of the longest message that the port takes. */
	__u32 buffer_bytes;

	/* Zero. */
	__u32 reserved0;

	/* Out: frames after which the card interrupts; 0: never, so that a program must look for itself. */
	__u32 interrupt_frames;

	/* Zero. */
	__u32 reserved1;
};
NICLAB_ASSERT_SIZE(struct niclab_active_open, 32);

/* Argument of [`IOCTL_ACTIVE_SEND`] and, with a time limit alone, of [`IOCTL_ACTIVE_FLUSH`]. */
struct niclab_active_send {

	/* The receiving node. */
	__u32 node;

	/* Its port. */
	__u32 port;

	/* First byte in the program's memory. */
	__u64 address;

	/* Length of the message, at most [`crate::active_ports::ACTIVE_PORT_MAX_MESSAGE_BYTES`]. */
	__u32 bytes;

	/* `ACTIVE_SEND_` flags. */
	__u32 flags;

	/* Longest wait, wall time. */
	__u32 timeout_ms;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_active_send, 32);

/* Argument of [`IOCTL_ACTIVE_RECEIVE`]. */
struct niclab_active_receive {

	/*
	 * In: a buffer whose message the program has done with, or [`ACTIVE_NO_BUFFER`]. Out: the message's buffer, if
	 * it has one.
	 */
	__u32 buffer;

	/* Out: its length. */
	__u32 bytes;

	/* Out: number among the port's messages and errors, from 1. */
	__u64 number;

	/* Out: the sending node. */
	__u32 node;

	/* Out: its port. */
	__u32 port;

	/* Out: `ACTIVE_ERROR_` flags; none: a message is in the buffer. */
	__u32 errors;

	/* Out: frames of that node that did not come, told here and nowhere else. */
	__u32 lost_frames;

	/* In: how long to sleep, in milliseconds, where there is none and the card interrupts. Zero: not at all. */
	__u32 timeout_ms;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_active_receive, 40);

/* Most receive buffers of an active port. */
#define NICLAB_ACTIVE_MAX_BUFFERS 1024U

/* No buffer. */
#define NICLAB_ACTIVE_NO_BUFFER 0xffffffffU

/*
 * [`ActiveSend::flags`]: waits while the window lets nothing through, and until the last frame has left. Without this
 * flag only the window is waited for, once the message has begun, and the memory must stay as it is until
 * [`IOCTL_ACTIVE_FLUSH`].
 */
#define NICLAB_ACTIVE_SEND_BLOCK 1U

/* [`ActiveReceive::errors`]: frames did not come. */
#define NICLAB_ACTIVE_ERROR_LOST 1U

/* [`ActiveReceive::errors`]: part of a message did not come, and the message is dropped. */
#define NICLAB_ACTIVE_ERROR_INCOMPLETE 2U

/* [`ActiveReceive::errors`]: a message was longer than a buffer, and is dropped. */
#define NICLAB_ACTIVE_ERROR_TOO_LONG 4U

/*
 * [`ActiveReceive::errors`]: no buffer was free for a message, for so long that it was dropped lest others wait with
 * it.
 */
#define NICLAB_ACTIVE_ERROR_NO_BUFFER 8U

/* Most bytes of one [`Registration`]: what a request pins before anybody can interrupt it stays bounded. */
#define NICLAB_MAX_REGISTRATION_BYTES 0x40000000U

/* Copies the [`crate::config::DeviceConfig`] out. */
#define NICLAB_IOCTL_INFO 0x8060f500U

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

/*
 * Pins part of the program's memory and registers it with the device for the file's port, [`Registration`]. It stays
 * pinned until it is deregistered, the port is closed or the file is, be it by the death of the process. `EFAULT`: not
 * all of it is writable memory of the program; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `ENOSPC`: the device has no region
 * left; `EOPNOTSUPP`: this model has no regions.
 */
#define NICLAB_IOCTL_REGISTER 0xc018f507U

/* Takes that back. Once done, the device touches the memory no more. `ENOENT`: there is no such region. */
#define NICLAB_IOCTL_DEREGISTER 0x4018f508U

/*
 * Changes when the device interrupts for the file's port, [`crate::posts::PostRules`], whose port is zero.
 * `EOPNOTSUPP`: this model has no such rules, or its protocol no component for them.
 */
#define NICLAB_IOCTL_RULES 0x4020f509U

/*
 * Makes a group of nodes for the file's port, or drops it, [`GroupOf`]. `EFAULT`: the members cannot be read;
 * `EINVAL`: there is a group of this name, or they are none of one; `ENOSPC`: there are as many groups as may be;
 * `ENOENT`: there is none to drop; `EOPNOTSUPP`: this model has no groups, or its protocol loses messages.
 */
#define NICLAB_IOCTL_GROUP 0x4010f50aU

/*
 * Says where the payload of messages for the file's port goes, [`crate::channels::ChannelPayload`], whose port is
 * zero. `EBUSY`: payload is in the region before; `ENOENT`: there is no such region; `EOPNOTSUPP`: this model has no
 * channels.
 */
#define NICLAB_IOCTL_CHANNEL_PAYLOAD 0x4018f50bU

/*
 * Lets memory messages write into a region of the file's port, or takes that back, [`crate::channels::ChannelExpose`],
 * whose port is zero. `ENOENT`: there is no such region; `EOPNOTSUPP`: this model has no channels.
 */
#define NICLAB_IOCTL_CHANNEL_EXPOSE 0x4010f50cU

/*
 * Opens an active port for this file ([`crate::config::FEATURE_RINGS`]), with receive buffers that are pinned,
 * [`ActiveOpen`]. It is closed with the file. `EBUSY`: the file or the port has one already; `ENOSPC`: none is free;
 * `EFAULT`: not all of the buffers is writable memory; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `EOPNOTSUPP`: this card has
 * no rings.
 */
#define NICLAB_IOCTL_ACTIVE_OPEN 0xc020f50dU

/*
 * Sends a message from the file's active port, out of the program's own memory, [`ActiveSend`]. `EAGAIN`, of one that
 * shall not block: the window lets nothing through now, or another program is in the middle of a message to that node.
 * `EMSGSIZE`: it is longer than messages are. `ETIMEDOUT`: the window was not given back in time, as when an
 * acknowledgement was lost; what has left of the message is incomplete at its receiver. `ENXIO`: memory that the card
 * does not reach (beyond 4 GiB). `EIO`: the card has refused a frame.
 */
#define NICLAB_IOCTL_ACTIVE_SEND 0x4020f50eU

/* Waits until all frames of the file's active port have left, [`ActiveSend`]. */
#define NICLAB_IOCTL_ACTIVE_FLUSH 0x4020f50fU

/*
 * Gives a buffer back and takes the next message or error of the file's active port, for which it looks through the
 * ring, [`ActiveReceive`]. `EAGAIN`: there is none, or a signal came first. `poll` reports readable when there is one
 * already.
 */
#define NICLAB_IOCTL_ACTIVE_RECEIVE 0xc028f510U

#endif /* NICLAB_ABI_H */
