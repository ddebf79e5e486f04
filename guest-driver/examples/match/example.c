// SPDX-License-Identifier: GPL-2.0
/*
 * A driver that passes messages through a Match card, and does nothing else.
 *
 * /dev/example is a pipe of messages of up to 1,024 bytes: a reader at the peer gets what a writer at this node wrote.
 * Each message is a put, which the peer's card matches with one of its entries and stores into that entry's buffer. The
 * driver sends a put again if it finds no entry. docs/driver/DRIVER.md explains the code; section numbers are those of
 * docs/driver/DEVICE.md.
 */
#include "card.h"

#define PORT		0U
#define PORTAL		0U
/* This number of events fills whole pages, so the preceding status page starts on a page boundary. */
#define EVENTS		512U
#define BUFFERS		15U
/* A message is one frame: the card has read all of it when its answer arrives. */
#define MOST_BYTES	1024U
#define COMMAND_WORDS	10U
/* A message for each buffer, and a loss before and after each. */
#define ARRIVED		(2 * BUFFERS + 2)
#define LOST		U32_MAX
#define USED_UP		U32_MAX
#define LOOK_TICKS	(HZ / 10)

/* Memory that the device writes and sends from. The region consists of the buffers. */
struct received {
	union {
		struct niclab_status_line status;
		u8 status_page[NICLAB_PAGE_BYTES];
	};
	struct niclab_list_event events[EVENTS];
	u8 incoming[BUFFERS][MOST_BYTES];
	u8 outgoing[MOST_BYTES];
};

static_assert(sizeof(struct niclab_list_event) == NICLAB_SLICE_BYTES);
static_assert(sizeof(struct received) % NICLAB_PAGE_BYTES == 0);

/* A buffer for an incoming message. */
struct buffer {
	/* The handle of its entry; zero: free; USED_UP: contains a message. */
	u32 handle;
	u32 bytes;
};

struct example {
	struct card card;
	struct received *received;
	void __iomem *requester, *completer;
	u64 launched, taken, released;
	u32 region;
	struct buffer buffers[BUFFERS];
	/* Buffers with unread messages in order of arrival, with LOST for each loss. */
	u32 arrived[ARRIVED];
	u64 came, read;
	/* The put in flight, and the result of the last one. */
	u32 put, result;
	/* A writer owns the outgoing buffer; the card is reading it. */
	bool is_busy, is_sending;
};

/* Section 5, steps 5 and 6. */
static void ring_if_wanted(struct card *card)
{
	u64 sleep;

	/* The device must see the earlier stores before this load, or it may stay asleep. */
	mb();
	sleep = readq(card->bar + NICLAB_INFO_DOORBELL_OFFSET);
	if (sleep != NICLAB_DOORBELL_SPARED && sleep != card->rung_for) {
		card->rung_for = sleep;
		virtqueue_notify(card->queues[NICLAB_QUEUE_DOORBELL]);
	}
}

static void store_register(struct example *e, size_t offset, u64 value)
{
	writeq(value, e->completer + offset);
	ring_if_wanted(&e->card);
}

/* Section 5, step 1. The device cannot have taken more commands than exist; such a count leaves no slot free. */
static bool has_slot(struct example *e)
{
	return e->launched - READ_ONCE(e->received->status.launched) < NICLAB_SLOTS;
}

/* Section 10, commands: posts a command; a slot must be free. Returns its handle. */
static u32 launch(struct example *e, u32 code, const void *command, size_t bytes)
{
	void __iomem *slot = e->requester + e->launched % NICLAB_SLOTS * NICLAB_SLOT_BYTES;
	u64 words[COMMAND_WORDS] = {};
	u32 i;

	memcpy(words, command, bytes);
	for (i = 0; i < COMMAND_WORDS; i++)
		writeq(words[i], slot + i * sizeof(u64));
	/* The command must be visible before the launch word that announces it. */
	wmb();
	e->launched++;
	writeq(e->launched << NICLAB_LAUNCH_SEQUENCE_SHIFT | code,
	       slot + NICLAB_SLOT_LAUNCH_WORD * sizeof(u64));
	ring_if_wanted(&e->card);
	return e->launched;
}

