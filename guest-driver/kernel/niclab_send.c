// SPDX-License-Identifier: GPL-2.0
/*
 * Active ports: the send path. A message is cut into frames. The head of each frame is in the driver's memory. Its
 * message data stays in the program's memory, pinned until the card has read it. Only memory above 4 GiB, which the
 * card cannot address, is copied.
 */
#include <linux/delay.h>
#include <linux/highmem.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "niclab_ring.h"

/* Polls without progress before the sender sleeps for a pause. */
#define NICLAB_SEND_LOOKS 256U
#define NICLAB_SEND_PAUSE_US 20U

/* A frame's data may cross a page boundary, and then takes two descriptors. */
#define NICLAB_SEND_PIECES 2U

/**
 * struct niclab_outgoing - a message that is being put into the ring.
 * @argument: the program's request.
 * @sending: state that outlives the system call.
 * @peer: its target node.
 * @offset: bytes of it given to the card so far.
 * @is_given: all of it was given to the card.
 * @limit: time limit.
 * @looks: polls without progress.
 * @begun: &niclab_partner.begun when its first frame was sent.
 */
struct niclab_outgoing {
	struct niclab_active_send argument;
	struct niclab_sending *sending;
	struct niclab_partner *peer;
	u32 offset;
	bool is_given;
	struct niclab_limit limit;
	u32 looks;
	u32 begun;
};

static void niclab_send_free_copy(struct niclab_sending *sending)
{
	while (sending->copied)
		__free_page(sending->copy[--sending->copied]);
	kvfree(sending->copy);
	sending->copy = NULL;
}

/**
 * niclab_sending_put - frees a message that has left, if its system call has returned.
 * @rings: the rings, locked.
 * @sending: the message.
 */
void niclab_sending_put(struct niclab_rings *rings, struct niclab_sending *sending)
{
	if (sending->descriptors || sending->is_held)
		return;
	if (sending->active)
		sending->active->sendings--;
	if (sending->region)
		niclab_region_free(rings->nic, sending->region);
	niclab_send_free_copy(sending);
	kfree(sending);
}

/* Number of frames that the window allows to a node now. */
static u32 niclab_send_room(const struct niclab_rings *rings, const struct niclab_partner *peer)
{
	u32 in_flight = peer->sent - peer->acknowledged;

	if (!rings->terms.window)
		return U32_MAX;
	return rings->terms.window > in_flight ? rings->terms.window - in_flight : 0;
}

/* Whether the card can address all of the memory. */
static bool niclab_send_is_low(const struct niclab_region *region)
{
	unsigned long i;

	for (i = 0; i < region->count; i++)
		if (page_to_phys(region->pages[i]) > U32_MAX)
			return false;
	return true;
}

/* Finds the memory of a part of the message. Returns its number of pieces. */
static u32 niclab_send_pieces(const struct niclab_sending *sending, u32 offset, u32 bytes, struct niclab_piece *pieces)
{
	struct page *const *pages = sending->copy ? sending->copy : sending->region ? sending->region->pages : NULL;
	u64 at = offset + (sending->region ? sending->region->offset : 0);
	u32 count = 0;

	for (; bytes && count < NICLAB_SEND_PIECES; count++) {
		pieces[count].address = page_to_phys(pages[at >> PAGE_SHIFT]) + offset_in_page(at);
		pieces[count].bytes = min_t(u32, bytes, PAGE_SIZE - offset_in_page(at));
		bytes -= pieces[count].bytes;
		at += pieces[count].bytes;
	}
	return count;
}

