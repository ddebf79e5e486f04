// SPDX-License-Identifier: GPL-2.0
/* Helpers of the tests: the device file, signals and child processes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest.h"

const char *device_path = "/dev/niclab0";

int nic_open(int flags)
{
	int fd = open(device_path, O_RDWR | O_CLOEXEC | flags);

	if (fd < 0) {
		printf("Bail out! %s: %s\n", device_path, strerror(errno));
		exit(2);
	}
	return fd;
}

int nic_ioctl(int fd, unsigned int request, void *argument)
{
	return ioctl(fd, request, argument) ? errno : 0;
}

int nic_open_port(int fd, uint32_t port, uint32_t slices, struct niclab_open_port *opened)
{
	struct niclab_open_port argument = { .port = port, .slices = slices };
	int error = nic_ioctl(fd, NICLAB_IOCTL_OPEN_PORT, &argument);

	if (opened)
		*opened = argument;
	return error;
}

int nic_peer(int fd, unsigned int request, uint32_t node, uint32_t port, uint32_t credits)
{
	struct niclab_peer peer = { .node = node, .port = port, .credits = credits };

	return nic_ioctl(fd, request, &peer);
}

int nic_map(int fd, uint64_t offset, size_t bytes, int protection, int flags, void **at)
{
	void *address = mmap(NULL, bytes, protection, flags, fd, (off_t)offset);

	if (address == MAP_FAILED)
		return errno;
	if (at)
		*at = address;
	else
		munmap(address, bytes);
	return 0;
}

void *nic_map_or_fail(int fd, uint64_t offset, size_t bytes, int protection)
{
	void *at = NULL;
	int error = nic_map(fd, offset, bytes, protection, MAP_SHARED, &at);

	if (error) {
		printf("Bail out! mapping offset %#llx: %s\n", (unsigned long long)offset, strerror(error));
		exit(2);
	}
	return at;
}

uint64_t nic_window(int fd, uint32_t kind)
{
	char *page = nic_map_or_fail(fd, NICLAB_MAP_INFO, NICLAB_PAGE_BYTES, PROT_READ);
	const struct niclab_window *rows = (void *)(page + NICLAB_INFO_WINDOWS_OFFSET);
	uint32_t number = 0, windows = ((struct niclab_info_page *)page)->windows;

	while (number < windows && rows[number].kind != kind)
		number++;
	munmap(page, NICLAB_PAGE_BYTES);
	if (number == windows) {
		printf("Bail out! no window of kind %u\n", kind);
		exit(2);
	}
	return NICLAB_MAP_WINDOWS + number * (uint64_t)NICLAB_MAP_WINDOW_STRIDE;
}

int nic_poll(int fd, int timeout_ms)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	return poll(&wait, 1, timeout_ms) < 0 ? -1 : wait.revents;
}

struct niclab_device_config nic_info(void)
{
	struct niclab_device_config config = { 0 };
	int fd = nic_open(0);

	EXPECT_ERRNO(nic_ioctl(fd, NICLAB_IOCTL_INFO, &config), 0);
	close(fd);
	return config;
}

bool nic_has(uint64_t features)
{
	return (nic_info().features & features) == features;
}

long long nic_attribute(const char *name)
{
	const char *base = strrchr(device_path, '/');
	char path[256], text[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/niclab/%s/%s", base ? base + 1 : device_path, name);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	return text[0] >= '0' && text[0] <= '9' ? atoll(text) : -1;
}

const char *nic_virtio_name(void)
{
	static char target[PATH_MAX];
	char link[PATH_MAX];
	ssize_t bytes;

	snprintf(link, sizeof(link), "/sys/class/niclab/%s/device", strrchr(device_path, '/') + 1);
	bytes = readlink(link, target, sizeof(target) - 1);
	if (bytes <= 0)
		return NULL;
	target[bytes] = '\0';
	return strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
}

int nic_binding_write(const char *file, const char *device)
{
	char path[128];
	int fd, error = 0;

	snprintf(path, sizeof(path), NIC_BUS "%s", file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (write(fd, device, strlen(device)) < 0)
		error = errno;
	close(fd);
	return error;
}

int nic_rebind(void)
{
	const char *name = nic_virtio_name();
	int error = name ? nic_binding_write("unbind", name) : ENODEV;

	return error ? error : nic_binding_write("bind", name);
}

long long nic_line_interrupts(void)
{
	FILE *file = fopen("/proc/interrupts", "re");
	const char *name = nic_virtio_name();
	long long sum = -1;
	char line[4096];

	while (file && name && sum < 0 && fgets(line, sizeof(line), file)) {
		char *at = strchr(line, ':'), *end;

		line[strcspn(line, "\n")] = '\0';
		end = strrchr(line, ' ');
		if (!at || !end || strcmp(end + 1, name))
			continue;
		/* One column for each processor, then words. A comma means that devices share the line. */
		if (strchr(line, ','))
			break;
		sum = 0;
		for (;;) {
			long long count = strtoll(++at, &end, 10);

			if (end == at || *end != ' ')
				break;
			sum += count;
			at = end;
		}
	}
	if (file)
		fclose(file);
	return sum;
}

void *read_only_copy(const void *source, size_t bytes)
{
	void *at = mmap(NULL, NICLAB_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || bytes > NICLAB_PAGE_BYTES) {
		printf("Bail out! no memory\n");
		exit(2);
	}
	memcpy(at, source, bytes);
	mprotect(at, NICLAB_PAGE_BYTES, PROT_READ);
	return at;
}

static sigjmp_buf touched;

static void on_touch(int number)
{
	siglongjmp(touched, number);
}

int touch(volatile void *address, bool write)
{
	struct sigaction action = { .sa_handler = on_touch }, before_bus, before_segv;
	volatile uint64_t *word = address;
	int number;

	sigaction(SIGBUS, &action, &before_bus);
	sigaction(SIGSEGV, &action, &before_segv);
	number = sigsetjmp(touched, 1);
	if (!number) {
		if (write)
			*word = 0;
		else
			(void)*word;
	}
	sigaction(SIGBUS, &before_bus, NULL);
	sigaction(SIGSEGV, &before_segv, NULL);
	return number;
}

int child_start(int (*body)(void *), void *argument)
{
	int child;

	fflush(stdout);
	child = fork();
	if (!child)
		_exit(body(argument));
	return child;
}

int child_wait(int child)
{
	int status = 0;

	if (waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
