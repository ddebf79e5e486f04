// SPDX-License-Identifier: GPL-2.0
/*
 * Active ports: the receive path. A program that polls, or the work item after an interrupt, takes frames out of the
 * ring. It copies each frame once, into a buffer of the destination port, also if another program owns that port.
 *
 * The driver reports and counts lost, damaged and unwanted frames. It never repairs them.
 */
#include <linux/bitmap.h>
#include <linux/highmem.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "niclab_ring.h"

/* Room for error reports, in addition to messages. When it is full, errors are merged. */
#define NICLAB_ACTIVE_ERRORS 64U

/* If acknowledgements are off, one in this many frames for an earlier driver of this node is answered. */
#define NICLAB_STALE_FRAMES 32U

/* How long a message waits for a buffer of its port. All later frames of its sender wait with it. */
#define NICLAB_ACTIVE_TIMEOUT (HZ / 10)

static void niclab_active_free(struct niclab *nic, struct niclab_active *active)
{
	if (active->region)
		niclab_region_free(nic, active->region);
	kvfree(active->events);
	bitmap_free(active->lent);
	bitmap_free(active->busy);
	kfree(active);
}

/* Creates a port without a number. Pins memory of the calling process. */
static struct niclab_active *niclab_active_alloc(struct niclab_file *file, const struct niclab_active_open *argument)
{
	u64 bytes = (u64)argument->buffers * argument->buffer_bytes;
	struct niclab_active *active = kzalloc(sizeof(*active), GFP_KERNEL_ACCOUNT);
	struct niclab_region *region;

	if (!active)
		return ERR_PTR(-ENOMEM);
	active->file = file;
	active->rings = file->nic->rings;
	active->buffers = argument->buffers;
	active->buffer_bytes = argument->buffer_bytes;
	active->capacity = argument->buffers + NICLAB_ACTIVE_ERRORS;
	active->busy = bitmap_zalloc(active->buffers, GFP_KERNEL_ACCOUNT);
	active->lent = bitmap_zalloc(active->buffers, GFP_KERNEL_ACCOUNT);
	active->events = kvcalloc(active->capacity, sizeof(*active->events), GFP_KERNEL_ACCOUNT);
	region = active->busy && active->lent && active->events ?
		 niclab_region_alloc(argument->address, bytes, true) : ERR_PTR(-ENOMEM);
	if (IS_ERR(region)) {
		niclab_active_free(file->nic, active);
		return ERR_CAST(region);
	}
	active->region = region;
	return active;
}

/* Assigns a number to a port, with the rings locked. */
static int niclab_active_enter(struct niclab_active *active, u32 wanted)
{
	struct niclab_rings *rings = active->rings;
	u32 ports = min(rings->nic->config.ports, NICLAB_ACTIVE_PORTS);
	u32 port = wanted;

	lockdep_assert_held(&rings->lock);
	if (rings->is_stopped)
		return -ENODEV;
	if (active->file->active)
		return -EBUSY;
	/* Frames for an earlier owner must not reach this one. */
	niclab_active_serve(rings, NULL);
	if (wanted == NICLAB_PORT_ANY)
		for (port = 0; port < ports && rings->ports[port]; port++)
			;
	if (port >= ports)
		return wanted == NICLAB_PORT_ANY ? -ENOSPC : -EINVAL;
	if (rings->ports[port])
		return -EBUSY;
	active->port = port;
	rings->ports[port] = active;
	active->file->active = active;
	return 0;
}

/**
 * niclab_active_open - opens an active port for a file that has none.
 * @file: the file.
 * @user: the argument of NICLAB_IOCTL_ACTIVE_OPEN.
 *
 * Return: 0, or the error of that request.
 */
