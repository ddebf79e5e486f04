/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Descriptor rings and active ports: declarations that several files of the driver share. niclab_abi.h has the rules:
 * frames of a node are numbered, one acknowledgement returns a window, and no frame is ever retransmitted.
 */
#ifndef NICLAB_RING_H
#define NICLAB_RING_H

#include <linux/etherdevice.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "niclab.h"

/* Send descriptors: enough for a window of 32 frames, each in two pages, to several nodes at once. */
#define NICLAB_SEND_DESCRIPTORS 256U

/*
 * Descriptors, with a frame buffer each, that are reserved for frames of other protocols; these use no others. So
 * neither active ports nor other protocols wait until frames of the other leave.
 */
#define NICLAB_OTHER_DESCRIPTORS 32U

/*
 * Words from one descriptor to the next: two of the descriptor, one for reports, and one so that every second
 * descriptor begins a cache line.
 */
#define NICLAB_RING_STRIDE 4U

/* Bytes of the memory for the head of a sent frame, and for a received frame. */
#define NICLAB_HEAD_BYTES 64U
#define NICLAB_FRAME_BYTES 2048U

struct niclab_net;

/**
 * struct niclab_sleeper - a program that sleeps until a frame arrives. All fields are under &niclab.event_lock.
 * @entry: in &niclab_rings.sleepers.
 * @wait: the queue that it sleeps in.
 * @is_called: frames arrived; the program must take them out of the ring, for all ports.
 */
struct niclab_sleeper {
	struct list_head entry;
	wait_queue_head_t *wait;
	bool is_called;
};

/* Headers before a frame's message data. */
struct niclab_frame {
	struct ethhdr ethernet;
	struct niclab_frame_head head;
} __packed;

/**
 * struct niclab_piece - memory that a descriptor names.
 * @address: physical address.
 * @bytes: length.
 */
struct niclab_piece {
	u32 address;
	u32 bytes;
};

/**
 * struct niclab_ring - descriptors, given to the card and taken back in order.
 * @words: the descriptors, which the card reads and writes as well.
 * @count: number of descriptors.
 * @given: number given so far; it only grows.
 * @taken: number taken back so far.
 */
struct niclab_ring {
	u64 *words;
	u32 count;
	u64 given;
	u64 taken;
};

/**
 * struct niclab_sending - a message that is being sent.
 * @region: its memory, pinned; NULL if it is empty, or if the card cannot address it.
 * @copy: pages with a copy of it that the card can address, or NULL.
 * @copied: number of pages.
 * @active: the port that sends it; NULL after the port was closed.
 * @descriptors: its descriptors that the card has not returned.
 * @is_held: the system call that sends it has not returned.
 * @is_refused: the card has refused a frame of it.
 */
struct niclab_sending {
	struct niclab_region *region;
	struct page **copy;
	unsigned long copied;
	struct niclab_active *active;
	u32 descriptors;
	bool is_held;
	bool is_refused;
};

/**
 * struct niclab_partner - state for another node.
 * @sender: see niclab.h. Frames of two messages from one node to another are never interleaved.
 * @incarnation: number of its current driver; zero: no frame of it was received.
 * @begun: how often its driver restarted.
 * @stale_frames: frames received from it for an earlier driver of this node.
 * @is_known: its numbering is known: a frame of its current driver has arrived, or its frames start from 1.
 * @sent: number of the last frame sent to it.
 * @acknowledged: number of the last of these that it has acknowledged.
 * @taken: number of the last frame received from it.
 * @told: number of the last of these that was acknowledged.
 * @has_begun: a message of it is incomplete, and its port is open.
 * @source_port: source port of that message.
 * @target_port: target port of that message.
 * @buffer: buffer of the target port that receives it.
 * @come: bytes of it received so far.
 * @parked: its frames that wait for a buffer, and all its frames after them.
 */
