// SPDX-License-Identifier: GPL-2.0
/*
 * example.c - a driver that passes messages through an ULTRA card, and does nothing else.
 *
 * It opens port 0, routes it to one peer and lets that peer send. /dev/example then is a pipe of messages: what is written at one
 * node, up to 64 bytes, is read at the other. docs/DRIVER.md leads through it; section numbers are those of docs/DEVICE.md.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/wait.h>

#include "niclab_abi.h"

#define PORT 0U
#define SLICES 64U
#define EVENTS 16U
#define MOST_BYTES (NICLAB_PAYLOAD_WORDS * sizeof(u64))

static int peer = -1;
module_param(peer, int, 0444);
MODULE_PARM_DESC(peer, "number of the node to talk to; by default the other one of a pair");

/* One request and its answer. */
struct control {
	struct niclab_request request;
	u8 body[sizeof(struct niclab_port_open)];
	struct niclab_reply reply;
	u8 answer[sizeof(struct niclab_port_opened)];
};

/* Section 6: a slice, as the device writes it. */
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
	struct virtio_device *vdev;
	struct virtqueue *queues[NICLAB_QUEUES];
	struct niclab_device_config config;
	struct control *control;
	struct niclab_event *events;
	struct received *received;
	void __iomem *bar, *requester, *completer;
	struct miscdevice misc;
	struct mutex sending, receiving;
	wait_queue_head_t arrived;
	u64 launched, taken, released;
	/* The device's part, and one for each open file: a file may outlive the device. */
	struct kref uses;
	bool is_published, is_gone;
};

/* Section 4: one request, and a bounded wait for its answer. */
static int request(struct example *e, u32 operation, const void *body, u32 body_bytes, u32 answer_bytes)
{
	struct control *control = e->control;
	struct scatterlist out, in, *sgs[] = { &out, &in };
	unsigned int left_ms = e->config.control_timeout_ms, written;

	memset(control, 0, sizeof(*control));
	control->request.operation = operation;
	control->request.body_bytes = body_bytes;
	memcpy(control->body, body, body_bytes);
	sg_init_one(&out, &control->request, sizeof(control->request) + body_bytes);
	sg_init_one(&in, &control->reply, sizeof(control->reply) + answer_bytes);
	if (virtqueue_add_sgs(e->queues[NICLAB_QUEUE_CONTROL], sgs, 1, 1, control, GFP_KERNEL))
		return -EIO;
	virtqueue_kick(e->queues[NICLAB_QUEUE_CONTROL]);
	while (!virtqueue_get_buf(e->queues[NICLAB_QUEUE_CONTROL], &written)) {
		if (!left_ms--)
			return -ETIMEDOUT;
		usleep_range(1000, 1100);
	}
	if (written < sizeof(control->reply) + answer_bytes || control->reply.status != NICLAB_STATUS_OK)
		return -EPROTO;
	return 0;
}

static int give_event(struct example *e, struct niclab_event *event)
{
	struct scatterlist in;

	sg_init_one(&in, event, sizeof(*event));
	return virtqueue_add_inbuf(e->queues[NICLAB_QUEUE_EVENT], &in, 1, event, GFP_ATOMIC);
}

/* Section 7: what came is seen in the slices. The event only wakes who sleeps, and its buffer goes back. */
static void on_event(struct virtqueue *queue)
{
	struct example *e = queue->vdev->priv;
	struct niclab_event *event;
	unsigned int written;

	while ((event = virtqueue_get_buf(queue, &written)))
		give_event(e, event);
	virtqueue_kick(queue);
	wake_up_interruptible(&e->arrived);
}

/* Section 5, steps 5 and 6. */
static void ring_if_wanted(struct example *e)
{
	mb();
	if (readq(e->bar + NICLAB_INFO_DOORBELL_OFFSET) == NICLAB_DOORBELL_WANTED)
		virtqueue_notify(e->queues[NICLAB_QUEUE_DOORBELL]);
}

static void store_register(struct example *e, size_t offset, u64 value)
{
	writeq(value, e->completer + offset);
	ring_if_wanted(e);
}