int niclab_active_open(struct niclab_file *file, void __user *user)
{
	struct niclab_rings *rings = file->nic->rings;
	struct niclab_active_open argument;
	struct niclab_active *active;
	int err;

	if (!rings)
		return -EOPNOTSUPP;
	if (copy_from_user(&argument, user, sizeof(argument)))
		return -EFAULT;
	if (argument.reserved0 || argument.reserved1 || !argument.buffers || !argument.buffer_bytes ||
	    argument.buffers > NICLAB_ACTIVE_MAX_BUFFERS ||
	    (u64)argument.buffers * argument.buffer_bytes > NICLAB_MAX_REGISTRATION_BYTES)
		return -EINVAL;
	active = niclab_active_alloc(file, &argument);
	if (IS_ERR(active))
		return PTR_ERR(active);
	mutex_lock(&rings->lock);
	err = niclab_active_enter(active, argument.port);
	argument.port = active->port;
	argument.interrupt_frames = rings->terms.interrupt_frames;
	mutex_unlock(&rings->lock);
	if (err) {
		niclab_active_free(file->nic, active);
		return err;
	}
	/* If the copy fails, the program still owns the port until it closes the file. */
	return copy_to_user(user, &argument, sizeof(argument)) ? -EFAULT : 0;
}

/* Reports a message or an error to a port. */
static void niclab_active_tell(struct niclab_active *active, const struct niclab_active_receive *event)
{
	struct niclab_active_receive *place;

	if (active->put - active->got >= active->capacity && event->errors) {
		place = &active->events[(active->put - 1) % active->capacity];
		place->errors |= event->errors;
		place->lost_frames += event->lost_frames;
	} else {
		place = &active->events[active->put % active->capacity];
		*place = *event;
		place->number = ++active->put;
	}
	wake_up_interruptible(&active->file->wait);
}

static void niclab_active_tell_error(struct niclab_active *active, u32 node, u32 port, u32 errors, u32 lost)
{
	struct niclab_active_receive event = {
		.buffer = NICLAB_ACTIVE_NO_BUFFER,
		.node = node,
		.port = port,
		.errors = errors,
		.lost_frames = lost,
	};

	niclab_active_tell(active, &event);
}

/* Drops the message that a node is sending, which will be incomplete. Returns the port that it was for. */
static struct niclab_active *niclab_active_drop(struct niclab_rings *rings, struct niclab_partner *peer)
{
	struct niclab_active *active = rings->ports[peer->target_port];

	peer->has_begun = false;
	clear_bit(peer->buffer, active->busy);
	return active;
}

/* Reports @lost lost frames of a node. @next is the port of the frame after them, if that port is open. */
static void niclab_active_on_lost(struct niclab_rings *rings, u32 node, u32 lost, struct niclab_active *next,
				  const struct niclab_frame_head *head)
{
	struct niclab_partner *peer = &rings->peers[node];
	struct niclab_active *active = NULL;
	u32 errors = 0;

	rings->raised[NICLAB_RAISED_LOST] += lost;
	if (peer->has_begun) {
		rings->raised[NICLAB_RAISED_INCOMPLETE]++;
		active = niclab_active_drop(rings, peer);
		if (active == next)
			errors = NICLAB_ACTIVE_ERROR_INCOMPLETE;
		else
			niclab_active_tell_error(active, node, peer->source_port, NICLAB_ACTIVE_ERROR_INCOMPLETE, 0);
	}
	if (next)
		niclab_active_tell_error(next, node, head->source_port, errors | NICLAB_ACTIVE_ERROR_LOST, lost);
}

/* Whether the first frame of a message need not wait: a buffer is free, or the message will be dropped. */
static bool niclab_active_is_prompt(struct niclab_active *active)
{
	if (!bitmap_full(active->busy, active->buffers) || active->is_slow)
		return true;
	if (!active->full_since)
		active->full_since = jiffies ? jiffies : 1;
	active->is_slow = time_after(jiffies, active->full_since + NICLAB_ACTIVE_TIMEOUT);
	return active->is_slow;
}

/* Begins a message; @active is NULL if its port is not open. */
static void niclab_active_begin(struct niclab_rings *rings, u32 node, struct niclab_active *active,
				const struct niclab_frame_head *head)
{
	struct niclab_partner *peer = &rings->peers[node];
	u32 buffer;

	if (!active) {
		rings->raised[NICLAB_RAISED_UNWANTED]++;
		return;
	}
	buffer = find_first_zero_bit(active->busy, active->buffers);
	if (buffer >= active->buffers) {
		rings->raised[NICLAB_RAISED_NO_BUFFER]++;
		niclab_active_tell_error(active, node, head->source_port, NICLAB_ACTIVE_ERROR_NO_BUFFER, 0);
		return;
	}
	set_bit(buffer, active->busy);
	peer->has_begun = true;
	peer->source_port = head->source_port;
	peer->target_port = head->target_port;
	peer->buffer = buffer;
	peer->come = 0;
}

