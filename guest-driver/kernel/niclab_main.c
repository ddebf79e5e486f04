// SPDX-License-Identifier: GPL-2.0
/*
 * niclab_main.c - the module: recognises the device, starts it, releases it.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio_ring.h>

#include "niclab.h"

/* Bounds for the device's control_timeout_ms: long enough for a busy host, and short enough for a user who waits. */
#define NICLAB_TIMEOUT_LEAST_MS 100U
#define NICLAB_TIMEOUT_MOST_MS 60000U

/* Whether the configuration space begins with niclab's magic word; a foreign device may have a shorter space. */
static bool niclab_is_ours(struct virtio_device *vdev)
{
	u64 magic = 0;

	if (niclab_pci_config_bytes(vdev) >= sizeof(struct niclab_device_config))
		__virtio_cread_many(vdev, offsetof(struct niclab_device_config, magic), &magic, 1, sizeof(magic));
	return magic == NICLAB_MAGIC;
}

/* Reads the configuration space by words: each access is a round trip to the device daemon. */
static void niclab_config_read(struct virtio_device *vdev, struct niclab_device_config *config)
{
	__virtio_cread_many(vdev, 0, config, sizeof(*config) / sizeof(u64), sizeof(u64));
}

/* Recognises the device before any of its queues exists: a foreign device must not be disturbed. */
static int niclab_validate(struct virtio_device *vdev)
{
	if (!niclab_is_ours(vdev)) {
		dev_info(&vdev->dev, "virtio device %u has no niclab magic word: it is not a niclab NIC, and the driver ignores it\n",
			 vdev->id.device);
		return -ENODEV;
	}
	if (virtio_has_feature(vdev, VIRTIO_F_ACCESS_PLATFORM)) {
		dev_err(&vdev->dev, "the device is configured to address memory through an IOMMU, which it cannot do; remove iommu_platform=on from QEMU's device\n");
		return -EINVAL;
	}
	/* With event indices the device may skip an interrupt while another is handled; this driver counts each. */
	__virtio_clear_bit(vdev, VIRTIO_RING_F_EVENT_IDX);
	return 0;
}

static void niclab_free(struct device *dev)
{
	struct niclab *nic = container_of(dev, struct niclab, dev);

	niclab_ring_free(nic);
	niclab_counters_free(nic);
	niclab_event_free(nic);
	niclab_control_free(nic);
	kfree(nic);
}

/* A caller that fails after this drops the reference of @dev, which frees the structure and its members. */
static struct niclab *niclab_alloc(struct virtio_device *vdev)
{
	struct niclab *nic = kzalloc(sizeof(*nic), GFP_KERNEL);

	if (!nic)
		return NULL;
	mutex_init(&nic->lock);
	init_rwsem(&nic->map_lock);
	spin_lock_init(&nic->event_lock);
	init_waitqueue_head(&nic->handed_over);
	INIT_LIST_HEAD(&nic->files);
	nic->vdev = vdev;
	device_initialize(&nic->dev);
	nic->dev.class = &niclab_class;
	nic->dev.parent = &vdev->dev;
	nic->dev.release = niclab_free;
	niclab_config_read(vdev, &nic->config);
	nic->config.control_timeout_ms =
		clamp(nic->config.control_timeout_ms, NICLAB_TIMEOUT_LEAST_MS, NICLAB_TIMEOUT_MOST_MS);
	return nic;
}

static int niclab_config_check(struct niclab *nic)
{
	const struct niclab_device_config *config = &nic->config;
	struct device *dev = &nic->vdev->dev;

	if (config->abi_version != NICLAB_ABI_VERSION) {
		dev_err(dev, "the device has ABI version %u, this driver %u; update the older of the two\n",
			config->abi_version, NICLAB_ABI_VERSION);
		return -EPROTO;
	}
	if (!config->ports || config->ports > NICLAB_PORTS_LIMIT || config->max_slices < NICLAB_MIN_SLICES ||
	    !config->bar_pages || config->bar_pages > NICLAB_MAX_BAR_PAGES) {
		dev_err(dev, "invalid configuration: %u ports, %u slices, %u BAR pages; the device daemon is at fault\n",
			config->ports, config->max_slices, config->bar_pages);
		return -EPROTO;
	}
	return 0;
}

/*
 * All five queues are set up, also those that this model does not use: virtio_pci numbers the requested queues, so
 * leaving one out would shift the next. The doorbell queue never holds a buffer, but without a ring QEMU would not pass
 * its notify register to the device.
 */
static int niclab_queues_create(struct niclab *nic)
{
	struct virtqueue_info info[NICLAB_QUEUES] = {
		[NICLAB_QUEUE_CONTROL] = { .name = "control" },
		[NICLAB_QUEUE_EVENT] = { .name = "event", .callback = niclab_event_interrupt },
		[NICLAB_QUEUE_TRANSMIT] = { .name = "transmit" },
		[NICLAB_QUEUE_RECEIVE] = { .name = "receive" },
		[NICLAB_QUEUE_DOORBELL] = { .name = "doorbell" },
	};
	int err = virtio_find_vqs(nic->vdev, NICLAB_QUEUES, nic->queues, info, NULL);

	if (err)
		dev_err(&nic->vdev->dev, "queues cannot be set up (%pe); set num_vqs=%u on QEMU's device\n",
			ERR_PTR(err), NICLAB_QUEUES);
	return err;
}

