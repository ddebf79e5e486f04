// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of programs that post messages: interrupt rules and groups of nodes.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "niclab.h"

/* A request about a group. */
struct niclab_group_request {
	struct niclab_post_group head;
	struct niclab_post_member members[NICLAB_POST_MAX_MEMBERS];
};
static_assert(sizeof(struct niclab_group_request) <= NICLAB_CONTROL_BODY_BYTES);
static_assert(sizeof(struct niclab_post_member) == sizeof(u32));

/**
 * niclab_post_rules - changes when the device interrupts for a file's port.
 * @file: the file; its NIC is not locked.
 * @user: the argument of NICLAB_IOCTL_RULES.
 *
 * Return: 0, or the error of that request.
 */
int niclab_post_rules(struct niclab_file *file, void __user *user)
{
	struct niclab_post_rules request;

	static_assert(!offsetof(typeof(request), port));
	if (copy_from_user(&request, user, sizeof(request)))
		return -EFAULT;
	if (request.port)
		return -EINVAL;
	return niclab_port_request(file, NICLAB_OP_POST_RULES, &request, sizeof(request));
}

/**
 * niclab_post_group - creates or removes a group of nodes for a file's port.
 * @file: the file; its NIC is not locked.
 * @user: the argument of NICLAB_IOCTL_GROUP.
 *
 * Return: 0, or the error of that request.
 */
int niclab_post_group(struct niclab_file *file, void __user *user)
{
	struct niclab_group_request *request;
	struct niclab_group_of argument;
	size_t bytes;
	int err;

	static_assert(!offsetof(typeof(*request), head.port));
	if (copy_from_user(&argument, user, sizeof(argument)))
		return -EFAULT;
	if (argument.members > NICLAB_POST_MAX_MEMBERS)
		return -EINVAL;
	request = kzalloc(sizeof(*request), GFP_KERNEL);
	if (!request)
		return -ENOMEM;
	request->head.group = argument.group;
	request->head.members = argument.members;
	bytes = argument.members * sizeof(request->members[0]);
	if (copy_from_user(request->members, u64_to_user_ptr(argument.nodes), bytes))
		err = -EFAULT;
	else
		err = niclab_port_request(file, NICLAB_OP_POST_GROUP, request, sizeof(request->head) + bytes);
	kfree(request);
	return err;
}
