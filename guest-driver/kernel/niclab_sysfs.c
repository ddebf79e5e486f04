// SPDX-License-Identifier: GPL-2.0
/*
 * Attributes of /sys/class/niclab/niclabN.
 *
 * The files of statistics/ (niclab_counters.c) ask the device at each read, so their numbers are the device's. All
 * others are the driver's. The attribute firmware exists for cards that load firmware. The folder active/ exists for
 * cards with descriptor rings and counts events of their ports.
 */
#include <linux/sysfs.h>

#include "niclab_ring.h"

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
	const struct niclab_device_config *config = &niclab_of(dev)->config;
	char name[NICLAB_NAME_BYTES + 1] = {};

	/* Two words, first byte lowest; on a little-endian machine that is the name's order in memory. */
	memcpy(name, &config->name_first, NICLAB_NAME_BYTES);
	return sysfs_emit(text, "%s\n", name);
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

static umode_t niclab_is_visible(struct kobject *object, struct attribute *attribute, int index)
{
	bool has_firmware = niclab_has(niclab_of(kobj_to_dev(object)), NICLAB_FEATURE_FIRMWARE);

	return attribute == &dev_attr_firmware.attr && !has_firmware ? 0 : attribute->mode;
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

/* One file of causes/, which shows &niclab.causes[cause]. */
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
NICLAB_CAUSE(handed_over, NICLAB_CAUSE_HANDED_OVER);
NICLAB_CAUSE(frames, NICLAB_CAUSE_FRAMES);
NICLAB_CAUSE(link, NICLAB_CAUSE_LINK);

static struct attribute *niclab_cause_attributes[] = {
	&niclab_cause_unknown.attr.attr,
	&niclab_cause_message.attr.attr,
	&niclab_cause_armed.attr.attr,
	&niclab_cause_unauthorized.attr.attr,
	&niclab_cause_firmware.attr.attr,
	&niclab_cause_handed_over.attr.attr,
	&niclab_cause_frames.attr.attr,
	&niclab_cause_link.attr.attr,
	NULL,
};
/* Each new cause of the ABI needs a file here. */
static_assert(ARRAY_SIZE(niclab_cause_attributes) - 1 == NICLAB_CAUSES);

static const struct attribute_group niclab_cause_group = {
	.name = "causes",
	.attrs = niclab_cause_attributes,
};

static ssize_t niclab_raised_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	unsigned long which = (unsigned long)container_of(attribute, struct dev_ext_attribute, attr)->var;
	struct niclab_rings *rings = niclab_of(dev)->rings;
	u64 value;

	mutex_lock(&rings->lock);
	value = rings->raised[which];
	mutex_unlock(&rings->lock);
	return sysfs_emit(text, "%llu\n", value);
}

/* One file of active/, which shows &niclab_rings.raised[which]. */
#define NICLAB_RAISED(name, which) \
	static struct dev_ext_attribute niclab_raised_##name = { \
		.attr = __ATTR(name, 0444, niclab_raised_show, NULL), \
		.var = (void *)(unsigned long)(which), \
	}

NICLAB_RAISED(lost_frames, NICLAB_RAISED_LOST);
NICLAB_RAISED(damaged_frames, NICLAB_RAISED_DAMAGED);
NICLAB_RAISED(incomplete_messages, NICLAB_RAISED_INCOMPLETE);
NICLAB_RAISED(old_frames, NICLAB_RAISED_OLD);
NICLAB_RAISED(stray_acknowledgements, NICLAB_RAISED_STRAY);
NICLAB_RAISED(unwanted_messages, NICLAB_RAISED_UNWANTED);
NICLAB_RAISED(long_messages, NICLAB_RAISED_TOO_LONG);
NICLAB_RAISED(messages_without_buffer, NICLAB_RAISED_NO_BUFFER);
NICLAB_RAISED(stalled_windows, NICLAB_RAISED_STALLED);
NICLAB_RAISED(refused_frames, NICLAB_RAISED_REFUSED);
NICLAB_RAISED(acknowledgements, NICLAB_RAISED_ACKNOWLEDGEMENTS);
NICLAB_RAISED(peer_restarts, NICLAB_RAISED_RESTART);
NICLAB_RAISED(copied_messages, NICLAB_RAISED_COPIED);
NICLAB_RAISED(other_buffers_most, NICLAB_RAISED_OTHERS_MOST);
NICLAB_RAISED(other_frames_dropped, NICLAB_RAISED_OTHERS_DROPPED);
NICLAB_RAISED(parked_frames, NICLAB_RAISED_PARKED);

static struct attribute *niclab_raised_attributes[] = {
	&niclab_raised_lost_frames.attr.attr,
	&niclab_raised_damaged_frames.attr.attr,
	&niclab_raised_incomplete_messages.attr.attr,
	&niclab_raised_old_frames.attr.attr,
	&niclab_raised_stray_acknowledgements.attr.attr,
	&niclab_raised_unwanted_messages.attr.attr,
	&niclab_raised_long_messages.attr.attr,
	&niclab_raised_messages_without_buffer.attr.attr,
	&niclab_raised_stalled_windows.attr.attr,
	&niclab_raised_refused_frames.attr.attr,
	&niclab_raised_acknowledgements.attr.attr,
	&niclab_raised_peer_restarts.attr.attr,
	&niclab_raised_copied_messages.attr.attr,
	&niclab_raised_other_buffers_most.attr.attr,
	&niclab_raised_other_frames_dropped.attr.attr,
	&niclab_raised_parked_frames.attr.attr,
	NULL,
};
static_assert(ARRAY_SIZE(niclab_raised_attributes) - 1 == NICLAB_RAISED_COUNT);

static umode_t niclab_raised_is_visible(struct kobject *object, struct attribute *attribute, int index)
{
	return niclab_of(kobj_to_dev(object))->rings ? attribute->mode : 0;
}

static const struct attribute_group niclab_raised_group = {
	.name = "active",
	.attrs = niclab_raised_attributes,
	.is_visible = niclab_raised_is_visible,
};

const struct attribute_group *niclab_groups[] = {
	&niclab_group,
	&niclab_cause_group,
	&niclab_raised_group,
	NULL,
};