/* Starts the card's features other than ports. */
static int niclab_features_start(struct niclab *nic)
{
	int err = niclab_counters_start(nic);

	if (!err)
		err = niclab_firmware_start(nic);
	if (!err && niclab_has(nic, NICLAB_FEATURE_SPILL))
		err = niclab_spill_open(nic);
	if (!err && niclab_has(nic, NICLAB_FEATURE_RINGS))
		err = niclab_ring_start(nic);
	return err;
}

/* Starts the device, waits for its BAR, and closes ports that an earlier driver left open. */
static int niclab_start(struct niclab *nic)
{
	int err;

	virtio_device_ready(nic->vdev);
	err = niclab_event_fill(nic);
	if (err)
		return err;
	mutex_lock(&nic->lock);
	/* The device maps its memory when it sees the first request. */
	err = niclab_control(nic, NICLAB_OP_PING, NULL, 0, NULL, 0);
	if (!err)
		err = niclab_control(nic, NICLAB_OP_RESET, NULL, 0, NULL, 0);
	if (!err)
		err = niclab_features_start(nic);
	mutex_unlock(&nic->lock);
	return err ? err : niclab_bar_wait(nic);
}

/* Closes the ports, regions and mappings of all open files, and releases the device. */
static void niclab_quit(struct niclab *nic)
{
	struct niclab_file *file;
	LIST_HEAD(regions);
	bool quiet;

	mutex_lock(&nic->lock);
	niclab_map_remove(nic);
	quiet = !niclab_control(nic, NICLAB_OP_RESET, NULL, 0, NULL, 0);
	list_for_each_entry(file, &nic->files, entry)
		niclab_port_abandon(file, quiet, &regions);
	niclab_spill_free(nic, quiet);
	niclab_ring_stop(nic, quiet);
	niclab_mark_dead(nic);
	mutex_unlock(&nic->lock);
	niclab_region_release(nic, &regions);
}

/* Ends all traffic of the rings: afterwards the transport promises that the device does not touch them. */
static void niclab_stop(struct niclab *nic)
{
	virtio_reset_device(nic->vdev);
	nic->vdev->config->del_vqs(nic->vdev);
}

static int niclab_prepare(struct niclab *nic)
{
	int err = niclab_config_check(nic);

	if (!err)
		err = niclab_control_init(nic);
	if (!err)
		err = niclab_event_init(nic);
	if (!err)
		err = niclab_bar_init(nic);
	if (!err)
		err = niclab_queues_create(nic);
	if (!err)
		niclab_pci_find_doorbell(nic);
	return err;
}

static int niclab_probe(struct virtio_device *vdev)
{
	struct niclab *nic = niclab_alloc(vdev);
	int err;

	if (!nic)
		return -ENOMEM;
	vdev->priv = nic;
	err = niclab_chr_reserve(nic);
	if (err)
		goto put;
	err = niclab_prepare(nic);
	if (err)
		goto unreserve;
	err = niclab_start(nic);
	/* Before the device is published: a program that finds the device finds its interface too, if it has one. */
	if (!err)
		err = niclab_net_start(nic);
	if (!err)
		err = niclab_chr_add(nic);
	if (err)
		goto stop;
	dev_info(&nic->dev, "node %u of %u, %u ports\n", nic->config.node, nic->config.nodes, nic->config.ports);
	return 0;
stop:
	niclab_net_stop(nic);
	niclab_quit(nic);
	niclab_stop(nic);
unreserve:
	niclab_chr_unreserve(nic);
put:
	put_device(&nic->dev);
	return err;
}

static void niclab_remove(struct virtio_device *vdev)
{
	struct niclab *nic = vdev->priv;

	niclab_chr_remove(nic);
	niclab_net_stop(nic);
	niclab_quit(nic);
	niclab_stop(nic);
	niclab_chr_unreserve(nic);
	put_device(&nic->dev);
}

/* Before a reboot or kexec: the device must not write to memory that the next kernel uses. */
static void niclab_shutdown(struct device *dev)
{
	struct virtio_device *vdev = dev_to_virtio(dev);
	struct niclab *nic = vdev->priv;

	niclab_quit(nic);
	virtio_reset_device(vdev);
}

static int niclab_freeze(struct virtio_device *vdev)
{
	dev_err(&vdev->dev, "cannot be suspended: a message in flight would be lost; unload niclab first\n");
	return -EBUSY;
}

static const struct virtio_device_id niclab_ids[] = {
	{ NICLAB_VIRTIO_ID, VIRTIO_DEV_ANY_ID },
	{ },
};
MODULE_DEVICE_TABLE(virtio, niclab_ids);

static struct virtio_driver niclab_driver = {
	.driver.name = "niclab",
	.driver.shutdown = niclab_shutdown,
	.id_table = niclab_ids,
	.validate = niclab_validate,
	.probe = niclab_probe,
	.remove = niclab_remove,
	.freeze = niclab_freeze,
};

static int __init niclab_init(void)
{
	int err = niclab_chr_init();

	if (err)
		return err;
	err = register_virtio_driver(&niclab_driver);
	if (err)
		niclab_chr_exit();
	return err;
}
module_init(niclab_init);

static void __exit niclab_exit(void)
{
	unregister_virtio_driver(&niclab_driver);
	niclab_chr_exit();
}
module_exit(niclab_exit);

MODULE_DESCRIPTION("niclab cluster NIC");
MODULE_AUTHOR("The niclab authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
