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
 * The contract between a host and a niclab NIC.
 *
 * This crate defines every layout that crosses the boundary between a guest and the device, once. The kernel driver
 * uses the generated C header (`include/niclab_abi.h`); the user library and the device daemon use the crate itself.
 * All fields are little-endian. All structures are `repr(C)` without implicit padding, with sizes asserted at compile
 * time.
 *
 * Read in this order:
 *
 * 1. [`config`]: the virtio configuration space, which a driver reads first;
 * 2. [`bar`]: the information page and its table of windows, and the requester and completer pages of a port;
 * 3. [`receive`]: slices and the status line, which the device writes into host memory;
 * 4. [`control`]: requests on the control queue;
 * 5. [`event`]: the events that explain interrupts;
 * 6. extensions of cards with these features: [`region`], memory that a program registers; [`matching`], posted
 * receives, with commands and events; [`inic`], the same for messages to any node; [`grim`], active messages that
 * are pushed; [`rings`], frames by descriptors, and [`gamma`], the drivers' protocol in these frames; [`firmware`];
 * 7. [`ioctl`]: the character device between the kernel driver and a user program;
 * 8. [`rules`]: the rules for drivers, by name.
 *
 * `docs/driver/DEVICE.md` is the device programmer's manual, which explains this crate.
 */

/* Version of this crate's contract. A driver refuses a device of another version. */
#define NICLAB_ABI_VERSION 3U

/*
 * First word of the configuration space and of the BAR's information page: the bytes `niclab\0\x01`.
 *
 * Virtio identity 38 is not reserved for niclab, so the driver must recognise the device by this word.
 */
#define NICLAB_MAGIC 0x10062616c63696eULL

/* Virtio device identity of the cluster function. QEMU's name table knows it, and no Linux driver claims it. */
#define NICLAB_VIRTIO_ID 38U

/* Bytes of a page of the BAR, and of the page of a queue-notify register. */
#define NICLAB_PAGE_BYTES 4096U

/* Number of virtqueues of the cluster function; `num_vqs` on QEMU's command line. */
#define NICLAB_QUEUES 5U

/* Maximum number of descriptors of each virtqueue; `vq_size` on QEMU's command line. */
#define NICLAB_QUEUE_SIZE 256U

/* Queue of requests and replies, [`control`]. The device interrupts for each reply. */
#define NICLAB_QUEUE_CONTROL 0U

/* Queue of buffers for events; the device fills each with one [`event::Event`]. It interrupts for each event. */
#define NICLAB_QUEUE_EVENT 1U

/*
 * Transmit descriptor queue of models that send by descriptor. Other models leave it idle. The device interrupts for
 * returned chains.
 */
#define NICLAB_QUEUE_TRANSMIT 2U

/*
 * Receive descriptor queue of models that receive by descriptor. Other models leave it idle. The device interrupts for
 * returned chains.
 */
#define NICLAB_QUEUE_RECEIVE 3U

/*
 * Doorbell queue, which never has a descriptor and never interrupts. Its notify register has a page of its own, which
 * drivers map into user programs. It is the doorbell of all requester and completer pages.
 */
#define NICLAB_QUEUE_DOORBELL 4U

/*
 * The virtio configuration space of the cluster function, which a driver reads first.
 */

/* Bytes of configuration space; `config_size` on QEMU's command line. QEMU aborts above 256. */
#define NICLAB_CONFIG_BYTES 256U

/* Bytes of a model's name, padded with zeros. */
#define NICLAB_NAME_BYTES 16U

/* Each port has a receive queue of slices. It authorizes its senders, and has a route to its receiver. */
#define NICLAB_FEATURE_SLICES 1U

/*
 * Lists of posted receives: slots carry commands, and a queue of events reports their results
 * ([`crate::matching::AppendCommand`]).
 */
#define NICLAB_FEATURE_LISTS 2U

/* Programs register host memory as regions ([`crate::region`]). */
#define NICLAB_FEATURE_REGIONS 4U

/* A driver can load firmware ([`crate::firmware`]). */
#define NICLAB_FEATURE_FIRMWARE 8U

/* List entries beyond the card's memory are in host memory ([`crate::matching::OP_SPILL_OPEN`]). */
#define NICLAB_FEATURE_SPILL 16U

/*
 * Programs run in lockstep ([`crate::bar::CompleterPage::turn`]). Any model has this feature if the device is
 * configured so.
 */
#define NICLAB_FEATURE_TURNS 32U

/*
 * Messages from registered memory to any node, from the card's one port, into memory posted there
 * ([`crate::inic::POST_SEND`]).
 */
#define NICLAB_FEATURE_POSTS 64U

/* Firmware reload while the card runs; an event reports its end ([`crate::firmware::OP_FIRMWARE_LOAD`]). */
#define NICLAB_FEATURE_HAND_OVER 128U

/*
 * Barriers, multicasts and reductions in groups of nodes, which the cards carry out without the hosts
 * ([`crate::inic::PostGroup`]). Requires [`FEATURE_POSTS`].
 */
#define NICLAB_FEATURE_COLLECTIVES 256U

/*
 * Active messages on logical channels, which programs push into the card, from each port to any
 * ([`crate::grim::CHANNEL_SHORT`]).
 */
#define NICLAB_FEATURE_CHANNELS 512U

/*
 * Frames by descriptor rings in host memory ([`crate::rings`]). The card has no ports of its own: the driver
 * implements them.
 */
#define NICLAB_FEATURE_RINGS 1024U

/*
 * Configuration space, read-only for the guest. Bytes after the structure are zero. Magic word and version have
 * the same position in every version.
 */
struct niclab_device_config {

	/* [`crate::MAGIC`]; any other value is another device with the same virtio identity. */
	__u64 magic;

	/* [`crate::ABI_VERSION`]. */
	__u32 abi_version;

	/* This node's number, from 0. It is the node part of an address on the cluster network. */
	__u32 node;

	/* Name of the NIC model for people, first byte lowest. `features` says what the card can do. */
	__u64 name_first;

	/* The other half of the name. */
	__u64 name_rest;

	/* `FEATURE_` bits. A driver ignores bits that it does not know. */
	__u64 features;

	/* Number of nodes of the cluster. */
	__u32 nodes;

	/* Maximum number of open ports. */
	__u32 ports;

	/* Maximum number of slices or events of one port's receive queue. */
	__u32 max_slices;

	/* Authorization entries of one port; zero if senders need none. */
	__u32 authorizations;

	/*
	 * Pages of the BAR: the information page, then the windows in its table, then unused pages; at most
	 * [`crate::bar::MAX_BAR_PAGES`].
	 */
	__u32 bar_pages;

	/*
	 * Longest time that a control request may take, in milliseconds of wall time. After a longer wait a driver
	 * treats the device as dead.
	 */
	__u32 control_timeout_ms;

	/* [`FEATURE_LISTS`]: number of entries that fit into device memory. Otherwise zero. */
	__u32 list_entries;

	/* The length of a message is a multiple of this number of bytes. */
	__u32 message_unit_bytes;

	/* Maximum length of a message in bytes. */
	__u64 max_message_bytes;

	/* Ethernet address of the card, first byte lowest; the upper two bytes are zero. */
	__u64 mac;

	/* [`FEATURE_CHANNELS`]: bytes of each channel's payload region that the card offers. Otherwise zero. */
	__u32 channel_payload_bytes;

	/*
	 * [`FEATURE_CHANNELS`]: length of the first segment of a message in bytes; each further segment doubles. Zero:
	 * programs push complete messages.
	 */
	__u32 channel_segment_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_device_config, 96);

/*
 * The BAR: shared-memory region [`REGION`] of the cluster function.
 *
 * Page 0 is the information page. All other pages belong to windows, which the card's model declares. The information
 * page has a table of them ([`Window`]). Most windows belong to ports: each port has its own part of such a window.
 * The kernel driver maps the part only to the port's owner, so the device identifies the sender by the address of a
 * store. A window of the card is the same for all ports. Two windows are common to all models: the port's requester
 * page ([`WINDOW_REQUESTER`]), from which it sends, and its completer page ([`WINDOW_COMPLETER`]), where it reports
 * what it has received.
 *
 * The requester page is that of Fröning, Litz and Brüning (2007). Their section 3.3 encodes length and flags in the
 * twelve address bits of the store. This BAR is memory, where a device cannot see the address of a store. So the page
 * is a ring of [`SLOTS`] slots, and the twelve bits are in the slot's launch word, which the program stores last.
 */

/* Shared-memory region (virtio `shmid`) of the BAR. */
#define NICLAB_REGION 0U

/*
 * Page 0, read-only for user programs. The device writes [`InfoPage::magic`] last, and a driver waits for it with
 * a time limit: the device maps the region shortly after the driver's start.
 */
struct niclab_info_page {

	/* [`crate::MAGIC`] when all other fields are valid, zero before. */
	__u64 magic;

	/* [`crate::ABI_VERSION`]. */
	__u32 abi_version;

	/* Number of pages of the BAR, including this one. */
	__u32 pages;

	/* Number of ports. */
	__u32 ports;

	/* Number of slots of a requester page: [`SLOTS`]. */
	__u32 slots;

	/* Number of windows: rows of the table at [`INFO_WINDOWS_OFFSET`]. */
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
	 * [`DOORBELL_SPARED`] while the device polls the pages. Otherwise the number of its sleep: a post or a
	 * register store must be followed by a doorbell, unless the driver has rung for this number already. Numbers
	 * begin at 1 and never repeat. The word has a cache line of its own.
	 *
	 * A sender stores, executes a full memory barrier, and only then reads this word. The device writes it,
	 * executes a full barrier, and checks the pages once more before it sleeps. (Virtio's event index, Virtio 1.3,
	 * section 2.7.10, is a position in one queue. One doorbell serves the pages of all ports, so this is a number
	 * of the device.)
	 */
	__u64 doorbell;
};
NICLAB_ASSERT_SIZE(struct niclab_info_page, 72);

/* Byte offset of [`InfoPage::doorbell`]. */
#define NICLAB_INFO_DOORBELL_OFFSET 64U

/* The device polls: no doorbell is needed. */
#define NICLAB_DOORBELL_SPARED 0U

/*
 * A row of the table of windows. Page `n` of port `p`'s part is page `first_page + stride * p + n` of the BAR.
 * From the first port's part to the end of the last one's, no other window has a page. All kinds differ.
 */
struct niclab_window {

	/*
	 * The purpose: [`WINDOW_REQUESTER`], [`WINDOW_COMPLETER`], or a number of the model, from [`WINDOW_OF_MODEL`]
	 * on.
	 */
	__u32 kind;

	/* The required caching, a `CACHING_` constant. */
	__u32 caching;

	/* The access that programs have, an `ACCESS_` constant. */
	__u32 access;

	/* First page in the BAR; never page 0. */
	__u32 first_page;

	/* Number of pages of each port's part, or of the whole window if it belongs to the card; at least one. */
	__u32 pages;

	/*
	 * Distance in pages from one port's part to the next one's, at least `pages`. Zero: the window has one part,
	 * which belongs to the card, for any open port.
	 */
	__u32 stride;
};
NICLAB_ASSERT_SIZE(struct niclab_window, 24);

/* Byte offset of the table of windows in the information page. The table has cache lines of its own. */
#define NICLAB_INFO_WINDOWS_OFFSET 128U

/* Maximum number of windows of a BAR. */
#define NICLAB_MAX_WINDOWS 8U

/* Maximum number of pages of a BAR: 16 MiB, half of the room that a virtual PCI slot reserves for a hot-plugged card. */
#define NICLAB_MAX_BAR_PAGES 4096U

