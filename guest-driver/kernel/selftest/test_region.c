// SPDX-License-Identifier: GPL-2.0
/* Regions: what may be registered, that the device reaches every byte, and that every end of a region unpins it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "selftest.h"

#define PAGE NICLAB_PAGE_BYTES
#define RW (PROT_READ | PROT_WRITE)
/* The unprivileged user of busybox and Debian with the highest number. */
#define UNPRIVILEGED_USER 65534

/* The content of a kernel file, valid until the next call. */
static const char *kernel_text(const char *path)
{
	static char text[32 * 1024];
	FILE *file = fopen(path, "re");

	text[file ? fread(text, 1, sizeof(text) - 1, file) : 0] = '\0';
	if (file)
		fclose(file);
	return text;
}

/* The number after a name in such a text. */
static long long kernel_count(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

/* Pages that are pinned in the whole guest now. */
static long long pinned_pages(void)
{
	const char *text;

	/* Each processor keeps small changes to itself. Reading this file, which only root may, sums them up. */
	kernel_text("/proc/sys/vm/stat_refresh");
	text = kernel_text("/proc/vmstat");
	return kernel_count(text, "\nnr_foll_pin_acquired ") - kernel_count(text, "\nnr_foll_pin_released ");
}

/* Pinned pages that are charged to this process. */
static long long own_pinned_pages(void)
{
	return kernel_count(kernel_text("/proc/self/status"), "\nVmPin:") * 1024 / PAGE;
}

static char *memory(size_t pages)
{
	void *at = mmap(NULL, pages * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		printf("Bail out! no memory\n");
		exit(2);
	}
	return at;
}

static int enlist(int fd, const void *address, uint64_t bytes, uint32_t *region)
{
	struct niclab_registration argument = { .address = (uintptr_t)address, .bytes = bytes };
	int error = nic_ioctl(fd, NICLAB_IOCTL_REGISTER, &argument);

	if (region)
		*region = argument.region;
	return error;
}

static int delist(int fd, uint32_t region)
{
	struct niclab_registration argument = { .region = region };

	return nic_ioctl(fd, NICLAB_IOCTL_DEREGISTER, &argument);
}

static int open_with_port(void)
{
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY, 0, NULL), 0);
	return fd;
}

static void other_cards_have_no_regions(void)
{
	long long before = pinned_pages();
	char *page = memory(1);
	int fd = open_with_port();

	EXPECT_ERRNO(enlist(fd, page, PAGE, NULL), EOPNOTSUPP);
	EXPECT_ERRNO(delist(fd, 0), ENOENT);
	EXPECT_EQ(pinned_pages(), before);
	munmap(page, PAGE);
	close(fd);
}

static void registering_pins_and_deregistering_unpins(void)
{
	long long before = pinned_pages();
	uint32_t first, second;
	char *pages = memory(16);
	int fd = open_with_port();

	EXPECT_ERRNO(enlist(fd, pages, 16 * PAGE, &first), 0);
	EXPECT_EQ(pinned_pages() - before, 16);
	EXPECT_EQ(own_pinned_pages(), 16);
	/* Two bytes on two pages. */
	EXPECT_ERRNO(enlist(fd, pages + PAGE - 1, 2, &second), 0);
	EXPECT_EQ(pinned_pages() - before, 18);
	EXPECT(first != second);
	EXPECT_ERRNO(delist(fd, first), 0);
	EXPECT_EQ(pinned_pages() - before, 2);
	EXPECT_ERRNO(delist(fd, first), ENOENT);
	EXPECT_ERRNO(delist(fd, second), 0);
	EXPECT_EQ(pinned_pages(), before);
	EXPECT_EQ(own_pinned_pages(), 0);
	close(fd);
	munmap(pages, 16 * PAGE);
}

