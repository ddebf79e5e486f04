// SPDX-License-Identifier: GPL-2.0
/*
 * The BAR: shared-memory region 0.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "niclab.h"

#define NICLAB_MAGIC_PAUSE_US 200U

/**
 * niclab_bar_init - finds the BAR; what is behind it need not be there yet.
 * @nic: the NIC.
 *
 * Return: 0, or an error after telling what is missing.
 */
int niclab_bar_init(struct niclab *nic)
{
	u64 need = (u64)nic->config.bar_pages * NICLAB_PAGE_BYTES;
	struct device *owner = &nic->vdev->dev;
	struct virtio_shm_region region;

	if (!virtio_get_shm_region(nic->vdev, &region, NICLAB_REGION)) {
		dev_err(&nic->dev, "no shared-memory region %u; QEMU 11.1 or later and a device daemon with shared-memory support are needed\n",
			NICLAB_REGION);
		return -ENXIO;
	}
	if (region.len < need || !PAGE_ALIGNED(region.addr)) {
		dev_err(&nic->dev, "shared-memory region %u has %llu bytes at %#llx where %llu are due; device daemon and QEMU do not match\n",
			NICLAB_REGION, region.len, region.addr, need);
		return -ENXIO;
	}
	if (!devm_request_mem_region(owner, region.addr, need, "niclab")) {
		dev_err(&nic->dev, "the BAR at %#llx belongs to another driver; unload that one\n", region.addr);
		return -EBUSY;
	}
	/*
	 * Write combining, like the paper's requester pages. User mappings get their memory type from this one: on x86
	 * a page of device memory takes what was reserved first.
	 */
	nic->bar = devm_ioremap_wc(owner, region.addr, need);
	if (!nic->bar)
		return -ENOMEM;
	nic->bar_address = region.addr;
	return 0;
}

/**
 * niclab_bar_is_live - whether the information page says that the device is there.
 * @nic: the NIC.
 *
 * Return: true when its magic word is.
 */
bool niclab_bar_is_live(struct niclab *nic)
{
	u64 magic;

	memcpy_fromio(&magic, nic->bar + offsetof(struct niclab_info_page, magic), sizeof(magic));
	return magic == NICLAB_MAGIC;
}

static int niclab_bar_check(struct niclab *nic)
{
	struct niclab_info_page info;

	memcpy_fromio(&info, nic->bar, sizeof(info));
	if (info.abi_version != nic->config.abi_version || info.pages != nic->config.bar_pages ||
	    info.ports != nic->config.ports || info.slots != NICLAB_SLOTS) {
		dev_err(&nic->dev, "information page and configuration space disagree: version %u and %u, pages %u and %u, ports %u and %u, slots %u; the device daemon is at fault\n",
			info.abi_version, nic->config.abi_version, info.pages, nic->config.bar_pages, info.ports,
			nic->config.ports, info.slots);
		return -EPROTO;
	}
	return 0;
}

/**
 * niclab_bar_wait - waits until the device is behind the BAR, and empties all ports' pages.
 * @nic: the NIC, whose device has had a request.
 *
 * The device maps its memory a moment after the driver announced itself, and writes the magic word last.
 *
 * Return: 0; -ETIMEDOUT or -EPROTO after telling why.
 */
int niclab_bar_wait(struct niclab *nic)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(nic->config.control_timeout_ms) + 1;
	u32 port;
	int err;

	while (!niclab_bar_is_live(nic)) {
		if (time_after(jiffies, deadline)) {
			dev_err(&nic->dev, "no magic word in the BAR after %u ms; see the device daemon's log for why it could not map its memory\n",
				nic->config.control_timeout_ms);
			return -ETIMEDOUT;
		}
		usleep_range(NICLAB_MAGIC_PAUSE_US, 2 * NICLAB_MAGIC_PAUSE_US);
	}
	/* The magic word is written last, so that it must be read first. */
	rmb();
	err = niclab_bar_check(nic);
	for (port = 0; port < nic->config.ports && !err; port++)
		niclab_bar_clear_port(nic, port);
	return err;
}

/**
 * niclab_bar_clear_port - empties the pages of a closed port.
 * @nic: the NIC.
 * @port: the port.
 *
 * The next owner must not see what the last one sent, and the device must not take the last one's launch words for
 * the next one's.
 */
void niclab_bar_clear_port(struct niclab *nic, u32 port)
{
	memset_io(nic->bar + niclab_requester_offset(port), 0, NICLAB_PAGES_PER_PORT * NICLAB_PAGE_BYTES);
	/* Out of the write-combining buffers before the device is told of a new owner. */
	wmb();
}