/* [`Window::kind`]: the port's requester page. Each port has one page. */
#define NICLAB_WINDOW_REQUESTER 1U

/* [`Window::kind`]: the port's completer page, [`CompleterPage`]. Each port has one page. */
#define NICLAB_WINDOW_COMPLETER 2U

/* [`Window::kind`]: first number that the model defines. */
#define NICLAB_WINDOW_OF_MODEL 16U

/* [`Window::caching`]: uncached. Every store leaves separately, and every load comes from the device. */
#define NICLAB_CACHING_UNCACHED 1U

/* [`Window::caching`]: write-combining. Stores may be merged, and leave in any order up to the next fence. */
#define NICLAB_CACHING_WRITE_COMBINING 2U

/* [`Window::caching`]: write-back, like ordinary memory. */
#define NICLAB_CACHING_WRITE_BACK 3U

/* [`Window::access`]: programs read, the device writes. */
#define NICLAB_ACCESS_READ_ONLY 1U

/* [`Window::access`]: programs read and write. */
#define NICLAB_ACCESS_READ_WRITE 2U

/* Number of slots of a requester page. */
#define NICLAB_SLOTS 32U

/* Bytes of a slot. */
#define NICLAB_SLOT_BYTES 128U

/* Number of 64-bit words of a slot. */
#define NICLAB_SLOT_WORDS 16U

/* Maximum number of payload words of a packet: one cache line (section 3.3). */
#define NICLAB_PAYLOAD_WORDS 8U

/* Number of tag words, which every packet has (section 4). */
#define NICLAB_TAG_WORDS 2U

/*
 * First tag word of the slot. The payload ends before it: `n` payload words are the words `8 - n .. 8`. So payload and
 * tag are one burst of consecutive addresses that always ends at the same word.
 */
#define NICLAB_SLOT_TAG_WORD 8U

/*
 * Word of the slot with the number of slices that the program had consumed when it posted: [`RECEIVED_KNOWN`], and the
 * low half of the number in bits 0..32. Zero: unknown.
 *
 * No hardware needs this word. A device outside the guest polls the pages later than the post. From this word it
 * learns whether it processes the post in its right order among the port's other events. That makes the model time of
 * a live run exact (docs/use/LEDGER.md).
 */
#define NICLAB_SLOT_RECEIVED_WORD 14U

/* Bit of [`SLOT_RECEIVED_WORD`]: the number is known. */
#define NICLAB_RECEIVED_KNOWN 0x8000000000000000ULL

/* Launch word of the slot: the program stores it last, with release ordering, and so posts the slot. */
#define NICLAB_SLOT_LAUNCH_WORD 15U

/* Lowest bit of the sequence number in a launch word. */
#define NICLAB_LAUNCH_SEQUENCE_SHIFT 32U

/*
 * Page-offset code: lowest bit of the length field (bits 3..7). The field has the first word of the burst in the slot,
 * `8 - payload words`: 8 for a packet of the tag alone, and 0 for a whole cache line. 9..16 are invalid.
 *
 * The paper says that the field counts up during the burst, so that zero means seven and the reverse. With one to
 * eight words encoded as 0..=7, that is exactly the lower three bits of this field. The carry into its fourth bit is
 * the step from the payload to the "additional tag".
 */
#define NICLAB_CODE_LENGTH_SHIFT 3U

/* Page-offset code: the requester writes the status line when the packet has left it (local completion). */
#define NICLAB_CODE_NOTIFY 128U

/* Page-offset code: the receiving NIC interrupts its host when the slice is stored. */
#define NICLAB_CODE_INTERRUPT 256U

/*
 * Page-offset code: the receiving NIC returns an acknowledgement when the slice is stored, and the sender's status
 * line counts it.
 */
#define NICLAB_CODE_ACKNOWLEDGE 512U

/* Bits of the code that must be zero: alignment (0..3) and the two unused ones of the five upper bits (10, 11). */
#define NICLAB_CODE_RESERVED 3079U

/*
 * Registers of a completer page, and the words for lockstep grants. The owner of the port stores to them (posted
 * writes), and rings a doorbell if [`InfoPage::doorbell`] wants one. The rest of the page is unused.
 *
 * In lockstep a live run has the simulator's model time ([`crate::config::FEATURE_TURNS`]). No hardware has
 * grants, and they have no price. A program uses them on the first port that it opens.
 */
struct niclab_completer_page {

	/*
	 * Number of slices that the program has consumed since the port was opened. It frees them for new packets. A
	 * program stores it once for every quarter of the queue, not for every message. A value that decreases, or
	 * exceeds the number of stored slices, is a violation and is ignored.
	 */
	__u64 released;

	/*
	 * Number of a slice (the first is 1). The device raises one interrupt when that slice is stored, or at once if
	 * it is stored already. Zero: no interrupt. Each interrupt needs a new store.
	 */
	__u64 armed;

	/*
	 * Number of slices that the program consumes between two stores of [`CompleterPage::released`], if it keeps to
	 * an interval; zero: unknown. The program stores it before it authorizes a sender whose credits need it, and
	 * without a price. From it the device knows when each release is due in model time, even if it polls the
	 * register late.
	 */
	__u64 release_interval;

	/*
	 * Stored by the device: number of grants to the program. [`TURN_OVER`] is set while the program may run
	 * freely.
	 */
	__u64 turn;

	/* Stored by the device before [`CompleterPage::turn`]: model time of the grant, in picoseconds. */
	__u64 turn_time_ps;

	/*
	 * Stored by the program: the result of its last grant, a `REPORT_` constant in bits 0..2, and the number of
	 * that grant above.
	 */
	__u64 report;

	/*
	 * Stored by the program before [`CompleterPage::report`]: model time, in picoseconds, until which an idle
	 * program needs no grant unless a message arrives; zero: it needs none until a message arrives.
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

/* [`CompleterPage::turn`]: no frame is in flight, no program has work, and none waits for a grant. */
#define NICLAB_TURN_OVER 0x8000000000000000ULL

/*
 * [`CompleterPage::report`]: the program begins, and waits for its first grant. The programs of all nodes begin
 * together.
 */
#define NICLAB_REPORT_READY 1U

/* [`CompleterPage::report`]: the program did one operation, and needs another grant. */
#define NICLAB_REPORT_ACTED 2U

/* [`CompleterPage::report`]: the program had nothing to do. */
#define NICLAB_REPORT_IDLE 3U

/* Number of bits of a `REPORT_` constant. */
#define NICLAB_REPORT_BITS 2U

/*
 * Host memory that the device writes: the slices of a port's receive queue, and its status line.
 */

/* Number of 64-bit words of a slice: payload, tag, status (Fröning, Litz, Brüning 2007, section 3.4 and figure 5). */
#define NICLAB_SLICE_WORDS 11U

/* Bytes of a slice. */
#define NICLAB_SLICE_BYTES 88U

/* Status word of the slice, which the device writes last. The payload and the tag end before it. */
#define NICLAB_SLICE_STATUS_WORD 10U

/* First tag word of the slice; `n` payload words are the words `8 - n .. 8`. */
#define NICLAB_SLICE_TAG_WORD 8U

/* Minimum number of slices of a receive queue. The number is a power of two. */
#define NICLAB_MIN_SLICES 8U

/* Maximum number of slices of a receive queue. */
#define NICLAB_MAX_SLICES 4096U

/* Slice status: number of payload words, bits 0..4. */
#define NICLAB_SLICE_WORDS_MASK 15U

/* Slice status: the sender requested an interrupt. */
#define NICLAB_SLICE_INTERRUPT 16U

/* Slice status: the sender requested an acknowledgement. */
#define NICLAB_SLICE_ACKNOWLEDGE 32U

/* Slice status: set in every slice that the device has written. */
#define NICLAB_SLICE_VALID 128U

/* Slice status: lowest of the eight bits of the sender's port. */
#define NICLAB_SLICE_PORT_SHIFT 8U

/* Slice status: lowest of the sixteen bits of the sender's node. */
#define NICLAB_SLICE_NODE_SHIFT 16U

/*
 * Slice status: lowest of the 32 bits of the slice's number: 1 for the first since the port was opened, wrapping.
 *
 * The paper has a valid bit that the host must clear. With the number no clearing is necessary: a slice is new exactly
 * if it has the number that the reader expects.
 */
#define NICLAB_SLICE_NUMBER_SHIFT 32U

/*
 * Number of posts after which the device writes the status line without a request: a quarter of the requester page. So
 * a sender that fills the page always learns of free slots.
 */
#define NICLAB_STATUS_LINE_INTERVAL 8U

/*
 * A port's status line, which the device writes as one burst: every [`STATUS_LINE_INTERVAL`] posts, after a post
 * with [`crate::bar::CODE_NOTIFY`], on an acknowledgement and on a violation. No word ever decreases.
 */
struct niclab_status_line {

	/*
	 * Number of slots that the device has taken since the port was opened. `launched + SLOTS` is the highest
	 * number that the program may post.
	 */
	__u64 launched;

	/* Number of posts with the notification flag that have left the requester. */
	__u64 notified;

	/* Number of acknowledgements that have returned. */
	__u64 acknowledged;

	/* Number of packets that have left for the network. */
	__u64 sent;

	/*
	 * The reason for the last refused post or register store, a `REFUSED_` constant; zero if none was refused. The
	 * device stores the words in ascending order. So a reader that loads `refused` first, and then this word, has
	 * the reason of that refusal or of a later one.
	 */
	__u64 refusal;

	/* Number of posts refused for a bad code or a missing route, and of register stores refused. */
	__u64 refused;

	/* Zero. */
	__u64 reserved0;

	/* Zero. */
	__u64 reserved1;
};
NICLAB_ASSERT_SIZE(struct niclab_status_line, 64);

/* [`StatusLine::refusal`]: reserved bits of the launch word are not zero. */
#define NICLAB_REFUSED_RESERVED_BITS 1U

/* [`StatusLine::refusal`]: the length field is 9..16. */
#define NICLAB_REFUSED_LENGTH 2U

/* [`StatusLine::refusal`]: the port has no route. */
#define NICLAB_REFUSED_NO_ROUTE 3U

/* [`StatusLine::refusal`]: [`crate::bar::CompleterPage::released`] decreased, or exceeds the number of stored slices. */
#define NICLAB_REFUSED_RELEASE 4U

/* [`StatusLine::refusal`]: the command was refused; its event has the reason. */
#define NICLAB_REFUSED_COMMAND 5U

/* [`StatusLine::refusal`]: the command is unknown, or a reserved field of it is not zero. */
#define NICLAB_REFUSED_HEADER 6U

/* [`StatusLine::refusal`]: the target node, or the endpoint on it, does not exist. */
#define NICLAB_REFUSED_TARGET 7U

/* [`StatusLine::refusal`]: the payload is empty, too long, or outside the payload region. */
#define NICLAB_REFUSED_PAYLOAD 8U

/*
 * [`StatusLine::refusal`]: a segment goes backwards, exceeds its message, or belongs to no message. Or a message was
 * posted before the previous one was pushed completely. Or the card gave a message up, because nothing more was pushed
 * for too long.
 */
#define NICLAB_REFUSED_SEGMENT 9U

/* [`StatusLine::refusal`]: no program has opened the target endpoint. */
#define NICLAB_REFUSED_CLOSED 10U

/* [`StatusLine::refusal`]: the target endpoint has no payload region, or one smaller than the payload. */
#define NICLAB_REFUSED_NO_PAYLOAD 11U

/* [`StatusLine::refusal`]: the target endpoint has not exposed the memory that a message addressed. */
#define NICLAB_REFUSED_MEMORY 12U

/*
 * Requests on the control queue.
 *
 * A request is one descriptor chain. The driver's part has a [`Request`] header and the operation's body. The device's
 * part follows, with a [`Reply`] header and the reply's body. The device refuses a body whose length is not the
 * operation's. It completes every chain that it takes, with a status. It completes and counts a chain without room for
 * a [`Reply`], with no bytes written.
 */

/* Head of a request. */
struct niclab_request {

