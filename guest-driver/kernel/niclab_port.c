// SPDX-License-Identifier: GPL-2.0
/*
 * Opening and closing a port, and the memory to which the device writes the slices or events that the port receives.
 *
 * The device addresses guest-physical memory (the driver refuses VIRTIO_F_ACCESS_PLATFORM). So the driver allocates
 * physically contiguous pages and passes their physical address.
 */
#include <linux/log2.h>
#include <linux/slab.h>

#include "niclab.h"

/* Slices if the program asks for no number. */
#define NICLAB_SLICES_DEFAULT 256U

/* Fills in the defaults. Refuses values that the device would refuse, or that a request cannot express. */
static int niclab_port_check(struct niclab *nic, struct niclab_open_port *argument)
{
	u32 most = min(nic->config.max_slices, NICLAB_MAX_SLICES);

	if (argument->reserved0 || argument->reserved1)
		return -EINVAL;
	if (argument->port != NICLAB_PORT_ANY && argument->port >= nic->config.ports)
		return -EINVAL;
	if (!argument->slices)
		argument->slices = min(NICLAB_SLICES_DEFAULT, most);
	if (!is_power_of_2(argument->slices) || argument->slices < NICLAB_MIN_SLICES || argument->slices > most)
		return -EINVAL;
	argument->receive_bytes = PAGE_ALIGN(NICLAB_RECEIVE_SLICES_OFFSET + argument->slices * NICLAB_SLICE_BYTES);
	return 0;
}

/* Asks the device for a port and stores its number in @argument. */
static int niclab_port_ask(struct niclab *nic, struct niclab_open_port *argument, void *memory)
{
	struct niclab_port_open request = {
		.port = argument->port,
		.slices = argument->slices,
		.slices_address = virt_to_phys(memory) + NICLAB_RECEIVE_SLICES_OFFSET,
		.status_address = virt_to_phys(memory),
		.fifo_words = argument->fifo_words,
		.flags = NICLAB_PORT_BATCHES,
	};
	struct niclab_port_opened opened;
	int err;

	err = niclab_control(nic, NICLAB_OP_PORT_OPEN, &request, sizeof(request), &opened, sizeof(opened));
	if (err == -EBUSY && argument->port == NICLAB_PORT_ANY)
		return -ENOSPC;
	if (err)
		return err;
	if (opened.port >= nic->config.ports || nic->owners[opened.port]) {
		dev_err(&nic->dev, "the device opened port %u, which does not exist or is in use; the driver gives the device up; restart the cluster\n",
			opened.port);
		niclab_mark_dead(nic);
		return -ENODEV;
	}
	argument->port = opened.port;
	return 0;
}

/**
 * niclab_memory_free - frees memory that the device may write to, unless the device kept it.
 * @nic: the NIC.
 * @memory: the memory, from alloc_pages_exact().
 * @bytes: its size.
 * @quiet: the device promised not to write to it any more. Without that promise the memory is never used again.
 */
void niclab_memory_free(struct niclab *nic, void *memory, size_t bytes, bool quiet)
{
	if (quiet)
		free_pages_exact(memory, bytes);
	else
		dev_warn(&nic->dev, "%zu bytes stay allocated, because a device that does not answer may still write to them; a reboot frees them\n",
			 bytes);
}

/**
 * niclab_port_open - opens a port for a file that has none.
 * @file: the file; its NIC is locked.
 * @argument: as in NICLAB_IOCTL_OPEN_PORT.
 *
 * Return: 0, or the error of that request.
 */
int niclab_port_open(struct niclab_file *file, struct niclab_open_port *argument)
{
	struct niclab *nic = file->nic;
	void *memory;
	int err;

	lockdep_assert_held(&nic->lock);
	if (file->open)
		return -EBUSY;
	err = niclab_port_check(nic, argument);
	if (err)
		return err;
	memory = alloc_pages_exact(argument->receive_bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!memory)
		return -ENOMEM;
	err = niclab_port_ask(nic, argument, memory);
	if (err) {
		niclab_memory_free(nic, memory, argument->receive_bytes, niclab_is_refusal(err));
		return err;
	}

	down_write(&nic->map_lock);
	file->memory = memory;
	file->memory_bytes = argument->receive_bytes;
	file->port = argument->port;
	file->generation++;
	file->open = true;
	up_write(&nic->map_lock);
	niclab_event_attach(file);
	return 0;
}

