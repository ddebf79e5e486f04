// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts: a port that sends to itself; poll and read.
 *
 * If the device refuses a route to its own node, these tests are skipped.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selftest.h"

#define PAGE NICLAB_PAGE_BYTES

/* A port that may send to itself. */
struct loop {
	int fd;
	struct niclab_open_port opened;
	volatile uint64_t *requester;
	volatile uint64_t *completer;
	volatile const uint64_t *info;
	volatile uint16_t *doorbell;
	volatile const char *receive;
	uint32_t launched;
};

static bool loop_open(struct loop *loop, int flags)
{
	uint32_t node = nic_info().node;
	int error;

	memset(loop, 0, sizeof(*loop));
	loop->fd = nic_open(flags);
	EXPECT_ERRNO(nic_open_port(loop->fd, NICLAB_PORT_ANY, 16, &loop->opened), 0);
	error = nic_peer(loop->fd, NICLAB_IOCTL_ROUTE, node, loop->opened.port, 0);
	if (error) {
		tap_skip("the device does not route to its own node: %s", errno_name(error));
		close(loop->fd);
		return false;
	}
	EXPECT_ERRNO(nic_peer(loop->fd, NICLAB_IOCTL_AUTHORIZE, node, loop->opened.port, 16), 0);
	loop->requester =
		nic_map_or_fail(loop->fd, nic_window(loop->fd, NICLAB_WINDOW_REQUESTER), PAGE, PROT_READ | PROT_WRITE);
	loop->info = nic_map_or_fail(loop->fd, NICLAB_MAP_INFO, PAGE, PROT_READ);
	loop->completer =
		nic_map_or_fail(loop->fd, nic_window(loop->fd, NICLAB_WINDOW_COMPLETER), PAGE, PROT_READ | PROT_WRITE);
	loop->doorbell = nic_map_or_fail(loop->fd, NICLAB_MAP_DOORBELL, PAGE, PROT_WRITE);
	loop->receive = nic_map_or_fail(loop->fd, NICLAB_MAP_RECEIVE, loop->opened.receive_bytes, PROT_READ);
	return true;
}

static void loop_close(struct loop *loop)
{
	munmap((void *)loop->requester, PAGE);
	munmap((void *)loop->completer, PAGE);
	munmap((void *)loop->doorbell, PAGE);
	munmap((void *)loop->info, PAGE);
	munmap((void *)loop->receive, loop->opened.receive_bytes);
	close(loop->fd);
}

/* Sends a packet that has only a tag to the port itself. */
static void loop_send(struct loop *loop, uint64_t flags)
{
	uint32_t slot = loop->launched++ % NICLAB_SLOTS;
	volatile uint64_t *words = loop->requester + slot * NICLAB_SLOT_WORDS;
	uint64_t code = flags | (uint64_t)NICLAB_PAYLOAD_WORDS << NICLAB_CODE_LENGTH_SHIFT;

	words[NICLAB_SLOT_TAG_WORD] = 0x7a6;
	words[NICLAB_SLOT_TAG_WORD + 1] = loop->launched;
	__sync_synchronize();
	words[NICLAB_SLOT_LAUNCH_WORD] = code | (uint64_t)loop->launched << NICLAB_LAUNCH_SEQUENCE_SHIFT;
	__sync_synchronize();
	if (loop->info[NICLAB_INFO_DOORBELL_OFFSET / 8] != NICLAB_DOORBELL_SPARED)
		*loop->doorbell = NICLAB_QUEUE_DOORBELL;
}

/* Waits for the slice of this number and checks its tag. */
static bool loop_wait_slice(struct loop *loop, uint32_t number)
{
	uint32_t index = (number - 1) % loop->opened.slices;
	volatile const uint64_t *slice = (volatile const uint64_t *)(loop->receive + NICLAB_RECEIVE_SLICES_OFFSET +
								     index * NICLAB_SLICE_BYTES);

	for (int waited_ms = 0; waited_ms < TIMEOUT_MS; waited_ms++) {
		if (slice[NICLAB_SLICE_STATUS_WORD] >> NICLAB_SLICE_NUMBER_SHIFT == number)
			return slice[NICLAB_SLICE_TAG_WORD] == 0x7a6 && slice[NICLAB_SLICE_TAG_WORD + 1] == number;
		usleep(1000);
	}
	return false;
}

static int64_t read_count(int fd)
{
	uint64_t count = 0;

	return read(fd, &count, sizeof(count)) == sizeof(count) ? (int64_t)count : -errno;
}

static void unflagged_messages_do_not_interrupt(void)
{
	long long before = nic_attribute("interrupts"), line = nic_line_interrupts();
	struct loop loop;

	if (!loop_open(&loop, O_NONBLOCK))
		return;
	EXPECT_EQ(nic_poll(loop.fd, 0), 0);
	EXPECT_EQ(read_count(loop.fd), -EAGAIN);
	for (uint32_t i = 1; i <= 8; i++) {
		loop_send(&loop, 0);
		EXPECT(loop_wait_slice(&loop, i));
	}
	EXPECT_EQ(nic_poll(loop.fd, 0), 0);
	EXPECT_EQ(read_count(loop.fd), -EAGAIN);
	/* Requests do not interrupt either. */
	EXPECT_ERRNO(nic_ioctl(loop.fd, NICLAB_IOCTL_CHECK, NULL), 0);
	EXPECT_EQ(nic_attribute("interrupts"), before);
	EXPECT_EQ(nic_line_interrupts(), line);
	loop_close(&loop);
}