/* The only copy: from the ring's buffer to the program's buffer. */
static void niclab_active_copy(struct niclab_active *active, u32 buffer, u32 offset, const void *data, u32 bytes)
{
	u64 at = active->region->offset + (u64)buffer * active->buffer_bytes + offset;
	u32 part;

	while (bytes) {
		part = min_t(u32, bytes, PAGE_SIZE - offset_in_page(at));
		memcpy_to_page(active->region->pages[at >> PAGE_SHIFT], offset_in_page(at), data, part);
		data += part;
		at += part;
		bytes -= part;
	}
}

/* Appends a frame's data to the message that its node is sending. */
static void niclab_active_join(struct niclab_rings *rings, u32 node, const struct niclab_frame_head *head,
			       const void *data, u32 bytes)
{
	struct niclab_partner *peer = &rings->peers[node];
	struct niclab_active *active = rings->ports[peer->target_port];
	struct niclab_active_receive event = { .buffer = peer->buffer, .node = node, .port = peer->source_port };

	if (bytes > active->buffer_bytes - peer->come) {
		rings->raised[NICLAB_RAISED_TOO_LONG]++;
		niclab_active_drop(rings, peer);
		niclab_active_tell_error(active, node, peer->source_port, NICLAB_ACTIVE_ERROR_TOO_LONG, 0);
		return;
	}
	niclab_active_copy(active, peer->buffer, peer->come, data, bytes);
	peer->come += bytes;
	if (!(head->kind & NICLAB_FRAME_LAST))
		return;
	peer->has_begun = false;
	event.bytes = peer->come;
	niclab_active_tell(active, &event);
}

/* Sends a node an acknowledgement of its frames up to the last taken, with this driver's incarnation. */
static void niclab_active_answer(struct niclab_rings *rings, u32 node)
{
	struct niclab_frame_head head = {
		.protocol = rings->terms.protocol,
		.kind = NICLAB_FRAME_ACKNOWLEDGEMENT,
		.number = rings->peers[node].taken,
	};

	rings->raised[NICLAB_RAISED_ACKNOWLEDGEMENTS]++;
	niclab_ring_post(rings, node, &head, NULL, 0, 0, NULL);
}

/**
 * niclab_active_announce - notifies all nodes if this driver is not the first of its node.
 * @rings: the rings, which the card processes already.
 */
void niclab_active_announce(struct niclab_rings *rings)
{
	u32 node;

	mutex_lock(&rings->lock);
	for (node = 0; rings->terms.incarnation > 1 && node < rings->nic->config.nodes; node++)
		if (node != rings->nic->config.node && niclab_ring_free_count(&rings->send))
			niclab_active_answer(rings, node);
	niclab_ring_demand(rings);
	mutex_unlock(&rings->lock);
}

/* Whether @driver is a later incarnation than @other. */
static bool niclab_active_is_later(u8 driver, u8 other)
{
	u32 ahead = (driver + NICLAB_INCARNATIONS - other) % NICLAB_INCARNATIONS;

	return ahead && ahead <= NICLAB_INCARNATIONS / 2;
}

/* A node has a new driver: frames from it and to it are numbered from 1 again, and its window is unused. */
static void niclab_active_restart_peer(struct niclab_rings *rings, u32 node)
{
	struct niclab_partner *peer = &rings->peers[node];

	rings->raised[NICLAB_RAISED_RESTART]++;
	if (peer->has_begun) {
		rings->raised[NICLAB_RAISED_INCOMPLETE]++;
		niclab_active_tell_error(niclab_active_drop(rings, peer), node, peer->source_port,
					 NICLAB_ACTIVE_ERROR_INCOMPLETE, 0);
	}
	niclab_park_empty(rings, peer);
	peer->begun++;
	peer->sent = 0;
	peer->acknowledged = 0;
	peer->taken = 0;
	peer->told = 0;
	peer->is_known = true;
}

