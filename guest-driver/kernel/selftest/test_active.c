// SPDX-License-Identifier: GPL-2.0
/*
 * Active ports: what the driver refuses, with which error, and that it leaves nothing allocated. The second node stays
 * idle.
 */
#include <errno.h>
#include <stdio.h>
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
		.timeout_ms = TIMEOUT_MS,
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

/* An invalid port is refused with its error, and a valid one opens afterwards. */
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

/* An invalid message is refused with its error, and a valid one leaves afterwards. */
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
	/* The end of this message is not mapped. */
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

/* The program cannot return buffers that it does not have. */
static void foreign_buffers_are_refused(void)
{
	struct niclab_active_receive argument = { .buffer = NICLAB_ACTIVE_NO_BUFFER };
	int fd = nic_open(0);

	EXPECT_ERRNO(try_open(fd, good_open()), 0);
	EXPECT_ERRNO(try_receive(fd, 0), EINVAL);
	EXPECT_ERRNO(try_receive(fd, BUFFERS), EINVAL);
	EXPECT_ERRNO(try_receive(fd, NICLAB_ACTIVE_NO_BUFFER - 1), EINVAL);
	EXPECT_ERRNO(try_receive(fd, NICLAB_ACTIVE_NO_BUFFER), EAGAIN);
	argument.reserved = 1;
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_RECEIVE, &argument), EINVAL);
	close(fd);
}

/* A driver that is rebound closes ports; their owners get ENODEV, and all memory is free again. */
static void port_owners_get_enodev_when_the_driver_unbinds(void)
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

/* Sleeps in a receive until the driver releases the card. Returns the error. */
static int sleep_in_receive(void *file)
{
	struct niclab_active_receive argument = { .buffer = NICLAB_ACTIVE_NO_BUFFER, .timeout_ms = TIMEOUT_MS };

	return nic_ioctl(*(int *)file, NICLAB_IOCTL_ACTIVE_RECEIVE, &argument);
}

static void receive_wakes_at_its_timeout_and_when_the_driver_unbinds(void)
{
	struct niclab_active_open argument = good_open();
	struct niclab_active_receive brief = { .buffer = NICLAB_ACTIVE_NO_BUFFER, .timeout_ms = 20 };
	int fd = nic_open(0), child;

	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_OPEN, &argument), 0);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_RECEIVE, &brief), EAGAIN);
	if (!argument.interrupt_frames) {
		tap_skip("the card does not interrupt, so no program sleeps");
		close(fd);
		return;
	}
	child = child_start(sleep_in_receive, &fd);
	/* Long enough for the child to sleep. If it does not sleep yet, it gets ENODEV as well. */
	usleep(200000);
	EXPECT_EQ(nic_rebind(), 0);
	EXPECT_EQ(child_wait(child), ENODEV);
	close(fd);
}

/**
 * receive_slowly - takes messages so slowly that all buffers stay in use, and returns each buffer late.
 *
 * Return: the exit code after a failure; otherwise it runs until it is killed.
 */
int receive_slowly(void)
{
	uint32_t held[BUFFERS], count = 0, next = 0;
	int fd = nic_open(0);

	if (try_open(fd, good_open()))
		return 1;
	printf("ready\n");
	fflush(stdout);
	for (;; usleep(20000)) {
		struct niclab_active_receive argument = { .buffer = NICLAB_ACTIVE_NO_BUFFER };
		int err;

		if (count == BUFFERS) {
			argument.buffer = held[next];
			count--;
		}
		err = nic_ioctl(fd, NICLAB_IOCTL_ACTIVE_RECEIVE, &argument);
		if (!err && !argument.errors) {
			held[next] = argument.buffer;
			next = (next + 1) % BUFFERS;
			count++;
		} else if (err && err != EAGAIN) {
			return 1;
		}
	}
}

/**
 * send_on_and_on - sends messages without end to the same port of the other node.
 *
 * Return: the exit code, after a message could not be sent.
 */
int send_on_and_on(void)
{
	struct niclab_active_open argument = good_open();
	int fd = nic_open(0), err;

	argument.port = PORT + 1;
	err = try_open(fd, argument);
	while (!err)
		err = try_send(fd, good_send());
	fprintf(stderr, "%s\n", errno_name(err));
	return 1;
}

/**
 * tests_of_active_ports - tests of a card with descriptor rings, in a cluster of two nodes.
 *
 * Return: the exit code.
 */
int tests_of_active_ports(void)
{
	tap_run("impossible_ports_are_refused", impossible_ports_are_refused);
	tap_run("impossible_messages_are_refused", impossible_messages_are_refused);
	tap_run("foreign_buffers_are_refused", foreign_buffers_are_refused);
	tap_run("receive_wakes_at_its_timeout_and_when_the_driver_unbinds",
		receive_wakes_at_its_timeout_and_when_the_driver_unbinds);
	tap_run("port_owners_get_enodev_when_the_driver_unbinds", port_owners_get_enodev_when_the_driver_unbinds);
	return tap_finish();
}
