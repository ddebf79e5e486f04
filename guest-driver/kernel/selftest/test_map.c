// SPDX-License-Identifier: GPL-2.0
/* Mappings: which files may map which pages, and when a mapping ends. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selftest.h"

#define PAGE NICLAB_PAGE_BYTES
#define RW (PROT_READ | PROT_WRITE)

static int try_map(int fd, uint64_t offset, size_t bytes, int protection, int flags)
{
	return nic_map(fd, offset, bytes, protection, flags, NULL);
}

static int open_with_port(struct niclab_open_port *opened)
{
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY, 0, opened), 0);
	return fd;
}

static void only_the_information_page_without_a_port(void)
{
	int fd = nic_open(0);

	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_INFO, PAGE, PROT_READ, MAP_SHARED), 0);
	EXPECT_ERRNO(try_map(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), PAGE, RW, MAP_SHARED), ENOTCONN);
	EXPECT_ERRNO(try_map(fd, nic_window(fd, NICLAB_WINDOW_COMPLETER), PAGE, RW, MAP_SHARED), ENOTCONN);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_DOORBELL, PAGE, PROT_WRITE, MAP_SHARED), ENOTCONN);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_RECEIVE, PAGE, PROT_READ, MAP_SHARED), ENOTCONN);
	close(fd);
}

static void the_information_page_contains_the_geometry(void)
{
	struct niclab_device_config config = nic_info();
	int fd = nic_open(0);
	const struct niclab_info_page *info = nic_map_or_fail(fd, NICLAB_MAP_INFO, PAGE, PROT_READ);

	EXPECT(info->magic == NICLAB_MAGIC);
	EXPECT_EQ(info->ports, config.ports);
	EXPECT_EQ(info->pages, config.bar_pages);
	EXPECT(info->windows >= 2 && info->windows <= NICLAB_MAX_WINDOWS);
	munmap((void *)info, PAGE);
	close(fd);
}

/* Checks one window against its entry in the table. */
static void expect_window(int fd, const struct niclab_window *row, uint64_t offset)
{
	bool writable = row->access == NICLAB_ACCESS_READ_WRITE;
	size_t bytes = row->pages * PAGE;
	char *at = nic_map_or_fail(fd, offset, bytes, writable ? RW : PROT_READ);

	EXPECT_EQ(touch(at + bytes - 8, writable), 0);
	munmap(at, bytes);
	if (!writable)
		EXPECT_ERRNO(try_map(fd, offset, bytes, RW, MAP_SHARED), EACCES);
	EXPECT_ERRNO(try_map(fd, offset, bytes + PAGE, PROT_READ, MAP_SHARED), EINVAL);
	EXPECT_ERRNO(try_map(fd, offset + bytes - PAGE, PAGE, PROT_READ, MAP_SHARED), 0);
	EXPECT_ERRNO(try_map(fd, offset + bytes, PAGE, PROT_READ, MAP_SHARED), EINVAL);
}

static void every_window_is_mapped_as_its_entry_requires(void)
{
	struct niclab_open_port opened;
	int fd = open_with_port(&opened);
	char *page = nic_map_or_fail(fd, NICLAB_MAP_INFO, PAGE, PROT_READ);
	const struct niclab_window *rows = (void *)(page + NICLAB_INFO_WINDOWS_OFFSET);
	uint32_t windows = ((struct niclab_info_page *)page)->windows;
	uint64_t offset = NICLAB_MAP_WINDOWS;

	for (uint32_t number = 0; number < windows; number++, offset += NICLAB_MAP_WINDOW_STRIDE)
		expect_window(fd, &rows[number], offset);
	EXPECT_ERRNO(try_map(fd, offset, PAGE, PROT_READ, MAP_SHARED), EINVAL);
	munmap(page, PAGE);
	close(fd);
}

static void no_other_offset_can_be_mapped(void)
{
	struct niclab_open_port opened;
	int fd = open_with_port(&opened);

	for (uint64_t offset = NICLAB_MAP_DOORBELL + PAGE; offset < NICLAB_MAP_RECEIVE; offset += PAGE)
		EXPECT_ERRNO(try_map(fd, offset, PAGE, PROT_READ, MAP_SHARED), EINVAL);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_RECEIVE + opened.receive_bytes, PAGE, PROT_READ, MAP_SHARED), EINVAL);
	EXPECT_ERRNO(try_map(fd, 1ULL << 40, PAGE, PROT_READ, MAP_SHARED), EINVAL);
	close(fd);
}

