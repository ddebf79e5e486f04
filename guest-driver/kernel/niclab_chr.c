// SPDX-License-Identifier: GPL-2.0
/*
 * The character device /dev/niclabN.
 */
#include <linux/idr.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "niclab.h"

/* Maximum number of NICs in a guest. */
#define NICLAB_MINORS 64U

static dev_t niclab_first;
static DEFINE_IDA(niclab_indices);

static int niclab_open(struct inode *inode, struct file *filp)
{
	struct niclab *nic = container_of(inode->i_cdev, struct niclab, cdev);
	struct niclab_file *file;
	int err;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	file->nic = nic;
	file->mapping = filp->f_mapping;
	INIT_LIST_HEAD(&file->regions);
	init_waitqueue_head(&file->wait);

	err = niclab_lock(nic);
	if (err) {
		kfree(file);
		return err;
	}
	list_add(&file->entry, &nic->files);
	mutex_unlock(&nic->lock);
	filp->private_data = file;
	return stream_open(inode, filp);
}

/* Runs when the last descriptor is closed, also when the process dies; cannot fail. */
static int niclab_release(struct inode *inode, struct file *filp)
{
	struct niclab_file *file = filp->private_data;
	struct niclab *nic = file->nic;
	LIST_HEAD(regions);

	niclab_active_close(file);
	mutex_lock(&nic->lock);
	niclab_port_close(file, &regions);
	list_del(&file->entry);
	mutex_unlock(&nic->lock);
	niclab_region_release(nic, &regions);
	kfree(file);
	return 0;
}

/*
 * Whether @command is NICLAB_IOCTL_INFO of any version of the contract. Their structures differ in size, but all begin
 * with magic word and version. So a program of another version can report the mismatch and its fix.
 */
static bool niclab_is_info(unsigned int command)
{
	return _IOC_TYPE(command) == NICLAB_IOCTL_TYPE && _IOC_NR(command) == _IOC_NR(NICLAB_IOCTL_INFO) &&
	       _IOC_DIR(command) == _IOC_READ &&
	       _IOC_SIZE(command) >= offsetofend(struct niclab_device_config, abi_version);
}

static long niclab_ioctl_info(struct niclab_file *file, unsigned int command, void __user *user)
{
	size_t bytes = min_t(size_t, _IOC_SIZE(command), sizeof(file->nic->config));

	return copy_to_user(user, &file->nic->config, bytes) ? -EFAULT : 0;
}

static long niclab_ioctl_open_port(struct niclab_file *file, void __user *user)
{
	struct niclab_open_port argument;
	LIST_HEAD(regions);
	int err;

	if (copy_from_user(&argument, user, sizeof(argument)))
		return -EFAULT;
	err = niclab_lock(file->nic);
	if (err)
		return err;
	err = niclab_port_open(file, &argument);
	mutex_unlock(&file->nic->lock);
	if (err || !copy_to_user(user, &argument, sizeof(argument)))
		return err;

	/* The program does not know the port's number, so it must not keep the port. */
	mutex_lock(&file->nic->lock);
	niclab_port_close(file, &regions);
	mutex_unlock(&file->nic->lock);
	niclab_region_release(file->nic, &regions);
	return -EFAULT;
}

static long niclab_ioctl_close_port(struct niclab_file *file)
{
	int err = niclab_lock(file->nic);
	LIST_HEAD(regions);

	if (err)
		return err;
	err = file->open ? 0 : -ENOTCONN;
	niclab_port_close(file, &regions);
	if (!err && niclab_is_dead(file->nic))
		err = -ENODEV;
	mutex_unlock(&file->nic->lock);
	niclab_region_release(file->nic, &regions);
	return err;
}

