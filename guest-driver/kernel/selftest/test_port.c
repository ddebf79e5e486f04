// SPDX-License-Identifier: GPL-2.0
/* Requests: what they do, and what they refuse. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "selftest.h"

/* An address that no program has. */
static void *const nowhere = (void *)8;

static void info_agrees_with_sysfs(void)
{
	struct niclab_device_config config = nic_info();

	EXPECT(config.magic == NICLAB_MAGIC);
	EXPECT_EQ(config.abi_version, NICLAB_ABI_VERSION);
	EXPECT_EQ(nic_attribute("abi_version"), config.abi_version);
	EXPECT_EQ(nic_attribute("node"), config.node);
	EXPECT_EQ(nic_attribute("nodes"), config.nodes);
	EXPECT_EQ(nic_attribute("ports"), config.ports);
	EXPECT_EQ(nic_attribute("healthy"), 1);
}

static void statistics_are_numbers(void)
{
	EXPECT(nic_attribute("statistics/packets_sent") >= 0);
	EXPECT(nic_attribute("statistics/doorbells") >= 0);
	EXPECT(nic_attribute("statistics/events_merged") >= 0);
	EXPECT(nic_attribute("interrupts") >= 0);
	EXPECT(nic_attribute("causes/message") >= 0);
}

static void unknown_requests_are_refused(void)
{
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_ioctl(fd, 0xf57f, NULL), ENOTTY);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_ROUTE ^ (1 << 16), NULL), ENOTTY);
	/* Too short to hold the version. */
	EXPECT_ERRNO(nic_ioctl(fd, _IOC(_IOC_READ, NICLAB_IOCTL_TYPE, 0, 8), nowhere), ENOTTY);
	close(fd);
}

/* A program of any version can read the driver's version. */
static void other_versions_read_magic_and_version(void)
{
	struct { uint64_t magic; uint32_t version, more[13]; } old = { 0 };
	struct { struct niclab_device_config config; char more[40]; } longer = { 0 };
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_ioctl(fd, _IOC(_IOC_READ, NICLAB_IOCTL_TYPE, 0, sizeof(old)), &old), 0);
	EXPECT(old.magic == NICLAB_MAGIC);
	EXPECT_EQ(old.version, NICLAB_ABI_VERSION);
	memset(longer.more, 7, sizeof(longer.more));
	EXPECT_ERRNO(nic_ioctl(fd, _IOC(_IOC_READ, NICLAB_IOCTL_TYPE, 0, sizeof(longer)), &longer), 0);
	EXPECT_EQ(longer.config.abi_version, NICLAB_ABI_VERSION);
	EXPECT_EQ(longer.more[0], 7);
	close(fd);
}

static void bad_pointers_are_refused(void)
{
	struct niclab_open_port *argument;
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_INFO, nowhere), EFAULT);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_OPEN_PORT, nowhere), EFAULT);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_ROUTE, nowhere), EFAULT);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_RULES, nowhere), EFAULT);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_GROUP, nowhere), EFAULT);
	/* A port whose number cannot be returned must not stay open. */
	argument = read_only_copy(&(struct niclab_open_port){ .port = 0, .slices = NICLAB_MIN_SLICES },
				  sizeof(*argument));
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_OPEN_PORT, argument), EFAULT);
	EXPECT_ERRNO(nic_open_port(fd, 0, 0, NULL), 0);
	close(fd);
}

static void requests_without_a_port_fail(void)
{
	struct niclab_post_rules rules = { 0 };
	struct niclab_group_of group = { 0 };
	int fd = nic_open(0);
	uint64_t count;

	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_CLOSE_PORT, NULL), ENOTCONN);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_ROUTE, 0, 0, 0), ENOTCONN);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_AUTHORIZE, 0, 0, 1), ENOTCONN);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_REVOKE, 0, 0, 0), ENOTCONN);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_RULES, &rules), ENOTCONN);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_GROUP, &group), ENOTCONN);
	group.members = NICLAB_POST_MAX_MEMBERS + 1;
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_GROUP, &group), EINVAL);
	group.members = 1;
	group.nodes = (uintptr_t)nowhere;
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_GROUP, &group), EFAULT);
	rules.port = 1;
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_RULES, &rules), EINVAL);
	EXPECT_ERRNO(read(fd, &count, sizeof(count)) < 0 ? errno : 0, ENOTCONN);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_CHECK, NULL), 0);
	close(fd);
}

static void impossible_ports_are_refused(void)
{
	struct niclab_open_port reserved = { .port = 0, .reserved0 = 1 };
	struct niclab_device_config config = nic_info();
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_open_port(fd, config.ports, 0, NULL), EINVAL);
	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY - 1, 0, NULL), EINVAL);
	EXPECT_ERRNO(nic_open_port(fd, 0, NICLAB_MIN_SLICES / 2, NULL), EINVAL);
	EXPECT_ERRNO(nic_open_port(fd, 0, NICLAB_MIN_SLICES + 1, NULL), EINVAL);
	EXPECT_ERRNO(nic_open_port(fd, 0, 2 * config.max_slices, NULL), EINVAL);
	EXPECT_ERRNO(nic_open_port(fd, 0, 1U << 31, NULL), EINVAL);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_OPEN_PORT, &reserved), EINVAL);
	close(fd);
}