/* Section 6: the slice that is so many behind the last one taken, once it is there. */
static const struct slice *slice_ahead(struct example *e, u64 ahead)
{
	const struct slice *slice = &e->received->slices[(e->taken + ahead - 1) & (SLICES - 1)];
	u64 status = smp_load_acquire(&slice->status);

	return status >> 32 == (u32)(e->taken + ahead) && status & NICLAB_SLICE_VALID ? slice : NULL;
}

/* Section 9: slices become visible in order, so that one is lost once a later one is there. */
static bool next_is_lost(struct example *e)
{
	u64 ahead;

	for (ahead = 2; ahead < SLICES; ahead++)
		if (slice_ahead(e, ahead))
			return !slice_ahead(e, 1);
	return false;
}

/* The slice is done with: it goes back to the card, a quarter of the queue at a time. Senders have credits for all of it. */
static void take_slice(struct example *e)
{
	e->taken++;
	if (e->taken - e->released >= SLICES / 4) {
		e->released = e->taken;
		store_register(e, offsetof(struct niclab_completer_page, released), e->released);
	}
}

/* Waits for the next slice: NULL with a reason, or the slice. Section 9: every wait has an end, and looks without an interrupt, too. */
static const struct slice *await_slice(struct example *e, int *reason)
{
	const struct slice *slice;

	while (!(slice = slice_ahead(e, 1))) {
		*reason = READ_ONCE(e->is_gone) ? -ENODEV : next_is_lost(e) ? -EIO : 0;
		if (*reason)
			return NULL;
		/* An interrupt for the next one; the wait looks once more, for it may have come before the device knew. */
		store_register(e, offsetof(struct niclab_completer_page, armed), e->taken + 1);
		if (wait_event_interruptible_timeout(e->arrived, slice_ahead(e, 1) || READ_ONCE(e->is_gone), HZ / 10) < 0) {
			*reason = -EINTR;
			return NULL;
		}
	}
	return slice;
}

static ssize_t example_write(struct file *filp, const char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(filp->private_data, struct example, misc);
	u64 words[NICLAB_PAYLOAD_WORDS + NICLAB_TAG_WORDS] = {};
	u32 payload = DIV_ROUND_UP(bytes, sizeof(u64)), first = NICLAB_PAYLOAD_WORDS - payload, i;
	unsigned int left_ms = e->config.control_timeout_ms;
	void __iomem *slot;
	int err = 0;

	if (!bytes || bytes > MOST_BYTES)
		return -EMSGSIZE;
	if (copy_from_user(&words[first], user, bytes))
		return -EFAULT;
	/* The first word of the tag is ours to use: a message has whole words, and this one says how many bytes count. */
	words[NICLAB_PAYLOAD_WORDS] = bytes;
	if (mutex_lock_interruptible(&e->sending))
		return -EINTR;
	if (e->is_gone) {
		err = -ENODEV;
		goto unlock;
	}
	/* Step 1: a slot is free once the device has taken what it held. */
	while (e->launched + 1 > READ_ONCE(e->received->status.launched) + NICLAB_SLOTS) {
		if (READ_ONCE(e->is_gone) || !left_ms--) {
			err = -ETIMEDOUT;
			goto unlock;
		}
		usleep_range(1000, 1100);
	}
	slot = e->requester + (e->launched % NICLAB_SLOTS) * NICLAB_SLOT_BYTES;
	for (i = first; i < ARRAY_SIZE(words); i++)
		writeq(words[i], slot + i * sizeof(u64));
	/* Step 3: the payload is out before the word that tells of it. */
	wmb();
	e->launched++;
	writeq(e->launched << NICLAB_LAUNCH_SEQUENCE_SHIFT | first << NICLAB_CODE_LENGTH_SHIFT,
	       slot + NICLAB_SLOT_LAUNCH_WORD * sizeof(u64));
	ring_if_wanted(e);
unlock:
	mutex_unlock(&e->sending);
	return err ? err : bytes;
}