/* Makes the request that @peer and @command mean for the file's port. */
static int niclab_peer_request(struct niclab_file *file, unsigned int command, const struct niclab_peer *peer)
{
	struct niclab *nic = file->nic;
	struct niclab_route route = { .port = file->port, .node = peer->node, .node_port = peer->port };
	struct niclab_revoke revoke = { .port = file->port, .node = peer->node, .node_port = peer->port };
	struct niclab_authorize authorize = {
		.port = file->port,
		.node = peer->node,
		.node_port = peer->port,
		.credits = peer->credits,
	};

	if (peer->reserved || (peer->credits && command != NICLAB_IOCTL_AUTHORIZE))
		return -EINVAL;
	if (!file->open)
		return -ENOTCONN;
	switch (command) {
	case NICLAB_IOCTL_ROUTE:
		return niclab_control(nic, NICLAB_OP_ROUTE, &route, sizeof(route), NULL, 0);
	case NICLAB_IOCTL_AUTHORIZE:
		return niclab_control(nic, NICLAB_OP_AUTHORIZE, &authorize, sizeof(authorize), NULL, 0);
	default:
		return niclab_control(nic, NICLAB_OP_REVOKE, &revoke, sizeof(revoke), NULL, 0);
	}
}

static long niclab_ioctl_peer(struct niclab_file *file, unsigned int command, void __user *user)
{
	struct niclab_peer peer;
	int err;

	if (copy_from_user(&peer, user, sizeof(peer)))
		return -EFAULT;
	err = niclab_lock(file->nic);
	if (err)
		return err;
	err = niclab_peer_request(file, command, &peer);
	mutex_unlock(&file->nic->lock);
	return err;
}

static long niclab_ioctl_check(struct niclab_file *file)
{
	int err = niclab_lock(file->nic);

	if (err)
		return err;
	err = niclab_control(file->nic, NICLAB_OP_PING, NULL, 0, NULL, 0);
	mutex_unlock(&file->nic->lock);
	return err;
}

static long niclab_ioctl_register(struct niclab_file *file, void __user *user)
{
	struct niclab_registration argument;
	int err;

	if (copy_from_user(&argument, user, sizeof(argument)))
		return -EFAULT;
	err = niclab_region_register(file, &argument);
	if (err || !copy_to_user(user, &argument, sizeof(argument)))
		return err;

	/* The program does not know its region: it must not keep it. */
	niclab_region_deregister(file, argument.region);
	return -EFAULT;
}

static long niclab_ioctl_deregister(struct niclab_file *file, void __user *user)
{
	struct niclab_registration argument;

	if (copy_from_user(&argument, user, sizeof(argument)))
		return -EFAULT;
	return argument.reserved ? -EINVAL : niclab_region_deregister(file, argument.region);
}

static long niclab_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	struct niclab_file *file = filp->private_data;
	void __user *user = (void __user *)argument;

	if (niclab_is_dead(file->nic))
		return -ENODEV;
	if (niclab_is_info(command))
		return niclab_ioctl_info(file, command, user);
	switch (command) {
	case NICLAB_IOCTL_OPEN_PORT:
		return niclab_ioctl_open_port(file, user);
	case NICLAB_IOCTL_CLOSE_PORT:
		return niclab_ioctl_close_port(file);
	case NICLAB_IOCTL_ROUTE:
	case NICLAB_IOCTL_AUTHORIZE:
	case NICLAB_IOCTL_REVOKE:
		return niclab_ioctl_peer(file, command, user);
	case NICLAB_IOCTL_CHECK:
		return niclab_ioctl_check(file);
	case NICLAB_IOCTL_REGISTER:
		return niclab_ioctl_register(file, user);
	case NICLAB_IOCTL_DEREGISTER:
		return niclab_ioctl_deregister(file, user);
	case NICLAB_IOCTL_RULES:
		return niclab_post_rules(file, user);
	case NICLAB_IOCTL_GROUP:
		return niclab_post_group(file, user);
	case NICLAB_IOCTL_CHANNEL_PAYLOAD:
		return niclab_channel_payload(file, user);
	case NICLAB_IOCTL_CHANNEL_EXPOSE:
		return niclab_channel_expose(file, user);
	case NICLAB_IOCTL_ACTIVE_OPEN:
		return niclab_active_open(file, user);
	case NICLAB_IOCTL_ACTIVE_SEND:
		return niclab_active_send(file, user);
	case NICLAB_IOCTL_ACTIVE_FLUSH:
		return niclab_active_flush(file, user);
	case NICLAB_IOCTL_ACTIVE_RECEIVE:
		return niclab_active_receive(file, user);
	default:
		return -ENOTTY;
	}
}

/* Whether read can return; takes the count of events if there is one. */
static bool niclab_read_ready(struct niclab_file *file, u64 *count)
{
	*count = niclab_event_take(file);
	return *count || !READ_ONCE(file->open) || niclab_is_dead(file->nic);
}