	/* One of the `OP_` constants. */
	__u32 operation;

	/* Length of the body in bytes. */
	__u32 body_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_request, 8);

/* Head of a reply. */
struct niclab_reply {

	/* [`STATUS_OK`], or the reason of the refusal, a `STATUS_` constant. */
	__u32 status;

	/* Length of the body in bytes; zero unless the status is [`STATUS_OK`]. */
	__u32 body_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_reply, 8);

/* Has no effect, and tests whether the device replies. No bodies. */
#define NICLAB_OP_PING 1U

/* Opens a port: [`PortOpen`]. The reply is [`PortOpened`]. */
#define NICLAB_OP_PORT_OPEN 2U

/*
 * Closes a port: [`PortName`]. The device discards and counts packets that are not sent yet, and does not write into
 * the port's memory after the reply. The driver then zeroes the port's pages of the BAR, as it zeroes all pages at its
 * start. So the pages of a closed port have no post.
 */
#define NICLAB_OP_PORT_CLOSE 3U

/* Sets the destination of a port: [`Route`]. Fills the port's entry of the descriptor look-up table. */
#define NICLAB_OP_ROUTE 4U

/* Allows a remote port to send to this one: [`Authorize`]. Adds an entry to the port authorization table. */
#define NICLAB_OP_AUTHORIZE 5U

/* Revokes this right: [`Revoke`]. */
#define NICLAB_OP_REVOKE 6U

/*
 * Reads the device's named counters, for example for `ethtool -S`: [`CountersFrom`]. The reply is [`CountersHead`] and
 * [`COUNTERS_PER_REPLY`] times [`Counter`].
 */
#define NICLAB_OP_COUNTERS 7U

/* Closes every port; a driver sends it before it unloads. No bodies. */
#define NICLAB_OP_RESET 8U

/* Done. */
#define NICLAB_STATUS_OK 0U

/* The model does not have this operation. */
#define NICLAB_STATUS_BAD_OPERATION 1U

/* The request is shorter than its header or body, or has no room for the reply. */
#define NICLAB_STATUS_BAD_LENGTH 2U

/* The port does not exist or is not open. */
#define NICLAB_STATUS_BAD_PORT 3U

/* The port is already open; with [`PORT_ANY`], all ports are. */
#define NICLAB_STATUS_PORT_BUSY 4U

/* The memory is not aligned, or not completely memory of this guest. */
#define NICLAB_STATUS_BAD_ADDRESS 5U

/* A value is out of range. */
#define NICLAB_STATUS_BAD_VALUE 6U

/* The table is full: authorizations, FIFO memory, or credits beyond the receive queue. */
#define NICLAB_STATUS_NO_SPACE 7U

/* The entry does not exist. */
#define NICLAB_STATUS_NOT_FOUND 8U

/* Number of counters in one reply to [`OP_COUNTERS`]. */
#define NICLAB_COUNTERS_PER_REPLY 16U

/* Maximum number of counters of a device. */
#define NICLAB_MAX_COUNTERS 128U

/* Bytes of a counter's name, including the terminating zero. */
#define NICLAB_COUNTER_NAME_BYTES 32U

/* [`PortOpen::port`]: any free port. */
#define NICLAB_PORT_ANY 0xffffffffU

/* Body of [`OP_PORT_OPEN`]. */
struct niclab_port_open {

	/* The port to open, or [`PORT_ANY`]. */
	__u32 port;

	/*
	 * Number of slices of the receive queue: a power of two in [`crate::receive::MIN_SLICES`]..=
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

	/* Share of the requester's FIFO memory in 64-bit words, or zero for an equal share. */
	__u32 fifo_words;

	/* [`PORT_BATCHES`], or zero. */
	__u32 flags;
};
NICLAB_ASSERT_SIZE(struct niclab_port_open, 32);

/*
 * [`PortOpen::flags`]: the driver may ring one doorbell for several posts. Only the check of the rules uses this: of
 * other ports it expects a doorbell after each post.
 */
#define NICLAB_PORT_BATCHES 1U

/* Reply to [`OP_PORT_OPEN`]. */
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

/* Body of [`OP_AUTHORIZE`]. A second request for the same remote port changes only the credits. */
struct niclab_authorize {

	/* The receiving port, on this node. */
	__u32 port;

	/* The node that may send. */
	__u32 node;

	/* Its port that may send. */
	__u32 node_port;

	/*
	 * Slices of the receive queue that are reserved for this sender. Their sum over all senders is at most the
	 * port's slices, so an authorized sender never overruns the queue.
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

	/* Number of the first counter to read, from 0. Numbers and names of a device's counters do not change. */
	__u32 first;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_counters_from, 8);

/* Head of the reply to [`OP_COUNTERS`]; [`COUNTERS_PER_REPLY`] times [`Counter`] follow. */
struct niclab_counters_head {

	/* Number of counters of the device, at most [`MAX_COUNTERS`]. */
	__u32 total;

	/* Number of valid counters in this reply; the others are zero. */
	__u32 count;
};
NICLAB_ASSERT_SIZE(struct niclab_counters_head, 8);

/* A counter. It counts since the device was created, and no driver resets it. */
struct niclab_counter {

	/*
	 * Name, first byte lowest, padded with zeros, and always with a zero as the last byte: lower-case letters,
	 * digits and underscores. No two counters of a device have the same name.
	 */
	__u64 name_0;

	/* The next eight bytes of the name. */
	__u64 name_1;

	/* The next eight bytes of the name. */
	__u64 name_2;

	/* The last eight bytes of the name. */
	__u64 name_3;

	/* The count. */
	__u64 value;
};
NICLAB_ASSERT_SIZE(struct niclab_counter, 40);

/*
 * Events: one buffer of the event queue for one cause of an interrupt.
 *
 * The card has one interrupt line, so the cause is in memory. The device fills one buffer for each interrupt that it
 * raises. If the driver has left no buffer, the device merges causes of the same kind and port, and delivers them when
 * there is a buffer. No cause is lost.
 */

/* A buffer of [`crate::QUEUE_EVENT`]; it may be longer. */
struct niclab_event {

	/* One of the `CAUSE_` constants. */
	__u32 cause;

	/* The port of the cause. */
	__u32 port;

	/* Number of causes that this event reports: 1, or more if the device merged events. */
	__u64 count;
};
NICLAB_ASSERT_SIZE(struct niclab_event, 16);

/* A packet with the interrupt flag was stored ([`crate::bar::CODE_INTERRUPT`]). */
#define NICLAB_CAUSE_MESSAGE 1U

/* The slice that [`crate::bar::CompleterPage::armed`] names was stored. */
#define NICLAB_CAUSE_ARMED 2U

/*
 * The card discarded a packet from an unauthorized sender, and is configured to raise this cause (Fröning et al.,
 * section 3.2: "a system interrupt is thrown").
 */
#define NICLAB_CAUSE_UNAUTHORIZED 3U

/* The firmware misbehaved, and the device has replaced it with its built-in program. The event names no port. */
#define NICLAB_CAUSE_FIRMWARE 4U

/* The firmware that was loaded runs from now on ([`crate::config::FEATURE_HAND_OVER`]). The event names no port. */
#define NICLAB_CAUSE_HANDED_OVER 5U

/* Frames were received ([`crate::config::FEATURE_RINGS`]). The event names no port: the driver polls its ring. */
#define NICLAB_CAUSE_FRAMES 6U

/*
 * The link of a card with MAC endpoints changed: `port` is 1 if it was cut, and 0 if it was restored. Only the latest
 * change waits for a buffer. If the link is cut when a driver adds its first buffers, the device reports that at once.
 */
#define NICLAB_CAUSE_LINK 7U

/*
 * Regions of host memory ([`crate::config::FEATURE_REGIONS`]).
 *
 * A program registers them, so that the card may read and write them.
 */

/* Registers a region of host memory for a port: [`RegionOpen`] and its extents. The reply is [`RegionOpened`]. */
#define NICLAB_OP_REGION_OPEN 9U

/* Adds extents to an incomplete region: [`RegionName`] with their number, and the extents. The reply has no body. */
#define NICLAB_OP_REGION_EXTEND 10U

/*
 * Closes a region: [`RegionName`] without extents. The device unlinks the region's entries without events, and does
 * not access the memory after the reply.
 */
#define NICLAB_OP_REGION_CLOSE 11U

/* Maximum number of extents in one request. */
#define NICLAB_MAX_EXTENTS 128U

/* A contiguous part of a region in host memory. */
struct niclab_extent {

	/* Guest-physical address. */
	__u64 address;

	/* Length in bytes. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_extent, 16);

/* Body of [`OP_REGION_OPEN`]; `extents` [`Extent`]s follow. */
struct niclab_region_open {

	/* The port. */
	__u32 port;

	/* Number of extents in this request, 1..=[`MAX_EXTENTS`]. */
	__u32 extents;

	/* Length of the region in bytes. No command may use the region until its extents add up to this length. */
	__u64 bytes;

	/* Zero. */
	__u64 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_region_open, 24);

/* Reply to [`OP_REGION_OPEN`]. */
struct niclab_region_opened {

	/*
	 * The region's name. Its lower 16 bits are a number. Its upper 16 bits differ from those of earlier regions
	 * with this number.
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

	/* Number of extents in this request. */
	__u32 extents;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_region_name, 16);

/*
 * Lists of posted receives ([`crate::config::FEATURE_LISTS`]).
 *
 * Commands are in the requester page, events in the receive queue, and counters after the status line.
 *
 * Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
 * ([`crate::bar`], [`crate::receive`]). A slot has a command in place of a packet, and a slice has an event in place
 * of a message. The status word, which the device writes last, has the number of the event in the same bits as that of
 * a slice. Programs poll it in the same way.
 *
 * The semantics are those of Portals 3.0. A port has [`PORTALS`] portal table entries, each with a list of posted
 * match entries and an overflow list after it. Here a match entry and its memory descriptor are one object.
 */

/* Number of portal table entries of each port. */
#define NICLAB_PORTALS 8U

/* Number of counters of each port. */
#define NICLAB_COUNTERS 32U

/*
 * Maximum number of match entries of a device, in all lists of all ports and in any memory (Portals 4:
 * `ptl_ni_limits_t.max_entries`).
 */
#define NICLAB_MAX_ENTRIES 8192U

/*
 * Maximum number of match entries of a portal, posted and overflow together (Portals 4:
 * `ptl_ni_limits_t.max_list_size`).
 */
#define NICLAB_MAX_LIST_SIZE 4096U

/* Launch word, bits 0..8: the command, a `COMMAND_` constant. Bits 8..32 are its flags. */
#define NICLAB_COMMAND_MASK 255U

/*
 * Command, a [`TransferCommand`]: sends part of a region to a portal of another port. The words of the slot after a
 * command's layout are zero.
 */
#define NICLAB_COMMAND_PUT 1U

/* Command, a [`TransferCommand`]: reads from a portal of another port into part of a region. */
#define NICLAB_COMMAND_GET 2U

/*
 * Command, an [`AppendCommand`]: appends a match entry to a list of this port. Its handle is the post's sequence
 * number. The device first searches the unexpected messages of the portal, oldest first. The entry takes those that it
 * matches at once ([`EVENT_PUT_OVERFLOW`]). Then the device links the entry.
 */
#define NICLAB_COMMAND_APPEND 3U

/*
 * Command, an [`UnlinkCommand`]: unlinks a match entry. The device answers with [`EVENT_UNLINKED`]. The entry still
 * takes the rest of messages that it has begun to take.
 */
#define NICLAB_COMMAND_UNLINK 4U

/*
 * Command, an [`ArmCounterCommand`]: raises one interrupt when a counter has this number of successes, or at once if
 * it has them already.
 */
#define NICLAB_COMMAND_ARM_COUNTER 5U

/* The words of [`COMMAND_PUT`] and [`COMMAND_GET`]. */
struct niclab_transfer_command {

