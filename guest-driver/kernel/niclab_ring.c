// SPDX-License-Identifier: GPL-2.0
/*
 * Descriptor rings: frames that the card reads and stores by itself.
 *
 * The card has 32-bit addresses. Storing the first word of a descriptor, which the driver does last, gives the
 * descriptor to the card; the card returns it by the same word. The driver announces frames to send by notifying queue
 * 2, which never holds a chain. It need not announce free receive descriptors: the card checks for them at each frame.
 */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/virtio_ring.h>

#include "niclab_ring.h"

/*
 * After frames have arrived the driver polls again, because the card does not interrupt a driver that it believes to be
 * busy. The card decides that in model time: a frame that arrives later in wall time may still be within the busy
 * period. So with interrupting cards the driver never stops polling, at the slow interval.
 */
#define NICLAB_POLL_AGAIN_JIFFIES 1
#define NICLAB_POLL_RARELY_JIFFIES (HZ / 50)

/* Maximum number of buffers that a card may request. */
#define NICLAB_MAX_RECEIVE 65536U

static u64 *niclab_ring_descriptor(const struct niclab_ring *ring, u64 number)
{
	return ring->words + (number % ring->count) * NICLAB_RING_STRIDE;
}

static size_t niclab_ring_bytes(const struct niclab_ring *ring)
{
	return ring->count * NICLAB_RING_STRIDE * sizeof(u64);
}

/* Allocates memory that the card reads or writes. */
static void *niclab_ring_alloc_pages(size_t bytes)
{
	return alloc_pages_exact(bytes, GFP_KERNEL | GFP_DMA32 | __GFP_ZERO);
}

static int niclab_ring_alloc(struct niclab_ring *ring, u32 count)
{
	ring->count = count;
	ring->words = niclab_ring_alloc_pages(niclab_ring_bytes(ring));
	return ring->words ? 0 : -ENOMEM;
}

/* Gives the next descriptor, which the driver must own, to the card. */
static void niclab_ring_give(struct niclab_ring *ring, const struct niclab_piece *pieces, u64 flags, u64 message)
{
	u64 *words = niclab_ring_descriptor(ring, ring->given);
	u64 control = flags | NICLAB_RING_OWN | (u64)pieces[0].bytes << NICLAB_RING_SIZE_SHIFT |
		      (u64)pieces[1].bytes << NICLAB_RING_SECOND_SIZE_SHIFT;

	ring->given++;
	if (!(ring->given % ring->count))
		control |= NICLAB_RING_END;
	WRITE_ONCE(words[1], (u64)pieces[1].address << 32 | pieces[0].address);
	WRITE_ONCE(words[NICLAB_RING_MESSAGE_WORD], message);
	smp_store_release(&words[0], control);
}

/* Whether the card has returned the oldest descriptor that the driver gave it, with its status. */
static bool niclab_ring_is_back(const struct niclab_ring *ring, u32 *status)
{
	u64 word;

	if (ring->given == ring->taken)
		return false;
	word = smp_load_acquire(niclab_ring_descriptor(ring, ring->taken));
	*status = (u32)word;
	return !(word & NICLAB_RING_OWN);
}

static void *niclab_ring_buffer(const struct niclab_rings *rings, u64 number)
{
	u32 place = number % rings->receive.count;

	return rings->pages[place / 2] + place % 2 * NICLAB_FRAME_BYTES;
}

/* Gives the next receive descriptor and its buffer to the card. */
static void niclab_ring_give_buffer(struct niclab_rings *rings)
{
	struct niclab_piece pieces[2] = { {
		.address = virt_to_phys(niclab_ring_buffer(rings, rings->receive.given)),
		.bytes = NICLAB_RING_MAX_BUFFER_BYTES,
	} };

	niclab_ring_give(&rings->receive, pieces, 0, 0);
}

static void niclab_ring_address(u8 *address, u64 mac, u32 node)
{
	int i;

	for (i = 0; i < 4; i++)
		address[i] = mac >> 8 * i;
	address[4] = node >> 8;
	address[5] = node;
}