struct niclab_partner {
	struct mutex sender;
	u8 incarnation;
	bool is_known;
	u32 begun;
	u32 stale_frames;
	u32 sent;
	u32 acknowledged;
	u32 taken;
	u32 told;
	bool has_begun;
	u8 source_port;
	u8 target_port;
	u32 buffer;
	u32 come;
	struct list_head parked;
};

/**
 * struct niclab_parked - a frame that waits for a buffer of its program.
 * @entry: in &niclab_partner.parked.
 * @head: its head, with the incarnation bits removed from the ports.
 * @bytes: length of its message data.
 * @data: its message data.
 */
struct niclab_parked {
	struct list_head entry;
	struct niclab_frame_head head;
	u32 bytes;
	u8 data[] __counted_by(bytes);
};

/* Counters of active ports. Each event is counted once and nothing is repaired. */
enum niclab_raised {
	NICLAB_RAISED_LOST,
	NICLAB_RAISED_DAMAGED,
	NICLAB_RAISED_INCOMPLETE,
	NICLAB_RAISED_OLD,
	NICLAB_RAISED_STRAY,
	NICLAB_RAISED_UNWANTED,
	NICLAB_RAISED_TOO_LONG,
	NICLAB_RAISED_NO_BUFFER,
	NICLAB_RAISED_STALLED,
	NICLAB_RAISED_REFUSED,
	NICLAB_RAISED_ACKNOWLEDGEMENTS,
	NICLAB_RAISED_RESTART,
	NICLAB_RAISED_COPIED,
	NICLAB_RAISED_OTHERS_MOST,
	NICLAB_RAISED_OTHERS_DROPPED,
	NICLAB_RAISED_PARKED,
	NICLAB_RAISED_COUNT,
};

/**
 * struct niclab_rings - the rings of a card, and their users.
 * @nic: the card.
 * @lock: see niclab.h.
 * @is_stopped: the card has stopped processing the rings, or may have.
 * @terms: the terms that all drivers of the cluster share.
 * @incarnation: number of this driver among the drivers of this node.
 * @send: the send ring.
 * @receive: the receive ring.
 * @heads: NICLAB_HEAD_BYTES for each descriptor of @send.
 * @sendings: for each descriptor of @send its message, or NULL.
 * @pages: receive buffers, two frames in each page.
 * @peers: the nodes.
 * @ports: the active ports that are open.
 * @parked: number of parked frames of all nodes.
 * @is_owing: an acknowledgement found no descriptor.
 * @is_demanding: the card has descriptors that it was not notified of.
 * @other: stands for frames of other protocols in @sendings. Never freed.
 * @other_pages: memory for these frames, two in each page.
 * @others_given: number of them given to the card; it only grows.
 * @others_taken: number of them taken back.
 * @net: the network interface, or NULL. Changed under @lock and &niclab.event_lock.
 * @raised: counters.
 * @work: polls the rings after an interrupt if no program sleeps.
 * @look_at: when @work polls next, in jiffies, if sleepers requested it.
 * @sleepers: programs that sleep. Under &niclab.event_lock.
 */
struct niclab_rings {
	struct niclab *nic;
	struct mutex lock;
	bool is_stopped;
	struct niclab_ring_terms terms;
	u8 incarnation;
	struct niclab_ring send;
	struct niclab_ring receive;
	void *heads;
	struct niclab_sending **sendings;
	void **pages;
	struct niclab_partner *peers;
	struct niclab_active *ports[NICLAB_ACTIVE_PORTS];
	u32 parked;
	bool is_owing;
	bool is_demanding;
	struct niclab_sending other;
	void *other_pages[NICLAB_OTHER_DESCRIPTORS / 2];
	u32 others_given;
	u32 others_taken;
	struct niclab_net *net;
	u64 raised[NICLAB_RAISED_COUNT];
	struct delayed_work work;
	unsigned long look_at;
	struct list_head sleepers;
};