/* The offset of an object in the region. */
static u64 offset_of(const struct example *e, const void *memory)
{
	return memory - (const void *)e->received->incoming;
}

/* Posts an entry for each free buffer. Each entry takes one message of the peer. */
static void post_buffers(struct example *e)
{
	struct niclab_append_command append = {
		.region = e->region, .portal = PORTAL, .port = PORT, .node = peer,
		.bytes = MOST_BYTES, .threshold = 1,
	};
	u32 i;

	for (i = 0; i < BUFFERS && has_slot(e); i++) {
		if (e->buffers[i].handle)
			continue;
		append.user = i;
		append.offset = offset_of(e, e->received->incoming[i]);
		e->buffers[i].handle = launch(e, NICLAB_COMMAND_APPEND | NICLAB_ENTRY_PUT |
					      NICLAB_ENTRY_NO_UNLINK_EVENT, &append, sizeof(append));
	}
}

/* Section 10, events: the event at this distance after the last one taken, if the card has written it. */
static const struct niclab_list_event *event_ahead(struct example *e, u64 ahead)
{
	u64 number = e->taken + ahead;
	const struct niclab_list_event *event = &e->received->events[(number - 1) % EVENTS];
	/* The driver must read the status word before anything else of the event. */
	u64 status = smp_load_acquire(&event->status);

	return status >> NICLAB_SLICE_NUMBER_SHIFT == (u32)number ? event : NULL;
}

/* Section 9: events become visible in order, so an event is lost if a later one is visible. */
static bool next_is_lost(struct example *e)
{
	u64 ahead;

	for (ahead = 2; ahead < EVENTS / 4; ahead++)
		if (event_ahead(e, ahead))
			return !event_ahead(e, 1);
	return false;
}

/* The message of an event is lost. The driver reports that to a reader once, in order. */
static void note_loss(struct example *e)
{
	if (e->came == e->read || e->arrived[(e->came - 1) % ARRIVED] != LOST)
		e->arrived[e->came++ % ARRIVED] = LOST;
}

/* A message of the peer is in a buffer. The driver checks all that the device reports about it. */
static bool take_message(struct example *e, const struct niclab_list_event *event)
{
	struct buffer *buffer;

	if (event->user >= BUFFERS || event->moved_bytes > MOST_BYTES)
		return false;
	buffer = &e->buffers[event->user];
	if (!buffer->handle || buffer->handle != (u32)event->source)
		return false;
	/* The handle is used up, so a duplicated event does not match it. */
	buffer->handle = USED_UP;
	buffer->bytes = event->moved_bytes;
	e->arrived[e->came++ % ARRIVED] = event->user;
	return true;
}

/* The put in flight has ended, with success or not. */
static bool take_answer(struct example *e, const struct niclab_list_event *event)
{
	if (!e->is_sending || e->put != (u32)event->source)
		return false;
	e->result = event->status >> NICLAB_EVENT_RESULT_SHIFT & 0xff;
	e->is_sending = false;
	return true;
}

static bool take_event(struct example *e, const struct niclab_list_event *event)
{
	switch (event->status & 0xff) {
	case NICLAB_EVENT_PUT:
		return !(event->status >> NICLAB_EVENT_RESULT_SHIFT & 0xff) && take_message(e, event);
	case NICLAB_EVENT_ACK:
	case NICLAB_EVENT_REFUSED:
		return take_answer(e, event);
	}
	return false;
}

