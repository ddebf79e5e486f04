/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Driver of the niclab cluster function: shared declarations.
 *
 * niclab_main.c     module, recognition of the device, probe and remove
 * niclab_control.c  requests on the control queue, death of the device
 * niclab_event.c    event queue: dispatches interrupts to the ports that caused them
 * niclab_pci.c      PCI details that the virtio core does not export: capabilities, the doorbell's page
 * niclab_bar.c      the BAR
 * niclab_port.c     opening and closing a port, its receive memory
 * niclab_region.c   memory of programs, pinned and registered with the device
 * niclab_post.c     requests of programs that post messages
 * niclab_channel.c  requests of programs that own a logical channel
 * niclab_ring.c     descriptor rings and their buffers
 * niclab_active.c   active ports over the rings: receive path, windows, acknowledgements
 * niclab_send.c     active ports: send path
 * niclab_park.c     frames of messages that wait for a receive buffer of their program
 * niclab_net.c      a network interface over descriptor rings
 * niclab_spill.c    memory for list entries that do not fit into the device
 * niclab_firmware.c firmware of the card
 * niclab_counters.c counters of the device, by name
 * niclab_map.c      what a file may map
 * niclab_chr.c      the character device
 * niclab_sysfs.c    attributes
 *
 * niclab_abi.h is the contract with the device and with user programs. It is generated; the device programmer's
 * manual explains it.
 *
 * Locks, outermost first:
 *   niclab.lock        mutex: control queue, ports, list of files. Held while the device works on a request.
 *   mmap_lock          the memory manager's, around mmap and fault. Never taken inside niclab.lock: no user memory is
 *                      touched while that is held.
 *   niclab.map_lock    read-write semaphore: what may be mapped. Readers are mmap and fault.
 *   rtnl_lock          the network code's, around registration of the interface. Never taken inside niclab.lock.
 *   niclab_partner.sender mutex: a message to a node, from its first frame to its last.
 *   niclab_rings.lock  mutex: descriptor rings, windows and active ports. No user memory is touched that is not pinned.
 *   niclab.event_lock  spinlock, interrupts off: event queue and interrupt counters.
 */
#ifndef NICLAB_H
#define NICLAB_H

#include <linux/build_bug.h>
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/wait.h>

#include "niclab_abi.h"

#ifdef __BIG_ENDIAN
#error "niclab: every field of the ABI is little-endian and this driver does not swap bytes; build for a little-endian kernel"
#endif

/* A port's pages are mapped to its owner only: with larger pages a mapping would include a neighbour's. */
static_assert(PAGE_SIZE == NICLAB_PAGE_BYTES, "niclab needs a kernel with 4 KiB pages");

/* A slice holds its sender's port number in eight bits, NICLAB_SLICE_PORT_SHIFT. */
#define NICLAB_PORTS_LIMIT 256U

/* Event buffers that the device holds. If more interrupts are in flight, the device merges them. */
#define NICLAB_EVENT_BUFFERS 64U

/* Interrupt causes with a counter each; index 0 counts causes that this driver does not know. */
#define NICLAB_CAUSES (NICLAB_CAUSE_LINK + 1)

/* Longest body of a control request: that of NICLAB_OP_REGION_OPEN. */
#define NICLAB_CONTROL_BODY_BYTES \
	(sizeof(struct niclab_region_open) + NICLAB_MAX_EXTENTS * sizeof(struct niclab_extent))

/**
 * struct niclab_counters_answer - answer to NICLAB_OP_COUNTERS, the longest of all answers.
 * @head: the number of counters, in total and in this answer.
 * @counters: some of them.
 */
struct niclab_counters_answer {
	struct niclab_counters_head head;
	struct niclab_counter counters[NICLAB_COUNTERS_PER_REPLY];
};

/* Length limit of a firmware file's name, with its terminating zero. */
#define NICLAB_FIRMWARE_NAME_BYTES 64U

struct niclab_control_buffer;
struct niclab_counters;
struct niclab_rings;
struct niclab_active;

