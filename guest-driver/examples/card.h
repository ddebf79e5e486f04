/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the drivers of all cards do alike: sections 1 to 4 and 7 of docs/DEVICE.md, and a file that
 * may outlive its device. Both examples have a link to it; copy them with `cp -rL`.
 */
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/wait.h>

#include "niclab_abi.h"

#define CARD_EVENTS		16U
#define CARD_MOST_BODY_BYTES	64U

static int peer = -1;
module_param(peer, int, 0444);
MODULE_PARM_DESC(peer, "number of the node to talk to; by default the other one of a pair");

/* What the device reads and writes. It is given physical addresses: each must be in one piece. */
struct card_shared {
	struct niclab_event events[CARD_EVENTS];
	struct niclab_request request;
	u8 body[CARD_MOST_BODY_BYTES];
	struct niclab_reply reply;
	u8 answer[CARD_MOST_BODY_BYTES];
};

/* A driver's own structure begins with it. */
struct card {
	struct virtio_device *vdev;
	struct virtqueue *queues[NICLAB_QUEUES];
	struct niclab_device_config config;
	struct card_shared *shared;
	void __iomem *bar;
	struct miscdevice misc;
	/* Called by the interrupt, behind which a program that sleeps looks again. */
	void (*on_event)(struct card *card);
	wait_queue_head_t changed;
	/* The device's part, and one for each open file. */
	struct kref uses;
	/* Held for all that programs and device change, and never by who sleeps. */
	spinlock_t lock;
	bool is_gone;
};

static inline struct card *card_of(struct file *filp)
{
	return container_of(filp->private_data, struct card, misc);
}

/* Section 4: one request, and a bounded wait for its answer. Only while the driver starts. */
static inline int card_request(struct card *card, u32 operation, const void *body, u32 body_bytes,
			       void *answer, u32 answer_bytes)
{
	struct virtqueue *queue = card->queues[NICLAB_QUEUE_CONTROL];
	struct niclab_request *request = &card->shared->request;
	struct niclab_reply *reply = &card->shared->reply;
	struct scatterlist out, in, *sgs[] = { &out, &in };
	unsigned int written;
	void *done;
	int err;

	if (body_bytes > CARD_MOST_BODY_BYTES || answer_bytes > CARD_MOST_BODY_BYTES)
		return -EINVAL;
	*request = (struct niclab_request){ .operation = operation, .body_bytes = body_bytes };
	memcpy(card->shared->body, body, body_bytes);
	sg_init_one(&out, request, sizeof(*request) + body_bytes);
	sg_init_one(&in, reply, sizeof(*reply) + answer_bytes);
	err = virtqueue_add_sgs(queue, sgs, 1, 1, request, GFP_KERNEL);
	if (err)
		return err;
	virtqueue_kick(queue);
	/* Who gives up on an answer fails to start: the reset takes the memory back. */
	err = read_poll_timeout(virtqueue_get_buf, done, done, USEC_PER_MSEC,
				card->config.control_timeout_ms * USEC_PER_MSEC, false, queue,
				&written);
	if (err)
		return err;
	if (written < sizeof(*reply) + answer_bytes || reply->status != NICLAB_STATUS_OK)
		return -EPROTO;
	memcpy(answer, card->shared->answer, answer_bytes);
	return 0;
}

static inline void card_give_event(struct virtqueue *queue, struct niclab_event *event)
{
	struct scatterlist in;

	sg_init_one(&in, event, sizeof(*event));
	virtqueue_add_inbuf(queue, &in, 1, event, GFP_ATOMIC);
}

/* Section 7: what came is seen in memory. The event only says so, and its buffer goes back. */
static inline void card_on_interrupt(struct virtqueue *queue)
{
	struct card *card = queue->vdev->priv;
	struct niclab_event *event;
	unsigned int written;

	while ((event = virtqueue_get_buf(queue, &written)))
		card_give_event(queue, event);
	virtqueue_kick(queue);
	card->on_event(card);
}