static ssize_t example_read(struct file *filp, char __user *user, size_t bytes, loff_t *at)
{
	struct example *e = container_of(filp->private_data, struct example, misc);
	const struct slice *slice;
	u64 whole, length;
	int err = 0;

	if (mutex_lock_interruptible(&e->receiving))
		return -EINTR;
	slice = e->is_gone ? NULL : await_slice(e, &err);
	if (slice) {
		/* The device's word is read once, and not believed: it may be faulty. */
		whole = min_t(u64, READ_ONCE(slice->tag[0]), MOST_BYTES);
		length = min_t(u64, bytes, whole);
		if (copy_to_user(user, (const u8 *)&slice->payload[NICLAB_PAYLOAD_WORDS] - round_up(whole, sizeof(u64)),
				 length))
			err = -EFAULT;
	} else if (e->is_gone) {
		err = -ENODEV;
	}
	/* A message that was lost takes its slice with it. */
	if (slice || err == -EIO)
		take_slice(e);
	mutex_unlock(&e->receiving);
	return err ? err : (ssize_t)length;
}

static void example_free(struct kref *uses)
{
	kfree(container_of(uses, struct example, uses));
}

/* The core of misc devices holds its lock here and in misc_deregister(): what is found is there. */
static int example_open(struct inode *inode, struct file *filp)
{
	kref_get(&container_of(filp->private_data, struct example, misc)->uses);
	return 0;
}

static int example_release(struct inode *inode, struct file *filp)
{
	kref_put(&container_of(filp->private_data, struct example, misc)->uses, example_free);
	return 0;
}

static const struct file_operations example_fops = {
	.owner = THIS_MODULE,
	.open = example_open,
	.release = example_release,
	.read = example_read,
	.write = example_write,
};

/* Section 2: the device maps the BAR after its first request, and writes the magic word last. */
static int find_windows(struct example *e)
{
	unsigned int left_ms = e->config.control_timeout_ms;
	struct niclab_info_page info;
	struct niclab_window window;
	u32 i;

	while (readq(e->bar + offsetof(struct niclab_info_page, magic)) != NICLAB_MAGIC) {
		if (!left_ms--)
			return -ETIMEDOUT;
		usleep_range(1000, 1100);
	}
	rmb();
	memcpy_fromio(&info, e->bar, sizeof(info));
	for (i = 0; i < min(info.windows, NICLAB_MAX_WINDOWS); i++) {
		memcpy_fromio(&window, e->bar + NICLAB_INFO_WINDOWS_OFFSET + i * sizeof(window), sizeof(window));
		/* Port 0 has the first page of each. None is the information page, or beyond the BAR. */
		if (!window.first_page || window.first_page >= e->config.bar_pages)
			return -EPROTO;
		if (window.kind == NICLAB_WINDOW_REQUESTER)
			e->requester = e->bar + (size_t)window.first_page * NICLAB_PAGE_BYTES;
		if (window.kind == NICLAB_WINDOW_COMPLETER)
			e->completer = e->bar + (size_t)window.first_page * NICLAB_PAGE_BYTES;
	}
	return e->requester && e->completer ? 0 : -EPROTO;
}

static int open_port(struct example *e)
{
	struct niclab_port_open open = {
		.port = PORT,
		.slices = SLICES,
		.slices_address = virt_to_phys(e->received->slices),
		.status_address = virt_to_phys(&e->received->status),
	};
	struct niclab_route route = { .port = PORT, .node = peer, .node_port = PORT };
	struct niclab_authorize authorize = { .port = PORT, .node = peer, .node_port = PORT, .credits = SLICES };
	int err = request(e, NICLAB_OP_PORT_OPEN, &open, sizeof(open), sizeof(struct niclab_port_opened));

	if (!err)
		err = request(e, NICLAB_OP_ROUTE, &route, sizeof(route), 0);
	if (!err)
		err = request(e, NICLAB_OP_AUTHORIZE, &authorize, sizeof(authorize), 0);
	return err;
}

