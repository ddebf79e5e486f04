// SPDX-License-Identifier: GPL-2.0
/*
 * Parked frames: frames of messages for which their programs have no free buffer. The driver copies them out of the
 * ring and keeps them in order, per node. So neither other protocols nor other nodes wait for them, and the ring's
 * buffers go back to the card.
 *
 * A node has no more frames in flight than its window, and parked frames are not acknowledged. So they always fit into
 * the share of buffers that active ports have. Without windows, frames beyond that share wait in the ring.
 */
#include <linux/slab.h>

#include "niclab_ring.h"

/**
 * niclab_park_put - parks a frame until a buffer is free.
 * @rings: the rings, locked.
 * @peer: its source node.
 * @head: its head, with the incarnation bits removed from the ports.
 * @data: its message data.
 * @bytes: length of the data.
 *
 * Return: true if the frame is parked; false if the limit is reached or memory is short.
 */
bool niclab_park_put(struct niclab_rings *rings, struct niclab_partner *peer, const struct niclab_frame_head *head,
		     const void *data, u32 bytes)
{
	struct niclab_parked *parked;

	/*
	 * Attack: without a window, a node that never stops sending to a program that takes nothing would use up all
	 * memory.
	 */
	if (rings->parked >=
	    rings->terms.receive_buffers - min(rings->terms.other_buffers, rings->terms.receive_buffers))
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
 * niclab_park_first - the oldest parked frame of a node.
 * @peer: the node.
 *
 * Return: the frame, which stays until niclab_park_drop(); NULL if the node has none.
 */
struct niclab_parked *niclab_park_first(const struct niclab_partner *peer)
{
	return list_first_entry_or_null(&peer->parked, struct niclab_parked, entry);
}

/**
 * niclab_park_drop - frees a parked frame.
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
 * niclab_park_empty - frees all parked frames of a node.
 * @rings: the rings, locked.
 * @peer: the node.
 */
void niclab_park_empty(struct niclab_rings *rings, struct niclab_partner *peer)
{
	struct niclab_parked *parked;

	while ((parked = niclab_park_first(peer)))
		niclab_park_drop(rings, parked);
}
