// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of a file: the information page. With a port: its part of each window of the BAR, the windows of the card,
 * the doorbell, and receive memory.
 *
 * Pages are inserted on fault and not at mmap, so that a mapping ends with its port and with the device: both remove
 * the pages and refuse later faults.
 */
#include <linux/mm.h>
#include <linux/nospec.h>

#include "niclab.h"

/**
 * struct niclab_view - the memory at an offset of the file.
 * @pfn: page frame.
 * @pages: pages from there to the end of what can be mapped in one piece.
 * @caching: how it is cached, NICLAB_CACHING_.
 * @writable: programs may write there.
 * @generation: &niclab_file.generation of the owning port; zero if no port owns it.
 */
struct niclab_view {
	unsigned long pfn;
	unsigned long pages;
	u32 caching;
	bool writable;
	unsigned long generation;
};

static int niclab_view_of_memory(struct niclab_file *file, unsigned long page, struct niclab_view *view)
{
	unsigned long pages = file->memory_bytes >> PAGE_SHIFT;

	if (page >= pages)
		return -EINVAL;
	*view = (struct niclab_view){
		.pfn = PHYS_PFN(virt_to_phys(file->memory)) + page,
		.pages = pages - page,
		.caching = NICLAB_CACHING_WRITE_BACK,
		.generation = file->generation,
	};
	return 0;
}

/* The card's windows too are mapped only while the file has a port. */
static int niclab_view_of_window(struct niclab_file *file, unsigned long page, struct niclab_view *view)
{
	unsigned long number = page / (NICLAB_MAP_WINDOW_STRIDE >> PAGE_SHIFT);
	const struct niclab_bar_window *window;

	page %= NICLAB_MAP_WINDOW_STRIDE >> PAGE_SHIFT;
	if (number >= file->nic->window_count)
		return -EINVAL;
	window = &file->nic->windows[array_index_nospec(number, file->nic->window_count)];
	if (page >= window->row.pages)
		return -EINVAL;
	*view = (struct niclab_view){
		.pfn = PHYS_PFN(window->address + niclab_window_offset(window, file->port)) + page,
		.pages = window->row.pages - page,
		.caching = window->row.caching,
		.writable = window->row.access == NICLAB_ACCESS_READ_WRITE,
		.generation = file->generation,
	};
	return 0;
}

/*
 * Finds the memory at page @offset of a file, with map_lock held.
 *
 * Return: 0; -ENODEV if the device is gone; -ENOTCONN if the memory belongs to a port and the file has none; -ENXIO if
 * this NIC's doorbell cannot be mapped; -EINVAL for any other offset.
 */
static int niclab_view_find(struct niclab_file *file, unsigned long offset, struct niclab_view *view)
{
	struct niclab *nic = file->nic;

	if (nic->removed)
		return -ENODEV;
	if (offset == NICLAB_MAP_INFO >> PAGE_SHIFT) {
		*view = (struct niclab_view){
			.pfn = PHYS_PFN(nic->bar_address),
			.pages = 1,
			.caching = NICLAB_CACHING_WRITE_COMBINING,
		};
		return 0;
	}
	if (!file->open)
		return -ENOTCONN;
	if (offset == NICLAB_MAP_DOORBELL >> PAGE_SHIFT) {
		*view = (struct niclab_view){
			.pfn = PHYS_PFN(nic->doorbell_address),
			.pages = 1,
			.caching = NICLAB_CACHING_UNCACHED,
			.writable = true,
			.generation = file->generation,
		};
		return nic->doorbell_address ? 0 : -ENXIO;
	}
	if (offset >= NICLAB_MAP_WINDOWS >> PAGE_SHIFT)
		return niclab_view_of_window(file, offset - (NICLAB_MAP_WINDOWS >> PAGE_SHIFT), view);
	if (offset >= NICLAB_MAP_RECEIVE >> PAGE_SHIFT)
		return niclab_view_of_memory(file, offset - (NICLAB_MAP_RECEIVE >> PAGE_SHIFT), view);
	return -EINVAL;
}

static vm_fault_t niclab_fault(struct vm_fault *fault)
{
	struct vm_area_struct *vma = fault->vma;
	struct niclab_file *file = vma->vm_file->private_data;
	unsigned long generation = (unsigned long)vma->vm_private_data;
	vm_fault_t result = VM_FAULT_SIGBUS;
	struct niclab_view view;

	down_read(&file->nic->map_lock);
	if (!niclab_view_find(file, fault->pgoff, &view) && view.generation == generation)
		result = vmf_insert_pfn(vma, fault->address, view.pfn);
	up_read(&file->nic->map_lock);
	return result;
}

static const struct vm_operations_struct niclab_vm_ops = {
	.fault = niclab_fault,
};

static void niclab_vma_prepare(struct vm_area_struct *vma, const struct niclab_view *view)
{
	/*
	 * Page frames without struct page. A child does not inherit them: a port belongs to the process that maps it.
	 */
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vm_flags_clear(vma, view->writable ? VM_MAYEXEC : VM_MAYEXEC | VM_MAYWRITE);
	if (view->caching == NICLAB_CACHING_UNCACHED)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	else if (view->caching == NICLAB_CACHING_WRITE_COMBINING)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	vma->vm_private_data = (void *)view->generation;
	vma->vm_ops = &niclab_vm_ops;
}

/* Refuses a mapping that its memory does not allow. */
static int niclab_vma_check(struct vm_area_struct *vma, const struct niclab_view *view)
{
	/* A private mapping would be a copy, which the device does not see. */
	if (!(vma->vm_flags & VM_MAYSHARE) || vma_pages(vma) > view->pages)
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC || (vma->vm_flags & VM_WRITE && !view->writable))
		return -EACCES;
	return 0;
}

/**
 * niclab_mmap - the character device's mmap.
 * @filp: the file.
 * @vma: the requested mapping; its offset is a NICLAB_MAP_ constant, or a later page of receive memory or of a window.
 *
 * Return: 0; -ENODEV, -ENOTCONN, -ENXIO or -EINVAL by offset; -EINVAL if it is too long or private; -EACCES if it
 * requests access that is not allowed.
 */
int niclab_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct niclab_file *file = filp->private_data;
	struct niclab_view view;
	int err;

	if (niclab_is_dead(file->nic))
		return -ENODEV;
	down_read(&file->nic->map_lock);
	err = niclab_view_find(file, vma->vm_pgoff, &view);
	up_read(&file->nic->map_lock);
	if (!err)
		err = niclab_vma_check(vma, &view);
	if (!err)
		niclab_vma_prepare(vma, &view);
	return err;
}

/**
 * niclab_map_remove - removes all mappings of the NIC permanently.
 * @nic: the NIC, locked.
 */
void niclab_map_remove(struct niclab *nic)
{
	struct niclab_file *file;

	lockdep_assert_held(&nic->lock);
	down_write(&nic->map_lock);
	nic->removed = true;
	up_write(&nic->map_lock);
	list_for_each_entry(file, &nic->files, entry)
		unmap_mapping_range(file->mapping, 0, 0, 1);
}