/* The queues have to be all there, also those that stay idle: virtio numbers what is asked for. */
static int start(struct example *e)
{
	struct virtqueue_info info[NICLAB_QUEUES] = {
		{ .name = "control" }, { .name = "event", .callback = on_event },
		{ .name = "transmit" }, { .name = "receive" }, { .name = "doorbell" },
	};
	struct virtio_shm_region region;
	int err, i;

	if (!virtio_get_shm_region(e->vdev, &region, NICLAB_REGION) ||
	    region.len < (u64)e->config.bar_pages * NICLAB_PAGE_BYTES)
		return -ENXIO;
	e->bar = devm_ioremap_wc(&e->vdev->dev, region.addr, region.len);
	if (!e->bar)
		return -ENOMEM;
	err = virtio_find_vqs(e->vdev, NICLAB_QUEUES, e->queues, info, NULL);
	if (err)
		return err;
	for (i = 0; i < EVENTS; i++)
		give_event(e, &e->events[i]);
	virtio_device_ready(e->vdev);
	virtqueue_kick(e->queues[NICLAB_QUEUE_EVENT]);
	err = request(e, NICLAB_OP_PING, NULL, 0, 0);
	if (!err)
		err = find_windows(e);
	if (!err)
		err = open_port(e);
	return err;
}

static void example_remove(struct virtio_device *vdev)
{
	struct example *e = vdev->priv;

	if (e->is_published)
		misc_deregister(&e->misc);
	/* Files may still be open: whoever sleeps in one is woken, and whoever is at work in one is waited for. */
	WRITE_ONCE(e->is_gone, true);
	wake_up_all(&e->arrived);
	mutex_lock(&e->sending);
	mutex_unlock(&e->sending);
	mutex_lock(&e->receiving);
	mutex_unlock(&e->receiving);
	/* A reset closes the port: afterwards the device writes nowhere, and the memory is ours again. */
	virtio_reset_device(vdev);
	vdev->config->del_vqs(vdev);
	if (e->received)
		free_pages_exact(e->received, sizeof(*e->received));
	kfree(e->events);
	kfree(e->control);
	kref_put(&e->uses, example_free);
}

static int example_probe(struct virtio_device *vdev)
{
	struct example *e = kzalloc(sizeof(*e), GFP_KERNEL);
	int err = -ENOMEM;

	if (!e)
		return -ENOMEM;
	vdev->priv = e;
	e->vdev = vdev;
	kref_init(&e->uses);
	mutex_init(&e->sending);
	mutex_init(&e->receiving);
	init_waitqueue_head(&e->arrived);
	/* Neither on the stack nor from vmalloc: the device has physical addresses, so pieces must be in one piece. */
	e->control = kzalloc(sizeof(*e->control), GFP_KERNEL);
	e->events = kcalloc(EVENTS, sizeof(*e->events), GFP_KERNEL);
	e->received = alloc_pages_exact(sizeof(*e->received), GFP_KERNEL | __GFP_ZERO);
	if (!e->control || !e->events || !e->received)
		goto fail;
	__virtio_cread_many(vdev, 0, &e->config, sizeof(e->config) / sizeof(u64), sizeof(u64));
	err = -ENODEV;
	if (e->config.magic != NICLAB_MAGIC || e->config.abi_version != NICLAB_ABI_VERSION ||
	    !(e->config.features & NICLAB_FEATURE_SLICES))
		goto fail;
	/* Its word on how long to wait is not believed either. */
	e->config.control_timeout_ms = clamp(e->config.control_timeout_ms, 100U, 60000U);
	if (peer < 0)
		peer = e->config.node ^ 1;
	err = start(e);
	if (err)
		goto fail;
	e->misc = (struct miscdevice){ .minor = MISC_DYNAMIC_MINOR, .name = "example", .fops = &example_fops };
	err = misc_register(&e->misc);
	if (err)
		goto fail;
	e->is_published = true;
	dev_info(&vdev->dev, "example: node %u of %u talks to node %d\n", e->config.node, e->config.nodes, peer);
	return 0;
fail:
	example_remove(vdev);
	return err;
}

static const struct virtio_device_id example_ids[] = { { NICLAB_VIRTIO_ID, VIRTIO_DEV_ANY_ID }, {} };
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
