// SPDX-License-Identifier: GPL-2.0
/*
 * Frames of messages for which their programs have no buffer: they are copied out of the ring, and wait beside it, each
 * node's in their order. So neither other protocols nor other nodes wait with them, and the ring's buffers go back to
 * the card.
 *
 * A node has no more frames on their way than its window has, and gets none of it back for frames that wait: all of
 * them fit into what buffers active ports have. Without windows frames beyond that wait in the ring.
 */
#include <linux/slab.h>

#include "niclab_ring.h"

/**
 * niclab_park_put - has a frame wait for a buffer.
 * @rings: the rings, locked.
 * @peer: the node that it is of.
 * @head: its head, with ports alone.
 * @data: its part of a message.
 * @bytes: length of that, a frame's at most.
 *
 * Return: whether it waits now; false where no more may.
 */
bool niclab_park_put(struct niclab_rings *rings, struct niclab_partner *peer, const struct niclab_frame_head *head,
		     const void *data, u32 bytes)
{
	struct niclab_parked *parked;

	/* What a node without a window sends on and on, to a program that takes nothing, would take all memory. */
	if (rings->parked >= rings->terms.receive_buffers - min(rings->terms.other_buffers, rings->terms.receive_buffers))
		return false;
	parked = kmalloc(struct_size(parked, data, bytes), GFP_KERNEL | __GFP_NOWARN);
	if (!parked)
		return false;
	parked->head = *head;
	parked->bytes = bytes;
	memcpy(parked->data, data, bytes);
	list_add_tail(&parked->entry, &peer->parked);
	rings->parked++;
	rings->raised[NICLAB_RAISED_PARKED]++;
	return true;
}

/**
 * niclab_park_first - the frame of a node that has waited longest.
 * @peer: the node.
 *
 * Return: the frame, which stays until niclab_park_drop(); NULL where none waits.
 */
struct niclab_parked *niclab_park_first(const struct niclab_partner *peer)
{
	return list_first_entry_or_null(&peer->parked, struct niclab_parked, entry);
}

/**
 * niclab_park_drop - a frame waits no longer.
 * @rings: the rings, locked.
 * @parked: the frame.
 */
void niclab_park_drop(struct niclab_rings *rings, struct niclab_parked *parked)
{
	list_del(&parked->entry);
	kfree(parked);
	rings->parked--;
}

/**
 * niclab_park_empty - no frame of a node waits any longer.
 * @rings: the rings, locked.
 * @peer: the node.
 */
void niclab_park_empty(struct niclab_rings *rings, struct niclab_partner *peer)
{
	struct niclab_parked *parked;

	while ((parked = niclab_park_first(peer)))
		niclab_park_drop(rings, parked);
}
