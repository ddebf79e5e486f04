// SPDX-License-Identifier: GPL-2.0
/*
 * A driver that passes messages through an ULTRA card, and does nothing else.
 *
 * /dev/example is a pipe of messages of up to 64 bytes: a reader at the peer gets what a writer at this node wrote.
 * docs/driver/DRIVER.md explains the code; section numbers are those of docs/driver/DEVICE.md.
 */
#include "card.h"

#define PORT	0U
#define SLICES	64U

/* Section 6: the layout of a slice. */
struct slice {
	u64 payload[NICLAB_PAYLOAD_WORDS];
	u64 tag[NICLAB_TAG_WORDS];
	u64 status;
};

static_assert(sizeof(struct slice) == NICLAB_SLICE_BYTES);

/* Memory that the device writes. */
struct received {
	struct niclab_status_line status;
	struct slice slices[SLICES];
};

struct example {
	struct card card;
	struct received *received;
	void __iomem *requester, *completer;
	u64 launched, taken, released;
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

/*
 * Section 5, step 1: a slot is free once the device has taken its command. An impossibly high count leaves none free.
 */
static bool has_slot(struct example *e)
{
	return e->launched - READ_ONCE(e->received->status.launched) < NICLAB_SLOTS;
}

/* Section 5, steps 2 to 6: a burst of payload and tag, beginning at the first word of the payload. */
static void launch(struct example *e, const u64 *words, u32 first)
{
	void __iomem *slot = e->requester + e->launched % NICLAB_SLOTS * NICLAB_SLOT_BYTES;
	u32 i;

	for (i = first; i < NICLAB_PAYLOAD_WORDS + NICLAB_TAG_WORDS; i++)
		writeq(words[i], slot + i * sizeof(u64));
	/* The payload must be visible before the launch word that announces it. */
	wmb();
	e->launched++;
	writeq(e->launched << NICLAB_LAUNCH_SEQUENCE_SHIFT | first << NICLAB_CODE_LENGTH_SHIFT,
	       slot + NICLAB_SLOT_LAUNCH_WORD * sizeof(u64));
	ring_if_wanted(&e->card);
}

/* Section 6: the slice at this distance after the last one taken, if the device has written it. */
static const struct slice *slice_ahead(struct example *e, u64 ahead)
{
	u64 number = e->taken + ahead;
	const struct slice *slice = &e->received->slices[(number - 1) % SLICES];
	/* The driver must read the status word before anything else of the slice. */
	u64 status = smp_load_acquire(&slice->status);

	if (status >> NICLAB_SLICE_NUMBER_SHIFT != (u32)number || !(status & NICLAB_SLICE_VALID))
		return NULL;
	return slice;
}

/* Section 9: slices become visible in order, so a slice is lost if a later one is visible. */
static bool next_is_lost(struct example *e)
{
	u64 ahead;

	for (ahead = 2; ahead < SLICES; ahead++)
		if (slice_ahead(e, ahead))
			return !slice_ahead(e, 1);
	return false;
}

/* Consumes a slice. Returns slices to the card a quarter of the queue at a time. */
static void take_slice(struct example *e)
{
	e->taken++;
	if (e->taken - e->released < SLICES / 4)
		return;
	e->released = e->taken;
	store_register(e, offsetof(struct niclab_completer_page, released), e->released);
}

/*
 * Waits for the next slice while holding the lock between sleeps. Polls at intervals, because an interrupt may be lost.
 */
static int await_slice(struct example *e, const struct slice **slice)
{
	struct card *card = &e->card;
	long left = 0;

	while (left >= 0 && !card->is_gone && !(*slice = slice_ahead(e, 1))) {
		if (next_is_lost(e))
			return -EIO;
		store_register(e, offsetof(struct niclab_completer_page, armed), e->taken + 1);
		/* This checks again first, because the slice may have arrived before it was armed. */
		left = wait_event_interruptible_lock_irq_timeout(card->changed,
			card->is_gone || slice_ahead(e, 1), card->lock, HZ / 10);
	}
	return card->is_gone ? -ENODEV : min(left, 0L);
}

static ssize_t example_write(struct file *filp, const char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(card_of(filp), struct example, card);
	u64 words[NICLAB_PAYLOAD_WORDS + NICLAB_TAG_WORDS] = {};
	u32 first = NICLAB_PAYLOAD_WORDS - DIV_ROUND_UP(bytes, sizeof(u64));
	struct card *card = &e->card;
	long ticks = msecs_to_jiffies(card->config.control_timeout_ms), done = 0;

	if (!bytes || bytes > NICLAB_PAYLOAD_WORDS * sizeof(u64))
		return -EMSGSIZE;
	if (copy_from_user(&words[first], user, bytes))
		return -EFAULT;
	/*
	 * The driver may use the tag freely: it contains the number of valid bytes, because messages have whole words.
	 */
	words[NICLAB_PAYLOAD_WORDS] = bytes;
	spin_lock_irq(&card->lock);
	/* No event reports a free slot, so this polls once per tick. */
	while (!done && ticks--)
		done = wait_event_interruptible_lock_irq_timeout(card->changed,
			card->is_gone || has_slot(e), card->lock, 1);
	if (card->is_gone)
		done = -ENODEV;
	else if (done > 0)
		launch(e, words, first);
	spin_unlock_irq(&card->lock);
	return done > 0 ? bytes : done ? done : -ETIMEDOUT;
}

static ssize_t example_read(struct file *filp, char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(card_of(filp), struct example, card);
	const struct slice *arrived;
	struct slice slice;
	u64 whole, first;
	int err;

	spin_lock_irq(&e->card.lock);
	err = await_slice(e, &arrived);
	if (!err)
		slice = *arrived;
	/* A lost message also uses up its slice. */
	if (!err || err == -EIO)
		take_slice(e);
	spin_unlock_irq(&e->card.lock);
	if (err)
		return err;
	/* The driver does not trust the length from the other node. The payload ends at the tag. */
	whole = min_t(u64, slice.tag[0], sizeof(slice.payload));
	bytes = min_t(u64, whole, bytes);
	first = NICLAB_PAYLOAD_WORDS - DIV_ROUND_UP(whole, sizeof(u64));
	return copy_to_user(user, &slice.payload[first], bytes) ? -EFAULT : bytes;
}

static const struct file_operations example_fops = {
	.owner = THIS_MODULE,
	.open = card_open,
	.release = card_release,
	.read = example_read,
	.write = example_write,
};

/* Sections 4 and 6: opens the port, sets its target, and authorizes its sender. */
static int open_port(struct example *e)
{
	struct niclab_port_open open = { .port = PORT, .slices = SLICES };
	struct niclab_route route = { PORT, peer, PORT };
	struct niclab_authorize grant = { PORT, peer, PORT, SLICES };
	struct card *card = &e->card;
	struct niclab_port_opened opened;
	int err;

	e->received = card_memory(card, sizeof(*e->received));
	if (!e->received)
		return -ENOMEM;
	open.slices_address = card_physical(card, e->received->slices);
	open.status_address = card_physical(card, &e->received->status);
	err = card_request(card, NICLAB_OP_PORT_OPEN, &open, sizeof(open), &opened, sizeof(opened));
	/* The driver does not trust the device's values. */
	if (!err && opened.port != PORT)
		err = -EPROTO;
	if (!err)
		err = card_request(card, NICLAB_OP_ROUTE, &route, sizeof(route), NULL, 0);
	if (!err)
		err = card_request(card, NICLAB_OP_AUTHORIZE, &grant, sizeof(grant), NULL, 0);
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
	err = card_start(card, vdev, NICLAB_FEATURE_SLICES);
	if (!err)
		err = card_map_bar(card);
	if (!err) {
		e->requester = card_window(card, NICLAB_WINDOW_REQUESTER);
		e->completer = card_window(card, NICLAB_WINDOW_COMPLETER);
		err = e->requester && e->completer ? open_port(e) : -EPROTO;
	}
	if (!err)
		err = card_publish(card, "example", &example_fops);
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

MODULE_DESCRIPTION("messages through an ULTRA card");
MODULE_LICENSE("GPL");
