// SPDX-License-Identifier: GPL-2.0
/* Active ports: what the driver refuses, by which error, and that nothing is left of it. The second node does nothing. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selftest.h"

#define BUFFERS 4U
#define BUFFER_BYTES 4096U
#define PORT 2U

static uint8_t memory[BUFFERS * BUFFER_BYTES] __attribute__((aligned(4096)));

static struct niclab_active_open good_open(void)
{
	return (struct niclab_active_open){
		.port = PORT,
		.buffers = BUFFERS,
		.buffer_bytes = BUFFER_BYTES,
		.address = (uintptr_t)memory,
	};
}

static struct niclab_active_send good_send(void)
{
	struct niclab_device_config info = nic_info();

	return (struct niclab_active_send){
		.node = info.node ? 0 : 1,
		.port = PORT,
		.address = (uintptr_t)memory,
		.bytes = 100,
		.flags = NICLAB_ACTIVE_SEND_BLOCK,
		.timeout_ms = PATIENCE_MS,
	};
}

static int try_open(int fd, struct niclab_active_open argument)
{
	return nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_OPEN, &argument);
}

static int try_send(int fd, struct niclab_active_send argument)
{
	return nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_SEND, &argument);
}

static int try_receive(int fd, uint32_t buffer)
{
	struct niclab_active_receive argument = { .buffer = buffer };

	return nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_RECEIVE, &argument);
}

/* A port that cannot be is named, and one that can is there behind it. */
static void impossible_ports_are_refused(void)
{
	int fd = nic_open(0), other = nic_open(0);
	struct niclab_active_open argument = good_open();

	EXPECT_ERRNO(try_send(fd, good_send()), ENOTCONN);
	EXPECT_ERRNO(try_receive(fd, NICLAB_ACTIVE_NO_BUFFER), ENOTCONN);
	argument.buffers = 0;
	EXPECT_ERRNO(try_open(fd, argument), EINVAL);
	argument.buffers = NICLAB_ACTIVE_MAX_BUFFERS + 1;
	EXPECT_ERRNO(try_open(fd, argument), EINVAL);
	argument = good_open();
	argument.buffer_bytes = 0;
	EXPECT_ERRNO(try_open(fd, argument), EINVAL);
	argument = good_open();
	argument.reserved1 = 1;
	EXPECT_ERRNO(try_open(fd, argument), EINVAL);
	argument = good_open();
	argument.port = NICLAB_ACTIVE_PORTS;
	EXPECT_ERRNO(try_open(fd, argument), EINVAL);
	argument = good_open();
	argument.address = 0;
	EXPECT_ERRNO(try_open(fd, argument), EFAULT);
	argument.address = UINT64_MAX - 100;
	EXPECT_ERRNO(try_open(fd, argument), EFAULT);
	argument.address = (uintptr_t)read_only_copy(memory, BUFFER_BYTES);
	argument.buffers = 1;
	EXPECT_ERRNO(try_open(fd, argument), EFAULT);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_OPEN, NULL), EFAULT);
	EXPECT_ERRNO(try_open(fd, good_open()), 0);
	EXPECT_ERRNO(try_open(fd, good_open()), EBUSY);
	EXPECT_ERRNO(try_open(other, good_open()), EBUSY);
	close(fd);
	EXPECT_ERRNO(try_open(other, good_open()), 0);
	close(other);
}

/* A message that cannot be sent is named, and one that can leaves behind it. */
static void impossible_messages_are_refused(void)
{
	int fd = nic_open(0);
	struct niclab_active_send argument = good_send();
	char *pages;

	EXPECT_ERRNO(try_open(fd, good_open()), 0);
	argument.node = nic_info().node;
	EXPECT_ERRNO(try_send(fd, argument), EINVAL);
	argument.node = nic_info().nodes;
	EXPECT_ERRNO(try_send(fd, argument), EINVAL);
	argument = good_send();
	argument.port = NICLAB_ACTIVE_PORTS;
	EXPECT_ERRNO(try_send(fd, argument), EINVAL);
	argument = good_send();
	argument.flags = ~0U;
	EXPECT_ERRNO(try_send(fd, argument), EINVAL);
	argument = good_send();
	argument.bytes = NICLAB_ACTIVE_PORT_MAX_MESSAGE_BYTES + 1;
	EXPECT_ERRNO(try_send(fd, argument), EMSGSIZE);
	argument = good_send();
	argument.address = 0;
	EXPECT_ERRNO(try_send(fd, argument), EFAULT);
	argument.address = 0xffff888000000000;
	EXPECT_ERRNO(try_send(fd, argument), EFAULT);
	argument.address = UINT64_MAX - 10;
	EXPECT_ERRNO(try_send(fd, argument), EFAULT);
	/* Its end is not the program's. */
	pages = mmap(NULL, 2 * NICLAB_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(pages + NICLAB_PAGE_BYTES, NICLAB_PAGE_BYTES);
	argument.address = (uintptr_t)pages + NICLAB_PAGE_BYTES - 10;
	EXPECT_ERRNO(try_send(fd, argument), EFAULT);
	munmap(pages, NICLAB_PAGE_BYTES);
	argument = good_send();
	argument.bytes = 0;
	argument.address = 0;
	EXPECT_ERRNO(try_send(fd, argument), 0);
	EXPECT_ERRNO(try_send(fd, good_send()), 0);
	close(fd);
}

/* Buffers that the program was not lent are not taken back from it. */
static void foreign_buffers_are_refused(void)
{
	int fd = nic_open(0);

	EXPECT_ERRNO(try_open(fd, good_open()), 0);
	EXPECT_ERRNO(try_receive(fd, 0), EINVAL);
	EXPECT_ERRNO(try_receive(fd, BUFFERS), EINVAL);
	EXPECT_ERRNO(try_receive(fd, NICLAB_ACTIVE_NO_BUFFER - 1), EINVAL);
	EXPECT_ERRNO(try_receive(fd, NICLAB_ACTIVE_NO_BUFFER), EAGAIN);
	close(fd);
}

/* A driver that begins anew takes ports from their owners, which are told, and has all of its memory again. */
static void owners_of_ports_hear_of_a_driver_that_lets_go(void)
{
	int fd = nic_open(0), other;

	EXPECT_ERRNO(try_open(fd, good_open()), 0);
	EXPECT_EQ(nic_rebind(), 0);
	EXPECT_ERRNO(try_send(fd, good_send()), ENODEV);
	EXPECT_ERRNO(try_receive(fd, NICLAB_ACTIVE_NO_BUFFER), ENODEV);
	other = nic_open(0);
	EXPECT_ERRNO(try_open(other, good_open()), 0);
	EXPECT_ERRNO(try_send(other, good_send()), 0);
	close(other);
	close(fd);
}

/**
 * tests_of_active_ports - tests of a card with descriptor rings, in a cluster of two nodes.
 *
 * Return: what main() returns.
 */
int tests_of_active_ports(void)
{
	tap_run("impossible_ports_are_refused", impossible_ports_are_refused);
	tap_run("impossible_messages_are_refused", impossible_messages_are_refused);
	tap_run("foreign_buffers_are_refused", foreign_buffers_are_refused);
	tap_run("owners_of_ports_hear_of_a_driver_that_lets_go", owners_of_ports_hear_of_a_driver_that_lets_go);
	return tap_finish();
}