static void a_card_of_rings_opens_no_ports(void)
{
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY, 0, NULL), EOPNOTSUPP);
	EXPECT_ERRNO(nic_open_port(fd, 0, 0, NULL), EOPNOTSUPP);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_CLOSE_PORT, NULL), ENOTCONN);
	close(fd);
}

static void open_port_returns_its_parameters(void)
{
	struct niclab_device_config config = nic_info();
	struct niclab_open_port opened;
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_open_port(fd, NICLAB_PORT_ANY, 0, &opened), 0);
	EXPECT(opened.port < config.ports);
	EXPECT_EQ(opened.slices, 256);
	EXPECT(opened.receive_bytes >= NICLAB_RECEIVE_SLICES_OFFSET + 256 * NICLAB_SLICE_BYTES);
	EXPECT_EQ(opened.receive_bytes % NICLAB_PAGE_BYTES, 0);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_CLOSE_PORT, NULL), 0);
	EXPECT_ERRNO(nic_open_port(fd, 3 % config.ports, config.max_slices, &opened), 0);
	EXPECT_EQ(opened.port, 3 % config.ports);
	EXPECT_EQ(opened.slices, config.max_slices);
	close(fd);
}

static void a_port_has_one_owner(void)
{
	int first = nic_open(0), second = nic_open(0);

	EXPECT_ERRNO(nic_open_port(first, 0, 0, NULL), 0);
	EXPECT_ERRNO(nic_open_port(first, NICLAB_PORT_ANY, 0, NULL), EBUSY);
	EXPECT_ERRNO(nic_open_port(second, 0, 0, NULL), EBUSY);
	EXPECT_ERRNO(nic_ioctl(first, NICLAB_IOCTL_CLOSE_PORT, NULL), 0);
	EXPECT_ERRNO(nic_open_port(second, 0, 0, NULL), 0);
	close(first);
	close(second);
}

static void ports_run_out_and_are_reusable(void)
{
	struct niclab_device_config config = nic_info();
	int *files = calloc(config.ports + 1, sizeof(*files));
	/* A card with channels has as many ports as it is configured for. */
	bool is_known = !nic_has(NICLAB_FEATURE_CHANNELS);
	uint32_t i, opened, most = config.ports;
	int error;

	for (int round = 0; files && round < 3; round++) {
		opened = 0;
		for (i = 0; i <= config.ports; i++) {
			files[i] = nic_open(0);
			error = nic_open_port(files[i], NICLAB_PORT_ANY, 0, NULL);
			/* After the first failure no port opens. */
			EXPECT_ERRNO(error, error || opened < i ? ENOSPC : 0);
			opened += !error;
		}
		if (!is_known)
			most = opened;
		is_known = true;
		EXPECT(opened);
		EXPECT_EQ(opened, most);
		for (i = 0; i <= config.ports; i++)
			close(files[i]);
	}
	free(files);
}

static void tables_refuse_invalid_entries(void)
{
	struct niclab_peer reserved = { .reserved = 1 };
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_open_port(fd, 0, 64, NULL), 0);
	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_ROUTE, &reserved), EINVAL);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_ROUTE, 0, 0, 1), EINVAL);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_REVOKE, 0, 0, 1), EINVAL);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_AUTHORIZE, 0, 0, 0), EINVAL);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_AUTHORIZE, 0, 0, 65), ENOSPC);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_AUTHORIZE, 0, 0, 64), 0);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_AUTHORIZE, 0, 1, 1), ENOSPC);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_REVOKE, 0, 0, 0), 0);
	EXPECT_ERRNO(nic_peer(fd, NICLAB_IOCTL_REVOKE, 0, 0, 0), ENOENT);
	close(fd);
}

void tests_of_ports(void)
{
	tap_run("information agrees with sysfs", info_agrees_with_sysfs);
	tap_run("statistics are numbers", statistics_are_numbers);
	tap_run("unknown requests are refused", unknown_requests_are_refused);
	tap_run("other versions read magic and version", other_versions_read_magic_and_version);
	tap_run_with_port("bad pointers are refused, and leave no port open", bad_pointers_are_refused);
	tap_run("requests that need a port fail without one", requests_without_a_port_fail);
	tap_run("impossible ports are refused", impossible_ports_are_refused);
	if (nic_has(NICLAB_FEATURE_RINGS))
		tap_run("a card of rings opens no ports", a_card_of_rings_opens_no_ports);
	tap_run_with_port("opening a port returns its parameters", open_port_returns_its_parameters);
	tap_run_with_port("a port has one owner", a_port_has_one_owner);
	tap_run_with_port("ports run out and are reusable after a close", ports_run_out_and_are_reusable);
	if (nic_has(NICLAB_FEATURE_SLICES))
		tap_run("tables refuse invalid entries", tables_refuse_invalid_entries);
}
