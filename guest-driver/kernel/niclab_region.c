// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: memory of programs that the device reads and writes by itself.
 *
 * A region's pages are pinned from before the device hears of them until after it has promised to touch them no more.
 * A device that never does keeps them: they stay pinned, and the kernel's log says so.
 *
 * Pinning and unpinning touch user memory and may take long, so that both happen with the NIC unlocked: what is taken
 * from a file under the lock is collected in a list, and let go behind it.
 *
 * Pages are counted in &mm_struct.pinned_vm (VmPin in /proc/PID/status) against RLIMIT_MEMLOCK, as InfiniBand's are.
 * Unlike the count of mlock it takes no mmap_lock, which a process that dies or a reboot may have to wait for.
 */
#include <linux/capability.h>
#include <linux/overflow.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "niclab.h"

/* Pages pinned at a time: between two such pieces a process can be killed. */
#define NICLAB_PIN_PAGES 4096UL

/* A request about a region: the first names it and has extents, each of the others has more of them. */
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
 * struct niclab_extent_cursor - what of a region the device has not been told.
 * @page: page in which that begins.
 * @offset: where in it.
 * @bytes: how much it is.
 */
struct niclab_extent_cursor {
	struct page **page;
	unsigned long offset;
	u64 bytes;
};

/* Moves on by as many extents as one request holds, and returns how many; pages that adjoin become one. */
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

/* Counts pages as pinned by the process that calls, unless it may not have so many. */
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
	/* The device may have written to any of them that it could. */
	unpin_user_pages_dirty_lock(region->pages, region->count, region->writable);
	region->count = 0;
}

/* Pins @count pages from @address on, or none. */
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
 * niclab_region_alloc - pins memory of the process that calls.
 * @address: its first byte.
 * @bytes: its length, not zero.
 * @writable: it is to be written.
 *
 * Return: a region that the device has not heard of, or an error.
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
 * niclab_region_free - lets go of a region that is in no list.
 * @nic: the NIC.
 * @region: the region.
 */
void niclab_region_free(struct niclab *nic, struct niclab_region *region)
{
	if (region->quiet) {
		atomic64_sub(region->count, &region->mm->pinned_vm);
		niclab_region_unpin(region);
	} else {
		dev_warn(&nic->dev, "%lu pages of a program stay pinned, because a device that does not answer may still write there; they come back with a reboot\n",
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

/* Asks the device to close a region, and notes whether it promised not to touch it any more. */
static void niclab_region_ask_close(struct niclab_file *file, struct niclab_region *region)
{
	struct niclab_region_name request = { .port = file->port, .region = region->name };
	int err = niclab_control(file->nic, NICLAB_OP_REGION_CLOSE, &request, sizeof(request), NULL, 0);

	if (err && err != -ENODEV)
		dev_err(&file->nic->dev, "region %#x could not be closed (%pe); device and driver do not match, update the older\n",
			region->name, ERR_PTR(err));
	region->quiet = !err;
}

/* Makes the first request about a region: its name comes back. */
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
	dev_err(&file->nic->dev, "the device opened region %#x, which is in use; it is taken for dead, restart the cluster\n",
		region->name);
	niclab_bury(file->nic);
	return -ENODEV;
}

/* Tells the device the rest of a region that it has opened. */
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

/* Registers a region for a file's port, with the NIC locked. On success it is in the file's list. */
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
 * niclab_region_register - pins memory of the process that calls and registers it for a file's port.
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
	/* Asked again with the NIC locked: this spares pinning in vain. */
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
 * niclab_region_deregister - takes a registration back.
 * @file: the file; its NIC is not locked.
 * @name: the region.
 *
 * Return: 0; -ENOTCONN without a port; -ENOENT when it has no such region; -ENODEV or -EINTR from the lock; -ENODEV as
 * well when the device does not answer: the memory stays pinned then.
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
 * niclab_region_detach - takes all regions from a file whose port is closed.
 * @file: the file; its NIC is locked.
 * @quiet: the device promised to have closed the port, and its regions with it.
 * @regions: where they go, for niclab_region_release().
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
 * niclab_region_release - lets go of regions that were taken from their files.
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