static void a_mapping_stays_within_its_window(void)
{
	struct niclab_open_port opened;
	int fd = open_with_port(&opened);
	void *info;

	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_INFO, 2 * PAGE, PROT_READ, MAP_SHARED), EINVAL);
	EXPECT_ERRNO(try_map(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), 2 * PAGE, RW, MAP_SHARED), EINVAL);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_DOORBELL, 2 * PAGE, PROT_WRITE, MAP_SHARED), EINVAL);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_RECEIVE, opened.receive_bytes, PROT_READ, MAP_SHARED), 0);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_RECEIVE, opened.receive_bytes + PAGE, PROT_READ, MAP_SHARED), EINVAL);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_RECEIVE + PAGE, opened.receive_bytes, PROT_READ, MAP_SHARED), EINVAL);
	info = nic_map_or_fail(fd, NICLAB_MAP_INFO, PAGE, PROT_READ);
	EXPECT(mremap(info, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	munmap(info, PAGE);
	close(fd);
}

static void read_only_window_cannot_become_writable(void)
{
	static const uint64_t offsets[] = { NICLAB_MAP_INFO, NICLAB_MAP_RECEIVE };
	struct niclab_open_port opened;
	int fd = open_with_port(&opened);

	for (int i = 0; i < 2; i++) {
		void *at = nic_map_or_fail(fd, offsets[i], PAGE, PROT_READ);

		EXPECT_ERRNO(try_map(fd, offsets[i], PAGE, RW, MAP_SHARED), EACCES);
		EXPECT_ERRNO(mprotect(at, PAGE, RW) ? errno : 0, EACCES);
		EXPECT_EQ(touch(at, false), 0);
		EXPECT_EQ(touch(at, true), SIGSEGV);
		munmap(at, PAGE);
	}
	close(fd);
}

static void private_and_executable_mappings_are_refused(void)
{
	struct niclab_open_port opened;
	int fd = open_with_port(&opened);
	void *at = nic_map_or_fail(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), PAGE, RW);

	EXPECT_ERRNO(try_map(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), PAGE, RW, MAP_PRIVATE), EINVAL);
	EXPECT_ERRNO(try_map(fd, NICLAB_MAP_RECEIVE, PAGE, PROT_READ, MAP_PRIVATE), EINVAL);
	EXPECT_ERRNO(try_map(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), PAGE, PROT_READ | PROT_EXEC, MAP_SHARED),
		     EACCES);
	EXPECT_ERRNO(mprotect(at, PAGE, PROT_READ | PROT_EXEC) ? errno : 0, EACCES);
	munmap(at, PAGE);
	close(fd);
}

static void every_window_can_be_accessed(void)
{
	struct niclab_open_port opened;
	int fd = open_with_port(&opened);
	char *receive = nic_map_or_fail(fd, NICLAB_MAP_RECEIVE, opened.receive_bytes, PROT_READ);
	void *requester = nic_map_or_fail(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), PAGE, RW);
	void *completer = nic_map_or_fail(fd, nic_window(fd, NICLAB_WINDOW_COMPLETER), PAGE, RW);
	volatile uint16_t *doorbell = nic_map_or_fail(fd, NICLAB_MAP_DOORBELL, PAGE, PROT_WRITE);
	long long doorbells = nic_attribute("statistics/doorbells");

	EXPECT_EQ(touch(requester, true), 0);
	EXPECT_EQ(touch(completer, true), 0);
	for (uint64_t at = 0; at < opened.receive_bytes; at += PAGE)
		EXPECT_EQ(touch(receive + at, false), 0);
	*doorbell = NICLAB_QUEUE_DOORBELL;
	for (int waited_ms = 0; waited_ms < TIMEOUT_MS; waited_ms++) {
		if (nic_attribute("statistics/doorbells") != doorbells)
			break;
		usleep(1000);
	}
	EXPECT_EQ(nic_attribute("statistics/doorbells"), doorbells + 1);
	close(fd);
	/* The mappings hold the file. */
	EXPECT_EQ(touch(requester, true), 0);
	munmap(receive, opened.receive_bytes);
	munmap(requester, PAGE);
	munmap(completer, PAGE);
	munmap((void *)doorbell, PAGE);
}