/* Takes all visible events. Returns them to the card a quarter of the queue at a time. */
static void take_events(struct example *e)
{
	const struct niclab_list_event *next;
	struct niclab_list_event event;

	while ((next = event_ahead(e, 1)) || next_is_lost(e)) {
		/* A copy, so that the device cannot change checked values. */
		if (next)
			memcpy(&event, next, sizeof(event));
		barrier();
		if (!next || !take_event(e, &event))
			note_loss(e);
		e->taken++;
		if (e->taken - e->released < EVENTS / 4)
			continue;
		e->released = e->taken;
		store_register(e, offsetof(struct niclab_completer_page, released), e->released);
	}
}

static bool is_readable(struct example *e)
{
	take_events(e);
	return e->came != e->read;
}

static bool is_free(struct example *e)
{
	take_events(e);
	return !e->is_busy && !e->is_sending && has_slot(e);
}

static bool is_answered(struct example *e)
{
	take_events(e);
	return !e->is_sending;
}

/* Waits while holding the lock between sleeps. Polls at intervals, because an interrupt may be lost. */
static int await(struct example *e, bool (*is_done)(struct example *), bool may_interrupt, long ticks)
{
	struct card *card = &e->card;
	long left = 0;

	while (!card->is_gone && !is_done(e)) {
		if (ticks <= 0)
			return -ETIMEDOUT;
		ticks -= LOOK_TICKS;
		store_register(e, offsetof(struct niclab_completer_page, armed), e->taken + 1);
		/* These check again first, because the event may have arrived before it was armed. */
		if (may_interrupt)
			left = wait_event_interruptible_lock_irq_timeout(card->changed,
				card->is_gone || is_done(e), card->lock, LOOK_TICKS);
		else
			wait_event_lock_irq_timeout(card->changed,
				card->is_gone || is_done(e), card->lock, LOOK_TICKS);
		if (left < 0)
			return left;
	}
	return card->is_gone ? -ENODEV : 0;
}

/* Sends the outgoing buffer and waits for the answer. A signal must not interrupt that. */
static int put(struct example *e, size_t bytes, long ticks)
{
	struct niclab_transfer_command command = {
		.region = e->region, .portal = PORTAL, .port = PORT, .node = peer,
		.offset = offset_of(e, e->received->outgoing), .bytes = bytes,
	};
	int err;

	e->is_sending = true;
	e->put = launch(e, NICLAB_COMMAND_PUT | NICLAB_COMMAND_ACK, &command, sizeof(command));
	err = await(e, is_answered, false, ticks);
	if (err)
		return err;
	switch (e->result) {
	case NICLAB_RESULT_OK:
		return 0;
	case NICLAB_RESULT_NO_MATCH:
	case NICLAB_RESULT_NO_ROOM:
	case NICLAB_RESULT_NO_TARGET:
		return -EAGAIN;
	}
	return -EIO;
}

static ssize_t example_write(struct file *filp, const char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(card_of(filp), struct example, card);
	struct card *card = &e->card;
	long ticks = msecs_to_jiffies(card->config.control_timeout_ms), left;
	unsigned long end = jiffies + ticks;
	void *data;
	int err;

	if (!bytes || bytes > MOST_BYTES)
		return -EMSGSIZE;
	data = memdup_user(user, bytes);
	if (IS_ERR(data))
		return PTR_ERR(data);
	spin_lock_irq(&card->lock);
	err = await(e, is_free, true, ticks);
	if (!err) {
		e->is_busy = true;
		memcpy(e->received->outgoing, data, bytes);
		/* The peer's card has no entry at present: its reader is slow or does not exist. */
		while ((err = put(e, bytes, ticks)) == -EAGAIN) {
			left = wait_event_interruptible_lock_irq_timeout(card->changed,
				card->is_gone, card->lock, 1);
			if (card->is_gone || left < 0 || time_after(jiffies, end)) {
				err = card->is_gone ? -ENODEV : left < 0 ? left : -ETIMEDOUT;
				break;
			}
		}
		e->is_busy = false;
	}
	spin_unlock_irq(&card->lock);
	wake_up_all(&card->changed);
	kfree(data);
	return err ? err : bytes;
}