/**
 * struct niclab_program - a program that the device has accepted.
 * @name: its file name.
 * @words: its length in words.
 * @checksum: its checksum, as computed by the device.
 */
struct niclab_program {
	char name[NICLAB_FIRMWARE_NAME_BYTES];
	u32 words;
	u32 checksum;
};

/**
 * struct niclab_bar_window - a window of the BAR.
 * @row: its entry in the information page, validated.
 * @address: physical address of its first page.
 * @memory: the window in kernel space, with the same memory type as in programs.
 */
struct niclab_bar_window {
	struct niclab_window row;
	phys_addr_t address;
	void __iomem *memory;
};

/**
 * struct niclab - one NIC.
 * @dev: the device of class niclab. Its reference count is this structure's: open files hold it through @cdev.
 * @cdev: character device.
 * @index: N of /dev/niclabN.
 * @vdev: virtio device; its queues must not be touched once @dead.
 * @config: configuration space, validated.
 * @queues: virtqueues by their NICLAB_QUEUE_ index.
 * @lock: see the top of this file.
 * @control: buffers of the one control request in flight.
 * @dead: the device did not answer, or the driver released it: the driver no longer accesses it. Set under @lock and
 *        never cleared.
 * @files: open files, under @lock.
 * @counters: the device's counters.
 * @spill: memory for list entries that do not fit into the device, or NULL. Under @lock.
 * @spill_bytes: its size, whole pages.
 * @rings: descriptor rings, or NULL. Set before the NIC is published, and never changed.
 * @builtin: the program that the device is built with.
 * @firmware: the program that was loaded last, under @lock.
 * @fallbacks: how many programs the device had replaced by @builtin when @firmware was loaded. If the number has grown
 *             since, the device runs @builtin.
 * @info: information page of the BAR.
 * @bar_address: physical address of the BAR.
 * @windows: the BAR's windows, validated.
 * @window_count: number of windows.
 * @doorbell_address: physical address of the doorbell's page; zero when it cannot be mapped.
 * @map_lock: see the top of this file.
 * @removed: the hardware may be gone: mappings fault, and the driver refuses every fault. Under @map_lock.
 * @event_lock: see the top of this file.
 * @events: the event queue's buffers.
 * @is_cut: the device reports that the card's link is cut. Under @event_lock.
 * @event_buffers: number of these buffers in circulation. Under @event_lock.
 * @owners: for each port the file that owns it, or NULL. Under @event_lock; changed with @lock held as well.
 * @interrupts: interrupts that delivered at least one event. Under @event_lock.
 * @causes: interrupt causes reported by events, by kind. Under @event_lock.
 * @handed_over: callers that wait until the device runs the program they loaded.
 */
struct niclab {
	struct device dev;
	struct cdev cdev;
	int index;
	struct virtio_device *vdev;
	struct niclab_device_config config;
	struct virtqueue *queues[NICLAB_QUEUES];

	struct mutex lock;
	struct niclab_control_buffer *control;
	bool dead;
	struct list_head files;

	struct niclab_counters *counters;
	void *spill;
	size_t spill_bytes;
	struct niclab_rings *rings;
	struct niclab_program builtin;
	struct niclab_program firmware;
	u64 fallbacks;

	void __iomem *info;
	phys_addr_t bar_address;
	struct niclab_bar_window windows[NICLAB_MAX_WINDOWS];
	u32 window_count;
	phys_addr_t doorbell_address;

	struct rw_semaphore map_lock;
	bool removed;

	spinlock_t event_lock;
	struct niclab_event *events;
	unsigned int event_buffers;
	bool is_cut;
	struct niclab_file **owners;
	u64 interrupts;
	u64 causes[NICLAB_CAUSES];
	wait_queue_head_t handed_over;
};