static void ports_do_not_see_each_others_windows(void)
{
	volatile uint64_t *mine, *theirs;
	struct niclab_open_port opened;
	int first, second;

	if (nic_info().ports < 2) {
		tap_skip("this card has one port");
		return;
	}
	first = open_with_port(&opened);
	second = open_with_port(&opened);
	mine = nic_map_or_fail(first, nic_window(first, NICLAB_WINDOW_COMPLETER), PAGE, RW);
	theirs = nic_map_or_fail(second, nic_window(second, NICLAB_WINDOW_COMPLETER), PAGE, RW);
	/* The last words of the page are unused. */
	mine[PAGE / 8 - 1] = 0x1111;
	theirs[PAGE / 8 - 1] = 0x2222;
	EXPECT_EQ(mine[PAGE / 8 - 1], 0x1111);
	EXPECT_EQ(theirs[PAGE / 8 - 1], 0x2222);
	munmap((void *)mine, PAGE);
	munmap((void *)theirs, PAGE);
	close(first);
	close(second);
}

static bool is_zero(const volatile uint64_t *words, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		if (words[i])
			return false;
	return true;
}

static void closing_removes_the_mappings(void)
{
	struct niclab_open_port opened;
	int fd = open_with_port(&opened);
	char *receive = nic_map_or_fail(fd, NICLAB_MAP_RECEIVE, opened.receive_bytes, PROT_READ);
	char *requester = nic_map_or_fail(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), PAGE, RW);
	void *info = nic_map_or_fail(fd, NICLAB_MAP_INFO, PAGE, PROT_READ);
	void *again;

	memset(requester, 0x5a, PAGE / 2);
	EXPECT_EQ(touch(receive, false), 0);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_CLOSE_PORT, NULL), 0);
	EXPECT_EQ(touch(requester, true), SIGBUS);
	EXPECT_EQ(touch(receive, false), SIGBUS);
	/* A page that was never accessed before faults too. */
	EXPECT_EQ(touch(receive + PAGE, false), SIGBUS);
	EXPECT_EQ(touch(info, false), 0);

	/* Opening the same port again does not revive the old mapping, and reveals no data of the last owner. */
	EXPECT_ERRNO(nic_open_port(fd, opened.port, 0, NULL), 0);
	EXPECT_EQ(touch(requester, true), SIGBUS);
	again = nic_map_or_fail(fd, nic_window(fd, NICLAB_WINDOW_REQUESTER), PAGE, PROT_READ);
	EXPECT(is_zero(again, PAGE));
	munmap(again, PAGE);
	munmap(receive, opened.receive_bytes);
	munmap(requester, PAGE);
	munmap(info, PAGE);
	close(fd);
}

struct inherited {
	int fd;
	void *requester;
};

static int child_touches(void *argument)
{
	struct inherited *inherited = argument;

	return touch(inherited->requester, true) == SIGSEGV ? 0 : 1;
}

static void a_child_inherits_the_file_but_no_mapping(void)
{
	struct niclab_open_port opened;
	struct inherited inherited;

	inherited.fd = open_with_port(&opened);
	inherited.requester =
		nic_map_or_fail(inherited.fd, nic_window(inherited.fd, NICLAB_WINDOW_REQUESTER), PAGE, RW);
	EXPECT_EQ(child_wait(child_start(child_touches, &inherited)), 0);
	/* The child's exit has not closed the port. */
	EXPECT_EQ(touch(inherited.requester, true), 0);
	EXPECT_ERRNO(nic_open_port(inherited.fd, NICLAB_PORT_ANY, 0, NULL), EBUSY);
	munmap(inherited.requester, PAGE);
	close(inherited.fd);
}

void tests_of_maps(void)
{
	tap_run("only the information page can be mapped without a port", only_the_information_page_without_a_port);
	tap_run("the information page contains the geometry", the_information_page_contains_the_geometry);
	tap_run_with_port("every window is mapped as its table entry requires",
			  every_window_is_mapped_as_its_entry_requires);
	tap_run_with_port("no other offset can be mapped", no_other_offset_can_be_mapped);
	tap_run_with_port("a mapping stays within its window", a_mapping_stays_within_its_window);
	tap_run_with_port("a read-only window cannot become writable", read_only_window_cannot_become_writable);
	tap_run_with_port("private and executable mappings are refused", private_and_executable_mappings_are_refused);
	tap_run_with_port("every window can be accessed", every_window_can_be_accessed);
	tap_run_with_port("ports do not see each other's windows", ports_do_not_see_each_others_windows);
	tap_run_with_port("closing a port removes its mappings", closing_removes_the_mappings);
	tap_run_with_port("a child inherits the file but no mapping", a_child_inherits_the_file_but_no_mapping);
}
