// SPDX-License-Identifier: GPL-2.0
/*
 * What a file may map: the information page, and the pages of its own port.
 *
 * Pages are inserted on fault and not at mmap, so that a mapping outlives neither its port nor the device: both take
 * the pages away and refuse the faults that follow.
 */
#include <linux/mm.h>

#include "niclab.h"

/* How the pages of a window are accessed. */
enum niclab_access {
	NICLAB_READ_ONLY,
	NICLAB_WRITE_COMBINING,
	NICLAB_UNCACHED,
	NICLAB_MEMORY_READ_ONLY,
};

/**
 * struct niclab_window - what is behind an offset of the file.
 * @pfn: page frame.
 * @pages: pages from there to the end of the window.
 * @access: how it is accessed.
 * @generation: whose it is: &niclab_file.generation, or zero for the NIC's own.
 */
struct niclab_window {
	unsigned long pfn;
	unsigned long pages;
	enum niclab_access access;
	unsigned long generation;
};

static struct niclab_window niclab_page(phys_addr_t address, enum niclab_access access, unsigned long generation)
{
	return (struct niclab_window){ .pfn = PHYS_PFN(address), .pages = 1, .access = access, .generation = generation };
}

static int niclab_window_of_memory(struct niclab_file *file, unsigned long page, struct niclab_window *window)
{
	unsigned long pages = file->memory_bytes >> PAGE_SHIFT;

	if (page >= pages)
		return -EINVAL;
	*window = (struct niclab_window){
		.pfn = PHYS_PFN(virt_to_phys(file->memory)) + page,
		.pages = pages - page,
		.access = NICLAB_MEMORY_READ_ONLY,
		.generation = file->generation,
	};
	return 0;
}

/*
 * Finds what is behind page @offset of a file, with map_lock held.
 *
 * Return: 0; -ENODEV when the device is gone; -ENOTCONN when that takes a port and the file has none; -ENXIO when this
 * NIC's doorbell cannot be mapped; -EINVAL when nothing is there.
 */
static int niclab_window_find(struct niclab_file *file, unsigned long offset, struct niclab_window *window)
{
	struct niclab *nic = file->nic;

	if (nic->removed)
		return -ENODEV;
	if (offset == NICLAB_MAP_INFO >> PAGE_SHIFT) {
		*window = niclab_page(nic->bar_address, NICLAB_READ_ONLY, 0);
		return 0;
	}
	if (!file->open)
		return -ENOTCONN;
	switch (offset) {
	case NICLAB_MAP_REQUESTER >> PAGE_SHIFT:
		*window = niclab_page(nic->bar_address + niclab_requester_offset(file->port), NICLAB_WRITE_COMBINING,
				      file->generation);
		return 0;
	case NICLAB_MAP_COMPLETER >> PAGE_SHIFT:
		*window = niclab_page(nic->bar_address + niclab_completer_offset(file->port), NICLAB_WRITE_COMBINING,
				      file->generation);
		return 0;
	case NICLAB_MAP_DOORBELL >> PAGE_SHIFT:
		*window = niclab_page(nic->doorbell_address, NICLAB_UNCACHED, file->generation);
		return nic->doorbell_address ? 0 : -ENXIO;
	}
	if (offset < NICLAB_MAP_RECEIVE >> PAGE_SHIFT)
		return -EINVAL;
	return niclab_window_of_memory(file, offset - (NICLAB_MAP_RECEIVE >> PAGE_SHIFT), window);
}

static vm_fault_t niclab_fault(struct vm_fault *fault)
{
	struct vm_area_struct *vma = fault->vma;
	struct niclab_file *file = vma->vm_file->private_data;
	unsigned long generation = (unsigned long)vma->vm_private_data;
	vm_fault_t result = VM_FAULT_SIGBUS;
	struct niclab_window window;

	down_read(&file->nic->map_lock);
	if (!niclab_window_find(file, fault->pgoff, &window) && window.generation == generation)
		result = vmf_insert_pfn(vma, fault->address, window.pfn);
	up_read(&file->nic->map_lock);
	return result;
}

static const struct vm_operations_struct niclab_vm_ops = {
	.fault = niclab_fault,
};

static void niclab_vma_prepare(struct vm_area_struct *vma, const struct niclab_window *window)
{
	bool writable = window->access == NICLAB_WRITE_COMBINING || window->access == NICLAB_UNCACHED;

	/* Bare page frames, which a child does not inherit: a port belongs to the process that maps it. */
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vm_flags_clear(vma, writable ? VM_MAYEXEC : VM_MAYEXEC | VM_MAYWRITE);
	if (window->access == NICLAB_UNCACHED)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	else if (window->access != NICLAB_MEMORY_READ_ONLY)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	vma->vm_private_data = (void *)window->generation;
	vma->vm_ops = &niclab_vm_ops;
}

/* Refuses a mapping that the window does not allow. */
static int niclab_vma_check(struct vm_area_struct *vma, const struct niclab_window *window)
{
	bool writable = window->access == NICLAB_WRITE_COMBINING || window->access == NICLAB_UNCACHED;

	/* A private mapping would be a copy, in which the device does not look. */
	if (!(vma->vm_flags & VM_MAYSHARE) || vma_pages(vma) > window->pages)
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC || (vma->vm_flags & VM_WRITE && !writable))
		return -EACCES;
	return 0;
}

/**
 * niclab_mmap - the character device's mmap.
 * @filp: the file.
 * @vma: the mapping wanted; its offset is one of NICLAB_MAP_, or a page further in the receive memory.
 *
 * Return: 0; -ENODEV, -ENOTCONN, -ENXIO or -EINVAL by offset; -EINVAL when it is too long or private; -EACCES when it
 * asks for more than is allowed.
 */
int niclab_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct niclab_file *file = filp->private_data;
	struct niclab_window window;
	int err;

	if (niclab_is_dead(file->nic))
		return -ENODEV;
	down_read(&file->nic->map_lock);
	err = niclab_window_find(file, vma->vm_pgoff, &window);
	up_read(&file->nic->map_lock);
	if (!err)
		err = niclab_vma_check(vma, &window);
	if (!err)
		niclab_vma_prepare(vma, &window);
	return err;
}

/**
 * niclab_map_remove - takes all mappings of the NIC away, for good.
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
