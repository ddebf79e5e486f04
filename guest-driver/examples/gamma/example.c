// SPDX-License-Identifier: GPL-2.0
/*
 * A driver that passes messages through a card with descriptor rings (GAMMA).
 *
 * /dev/example is a pipe of messages: a reader at the peer gets what a writer at this node wrote. A message is at most
 * one frame. One worker takes all frames out of the ring and keeps the messages in a list. docs/driver/DRIVER.md
 * explains the code; section numbers are those of docs/driver/DEVICE.md.
 */
#include <linux/etherdevice.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "card.h"

#define PORT		0U
#define SENDS		64U
/* Frames per run of the worker, so that no writer or reader waits long for the lock. */
#define BUDGET		64U
#define MOST_WAITING	1024U
#define MOST_BUFFERS	65536U
/* A buffer does not cross a page, so it is contiguous for the card. */
#define BUFFER_BYTES	2048U
#define LENGTH_MASK	0x3fffU

/* Section 13: two words are the descriptor. The third is the driver's own; the card skips it. */
struct descriptor {
	u64 control;
	u32 address, second_address;
	u64 message;
};

struct frame {
	struct ethhdr ethernet;
	struct niclab_frame_head head;
	u8 data[];
} __packed;

/* Descriptor k, from 0 on, is in place k % count, and so is its buffer. taken <= given. */
struct ring {
	struct descriptor *descriptors;
	void *buffers;
	u32 count;
	u64 given, taken;
};

/* A message that waits for a reader. */
struct message {
	struct list_head entry;
	u32 number, bytes;
	bool is_behind_loss;
	u8 data[];
};

struct example {
	struct card card;
	struct niclab_ring_terms terms;
	struct delayed_work look;
	struct ring in, out;
	struct list_head messages;
	struct ethhdr ethernet;
	/* Frame numbers: sent to the peer, acknowledged by it, received from it, and acknowledged to it. */
	u32 sent, acknowledged, come, told;
	/* Messages in the list; frames that were meant for an earlier driver of this node. */
	u32 waiting, stale_frames;
	/* The incarnations of this driver and of the peer's, 1 to 15; 0 while the peer's is unknown. */
	u8 ours, theirs;
	bool is_met, is_lossy;
};

static struct frame *frame_at(const struct ring *ring, u64 number)
{
	return ring->buffers + number % ring->count * BUFFER_BYTES;
}

/* Gives the next descriptor to the card, which owns it after the last store. The driver must own it before. */
static void give(struct ring *ring, u64 flags, u32 bytes, u64 message)
{
	struct descriptor *next = &ring->descriptors[ring->given % ring->count];
	struct frame *frame = frame_at(ring, ring->given++);

	if (!(ring->given % ring->count))
		flags |= NICLAB_RING_END;
	next->address = page_to_phys(vmalloc_to_page(frame)) + offset_in_page(frame);
	next->message = message;
	/* The card must see addresses and frame in memory before it sees the ownership bit. */
	dma_wmb();
	WRITE_ONCE(next->control, flags | NICLAB_RING_OWN | (u64)bytes << NICLAB_RING_SIZE_SHIFT);
}

static u64 control_of(const struct ring *ring, u64 number)
{
	u64 control = READ_ONCE(ring->descriptors[number % ring->count].control);

	/* The driver must read the ownership bit before anything else of the frame. */
	dma_rmb();
	return control;
}

/*
 * Whether the card has returned the oldest given descriptor, and with which status. The card returns them in order: if
 * the next one is back and this one is not, this one is lost (section 9).
 */
static bool is_back(const struct ring *ring, u32 *status)
{
	bool is_next_back;

	if (ring->given == ring->taken)
		return false;
	*status = control_of(ring, ring->taken);
	if (!(*status & NICLAB_RING_OWN))
		return true;
	is_next_back = ring->given - ring->taken > 1 &&
		       !(control_of(ring, ring->taken + 1) & NICLAB_RING_OWN);
	if (!is_next_back)
		return false;
	/* Both may have come back since the first read. */
	*status = control_of(ring, ring->taken);
	if (*status & NICLAB_RING_OWN)
		*status = NICLAB_RING_ERROR;
	return true;
}