	/* Match bits. */
	__u64 match_bits;

	/* Header data, passed to the receiver with the event. */
	__u64 header_data;

	/* User value, returned with every event of this command. */
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

	/* Length in bytes. If it is zero, the card ignores region and offset. */
	__u64 bytes;

	/* Remote offset, for entries with [`ENTRY_REMOTE_OFFSET`]. */
	__u64 remote_offset;

	/*
	 * Counter plus one, or zero. The counter counts whenever [`EVENT_SENT`], [`EVENT_ACK`] or [`EVENT_REPLY`]
	 * would be due.
	 */
	__u64 counter;
};
NICLAB_ASSERT_SIZE(struct niclab_transfer_command, 64);

/* The words of [`COMMAND_APPEND`]. */
struct niclab_append_command {

	/* Match bits. */
	__u64 match_bits;

	/* Ignore bits: match bits that the card does not compare. */
	__u64 ignore_bits;

	/* User value, returned with every event of this entry. */
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

	/* Length in bytes. */
	__u64 bytes;

	/* Threshold: number of operations after which the card unlinks the entry, 1.., or [`THRESHOLD_INFINITE`]. */
	__u64 threshold;

	/* Counter plus one, or zero. The counter counts the entry's operations. */
	__u64 counter;

	/*
	 * With [`ENTRY_MAX_SIZE`]: the card unlinks the entry when fewer bytes than this are left. With
	 * [`ENTRY_TRUNCATE`] as well, the value has no effect. Otherwise zero.
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

	/* Number of successes; zero disarms. */
	__u64 threshold;
};
NICLAB_ASSERT_SIZE(struct niclab_arm_counter_command, 16);

/* Flag of [`COMMAND_PUT`]: the receiving NIC interrupts its host when the event is stored. */
#define NICLAB_COMMAND_INTERRUPT 256U

/* Flag of [`COMMAND_PUT`]: [`EVENT_ACK`] reports the result at the receiver. */
#define NICLAB_COMMAND_ACK 512U

/* Flag of [`COMMAND_PUT`]: [`EVENT_SENT`] reports when the memory may be used again. */
#define NICLAB_COMMAND_SENT 1024U

/*
 * Flag of [`COMMAND_PUT`], [`COMMAND_GET`] and [`COMMAND_APPEND`]: the card counts successes and reports no events of
 * them, except [`EVENT_UNLINKED`]. It always reports failures by events.
 */
#define NICLAB_COMMAND_COUNT_ONLY 2048U

/* Flag of [`COMMAND_APPEND`]: the entry accepts puts. */
#define NICLAB_ENTRY_PUT 0x10000U

/* Flag of [`COMMAND_APPEND`]: the entry accepts gets. */
#define NICLAB_ENTRY_GET 0x20000U

/*
 * Flag of [`COMMAND_APPEND`]: the initiator names the offset. Otherwise the entry has an offset of its own, which
 * advances.
 */
#define NICLAB_ENTRY_REMOTE_OFFSET 0x40000U

/*
 * Flag of [`COMMAND_APPEND`]: [`AppendCommand::max_size`] applies, unless longer messages are truncated
 * ([`ENTRY_TRUNCATE`]). It does not unlink an entry whose offset the initiator names. Such an entry does not match a
 * message at whose offset fewer bytes are left.
 */
#define NICLAB_ENTRY_MAX_SIZE 0x80000U

/* Flag of [`COMMAND_APPEND`]: the entry truncates a longer message; otherwise it does not match one. */
#define NICLAB_ENTRY_TRUNCATE 0x100000U

/* Flag of [`COMMAND_APPEND`]: appends to the overflow list. */
#define NICLAB_ENTRY_OVERFLOW 0x200000U

/* Flag of [`COMMAND_APPEND`]: no event if the entry is unlinked automatically. */
#define NICLAB_ENTRY_NO_UNLINK_EVENT 0x400000U

/* Source of [`COMMAND_APPEND`]: from any node. */
#define NICLAB_ANY_NODE 0xffffU

/* Source of [`COMMAND_APPEND`]: from any port. */
#define NICLAB_ANY_PORT 255U

/* Threshold of [`COMMAND_APPEND`]: no number of operations unlinks the entry. */
#define NICLAB_THRESHOLD_INFINITE 0xffffffffU

/* An event in a slice of the receive queue. The device stores the words in ascending order, the status last. */
struct niclab_list_event {

	/* User value of the entry, or of the command. */
	__u64 user;

	/* Match bits of the message. */
	__u64 match_bits;

	/* Header data of the put. */
	__u64 header_data;

	/* Number of bytes that the initiator requested. */
	__u64 requested_bytes;

	/* Number of bytes that were stored or sent. */
	__u64 moved_bytes;

	/* Offset of these bytes in the entry's memory, or in the command's. */
	__u64 offset;

	/*
	 * The initiator's node, bits 48..64, and port, 32..48; handle of the entry or of the command, 0..32.
	 * [`event_source`].
	 */
	__u64 source;

	/* [`EVENT_PUT_OVERFLOW`]: the handle of the overflow entry whose memory has the message. Otherwise zero. */
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

/* Kind: a put was stored by a posted entry. */
#define NICLAB_EVENT_PUT 1U

/* Kind: a put was stored by an overflow entry, because no posted entry matched. */
#define NICLAB_EVENT_PUT_UNEXPECTED 2U

/* Kind: an appended entry takes a message that arrived before it. The data is in the overflow entry's memory. */
#define NICLAB_EVENT_PUT_OVERFLOW 3U

/* Kind: a get has read from a posted entry. */
#define NICLAB_EVENT_GET 4U

/*
 * Kind: all data of a put has left the memory, and the other card has it. Also reports that a put has failed, if the
 * command requested no other event.
 */
#define NICLAB_EVENT_SENT 5U

/* Kind: a put was stored at the receiver, or was not. */
#define NICLAB_EVENT_ACK 6U

/* Kind: the data of a get was stored, or was not available. */
#define NICLAB_EVENT_REPLY 7U

/*
 * Kind: an entry is not linked any more, and its last operation is complete. Its memory is the program's. With result
 * [`RESULT_NOT_FOUND`], the entry was not linked when [`COMMAND_UNLINK`] arrived.
 */
#define NICLAB_EVENT_UNLINKED 8U

/* Kind: a command was refused, for the reason in the result. It had no effect. */
#define NICLAB_EVENT_REFUSED 9U

/* Result: success. */
#define NICLAB_RESULT_OK 0U

/* Result: success, but the message was truncated, because it is longer than the entry's room. */
#define NICLAB_RESULT_TRUNCATED 1U

/* Result: no entry matched at the target, neither posted nor overflow. */
#define NICLAB_RESULT_NO_MATCH 2U

/* Result: the target had no room for events or unexpected messages, or its port does not read. */
#define NICLAB_RESULT_NO_ROOM 3U

/* Result: the target port is not open, or the node or portal does not exist. */
#define NICLAB_RESULT_NO_TARGET 4U

/* Result: the region is closed, or does not belong to this port; or memory of it was removed during the operation. */
#define NICLAB_RESULT_BAD_REGION 5U

/* Result: offset and bytes exceed the region. */
#define NICLAB_RESULT_BAD_RANGE 6U

/* Result: reserved bits or words are not zero, or a value is out of range. */
#define NICLAB_RESULT_BAD_VALUE 7U

/* Result: the command is unknown. */
#define NICLAB_RESULT_BAD_COMMAND 8U

/* Result: the entry is not linked. */
#define NICLAB_RESULT_NOT_FOUND 9U

/*
 * Result: no room for another match entry. Device memory and spill area are full, the device has [`MAX_ENTRIES`], or
 * the portal has [`MAX_LIST_SIZE`].
 */
#define NICLAB_RESULT_LIST_FULL 10U

/*
 * A counter, in the page of the port's status line: counter `c` is at [`COUNTERS_OFFSET`]` + 16 c`. Neither word
 * ever decreases. The device writes both in one burst, `success` last.
 */
struct niclab_list_counter {

	/* Number of operations that failed. */
	__u64 failure;

	/* Number of operations that succeeded. */
	__u64 success;
};
NICLAB_ASSERT_SIZE(struct niclab_list_counter, 16);

/*
 * Byte offset of a port's counters from the status line. On such cards, the memory of the status line that a port
 * opens is a whole page.
 */
#define NICLAB_COUNTERS_OFFSET 1024U

/*
 * Gives the device host memory for match entries that do not fit into its own: [`SpillOpen`], once, by the driver. The
 * device forgets the memory at [`crate::control::OP_RESET`] or at its own reset. Then it is the driver's again.
 */
#define NICLAB_OP_SPILL_OPEN 13U

/* Body of [`OP_SPILL_OPEN`]. */
struct niclab_spill_open {

	/* Guest-physical address, aligned to 64 bytes. */
	__u64 address;

	/* Length in bytes: 64 for each match entry. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_spill_open, 16);

/*
 * Posts ([`crate::config::FEATURE_POSTS`]).
 *
 * Messages are sent from registered memory to nodes, and received into posted memory, in the order of arrival.
 *
 * Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
 * ([`crate::bar`], [`crate::receive`]). Memory is part of regions ([`crate::region`]). A slot has a command, and a
 * slice of the receive queue has an event, whose status word programs poll like that of a slice. A card has one port,
 * which sends to every node: the header on its network names nodes and no ports (Jaganathan, Underwood, Sass 2003).
 *
 * The device takes a command only if the receive queue has a slice for its event. Until then the post waits in the
 * page. A receive reserves its slice until its message has arrived, and a send until the card has its data.
 */

/* Launch word, bits 0..8: the command, [`POST_SEND`] to [`POST_REDUCE`]. Bits 8..32 are its flags. */
#define NICLAB_POST_MASK 255U

/*
 * Command, a [`SendCommand`]: sends part of a region to a node. The words of the slot after a command's layout are
 * zero.
 */
#define NICLAB_POST_SEND 1U

/*
 * Command, a [`ReceiveCommand`]: posts part of a region as room for one message from any node. Messages take room in
 * the order of posting, when their first packets arrive.
 */
#define NICLAB_POST_RECEIVE 2U

/* Command, a [`BarrierCommand`]: is done when every member of the group has posted it. */
#define NICLAB_POST_BARRIER 3U

/*
 * Command, a [`MulticastCommand`]: sends part of a region to every other member of a group, where it is an ordinary
 * message ([`POST_EVENT_RECEIVED`]). It is done when all members have it in their memory.
 */
#define NICLAB_POST_MULTICAST 4U

/*
 * Command, a [`ReduceCommand`]: every member names values in its memory. The operator combines the values of all
 * members, and the result replaces the values at every member.
 */
#define NICLAB_POST_REDUCE 5U

/*
 * Flag of [`POST_RECEIVE`]: raises one interrupt when the event of its message is stored. The network's header has no
 * bit for it, so the receiver requests the interrupt, and not the sender. Flag of [`POST_BARRIER`], [`POST_MULTICAST`]
 * and [`POST_REDUCE`]: raises one interrupt when [`POST_EVENT_DONE`] is stored.
 */
#define NICLAB_POST_INTERRUPT 256U

/*
 * Flag of [`POST_SEND`]: [`POST_EVENT_SENT`] reports when the card has the data, and the memory may be used again.
 * Messages to different nodes may be sent in another order than that of their posts.
 */
#define NICLAB_POST_TELL_SENT 512U

/* The length of a message is a multiple of this number of bytes, and not zero. */
#define NICLAB_POST_UNIT_BYTES 4U

/* The longest message of any card, in bytes. A card may have a lower limit. */
#define NICLAB_POST_MAX_MESSAGE_BYTES 0x40000000U

/* The words of [`POST_SEND`]. */
struct niclab_send_command {

