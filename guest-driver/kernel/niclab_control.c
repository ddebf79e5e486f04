// SPDX-License-Identifier: GPL-2.0
/*
 * Requests on the control queue: one at a time, each with a timeout.
 *
 * Only the event queue interrupts, so that interrupts can be counted exactly. The driver therefore polls the control
 * queue for the reply and sleeps in between. Requests open ports and change tables; no message waits for one.
 */
#include <linux/delay.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "niclab.h"

/* Pauses between two polls for the reply: the first one, and the maximum to which the pause doubles. */
#define NICLAB_PAUSE_FIRST_US 10U
#define NICLAB_PAUSE_LONGEST_US 1000U

/**
 * struct niclab_control_buffer - the buffers of one request, which the device reads and writes.
 * @request: head, directly followed by the body.
 * @body: room for the longest body of a request.
 * @reply: head, directly followed by the body.
 * @answer: room for the longest body of a reply.
 */
struct niclab_control_buffer {
	struct niclab_request request;
	u8 body[NICLAB_CONTROL_BODY_BYTES];
	struct niclab_reply reply;
	u8 answer[sizeof(struct niclab_counters_answer)];
};

int niclab_control_init(struct niclab *nic)
{
	/* From kmalloc, because the device accesses it: a stack may live in virtually mapped memory. */
	nic->control = kzalloc(sizeof(*nic->control), GFP_KERNEL);
	return nic->control ? 0 : -ENOMEM;
}

void niclab_control_free(struct niclab *nic)
{
	kfree(nic->control);
}

/* Wakes all threads that wait for an interrupt, because none will follow. */
static void niclab_wake_all(struct niclab *nic)
{
	struct niclab_file *file;

	list_for_each_entry(file, &nic->files, entry)
		wake_up_all(&file->wait);
	wake_up_all(&nic->handed_over);
}

/**
 * niclab_mark_dead - marks the device dead: from here on every call fails with -ENODEV.
 * @nic: the NIC, locked.
 */
void niclab_mark_dead(struct niclab *nic)
{
	lockdep_assert_held(&nic->lock);
	WRITE_ONCE(nic->dead, true);
	niclab_wake_all(nic);
}

/**
 * niclab_lock - locks a NIC whose device is not dead.
 * @nic: the NIC.
 *
 * Return: 0 with &niclab.lock held; -EINTR if the process is killed while it waits; -ENODEV if the device is dead.
 */
int niclab_lock(struct niclab *nic)
{
	if (mutex_lock_killable(&nic->lock))
		return -EINTR;
	if (!nic->dead)
		return 0;
	mutex_unlock(&nic->lock);
	return -ENODEV;
}

static int niclab_control_post(struct niclab *nic, u32 body_bytes, u32 answer_bytes)
{
	struct virtqueue *queue = nic->queues[NICLAB_QUEUE_CONTROL];
	struct niclab_control_buffer *control = nic->control;
	struct scatterlist out, in, *sgs[] = { &out, &in };
	int err;

	sg_init_one(&out, &control->request, sizeof(control->request) + body_bytes);
	sg_init_one(&in, &control->reply, sizeof(control->reply) + answer_bytes);
	err = virtqueue_add_sgs(queue, sgs, 1, 1, control, GFP_KERNEL);
	if (err)
		return err;
	return virtqueue_kick(queue) ? 0 : -EIO;
}

/* Returns the bytes that the device wrote, or an error. */
static int niclab_control_wait(struct niclab *nic)
{
	struct virtqueue *queue = nic->queues[NICLAB_QUEUE_CONTROL];
	unsigned int pause_us = NICLAB_PAUSE_FIRST_US;
	struct niclab_limit limit;
	unsigned int written;

	niclab_limit_begin(&limit, nic->config.control_timeout_ms);
	while (!virtqueue_get_buf(queue, &written)) {
		if (virtqueue_is_broken(queue))
			return -EIO;
		if (niclab_limit_is_over(&limit))
			return -ETIMEDOUT;
		usleep_range(pause_us, 2 * pause_us);
		pause_us = min(2 * pause_us, NICLAB_PAUSE_LONGEST_US);
	}
	return min_t(unsigned int, written, INT_MAX);
}