/* Gives frames of a message to the card, as far as window and free descriptors allow. */
static bool niclab_send_push(struct niclab_rings *rings, struct niclab_outgoing *out)
{
	const struct niclab_active_send *argument = &out->argument;
	struct niclab_piece pieces[NICLAB_SEND_PIECES];
	struct niclab_frame_head head;
	bool any = false;
	u32 bytes, count;

	if (!out->offset)
		out->begun = out->peer->begun;
	/* The first frames went to a driver that has been replaced. */
	if (out->begun != out->peer->begun)
		return false;
	while (!out->is_given && niclab_send_room(rings, out->peer) &&
	       niclab_ring_active_room(rings) >= NICLAB_SEND_PIECES) {
		bytes = min(argument->bytes - out->offset, niclab_part_bytes(rings));
		out->is_given = out->offset + bytes == argument->bytes;
		head = (struct niclab_frame_head){
			.protocol = rings->terms.protocol,
			.kind = NICLAB_FRAME_DATA | (out->offset ? 0 : NICLAB_FRAME_FIRST) |
				(out->is_given ? NICLAB_FRAME_LAST : 0),
			.source_port = out->sending->active->port,
			.target_port = argument->port,
			.number = ++out->peer->sent,
		};
		count = niclab_send_pieces(out->sending, out->offset, bytes, pieces);
		niclab_ring_post(rings, argument->node, &head, pieces, count, out->offset ? 0 : argument->bytes,
				 out->sending);
		out->offset += bytes;
		any = true;
	}
	if (!out->is_given || !(argument->flags & NICLAB_ACTIVE_SEND_MORE))
		niclab_ring_demand(rings);
	return any;
}

/* Waits briefly without the lock, then polls the rings, because no other thread may do so. */
static int niclab_send_wait(struct niclab_rings *rings, struct niclab_outgoing *out)
{
	mutex_unlock(&rings->lock);
	if (++out->looks < NICLAB_SEND_LOOKS) {
		cpu_relax();
		cond_resched();
	} else {
		usleep_range(NICLAB_SEND_PAUSE_US, 2 * NICLAB_SEND_PAUSE_US);
	}
	mutex_lock(&rings->lock);
	if (rings->is_stopped)
		return -ENODEV;
	if (fatal_signal_pending(current))
		return -EINTR;
	niclab_active_serve(rings, NULL);
	return niclab_limit_is_over(&out->limit) ? -ETIMEDOUT : 0;
}

/* Gives a message to the card. If the program blocks, waits until it has left. The rings are locked. */
static int niclab_send_locked(struct niclab_rings *rings, struct niclab_outgoing *out)
{
	bool is_blocking = out->argument.flags & NICLAB_ACTIVE_SEND_BLOCK;
	int err = rings->is_stopped ? -ENODEV : 0;

	if (!err && !is_blocking) {
		niclab_active_poll(rings, NULL);
		/*
		 * Once begun, a message waits for its remaining window, because its receiver returns whole windows
		 * only.
		 */
		if (!niclab_send_room(rings, out->peer) || niclab_ring_active_room(rings) < NICLAB_SEND_PIECES) {
			niclab_ring_demand(rings);
			err = -EAGAIN;
		}
	}
	while (!err) {
		if (niclab_send_push(rings, out))
			out->looks = 0;
		if (out->is_given && (!is_blocking || !out->sending->descriptors))
			break;
		if (!out->is_given && out->begun != out->peer->begun) {
			err = -ECONNRESET;
			break;
		}
		err = niclab_send_wait(rings, out);
	}
	if (err == -ETIMEDOUT)
		rings->raised[NICLAB_RAISED_STALLED]++;
	if (!err && out->sending->is_refused)
		err = -EIO;
	return err;
}

/* Copies a message to memory below 4 GiB: the card has 32-bit addresses. */
static int niclab_send_copy(struct niclab_sending *sending, const struct niclab_active_send *argument)
{
	unsigned long count = DIV_ROUND_UP(argument->bytes, PAGE_SIZE);
	const void __user *from = u64_to_user_ptr(argument->address);
	struct page *page;
	size_t bytes;

	sending->copy = kvcalloc(count, sizeof(*sending->copy), GFP_KERNEL_ACCOUNT);
	if (!sending->copy)
		return -ENOMEM;
	while (sending->copied < count) {
		page = alloc_page(GFP_KERNEL_ACCOUNT | GFP_DMA32);
		if (!page)
			return -ENOMEM;
		bytes = min_t(size_t, argument->bytes - sending->copied * PAGE_SIZE, PAGE_SIZE);
		sending->copy[sending->copied] = page;
		if (copy_from_user(page_address(page), from + sending->copied++ * PAGE_SIZE, bytes))
			return -EFAULT;
	}
	return 0;
}

/* Pins the memory of a message, or copies it. */
static struct niclab_sending *niclab_sending_alloc(struct niclab *nic, const struct niclab_active_send *argument)
{
	struct niclab_sending *sending = kzalloc(sizeof(*sending), GFP_KERNEL_ACCOUNT);
	struct niclab_region *region = NULL;
	int err = 0;