/* Checks the incarnations of a frame's source and target. Returns false if either is stale: the frame is dropped. */
static bool niclab_active_is_current(struct niclab_rings *rings, u32 node, const struct niclab_frame_head *head)
{
	struct niclab_partner *peer = &rings->peers[node];
	u32 every = rings->terms.acknowledge_every ? rings->terms.acknowledge_every : NICLAB_STALE_FRAMES;
	u8 source = head->source_port >> NICLAB_INCARNATION_SHIFT;
	u8 target = head->target_port >> NICLAB_INCARNATION_SHIFT;

	if (source != peer->incarnation) {
		if (!source || (peer->incarnation && !niclab_active_is_later(source, peer->incarnation)))
			return false;
		if (peer->incarnation)
			niclab_active_restart_peer(rings, node);
		peer->incarnation = source;
	}
	if (!target || target == rings->incarnation)
		return true;
	/*
	 * The sender does not know this driver yet. Not every frame is answered: a node reserves a buffer for one
	 * answer.
	 */
	if ((head->kind & NICLAB_FRAME_KIND_MASK) == NICLAB_FRAME_DATA && !(peer->stale_frames++ % every) &&
	    niclab_ring_free_count(&rings->send))
		niclab_active_answer(rings, node);
	return false;
}

/*
 * The first frame from a node may follow frames that an earlier driver of this node took, so the driver cannot tell
 * whether frames are lost. It returns the sender's window, part of which those earlier frames may have used.
 */
static void niclab_active_meet(struct niclab_rings *rings, struct niclab_partner *peer, u32 number)
{
	if (!peer->is_known && rings->terms.incarnation > 1 && number != 1) {
		peer->taken = number - 1;
		peer->told = peer->taken - rings->terms.acknowledge_every;
	}
	peer->is_known = true;
}

/* Acknowledges a node's frames when an acknowledgement is due and a descriptor is free. */
static void niclab_active_acknowledge(struct niclab_rings *rings, u32 node)
{
	struct niclab_partner *peer = &rings->peers[node];

	if (!rings->terms.acknowledge_every || peer->taken - peer->told < rings->terms.acknowledge_every)
		return;
	if (!niclab_ring_free_count(&rings->send)) {
		rings->is_owing = true;
		return;
	}
	peer->told = peer->taken;
	niclab_active_answer(rings, node);
}

/* Receives one frame of a message. Returns false if it must wait for a buffer. */
static bool niclab_active_on_data(struct niclab_rings *rings, u32 node, const struct niclab_frame_head *head,
				  const void *data, u32 bytes)
{
	struct niclab_partner *peer = &rings->peers[node];
	struct niclab_active *active;
	u32 ahead;

	niclab_active_meet(rings, peer, head->number);
	ahead = head->number - peer->taken;

	active = head->target_port < NICLAB_ACTIVE_PORTS ? rings->ports[head->target_port] : NULL;
	/* Numbers up to half the range below the last one are duplicates. */
	if (!ahead || ahead > U32_MAX / 2) {
		rings->raised[NICLAB_RAISED_OLD]++;
		return true;
	}
	if (head->kind & NICLAB_FRAME_FIRST && active && !niclab_active_is_prompt(active))
		return false;
	peer->taken = head->number;
	if (ahead > 1)
		niclab_active_on_lost(rings, node, ahead - 1, active, head);
	if (peer->has_begun && (head->kind & NICLAB_FRAME_FIRST || head->source_port != peer->source_port ||
				head->target_port != peer->target_port)) {
		rings->raised[NICLAB_RAISED_INCOMPLETE]++;
		niclab_active_tell_error(niclab_active_drop(rings, peer), node, peer->source_port,
					 NICLAB_ACTIVE_ERROR_INCOMPLETE, 0);
	}
	if (head->kind & NICLAB_FRAME_FIRST)
		niclab_active_begin(rings, node, active, head);
	if (peer->has_begun)
		niclab_active_join(rings, node, head, data, bytes);
	niclab_active_acknowledge(rings, node);
	return true;
}

/* Like niclab_active_on_data(), but a frame that must wait is parked after the node's other parked frames. */
static bool niclab_active_on_part(struct niclab_rings *rings, u32 node, const struct niclab_frame_head *head,
				  const void *data, u32 bytes)
{
	struct niclab_partner *peer = &rings->peers[node];

	return (!niclab_park_first(peer) && niclab_active_on_data(rings, node, head, data, bytes)) ||
	       niclab_park_put(rings, peer, head, data, bytes);
}

