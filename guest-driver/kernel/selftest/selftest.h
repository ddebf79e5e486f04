/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared declarations of the driver's test program.
 *
 * Every test is a function without arguments that leaves the NIC as it found it. A failed expectation is reported with
 * its location and the test continues, so that one run shows all failures.
 */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "niclab_abi.h"

/* tap.c: results in the Test Anything Protocol. */
void tap_run(const char *name, void (*test)(void));
/* Runs a test that opens a port. It is skipped on cards with descriptor rings, which have no such ports. */
void tap_run_with_port(const char *name, void (*test)(void));
void tap_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tap_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
int tap_finish(void);

/* Expects a condition to hold. */
#define EXPECT(condition) \
	do { \
		if (!(condition)) \
			tap_fail(__FILE__, __LINE__, "expected %s", #condition); \
	} while (0)

/* Expects an integer, and reports the actual one if it differs. */
#define EXPECT_EQ(actual, wanted) \
	do { \
		long long actual_ = (actual), wanted_ = (wanted); \
		if (actual_ != wanted_) \
			tap_fail(__FILE__, __LINE__, "%s is %lld, expected %lld", #actual, actual_, wanted_); \
	} while (0)

/* Expects zero or an errno, both as a positive number. */
#define EXPECT_ERRNO(call, wanted) \
	do { \
		int actual_ = (call), wanted_ = (wanted); \
		if (actual_ != wanted_) \
			tap_fail(__FILE__, __LINE__, "%s gives %s, expected %s", #call, errno_name(actual_), \
				 errno_name(wanted_)); \
	} while (0)

const char *errno_name(int error);

/* nic.c: the device file, with errors as positive numbers. */

/* Time limit for an event that must arrive, long enough for a busy host and a guest without acceleration. */
#define TIMEOUT_MS 10000

extern const char *device_path;

int nic_open(int flags);
int nic_ioctl(int fd, unsigned int request, void *argument);
int nic_open_port(int fd, uint32_t port, uint32_t slices, struct niclab_open_port *opened);
int nic_peer(int fd, unsigned int request, uint32_t node, uint32_t port, uint32_t credits);
int nic_map(int fd, uint64_t offset, size_t bytes, int protection, int flags, void **at);
void *nic_map_or_fail(int fd, uint64_t offset, size_t bytes, int protection);

/* The mapping offset of the window of a kind. */
uint64_t nic_window(int fd, uint32_t kind);
int nic_poll(int fd, int timeout_ms);
struct niclab_device_config nic_info(void);

/* Whether the card has all of these features, NICLAB_FEATURE_ bits. */
bool nic_has(uint64_t features);
long long nic_attribute(const char *name);

/* Name of the NIC's virtio device, or NULL. */
const char *nic_virtio_name(void);

/* The driver's folder of the bus. */
#define NIC_BUS "/sys/bus/virtio/drivers/niclab/"

/* Writes a virtio device's name to the driver's file bind or unbind. Requires root. */
int nic_binding_write(const char *file, const char *device);

/* Unbinds the driver from the NIC, and binds it again. */
int nic_rebind(void);

/* Interrupts of the NIC's line, as counted by the kernel; -1 if the line is shared with another device. */
long long nic_line_interrupts(void);

/* Returns a copy in a page that the kernel can read but not write. It stays until the program ends. */
void *read_only_copy(const void *source, size_t bytes);

/* Reads or writes an address. Returns the signal that the access raises, or zero. */
int touch(volatile void *address, bool write);

/* Starts a child process that runs a function and exits with its result. */
int child_start(int (*body)(void *), void *argument);
int child_wait(int child);

/* test_*.c: the tests. */
void tests_of_ports(void);
void tests_of_maps(void);
void tests_of_interrupts(void);
void tests_of_life(void);
void tests_of_regions(void);
void tests_of_firmware(void);
int watch_death(void);
int hold_region(void);
int test_of_puts(void);
int tests_of_active_ports(void);
int receive_slowly(void);
int send_on_and_on(void);

/* test_region.c: parts of watch_death(), which do nothing if the card has no regions. */
void register_with_the_doomed(int fd);
void death_leaves_memory_pinned(void);

#endif /* SELFTEST_H */