	/* User value, returned with every event of this command. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* Target node. */
	__u16 node;

	/* Zero. */
	__u16 reserved;

	/* Offset in the region. */
	__u64 offset;

	/* Length of the message in bytes. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_send_command, 32);

/* The words of [`POST_RECEIVE`]. */
struct niclab_receive_command {

	/* User value, returned with the event of this command. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* Zero. */
	__u32 reserved;

	/* Offset in the region. */
	__u64 offset;

	/* Length of the room in bytes, with the same limits as for a message. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_receive_command, 32);

/* The words of [`POST_BARRIER`]. */
struct niclab_barrier_command {

	/* User value, returned with the event of this command. */
	__u64 user;

	/* The group. */
	__u32 group;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_barrier_command, 16);

/* The words of [`POST_MULTICAST`]. */
struct niclab_multicast_command {

	/* User value, returned with the event of this command. */
	__u64 user;

	/* Region of the memory. */
	__u32 region;

	/* The group. */
	__u32 group;

	/* Offset in the region. */
	__u64 offset;

	/* Length in bytes, as of a message, at most [`POST_MAX_COLLECTIVE_BYTES`]. */
	__u64 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_multicast_command, 32);

/* The words of [`POST_REDUCE`]. */
struct niclab_reduce_command {

	/* User value, returned with the event of this command. */
	__u64 user;

	/* Region of the values and of the result. */
	__u32 region;

	/* The group. */
	__u32 group;

	/* Offset in the region. */
	__u64 offset;

	/* Length of the values in bytes: one or more complete values, at most [`POST_MAX_COLLECTIVE_BYTES`]. */
	__u64 bytes;

	/* [`POST_SUM`], [`POST_MIN`] or [`POST_MAX`]. */
	__u32 operator;

	/* Type of the values: [`POST_SIGNED_32`] to [`POST_DOUBLE`]. */
	__u32 element;
};
NICLAB_ASSERT_SIZE(struct niclab_reduce_command, 40);

/* Maximum length of a multicast or a reduction in bytes. */
#define NICLAB_POST_MAX_COLLECTIVE_BYTES 0x10000U

/*
 * Operator: the sum. Integers wrap. Doubles are added in an order that depends only on the group, so every member has
 * the same bits. A sum that is not a number is the one of [`POST_MIN`].
 */
#define NICLAB_POST_SUM 1U

/*
 * Operator: the minimum. Of doubles, -0 is less than 0. If any value is not a number, the result is the quiet NaN
 * without sign and payload, `0x7ff8000000000000`.
 */
#define NICLAB_POST_MIN 2U

/* Operator: the maximum, with the rules of [`POST_MIN`]. */
#define NICLAB_POST_MAX 3U

/* Values: signed integers of 32 bits. */
#define NICLAB_POST_SIGNED_32 1U

/* Values: signed integers of 64 bits. */
#define NICLAB_POST_SIGNED_64 2U

/* Values: unsigned integers of 32 bits. */
#define NICLAB_POST_UNSIGNED_32 3U

/* Values: unsigned integers of 64 bits. */
#define NICLAB_POST_UNSIGNED_64 4U

/* Values: IEEE 754 binary64. */
#define NICLAB_POST_DOUBLE 5U

/* An event in a slice of the receive queue. The device stores the words in ascending order, the status last. */
struct niclab_post_event {

	/* User value of the command. */
	__u64 user;

	/* Length of the message in bytes; of a refused command, the requested length. */
	__u64 bytes;

	/* Number of bytes that were stored or sent. */
	__u64 moved_bytes;

	/*
	 * [`POST_EVENT_RECEIVED`]: the node that sent the message. [`POST_EVENT_DONE`]: the group. Otherwise: the node
	 * to which the message was sent.
	 */
	__u64 source;

	/*
	 * Number of the message between this node and the other one, as the card counts them, from 1. Zero if the card
	 * does not count, for multicasts, and for [`POST_EVENT_DONE`].
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

/* Kind: the card has all data of a message with [`POST_TELL_SENT`], or has given it up, and does not need the memory. */
#define NICLAB_POST_EVENT_SENT 1U

/* Kind: a message was stored in the memory that was posted for it. */
#define NICLAB_POST_EVENT_RECEIVED 2U

/* Kind: a command was refused, for the reason in the result. It had no effect. */
#define NICLAB_POST_EVENT_REFUSED 3U

/*
 * Kind: a message was not delivered, as far as the card knows, and the card has given up. The event waits until the
 * queue has a slice, because none is reserved for it.
 */
#define NICLAB_POST_EVENT_FAILED 4U

/* Kind: a barrier, a multicast or a reduction of this member has ended; the result says whether it succeeded. */
#define NICLAB_POST_EVENT_DONE 5U

/* Result: success. */
#define NICLAB_POST_OK 0U

/* Result: success, but the message was truncated, because it is longer than the room posted for it. */
#define NICLAB_POST_TRUNCATED 1U

/* Result: the region is closed, or does not belong to this port; or memory of it was removed during the operation. */
#define NICLAB_POST_BAD_REGION 2U

/* Result: offset and bytes exceed the region. */
#define NICLAB_POST_BAD_RANGE 3U

/* Result: reserved bits or words are not zero, or the length is invalid for a message or too long for the card. */
#define NICLAB_POST_BAD_VALUE 4U

/* Result: the command is unknown. */
#define NICLAB_POST_BAD_COMMAND 5U

/* Result: the node does not exist. */
#define NICLAB_POST_NO_TARGET 6U

/* Result: the other card has not acknowledged the message after all retransmissions. */
#define NICLAB_POST_UNREACHABLE 7U

/* Result: parts of the message did not arrive, and no card retransmits them. The memory has the parts that arrived. */
#define NICLAB_POST_INCOMPLETE 8U

/* Result: the card's firmware was reloaded before the message had arrived. */
#define NICLAB_POST_HANDED_OVER 9U

/* Result: this node has no such group. */
#define NICLAB_POST_NO_GROUP 10U

/* Result: the card's protocol loses messages. Collectives need a protocol that delivers. */
#define NICLAB_POST_NOT_RELIABLE 11U

/* Result: a member has dropped the group, or its program has ended. */
#define NICLAB_POST_LEFT 12U

/* Result: the members posted different operations, or made the group of different members. */
#define NICLAB_POST_UNALIKE 13U

/*
 * Changes when the card interrupts the host of a port, while the card runs: [`PostRules`]. Refused if the card's
 * protocol has no component for it.
 */
#define NICLAB_OP_POST_RULES 14U

/* Body of [`OP_POST_RULES`]. Zero disables a rule. */
struct niclab_post_rules {

	/* The port. */
	__u32 port;

	/* One: at the end of a message, the card interrupts the host for the bytes counted so far. */
	__u32 at_end;

	/* Interrupt after this number of received bytes. */
	__u64 rcv_chunk_size;

	/* Interrupt for each message of at least this number of bytes. */
	__u64 min_message_bytes;

	/* The rules apply to messages of this node; [`POST_ANY_SOURCE`]: of all nodes. */
	__u64 source;
};
NICLAB_ASSERT_SIZE(struct niclab_post_rules, 32);

/* [`PostRules::source`]: any node. */
#define NICLAB_POST_ANY_SOURCE 0xffffU

/*
 * Makes a group of nodes, or drops it: [`PostGroup`]. Refused with [`crate::control::STATUS_BAD_VALUE`] if the name is
 * in use or the members are invalid; with [`crate::control::STATUS_NO_SPACE`] beyond [`POST_GROUPS`]; with
 * [`crate::control::STATUS_BAD_OPERATION`] if the card's protocol loses messages; with
 * [`crate::control::STATUS_NOT_FOUND`] if the group to drop does not exist.
 */
#define NICLAB_OP_POST_GROUP 15U

/* Maximum number of groups of a card. */
#define NICLAB_POST_GROUPS 16U

/* Maximum number of members of a group. */
#define NICLAB_POST_MAX_MEMBERS 256U

/* Body of [`OP_POST_GROUP`]; `members` [`PostMember`]s follow. */
struct niclab_post_group {

	/* The port. */
	__u32 port;

	/* Name of the group: any number, the same at every member. */
	__u32 group;

