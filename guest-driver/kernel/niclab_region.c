// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: memory of programs that the device reads and writes by itself.
 *
 * A region's pages are pinned before the device gets their addresses, and unpinned after the device has promised not to
 * access them any more. Without that promise they stay pinned, and the driver logs that.
 *
 * Pinning and unpinning access user memory and may take long, so both happen with the NIC unlocked. Under the lock the
 * driver only moves a file's regions to a list, and frees them after unlocking.
 *
 * Pages are counted in &mm_struct.pinned_vm (VmPin in /proc/PID/status) against RLIMIT_MEMLOCK, as InfiniBand's are.
 * Unlike the count of mlock, this takes no mmap_lock, which an exiting process or a reboot may have to wait for.
 */
#include <linux/capability.h>
#include <linux/overflow.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "niclab.h"

/* Pages pinned at a time. The process can be killed between two such batches. */
#define NICLAB_PIN_PAGES 4096UL

/* A request about a region: the first one opens it with its first extents, later ones add extents. */
union niclab_region_request {
	struct {
		struct niclab_region_open head;
		struct niclab_extent extents[NICLAB_MAX_EXTENTS];
	} open;
	struct {
		struct niclab_region_name head;
		struct niclab_extent extents[NICLAB_MAX_EXTENTS];
	} extend;
};
static_assert(sizeof(union niclab_region_request) <= NICLAB_CONTROL_BODY_BYTES);

/**
 * struct niclab_extent_cursor - the part of a region that the device does not know yet.
 * @page: first page of the part.
 * @offset: offset of the part in that page.
 * @bytes: length of the part.
 */
struct niclab_extent_cursor {
	struct page **page;
	unsigned long offset;
	u64 bytes;
};

/* Fills one request with extents, and returns their number. Physically adjacent pages become one extent. */
static u32 niclab_extents_take(struct niclab_extent_cursor *cursor, struct niclab_extent *extents)
{
	u32 count = 0;

	while (cursor->bytes) {
		u64 address = page_to_phys(*cursor->page) + cursor->offset;
		u64 bytes = min_t(u64, cursor->bytes, PAGE_SIZE - cursor->offset);

		if (count && extents[count - 1].address + extents[count - 1].bytes == address)
			extents[count - 1].bytes += bytes;
		else if (count == NICLAB_MAX_EXTENTS)
			break;
		else
			extents[count++] = (struct niclab_extent){ .address = address, .bytes = bytes };
		cursor->page++;
		cursor->offset = 0;
		cursor->bytes -= bytes;
	}
	return count;
}

/* Charges pinned pages to the calling process, or fails if that exceeds its limit. */
static int niclab_pages_account(unsigned long count)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(count, &current->mm->pinned_vm) <= limit || capable(CAP_IPC_LOCK))
		return 0;
	atomic64_sub(count, &current->mm->pinned_vm);
	return -ENOMEM;
}

static void niclab_region_unpin(struct niclab_region *region)
{
	/* The device may have written to any page of a writable region. */
	unpin_user_pages_dirty_lock(region->pages, region->count, region->writable);
	region->count = 0;
}

/* Pins @count pages from @address on. On an error, none stays pinned. */
static int niclab_region_pin(struct niclab_region *region, unsigned long address, unsigned long count)
{
	unsigned int flags = FOLL_LONGTERM | (region->writable ? FOLL_WRITE : 0);
	unsigned long piece;
	int pinned;

	while (region->count < count) {
		piece = min(count - region->count, NICLAB_PIN_PAGES);
		pinned = fatal_signal_pending(current) ? -EINTR :
			 pin_user_pages_fast(address + region->count * PAGE_SIZE, piece, flags,
					     region->pages + region->count);
		if (pinned <= 0) {
			niclab_region_unpin(region);
			return pinned ? pinned : -EFAULT;
		}
		region->count += pinned;
		cond_resched();
	}
	return 0;
}

/**
 * niclab_region_alloc - pins memory of the calling process.
 * @address: its first byte.
 * @bytes: its length, not zero.
 * @writable: the device may write to it.
 *
 * Return: a region that is not yet registered with the device, or an error.
 */