/* Removes the port's mappings: a program that accesses them from now on gets SIGBUS. */
static void niclab_port_unmap(struct niclab_file *file)
{
	/* First refuse new faults, then remove pages that earlier faults inserted. */
	down_write(&file->nic->map_lock);
	file->open = false;
	up_write(&file->nic->map_lock);
	/* All but the information page, which belongs to no port. */
	unmap_mapping_range(file->mapping, NICLAB_MAP_INFO + PAGE_SIZE, 0, 1);
}

/* Notifies the device of posts of a program that died before it rang the doorbell for them. */
static void niclab_port_announce(struct niclab *nic)
{
	u64 sleep;

	/* The posts must be visible before the word is loaded. */
	mb();
	memcpy_fromio(&sleep, nic->info + NICLAB_INFO_DOORBELL_OFFSET, sizeof(sleep));
	if (sleep != NICLAB_DOORBELL_SPARED)
		virtqueue_notify(nic->queues[NICLAB_QUEUE_DOORBELL]);
}

/* Asks the device to close the port. Returns whether it promised not to write any more. */
static bool niclab_port_ask_close(struct niclab_file *file)
{
	struct niclab_port_name request = { .port = file->port };
	int err = niclab_control(file->nic, NICLAB_OP_PORT_CLOSE, &request, sizeof(request), NULL, 0);

	if (err && err != -ENODEV)
		dev_err(&file->nic->dev, "port %u could not be closed (%pe); device and driver do not match, update the older\n",
			file->port, ERR_PTR(err));
	return !err;
}

/* Releases the port's resources after the device closed it, or failed to. */
static void niclab_port_forget(struct niclab_file *file, bool quiet, struct list_head *regions)
{
	struct niclab *nic = file->nic;

	niclab_event_detach(file);
	if (quiet)
		niclab_bar_clear_port(nic, file->port);
	niclab_memory_free(nic, file->memory, file->memory_bytes, quiet);
	file->memory = NULL;
	niclab_region_detach(file, quiet, regions);
}

/**
 * niclab_port_close - closes a file's port, and releases it even if the device refuses.
 * @file: the file; its NIC is locked. Without a port nothing happens.
 * @regions: receives its regions, for niclab_region_release().
 */
void niclab_port_close(struct niclab_file *file, struct list_head *regions)
{
	lockdep_assert_held(&file->nic->lock);
	if (!file->open)
		return;
	/*
	 * The owner loses its pages before the device closes the port, or it could store into pages of the next owner.
	 */
	niclab_port_unmap(file);
	niclab_port_announce(file->nic);
	niclab_port_forget(file, niclab_port_ask_close(file), regions);
}

/**
 * niclab_port_abandon - closes a file's port when the driver releases the device.
 * @file: the file; its NIC is locked. Without a port nothing happens.
 * @quiet: the device promised to have closed all ports.
 * @regions: receives its regions, for niclab_region_release().
 */
void niclab_port_abandon(struct niclab_file *file, bool quiet, struct list_head *regions)
{
	lockdep_assert_held(&file->nic->lock);
	if (!file->open)
		return;
	niclab_port_unmap(file);
	niclab_port_forget(file, quiet, regions);
}

/**
 * niclab_port_request - makes a request for a file's port.
 * @file: the file; its NIC is not locked.
 * @operation: NICLAB_OP_.
 * @request: the body, which begins with the port's number; this function fills the number in.
 * @bytes: length of the body.
 *
 * Return: 0, or the error of that request; -ENOTCONN if the file has no port.
 */
int niclab_port_request(struct niclab_file *file, u32 operation, void *request, u32 bytes)
{
	u32 *port = request;
	int err = niclab_lock(file->nic);

	if (err)
		return err;
	*port = file->port;
	err = file->open ? niclab_control(file->nic, operation, request, bytes, NULL, 0) : -ENOTCONN;
	mutex_unlock(&file->nic->lock);
	return err;
}