/**
 * struct niclab_active - an active port.
 * @file: its owner.
 * @rings: the rings that it sends and receives over.
 * @port: its number.
 * @region: its receive buffers, pinned.
 * @buffers: number of buffers.
 * @buffer_bytes: length of each.
 * @busy: buffers that hold a message, or receive one.
 * @lent: busy buffers that the program has.
 * @events: ring of messages and errors that the program has not taken.
 * @capacity: size of @events. If it is full, further errors are merged.
 * @put: number of events added.
 * @got: number of events taken.
 * @full_since: time when a message first found no buffer, in jiffies; zero: never.
 * @is_slow: buffers were missing for too long: further messages do not wait, but are dropped.
 * @sendings: messages that have not left.
 */
struct niclab_active {
	struct niclab_file *file;
	struct niclab_rings *rings;
	u8 port;
	struct niclab_region *region;
	u32 buffers;
	u32 buffer_bytes;
	unsigned long *busy;
	unsigned long *lent;
	struct niclab_active_receive *events;
	u32 capacity;
	u64 put;
	u64 got;
	unsigned long full_since;
	bool is_slow;
	u32 sendings;
};

/* Descriptors that the driver owns. */
static inline u32 niclab_ring_free_count(const struct niclab_ring *ring)
{
	return ring->count - (u32)(ring->given - ring->taken);
}

/* Frames that other protocols may still give to the card. */
static inline u32 niclab_ring_other_room(const struct niclab_rings *rings)
{
	return NICLAB_OTHER_DESCRIPTORS - (rings->others_given - rings->others_taken);
}

/* Send descriptors that active ports may use now. */
static inline u32 niclab_ring_active_room(const struct niclab_rings *rings)
{
	u32 left = niclab_ring_free_count(&rings->send);
	u32 others = niclab_ring_other_room(rings);

	return left > others ? left - others : 0;
}

/* Maximum bytes of message data in a frame. */
static inline u32 niclab_part_bytes(const struct niclab_rings *rings)
{
	return rings->terms.frame_bytes - sizeof(struct niclab_frame);
}

/* niclab_ring.c */
void niclab_ring_post(struct niclab_rings *rings, u32 node, const struct niclab_frame_head *head,
		      const struct niclab_piece *pieces, u32 count, u32 message_bytes, struct niclab_sending *sending);
void niclab_ring_post_other(struct niclab_rings *rings, const struct niclab_piece *piece);
void niclab_ring_demand(struct niclab_rings *rings);
void niclab_ring_reap(struct niclab_rings *rings);
bool niclab_ring_peek(const struct niclab_rings *rings, u32 ahead, void **frame);
void *niclab_ring_poll(struct niclab_rings *rings, u32 *status);
void niclab_ring_return(struct niclab_rings *rings);
bool niclab_ring_sleep(struct niclab_rings *rings, struct niclab_active *active, long *left);
void niclab_ring_poll_later(struct niclab_rings *rings);

/* niclab_active.c */
void niclab_active_announce(struct niclab_rings *rings);
bool niclab_active_poll(struct niclab_rings *rings, struct niclab_active *until);
bool niclab_active_serve(struct niclab_rings *rings, struct niclab_active *until);
void niclab_active_serve_others(struct niclab_rings *rings);
u32 niclab_active_count_others(const struct niclab_rings *rings);
void niclab_active_stop(struct niclab_rings *rings);

/* niclab_park.c */
bool niclab_park_put(struct niclab_rings *rings, struct niclab_partner *peer, const struct niclab_frame_head *head,
		     const void *data, u32 bytes);
struct niclab_parked *niclab_park_first(const struct niclab_partner *peer);
void niclab_park_drop(struct niclab_rings *rings, struct niclab_parked *parked);
void niclab_park_empty(struct niclab_rings *rings, struct niclab_partner *peer);

/* niclab_send.c */
void niclab_sending_put(struct niclab_rings *rings, struct niclab_sending *sending);

/* niclab_net.c */
void niclab_net_measure(struct niclab_rings *rings);
void niclab_net_take(struct niclab_rings *rings, const void *frame, u32 bytes);
void niclab_net_on_sent(struct niclab_rings *rings, u32 status);
void niclab_net_quit(struct niclab_rings *rings);

#endif /* NICLAB_RING_H */