struct niclab_region *niclab_region_alloc(u64 address, u64 bytes, bool writable)
{
	unsigned long first = address & PAGE_MASK;
	unsigned long count = PAGE_ALIGN(offset_in_page(address) + bytes) >> PAGE_SHIFT;
	struct niclab_region *region;
	int err = -ENOMEM;
	u64 end;

	if (check_add_overflow(address, bytes, &end) || end > ULONG_MAX - PAGE_SIZE)
		return ERR_PTR(-EFAULT);
	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region)
		return ERR_PTR(-ENOMEM);
	region->offset = offset_in_page(address);
	region->writable = writable;
	INIT_LIST_HEAD(&region->entry);
	region->quiet = true;
	region->pages = kvmalloc_array(count, sizeof(*region->pages), GFP_KERNEL_ACCOUNT);
	if (!region->pages)
		goto free_region;
	err = niclab_pages_account(count);
	if (err)
		goto free_pages;
	err = niclab_region_pin(region, first, count);
	if (err)
		goto unaccount;
	region->mm = current->mm;
	mmgrab(region->mm);
	return region;
unaccount:
	atomic64_sub(count, &current->mm->pinned_vm);
free_pages:
	kvfree(region->pages);
free_region:
	kfree(region);
	return ERR_PTR(err);
}

/**
 * niclab_region_free - unpins and frees a region that is in no list.
 * @nic: the NIC.
 * @region: the region.
 */
void niclab_region_free(struct niclab *nic, struct niclab_region *region)
{
	if (region->quiet) {
		atomic64_sub(region->count, &region->mm->pinned_vm);
		niclab_region_unpin(region);
	} else {
		dev_warn(&nic->dev, "%lu pages of a program stay pinned, because a device that does not answer may still write to them; a reboot frees them\n",
			 region->count);
	}
	mmdrop(region->mm);
	kvfree(region->pages);
	kfree(region);
}

static struct niclab_region *niclab_region_find(struct niclab_file *file, u32 name)
{
	struct niclab_region *region;

	list_for_each_entry(region, &file->regions, entry)
		if (region->name == name)
			return region;
	return NULL;
}

/* Asks the device to close a region, and records whether it promised not to access the region any more. */
static void niclab_region_ask_close(struct niclab_file *file, struct niclab_region *region)
{
	struct niclab_region_name request = { .port = file->port, .region = region->name };
	int err = niclab_control(file->nic, NICLAB_OP_REGION_CLOSE, &request, sizeof(request), NULL, 0);

	if (err && err != -ENODEV)
		dev_err(&file->nic->dev, "region %#x could not be closed (%pe); device and driver do not match, update the older\n",
			region->name, ERR_PTR(err));
	region->quiet = !err;
}

/* Opens a region with its first extents. The device's reply contains its name. */
static int niclab_region_open(struct niclab_file *file, struct niclab_region *region,
			      union niclab_region_request *request, struct niclab_extent_cursor *cursor)
{
	struct niclab_region_opened opened;
	int err;

	request->open.head = (struct niclab_region_open){ .port = file->port, .bytes = cursor->bytes };
	request->open.head.extents = niclab_extents_take(cursor, request->open.extents);
	err = niclab_control(file->nic, NICLAB_OP_REGION_OPEN, &request->open,
			     offsetof(typeof(request->open), extents[request->open.head.extents]), &opened,
			     sizeof(opened));
	if (err) {
		region->quiet = niclab_is_refusal(err);
		return err;
	}
	region->quiet = false;
	region->name = opened.region;
	if (!niclab_region_find(file, region->name))
		return 0;
	dev_err(&file->nic->dev, "the device opened region %#x, which is in use; the driver gives the device up; restart the cluster\n",
		region->name);
	niclab_mark_dead(file->nic);
	return -ENODEV;
}

/* Sends the device the remaining extents of a region that it has opened. */
static int niclab_region_extend(struct niclab_file *file, struct niclab_region *region,
				union niclab_region_request *request, struct niclab_extent_cursor *cursor)
{
	int err = 0;

	while (cursor->bytes && !err) {
		if (fatal_signal_pending(current))
			return -EINTR;
		request->extend.head = (struct niclab_region_name){ .port = file->port, .region = region->name };
		request->extend.head.extents = niclab_extents_take(cursor, request->extend.extents);
		err = niclab_control(file->nic, NICLAB_OP_REGION_EXTEND, &request->extend,
				     offsetof(typeof(request->extend), extents[request->extend.head.extents]), NULL, 0);
	}
	return err;
}