/* Retries parked frames: they find a buffer, or their timeout has passed. Returns whether any frame was taken. */
static bool niclab_active_unpark(struct niclab_rings *rings)
{
	struct niclab_parked *parked;
	bool any = false;
	u32 node;

	for (node = 0; rings->parked && node < rings->nic->config.nodes; node++)
		while ((parked = niclab_park_first(&rings->peers[node])) &&
		       niclab_active_on_data(rings, node, &parked->head, parked->data, parked->bytes)) {
			niclab_park_drop(rings, parked);
			any = true;
		}
	return any;
}

/* Processes an acknowledgement: the node has taken all frames up to @number. */
static void niclab_active_on_acknowledgement(struct niclab_rings *rings, u32 node, u32 number)
{
	struct niclab_partner *peer = &rings->peers[node];
	u32 acknowledged = number - peer->acknowledged;

	if (acknowledged && acknowledged <= peer->sent - peer->acknowledged)
		peer->acknowledged = number;
	else
		rings->raised[NICLAB_RAISED_STRAY]++;
}

/* The source node of a valid frame; an error if it is not a frame of active ports. */
static int niclab_active_source(const struct niclab_rings *rings, const struct niclab_frame *frame)
{
	const struct niclab_device_config *config = &rings->nic->config;
	const u8 *source = frame->ethernet.h_source;
	u32 node = source[4] << 8 | source[5];
	int i;

	if (frame->ethernet.h_proto != htons(NICLAB_ACTIVE_ETHER_TYPE) ||
	    frame->head.protocol != rings->terms.protocol ||
	    node >= config->nodes || node == config->node)
		return -ENOENT;
	for (i = 0; i < 4; i++)
		if (source[i] != (u8)(config->mac >> 8 * i))
			return -ENOENT;
	return node;
}

/* Receives a data frame or an acknowledgement. Returns false if it must wait for a buffer. */
static bool niclab_active_on_frame(struct niclab_rings *rings, u32 node, const struct niclab_frame *frame, u32 bytes)
{
	struct niclab_partner *peer = &rings->peers[node];
	struct niclab_frame_head head = frame->head;
	u32 begun = peer->begun;

	if (!niclab_active_is_current(rings, node, &head)) {
		rings->raised[NICLAB_RAISED_OLD]++;
		return true;
	}
	head.source_port &= NICLAB_PORT_MASK;
	head.target_port &= NICLAB_PORT_MASK;
	if ((head.kind & NICLAB_FRAME_KIND_MASK) == NICLAB_FRAME_DATA)
		return niclab_active_on_part(rings, node, &head, frame + 1, bytes - sizeof(*frame));
	/* An acknowledgement that restarts the peer refers to numbers that are no longer valid. */
	if ((head.kind & NICLAB_FRAME_KIND_MASK) == NICLAB_FRAME_ACKNOWLEDGEMENT && begun == peer->begun &&
	    (head.number || peer->acknowledged))
		niclab_active_on_acknowledgement(rings, node, head.number);
	return true;
}

/* Whether a frame belongs to another protocol and goes to the network interface. */
static bool niclab_active_is_other(const struct niclab_frame *frame, u32 status, u32 bytes)
{
	return !(status & NICLAB_RING_ERROR) && bytes >= ETH_HLEN &&
	       frame->ethernet.h_proto != htons(NICLAB_ACTIVE_ETHER_TYPE);
}

/* Takes the next frame out of the ring. Returns false if there is none, or if it must wait for a buffer. */
static bool niclab_active_take(struct niclab_rings *rings)
{
	const struct niclab_frame *frame;
	u32 status, bytes;
	int node;

	frame = niclab_ring_poll(rings, &status);
	if (!frame)
		return false;
	bytes = min(status >> NICLAB_RING_LENGTH_SHIFT & 0x3fff, NICLAB_FRAME_BYTES);
	if (status & NICLAB_RING_STATUS_DAMAGED)
		rings->raised[NICLAB_RAISED_DAMAGED]++;
	if (niclab_active_is_other(frame, status, bytes)) {
		niclab_net_take(rings, frame, bytes);
	} else if (!(status & NICLAB_RING_ERROR) && bytes >= sizeof(*frame) && bytes <= rings->terms.frame_bytes) {
		node = niclab_active_source(rings, frame);
		if (node >= 0 && !niclab_active_on_frame(rings, node, frame, bytes))
			return false;
	}
	niclab_ring_return(rings);
	return true;
}

