// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of the device. The device names them, as with ethtool -S. Each is a file in
 * /sys/class/niclab/niclabN/statistics that asks the device at each read.
 */
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "niclab.h"

/**
 * struct niclab_counter_file - one counter.
 * @attribute: its file.
 * @number: its number in requests to the device.
 * @name: its name, zero-terminated.
 */
struct niclab_counter_file {
	struct device_attribute attribute;
	u32 number;
	char name[NICLAB_COUNTER_NAME_BYTES];
};

/**
 * struct niclab_counters - all counters of a NIC.
 * @count: number of counters.
 * @files: one for each.
 * @attributes: their attributes, and NULL.
 * @group: their sysfs group.
 * @groups: the group, and NULL.
 * @answer: the last answer of the device. Under &niclab.lock.
 */
struct niclab_counters {
	u32 count;
	struct niclab_counter_file files[NICLAB_MAX_COUNTERS];
	struct attribute *attributes[NICLAB_MAX_COUNTERS + 1];
	struct attribute_group group;
	const struct attribute_group *groups[2];
	struct niclab_counters_answer answer;
};

/* Asks for the counters from number @first on. The NIC is locked. */
static int niclab_counters_ask(struct niclab *nic, u32 first)
{
	struct niclab_counters_answer *answer = &nic->counters->answer;
	struct niclab_counters_from request = { .first = first };
	int err = niclab_control(nic, NICLAB_OP_COUNTERS, &request, sizeof(request), answer, sizeof(*answer));

	if (err)
		return err;
	if (answer->head.total > NICLAB_MAX_COUNTERS || answer->head.count > NICLAB_COUNTERS_PER_REPLY) {
		dev_err(&nic->dev, "counters reply out of range: %u counters in total, %u in one reply; device and driver do not match, update the older\n",
			answer->head.total, answer->head.count);
		return -EPROTO;
	}
	return 0;
}

static int niclab_counter_value(struct niclab *nic, u32 number, u64 *value)
{
	int err = niclab_counters_ask(nic, number);

	if (err)
		return err;
	if (!nic->counters->answer.head.count)
		return -EPROTO;
	*value = nic->counters->answer.counters[0].value;
	return 0;
}

/**
 * niclab_counter_read - reads a counter by name.
 * @nic: the NIC, locked.
 * @name: the name.
 * @value: the count, written on success.
 *
 * Return: 0; -ENOENT if this NIC has no counter of this name; another error of niclab_control().
 */
int niclab_counter_read(struct niclab *nic, const char *name, u64 *value)
{
	struct niclab_counters *counters = nic->counters;
	u32 i;

	lockdep_assert_held(&nic->lock);
	for (i = 0; i < counters->count; i++)
		if (!strcmp(counters->files[i].name, name))
			return niclab_counter_value(nic, i, value);
	return -ENOENT;
}

static ssize_t niclab_counter_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct niclab_counter_file *file = container_of(attribute, struct niclab_counter_file, attribute);
	struct niclab *nic = container_of(dev, struct niclab, dev);
	u64 value;
	int err;

	err = niclab_lock(nic);
	if (err)
		return err;
	err = niclab_counter_value(nic, file->number, &value);
	mutex_unlock(&nic->lock);
	return err ? err : sysfs_emit(text, "%llu\n", value);
}

/* Whether @name, of NICLAB_COUNTER_NAME_BYTES, is a valid file name. */
static bool niclab_counter_name_is_plain(const char *name)
{
	size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

	return length && !name[length];
}

/* Adds the next counter. */
static int niclab_counter_add(struct niclab *nic, const struct niclab_counter *counter)
{
	struct niclab_counters *counters = nic->counters;
	struct niclab_counter_file *file = &counters->files[counters->count];
	u32 i;

	/*
	 * The first four words are the name, first byte lowest; on a little-endian machine that is its order in memory.
	 */
	memcpy(file->name, counter, sizeof(file->name));
	file->name[sizeof(file->name) - 1] = '\0';
	if (!niclab_counter_name_is_plain(file->name))
		goto bad;
	for (i = 0; i < counters->count; i++)
		if (!strcmp(counters->files[i].name, file->name))
			goto bad;
	file->number = counters->count;
	file->attribute.attr.name = file->name;
	file->attribute.attr.mode = 0444;
	file->attribute.show = niclab_counter_show;
	sysfs_attr_init(&file->attribute.attr);
	counters->attributes[counters->count++] = &file->attribute.attr;
	return 0;
bad:
	dev_err(&nic->dev, "counter %u has an invalid name, or that of another counter; device and driver do not match, update the older\n",
		counters->count);
	return -EPROTO;
}

/**
 * niclab_counters_start - reads the list of counters from the device.
 * @nic: the NIC, locked; its class device is not added yet.
 *
 * Return: 0 or an error.
 */
int niclab_counters_start(struct niclab *nic)
{
	struct niclab_counters *counters = kzalloc(sizeof(*counters), GFP_KERNEL);
	u32 i;

	if (!counters)
		return -ENOMEM;
	nic->counters = counters;
	do {
		int err = niclab_counters_ask(nic, counters->count);

		if (err)
			return err;
		for (i = 0; i < counters->answer.head.count && counters->count < NICLAB_MAX_COUNTERS; i++) {
			err = niclab_counter_add(nic, &counters->answer.counters[i]);
			if (err)
				return err;
		}
		/*
		 * The loop is bounded for any total that the device announces: each round adds a counter, or is the last.
		 */
	} while (i && counters->count < counters->answer.head.total);
	counters->group.name = "statistics";
	counters->group.attrs = counters->attributes;
	counters->groups[0] = &counters->group;
	nic->dev.groups = counters->groups;
	return 0;
}

/**
 * niclab_counters_free - frees the counters.
 * @nic: the NIC, whose class device is gone.
 */
void niclab_counters_free(struct niclab *nic)
{
	kfree(nic->counters);
}
