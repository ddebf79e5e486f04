/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Descriptor rings and active ports: what the parts of the driver that know them share. The rules are those of the
 * NIC's contract (niclab_abi.h): frames of a node are numbered, a window is given back by one acknowledgement, and
 * nothing is ever sent again.
 */
#ifndef NICLAB_RING_H
#define NICLAB_RING_H

#include <linux/etherdevice.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "niclab.h"

/* Descriptors of what is sent; enough for a window of 32 frames, each in two pages, to several nodes at once. */
#define NICLAB_SEND_DESCRIPTORS 256U

/*
 * Descriptors, and buffers of a frame each, by which other protocols send. They are left to these, and none beside
 * them: neither active ports nor other protocols wait for the others' frames to leave.
 */
#define NICLAB_OTHER_DESCRIPTORS 32U

/* Words from one descriptor to the next: the descriptor, one for reports, and one so that each second begins a cache line. */
#define NICLAB_RING_STRIDE 4U

/* Bytes of the memory for the head of a frame, and of that for a frame that comes. */
#define NICLAB_HEAD_BYTES 64U
#define NICLAB_FRAME_BYTES 2048U

struct niclab_net;

/**
 * struct niclab_sleeper - a program that sleeps until something comes. All under &niclab.event_lock.
 * @entry: in &niclab_rings.sleepers.
 * @wait: where it sleeps.
 * @is_called: frames came, which it is to take out of the ring, whosever they are.
 */
struct niclab_sleeper {
	struct list_head entry;
	wait_queue_head_t *wait;
	bool is_called;
};

/* What stands in front of a message's part. */
struct niclab_frame {
	struct ethhdr ethernet;
	struct niclab_frame_head head;
} __packed;

/**
 * struct niclab_piece - memory that a descriptor names.
 * @address: physical address.
 * @bytes: how much.
 */
struct niclab_piece {
	u32 address;
	u32 bytes;
};

/**
 * struct niclab_ring - descriptors, each given to the card and taken back in turn.
 * @words: the descriptors, which the card reads and writes as well.
 * @count: how many there are.
 * @given: how many were given; it only grows.
 * @taken: how many were taken back.
 */
struct niclab_ring {
	u64 *words;
	u32 count;
	u64 given;
	u64 taken;
};

/**
 * struct niclab_sending - a message that is being sent.
 * @region: its memory, pinned; NULL where it has none, or the card does not reach it.
 * @copy: pages with a copy of that, which the card reaches; NULL where there is none.
 * @copied: how many pages.
 * @active: the port that sends it; NULL when that is closed.
 * @descriptors: descriptors of it that the card has not given back.
 * @is_held: the system call that sends it is not over.
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
 * struct niclab_partner - what this node knows of another.
 * @sender: see niclab.h. Frames of a node do not mix those of two messages.
 * @incarnation: its driver, of those that there were; zero: nothing was heard of it.
 * @begun: how often its driver began anew.
 * @stale_frames: frames of it that were for an earlier driver of this node.
 * @is_known: a frame of this driver of it has come, or was told to come from 1 on.
 * @sent: number of the last frame sent to it.
 * @acknowledged: number of the last of these that it has taken.
 * @taken: number of the last frame that was taken of it.
 * @told: number of the last of these that was acknowledged to it.
 * @has_begun: it is in the middle of sending a message that is wanted.
 * @source_port: that message's sender.
 * @target_port: that message's receiver.
 * @buffer: buffer of that port where it goes.
 * @come: bytes of it that have come.
 * @parked: frames of it that wait for a buffer, and those behind them.
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
 * @head: its head, with ports alone.
 * @bytes: length of its part of a message.
 * @data: that.
 */
struct niclab_parked {
	struct list_head entry;
	struct niclab_frame_head head;
	u32 bytes;
	u8 data[] __counted_by(bytes);
};

/* What is counted of active ports; each is raised once and nothing is repaired. */
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
	NICLAB_RAISED_ANEW,
	NICLAB_RAISED_COPIED,
	NICLAB_RAISED_OTHERS_MOST,
	NICLAB_RAISED_OTHERS_DROPPED,
	NICLAB_RAISED_PARKED,
	NICLAB_RAISED_COUNT,
};

/**
 * struct niclab_rings - the rings of a card, and what is built on them.
 * @nic: the card.
 * @lock: see niclab.h.
 * @is_stopped: the card walks no ring, or nobody knows whether it does.
 * @terms: what the drivers of the cluster have agreed on.
 * @incarnation: this driver, of those that there were of this node.
 * @send: what is sent.
 * @receive: room for what comes.
 * @heads: NICLAB_HEAD_BYTES for each descriptor of @send.
 * @sendings: for each of these the message that it is of, or NULL.
 * @pages: memory for what comes, two frames in each.
 * @peers: the nodes.
 * @ports: the active ports that are open.
 * @parked: frames of all nodes that wait for buffers.
 * @is_owing: an acknowledgement found no descriptor.
 * @is_demanding: descriptors were given to the card that it was not told of.
 * @other: what frames of other protocols are sent as. Never freed.
 * @other_pages: memory for these, two frames in each.
 * @others_given: how many of them were given to the card; it only grows.
 * @others_taken: how many of them were taken back.
 * @net: the network interface, or NULL. Changed under @lock and &niclab.event_lock.
 * @raised: counts.
 * @work: looks through the ring after an interrupt for which nobody sleeps.
 * @look_at: when this is to look again, in jiffies, as far as sleepers asked for it.
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
 * @rings: what it sends and receives over.
 * @port: its number.
 * @region: its receive buffers, pinned.
 * @buffers: how many there are.
 * @buffer_bytes: length of each.
 * @busy: those that a message is in, or is coming to.
 * @lent: those of them that the program has.
 * @events: messages and errors that the program has not taken, a ring.
 * @capacity: how many these may be. More errors than that are told together.
 * @put: how many there were.
 * @got: how many of them were taken.
 * @full_since: when a message first found no buffer, in jiffies; zero: none has.
 * @is_slow: it found none for too long: others wait no longer for this port.
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

/* Descriptors that are the driver's. */
static inline u32 niclab_ring_free_count(const struct niclab_ring *ring)
{
	return ring->count - (u32)(ring->given - ring->taken);
}

/* Frames that other protocols may give to the card. */
static inline u32 niclab_ring_other_room(const struct niclab_rings *rings)
{
	return NICLAB_OTHER_DESCRIPTORS - (rings->others_given - rings->others_taken);
}

/* Descriptors of what is sent that active ports may use now. */
static inline u32 niclab_ring_active_room(const struct niclab_rings *rings)
{
	u32 left = niclab_ring_free_count(&rings->send);
	u32 others = niclab_ring_other_room(rings);

	return left > others ? left - others : 0;
}

/* Bytes of a message that one frame carries. */
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
void *niclab_ring_look(struct niclab_rings *rings, u32 *status);
void niclab_ring_return(struct niclab_rings *rings);
bool niclab_ring_sleep(struct niclab_rings *rings, struct niclab_active *active, long *left);
void niclab_ring_look_again(struct niclab_rings *rings);

/* niclab_active.c */
void niclab_active_announce(struct niclab_rings *rings);
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