/* Sends the acknowledgements for which there was no descriptor. */
static void niclab_active_settle(struct niclab_rings *rings)
{
	u32 node;

	if (!rings->is_owing)
		return;
	rings->is_owing = false;
	for (node = 0; node < rings->nic->config.nodes; node++)
		niclab_active_acknowledge(rings, node);
}

/**
 * niclab_active_poll - polls both rings, and does not notify the card of frames that it is given.
 * @rings: the rings, locked.
 * @until: stops once this port has a message or an error; NULL: takes all frames.
 *
 * Return: whether frames were taken, or are still pending.
 */
bool niclab_active_poll(struct niclab_rings *rings, struct niclab_active *until)
{
	u32 left = rings->receive.count;
	u32 status;
	bool any;

	lockdep_assert_held(&rings->lock);
	if (rings->is_stopped)
		return false;
	niclab_ring_reap(rings);
	niclab_active_settle(rings);
	any = niclab_active_unpark(rings);
	niclab_net_measure(rings);
	while (left-- && !(until && until->put != until->got) && niclab_active_take(rings))
		any = true;
	return any || rings->parked || niclab_ring_poll(rings, &status);
}

/**
 * niclab_active_serve - polls both rings, and notifies the card of the frames that it has.
 * @rings: the rings, locked.
 * @until: as for niclab_active_poll().
 *
 * Return: as niclab_active_poll().
 */
bool niclab_active_serve(struct niclab_rings *rings, struct niclab_active *until)
{
	bool any = niclab_active_poll(rings, until);

	niclab_ring_demand(rings);
	return any;
}

/**
 * niclab_active_serve_others - takes frames of other protocols, up to the first of an active port.
 * @rings: the rings, locked.
 */
void niclab_active_serve_others(struct niclab_rings *rings)
{
	u32 left = rings->receive.count;
	const void *frame;
	u32 status;

	niclab_ring_reap(rings);
	niclab_net_measure(rings);
	while (left--) {
		frame = niclab_ring_poll(rings, &status);
		if (!frame || !niclab_active_is_other(frame, status, status >> NICLAB_RING_LENGTH_SHIFT & 0x3fff) ||
		    !niclab_active_take(rings))
			return;
	}
}

/**
 * niclab_active_count_others - counts frames of other protocols in the ring.
 * @rings: the rings, locked.
 *
 * Return: their number.
 */
u32 niclab_active_count_others(const struct niclab_rings *rings)
{
	u32 others = 0, ahead = 0;
	void *frame;

	while (niclab_ring_peek(rings, ahead++, &frame))
		others += frame && ((struct niclab_frame *)frame)->ethernet.h_proto != htons(NICLAB_ACTIVE_ETHER_TYPE);
	return others;
}

/* Takes back a buffer that the program has finished reading. */
static int niclab_active_give_back(struct niclab_active *active, u32 buffer)
{
	if (buffer == NICLAB_ACTIVE_NO_BUFFER)
		return 0;
	if (buffer >= active->buffers || !test_and_clear_bit(buffer, active->lent))
		return -EINVAL;
	clear_bit(buffer, active->busy);
	active->full_since = 0;
	active->is_slow = false;
	return 0;
}

/* Takes the next message or error, with the rings locked. */
static int niclab_active_next(struct niclab_active *active, struct niclab_active_receive *event)
{
	if (active->rings->is_stopped)
		return -ENODEV;
	if (active->put == active->got)
		niclab_active_serve(active->rings, active);
	if (active->put == active->got)
		return -EAGAIN;
	*event = active->events[active->got++ % active->capacity];
	if (event->buffer != NICLAB_ACTIVE_NO_BUFFER)
		set_bit(event->buffer, active->lent);
	return 0;
}

/*
 * Sleeps until there is a message or an error, or until the program's timeout. The rings are locked on entry and on
 * return.
 */
