// SPDX-License-Identifier: GPL-2.0
/*
 * Attributes of /sys/class/niclab/niclabN.
 *
 * statistics/ and match/ ask the device at each read, so that their numbers are the device's own; the others are the
 * driver's. match/ and firmware are there for the Match NIC alone.
 */
#include <linux/sysfs.h>

#include "niclab.h"

static struct niclab *niclab_of(struct device *dev)
{
	return container_of(dev, struct niclab, dev);
}

static ssize_t abi_version_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%u\n", niclab_of(dev)->config.abi_version);
}
static DEVICE_ATTR_RO(abi_version);

static ssize_t model_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	static const char *const names[] = {
		[NICLAB_MODEL_INIC] = "inic",
		[NICLAB_MODEL_GRIM] = "grim",
		[NICLAB_MODEL_MATCH] = "match",
		[NICLAB_MODEL_ULTRA] = "ultra",
		[NICLAB_MODEL_GAMMA] = "gamma",
	};
	u32 model = niclab_of(dev)->config.model;

	if (model < ARRAY_SIZE(names) && names[model])
		return sysfs_emit(text, "%s\n", names[model]);
	return sysfs_emit(text, "%u\n", model);
}
static DEVICE_ATTR_RO(model);

static ssize_t node_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%u\n", niclab_of(dev)->config.node);
}
static DEVICE_ATTR_RO(node);

static ssize_t nodes_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%u\n", niclab_of(dev)->config.nodes);
}
static DEVICE_ATTR_RO(nodes);

static ssize_t ports_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%u\n", niclab_of(dev)->config.ports);
}
static DEVICE_ATTR_RO(ports);

static ssize_t healthy_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct niclab *nic = niclab_of(dev);

	return sysfs_emit(text, "%d\n", !niclab_is_dead(nic) && niclab_bar_is_live(nic));
}
static DEVICE_ATTR_RO(healthy);

static u64 niclab_counter(struct niclab *nic, const u64 *counter)
{
	u64 value;

	spin_lock_irq(&nic->event_lock);
	value = *counter;
	spin_unlock_irq(&nic->event_lock);
	return value;
}

static ssize_t interrupts_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct niclab *nic = niclab_of(dev);

	return sysfs_emit(text, "%llu\n", niclab_counter(nic, &nic->interrupts));
}
static DEVICE_ATTR_RO(interrupts);

static ssize_t firmware_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	return niclab_firmware_show(niclab_of(dev), text);
}

static ssize_t firmware_store(struct device *dev, struct device_attribute *attribute, const char *text, size_t bytes)
{
	int err = niclab_firmware_store(niclab_of(dev), text);

	return err ? err : bytes;
}
static DEVICE_ATTR_RW(firmware);

static struct attribute *niclab_attributes[] = {
	&dev_attr_abi_version.attr,
	&dev_attr_model.attr,
	&dev_attr_node.attr,
	&dev_attr_nodes.attr,
	&dev_attr_ports.attr,
	&dev_attr_healthy.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_firmware.attr,
	NULL,
};

static bool niclab_is_match(struct kobject *object)
{
	return niclab_of(kobj_to_dev(object))->config.model == NICLAB_MODEL_MATCH;
}

static umode_t niclab_is_visible(struct kobject *object, struct attribute *attribute, int index)
{
	return attribute == &dev_attr_firmware.attr && !niclab_is_match(object) ? 0 : attribute->mode;
}

static const struct attribute_group niclab_group = {
	.attrs = niclab_attributes,
	.is_visible = niclab_is_visible,
};

static ssize_t niclab_cause_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	unsigned long cause = (unsigned long)container_of(attribute, struct dev_ext_attribute, attr)->var;
	struct niclab *nic = niclab_of(dev);

	return sysfs_emit(text, "%llu\n", niclab_counter(nic, &nic->causes[cause]));
}

/* One file of causes/, which counts &niclab.causes[cause]. */
#define NICLAB_CAUSE(name, cause) \
	static struct dev_ext_attribute niclab_cause_##name = { \
		.attr = __ATTR(name, 0444, niclab_cause_show, NULL), \
		.var = (void *)(unsigned long)(cause), \
	}

NICLAB_CAUSE(unknown, 0);
NICLAB_CAUSE(message, NICLAB_CAUSE_MESSAGE);
NICLAB_CAUSE(armed, NICLAB_CAUSE_ARMED);
NICLAB_CAUSE(unauthorized, NICLAB_CAUSE_UNAUTHORIZED);
NICLAB_CAUSE(firmware, NICLAB_CAUSE_FIRMWARE);

static struct attribute *niclab_cause_attributes[] = {
	&niclab_cause_unknown.attr.attr,
	&niclab_cause_message.attr.attr,
	&niclab_cause_armed.attr.attr,
	&niclab_cause_unauthorized.attr.attr,
	&niclab_cause_firmware.attr.attr,
	NULL,
};
/* A cause that is new in the ABI must get a file. */
static_assert(ARRAY_SIZE(niclab_cause_attributes) - 1 == NICLAB_CAUSES);

static const struct attribute_group niclab_cause_group = {
	.name = "causes",
	.attrs = niclab_cause_attributes,
};

/* Shows the number of the device's @answer that the attribute stands for. */
static ssize_t niclab_number_show(struct device *dev, struct device_attribute *attribute, char *text, u32 operation,
				  void *answer, u32 answer_bytes)
{
	unsigned long offset = (unsigned long)container_of(attribute, struct dev_ext_attribute, attr)->var;
	struct niclab *nic = niclab_of(dev);
	int err;

	err = niclab_lock(nic);
	if (err)
		return err;
	err = niclab_control(nic, operation, NULL, 0, answer, answer_bytes);
	mutex_unlock(&nic->lock);
	if (err)
		return err;
	return sysfs_emit(text, "%llu\n", *(u64 *)((char *)answer + offset));
}

