// SPDX-License-Identifier: GPL-2.0
/*
 * Event queue. The card has one interrupt line; the cause of an interrupt is in a buffer of this queue.
 *
 * Callbacks are never disabled, not even while events are drained: measurements count one interrupt for every event.
 */
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "niclab.h"

int niclab_event_init(struct niclab *nic)
{
	nic->events = kcalloc(NICLAB_EVENT_BUFFERS, sizeof(*nic->events), GFP_KERNEL);
	nic->owners = kcalloc(nic->config.ports, sizeof(struct niclab_file *), GFP_KERNEL);
	return nic->events && nic->owners ? 0 : -ENOMEM;
}

void niclab_event_free(struct niclab *nic)
{
	kfree(nic->owners);
	kfree(nic->events);
}

static int niclab_event_give(struct niclab *nic, struct niclab_event *event, gfp_t gfp)
{
	struct scatterlist in;

	memset(event, 0, sizeof(*event));
	sg_init_one(&in, event, sizeof(*event));
	return virtqueue_add_inbuf(nic->queues[NICLAB_QUEUE_EVENT], &in, 1, event, gfp);
}

/**
 * niclab_event_fill - gives buffers to the device; afterwards it can interrupt.
 * @nic: the NIC, whose device is ready.
 *
 * Return: 0, or the error of the queue.
 */
int niclab_event_fill(struct niclab *nic)
{
	struct virtqueue *queue = nic->queues[NICLAB_QUEUE_EVENT];
	unsigned int count = min(NICLAB_EVENT_BUFFERS, virtqueue_get_vring_size(queue));
	unsigned int i;
	int err = 0;

	spin_lock_irq(&nic->event_lock);
	nic->event_buffers = count;
	for (i = 0; i < count && !err; i++)
		err = niclab_event_give(nic, &nic->events[i], GFP_ATOMIC);
	if (!err)
		virtqueue_kick(queue);
	spin_unlock_irq(&nic->event_lock);
	return err;
}

static bool niclab_event_is_for_port(u32 cause)
{
	return cause == NICLAB_CAUSE_MESSAGE || cause == NICLAB_CAUSE_ARMED;
}

static void niclab_event_dispatch(struct niclab *nic, const struct niclab_event *event)
{
	struct niclab_file *owner;

	if (!event->cause || event->cause >= NICLAB_CAUSES) {
		nic->causes[0] += event->count;
		return;
	}
	nic->causes[event->cause] += event->count;
	if (event->cause == NICLAB_CAUSE_FIRMWARE)
		dev_err_ratelimited(&nic->dev, "the firmware misbehaved, so the device continues with its built-in program; fix the firmware, then write its name to the attribute firmware\n");
	if (event->cause == NICLAB_CAUSE_HANDED_OVER)
		wake_up_all(&nic->handed_over);
	if (event->cause == NICLAB_CAUSE_FRAMES)
		niclab_ring_interrupt(nic);
	if (event->cause == NICLAB_CAUSE_LINK) {
		nic->is_cut = event->port;
		niclab_net_carrier(nic);
	}
	if (event->port >= nic->config.ports || !niclab_event_is_for_port(event->cause))
		return;
	owner = nic->owners[event->port];
	if (!owner)
		return;
	owner->pending += event->count;
	wake_up_interruptible(&owner->wait);
}

/* Processes the buffers that the device has filled, and gives them back. Returns their number. */
static unsigned int niclab_event_drain(struct niclab *nic)
{
	struct virtqueue *queue = nic->queues[NICLAB_QUEUE_EVENT];
	struct niclab_event *event;
	struct niclab_event told;
	unsigned int count = 0;
	unsigned int written;
	int err;

	lockdep_assert_held(&nic->event_lock);
	while ((event = virtqueue_get_buf(queue, &written))) {
		/* Read once: a faulty device may still write to the buffer. */
		memcpy(&told, event, sizeof(told));
		barrier();
		if (written >= sizeof(told))
			niclab_event_dispatch(nic, &told);
		else
			nic->causes[0]++;
		count++;
		err = niclab_event_give(nic, event, GFP_ATOMIC);
		if (err && nic->event_buffers > 1)
			nic->event_buffers--;
		if (err)
			dev_err_ratelimited(&nic->dev, "event queue: a buffer cannot be given back to the device (%pe); reload the driver to restore it\n",
					    ERR_PTR(err));
	}
	/*
	 * The device holds causes back while it has no buffer, and only then needs a kick. It was without one only if
	 * this loop took all buffers in circulation.
	 */
	if (count >= nic->event_buffers)
		virtqueue_kick(queue);
	return count;
}

/**
 * niclab_event_interrupt - interrupt callback of the event queue.
 * @queue: the event queue.
 */
void niclab_event_interrupt(struct virtqueue *queue)
{
	struct niclab *nic = queue->vdev->priv;
	unsigned long flags;

	spin_lock_irqsave(&nic->event_lock, flags);
	if (niclab_event_drain(nic))
		nic->interrupts++;
	spin_unlock_irqrestore(&nic->event_lock, flags);
}

/**
 * niclab_event_attach - delivers the port's interrupts to the file.
 * @file: owner of an open port.
 */
void niclab_event_attach(struct niclab_file *file)
{
	struct niclab *nic = file->nic;

	spin_lock_irq(&nic->event_lock);
	file->pending = 0;
	nic->owners[file->port] = file;
	spin_unlock_irq(&nic->event_lock);
}

/**
 * niclab_event_detach - stops delivering the port's interrupts.
 * @file: owner of a port that the device has closed, or of a device that is gone.
 *
 * Drains the queue first, so that no event of this owner reaches the next one.
 */
void niclab_event_detach(struct niclab_file *file)
{
	struct niclab *nic = file->nic;

	spin_lock_irq(&nic->event_lock);
	if (!nic->dead)
		niclab_event_drain(nic);
	nic->owners[file->port] = NULL;
	file->pending = 0;
	spin_unlock_irq(&nic->event_lock);
	wake_up_all(&file->wait);
}

/**
 * niclab_event_take - reads and clears the number of the port's interrupt causes.
 * @file: the file.
 *
 * Return: causes since the last call.
 */
u64 niclab_event_take(struct niclab_file *file)
{
	u64 count;

	spin_lock_irq(&file->nic->event_lock);
	count = file->pending;
	file->pending = 0;
	spin_unlock_irq(&file->nic->event_lock);
	return count;
}