static int niclab_active_wait(struct niclab_active *active, struct niclab_active_receive *event)
{
	long left = msecs_to_jiffies(event->timeout_ms) + 1;
	struct niclab_rings *rings = active->rings;
	int err = -EAGAIN;
	bool is_called;

	while (err == -EAGAIN && left && !niclab_is_dead(rings->nic)) {
		mutex_unlock(&rings->lock);
		is_called = niclab_ring_sleep(rings, active, &left);
		mutex_lock(&rings->lock);
		/* Take all frames: this program was woken also for frames of other ports. */
		if (is_called && niclab_active_serve(rings, NULL))
			niclab_ring_poll_later(rings);
		err = niclab_active_next(active, event);
	}
	return err;
}

/**
 * niclab_active_receive - returns a buffer, and takes the next message or error.
 * @file: the file.
 * @user: the argument of NICLAB_IOCTL_ACTIVE_RECEIVE.
 *
 * Return: 0, or the error of that request.
 */
int niclab_active_receive(struct niclab_file *file, void __user *user)
{
	struct niclab_active *active = READ_ONCE(file->active);
	struct niclab_active_receive event;
	int err;

	if (!active)
		return -ENOTCONN;
	if (copy_from_user(&event, user, sizeof(event)))
		return -EFAULT;
	if (event.reserved)
		return -EINVAL;
	if (mutex_lock_killable(&active->rings->lock))
		return -EINTR;
	err = active->rings->is_stopped ? -ENODEV : niclab_active_give_back(active, event.buffer);
	if (!err)
		err = niclab_active_next(active, &event);
	if (err == -EAGAIN && event.timeout_ms && active->rings->terms.interrupt_frames)
		err = niclab_active_wait(active, &event);
	mutex_unlock(&active->rings->lock);
	return !err && copy_to_user(user, &event, sizeof(event)) ? -EFAULT : err;
}

/**
 * niclab_active_is_ready - whether a file's active port has a message or an error.
 * @file: the file.
 *
 * Return: true if it has; false if not, or if the file has no active port.
 */
bool niclab_active_is_ready(struct niclab_file *file)
{
	struct niclab_active *active = READ_ONCE(file->active);
	bool is_ready;

	if (!active)
		return false;
	mutex_lock(&active->rings->lock);
	if (active->put == active->got)
		niclab_active_serve(active->rings, active);
	is_ready = active->put != active->got;
	mutex_unlock(&active->rings->lock);
	return is_ready;
}

/* Detaches a port: messages for it are dropped and counted, and its sent messages are completed without it. */
static void niclab_active_leave(struct niclab_active *active)
{
	struct niclab_rings *rings = active->rings;
	struct niclab_partner *peer;
	u32 i;

	for (i = 0; i < rings->nic->config.nodes; i++) {
		peer = &rings->peers[i];
		if (!peer->has_begun || peer->target_port != active->port)
			continue;
		peer->has_begun = false;
		rings->raised[NICLAB_RAISED_UNWANTED]++;
	}
	for (; active->got < active->put; active->got++)
		if (!active->events[active->got % active->capacity].errors)
			rings->raised[NICLAB_RAISED_UNWANTED]++;
	for (i = 0; i < rings->send.count; i++)
		if (rings->sendings[i] && rings->sendings[i]->active == active)
			rings->sendings[i]->active = NULL;
	rings->ports[active->port] = NULL;
}

/**
 * niclab_active_close - closes a file's active port: its messages are dropped and counted.
 * @file: the file, with no call in progress. Without an active port nothing happens.
 */
void niclab_active_close(struct niclab_file *file)
{
	struct niclab_active *active = file->active;

	if (!active)
		return;
	mutex_lock(&active->rings->lock);
	if (!active->rings->is_stopped) {
		niclab_ring_demand(active->rings);
		niclab_active_leave(active);
		/* Messages sent without blocking stay pinned until they have left. */
		if (active->sendings)
			mod_delayed_work(system_unbound_wq, &active->rings->work, 1);
	}
	mutex_unlock(&active->rings->lock);
	niclab_active_free(file->nic, active);
}

/**
 * niclab_active_stop - detaches all ports of a card that the driver releases.
 * @rings: the rings, locked and stopped.
 */
void niclab_active_stop(struct niclab_rings *rings)
{
	u32 port, i;

	for (i = 0; rings->sendings && i < rings->send.count; i++)
		if (rings->sendings[i])
			rings->sendings[i]->active = NULL;
	for (port = 0; port < NICLAB_ACTIVE_PORTS; port++)
		rings->ports[port] = NULL;
}