static void impossible_regions_are_refused_and_pin_nothing(void)
{
	struct niclab_registration reserved = { .bytes = PAGE, .reserved = 1 }, *read_only;
	int fd = nic_open(0), with_port = open_with_port();
	void *requester = nic_map_or_fail(with_port, nic_window(with_port, NICLAB_WINDOW_REQUESTER), PAGE, RW);
	char *pages = memory(4);
	long long before;

	memset(pages, 1, 4 * PAGE);
	mprotect(pages + PAGE, PAGE, PROT_READ);
	munmap(pages + 3 * PAGE, PAGE);
	before = pinned_pages();
	EXPECT_ERRNO(enlist(fd, pages, PAGE, NULL), ENOTCONN);
	EXPECT_ERRNO(delist(fd, 0), ENOTCONN);
	reserved.address = (uintptr_t)pages;
	EXPECT_ERRNO(nic_ioctl(with_port, NICLAB_IOCTL_REGISTER, &reserved), EINVAL);
	EXPECT_ERRNO(nic_ioctl(with_port, NICLAB_IOCTL_DEREGISTER, &reserved), EINVAL);
	EXPECT_ERRNO(nic_ioctl(with_port, NICLAB_IOCTL_REGISTER, (void *)8), EFAULT);
	EXPECT_ERRNO(nic_ioctl(with_port, NICLAB_IOCTL_DEREGISTER, (void *)8), EFAULT);
	EXPECT_ERRNO(enlist(with_port, pages, 0, NULL), EINVAL);
	EXPECT_ERRNO(enlist(with_port, pages, NICLAB_MAX_REGISTRATION_BYTES + 1, NULL), EINVAL);
	EXPECT_ERRNO(enlist(with_port, pages, UINT64_MAX, NULL), EINVAL);
	EXPECT_ERRNO(enlist(with_port, (void *)(UINTPTR_MAX - 1), 4, NULL), EFAULT);
	EXPECT_ERRNO(enlist(with_port, (void *)8, 8, NULL), EFAULT);
	/* An address in the kernel's half. */
	EXPECT_ERRNO(enlist(with_port, (void *)(UINTPTR_MAX << 47), PAGE, NULL), EFAULT);
	EXPECT_ERRNO(enlist(with_port, pages, 2 * PAGE, NULL), EFAULT);
	EXPECT_ERRNO(enlist(with_port, pages + 2 * PAGE, PAGE + 1, NULL), EFAULT);
	/* Pages of the device cannot be registered. */
	EXPECT_ERRNO(enlist(with_port, requester, PAGE, NULL), EFAULT);
	EXPECT_ERRNO(delist(with_port, UINT32_MAX), ENOENT);
	/* A region whose name cannot be returned must not stay. */
	reserved.reserved = 0;
	read_only = read_only_copy(&reserved, sizeof(reserved));
	EXPECT_ERRNO(nic_ioctl(with_port, NICLAB_IOCTL_REGISTER, read_only), EFAULT);
	EXPECT_EQ(pinned_pages(), before);
	EXPECT_EQ(own_pinned_pages(), 0);
	munmap(requester, PAGE);
	munmap(pages, 3 * PAGE);
	close(fd);
	close(with_port);
}

static int pin_beyond_the_limit(void *pages)
{
	struct rlimit limit = { 8 * PAGE, 8 * PAGE };
	uint32_t region;
	int fd = nic_open(0);

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(UNPRIVILEGED_USER) || setuid(UNPRIVILEGED_USER))
		return 100;
	if (nic_open_port(fd, NICLAB_PORT_ANY, 0, NULL))
		return 101;
	if (enlist(fd, pages, 9 * PAGE, NULL) != ENOMEM)
		return 1;
	if (enlist(fd, pages, 8 * PAGE, &region) || enlist(fd, pages, 1, NULL) != ENOMEM)
		return 2;
	if (delist(fd, region) || enlist(fd, pages, 1, NULL))
		return 3;
	return 0;
}

static void the_limit_of_locked_memory_holds(void)
{
	char *pages = memory(9);

	if (geteuid()) {
		tap_skip("only root can become another user");
		return;
	}
	EXPECT_EQ(child_wait(child_start(pin_beyond_the_limit, pages)), 0);
	munmap(pages, 9 * PAGE);
}