static ssize_t example_read(struct file *filp, char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(card_of(filp), struct example, card);
	struct card *card = &e->card;
	struct buffer *buffer;
	u32 index = LOST;
	void *data;
	int err;

	/* The lock must not be held during a copy to a program, because its memory may fault. */
	data = kmalloc(MOST_BYTES, GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	spin_lock_irq(&card->lock);
	err = await(e, is_readable, true, LONG_MAX);
	if (!err)
		index = e->arrived[e->read++ % ARRIVED];
	if (index != LOST) {
		buffer = &e->buffers[index];
		bytes = min_t(size_t, bytes, buffer->bytes);
		memcpy(data, e->received->incoming[index], bytes);
		buffer->handle = 0;
		post_buffers(e);
	}
	spin_unlock_irq(&card->lock);
	if (!err && index == LOST)
		err = -EIO;
	if (!err && copy_to_user(user, data, bytes))
		err = -EFAULT;
	kfree(data);
	return err ? err : bytes;
}

static const struct file_operations example_fops = {
	.owner = THIS_MODULE,
	.open = card_open,
	.release = card_release,
	.read = example_read,
	.write = example_write,
};

/* Sections 4 and 10: opens the port, and registers the region with its buffers. */
static int open_port(struct example *e)
{
	struct niclab_port_open open = { .port = PORT, .slices = EVENTS };
	struct {
		struct niclab_region_open open;
		struct niclab_extent extent;
	} region = { .open = { .port = PORT, .extents = 1 } };
	struct niclab_region_opened opened_region = {};
	struct niclab_port_opened opened;
	struct card *card = &e->card;
	int err;

	e->received = card_memory(card, sizeof(*e->received));
	if (!e->received)
		return -ENOMEM;
	open.slices_address = card_physical(card, e->received->events);
	open.status_address = card_physical(card, e->received->status_page);
	err = card_request(card, NICLAB_OP_PORT_OPEN, &open, sizeof(open), &opened, sizeof(opened));
	/* The driver does not trust the device's values. */
	if (!err && opened.port != PORT)
		err = -EPROTO;
	if (err)
		return err;
	region.extent.address = card_physical(card, e->received->incoming);
	region.extent.bytes = sizeof(*e->received) - offsetof(struct received, incoming);
	region.open.bytes = region.extent.bytes;
	err = card_request(card, NICLAB_OP_REGION_OPEN, &region, sizeof(region), &opened_region,
			   sizeof(opened_region));
	e->region = opened_region.region;
	return err;
}

static void on_event(struct card *card)
{
	wake_up_all(&card->changed);
}

static void example_stop(struct card *card)
{
	card_stop(card);
	kref_put(&card->uses, card_free);
}

static int example_probe(struct virtio_device *vdev)
{
	struct example *e = kzalloc(sizeof(*e), GFP_KERNEL);
	struct card *card = &e->card;
	int err;

	if (!e)
		return -ENOMEM;
	card->on_event = on_event;
	err = card_start(card, vdev, NICLAB_FEATURE_LISTS | NICLAB_FEATURE_REGIONS);
	if (!err)
		err = card_map_bar(card);
	if (!err) {
		e->requester = card_window(card, NICLAB_WINDOW_REQUESTER);
		e->completer = card_window(card, NICLAB_WINDOW_COMPLETER);
		err = e->requester && e->completer ? open_port(e) : -EPROTO;
	}
	if (!err) {
		spin_lock_irq(&card->lock);
		post_buffers(e);
		spin_unlock_irq(&card->lock);
		err = card_publish(card, "example", &example_fops);
	}
	if (err)
		example_stop(card);
	else
		dev_info(&vdev->dev, "example: node %u of %u talks to node %d\n", card->config.node,
			 card->config.nodes, peer);
	return err;
}

static void example_remove(struct virtio_device *vdev)
{
	struct card *card = vdev->priv;

	misc_deregister(&card->misc);
	example_stop(card);
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

MODULE_DESCRIPTION("messages through a Match card");
MODULE_LICENSE("GPL");