/**
 * niclab_ring_post - gives a frame to the card without notifying it.
 * @rings: the rings, locked, with a free descriptor for each piece, at least one.
 * @node: its target node.
 * @head: its head.
 * @pieces: memory of its message data, at most two pieces.
 * @count: number of pieces.
 * @message_bytes: length of the message that begins in this frame; zero if none does.
 * @sending: the message, or NULL.
 */
void niclab_ring_post(struct niclab_rings *rings, u32 node, const struct niclab_frame_head *head,
		      const struct niclab_piece *pieces, u32 count, u32 message_bytes, struct niclab_sending *sending)
{
	u64 message = rings->receive.taken << NICLAB_RING_RECEIVED_SHIFT | message_bytes;
	struct niclab_ring *ring = &rings->send;
	u32 descriptors = max(count, 1U);
	u64 mac = rings->nic->config.mac;
	struct niclab_piece both[2];
	struct niclab_frame *frame;
	u32 place, i;
	u64 flags;

	for (i = 0; i < descriptors; i++) {
		place = ring->given % ring->count;
		frame = rings->heads + place * NICLAB_HEAD_BYTES;
		memset(both, 0, sizeof(both));
		if (!i) {
			niclab_ring_address(frame->ethernet.h_dest, mac, node);
			niclab_ring_address(frame->ethernet.h_source, mac, rings->nic->config.node);
			frame->ethernet.h_proto = htons(NICLAB_ACTIVE_ETHER_TYPE);
			frame->head = *head;
			frame->head.source_port |= rings->incarnation << NICLAB_INCARNATION_SHIFT;
			frame->head.target_port |= rings->peers[node].incarnation << NICLAB_INCARNATION_SHIFT;
			both[0] = (struct niclab_piece){ .address = virt_to_phys(frame), .bytes = sizeof(*frame) };
		}
		if (i < count)
			both[!i] = pieces[i];
		flags = (!i ? NICLAB_RING_FIRST : 0) | (i + 1 == descriptors ? NICLAB_RING_LAST : 0);
		rings->sendings[place] = sending;
		if (sending)
			sending->descriptors++;
		niclab_ring_give(ring, both, flags, !i ? message : 0);
	}
	rings->is_demanding = true;
}

/**
 * niclab_ring_post_other - gives a frame of another protocol to the card without notifying it.
 * @rings: the rings, locked, with a free descriptor.
 * @piece: the frame.
 */
void niclab_ring_post_other(struct niclab_rings *rings, const struct niclab_piece *piece)
{
	struct niclab_piece both[2] = { *piece };

	rings->sendings[rings->send.given % rings->send.count] = &rings->other;
	rings->other.descriptors++;
	niclab_ring_give(&rings->send, both, NICLAB_RING_FIRST | NICLAB_RING_LAST, 0);
	rings->is_demanding = true;
}

/**
 * niclab_ring_demand - notifies the card of frames that it was given.
 * @rings: the rings, locked.
 */
void niclab_ring_demand(struct niclab_rings *rings)
{
	if (!rings->is_demanding || rings->is_stopped)
		return;
	rings->is_demanding = false;
	virtqueue_notify(rings->nic->queues[NICLAB_QUEUE_TRANSMIT]);
}

/**
 * niclab_ring_reap - takes back descriptors of frames that have left.
 * @rings: the rings, locked.
 */
void niclab_ring_reap(struct niclab_rings *rings)
{
	struct niclab_ring *ring = &rings->send;
	struct niclab_sending *sending;
	u32 status;

	while (niclab_ring_is_back(ring, &status)) {
		sending = rings->sendings[ring->taken % ring->count];
		rings->sendings[ring->taken % ring->count] = NULL;
		ring->taken++;
		if (sending == &rings->other)
			niclab_net_on_sent(rings, status);
		else if (status & NICLAB_RING_ERROR)
			rings->raised[NICLAB_RAISED_REFUSED]++;
		if (!sending)
			continue;
		sending->is_refused |= !!(status & NICLAB_RING_ERROR);
		sending->descriptors--;
		niclab_sending_put(rings, sending);
	}
}

/**
 * niclab_ring_peek - reads a received frame without taking it out of the ring.
 * @rings: the rings, locked.
 * @ahead: number of older frames to skip.
 * @frame: the frame; NULL if the descriptor does not end one.
 *
 * Return: whether the card has returned the descriptor.
 */
