/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The common code of all example drivers: sections 1 to 4 and 7 of docs/driver/DEVICE.md, and files that may outlive
 * their device. Each example has a link to this file; copy an example with `cp -rL`.
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
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "niclab_abi.h"

#define CARD_EVENTS		16U
#define CARD_MOST_BODY_BYTES	64U
#define CARD_ALIGNMENT		64U

static int peer = -1;
module_param(peer, int, 0444);
MODULE_PARM_DESC(peer, "node number of the peer; by default the other node of the pair (number ^ 1)");

/* Memory for control requests. The device uses physical addresses, so each part must be physically contiguous. */
struct card_shared {
	struct niclab_event events[CARD_EVENTS];
	struct niclab_request request;
	u8 body[CARD_MOST_BODY_BYTES];
	struct niclab_reply reply;
	u8 answer[CARD_MOST_BODY_BYTES];
};

/* Memory that the device writes: contiguous, and directly before an unmapped page. */
struct card_area {
	void *first, *mapped;
	phys_addr_t physical;
	size_t bytes;
};

/* The base of each driver's own structure. */
struct card {
	struct virtio_device *vdev;
	struct virtqueue *queues[NICLAB_QUEUES];
	struct niclab_device_config config;
	struct card_shared *shared;
	struct card_area *area;
	void __iomem *bar;
	/* The number of the device's sleep for which the doorbell was rung last. */
	u64 rung_for;
	struct miscdevice misc;
	/* Called by the interrupt. The interrupt then wakes the sleepers in `changed`, which check again. */
	void (*on_event)(struct card *card);
	wait_queue_head_t changed;
	/* One reference for the device, and one for each open file. */
	struct kref uses;
	/* Protects all state that programs and device change. No holder sleeps. */
	spinlock_t lock;
	bool is_gone;
};

static inline struct card *card_of(struct file *filp)
{
	return container_of(filp->private_data, struct card, misc);
}

/* Section 4: sends one request and waits for its answer with a timeout. Used only while the driver starts. */
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
	/* If the wait times out, the driver fails to start, and the reset takes the memory from the device. */
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

/* Section 7: the memory shows what arrived. The event only reports that, and its buffer goes back to the device. */
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

static inline void card_area_free(void *data)
{
	struct card_area *area = data;

	vunmap(area->mapped);
	free_pages_exact(area->first, area->bytes);
	kfree(area);
}

/*
 * Allocates zeroed memory for what the device writes; the kernel frees it after the driver's remove(). The memory ends
 * directly before an unmapped page. A driver that uses an invalid length or index of a faulty device faults there at
 * once, on every kernel, and damages nothing. Call it once per card.
 */
static inline void *card_memory(struct card *card, size_t bytes)
{
	struct card_area *area = kzalloc(sizeof(*area), GFP_KERNEL);
	size_t whole = PAGE_ALIGN(bytes), at = round_down(whole - bytes, CARD_ALIGNMENT), i;
	struct page **pages = kcalloc(whole / PAGE_SIZE, sizeof(*pages), GFP_KERNEL);

	if (area)
		area->first = alloc_pages_exact(whole, GFP_KERNEL | __GFP_ZERO);
	if (!area || !pages || !area->first)
		goto failed;
	for (i = 0; i < whole / PAGE_SIZE; i++)
		pages[i] = virt_to_page(area->first + i * PAGE_SIZE);
	area->bytes = whole;
	area->physical = virt_to_phys(area->first);
	area->mapped = vmap(pages, whole / PAGE_SIZE, VM_MAP, PAGE_KERNEL);
	if (!area->mapped) {
		free_pages_exact(area->first, whole);
		goto failed;
	}
	kfree(pages);
	card->area = area;
	if (devm_add_action_or_reset(&card->vdev->dev, card_area_free, area))
		return NULL;
	return area->mapped + at;
failed:
	kfree(pages);
	kfree(area);
	return NULL;
}

/* The physical address, for the device, of an object in that memory. */
static inline u64 card_physical(const struct card *card, const void *memory)
{
	return card->area->physical + (memory - card->area->mapped);
}

/* Section 2: the device maps the BAR after the first buffers in the event queue, and stores the magic word last. */
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

/* The page after the last one of a window. */
static inline u64 card_window_end(const struct card *card, const struct niclab_window *window)
{
	return window->first_page + (u64)window->stride * (card->config.ports - 1) + window->pages;
}

/* Section 2: whether a row of the table is valid and does not overlap the rows before it. */
static inline bool card_window_is_valid(const struct card *card, const struct niclab_window *rows, u32 i)
{
	const struct niclab_window *row = &rows[i], *other;
	u64 end = card_window_end(card, row);

	if (!row->first_page || !row->pages || (row->stride && row->stride < row->pages) ||
	    end > card->config.bar_pages || row->caching < NICLAB_CACHING_UNCACHED ||
	    row->caching > NICLAB_CACHING_WRITE_BACK || row->access < NICLAB_ACCESS_READ_ONLY ||
	    row->access > NICLAB_ACCESS_READ_WRITE)
		return false;
	for (other = rows; other < row; other++)
		if (other->kind == row->kind || (row->first_page < card_window_end(card, other) &&
						 other->first_page < end))
			return false;
	return true;
}

/*
 * Section 2: maps port 0's page in the window of a kind, and clears what an earlier driver left there. Returns NULL if
 * the window does not exist or the table is invalid. Programs map no window. The driver does the stores, with the
 * caching of the whole BAR and a barrier before each store whose order matters.
 */
static inline void __iomem *card_window(struct card *card, u32 kind)
{
	struct niclab_window rows[NICLAB_MAX_WINDOWS];
	void __iomem *page = NULL;
	u32 windows, i;

	windows = readl(card->bar + offsetof(struct niclab_info_page, windows));
	if (windows > NICLAB_MAX_WINDOWS)
		return NULL;
	memcpy_fromio(rows, card->bar + NICLAB_INFO_WINDOWS_OFFSET, windows * sizeof(rows[0]));
	for (i = 0; i < windows; i++) {
		if (!card_window_is_valid(card, rows, i))
			return NULL;
		if (rows[i].kind == kind)
			page = card->bar + (size_t)rows[i].first_page * NICLAB_PAGE_BYTES;
	}
	if (page)
		memset_io(page, 0, NICLAB_PAGE_BYTES);
	return page;
}

/* Sections 1 to 3. The driver requests all queues, even unused ones, because virtio numbers the requested queues. */
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
	/* Word by word, because each access is a separate access to the device. */
	__virtio_cread_many(vdev, 0, config, sizeof(*config) / sizeof(u64), sizeof(u64));
	if (config->magic != NICLAB_MAGIC || config->abi_version != NICLAB_ABI_VERSION ||
	    (config->features & features) != features || !config->ports || !config->nodes)
		return -ENODEV;
	/* The driver does not trust the device's values: the device may be faulty. */
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

/* Works for a started and for an unstarted device. Afterwards neither device nor programs access shared memory. */
static inline void card_stop(struct card *card)
{
	/* Files may still be open. Readers and writers that sleep there wake, and find that the device is gone. */
	spin_lock_irq(&card->lock);
	card->is_gone = true;
	spin_unlock_irq(&card->lock);
	wake_up_all(&card->changed);
	/* After the reset the device writes nothing, so its memory may be freed. */
	virtio_reset_device(card->vdev);
	card->vdev->config->del_vqs(card->vdev);
}

static inline void card_free(struct kref *uses)
{
	kfree(container_of(uses, struct card, uses));
}

/* The misc core holds its lock here and in misc_deregister(), so the card still exists. */
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