/**
 * struct niclab_region - memory that is pinned and, while it is in a file's list, registered.
 * @entry: in &niclab_file.regions.
 * @name: the device's name for it.
 * @quiet: the device will not access it: it was never registered, or the device has closed it.
 * @mm: the process that its pinned pages are charged to; that process may have exited.
 * @pages: its pages.
 * @count: number of pages.
 * @offset: offset of the memory in the first page.
 * @writable: the device may write to the pages.
 */
struct niclab_region {
	struct list_head entry;
	u32 name;
	bool quiet;
	struct mm_struct *mm;
	struct page **pages;
	unsigned long count;
	unsigned long offset;
	bool writable;
};

/**
 * struct niclab_file - one open file, owner of at most one port.
 * @nic: the NIC.
 * @entry: in &niclab.files.
 * @mapping: address space in which this file's mappings are found.
 * @open: the file owns a port. Under &niclab.lock; changed with &niclab.map_lock held for writing as well.
 * @port: its number.
 * @generation: counts the file's ports, to tell mappings of an earlier port from those of the current one.
 * @memory: receive memory: status line, then slices.
 * @memory_bytes: its size, whole pages.
 * @regions: memory registered for the port, under &niclab.lock.
 * @active: its active port, or NULL. Set once, under &niclab_rings.lock.
 * @wait: sleepers in poll and read.
 * @pending: causes for the port since the last read. Under &niclab.event_lock.
 */
struct niclab_file {
	struct niclab *nic;
	struct list_head entry;
	struct address_space *mapping;

	bool open;
	u32 port;
	unsigned long generation;
	void *memory;
	size_t memory_bytes;
	struct list_head regions;
	struct niclab_active *active;

	wait_queue_head_t wait;
	u64 pending;
};

/**
 * struct niclab_limit - a time limit of a thread that polls.
 * @left: time left, in jiffies.
 * @last: when the thread polled last, in jiffies.
 */
struct niclab_limit {
	unsigned long left;
	unsigned long last;
};

/* The longest time that counts between two polls. If more has passed, the guest, the host or the device stood still. */
#define NICLAB_LIMIT_MAX_STEP HZ

static inline void niclab_limit_begin(struct niclab_limit *limit, u32 timeout_ms)
{
	limit->left = msecs_to_jiffies(timeout_ms) + 1;
	limit->last = jiffies;
}

/* Counts the time since the last call. Returns whether the limit is over. */
static inline bool niclab_limit_is_over(struct niclab_limit *limit)
{
	unsigned long now = jiffies, step = min_t(unsigned long, now - limit->last, NICLAB_LIMIT_MAX_STEP);

	limit->last = now;
	limit->left -= min(step, limit->left);
	return !limit->left;
}

static inline bool niclab_is_dead(const struct niclab *nic)
{
	return READ_ONCE(nic->dead);
}

/*
 * Whether an error of niclab_control() is a refusal by the device. A refusal promises that the device holds no memory
 * that the request named. A missing or malformed reply promises nothing.
 */
static inline bool niclab_is_refusal(int err)
{
	return err != -ENODEV && err != -EPROTO;
}

/* Whether the card has all of these features, NICLAB_FEATURE_ bits. */
static inline bool niclab_has(const struct niclab *nic, u64 features)
{
	return (nic->config.features & features) == features;
}

/* Byte offset of a port's part of a window; zero if the window belongs to the card as a whole. */
static inline size_t niclab_window_offset(const struct niclab_bar_window *window, u32 port)
{
	return (size_t)window->row.stride * port * NICLAB_PAGE_BYTES;
}

/* niclab_control.c */
int niclab_control_init(struct niclab *nic);
void niclab_control_free(struct niclab *nic);
int niclab_control(struct niclab *nic, u32 operation, const void *body, u32 body_bytes, void *answer, u32 answer_bytes);
int niclab_lock(struct niclab *nic);
void niclab_mark_dead(struct niclab *nic);

/* niclab_event.c */
int niclab_event_init(struct niclab *nic);
void niclab_event_free(struct niclab *nic);
int niclab_event_fill(struct niclab *nic);
void niclab_event_interrupt(struct virtqueue *queue);
void niclab_event_attach(struct niclab_file *file);
void niclab_event_detach(struct niclab_file *file);
u64 niclab_event_take(struct niclab_file *file);

