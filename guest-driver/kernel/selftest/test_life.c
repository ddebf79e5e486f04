// SPDX-License-Identifier: GPL-2.0
/* End of life: of a process, of the driver's binding, of the device. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest.h"

#define PAGE NICLAB_PAGE_BYTES

/* An open port with a mapping of each kind that has been touched. */
struct victim {
	int fd;
	struct niclab_open_port opened;
	void *info;
	void *requester;
	void *receive;
};

static void victim_open(struct victim *victim, uint32_t port)
{
	victim->fd = nic_open(0);
	EXPECT_ERRNO(nic_open_port(victim->fd, port, 0, &victim->opened), 0);
	victim->info = nic_map_or_fail(victim->fd, NICLAB_MAP_INFO, PAGE, PROT_READ);
	victim->requester = nic_map_or_fail(victim->fd, nic_window(victim->fd, NICLAB_WINDOW_REQUESTER), PAGE,
					    PROT_READ | PROT_WRITE);
	victim->receive = nic_map_or_fail(victim->fd, NICLAB_MAP_RECEIVE, PAGE, PROT_READ);
	EXPECT_EQ(touch(victim->info, false), 0);
	EXPECT_EQ(touch(victim->requester, true), 0);
	EXPECT_EQ(touch(victim->receive, false), 0);
}

static void victim_close(struct victim *victim)
{
	munmap(victim->info, PAGE);
	munmap(victim->requester, PAGE);
	munmap(victim->receive, PAGE);
	close(victim->fd);
}

static int hold_until_killed(void *ready)
{
	struct victim victim;

	victim_open(&victim, 0);
	if (write(*(int *)ready, "", 1) != 1)
		return 1;
	pause();
	return 1;
}

/* The port of a killed process is free once its parent has waited for it. */
static void a_killed_process_leaves_no_port_open(void)
{
	int ready[2], child, fd;
	char byte;

	EXPECT_EQ(pipe(ready), 0);
	for (int i = 0; i < 20; i++) {
		child = child_start(hold_until_killed, &ready[1]);
		EXPECT_EQ(read(ready[0], &byte, 1), 1);
		kill(child, SIGKILL);
		EXPECT_EQ(child_wait(child), 128 + SIGKILL);
		fd = nic_open(0);
		EXPECT_ERRNO(nic_open_port(fd, 0, 0, NULL), 0);
		close(fd);
	}
	close(ready[0]);
	close(ready[1]);
}

static int open_and_close_for_ever(void *of)
{
	uint32_t port = *(uint32_t *)of;
	int fd;

	do {
		fd = nic_open(0);
		nic_open_port(fd, port, NICLAB_MIN_SLICES, NULL);
	} while (!close(fd));
	return 1;
}

/* This includes the middle of a request. */
static void a_process_can_be_killed_at_any_point(void)
{
	uint32_t port = 1 % nic_info().ports;
	int child, fd;

	for (int i = 0; i < 50; i++) {
		child = child_start(open_and_close_for_ever, &port);
		usleep(997 * i % 20000);
		kill(child, SIGKILL);
		EXPECT_EQ(child_wait(child), 128 + SIGKILL);
	}
	fd = nic_open(0);
	EXPECT_ERRNO(nic_open_port(fd, port, 0, NULL), 0);
	close(fd);
}

/* Checks an open file whose device is gone. */
static void expect_gone(struct victim *victim)
{
	struct niclab_device_config config;
	uint64_t count;

	EXPECT_EQ(nic_poll(victim->fd, 0), POLLERR | POLLHUP);
	EXPECT_ERRNO(nic_ioctl(victim->fd, NICLAB_IOCTL_INFO, &config), ENODEV);
	EXPECT_ERRNO(nic_ioctl(victim->fd, NICLAB_IOCTL_CHECK, NULL), ENODEV);
	EXPECT_ERRNO(nic_ioctl(victim->fd, NICLAB_IOCTL_CLOSE_PORT, NULL), ENODEV);
	EXPECT_ERRNO(nic_peer(victim->fd, NICLAB_IOCTL_ROUTE, 0, 0, 0), ENODEV);
	EXPECT_ERRNO(nic_open_port(victim->fd, NICLAB_PORT_ANY, 0, NULL), ENODEV);
	EXPECT_ERRNO(read(victim->fd, &count, sizeof(count)) < 0 ? errno : 0, ENODEV);
	EXPECT_ERRNO(nic_map(victim->fd, NICLAB_MAP_INFO, PAGE, PROT_READ, MAP_SHARED, NULL), ENODEV);
}