/* Registers a region for a file's port and adds it to the file's list. The NIC is locked. */
static int niclab_region_tell(struct niclab_file *file, struct niclab_region *region,
			      const struct niclab_registration *argument)
{
	struct niclab_extent_cursor cursor = {
		.page = region->pages,
		.offset = region->offset,
		.bytes = argument->bytes,
	};
	union niclab_region_request *request;
	int err;

	lockdep_assert_held(&file->nic->lock);
	if (!file->open)
		return -ENOTCONN;
	request = kmalloc(sizeof(*request), GFP_KERNEL);
	if (!request)
		return -ENOMEM;
	err = niclab_region_open(file, region, request, &cursor);
	if (!err) {
		err = niclab_region_extend(file, region, request, &cursor);
		if (err)
			niclab_region_ask_close(file, region);
		else
			list_add(&region->entry, &file->regions);
	}
	kfree(request);
	return err;
}

static int niclab_region_check(const struct niclab_registration *argument)
{
	bool is_wrong = argument->reserved || !argument->bytes || argument->bytes > NICLAB_MAX_REGISTRATION_BYTES;

	return is_wrong ? -EINVAL : 0;
}

/**
 * niclab_region_register - pins memory of the calling process and registers it for a file's port.
 * @file: the file; its NIC is not locked.
 * @argument: as in NICLAB_IOCTL_REGISTER.
 *
 * Return: 0, or the error of that request.
 */
int niclab_region_register(struct niclab_file *file, struct niclab_registration *argument)
{
	struct niclab *nic = file->nic;
	struct niclab_region *region;
	int err;

	err = niclab_region_check(argument);
	if (err)
		return err;
	/* Checked again with the NIC locked. This early check only avoids useless pinning. */
	if (!READ_ONCE(file->open))
		return -ENOTCONN;
	region = niclab_region_alloc(argument->address, argument->bytes, true);
	if (IS_ERR(region))
		return PTR_ERR(region);
	err = niclab_lock(nic);
	if (!err) {
		err = niclab_region_tell(file, region, argument);
		argument->region = region->name;
		mutex_unlock(&nic->lock);
	}
	if (err)
		niclab_region_free(nic, region);
	return err;
}

/**
 * niclab_region_deregister - ends a registration.
 * @file: the file; its NIC is not locked.
 * @name: the region.
 *
 * Return: 0; -ENOTCONN without a port; -ENOENT if the port has no such region; -ENODEV or -EINTR from the lock; -ENODEV
 * also if the device does not answer, in which case the memory stays pinned.
 */
int niclab_region_deregister(struct niclab_file *file, u32 name)
{
	struct niclab *nic = file->nic;
	struct niclab_region *region;
	int err;

	err = niclab_lock(nic);
	if (err)
		return err;
	if (!file->open) {
		mutex_unlock(&nic->lock);
		return -ENOTCONN;
	}
	region = niclab_region_find(file, name);
	if (region) {
		list_del(&region->entry);
		niclab_region_ask_close(file, region);
		err = region->quiet ? 0 : -ENODEV;
	}
	mutex_unlock(&nic->lock);
	if (!region)
		return -ENOENT;
	niclab_region_free(nic, region);
	return err;
}

/**
 * niclab_region_detach - moves all regions of a file whose port is closed to a list.
 * @file: the file; its NIC is locked.
 * @quiet: the device promised to have closed the port, and its regions with it.
 * @regions: receives them, for niclab_region_release().
 */
void niclab_region_detach(struct niclab_file *file, bool quiet, struct list_head *regions)
{
	struct niclab_region *region;

	lockdep_assert_held(&file->nic->lock);
	list_for_each_entry(region, &file->regions, entry)
		region->quiet = quiet;
	list_splice_tail_init(&file->regions, regions);
}

/**
 * niclab_region_release - unpins and frees regions that were removed from their files.
 * @nic: the NIC, not locked.
 * @regions: the regions; empty afterwards.
 */
void niclab_region_release(struct niclab *nic, struct list_head *regions)
{
	struct niclab_region *region, *next;

	list_for_each_entry_safe(region, next, regions, entry)
		niclab_region_free(nic, region);
	INIT_LIST_HEAD(regions);
}