	/*
	 * Number of members, at most [`POST_MAX_MEMBERS`]. This node is one of them, none occurs twice, and the order
	 * is the same at every member. Zero: the group is dropped.
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
 * Each port of the card is a logical channel, owned by the program that opened the port. The program *pushes* a
 * message. It stores the header into a slot of the requester page, the header ring of the channel's outbound queue. It
 * stores the payload into the queue's payload region, a window of its own ([`WINDOW_CHANNEL_PAYLOAD`]). The card reads
 * nothing from the program's memory.
 *
 * The program may push a long message in segments, so that the card sends its begin while the program still pushes its
 * end. The first post says how many bytes are in the region, and each [`CHANNEL_SEGMENT`] after it raises this number.
 * The program posts nothing between a header and its last segment.
 *
 * A received message is a slice of the receive queue ([`crate::receive`]). It has one payload word, the handler, and
 * the four integers as its tag. A message with payload has another word before these: its position in the endpoint's
 * payload region ([`payload_place`]). The program frees the payload's room with its slice.
 * [`crate::receive::SliceStatus`] names the sender's channel.
 *
 * A message stays in the outbound queue until the other card has acknowledged all of it.
 * [`crate::receive::StatusLine::sent`] counts the messages that have left the queue, in the order of their posts. So
 * the program knows which part of the payload region is free. The card writes a status line for each sent message with
 * payload, and for each with [`CHANNEL_NOTIFY`]. A message that another card finally refuses counts as sent and as
 * refused, with the reason. So does a header that the card itself refuses, in its order, except with
 * [`crate::receive::REFUSED_SEGMENT`].
 */

/*
 * [`crate::bar::Window::kind`]: the payload region of a channel's outbound queue. Each port has
 * [`CHANNEL_PAYLOAD_BYTES`], of which a card may offer fewer.
 */
#define NICLAB_WINDOW_CHANNEL_PAYLOAD 16U

/* Pages of a channel's payload region in the BAR. */
#define NICLAB_CHANNEL_PAYLOAD_PAGES 48U

/* Bytes of a channel's payload region in the BAR. */
#define NICLAB_CHANNEL_PAYLOAD_BYTES 0x30000U

/* Launch word, bits 0..8: the kind of the post. Bits 8..32 are flags. */
#define NICLAB_CHANNEL_MASK 255U

/* A message without payload, [`MessageHeader`]. */
#define NICLAB_CHANNEL_SHORT 1U

/* A message with payload, [`BulkHeader`]. */
#define NICLAB_CHANNEL_BULK 2U

/*
 * Bytes for an exposed region of another program, [`MemoryHeader`]. It has no handler, and the receiver is not
 * notified.
 */
#define NICLAB_CHANNEL_MEMORY 3U

/* More of the last posted message is in the payload region, [`Segment`]. */
#define NICLAB_CHANNEL_SEGMENT 4U

/* Flag of [`CHANNEL_SHORT`] and [`CHANNEL_BULK`]: the receiving card interrupts its host when the message is stored. */
#define NICLAB_CHANNEL_INTERRUPT 256U

/* Flag of the same: the card writes a status line when the message has left, as it does for all messages with payload. */
#define NICLAB_CHANNEL_NOTIFY 512U

/* Maximum payload of one message in bytes (section 5.1). */
#define NICLAB_CHANNEL_MAX_BULK_BYTES 0xc000U

/*
 * Handlers below this number are predefined, and the same everywhere: the library's own, and those of peripherals from
 * [`CHANNEL_PING`] on.
 */
#define NICLAB_CHANNEL_FIRST_HANDLER 32U

/* Answer to a message for a handler that does not exist. Its first integer is the handler's number. */
#define NICLAB_CHANNEL_UNKNOWN 1U

/* Any peripheral: returns the integers and the payload to the sender, for [`CHANNEL_PONG`]. */
#define NICLAB_CHANNEL_PING 16U

/* Answer to [`CHANNEL_PING`]. */
#define NICLAB_CHANNEL_PONG 17U

/*
 * A bridge: sends the payload from its Ethernet port, in UDP datagrams. Integers: the receiving node; its IPv4
 * address; the bridge's own address; the ports, [`bridge_ports`].
 */
#define NICLAB_CHANNEL_BRIDGE 18U

/*
 * From a bridge, to the program that last sent by this address and port: a received datagram. Integers: the sending
 * node, or 65535 for another host; its IPv4 address; the bridge's own address; the ports, [`bridge_ports`].
 */
#define NICLAB_CHANNEL_BRIDGED 19U

/* Block storage: stores the payload. Integers: the first block; three that are returned. */
#define NICLAB_CHANNEL_STORE 20U

/*
 * Answer to [`CHANNEL_STORE`]. Integers: the number of blocks stored, 0 if there is no room for them; the three of the
 * request.
 */
#define NICLAB_CHANNEL_STORED 21U

/* Block storage: sends blocks. Integers: the first block; the number of blocks; two that are returned. */
#define NICLAB_CHANNEL_LOAD 22U

/*
 * Answer to [`CHANNEL_LOAD`] with the blocks. Integers: the first block; the number of blocks, 0 if they do not exist;
 * the two of the request.
 */
#define NICLAB_CHANNEL_LOADED 23U

/* A card with a function: applies it to the payload. The integers are returned. */
#define NICLAB_CHANNEL_APPLY 24U

/* Answer to [`CHANNEL_APPLY`] with the function's result. */
#define NICLAB_CHANNEL_APPLIED 25U

/* Bytes of a block of a peripheral's storage. */
#define NICLAB_STORAGE_BLOCK_BYTES 512U

/*
 * The words of [`CHANNEL_SHORT`]. A short message has 28 bytes (section 5.1): four for the channel, which the
 * address of the store encodes, four for the handler and 16 for the integers. The others are the destination. With
 * the word that notifies the card of the message, the burst has 32 bytes.
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

	/* Number of payload bytes in the region: zero. */
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

	/* Offset of the payload in the payload region. */
	__u32 offset;

	/* Length of the payload in bytes: 1..=[`CHANNEL_MAX_BULK_BYTES`]. */
	__u32 bytes;

	/* Number of payload bytes that are in the region, from the first on. */
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

	/* Name of the target region, which must be exposed ([`OP_CHANNEL_EXPOSE`]). */
	__u32 region;

	/* Offset in the target region. */
	__u64 place;

	/* Offset of the bytes in the payload region. */
	__u32 offset;

	/* Number of bytes: 1..=[`CHANNEL_MAX_BULK_BYTES`]. */
	__u32 bytes;

	/* Number of these bytes that are in the region, from the first on. */
	__u32 pushed;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_memory_header, 32);

/* The words of [`CHANNEL_SEGMENT`]. */
struct niclab_segment {

	/* Number of bytes of the message in the payload region: more than before, and at most its length. */
	__u32 pushed;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_segment, 8);

/*
 * Sets the payload region of messages for a port: [`ChannelPayload`]. Until then the card refuses messages with
 * payload for the port. The request fails with [`crate::control::STATUS_PORT_BUSY`] while the previous region has
 * payload.
 */
#define NICLAB_OP_CHANNEL_PAYLOAD 16U

/* Allows memory messages to write into a region, or revokes this: [`ChannelExpose`]. */
#define NICLAB_OP_CHANNEL_EXPOSE 17U

/* Body of [`OP_CHANNEL_PAYLOAD`]. */
struct niclab_channel_payload {

	/* The port. */
	__u32 port;

	/* A region of the port. */
	__u32 region;

	/* Offset of the payload region in it, a multiple of 64. */
	__u64 offset;

	/* Length in bytes, a multiple of 64. */
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
 * Descriptor rings ([`crate::config::FEATURE_RINGS`]).
 *
 * The card sends frames from host memory, and stores frames into host memory. Descriptors in two rings of host memory
 * name this memory, and the card walks the rings by itself.
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
 * Between two unchained descriptors the card skips [`RingStart::skip_bytes`] bytes. After a chained descriptor there
 * are the same number of bytes. They are the driver's, except the first word of a transmit descriptor
 * ([`RING_MESSAGE_WORD`]). No hardware would read this word. For reports, it has the length of the message whose first
 * frame begins there, and the number of frames that the driver had received when it sent the frame. If these are all
 * frames that the card had reported by then, the device knows the order of the host's operations, and so their model
 * time.
 *
 * The driver fills all words except the first, then stores the first, which gives the descriptor to the card. The card
 * returns the descriptor with the same word. The driver then notifies queue 2 or 3 ([`crate::QUEUE_TRANSMIT`],
 * [`crate::QUEUE_RECEIVE`]), which never have a chain: a poll demand.
 */

/* Starts a ring at an address, so that the card walks it: [`RingStart`]. The reply has no body. */
#define NICLAB_OP_RING_START 18U

/* Stops a ring: [`RingName`]. After the reply the card accesses neither descriptors nor buffers. */
#define NICLAB_OP_RING_STOP 19U

/* Sets when received frames interrupt: [`RingInterrupts`]. The reply has no body. */
#define NICLAB_OP_RING_INTERRUPTS 20U

/* Reads the common terms of the drivers of this cluster. No body; the reply is [`RingTerms`]. */
#define NICLAB_OP_RING_TERMS 21U

/*
 * CPU-driven ([`RingTerms::receive_buffers`] is zero): reads status and head of the first frame in the card's FIFO. No
 * body; the reply is [`FifoHead`].
 */
#define NICLAB_OP_FIFO_LOOK 22U

/*
 * CPU-driven: stores a part of the first frame in the FIFO into memory, and drops the frame: [`FifoTake`]. The reply,
 * when the part is stored, has no body.
 */
#define NICLAB_OP_FIFO_TAKE 23U

/*
 * CPU-driven: puts a frame into the transmit FIFO, with a head that the processor stores and data that the card reads:
 * [`FifoSend`]. The reply, when the card has read all data, has no body.
 */
#define NICLAB_OP_FIFO_SEND 24U

/* [`RingStart::ring`], [`RingName::ring`]: frames to send. */
#define NICLAB_RING_TRANSMIT 0U

/* [`RingStart::ring`], [`RingName::ring`]: room for received frames. */
#define NICLAB_RING_RECEIVE 1U

/* Body of [`OP_RING_START`]. */
struct niclab_ring_start {

	/* [`RING_TRANSMIT`] or [`RING_RECEIVE`]. */
	__u32 ring;

	/* Bytes between two descriptors: a multiple of eight, from 8 to [`RING_MAX_SKIP_BYTES`]. */
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

	/* Number of frames after which the card raises one interrupt; 0: never, for drivers that poll. */
	__u32 frames;

	/* Model time in nanoseconds after which the card raises an interrupt for fewer frames. */
	__u32 delay_ns;

	/* Zero. */
	__u64 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_ring_interrupts, 16);

/* Reply to [`OP_RING_TERMS`]. */
struct niclab_ring_terms {

	/*
	 * Number of descriptors that the receive ring needs, each with a buffer for a complete frame. 0: there are no
	 * rings, and the processor drives each transfer ([`OP_FIFO_LOOK`]).
	 */
	__u32 receive_buffers;

	/* Maximum number of unacknowledged frames from one node to another; 0: no limit. */
	__u32 window;

	/* Number of frames of a node after which a driver acknowledges them. */
	__u32 acknowledge_every;

	/* Number of buffers for other protocols, beyond those for windows and acknowledgements. */
	__u32 other_buffers;

	/* Ethernet address of this node for other protocols, first byte lowest. */
	__u64 station;

	/* Maximum length of a frame that the driver gives to the card; of active ports, without the check sequence. */
	__u32 frame_bytes;

	/* Default of [`RingInterrupts::frames`]. */
	__u32 interrupt_frames;

	/* Default of [`RingInterrupts::delay_ns`]. */
	__u32 interrupt_delay_ns;

	/* [`crate::gamma::FrameHead::protocol`] of frames that the card sends and accepts. */
	__u32 protocol;

	/*
	 * Number of drivers that have asked this card for its terms, including this one. A driver of real hardware
	 * would keep this count in the card's serial memory. See [`crate::gamma::INCARNATIONS`].
	 */
	__u32 incarnation;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_ring_terms, 48);

/*
 * Maximum number of bytes of a frame's head that the processor reads or stores. An Ethernet header and
 * [`crate::gamma::FrameHead`] are 22.
 */
#define NICLAB_FIFO_HEAD_BYTES 24U

/* Reply to [`OP_FIFO_LOOK`]. */
struct niclab_fifo_head {

	/* Length of the first frame in the FIFO in bytes; zero: the FIFO is empty. */
	__u32 bytes;

	/* [`RING_STATUS_DAMAGED`] if its check sequence is wrong, otherwise zero. */
	__u32 status;

	/* Its first [`FIFO_HEAD_BYTES`], first byte lowest, padded with zeros. This word has the first eight. */
	__u64 head_0;

	/* The next eight. */
	__u64 head_1;

	/* The last eight. */
	__u64 head_2;
};
NICLAB_ASSERT_SIZE(struct niclab_fifo_head, 32);

/* Body of [`OP_FIFO_TAKE`]. */
struct niclab_fifo_take {

	/* Guest-physical address to which the card stores the part. */
	__u64 address;

	/* Number of bytes of the frame before the part. */
	__u32 skip_bytes;

	/* Length of the part in bytes; zero: the card drops the frame and stores nothing. */
	__u32 bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_fifo_take, 16);

/* Body of [`OP_FIFO_SEND`]. */
struct niclab_fifo_send {

	/* The head of the frame, first byte lowest: its first eight bytes. */
	__u64 head_0;

	/* The next eight bytes. */
	__u64 head_1;

	/* The last eight bytes. */
	__u64 head_2;

	/* Length of the head in bytes, at most [`FIFO_HEAD_BYTES`]. */
	__u32 head_bytes;

	/* Length of the data after it in bytes. */
	__u32 bytes;

	/* Guest-physical address of the data. */
	__u64 address;