/* Section 2: the device maps the BAR after a first queue event, and stores the magic word last. */
static inline int card_map_bar(struct card *card)
{
	struct virtio_shm_region region;
	u64 magic;

	if (!virtio_get_shm_region(card->vdev, &region, NICLAB_REGION) ||
	    region.len < (u64)card->config.bar_pages * NICLAB_PAGE_BYTES)
		return -ENXIO;
	card->bar = devm_ioremap_wc(&card->vdev->dev, region.addr, region.len);
	if (!card->bar)
		return -ENOMEM;
	return readq_poll_timeout(card->bar, magic, magic == NICLAB_MAGIC, USEC_PER_MSEC,
				  card->config.control_timeout_ms * USEC_PER_MSEC);
}

/* Section 2: port 0's page in the window of a kind, or NULL. Rows behind the last are zero. */
static inline void __iomem *card_window(struct card *card, u32 kind)
{
	void __iomem *row = card->bar + NICLAB_INFO_WINDOWS_OFFSET;
	struct niclab_window window;
	u32 i;

	for (i = 0; i < NICLAB_MAX_WINDOWS; i++, row += sizeof(window)) {
		memcpy_fromio(&window, row, sizeof(window));
		if (window.kind == kind && window.first_page < card->config.bar_pages)
			return card->bar + (size_t)window.first_page * NICLAB_PAGE_BYTES;
	}
	return NULL;
}

/* Sections 1 to 3. Queues have to be all there, idle ones too: virtio numbers what is asked for. */
static inline int card_start(struct card *card, struct virtio_device *vdev, u64 features)
{
	struct virtqueue_info info[NICLAB_QUEUES] = {
		{ .name = "control" }, { .name = "event", .callback = card_on_interrupt },
		{ .name = "transmit" }, { .name = "receive" }, { .name = "doorbell" },
	};
	struct niclab_device_config *config = &card->config;
	int err;
	u32 i;

	card->vdev = vdev;
	vdev->priv = card;
	init_waitqueue_head(&card->changed);
	spin_lock_init(&card->lock);
	kref_init(&card->uses);
	/* By words: each access goes all the way to the device. */
	__virtio_cread_many(vdev, 0, config, sizeof(*config) / sizeof(u64), sizeof(u64));
	if (config->magic != NICLAB_MAGIC || config->abi_version != NICLAB_ABI_VERSION ||
	    (config->features & features) != features)
		return -ENODEV;
	/* The device's words are not believed: it may be faulty. */
	config->control_timeout_ms = clamp(config->control_timeout_ms, 100U, 60000U);
	if (peer < 0)
		peer = config->node ^ 1;
	card->shared = devm_kzalloc(&vdev->dev, sizeof(*card->shared), GFP_KERNEL);
	if (!card->shared)
		return -ENOMEM;
	err = virtio_find_vqs(vdev, NICLAB_QUEUES, card->queues, info, NULL);
	if (err)
		return err;
	for (i = 0; i < CARD_EVENTS; i++)
		card_give_event(card->queues[NICLAB_QUEUE_EVENT], &card->shared->events[i]);
	virtio_device_ready(vdev);
	virtqueue_kick(card->queues[NICLAB_QUEUE_EVENT]);
	return card_request(card, NICLAB_OP_PING, NULL, 0, NULL, 0);
}

/* Whether it was started or not. Behind it neither device nor programs touch what they share. */
static inline void card_stop(struct card *card)
{
	/* Files may still be open: who sleeps in one is woken, and finds the device gone. */
	spin_lock_irq(&card->lock);
	card->is_gone = true;
	spin_unlock_irq(&card->lock);
	wake_up_all(&card->changed);
	/* Behind the reset the device writes nowhere, and its memory may be freed. */
	virtio_reset_device(card->vdev);
	card->vdev->config->del_vqs(card->vdev);
}

static inline void card_free(struct kref *uses)
{
	kfree(container_of(uses, struct card, uses));
}

/* The core holds its lock here and in misc_deregister(): what is found is there. */
static inline int card_open(struct inode *inode, struct file *filp)
{
	kref_get(&card_of(filp)->uses);
	return 0;
}

static inline int card_release(struct inode *inode, struct file *filp)
{
	kref_put(&card_of(filp)->uses, card_free);
	return 0;
}

static inline int card_publish(struct card *card, const char *name,
			       const struct file_operations *fops)
{
	card->misc = (struct miscdevice){ .minor = MISC_DYNAMIC_MINOR, .name = name, .fops = fops };
	return misc_register(&card->misc);
}
