// SPDX-License-Identifier: GPL-2.0
/*
 * PCI details of a device that the virtio core does not export: the extent of its configuration space, and the address
 * of a queue's notify register. Both are in the PCI function's capabilities.
 */
#include <linux/pci.h>
#include <linux/virtio_pci.h>

#include "niclab.h"

/**
 * struct niclab_capability - a virtio capability of a PCI function: a piece of one of its BARs.
 * @at: its offset in PCI configuration space.
 * @bar: index of the BAR.
 * @offset: offset of the piece in the BAR.
 * @bytes: length of the piece.
 */
struct niclab_capability {
	int at;
	u8 bar;
	u32 offset;
	u32 bytes;
};

/* Finds the first capability of a type that is in memory; those in port space cannot be mapped. */
static int niclab_capability_find(struct pci_dev *pci, u8 type, struct niclab_capability *found)
{
	u8 at_type;
	int at;

	for (at = pci_find_capability(pci, PCI_CAP_ID_VNDR); at;
	     at = pci_find_next_capability(pci, at, PCI_CAP_ID_VNDR)) {
		pci_read_config_byte(pci, at + VIRTIO_PCI_CAP_CFG_TYPE, &at_type);
		if (at_type != type)
			continue;
		found->at = at;
		pci_read_config_byte(pci, at + VIRTIO_PCI_CAP_BAR, &found->bar);
		pci_read_config_dword(pci, at + VIRTIO_PCI_CAP_OFFSET, &found->offset);
		pci_read_config_dword(pci, at + VIRTIO_PCI_CAP_LENGTH, &found->bytes);
		if (found->bar < PCI_STD_NUM_BARS && pci_resource_flags(pci, found->bar) & IORESOURCE_MEM)
			return 0;
	}
	return -ENOENT;
}

/**
 * niclab_pci_config_bytes - extent of a device's configuration space.
 * @vdev: the device, which may be a foreign one.
 *
 * virtio_pci stops the kernel (BUG) when a driver reads further than that.
 *
 * Return: bytes; zero if it has none or is not a PCI device.
 */
u32 niclab_pci_config_bytes(struct virtio_device *vdev)
{
	struct niclab_capability config;

	if (!dev_is_pci(vdev->dev.parent) || !vdev->config->get ||
	    niclab_capability_find(to_pci_dev(vdev->dev.parent), VIRTIO_PCI_CAP_DEVICE_CFG, &config))
		return 0;
	return config.bytes;
}

/**
 * niclab_pci_find_doorbell - finds the doorbell's page; if programs cannot map it, logs why and continues without it.
 * @nic: the NIC.
 *
 * queue_notify_off is not in the capability but in the common configuration, which belongs to virtio_pci. In QEMU it
 * equals the queue's index, and this device exists only in QEMU.
 */
void niclab_pci_find_doorbell(struct niclab *nic)
{
	struct pci_dev *pci = to_pci_dev(nic->vdev->dev.parent);
	struct niclab_capability notify;
	phys_addr_t address;
	u32 multiplier;
	u64 offset;

	if (niclab_capability_find(pci, VIRTIO_PCI_CAP_NOTIFY_CFG, &notify)) {
		dev_warn(&nic->dev, "doorbell cannot be mapped: no notify registers in PCI memory; remove modern-pio-notify=on from QEMU's device\n");
		return;
	}
	pci_read_config_dword(pci, notify.at + VIRTIO_PCI_NOTIFY_CAP_MULT, &multiplier);
	offset = (u64)NICLAB_QUEUE_DOORBELL * multiplier;
	address = pci_resource_start(pci, notify.bar) + notify.offset + offset;
	if (multiplier < PAGE_SIZE || !PAGE_ALIGNED(address)) {
		dev_warn(&nic->dev, "doorbell cannot be mapped: the queues' notify registers are %u bytes apart and share a page; set page-per-vq=on on QEMU's device\n",
			 multiplier);
		return;
	}
	if (offset + PAGE_SIZE > notify.bytes) {
		dev_warn(&nic->dev, "doorbell cannot be mapped: %u bytes of notify registers end before that of queue %u; set num_vqs=%u on QEMU's device\n",
			 notify.bytes, NICLAB_QUEUE_DOORBELL, NICLAB_QUEUES);
		return;
	}
	nic->doorbell_address = address;
}