static ssize_t niclab_read(struct file *filp, char __user *user, size_t bytes, loff_t *offset)
{
	struct niclab_file *file = filp->private_data;
	u64 count;

	if (bytes < sizeof(count))
		return -EINVAL;
	if (!niclab_read_ready(file, &count)) {
		if (filp->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(file->wait, niclab_read_ready(file, &count)))
			return -ERESTARTSYS;
	}
	if (niclab_is_dead(file->nic))
		return -ENODEV;
	if (!count)
		return -ENOTCONN;
	return copy_to_user(user, &count, sizeof(count)) ? -EFAULT : sizeof(count);
}

static __poll_t niclab_poll(struct file *filp, poll_table *table)
{
	struct niclab_file *file = filp->private_data;

	poll_wait(filp, &file->wait, table);
	if (niclab_is_dead(file->nic))
		return EPOLLERR | EPOLLHUP;
	return READ_ONCE(file->pending) || niclab_active_is_ready(file) ? EPOLLIN | EPOLLRDNORM : 0;
}

static const struct file_operations niclab_operations = {
	.owner = THIS_MODULE,
	.open = niclab_open,
	.release = niclab_release,
	.unlocked_ioctl = niclab_ioctl,
	/* Every structure has the same layout in a 32-bit program. */
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = niclab_mmap,
	.read = niclab_read,
	.poll = niclab_poll,
	.llseek = noop_llseek,
};

static char *niclab_devnode(const struct device *dev, umode_t *mode)
{
	/* Every user may open the NIC: a laboratory's guest needs no protection of it, and pages separate the ports. */
	if (mode)
		*mode = 0666;
	return NULL;
}

const struct class niclab_class = {
	.name = "niclab",
	.devnode = niclab_devnode,
	.dev_groups = niclab_groups,
};

/**
 * niclab_chr_init - makes room for character devices, once for the module.
 *
 * Return: 0 or an error.
 */
int niclab_chr_init(void)
{
	int err = alloc_chrdev_region(&niclab_first, 0, NICLAB_MINORS, "niclab");

	if (err)
		return err;
	err = class_register(&niclab_class);
	if (err)
		unregister_chrdev_region(niclab_first, NICLAB_MINORS);
	return err;
}

/**
 * niclab_chr_exit - undoes niclab_chr_init().
 */
void niclab_chr_exit(void)
{
	class_unregister(&niclab_class);
	unregister_chrdev_region(niclab_first, NICLAB_MINORS);
	ida_destroy(&niclab_indices);
}

/**
 * niclab_chr_reserve - gives the NIC its number and name, so that messages can use it.
 * @nic: the NIC.
 *
 * Return: 0 or an error.
 */
int niclab_chr_reserve(struct niclab *nic)
{
	int err;

	nic->index = ida_alloc_max(&niclab_indices, NICLAB_MINORS - 1, GFP_KERNEL);
	if (nic->index < 0)
		return nic->index;
	nic->dev.devt = MKDEV(MAJOR(niclab_first), MINOR(niclab_first) + nic->index);
	err = dev_set_name(&nic->dev, "niclab%d", nic->index);
	if (err)
		niclab_chr_unreserve(nic);
	return err;
}

/**
 * niclab_chr_unreserve - gives the number back.
 * @nic: the NIC. Files may still be open; their device is found by another way than its number.
 */
void niclab_chr_unreserve(struct niclab *nic)
{
	ida_free(&niclab_indices, nic->index);
}

/**
 * niclab_chr_add - publishes the NIC: from here on programs can open it.
 * @nic: the NIC, whose device works.
 *
 * Return: 0 or an error.
 */
int niclab_chr_add(struct niclab *nic)
{
	cdev_init(&nic->cdev, &niclab_operations);
	nic->cdev.owner = THIS_MODULE;
	return cdev_device_add(&nic->cdev, &nic->dev);
}

/**
 * niclab_chr_remove - undoes niclab_chr_add(). Files that are open stay so, and keep the structure.
 * @nic: the NIC.
 */
void niclab_chr_remove(struct niclab *nic)
{
	cdev_device_del(&nic->cdev, &nic->dev);
}