bool niclab_ring_peek(const struct niclab_rings *rings, u32 ahead, void **frame)
{
	const struct niclab_ring *ring = &rings->receive;
	u64 number = ring->taken + ahead;
	u64 word;

	if (number >= ring->given)
		return false;
	word = smp_load_acquire(niclab_ring_descriptor(ring, number));
	*frame = word & NICLAB_RING_STATUS_LAST ? niclab_ring_buffer(rings, number) : NULL;
	return !(word & NICLAB_RING_OWN);
}

/**
 * niclab_ring_poll - finds the oldest received frame.
 * @rings: the rings, locked.
 * @status: its status from the card.
 *
 * Return: the frame, valid until niclab_ring_return(); NULL if there is none.
 */
void *niclab_ring_poll(struct niclab_rings *rings, u32 *status)
{
	return niclab_ring_is_back(&rings->receive, status) ? niclab_ring_buffer(rings, rings->receive.taken) : NULL;
}

/**
 * niclab_ring_return - gives the buffer of the oldest received frame back to the card.
 * @rings: the rings, locked.
 */
void niclab_ring_return(struct niclab_rings *rings)
{
	rings->receive.taken++;
	niclab_ring_give_buffer(rings);
}

static void niclab_ring_work(struct work_struct *work)
{
	struct niclab_rings *rings = container_of(to_delayed_work(work), struct niclab_rings, work);
	unsigned long pause = rings->terms.interrupt_frames ? NICLAB_POLL_RARELY_JIFFIES : 0;

	mutex_lock(&rings->lock);
	/* Requests from now on need another poll. */
	rings->look_at = jiffies;
	if (!rings->is_stopped) {
		if (niclab_active_serve(rings, NULL))
			pause = NICLAB_POLL_AGAIN_JIFFIES;
		if (pause)
			queue_delayed_work(system_unbound_wq, &rings->work, pause);
	}
	mutex_unlock(&rings->lock);
}

/**
 * niclab_ring_poll_later - schedules another poll shortly after a program took frames out of the ring.
 * @rings: the rings, locked.
 */
void niclab_ring_poll_later(struct niclab_rings *rings)
{
	unsigned long when = jiffies + NICLAB_POLL_AGAIN_JIFFIES;

	if (rings->is_stopped || rings->look_at == when)
		return;
	rings->look_at = when;
	mod_delayed_work(system_unbound_wq, &rings->work, NICLAB_POLL_AGAIN_JIFFIES);
}

/**
 * niclab_ring_interrupt - handles an interrupt for received frames.
 * @nic: the NIC, whose &niclab.event_lock is held. Interrupts are off.
 *
 * The interrupt wakes a sleeping program directly, and the program takes the frames out of the ring itself. A worker
 * that took them would have to wake the program afterwards, which costs one more context switch. It wakes the program
 * that fell asleep last, which most often owns the frame.
 */
void niclab_ring_interrupt(struct niclab *nic)
{
	struct niclab_rings *rings = nic->rings;
	struct niclab_sleeper *sleeper;

	if (!rings || READ_ONCE(rings->is_stopped))
		return;
	sleeper = list_first_entry_or_null(&rings->sleepers, struct niclab_sleeper, entry);
	if (!sleeper) {
		mod_delayed_work(system_unbound_wq, &rings->work, 0);
	} else if (!sleeper->is_called) {
		sleeper->is_called = true;
		wake_up_interruptible(sleeper->wait);
	}
}

/**
 * niclab_ring_sleep - sleeps until frames arrive, or until another thread has taken one for this port.
 * @rings: the rings, not locked, of a card that interrupts.
 * @active: the port, whose file is in use.
 * @left: timeout in jiffies; on return the time left, or zero after a signal.
 *
 * Return: whether the caller must poll the ring, for all ports.
 */