/* Whether a descriptor is free. First takes back the descriptors whose frames the card has sent. */
static bool has_descriptor(struct example *e)
{
	u32 status;

	while (is_back(&e->out, &status)) {
		e->out.taken++;
		if (status & NICLAB_RING_ERROR)
			dev_warn_ratelimited(&e->card.vdev->dev, "frame refused: %#x\n", status);
	}
	return e->out.given - e->out.taken < e->out.count;
}

/* Sends a frame. The caller has checked that a descriptor is free. */
static void send(struct example *e, u8 kind, u32 number, const void *data, u32 bytes)
{
	struct frame *frame = frame_at(&e->out, e->out.given);

	frame->ethernet = e->ethernet;
	frame->head = (struct niclab_frame_head){
		.protocol = e->terms.protocol,
		.kind = kind,
		.source_port = PORT | e->ours << NICLAB_INCARNATION_SHIFT,
		.target_port = PORT | e->theirs << NICLAB_INCARNATION_SHIFT,
		.number = number,
	};
	memcpy(frame->data, data, bytes);
	give(&e->out, NICLAB_RING_FIRST | NICLAB_RING_LAST, sizeof(*frame) + bytes,
	     e->in.taken << NICLAB_RING_RECEIVED_SHIFT | bytes);
	/* The poll demand: a register store, which the card sees after the stores to memory. */
	virtqueue_notify(e->card.queues[NICLAB_QUEUE_TRANSMIT]);
}

/* Acknowledges consumed frames. Messages that wait for a reader do not count, so the list stays within the window. */
static void acknowledge(struct example *e, u32 least)
{
	struct message *first = list_first_entry_or_null(&e->messages, struct message, entry);
	u32 done = first ? first->number - 1 : e->come;

	if (done - e->told < least || !has_descriptor(e))
		return;
	e->told = done;
	send(e, NICLAB_FRAME_ACKNOWLEDGEMENT, done, NULL, 0);
}

static void acknowledge_if_due(struct example *e)
{
	if (e->terms.acknowledge_every)
		acknowledge(e, e->terms.acknowledge_every);
}

/* The peer has a new driver: both sides number from 1 again. Messages of the old driver come before all new ones. */
static void restart_numbers(struct example *e)
{
	struct message *message;

	list_for_each_entry(message, &e->messages, entry)
		message->number = 1;
	e->sent = 0;
	e->acknowledged = 0;
	e->come = 0;
	e->told = 0;
	e->is_met = true;
}

/* Whether a frame is from the peer's current driver and for this one. Other frames are dropped. */
static bool is_current(struct example *e, const struct niclab_frame_head *head)
{
	u8 source = head->source_port >> NICLAB_INCARNATION_SHIFT;
	u8 target = head->target_port >> NICLAB_INCARNATION_SHIFT;
	u32 ahead = (source + NICLAB_INCARNATIONS - e->theirs) % NICLAB_INCARNATIONS;

	if (source != e->theirs) {
		if (!source || (e->theirs && ahead > NICLAB_INCARNATIONS / 2))
			return false;
		if (e->theirs)
			restart_numbers(e);
		e->theirs = source;
	}
	if (!target || target == e->ours)
		return true;
	/* The peer does not know this driver yet. It has a buffer for one answer, so not each frame gets one. */
	if ((head->kind & NICLAB_FRAME_KIND_MASK) == NICLAB_FRAME_DATA &&
	    !(e->stale_frames++ % max(e->terms.acknowledge_every, 1U)))
		acknowledge(e, 0);
	return false;
}

