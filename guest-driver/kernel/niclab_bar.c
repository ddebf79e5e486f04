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
	nic->info = devm_ioremap_wc(owner, region.addr, NICLAB_PAGE_BYTES);
	if (!nic->info)
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
		dev_err(&nic->dev, "the information page tells of %u windows, of which there are at most %u; the device daemon is at fault\n",
			info->windows, NICLAB_MAX_WINDOWS);
		return -EPROTO;
	}
	return 0;
}

/* Page behind the last one of a window; no sum or product of these overflows in 64 bits. */
static u64 niclab_window_end(struct niclab *nic, const struct niclab_window *row)
{
	return row->first_page + (u64)row->stride * (nic->config.ports - 1) + row->pages;
}

/* Whether windows that were checked before, all of the BAR's so far, have nothing in common with one more. */
static bool niclab_window_is_apart(struct niclab *nic, const struct niclab_window *row)
{
	const struct niclab_window *other;
	u32 i;

	for (i = 0; i < nic->window_count; i++) {
		other = &nic->windows[i].row;
		if (row->kind == other->kind ||
		    (row->first_page < niclab_window_end(nic, other) && other->first_page < niclab_window_end(nic, row)))
			return false;
	}
	return true;
}

static int niclab_window_check(struct niclab *nic, const struct niclab_window *row)
{
	const char *wrong = NULL;

	if (!row->first_page || !row->pages || (row->stride && row->stride < row->pages) ||
	    niclab_window_end(nic, row) > nic->config.bar_pages)
		wrong = "is not inside of the BAR";
	else if (row->caching < NICLAB_CACHING_UNCACHED || row->caching > NICLAB_CACHING_WRITE_BACK)
		wrong = "is cached in a way that this driver does not know";
	else if (row->access < NICLAB_ACCESS_READ_ONLY || row->access > NICLAB_ACCESS_READ_WRITE)
		wrong = "is accessed in a way that this driver does not know";
	else if (!niclab_window_is_apart(nic, row))
		wrong = "is in the place of another, or of its kind";
	if (!wrong)
		return 0;
	dev_err(&nic->dev, "window %u of the BAR (kind %u, page %u, %u pages, stride %u, caching %u, access %u) %s; the device daemon is at fault, or newer than this driver\n",
		nic->window_count, row->kind, row->first_page, row->pages, row->stride, row->caching, row->access,
		wrong);
	return -EPROTO;
}

/*
 * Maps a window into kernel space. The pages of user mappings get their memory type from here, whatever is asked for
 * there: on x86, a page of device memory has the type that was reserved for its address, and is uncached where none
 * was. So each window is reserved by itself. Where the machine's firmware says uncached, write-back becomes that.
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

/* Reads the information page, once: what it says later is not believed. */
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
 * niclab_bar_wait - waits until the device is behind the BAR, finds the windows, and empties what ports have of them.
 * @nic: the NIC, whose device has had a request.
 *
 * The device maps its memory a moment after the driver announced itself, and writes the magic word last.
 *
 * Return: 0; -ETIMEDOUT or -EPROTO after telling why; -ENOMEM.
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
	err = niclab_bar_read(nic);
	for (port = 0; port < nic->config.ports && !err; port++)
		niclab_bar_clear_port(nic, port);
	return err;
}

/**
 * niclab_bar_clear_port - empties what a closed port had of each window.
 * @nic: the NIC.
 * @port: the port.
 *
 * The next owner must not see what the last one sent, and the device must not take the last one's launch words for
 * the next one's.
 */
void niclab_bar_clear_port(struct niclab *nic, u32 port)
{
	const struct niclab_bar_window *window;

	for (window = nic->windows; window < nic->windows + nic->window_count; window++)
		if (window->row.stride)
			memset_io(window->memory + niclab_window_offset(window, port), 0,
				  (size_t)window->row.pages * NICLAB_PAGE_BYTES);
	/* Out of the write-combining buffers before the device is told of a new owner. */
	wmb();
}