	/*
	 * Length of the message whose first frame this is, otherwise zero. It is for reports; no hardware would read
	 * it.
	 */
	__u64 message_bytes;
};
NICLAB_ASSERT_SIZE(struct niclab_fifo_send, 48);

/* The node's MAC endpoint of other protocols: the third byte from the end of [`RingTerms::station`], minus one. */
#define NICLAB_RING_STATION 0U

/* Maximum number of bytes between two descriptors (CSR0, bits 2 to 6: 31 words of 32 bits, here in whole words of 64). */
#define NICLAB_RING_MAX_SKIP_BYTES 120U

/*
 * Index of the 64-bit word, counted from the descriptor's begin, of a transmit descriptor in which a frame begins. Its
 * lower half has the length of the message in bytes, if the frame is the message's first. Its upper half,
 * [`RING_RECEIVED_SHIFT`], has the number of frames that the driver has taken out of the receive ring since its start,
 * modulo 2^32.
 */
#define NICLAB_RING_MESSAGE_WORD 2U

/* Lowest bit of the upper half of that word. */
#define NICLAB_RING_RECEIVED_SHIFT 32U

/* First word: the card owns the descriptor. */
#define NICLAB_RING_OWN 0x80000000U

/* First word: the second address is that of the next descriptor. */
#define NICLAB_RING_CHAINED 0x100000000000000ULL

/* First word: the next descriptor is the ring's first; takes precedence over [`RING_CHAINED`]. */
#define NICLAB_RING_END 0x200000000000000ULL

/* First word, transmit: the frame begins in this descriptor. */
#define NICLAB_RING_FIRST 0x2000000000000000ULL

/* First word, transmit: the frame ends in this descriptor. */
#define NICLAB_RING_LAST 0x4000000000000000ULL

/* First word: lowest bit of the size of the first buffer. */
#define NICLAB_RING_SIZE_SHIFT 32U

/* First word: lowest bit of the size of the second buffer. */
#define NICLAB_RING_SECOND_SIZE_SHIFT 43U

/* Maximum number of bytes of a buffer. */
#define NICLAB_RING_MAX_BUFFER_BYTES 2047U

/* Status: an error, which other bits describe (ES). */
#define NICLAB_RING_ERROR 0x8000U

/* Receive status: the frame begins in this descriptor (FS). */
#define NICLAB_RING_STATUS_FIRST 512U

/* Receive status: the frame ends in this descriptor, and the length is valid (LS). */
#define NICLAB_RING_STATUS_LAST 256U

/* Receive status: the check sequence is wrong (CE). */
#define NICLAB_RING_STATUS_DAMAGED 2U

/* Receive status: the ring had too little room for the complete frame (DE). */
#define NICLAB_RING_STATUS_TRUNCATED 0x4000U

/* Receive status: lowest bit of the length in bytes, from the Ethernet header to the last stored byte. */
#define NICLAB_RING_LENGTH_SHIFT 16U

/* Transmit status: the frame is shorter than its headers, longer than the network allows, or in too many descriptors. */
#define NICLAB_RING_STATUS_LENGTH 4U

/* Transmit status: a buffer is not memory of the guest. */
#define NICLAB_RING_STATUS_ADDRESS 8U

/* Transmit status: the source address is not the node's, or the frame's protocol is not this card's. */
#define NICLAB_RING_STATUS_FORGED 16U

/* Transmit status: a descriptor begins a frame inside another one, or continues none. */
#define NICLAB_RING_STATUS_SEGMENT 32U

/*
 * Active ports.
 *
 * The protocol between the drivers of two nodes whose cards have descriptor rings ([`crate::rings`]; Chiola, Ciaccio,
 * Mancini, Rotondo, the paper on DEC 2114x with efficient flow control).
 *
 * A message is split into frames. In each frame a [`FrameHead`] follows the Ethernet header, least significant byte
 * first, and then a part of the message. The sending card appends a check sequence of [`CHECK_BYTES`], and the
 * receiving card removes it. Head and check sequence are 12 bytes. The paper's 12.2 of Fast Ethernet's 12.5 MB/s,
 * within 1 %, allow for 13.
 *
 * All frames from one node to another are numbered from 1, except acknowledgements. So a driver detects that a frame
 * was lost. No frame is retransmitted. A node that has sent a whole window waits until the other node has taken the
 * frames out of its receive ring and acknowledges them ([`FRAME_ACKNOWLEDGEMENT`]).
 *
 * A driver that was loaded again does not know the frames of its predecessor. So each frame names the incarnations of
 * the sending and the receiving driver ([`INCARNATIONS`]). When a driver sees a later incarnation of a node, it starts
 * again with this node: both number from 1, with a whole window. It drops frames of or for an earlier incarnation, and
 * answers the latter with an acknowledgement. A driver with a predecessor announces itself to all nodes when it
 * starts, by an acknowledgement of no frame.
 */

/* Number of active ports of a node. */
#define NICLAB_ACTIVE_PORTS 8U

/* The longest message, in bytes. */
#define NICLAB_ACTIVE_PORT_MAX_MESSAGE_BYTES 0x100000U

/*
 * EtherType of frames between active ports. Their addresses are those of the cards
 * ([`crate::config::DeviceConfig::mac`]). The last two bytes are the node's number, the higher byte first.
 */
#define NICLAB_ACTIVE_ETHER_TYPE 0x88b5U

/* Bytes of the check sequence at the end of each frame. */
#define NICLAB_CHECK_BYTES 4U

/* The head after the Ethernet header of each frame. */
struct niclab_frame_head {

	/* The protocol's number. */
	__u8 protocol;

	/* A `FRAME_` kind, with flags for [`FRAME_DATA`]. */
	__u8 kind;

	/*
	 * The sending port, [`PORT_MASK`], zero in acknowledgements; and the incarnation of the sending driver,
	 * [`INCARNATION_SHIFT`].
	 */
	__u8 source_port;

	/* The receiving port, likewise; and the incarnation of the receiving driver. */
	__u8 target_port;

	/*
	 * Number of the frame, from 1 and wrapping; in an acknowledgement, the number of the last frame taken, or zero
	 * if none was.
	 */
	__u32 number;
};
NICLAB_ASSERT_SIZE(struct niclab_frame_head, 8);

/* Kind, the lower four bits of [`FrameHead::kind`]: a part of a message. */
#define NICLAB_FRAME_DATA 1U

/* Kind: the driver has taken all frames up to this number out of the receive ring. */
#define NICLAB_FRAME_ACKNOWLEDGEMENT 2U

/* [`FrameHead::kind`]: mask of the kind. */
#define NICLAB_FRAME_KIND_MASK 15U

/* [`FrameHead::source_port`], [`FrameHead::target_port`]: mask of the port. */
#define NICLAB_PORT_MASK 15U

/*
 * [`FrameHead::source_port`], [`FrameHead::target_port`]: lowest bit of the incarnation. Zero: the sender does not
 * know it, or there is only one.
 */
#define NICLAB_INCARNATION_SHIFT 4U

/*
 * Number of incarnations. An incarnation is ([`crate::rings::RingTerms::incarnation`] - 1) modulo this, plus 1. Of two
 * incarnations, the later one is reached from the other by fewer steps upwards, modulo this.
 */
#define NICLAB_INCARNATIONS 15U

/* Flag of [`FRAME_DATA`]: the message begins in this frame. */
#define NICLAB_FRAME_FIRST 16U

/* Flag of [`FRAME_DATA`]: the message ends in this frame. */
#define NICLAB_FRAME_LAST 32U

/*
 * Firmware ([`crate::config::FEATURE_FIRMWARE`]): the program that the card's processor runs.
 */

/*
 * Loads firmware into the match unit: [`FirmwareLoad`]. The reply is [`FirmwareLoaded`]. The old program matches
 * headers that have arrived. A refused image changes nothing. The firmware stays until another is loaded, and no reset
 * by a driver removes it.
 *
 * A card with [`crate::config::FEATURE_HAND_OVER`] replies when it has read and accepted the image. The old program
 * then finishes the messages in flight. In this time the card takes commands, and begins no message.
 * [`crate::event::CAUSE_HANDED_OVER`] reports that the new program runs.
 */
#define NICLAB_OP_FIRMWARE_LOAD 12U

/* Body of [`OP_FIRMWARE_LOAD`]. */
struct niclab_firmware_load {

	/* Guest-physical address of the image. */
	__u64 address;

	/* Length of the image in bytes; zero: the built-in program. */
	__u32 bytes;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_firmware_load, 16);

/* Reply to [`OP_FIRMWARE_LOAD`]. */
struct niclab_firmware_loaded {

	/* Number of words of the program. */
	__u32 words;

	/* Its checksum. */
	__u32 checksum;
};
NICLAB_ASSERT_SIZE(struct niclab_firmware_loaded, 8);

/* The image is not firmware, or is truncated: wrong magic word or length. */
#define NICLAB_STATUS_FIRMWARE_IMAGE 9U

/* The image's checksum does not match its content. */
#define NICLAB_STATUS_FIRMWARE_CHECKSUM 10U

/* The device does not run images of this version. */
#define NICLAB_STATUS_FIRMWARE_VERSION 11U

/* A word of the program has an undefined value. */
#define NICLAB_STATUS_FIRMWARE_WORD 12U

/* The program is longer than the control store. */
#define NICLAB_STATUS_FIRMWARE_SIZE 13U

/*
 * The image is intact but does not fit this card: components of a protocol do not fit together, or packets are longer
 * than the network carries.
 */
#define NICLAB_STATUS_FIRMWARE_UNFIT 14U

/* The card is already loading firmware. */
#define NICLAB_STATUS_FIRMWARE_BUSY 15U

/*
 * The character device `/dev/niclabN`, between the kernel driver and a user program.
 *
 * One open file owns at most one port. Closing the file, or the death of its process, closes the port.
 *
 * The `mmap` offset selects what is mapped. Only the owner of a port can map its pages. `poll` reports readable after
 * an interrupt for the port. `read` of eight bytes returns the number of interrupts since the last `read` (`EAGAIN` if
 * there was none and the file is non-blocking). When the device is gone, every call fails with `ENODEV`, and `poll`
 * reports `POLLERR | POLLHUP`. Existing mappings stay readable while the driver is bound.
 *
 * If the file has no port, a request, `read` or `mmap` that needs one fails with `ENOTCONN`; a bad argument fails with
 * `EINVAL`. Refusals of the device are `EBUSY` ([`crate::control::STATUS_PORT_BUSY`]), `ENOSPC` (`STATUS_NO_SPACE`),
 * `ENOENT` (`STATUS_NOT_FOUND`), `EINVAL` (`STATUS_BAD_VALUE`), `ENXIO` (`STATUS_BAD_PORT`), `EFAULT`
 * (`STATUS_BAD_ADDRESS`), `EOPNOTSUPP` (`STATUS_BAD_OPERATION`), and otherwise `EPROTO`. `mmap` requires `MAP_SHARED`.
 * It fails with `EACCES` for more access than the window allows, and with `ENXIO` if this machine's doorbell cannot be
 * mapped.
 */

/* `mmap` offset of the information page: read-only. */
#define NICLAB_MAP_INFO 0U

/*
 * `mmap` offset of the doorbell page: a 16-bit store of [`crate::QUEUE_DOORBELL`] to its first byte rings the
 * doorbell.
 */
#define NICLAB_MAP_DOORBELL 4096U

/*
 * `mmap` offset of the port's receive memory, [`OpenPort::receive_bytes`] long: the status line at its first byte, the
 * slices from [`RECEIVE_SLICES_OFFSET`] on. Read-only for the program.
 */
#define NICLAB_MAP_RECEIVE 0x100000U

/*
 * `mmap` offset of the first window of the BAR. The others follow at multiples of [`MAP_WINDOW_STRIDE`], in the order
 * of the table ([`crate::bar::Window`]). If a window has a part for each port, the mapping is the part of the file's
 * port. A mapping may begin at a later page of the window, and must not exceed the window.
 */
#define NICLAB_MAP_WINDOWS 0x10000000U

/* Distance in bytes between the `mmap` offsets of two windows. */
#define NICLAB_MAP_WINDOW_STRIDE 0x1000000U

/* Byte offset of the first slice in the receive memory. */
#define NICLAB_RECEIVE_SLICES_OFFSET 4096U

/* `type` byte of all requests. */
#define NICLAB_IOCTL_TYPE 245U

/* Argument of [`IOCTL_OPEN_PORT`]. */
struct niclab_open_port {

