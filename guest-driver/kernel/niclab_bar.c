// SPDX-License-Identifier: GPL-2.0
/*
 * The BAR: shared-memory region 0.
 */
#include <linux/delay.h>

#include "niclab.h"

#define NICLAB_MAGIC_PAUSE_US 200U

/**
 * niclab_bar_init - finds the BAR; the device need not have mapped its memory yet.
 * @nic: the NIC.
 *
 * Return: 0, or an error, after a message that names what is missing.
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
		dev_err(&nic->dev, "shared-memory region %u has %llu bytes at %#llx instead of %llu; device daemon and QEMU do not match, use the QEMU that niclab builds\n",
			NICLAB_REGION, region.len, region.addr, need);
		return -ENXIO;
	}
	if (!devm_request_mem_region(owner, region.addr, need, "niclab")) {
		dev_err(&nic->dev, "the BAR at %#llx belongs to another driver; unload that one\n", region.addr);
		return -EBUSY;
	}
	nic->info = devm_ioremap_wc(owner, region.addr, NICLAB_PAGE_BYTES);
	if (!nic->info)
		return -ENOMEM;
	nic->bar_address = region.addr;
	return 0;
}

/**
 * niclab_bar_is_live - whether the device has published the information page.
 * @nic: the NIC.
 *
 * Return: true if the page holds the magic word.
 */
bool niclab_bar_is_live(struct niclab *nic)
{
	u64 magic;

	memcpy_fromio(&magic, nic->info + offsetof(struct niclab_info_page, magic), sizeof(magic));
	return magic == NICLAB_MAGIC;
}

static int niclab_info_check(struct niclab *nic, const struct niclab_info_page *info)
{
	if (info->abi_version != nic->config.abi_version || info->pages != nic->config.bar_pages ||
	    info->ports != nic->config.ports || info->slots != NICLAB_SLOTS) {
		dev_err(&nic->dev, "information page and configuration space disagree: version %u and %u, pages %u and %u, ports %u and %u, slots %u; the device daemon is at fault\n",
			info->abi_version, nic->config.abi_version, info->pages, nic->config.bar_pages, info->ports,
			nic->config.ports, info->slots);
		return -EPROTO;
	}
	if (info->windows > NICLAB_MAX_WINDOWS) {
		dev_err(&nic->dev, "the information page lists %u windows, more than the maximum of %u; the device daemon is at fault\n",
			info->windows, NICLAB_MAX_WINDOWS);
		return -EPROTO;
	}
	return 0;
}

/* Page after a window's last one. The sums and products do not overflow in 64 bits. */
static u64 niclab_window_end(struct niclab *nic, const struct niclab_window *row)
{
	return row->first_page + (u64)row->stride * (nic->config.ports - 1) + row->pages;
}

/* Whether a window neither overlaps a window that was checked before nor has its kind. */
static bool niclab_window_is_apart(struct niclab *nic, const struct niclab_window *row)
{
	const struct niclab_window *other;
	u32 i;

	for (i = 0; i < nic->window_count; i++) {
		other = &nic->windows[i].row;
		if (row->kind == other->kind ||
		    (row->first_page < niclab_window_end(nic, other) &&
		     other->first_page < niclab_window_end(nic, row)))
			return false;
	}
	return true;
}

static int niclab_window_check(struct niclab *nic, const struct niclab_window *row)
{
	const char *wrong = NULL;

	if (!row->first_page || !row->pages || (row->stride && row->stride < row->pages) ||
	    niclab_window_end(nic, row) > nic->config.bar_pages)
		wrong = "is not inside the BAR";
	else if (row->caching < NICLAB_CACHING_UNCACHED || row->caching > NICLAB_CACHING_WRITE_BACK)
		wrong = "has a caching attribute that this driver does not know";
	else if (row->access < NICLAB_ACCESS_READ_ONLY || row->access > NICLAB_ACCESS_READ_WRITE)
		wrong = "has an access attribute that this driver does not know";
	else if (!niclab_window_is_apart(nic, row))
		wrong = "overlaps another window, or has the same kind";
	if (!wrong)
		return 0;
	dev_err(&nic->dev, "window %u of the BAR (kind %u, page %u, %u pages, stride %u, caching %u, access %u) %s; the device daemon is at fault, or newer than this driver\n",
		nic->window_count, row->kind, row->first_page, row->pages, row->stride, row->caching, row->access,
		wrong);
	return -EPROTO;
}