static void flagged_messages_interrupt_one_by_one(void)
{
	long long interrupts = nic_attribute("interrupts"), causes = nic_attribute("causes/message");
	long long line = nic_line_interrupts();
	struct loop loop;

	if (!loop_open(&loop, O_NONBLOCK))
		return;
	for (uint32_t i = 1; i <= 10; i++) {
		loop_send(&loop, NICLAB_CODE_INTERRUPT);
		EXPECT_EQ(nic_poll(loop.fd, TIMEOUT_MS), POLLIN);
		EXPECT(loop_wait_slice(&loop, i));
		EXPECT_EQ(read_count(loop.fd), 1);
		EXPECT_EQ(nic_poll(loop.fd, 0), 0);
		loop.completer[NICLAB_COMPLETER_RELEASED_OFFSET / 8] = i;
	}
	EXPECT_EQ(nic_attribute("interrupts") - interrupts, 10);
	EXPECT_EQ(nic_attribute("causes/message") - causes, 10);
	if (line >= 0)
		EXPECT_EQ(nic_line_interrupts() - line, 10);
	loop_close(&loop);
}

static void counts_add_up_until_read(void)
{
	struct loop loop;
	int64_t sum = 0;

	if (!loop_open(&loop, 0))
		return;
	for (uint32_t i = 1; i <= 12; i++)
		loop_send(&loop, i % 3 ? 0 : NICLAB_CODE_INTERRUPT);
	while (sum < 4 && nic_poll(loop.fd, TIMEOUT_MS) == POLLIN)
		sum += read_count(loop.fd);
	EXPECT_EQ(sum, 4);
	EXPECT_EQ(nic_poll(loop.fd, 20), 0);
	loop_close(&loop);
}

static void an_armed_slice_interrupts_once(void)
{
	struct loop loop;

	if (!loop_open(&loop, O_NONBLOCK))
		return;
	loop.completer[NICLAB_COMPLETER_ARMED_OFFSET / 8] = 2;
	loop_send(&loop, 0);
	EXPECT(loop_wait_slice(&loop, 1));
	EXPECT_EQ(nic_poll(loop.fd, 20), 0);
	loop_send(&loop, 0);
	EXPECT_EQ(nic_poll(loop.fd, TIMEOUT_MS), POLLIN);
	EXPECT_EQ(read_count(loop.fd), 1);
	loop_send(&loop, 0);
	EXPECT(loop_wait_slice(&loop, 3));
	EXPECT_EQ(nic_poll(loop.fd, 20), 0);
	loop_close(&loop);
}

static void interrupts_do_not_reach_the_next_owner(void)
{
	struct loop loop;
	uint32_t port;
	int fd;

	if (!loop_open(&loop, O_NONBLOCK))
		return;
	loop_send(&loop, NICLAB_CODE_INTERRUPT);
	EXPECT(loop_wait_slice(&loop, 1));
	port = loop.opened.port;
	loop_close(&loop);
	fd = nic_open(O_NONBLOCK);
	EXPECT_ERRNO(nic_open_port(fd, port, 0, NULL), 0);
	EXPECT_EQ(nic_poll(fd, 20), 0);
	EXPECT_EQ(read_count(fd), -EAGAIN);
	close(fd);
}

static void short_reads_are_refused(void)
{
	int fd = nic_open(O_NONBLOCK);
	uint32_t half;

	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY, 0, NULL), 0);
	EXPECT_ERRNO(read(fd, &half, sizeof(half)) < 0 ? errno : 0, EINVAL);
	EXPECT_ERRNO(write(fd, &half, sizeof(half)) < 0 ? errno : 0, EINVAL);
	close(fd);
}

static void *reader(void *argument)
{
	return (void *)(intptr_t)read_count(*(int *)argument);
}

static void closing_wakes_a_reader(void)
{
	int fd = nic_open(0);
	pthread_t thread;
	void *result = NULL;

	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY, 0, NULL), 0);
	EXPECT_EQ(pthread_create(&thread, NULL, reader, &fd), 0);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_CLOSE_PORT, NULL), 0);
	EXPECT_EQ(pthread_join(thread, &result), 0);
	EXPECT_EQ((intptr_t)result, -ENOTCONN);
	close(fd);
}

void tests_of_interrupts(void)
{
	tap_run_with_port("messages without the flag raise no interrupt", unflagged_messages_do_not_interrupt);
	tap_run_with_port("flagged messages interrupt one by one", flagged_messages_interrupt_one_by_one);
	tap_run_with_port("interrupts add up until they are read", counts_add_up_until_read);
	tap_run_with_port("an armed slice interrupts once", an_armed_slice_interrupts_once);
	tap_run_with_port("interrupts do not reach the next owner", interrupts_do_not_reach_the_next_owner);
	tap_run_with_port("short reads and writes are refused", short_reads_are_refused);
	tap_run_with_port("closing a port wakes its reader", closing_wakes_a_reader);
}