/* niclab_pci.c */
u32 niclab_pci_config_bytes(struct virtio_device *vdev);
void niclab_pci_find_doorbell(struct niclab *nic);

/* niclab_bar.c */
int niclab_bar_init(struct niclab *nic);
int niclab_bar_wait(struct niclab *nic);
bool niclab_bar_is_live(struct niclab *nic);
void niclab_bar_clear_port(struct niclab *nic, u32 port);

/* niclab_port.c */
int niclab_port_open(struct niclab_file *file, struct niclab_open_port *argument);
void niclab_port_close(struct niclab_file *file, struct list_head *regions);
void niclab_port_abandon(struct niclab_file *file, bool quiet, struct list_head *regions);
void niclab_memory_free(struct niclab *nic, void *memory, size_t bytes, bool quiet);
int niclab_port_request(struct niclab_file *file, u32 operation, void *request, u32 bytes);

/* niclab_region.c */
int niclab_region_register(struct niclab_file *file, struct niclab_registration *argument);
int niclab_region_deregister(struct niclab_file *file, u32 name);
void niclab_region_detach(struct niclab_file *file, bool quiet, struct list_head *regions);
void niclab_region_release(struct niclab *nic, struct list_head *regions);
struct niclab_region *niclab_region_alloc(u64 address, u64 bytes, bool writable);
void niclab_region_free(struct niclab *nic, struct niclab_region *region);

/* niclab_post.c */
int niclab_post_rules(struct niclab_file *file, void __user *user);
int niclab_post_group(struct niclab_file *file, void __user *user);

/* niclab_channel.c */
int niclab_channel_payload(struct niclab_file *file, void __user *user);
int niclab_channel_expose(struct niclab_file *file, void __user *user);

/* niclab_ring.c */
int niclab_ring_start(struct niclab *nic);
void niclab_ring_stop(struct niclab *nic, bool quiet);
void niclab_ring_free(struct niclab *nic);
void niclab_ring_interrupt(struct niclab *nic);

/* niclab_active.c */
int niclab_active_open(struct niclab_file *file, void __user *user);
int niclab_active_receive(struct niclab_file *file, void __user *user);
bool niclab_active_is_ready(struct niclab_file *file);
void niclab_active_close(struct niclab_file *file);

/* niclab_send.c */
int niclab_active_send(struct niclab_file *file, void __user *user);
int niclab_active_flush(struct niclab_file *file, void __user *user);

/* niclab_net.c */
int niclab_net_start(struct niclab *nic);
void niclab_net_stop(struct niclab *nic);
void niclab_net_carrier(struct niclab *nic);

/* niclab_spill.c */
int niclab_spill_open(struct niclab *nic);
void niclab_spill_free(struct niclab *nic, bool quiet);

/* niclab_firmware.c */
int niclab_firmware_start(struct niclab *nic);
int niclab_firmware_store(struct niclab *nic, const char *text);
ssize_t niclab_firmware_show(struct niclab *nic, char *text);

/* niclab_counters.c */
int niclab_counters_start(struct niclab *nic);
int niclab_counter_read(struct niclab *nic, const char *name, u64 *value);
void niclab_counters_free(struct niclab *nic);

/* niclab_map.c */
int niclab_mmap(struct file *filp, struct vm_area_struct *vma);
void niclab_map_remove(struct niclab *nic);

/* niclab_chr.c */
int niclab_chr_init(void);
void niclab_chr_exit(void);
int niclab_chr_reserve(struct niclab *nic);
void niclab_chr_unreserve(struct niclab *nic);
int niclab_chr_add(struct niclab *nic);
void niclab_chr_remove(struct niclab *nic);
extern const struct class niclab_class;

/* niclab_sysfs.c */
extern const struct attribute_group *niclab_groups[];

#endif /* NICLAB_H */