/*
 * Maps a window into kernel space. This mapping decides the memory type of user mappings too: on x86, a page of device
 * memory has the type that was reserved for its address, and is uncached if none was. So each window is reserved on its
 * own. If the machine's firmware declares a range uncached, write-back becomes uncached.
 */
static int niclab_window_map(struct niclab *nic, struct niclab_bar_window *window)
{
	size_t bytes = (niclab_window_end(nic, &window->row) - window->row.first_page) * NICLAB_PAGE_BYTES;
	struct device *owner = &nic->vdev->dev;
	void *memory;

	window->address = nic->bar_address + (size_t)window->row.first_page * NICLAB_PAGE_BYTES;
	switch (window->row.caching) {
	case NICLAB_CACHING_WRITE_COMBINING:
		window->memory = devm_ioremap_wc(owner, window->address, bytes);
		break;
	case NICLAB_CACHING_WRITE_BACK:
		memory = devm_memremap(owner, window->address, bytes, MEMREMAP_WB);
		window->memory = IS_ERR(memory) ? NULL : (void __iomem __force *)memory;
		break;
	default:
		window->memory = devm_ioremap(owner, window->address, bytes);
	}
	return window->memory ? 0 : -ENOMEM;
}

/* Reads the information page once. Later changes to the page have no effect. */
static int niclab_bar_read(struct niclab *nic)
{
	struct niclab_bar_window *window;
	struct niclab_info_page info;
	int err;

	memcpy_fromio(&info, nic->info, sizeof(info));
	err = niclab_info_check(nic, &info);
	while (!err && nic->window_count < info.windows) {
		window = &nic->windows[nic->window_count];
		memcpy_fromio(&window->row,
			      nic->info + NICLAB_INFO_WINDOWS_OFFSET + nic->window_count * sizeof(window->row),
			      sizeof(window->row));
		err = niclab_window_check(nic, &window->row);
		if (!err)
			err = niclab_window_map(nic, window);
		if (!err)
			nic->window_count++;
	}
	return err;
}

/**
 * niclab_bar_wait - waits until the device has mapped the BAR, finds the windows, and zeroes the ports' parts of them.
 * @nic: the NIC, whose device has had a request.
 *
 * The device maps its memory shortly after the driver's first request, and writes the magic word last.
 *
 * Return: 0; -ETIMEDOUT or -EPROTO after a message with the reason; -ENOMEM.
 */
int niclab_bar_wait(struct niclab *nic)
{
	struct niclab_limit limit;
	u32 port;
	int err;

	niclab_limit_begin(&limit, nic->config.control_timeout_ms);
	while (!niclab_bar_is_live(nic)) {
		if (niclab_limit_is_over(&limit)) {
			dev_err(&nic->dev, "no magic word in the BAR after %u ms: the device daemon has not mapped its memory; see its log for the reason\n",
				nic->config.control_timeout_ms);
			return -ETIMEDOUT;
		}
		usleep_range(NICLAB_MAGIC_PAUSE_US, 2 * NICLAB_MAGIC_PAUSE_US);
	}
	/* The device writes the magic word last, so the driver must read it first. */
	rmb();
	err = niclab_bar_read(nic);
	for (port = 0; port < nic->config.ports && !err; port++)
		niclab_bar_clear_port(nic, port);
	return err;
}

/**
 * niclab_bar_clear_port - zeroes a closed port's part of each window.
 * @nic: the NIC.
 * @port: the port.
 *
 * The next owner must not see the previous owner's messages, and the device must not take the previous owner's launch
 * words for the next owner's.
 */
void niclab_bar_clear_port(struct niclab *nic, u32 port)
{
	const struct niclab_bar_window *window;

	for (window = nic->windows; window < nic->windows + nic->window_count; window++)
		if (window->row.stride)
			memset_io(window->memory + niclab_window_offset(window, port), 0,
				  (size_t)window->row.pages * NICLAB_PAGE_BYTES);
	/* Flush the write-combining buffers before the driver names a new owner to the device. */
	wmb();
}