static void closing_unpins(void)
{
	long long before = pinned_pages();
	char *pages = memory(8);
	int fd = open_with_port();

	EXPECT_ERRNO(enlist(fd, pages, 8 * PAGE, NULL), 0);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_CLOSE_PORT, NULL), 0);
	EXPECT_EQ(pinned_pages(), before);
	EXPECT_ERRNO(enlist(fd, pages, PAGE, NULL), ENOTCONN);
	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY, 0, NULL), 0);
	EXPECT_ERRNO(enlist(fd, pages, 8 * PAGE, NULL), 0);
	EXPECT_ERRNO(enlist(fd, pages, 8 * PAGE, NULL), 0);
	EXPECT_EQ(pinned_pages() - before, 16);
	close(fd);
	EXPECT_EQ(pinned_pages(), before);
	EXPECT_EQ(own_pinned_pages(), 0);
	munmap(pages, 8 * PAGE);
}

static void regions_run_out_and_are_reusable(void)
{
	long long before = pinned_pages();
	char *page = memory(1);
	uint32_t count[2] = { 0, 0 };
	int error = 0;

	for (int round = 0; round < 2; round++) {
		int fd = open_with_port();

		/* A region name has 16 bits for its number. */
		while (!(error = enlist(fd, page, PAGE, NULL)) && count[round] <= UINT16_MAX)
			count[round]++;
		EXPECT_ERRNO(error, ENOSPC);
		EXPECT_EQ(pinned_pages() - before, count[round]);
		close(fd);
		EXPECT_EQ(pinned_pages(), before);
	}
	EXPECT(count[0] > 0);
	EXPECT_EQ(count[1], count[0]);
	munmap(page, PAGE);
}

static int register_until_killed(void *ready)
{
	char *pages = memory(64);
	int fd = open_with_port();

	for (int i = 0; i < 4; i++)
		EXPECT_ERRNO(enlist(fd, pages, 64 * PAGE, NULL), 0);
	/* Memory that the program unmaps stays pinned until the region is closed. */
	munmap(pages, 64 * PAGE);
	if (write(*(int *)ready, "", 1) != 1)
		return 1;
	pause();
	return 1;
}

static void a_killed_process_leaves_nothing_pinned(void)
{
	long long before = pinned_pages();
	int ready[2], child;
	char byte;

	EXPECT_EQ(pipe(ready), 0);
	for (int i = 0; i < 10; i++) {
		child = child_start(register_until_killed, &ready[1]);
		EXPECT_EQ(read(ready[0], &byte, 1), 1);
		EXPECT_EQ(pinned_pages() - before, 256);
		kill(child, SIGKILL);
		EXPECT_EQ(child_wait(child), 128 + SIGKILL);
		EXPECT_EQ(pinned_pages(), before);
	}
	close(ready[0]);
	close(ready[1]);
}

static int register_for_ever(void *unused)
{
	char *pages = memory(512);
	uint32_t region;
	int fd = open_with_port();

	(void)unused;
	madvise(pages, 512 * PAGE, MADV_NOHUGEPAGE);
	while (!enlist(fd, pages, 512 * PAGE, &region))
		delist(fd, region);
	return 1;
}

/* This includes the middle of pinning, and of the requests after it. */
static void a_process_can_be_killed_while_it_registers(void)
{
	long long before = pinned_pages();
	int child;

	for (int i = 0; i < 30; i++) {
		child = child_start(register_for_ever, NULL);
		usleep(1997 * i % 30000);
		kill(child, SIGKILL);
		EXPECT_EQ(child_wait(child), 128 + SIGKILL);
		EXPECT_EQ(pinned_pages(), before);
	}
}

/* A port that puts into its own portal 0. */
struct loop {
	int fd;
	struct niclab_open_port opened;
	volatile uint64_t *requester;
	volatile const uint64_t *info;
	volatile uint16_t *doorbell;
	volatile const char *receive;
	uint32_t launched, events;
};

static void loop_open(struct loop *loop)
{
	memset(loop, 0, sizeof(*loop));
	loop->fd = nic_open(0);
	EXPECT_ERRNO(nic_open_port(loop->fd, NICLAB_PORT_ANY, 64, &loop->opened), 0);
	loop->requester = nic_map_or_fail(loop->fd, nic_window(loop->fd, NICLAB_WINDOW_REQUESTER), PAGE, RW);
	loop->info = nic_map_or_fail(loop->fd, NICLAB_MAP_INFO, PAGE, PROT_READ);
	loop->doorbell = nic_map_or_fail(loop->fd, NICLAB_MAP_DOORBELL, PAGE, PROT_WRITE);
	loop->receive = nic_map_or_fail(loop->fd, NICLAB_MAP_RECEIVE, loop->opened.receive_bytes, PROT_READ);
}