	if (!sending)
		return ERR_PTR(-ENOMEM);
	if (argument->bytes)
		region = niclab_region_alloc(argument->address, argument->bytes, false);
	if (IS_ERR(region)) {
		err = PTR_ERR(region);
	} else if (region && !niclab_send_is_low(region)) {
		niclab_region_free(nic, region);
		region = NULL;
		err = niclab_send_copy(sending, argument);
	}
	if (err) {
		niclab_send_free_copy(sending);
		kfree(sending);
		return ERR_PTR(err);
	}
	sending->region = region;
	sending->is_held = true;
	return sending;
}

static int niclab_send_check(struct niclab *nic, const struct niclab_active_send *argument)
{
	/* Either flag, not both: a message that has left was announced. */
	if (argument->reserved || argument->flags > NICLAB_ACTIVE_SEND_MORE || argument->node >= nic->config.nodes ||
	    argument->node == nic->config.node || argument->port >= NICLAB_ACTIVE_PORTS)
		return -EINVAL;
	return argument->bytes > NICLAB_ACTIVE_PORT_MAX_MESSAGE_BYTES ? -EMSGSIZE : 0;
}

/* Sends a message whose memory is pinned. */
static int niclab_send_message(struct niclab_active *active, struct niclab_outgoing *out)
{
	struct niclab_rings *rings = active->rings;
	int err = 0;

	if (!(out->argument.flags & NICLAB_ACTIVE_SEND_BLOCK))
		err = mutex_trylock(&out->peer->sender) ? 0 : -EAGAIN;
	else if (mutex_lock_killable(&out->peer->sender))
		err = -EINTR;
	mutex_lock(&rings->lock);
	out->sending->active = active;
	active->sendings++;
	rings->raised[NICLAB_RAISED_COPIED] += !!out->sending->copy;
	if (!err) {
		err = niclab_send_locked(rings, out);
		mutex_unlock(&out->peer->sender);
	}
	out->sending->is_held = false;
	niclab_sending_put(rings, out->sending);
	mutex_unlock(&rings->lock);
	return err;
}

/**
 * niclab_active_send - sends a message from a file's active port.
 * @file: the file.
 * @user: the argument of NICLAB_IOCTL_ACTIVE_SEND.
 *
 * Return: 0, or the error of that request.
 */
int niclab_active_send(struct niclab_file *file, void __user *user)
{
	struct niclab_active *active = READ_ONCE(file->active);
	struct niclab_outgoing out = {};
	int err;

	if (!active)
		return -ENOTCONN;
	if (copy_from_user(&out.argument, user, sizeof(out.argument)))
		return -EFAULT;
	err = niclab_send_check(file->nic, &out.argument);
	if (err)
		return err;
	out.sending = niclab_sending_alloc(file->nic, &out.argument);
	if (IS_ERR(out.sending))
		return PTR_ERR(out.sending);
	out.peer = &active->rings->peers[out.argument.node];
	niclab_limit_begin(&out.limit, out.argument.timeout_ms);
	return niclab_send_message(active, &out);
}

/**
 * niclab_active_flush - waits until all messages sent by a file's active port have left.
 * @file: the file.
 * @user: the argument of NICLAB_IOCTL_ACTIVE_FLUSH.
 *
 * Return: 0, or the error of that request.
 */
int niclab_active_flush(struct niclab_file *file, void __user *user)
{
	struct niclab_active *active = READ_ONCE(file->active);
	struct niclab_outgoing out = {};
	int err;

	if (!active)
		return -ENOTCONN;
	if (copy_from_user(&out.argument, user, sizeof(out.argument)))
		return -EFAULT;
	niclab_limit_begin(&out.limit, out.argument.timeout_ms);
	mutex_lock(&active->rings->lock);
	err = active->rings->is_stopped ? -ENODEV : 0;
	niclab_ring_demand(active->rings);
	niclab_ring_reap(active->rings);
	if (!err && active->sendings && !out.argument.timeout_ms)
		err = -EAGAIN;
	while (!err && active->sendings)
		err = niclab_send_wait(active->rings, &out);
	mutex_unlock(&active->rings->lock);
	return err;
}
