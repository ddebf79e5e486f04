// SPDX-License-Identifier: GPL-2.0
/*
 * A driver that takes its card and does nothing with it. It has one fault of each kind that a debug kernel detects, and
 * two that end any kernel. A write of the fault's name to /dev/planted causes it. A comment marks the line that the
 * finding must name.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>

#define DEVICE_OF_A_CARD 38

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(busy);

/* A parameter, because the compiler itself would detect a constant shift that is too large. */
static int shift_by = 40;
module_param(shift_by, int, 0600);

static noinline void use_after_free(void)
{
	char *memory = kmalloc(64, GFP_KERNEL);

	if (!memory)
		return;
	OPTIMIZER_HIDE_VAR(memory);
	kfree(memory);
	OPTIMIZER_HIDE_VAR(memory);
	WRITE_ONCE(memory[3], 1); /* planted: use-after-free */
}

static noinline void double_free(void)
{
	char *memory = kmalloc(64, GFP_KERNEL);

	if (!memory)
		return;
	OPTIMIZER_HIDE_VAR(memory);
	kfree(memory);
	OPTIMIZER_HIDE_VAR(memory);
	kfree(memory); /* planted: double-free */
}

static noinline void null_pointer(void)
{
	int *nothing = NULL;

	OPTIMIZER_HIDE_VAR(nothing);
	WRITE_ONCE(nothing[2], 1); /* planted: null-pointer */
}

static noinline void leak(void)
{
	char *memory = kmalloc(96, GFP_KERNEL); /* planted: leak */

	OPTIMIZER_HIDE_VAR(memory);
}

static noinline void take_in_order(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
}

static noinline void take_in_the_other_order(void)
{
	mutex_lock(&second);
	mutex_lock(&first); /* planted: locks */
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static noinline void sleep_in_atomic(void)
{
	void *memory;

	spin_lock(&busy);
	memory = kmalloc(16, GFP_KERNEL); /* planted: sleep */
	spin_unlock(&busy);
	kfree(memory);
}

static noinline int shift_too_far(void)
{
	return 1 << READ_ONCE(shift_by); /* planted: shift */
}

static ssize_t planted_write(struct file *file, const char __user *buffer, size_t count, loff_t *offset)
{
	char word[32] = "";
	int i;

	if (count >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, buffer, count))
		return -EFAULT;
	if (sysfs_streq(word, "use-after-free")) {
		use_after_free();
	} else if (sysfs_streq(word, "double-free")) {
		double_free();
	} else if (sysfs_streq(word, "null-pointer")) {
		null_pointer();
	} else if (sysfs_streq(word, "leak")) {
		/* Several, because a stale pointer on a stack may hide one of them from kmemleak. */
		for (i = 0; i < 16; i++)
			leak();
	} else if (sysfs_streq(word, "locks")) {
		take_in_order();
		take_in_the_other_order();
	} else if (sysfs_streq(word, "sleep")) {
		sleep_in_atomic();
	} else if (sysfs_streq(word, "shift")) {
		pr_info("planted: %d\n", shift_too_far());
	} else {
		return -EINVAL;
	}
	return count;
}

static const struct file_operations planted_operations = {
	.owner = THIS_MODULE,
	.write = planted_write,
};

static struct miscdevice planted_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "planted",
	.fops = &planted_operations,
};

static int planted_probe(struct virtio_device *device)
{
	return misc_register(&planted_device);
}

static void planted_remove(struct virtio_device *device)
{
	misc_deregister(&planted_device);
	virtio_reset_device(device);
}

static const struct virtio_device_id planted_ids[] = {
	{ DEVICE_OF_A_CARD, VIRTIO_DEV_ANY_ID },
	{ }
};
MODULE_DEVICE_TABLE(virtio, planted_ids);

static struct virtio_driver planted_driver = {
	.driver.name = KBUILD_MODNAME,
	.id_table = planted_ids,
	.probe = planted_probe,
	.remove = planted_remove,
};
module_virtio_driver(planted_driver);

MODULE_DESCRIPTION("One fault of each kind that a debug kernel detects");
MODULE_LICENSE("GPL");