static void loop_close(struct loop *loop)
{
	munmap((void *)loop->requester, PAGE);
	munmap((void *)loop->doorbell, PAGE);
	munmap((void *)loop->info, PAGE);
	munmap((void *)loop->receive, loop->opened.receive_bytes);
	close(loop->fd);
}

static void loop_launch(struct loop *loop, uint64_t command, const uint64_t words[10])
{
	uint32_t slot = loop->launched++ % NICLAB_SLOTS;
	volatile uint64_t *at = loop->requester + slot * NICLAB_SLOT_WORDS;

	for (int i = 0; i < 10; i++)
		at[i] = words[i];
	__sync_synchronize();
	at[NICLAB_SLOT_LAUNCH_WORD] = command | (uint64_t)loop->launched << NICLAB_LAUNCH_SEQUENCE_SHIFT;
	__sync_synchronize();
	if (loop->info[NICLAB_INFO_DOORBELL_OFFSET / 8] != NICLAB_DOORBELL_SPARED)
		*loop->doorbell = NICLAB_QUEUE_DOORBELL;
}

/* Kind and result of the next event, bits 0..16 of its status; -1 if there is none. */
static int loop_event(struct loop *loop)
{
	uint32_t index = loop->events++ % loop->opened.slices;
	volatile const uint64_t *event = (volatile const uint64_t *)(loop->receive + NICLAB_RECEIVE_SLICES_OFFSET +
								     index * NICLAB_SLICE_BYTES);

	for (int waited_ms = 0; waited_ms < TIMEOUT_MS; waited_ms++) {
		uint64_t status = event[NICLAB_SLICE_STATUS_WORD];

		if (status >> NICLAB_SLICE_NUMBER_SHIFT == loop->events)
			return status & 0xffff;
		usleep(1000);
	}
	return -1;
}

/* Allocates memory whose pages are touched out of order, so that adjacent pages are rarely physically adjacent. */
static char *scattered_memory(size_t pages)
{
	char *at = memory(pages);

	madvise(at, pages * PAGE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < pages; i++)
		at[i * 7919 % pages * PAGE] = 1;
	return at;
}

static void every_byte_of_a_scattered_region_is_reached(void)
{
	const size_t pages = 1024, bytes = 700 * 1000;
	const uint64_t node = nic_info().node, any = (uint64_t)NICLAB_ANY_NODE << 48 | (uint64_t)NICLAB_ANY_PORT << 40;
	char *at = scattered_memory(pages);
	uint64_t own;
	struct loop loop;
	uint32_t region;

	loop_open(&loop);
	own = node << 48 | (uint64_t)loop.opened.port << 40;
	for (size_t i = 0; i < pages * PAGE; i++)
		at[i] = i % 251;
	/* From the middle of a page to the middle of another. */
	EXPECT_ERRNO(enlist(loop.fd, at + 100, pages * PAGE - 200, &region), 0);
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t from = 3 + i * bytes, to = pages * PAGE / 2 + 5 + i * bytes;

		loop_launch(&loop, NICLAB_COMMAND_APPEND | NICLAB_ENTRY_PUT | NICLAB_ENTRY_NO_UNLINK_EVENT,
			    (uint64_t[10]){ i, 0, 0, region | any, to, bytes, 1 });
		loop_launch(&loop, NICLAB_COMMAND_PUT, (uint64_t[10]){ i, 0, 0, region | own, from, bytes });
		EXPECT_EQ(loop_event(&loop), NICLAB_EVENT_PUT);
		EXPECT(!memcmp(at + 100 + from, at + 100 + to, bytes));
	}
	EXPECT_EQ(at[99], 99);
	EXPECT_EQ((unsigned char)at[pages * PAGE - 100], (pages * PAGE - 100) % 251);

	/* A closed region is out of reach, and the program gets an event that reports that. */
	EXPECT_ERRNO(delist(loop.fd, region), 0);
	loop_launch(&loop, NICLAB_COMMAND_PUT, (uint64_t[10]){ 0, 0, 0, region | own, 0, 8 });
	EXPECT_EQ(loop_event(&loop), NICLAB_EVENT_REFUSED | NICLAB_RESULT_BAD_REGION << NICLAB_EVENT_RESULT_SHIFT);
	loop_close(&loop);
	munmap(at, pages * PAGE);
}