	/* In: the port to open, or [`crate::control::PORT_ANY`]. Out: the port. */
	__u32 port;

	/* In: number of slices of the receive queue, a power of two, or zero for 256. Out: the number of slices. */
	__u32 slices;

	/* In: words of requester FIFO memory, or zero for an equal share. */
	__u32 fifo_words;

	/* Zero. */
	__u32 reserved0;

	/* Out: number of bytes to map at [`MAP_RECEIVE`]. */
	__u64 receive_bytes;

	/* Zero. */
	__u64 reserved1;
};
NICLAB_ASSERT_SIZE(struct niclab_open_port, 32);

/* Argument of [`IOCTL_ROUTE`], [`IOCTL_AUTHORIZE`] and [`IOCTL_REVOKE`], for the file's port. */
struct niclab_peer {

	/* The other node. */
	__u32 node;

	/* Its port. */
	__u32 port;

	/* [`IOCTL_AUTHORIZE`]: number of slices reserved for it. Otherwise zero. */
	__u32 credits;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_peer, 16);

/* Argument of [`IOCTL_REGISTER`] and [`IOCTL_DEREGISTER`]. */
struct niclab_registration {

	/* [`IOCTL_REGISTER`]: address of the first byte in the program's memory, which must be writable. */
	__u64 address;

	/* [`IOCTL_REGISTER`]: length in bytes, 1..=[`MAX_REGISTRATION_BYTES`]; it need not be whole pages. */
	__u64 bytes;

	/* The region: output of [`IOCTL_REGISTER`], input of [`IOCTL_DEREGISTER`]. */
	__u32 region;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_registration, 24);

/* Argument of [`IOCTL_GROUP`], for the file's port. */
struct niclab_group_of {

	/* Name of the group, as in [`crate::inic::PostGroup::group`]. */
	__u32 group;

	/* Number of members, at most [`crate::inic::POST_MAX_MEMBERS`]; zero: the group is dropped. */
	__u32 members;

	/* Address of their node numbers of 32 bits each. */
	__u64 nodes;
};
NICLAB_ASSERT_SIZE(struct niclab_group_of, 16);

/* Argument of [`IOCTL_ACTIVE_OPEN`]. */
struct niclab_active_open {

	/* In: the port to open, or [`crate::control::PORT_ANY`]. Out: the port. */
	__u32 port;

	/* Number of receive buffers, 1..=[`ACTIVE_MAX_BUFFERS`]. */
	__u32 buffers;

	/* Address of the first buffer in the program's memory, which must be writable. The other buffers follow it. */
	__u64 address;

	/* Length of each buffer in bytes: the longest message that the port accepts. */
	__u32 buffer_bytes;

	/* Zero. */
	__u32 reserved0;

	/* Out: number of frames after which the card interrupts; 0: never, so the program must poll. */
	__u32 interrupt_frames;

	/* Zero. */
	__u32 reserved1;
};
NICLAB_ASSERT_SIZE(struct niclab_active_open, 32);

/* Argument of [`IOCTL_ACTIVE_SEND`] and, with only the time limit, of [`IOCTL_ACTIVE_FLUSH`]. */
struct niclab_active_send {

	/* The receiving node. */
	__u32 node;

	/* Its port. */
	__u32 port;

	/* Address of the first byte in the program's memory. */
	__u64 address;

	/* Length of the message in bytes, at most [`crate::gamma::ACTIVE_PORT_MAX_MESSAGE_BYTES`]. */
	__u32 bytes;

	/* `ACTIVE_SEND_` flags. */
	__u32 flags;

	/* Longest wait, in milliseconds of wall time. */
	__u32 timeout_ms;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_active_send, 32);

/* Argument of [`IOCTL_ACTIVE_RECEIVE`]. */
struct niclab_active_receive {

	/*
	 * In: a buffer whose message the program has processed, or [`ACTIVE_NO_BUFFER`]. Out: the message's buffer, if
	 * it has one.
	 */
	__u32 buffer;

	/* Out: length of the message in bytes. */
	__u32 bytes;

	/* Out: number of the message or error at this port, from 1. */
	__u64 number;

	/* Out: the sending node. */
	__u32 node;

	/* Out: its port. */
	__u32 port;

	/* Out: `ACTIVE_ERROR_` flags; zero: a message is in the buffer. */
	__u32 errors;

	/* Out: number of lost frames of that node. No other call reports them. */
	__u32 lost_frames;

	/* In: longest sleep in milliseconds if there is no message and the card interrupts. Zero: no sleep. */
	__u32 timeout_ms;

	/* Zero. */
	__u32 reserved;
};
NICLAB_ASSERT_SIZE(struct niclab_active_receive, 40);

/* Maximum number of receive buffers of an active port. */
#define NICLAB_ACTIVE_MAX_BUFFERS 1024U

/* No buffer. */
#define NICLAB_ACTIVE_NO_BUFFER 0xffffffffU

/*
 * [`ActiveSend::flags`]: waits for room in the window, and until the last frame has left. Without this flag the
 * request waits only for the window, and only once the message has begun. The memory must then not change until
 * [`IOCTL_ACTIVE_FLUSH`].
 */
#define NICLAB_ACTIVE_SEND_BLOCK 1U

/*
 * [`ActiveSend::flags`], without [`ACTIVE_SEND_BLOCK`]: another message follows, so the card need not be notified of
 * this one yet. It is notified when a request of any file sends without this flag, finds no room, polls the rings for
 * a message, waits or flushes; and when an active port is closed.
 */
#define NICLAB_ACTIVE_SEND_MORE 2U

/* [`ActiveReceive::errors`]: frames did not arrive. */
#define NICLAB_ACTIVE_ERROR_LOST 1U

/* [`ActiveReceive::errors`]: part of a message did not arrive, and the message was dropped. */
#define NICLAB_ACTIVE_ERROR_INCOMPLETE 2U

/* [`ActiveReceive::errors`]: a message was longer than a buffer, and was dropped. */
#define NICLAB_ACTIVE_ERROR_TOO_LONG 4U

/*
 * [`ActiveReceive::errors`]: no buffer was free for a message for too long. The driver dropped it, so that other
 * messages do not wait.
 */
#define NICLAB_ACTIVE_ERROR_NO_BUFFER 8U

/*
 * Maximum length of one [`Registration`] in bytes. It limits the pages that a request pins before it can be
 * interrupted.
 */
#define NICLAB_MAX_REGISTRATION_BYTES 0x40000000U

/* Reads the [`crate::config::DeviceConfig`]. */
#define NICLAB_IOCTL_INFO 0x8060f500U

/*
 * Opens a port for this file, [`OpenPort`]. `EBUSY`: the file has a port, or the port is open; `ENOSPC`: no port is
 * free.
 */
#define NICLAB_IOCTL_OPEN_PORT 0xc020f501U

/* Closes the file's port. Its mappings are removed: an access raises `SIGBUS`. */
#define NICLAB_IOCTL_CLOSE_PORT 0xf502U

/* Sets the destination of the port, [`Peer`]. */
#define NICLAB_IOCTL_ROUTE 0x4010f503U

/* Allows [`Peer`] to send to the port. */
#define NICLAB_IOCTL_AUTHORIZE 0x4010f504U

/* Revokes this right. */
#define NICLAB_IOCTL_REVOKE 0x4010f505U

/*
 * Tests whether the device replies: `ENODEV` if it does not reply within
 * [`crate::config::DeviceConfig::control_timeout_ms`]. The file needs no port.
 */
#define NICLAB_IOCTL_CHECK 0xf506U

/*
 * Pins part of the program's memory and registers it with the device for the file's port, [`Registration`]. It stays
 * pinned until it is deregistered, the port or the file is closed, or the process dies. `EFAULT`: not all of it is
 * writable memory of the program; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `ENOSPC`: the device has no free region;
 * `EOPNOTSUPP`: this model has no regions.
 */
#define NICLAB_IOCTL_REGISTER 0xc018f507U

/* Deregisters it. The device does not access the memory afterwards. `ENOENT`: the region does not exist. */
#define NICLAB_IOCTL_DEREGISTER 0x4018f508U

/*
 * Changes when the device interrupts for the file's port, [`crate::inic::PostRules`] with port zero. `EOPNOTSUPP`:
 * this model has no such rules, or its protocol has no component for them.
 */
#define NICLAB_IOCTL_RULES 0x4020f509U

/*
 * Makes a group of nodes for the file's port, or drops it, [`GroupOf`]. `EFAULT`: the members cannot be read;
 * `EINVAL`: the name is in use, or the members are invalid; `ENOSPC`: the maximum number of groups exists; `ENOENT`:
 * the group to drop does not exist; `EOPNOTSUPP`: this model has no groups, or its protocol loses messages.
 */
#define NICLAB_IOCTL_GROUP 0x4010f50aU

/*
 * Sets the payload region of messages for the file's port, [`crate::grim::ChannelPayload`] with port zero.
 * `EBUSY`: the previous region has payload; `ENOENT`: the region does not exist; `EOPNOTSUPP`: this model has no
 * channels.
 */
#define NICLAB_IOCTL_CHANNEL_PAYLOAD 0x4018f50bU

/*
 * Allows memory messages to write into a region of the file's port, or revokes this,
 * [`crate::grim::ChannelExpose`] with port zero. `ENOENT`: the region does not exist; `EOPNOTSUPP`: this model has
 * no channels.
 */
#define NICLAB_IOCTL_CHANNEL_EXPOSE 0x4010f50cU

/*
 * Opens an active port for this file ([`crate::config::FEATURE_RINGS`]), and pins its receive buffers, [`ActiveOpen`].
 * It is closed with the file. `EBUSY`: the file has a port, or the port is open; `ENOSPC`: no port is free; `EFAULT`:
 * not all buffers are writable memory; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `EOPNOTSUPP`: this card has no rings.
 */
#define NICLAB_IOCTL_ACTIVE_OPEN 0xc020f50dU

/*
 * Sends a message from the file's active port, directly from the program's memory, [`ActiveSend`]. `EAGAIN`, without
 * [`ACTIVE_SEND_BLOCK`]: the window is used up, or another program is sending a message to that node. `EMSGSIZE`: the
 * message is too long. `ETIMEDOUT`: the window did not open in time, for example because an acknowledgement was lost;
 * the message is incomplete at its receiver. `ENXIO`: the card cannot reach the memory (beyond 4 GiB). `EIO`: the card
 * refused a frame.
 */
#define NICLAB_IOCTL_ACTIVE_SEND 0x4020f50eU

/*
 * Waits until all frames of the file's active port have left, [`ActiveSend`]. With a time limit of zero it does not
 * wait, `EAGAIN`: some have not left.
 */
#define NICLAB_IOCTL_ACTIVE_FLUSH 0x4020f50fU

/*
 * Returns a buffer, and takes the next message or error of the file's active port from the ring, [`ActiveReceive`].
 * `EAGAIN`: there is none, or a signal arrived first. `poll` reports readable if there is one already.
 */
#define NICLAB_IOCTL_ACTIVE_RECEIVE 0xc028f510U

#endif /* NICLAB_ABI_H */