/* Returns false if the frame must stay in the ring, for lack of room or memory. */
static bool take_data(struct example *e, const struct niclab_frame_head *head, const void *data,
		      u32 bytes)
{
	bool is_for_us = (head->target_port & NICLAB_PORT_MASK) == PORT;
	bool is_whole = head->kind & NICLAB_FRAME_FIRST && head->kind & NICLAB_FRAME_LAST;
	struct message *message = NULL;

	/* A predecessor may have received the preceding frames: they are not lost, and not in the window. */
	if (!e->is_met && e->terms.incarnation > 1 && head->number != 1) {
		e->come = head->number - 1;
		e->told = e->come - e->terms.acknowledge_every;
	}
	e->is_met = true;
	/* Numbers in the half of the range up to `come` have already been received. */
	if (head->number - e->come - 1 > U32_MAX / 2)
		return true;
	if (is_for_us && is_whole) {
		if (e->waiting < MOST_WAITING)
			message = kmalloc(struct_size(message, data, bytes), GFP_ATOMIC);
		if (!message)
			return false;
	}
	/* A reader gets one error for a loss, and one for messages of several frames. */
	e->is_lossy |= head->number - e->come > 1 || (is_for_us && !is_whole);
	e->come = head->number;
	if (!message)
		return true;
	message->number = head->number;
	message->bytes = bytes;
	message->is_behind_loss = e->is_lossy;
	memcpy(message->data, data, bytes);
	list_add_tail(&message->entry, &e->messages);
	e->waiting++;
	e->is_lossy = false;
	return true;
}

/* Handles the next frame in the ring. Returns false if the frame must stay there. */
static bool take(struct example *e, u32 status)
{
	const struct frame *frame = frame_at(&e->in, e->in.taken);
	u32 bytes = min(status >> NICLAB_RING_LENGTH_SHIFT & LENGTH_MASK, BUFFER_BYTES);
	/* A copy, so that the device cannot change checked values. */
	struct niclab_frame_head head = frame->head;

	/* A damaged, partial or foreign frame. If it was the peer's, its number is missing. */
	if (status & NICLAB_RING_ERROR || !(status & NICLAB_RING_STATUS_FIRST) ||
	    !(status & NICLAB_RING_STATUS_LAST) || bytes < sizeof(*frame) || bytes > e->terms.frame_bytes ||
	    !ether_addr_equal(frame->ethernet.h_source, e->ethernet.h_dest) ||
	    frame->ethernet.h_proto != e->ethernet.h_proto || head.protocol != e->terms.protocol)
		return true;
	if (!is_current(e, &head))
		return true;
	if ((head.kind & NICLAB_FRAME_KIND_MASK) == NICLAB_FRAME_DATA)
		return take_data(e, &head, frame->data, bytes - sizeof(*frame));
	if ((head.kind & NICLAB_FRAME_KIND_MASK) == NICLAB_FRAME_ACKNOWLEDGEMENT &&
	    head.number - e->acknowledged <= e->sent - e->acknowledged)
		e->acknowledged = head.number;
	return true;
}

static void give_buffer(struct example *e)
{
	give(&e->in, 0, NICLAB_RING_MAX_BUFFER_BYTES, 0);
}

/*
 * Takes the received frames, and queues itself again. An interrupt may be lost, and the card sends none for a frame
 * that arrives, in model time, while the driver works (section 13).
 */
static void look(struct work_struct *work)
{
	struct example *e = container_of(to_delayed_work(work), struct example, look);
	unsigned long pause = HZ / 10;
	u32 left = BUDGET, status;

	spin_lock_irq(&e->card.lock);
	while (!e->card.is_gone && left && is_back(&e->in, &status) && take(e, status)) {
		e->in.taken++;
		give_buffer(e);
		left--;
		pause = 1;
	}
	if (!e->card.is_gone) {
		acknowledge_if_due(e);
		mod_delayed_work(system_wq, &e->look, left ? pause : 0);
	}
	spin_unlock_irq(&e->card.lock);
	wake_up_all(&e->card.changed);
}

static void on_event(struct card *card)
{
	mod_delayed_work(system_wq, &container_of(card, struct example, card)->look, 0);
}

static bool may_send(struct example *e)
{
	return has_descriptor(e) &&
	       (!e->terms.window || e->sent - e->acknowledged < e->terms.window);
}