bool niclab_ring_sleep(struct niclab_rings *rings, struct niclab_active *active, long *left)
{
	struct niclab_sleeper sleeper = { .wait = &active->file->wait };
	struct niclab *nic = rings->nic;

	spin_lock_irq(&nic->event_lock);
	list_add(&sleeper.entry, &rings->sleepers);
	spin_unlock_irq(&nic->event_lock);
	*left = wait_event_interruptible_timeout(*sleeper.wait, READ_ONCE(sleeper.is_called) || niclab_is_dead(nic) ||
						 READ_ONCE(rings->is_stopped) ||
						 READ_ONCE(active->put) != READ_ONCE(active->got), *left);
	if (*left < 0)
		*left = 0;
	spin_lock_irq(&nic->event_lock);
	list_del(&sleeper.entry);
	spin_unlock_irq(&nic->event_lock);
	return sleeper.is_called;
}

/* Allocates memory for frames, two in each page. */
static int niclab_ring_alloc_frames(void **pages, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		pages[i] = (void *)__get_free_page(GFP_KERNEL | GFP_DMA32 | __GFP_ZERO);
		if (!pages[i])
			return -ENOMEM;
	}
	return 0;
}

static void niclab_ring_free_frames(void **pages, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		free_page((unsigned long)pages[i]);
}

static int niclab_ring_alloc_all(struct niclab_rings *rings)
{
	u32 buffers = rings->terms.receive_buffers;
	u32 pages = DIV_ROUND_UP(buffers, 2);
	int err = niclab_ring_alloc(&rings->receive, buffers);
	u32 i;

	if (!err)
		err = niclab_ring_alloc(&rings->send, NICLAB_SEND_DESCRIPTORS);
	if (err)
		return err;
	rings->heads = niclab_ring_alloc_pages(NICLAB_SEND_DESCRIPTORS * NICLAB_HEAD_BYTES);
	rings->sendings = kcalloc(NICLAB_SEND_DESCRIPTORS, sizeof(*rings->sendings), GFP_KERNEL);
	rings->pages = kvcalloc(pages, sizeof(*rings->pages), GFP_KERNEL);
	rings->peers = kvcalloc(rings->nic->config.nodes, sizeof(*rings->peers), GFP_KERNEL);
	if (!rings->heads || !rings->sendings || !rings->pages || !rings->peers)
		return -ENOMEM;
	for (i = 0; i < rings->nic->config.nodes; i++) {
		mutex_init(&rings->peers[i].sender);
		INIT_LIST_HEAD(&rings->peers[i].parked);
	}
	err = niclab_ring_alloc_frames(rings->pages, pages);
	return err ? err : niclab_ring_alloc_frames(rings->other_pages, ARRAY_SIZE(rings->other_pages));
}

/* Reads the terms that the cluster's drivers share, and refuses invalid ones. */
static int niclab_ring_agree(struct niclab *nic, struct niclab_ring_terms *terms)
{
	int err = niclab_control(nic, NICLAB_OP_RING_TERMS, NULL, 0, terms, sizeof(*terms));

	if (err)
		return err;
	if (!terms->receive_buffers) {
		dev_err(&nic->dev, "the card has transfer = \"cpu-driven\", which only simulated hosts support; remove that key from the cluster file\n");
		return -EOPNOTSUPP;
	}
	if (terms->receive_buffers > NICLAB_MAX_RECEIVE || terms->protocol > U8_MAX ||
	    terms->frame_bytes <= sizeof(struct niclab_frame) || terms->frame_bytes > NICLAB_RING_MAX_BUFFER_BYTES ||
	    terms->acknowledge_every > terms->window || terms->other_buffers > terms->receive_buffers) {
		dev_err(&nic->dev, "invalid terms: %u buffers, %u of them for other protocols, frames of %u bytes, protocol %u, a window of %u frames, acknowledged after %u; the device daemon is at fault\n",
			terms->receive_buffers, terms->other_buffers, terms->frame_bytes, terms->protocol, terms->window,
			terms->acknowledge_every);
		return -EPROTO;
	}
	return 0;
}

static int niclab_ring_tell(struct niclab *nic, u32 ring, void *words)
{
	struct niclab_ring_start start = {
		.ring = ring,
		.skip_bytes = (NICLAB_RING_STRIDE - 2) * sizeof(u64),
		.first = virt_to_phys(words),
	};

	return niclab_control(nic, NICLAB_OP_RING_START, &start, sizeof(start), NULL, 0);
}

/**
 * niclab_ring_start - sets up the rings of a card.
 * @nic: the NIC, locked.
 *
 * Return: 0 or an error; in both cases niclab_ring_stop() and niclab_ring_free() undo it.
 */