static ssize_t niclab_statistic_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct niclab_statistics answer;

	return niclab_number_show(dev, attribute, text, NICLAB_OP_STATISTICS, &answer, sizeof(answer));
}

static ssize_t niclab_match_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct niclab_match_statistics answer;

	return niclab_number_show(dev, attribute, text, NICLAB_OP_MATCH_STATISTICS, &answer, sizeof(answer));
}

/* One file of statistics/, which shows the field of struct niclab_statistics of its name. */
#define NICLAB_STATISTIC(field) \
	static struct dev_ext_attribute niclab_statistic_##field = { \
		.attr = __ATTR(field, 0444, niclab_statistic_show, NULL), \
		.var = (void *)offsetof(struct niclab_statistics, field), \
	}

NICLAB_STATISTIC(packets_sent);
NICLAB_STATISTIC(packets_received);
NICLAB_STATISTIC(bytes_sent);
NICLAB_STATISTIC(bytes_received);
NICLAB_STATISTIC(doorbells);
NICLAB_STATISTIC(doorbells_spared);
NICLAB_STATISTIC(interrupts);
NICLAB_STATISTIC(unauthorized);
NICLAB_STATISTIC(crc_errors);
NICLAB_STATISTIC(malformed);
NICLAB_STATISTIC(overruns);
NICLAB_STATISTIC(refused);
NICLAB_STATISTIC(acknowledgements_sent);
NICLAB_STATISTIC(discarded_at_close);
NICLAB_STATISTIC(control_refused);
NICLAB_STATISTIC(events_merged);

static struct attribute *niclab_statistic_attributes[] = {
	&niclab_statistic_packets_sent.attr.attr,
	&niclab_statistic_packets_received.attr.attr,
	&niclab_statistic_bytes_sent.attr.attr,
	&niclab_statistic_bytes_received.attr.attr,
	&niclab_statistic_doorbells.attr.attr,
	&niclab_statistic_doorbells_spared.attr.attr,
	&niclab_statistic_interrupts.attr.attr,
	&niclab_statistic_unauthorized.attr.attr,
	&niclab_statistic_crc_errors.attr.attr,
	&niclab_statistic_malformed.attr.attr,
	&niclab_statistic_overruns.attr.attr,
	&niclab_statistic_refused.attr.attr,
	&niclab_statistic_acknowledgements_sent.attr.attr,
	&niclab_statistic_discarded_at_close.attr.attr,
	&niclab_statistic_control_refused.attr.attr,
	&niclab_statistic_events_merged.attr.attr,
	NULL,
};
/* A field that is new in the ABI must get a file. */
static_assert(ARRAY_SIZE(niclab_statistic_attributes) - 1 == sizeof(struct niclab_statistics) / sizeof(u64));

static const struct attribute_group niclab_statistic_group = {
	.name = "statistics",
	.attrs = niclab_statistic_attributes,
};

/* One file of match/, which shows the field of struct niclab_match_statistics of its name. */
#define NICLAB_MATCH(field) \
	static struct dev_ext_attribute niclab_match_##field = { \
		.attr = __ATTR(field, 0444, niclab_match_show, NULL), \
		.var = (void *)offsetof(struct niclab_match_statistics, field), \
	}

NICLAB_MATCH(headers);
NICLAB_MATCH(entries_traversed);
NICLAB_MATCH(unit_cycles);
NICLAB_MATCH(expected);
NICLAB_MATCH(unexpected);
NICLAB_MATCH(claimed);
NICLAB_MATCH(unmatched);
NICLAB_MATCH(refused_for_room);
NICLAB_MATCH(truncated);
NICLAB_MATCH(entries);
NICLAB_MATCH(entries_spilled);
NICLAB_MATCH(spill_reads);
NICLAB_MATCH(firmware_fallbacks);
NICLAB_MATCH(retransmissions);
NICLAB_MATCH(frames_discarded);
NICLAB_MATCH(commands_refused);

static struct attribute *niclab_match_attributes[] = {
	&niclab_match_headers.attr.attr,
	&niclab_match_entries_traversed.attr.attr,
	&niclab_match_unit_cycles.attr.attr,
	&niclab_match_expected.attr.attr,
	&niclab_match_unexpected.attr.attr,
	&niclab_match_claimed.attr.attr,
	&niclab_match_unmatched.attr.attr,
	&niclab_match_refused_for_room.attr.attr,
	&niclab_match_truncated.attr.attr,
	&niclab_match_entries.attr.attr,
	&niclab_match_entries_spilled.attr.attr,
	&niclab_match_spill_reads.attr.attr,
	&niclab_match_firmware_fallbacks.attr.attr,
	&niclab_match_retransmissions.attr.attr,
	&niclab_match_frames_discarded.attr.attr,
	&niclab_match_commands_refused.attr.attr,
	NULL,
};
static_assert(ARRAY_SIZE(niclab_match_attributes) - 1 == sizeof(struct niclab_match_statistics) / sizeof(u64));

static bool niclab_match_group_visible(struct kobject *object)
{
	return niclab_is_match(object);
}
DEFINE_SIMPLE_SYSFS_GROUP_VISIBLE(niclab_match);

static const struct attribute_group niclab_match_group = {
	.name = "match",
	.attrs = niclab_match_attributes,
	.is_visible = SYSFS_GROUP_VISIBLE(niclab_match),
};

const struct attribute_group *niclab_groups[] = {
	&niclab_group,
	&niclab_cause_group,
	&niclab_statistic_group,
	&niclab_match_group,
	NULL,
};