static int niclab_errno(u32 status)
{
	switch (status) {
	case NICLAB_STATUS_OK:
		return 0;
	case NICLAB_STATUS_BAD_OPERATION:
		return -EOPNOTSUPP;
	case NICLAB_STATUS_BAD_PORT:
		return -ENXIO;
	case NICLAB_STATUS_PORT_BUSY:
		return -EBUSY;
	case NICLAB_STATUS_BAD_ADDRESS:
		return -EFAULT;
	case NICLAB_STATUS_BAD_VALUE:
		return -EINVAL;
	case NICLAB_STATUS_NO_SPACE:
		return -ENOSPC;
	case NICLAB_STATUS_NOT_FOUND:
		return -ENOENT;
	case NICLAB_STATUS_FIRMWARE_IMAGE:
		return -ENOEXEC;
	case NICLAB_STATUS_FIRMWARE_CHECKSUM:
		return -EBADMSG;
	case NICLAB_STATUS_FIRMWARE_VERSION:
		return -EPROTONOSUPPORT;
	case NICLAB_STATUS_FIRMWARE_WORD:
		return -EILSEQ;
	case NICLAB_STATUS_FIRMWARE_SIZE:
		return -EFBIG;
	case NICLAB_STATUS_FIRMWARE_UNFIT:
		return -ERANGE;
	case NICLAB_STATUS_FIRMWARE_BUSY:
		return -EBUSY;
	default:
		return -EPROTO;
	}
}

static int niclab_control_result(struct niclab *nic, u32 written, void *answer, u32 answer_bytes)
{
	struct niclab_control_buffer *control = nic->control;
	u32 operation = control->request.operation;
	int err;

	if (written < sizeof(control->reply)) {
		dev_err(&nic->dev, "control request %u: reply of %u bytes is shorter than its head; device and driver do not match, update the older\n",
			operation, written);
		return -EPROTO;
	}
	err = niclab_errno(control->reply.status);
	if (err) {
		dev_dbg(&nic->dev, "control request %u refused with status %u\n", operation, control->reply.status);
		return err;
	}
	if (control->reply.body_bytes != answer_bytes || written < sizeof(control->reply) + answer_bytes) {
		dev_err(&nic->dev, "control request %u: answer of %u bytes instead of %u; device and driver do not match, update the older\n",
			operation, control->reply.body_bytes, answer_bytes);
		return -EPROTO;
	}
	memcpy(answer, control->answer, answer_bytes);
	return 0;
}

/**
 * niclab_control - sends one request and waits for the reply.
 * @nic: the NIC, locked.
 * @operation: a NICLAB_OP_ constant.
 * @body: body of the request.
 * @body_bytes: its length.
 * @answer: body of the reply, written on success.
 * @answer_bytes: its length.
 *
 * The wait cannot be interrupted, but is bounded by the device's control_timeout_ms. The driver marks a device dead
 * that exceeds it. That device still owns the request's buffers, so they are never used again.
 *
 * Return: 0; -ENODEV if the device is dead; -EPROTO for a malformed reply; otherwise the status as an errno.
 */
int niclab_control(struct niclab *nic, u32 operation, const void *body, u32 body_bytes, void *answer, u32 answer_bytes)
{
	struct niclab_control_buffer *control = nic->control;
	int written;

	lockdep_assert_held(&nic->lock);
	if (nic->dead)
		return -ENODEV;
	if (WARN_ON_ONCE(body_bytes > sizeof(control->body) || answer_bytes > sizeof(control->answer)))
		return -EINVAL;

	memset(control, 0, sizeof(*control));
	control->request.operation = operation;
	control->request.body_bytes = body_bytes;
	memcpy(control->body, body, body_bytes);

	written = niclab_control_post(nic, body_bytes, answer_bytes);
	if (!written)
		written = niclab_control_wait(nic);
	if (written < 0) {
		dev_err(&nic->dev, "control request %u: no reply within %u ms (%pe); the driver gives the device up; restart the cluster\n",
			operation, nic->config.control_timeout_ms, ERR_PTR(written));
		niclab_mark_dead(nic);
		return -ENODEV;
	}
	return niclab_control_result(nic, written, answer, answer_bytes);
}
