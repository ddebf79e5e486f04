// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of programs that own a logical channel: the payload region, and regions that other nodes may write to.
 */
#include <linux/uaccess.h>

#include "niclab.h"

/**
 * niclab_channel_payload - sets where the device stores the payload of messages for a file's port.
 * @file: the file; its NIC is not locked.
 * @user: the argument of NICLAB_IOCTL_CHANNEL_PAYLOAD.
 *
 * Return: 0, or the error of that request.
 */
int niclab_channel_payload(struct niclab_file *file, void __user *user)
{
	struct niclab_channel_payload request;

	static_assert(!offsetof(typeof(request), port));
	if (copy_from_user(&request, user, sizeof(request)))
		return -EFAULT;
	if (request.port)
		return -EINVAL;
	return niclab_port_request(file, NICLAB_OP_CHANNEL_PAYLOAD, &request, sizeof(request));
}

/**
 * niclab_channel_expose - lets memory messages write to a region of a file's port, or revokes that.
 * @file: the file; its NIC is not locked.
 * @user: the argument of NICLAB_IOCTL_CHANNEL_EXPOSE.
 *
 * Return: 0, or the error of that request.
 */
int niclab_channel_expose(struct niclab_file *file, void __user *user)
{
	struct niclab_channel_expose request;

	static_assert(!offsetof(typeof(request), port));
	if (copy_from_user(&request, user, sizeof(request)))
		return -EFAULT;
	if (request.port)
		return -EINVAL;
	return niclab_port_request(file, NICLAB_OP_CHANNEL_EXPOSE, &request, sizeof(request));
}