static ssize_t example_write(struct file *filp, const char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(card_of(filp), struct example, card);
	long left = msecs_to_jiffies(e->card.config.control_timeout_ms);
	u8 kind = NICLAB_FRAME_DATA | NICLAB_FRAME_FIRST | NICLAB_FRAME_LAST;
	struct card *card = &e->card;
	void *data;

	if (!bytes || bytes > e->terms.frame_bytes - sizeof(struct frame))
		return -EMSGSIZE;
	data = memdup_user(user, bytes);
	if (IS_ERR(data))
		return PTR_ERR(data);
	spin_lock_irq(&card->lock);
	/* If the window stays full, the peer's reader is slow or its last frames were lost. */
	left = wait_event_interruptible_lock_irq_timeout(card->changed,
		card->is_gone || may_send(e), card->lock, left);
	if (card->is_gone)
		left = -ENODEV;
	else if (left > 0)
		send(e, kind, ++e->sent, data, bytes);
	spin_unlock_irq(&card->lock);
	kfree(data);
	return left > 0 ? bytes : left ? left : -ETIMEDOUT;
}

static ssize_t example_read(struct file *filp, char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(card_of(filp), struct example, card);
	struct message *message = NULL;
	struct card *card = &e->card;
	ssize_t done;

	spin_lock_irq(&card->lock);
	done = wait_event_interruptible_lock_irq(card->changed,
		card->is_gone || !list_empty(&e->messages), card->lock);
	if (card->is_gone)
		done = -ENODEV;
	else if (!done)
		message = list_first_entry(&e->messages, struct message, entry);
	if (message && message->is_behind_loss) {
		message->is_behind_loss = false;
		message = NULL;
		done = -EIO;
	} else if (message) {
		list_del(&message->entry);
		e->waiting--;
		acknowledge_if_due(e);
	}
	spin_unlock_irq(&card->lock);
	if (!message)
		return done;
	done = min_t(size_t, bytes, message->bytes);
	if (copy_to_user(user, message->data, done))
		done = -EFAULT;
	kfree(message);
	return done;
}

static const struct file_operations example_fops = {
	.owner = THIS_MODULE,
	.open = card_open,
	.release = card_release,
	.read = example_read,
	.write = example_write,
};

/* The card has addresses of 32 bits. It needs a contiguous ring and contiguous buffers. */
static int ring_alloc(struct ring *ring, u32 count)
{
	ring->count = count;
	ring->descriptors = alloc_pages_exact(count * sizeof(*ring->descriptors),
					      GFP_KERNEL | GFP_DMA32 | __GFP_ZERO);
	ring->buffers = vmalloc_32(count * BUFFER_BYTES);
	return ring->descriptors && ring->buffers ? 0 : -ENOMEM;
}

static void ring_free(struct ring *ring)
{
	if (ring->descriptors)
		free_pages_exact(ring->descriptors, ring->count * sizeof(*ring->descriptors));
	vfree(ring->buffers);
}

static int ring_start(struct example *e, u32 name, const struct ring *ring)
{
	struct niclab_ring_start start = {
		.ring = name,
		.skip_bytes = sizeof(struct descriptor) - offsetof(struct descriptor, message),
		.first = virt_to_phys(ring->descriptors),
	};

	return card_request(&e->card, NICLAB_OP_RING_START, &start, sizeof(start), NULL, 0);
}

/* Cards' addresses differ only in the last two bytes, which are the node's number. */
static void address_of(u8 *address, u64 mac, u32 node)
{
	memcpy(address, &mac, ETH_ALEN);
	address[4] = node >> 8;
	address[5] = node;
}