static void unbinding_unpins(void)
{
	long long before = pinned_pages();
	char *pages = memory(8);
	int fd;

	if (access(NIC_BUS "unbind", W_OK)) {
		tap_skip("only root can unbind a device");
		return;
	}
	fd = open_with_port();
	EXPECT_ERRNO(enlist(fd, pages, 8 * PAGE, NULL), 0);
	EXPECT_ERRNO(nic_rebind(), 0);
	EXPECT_EQ(pinned_pages(), before);
	EXPECT_EQ(own_pinned_pages(), 0);
	EXPECT_ERRNO(enlist(fd, pages, 8 * PAGE, NULL), ENODEV);
	close(fd);
	fd = open_with_port();
	EXPECT_ERRNO(enlist(fd, pages, 8 * PAGE, NULL), 0);
	close(fd);
	munmap(pages, 8 * PAGE);
}

/* Pages that were registered with the device before it died, and pages pinned before that. */
static long long doomed_pages, pinned_before_doom;

void register_with_the_doomed(int fd)
{
	if (!nic_has(NICLAB_FEATURE_REGIONS))
		return;
	pinned_before_doom = pinned_pages();
	doomed_pages = 8;
	EXPECT_ERRNO(enlist(fd, memory(doomed_pages), doomed_pages * PAGE, NULL), 0);
}

/* Runs after the file was closed. */
void death_leaves_memory_pinned(void)
{
	if (doomed_pages)
		EXPECT_EQ(pinned_pages() - pinned_before_doom, doomed_pages);
	else
		tap_skip("this card has no regions");
}

int hold_region(void)
{
	const uint64_t any = (uint64_t)NICLAB_ANY_NODE << 48 | (uint64_t)NICLAB_ANY_PORT << 40;
	char *pages = memory(64);
	uint32_t region = 0;
	struct loop loop;

	loop_open(&loop);
	EXPECT_ERRNO(enlist(loop.fd, pages, 64 * PAGE, &region), 0);
	loop_launch(&loop, NICLAB_COMMAND_APPEND | NICLAB_ENTRY_PUT,
		    (uint64_t[10]){ 0, 0, 0, region | any, 0, 64 * PAGE, 1 });
	printf("holding %lld pages\n", own_pinned_pages());
	fflush(stdout);
	pause();
	return 1;
}

int test_of_puts(void)
{
	tap_run("every byte of a scattered region is reached", every_byte_of_a_scattered_region_is_reached);
	return tap_finish();
}

void tests_of_regions(void)
{
	if (!nic_has(NICLAB_FEATURE_REGIONS)) {
		tap_run_with_port("other cards have no regions", other_cards_have_no_regions);
		return;
	}
	tap_run("registering pins, and deregistering unpins", registering_pins_and_deregistering_unpins);
	tap_run("impossible regions are refused and pin nothing", impossible_regions_are_refused_and_pin_nothing);
	tap_run("the limit of locked memory holds", the_limit_of_locked_memory_holds);
	tap_run("closing a port or a file unpins", closing_unpins);
	tap_run("regions run out and are reusable after a close", regions_run_out_and_are_reusable);
	tap_run("a killed process leaves nothing pinned", a_killed_process_leaves_nothing_pinned);
	tap_run("a process can be killed while it registers", a_process_can_be_killed_while_it_registers);
	if (nic_has(NICLAB_FEATURE_LISTS))
		tap_run("every byte of a scattered region is reached", every_byte_of_a_scattered_region_is_reached);
	tap_run("unbinding the driver unpins", unbinding_unpins);
}