int niclab_ring_start(struct niclab *nic)
{
	struct niclab_rings *rings = kzalloc(sizeof(*rings), GFP_KERNEL);
	struct niclab_ring_interrupts interrupts = {};
	u32 i;
	int err;

	if (!rings)
		return -ENOMEM;
	mutex_init(&rings->lock);
	INIT_DELAYED_WORK(&rings->work, niclab_ring_work);
	INIT_LIST_HEAD(&rings->sleepers);
	rings->other.is_held = true;
	rings->nic = nic;
	nic->rings = rings;
	err = niclab_ring_agree(nic, &rings->terms);
	if (!err)
		err = niclab_ring_alloc_all(rings);
	if (err)
		return err;
	rings->incarnation = (rings->terms.incarnation - 1) % NICLAB_INCARNATIONS + 1;
	for (i = 0; i < rings->receive.count; i++)
		niclab_ring_give_buffer(rings);
	interrupts.frames = rings->terms.interrupt_frames;
	interrupts.delay_ns = rings->terms.interrupt_delay_ns;
	err = niclab_ring_tell(nic, NICLAB_RING_TRANSMIT, rings->send.words);
	if (!err)
		err = niclab_ring_tell(nic, NICLAB_RING_RECEIVE, rings->receive.words);
	if (!err)
		err = niclab_control(nic, NICLAB_OP_RING_INTERRUPTS, &interrupts, sizeof(interrupts), NULL, 0);
	if (!err)
		niclab_active_announce(rings);
	if (!err && interrupts.frames)
		queue_delayed_work(system_unbound_wq, &rings->work, NICLAB_POLL_RARELY_JIFFIES);
	return err;
}

/* Releases messages that will not leave. */
static void niclab_ring_drop_sendings(struct niclab_rings *rings)
{
	struct niclab_sending *sending;
	u32 i;

	for (i = 0; rings->sendings && i < rings->send.count; i++) {
		sending = rings->sendings[i];
		rings->sendings[i] = NULL;
		if (!sending)
			continue;
		sending->is_refused = true;
		sending->descriptors--;
		niclab_sending_put(rings, sending);
	}
}

/**
 * niclab_ring_stop - releases the rings.
 * @nic: the NIC, locked.
 * @quiet: the device promised not to access them any more. If not, their memory and that of messages is never reused.
 */
void niclab_ring_stop(struct niclab *nic, bool quiet)
{
	struct niclab_rings *rings = nic->rings;

	if (!rings)
		return;
	mutex_lock(&rings->lock);
	rings->is_stopped = true;
	niclab_net_quit(rings);
	niclab_active_stop(rings);
	if (quiet)
		niclab_ring_drop_sendings(rings);
	mutex_unlock(&rings->lock);
	cancel_delayed_work_sync(&rings->work);
	if (rings->send.words)
		niclab_memory_free(nic, rings->send.words, niclab_ring_bytes(&rings->send), quiet);
	if (rings->receive.words)
		niclab_memory_free(nic, rings->receive.words, niclab_ring_bytes(&rings->receive), quiet);
	if (rings->heads)
		niclab_memory_free(nic, rings->heads, NICLAB_SEND_DESCRIPTORS * NICLAB_HEAD_BYTES, quiet);
	if (!quiet)
		return;
	if (rings->pages)
		niclab_ring_free_frames(rings->pages, DIV_ROUND_UP(rings->receive.count, 2));
	niclab_ring_free_frames(rings->other_pages, ARRAY_SIZE(rings->other_pages));
}

/**
 * niclab_ring_free - frees the remaining memory of the rings.
 * @nic: the NIC, of which no file is open.
 */
void niclab_ring_free(struct niclab *nic)
{
	struct niclab_rings *rings = nic->rings;
	u32 i;

	if (!rings)
		return;
	cancel_delayed_work_sync(&rings->work);
	for (i = 0; rings->parked && i < nic->config.nodes; i++)
		niclab_park_empty(rings, &rings->peers[i]);
	kvfree(rings->peers);
	kvfree(rings->pages);
	kfree(rings->sendings);
	kfree(rings);
}