/* Reads the terms that all drivers of the cluster share, and checks them: the card may be faulty. */
static int agree(struct example *e)
{
	struct niclab_ring_terms *terms = &e->terms;
	struct card *card = &e->card;
	int err = card_request(card, NICLAB_OP_RING_TERMS, NULL, 0, terms, sizeof(*terms));

	if (err)
		return err;
	if (!terms->receive_buffers || terms->receive_buffers > MOST_BUFFERS ||
	    terms->frame_bytes <= sizeof(struct frame) || terms->frame_bytes >= BUFFER_BYTES ||
	    terms->protocol > U8_MAX || terms->acknowledge_every > terms->window ||
	    terms->window > terms->receive_buffers)
		return -EPROTO;
	e->ours = (terms->incarnation - 1) % NICLAB_INCARNATIONS + 1;
	address_of(e->ethernet.h_source, card->config.mac, card->config.node);
	address_of(e->ethernet.h_dest, card->config.mac, peer);
	e->ethernet.h_proto = htons(NICLAB_ACTIVE_ETHER_TYPE);
	err = ring_alloc(&e->in, terms->receive_buffers);
	return err ? err : ring_alloc(&e->out, SENDS);
}

/* Section 13, setting up: requests an interrupt for each frame, unless the terms specify otherwise. */
static int start_rings(struct example *e)
{
	struct niclab_ring_interrupts interrupts = {
		.frames = max(e->terms.interrupt_frames, 1U),
		.delay_ns = e->terms.interrupt_delay_ns,
	};
	struct card *card = &e->card;
	int err;
	u32 i;

	/* An event may start the worker at any time. */
	spin_lock_irq(&card->lock);
	for (i = 0; i < e->in.count; i++)
		give_buffer(e);
	spin_unlock_irq(&card->lock);
	err = ring_start(e, NICLAB_RING_TRANSMIT, &e->out);
	if (!err)
		err = ring_start(e, NICLAB_RING_RECEIVE, &e->in);
	if (!err)
		err = card_request(card, NICLAB_OP_RING_INTERRUPTS, &interrupts,
				   sizeof(interrupts), NULL, 0);
	if (err)
		return err;
	/* If this driver has a predecessor, the peer restarts its numbers with it. */
	spin_lock_irq(&card->lock);
	if (e->terms.incarnation > 1)
		acknowledge(e, 0);
	spin_unlock_irq(&card->lock);
	mod_delayed_work(system_wq, &e->look, 0);
	return 0;
}

static void example_stop(struct example *e)
{
	struct message *message, *next;

	card_stop(&e->card);
	/* A worker that still runs finds that the card is gone. */
	cancel_delayed_work_sync(&e->look);
	ring_free(&e->in);
	ring_free(&e->out);
	list_for_each_entry_safe(message, next, &e->messages, entry)
		kfree(message);
	kref_put(&e->card.uses, card_free);
}

static int example_probe(struct virtio_device *vdev)
{
	struct example *e = kzalloc(sizeof(*e), GFP_KERNEL);
	struct card *card = &e->card;
	int err;

	if (!e)
		return -ENOMEM;
	card->on_event = on_event;
	INIT_DELAYED_WORK(&e->look, look);
	INIT_LIST_HEAD(&e->messages);
	err = card_start(card, vdev, NICLAB_FEATURE_RINGS);
	if (!err)
		err = agree(e);
	if (!err)
		err = start_rings(e);
	if (!err)
		err = card_publish(card, "example", &example_fops);
	if (err)
		example_stop(e);
	else
		dev_info(&vdev->dev, "example: node %u of %u talks to node %d\n", card->config.node,
			 card->config.nodes, peer);
	return err;
}

static void example_remove(struct virtio_device *vdev)
{
	struct example *e = container_of(vdev->priv, struct example, card);

	misc_deregister(&e->card.misc);
	example_stop(e);
}

static const struct virtio_device_id example_ids[] = {
	{ NICLAB_VIRTIO_ID, VIRTIO_DEV_ANY_ID }, {}
};
MODULE_DEVICE_TABLE(virtio, example_ids);

static struct virtio_driver example_driver = {
	.driver.name = "example",
	.id_table = example_ids,
	.probe = example_probe,
	.remove = example_remove,
};
module_virtio_driver(example_driver);

MODULE_DESCRIPTION("messages through a card with descriptor rings");
MODULE_LICENSE("GPL");