static void *wait_for_hangup(void *fd)
{
	return (void *)(intptr_t)nic_poll(*(int *)fd, TIMEOUT_MS);
}

static void unbinding_under_open_files(void)
{
	const char *name = nic_virtio_name();
	struct victim victim;
	pthread_t thread;
	void *events = NULL;

	if (!name || access(NIC_BUS "unbind", W_OK)) {
		tap_skip("only root can unbind a device");
		return;
	}
	victim_open(&victim, 0);
	EXPECT_EQ(pthread_create(&thread, NULL, wait_for_hangup, &victim.fd), 0);
	EXPECT_ERRNO(nic_binding_write("unbind", name), 0);
	EXPECT_EQ(pthread_join(thread, &events), 0);
	EXPECT_EQ((intptr_t)events, POLLERR | POLLHUP);
	expect_gone(&victim);
	EXPECT_EQ(touch(victim.info, false), SIGBUS);
	EXPECT_EQ(touch(victim.requester, true), SIGBUS);
	EXPECT_EQ(touch(victim.receive, false), SIGBUS);
	EXPECT(access(device_path, F_OK) && errno == ENOENT);

	/* The device reappears under the same name while the old file is still open. */
	EXPECT_ERRNO(nic_binding_write("bind", name), 0);
	EXPECT_EQ(nic_attribute("healthy"), 1);
	expect_gone(&victim);
	victim_close(&victim);
	victim_open(&victim, 0);
	victim_close(&victim);
}

static void driver_can_be_bound_repeatedly(void)
{
	if (access(NIC_BUS "unbind", W_OK)) {
		tap_skip("only root can unbind a device");
		return;
	}
	for (int i = 0; i < 5; i++) {
		EXPECT_ERRNO(nic_rebind(), 0);
		EXPECT_EQ(nic_attribute("healthy"), 1);
	}
}

void tests_of_life(void)
{
	tap_run_with_port("a killed process leaves no port open", a_killed_process_leaves_no_port_open);
	tap_run_with_port("a process can be killed at any point", a_process_can_be_killed_at_any_point);
	tap_run_with_port("unbinding the driver under open files", unbinding_under_open_files);
	tap_run("the driver can be bound repeatedly", driver_can_be_bound_repeatedly);
}

static struct victim doomed;

static void death_is_detected(void)
{
	int waited_ms = 0;

	printf("# waiting for the device to die\n");
	fflush(stdout);
	while (nic_ioctl(doomed.fd, NICLAB_IOCTL_CHECK, NULL) != ENODEV && waited_ms < 6 * TIMEOUT_MS) {
		usleep(100 * 1000);
		waited_ms += 100;
	}
	EXPECT(waited_ms < 6 * TIMEOUT_MS);
	expect_gone(&doomed);
	EXPECT_EQ(nic_attribute("healthy"), 0);
}

static void dead_device_cannot_be_opened(void)
{
	int fd = open(device_path, O_RDWR | O_CLOEXEC);

	EXPECT_ERRNO(fd < 0 ? errno : 0, ENODEV);
}

static void death_leaves_the_memory_readable(void)
{
	EXPECT_EQ(touch(doomed.receive, false), 0);
	EXPECT_EQ(touch(doomed.requester, true), 0);
}

int watch_death(void)
{
	victim_open(&doomed, 0);
	register_with_the_doomed(doomed.fd);
	tap_run("the driver detects the death of the device before a timeout", death_is_detected);
	tap_run("a dead device cannot be opened", dead_device_cannot_be_opened);
	tap_run("received data stays readable after the device's death", death_leaves_the_memory_readable);
	victim_close(&doomed);
	tap_run("memory that a dead device may still write to stays pinned", death_leaves_memory_pinned);
	return tap_finish();
}
