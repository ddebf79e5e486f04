// SPDX-License-Identifier: GPL-2.0
/* Firmware: loaded by name; a bad image is refused by its errno and changes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "selftest.h"

#define FOLDER "/lib/firmware/niclab/"
#define GOOD "portals.nmi"
#define BAD "selftest.nmi"

/*
 * Offsets in an image: its version, its number of words, its checksum, and the last byte of its first word, which is
 * padding.
 */
#define VERSION_AT 8
#define WORDS_AT 12
#define CHECK_AT 16
#define HEADER_BYTES 24
#define PADDING_AT (HEADER_BYTES + 23)

/* An image to be damaged. */
struct image {
	unsigned char bytes[300 * 1024];
	size_t length;
};

static struct image image;

static const char *attribute_path(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "/sys/class/niclab/%s/%s", strrchr(device_path, '/') + 1, name);
	return path;
}

/* Writes a name to the attribute. Returns 0 or an errno. */
static int load(const char *name)
{
	int fd = open(attribute_path("firmware"), O_WRONLY | O_CLOEXEC);
	int error = 0;

	if (fd < 0)
		return errno;
	if (write(fd, name, strlen(name)) < 0)
		error = errno;
	close(fd);
	return error;
}

/* The running program: "NAME WORDS CHECKSUM". */
static const char *running(char text[128])
{
	int fd = open(attribute_path("firmware"), O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, text, 127);

	text[bytes > 0 ? bytes : 0] = '\0';
	if (fd >= 0)
		close(fd);
	return text;
}

static void image_read(void)
{
	int fd = open(FOLDER GOOD, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, image.bytes, sizeof(image.bytes));

	memset(image.bytes + (bytes > 0 ? bytes : 0), 0, sizeof(image.bytes) - (bytes > 0 ? bytes : 0));
	image.length = bytes > 0 ? bytes : 0;
	EXPECT(bytes > HEADER_BYTES);
	if (fd >= 0)
		close(fd);
}

/* Gives the image a matching checksum: CRC-32 of all bytes but the checksum itself. */
static void image_seal(void)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < image.length; i++) {
		if (i >= CHECK_AT && i < CHECK_AT + 4)
			continue;
		crc ^= image.bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	crc = ~crc;
	memcpy(image.bytes + CHECK_AT, &crc, 4);
}

/* Writes the image to a new file, and loads that file. */
static int image_load(void)
{
	int fd = open(FOLDER BAD, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int error = fd < 0 ? errno : 0;

	if (!error && write(fd, image.bytes, image.length) != (ssize_t)image.length)
		error = EIO;
	if (fd >= 0)
		close(fd);
	if (!error)
		error = load(BAD);
	unlink(FOLDER BAD);
	return error;
}

static void the_program_is_shown_and_replaced(void)
{
	char before[128], now[128];
	unsigned int words = 0, checksum = 0;

	EXPECT_ERRNO(load("builtin"), 0);
	running(before);
	EXPECT_EQ(sscanf(before, "builtin %u %x", &words, &checksum), 2);
	EXPECT(words > 0 && checksum);
	EXPECT_ERRNO(load(GOOD "\n"), 0);
	EXPECT(!strncmp(running(now), GOOD " ", strlen(GOOD) + 1));
	/* The file is the program that devices are built with. */
	EXPECT(!strcmp(now + strlen(GOOD), before + strlen("builtin")));
	EXPECT_ERRNO(load("\n"), 0);
	EXPECT(!strcmp(running(now), before));
}

static void a_good_image_of_another_name_is_loaded(void)
{
	char now[128];

	image_read();
	image_seal();
	EXPECT_ERRNO(image_load(), 0);
	EXPECT(!strncmp(running(now), BAD " ", strlen(BAD) + 1));
	EXPECT_ERRNO(load("builtin"), 0);
}

static void impossible_names_are_refused(void)
{
	char before[128], now[128], name[200];

	running(before);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	EXPECT_ERRNO(load("missing.nmi"), ENOENT);
	EXPECT_ERRNO(load("two names"), EINVAL);
	EXPECT_ERRNO(load(name), ENAMETOOLONG);
	EXPECT(load("../../etc/passwd"));
	EXPECT(!strcmp(running(now), before));
}

/* Each function below damages the image in one way. */
static void spoil_nothing_but_a_bit(void)
{
	image.bytes[image.length / 2] ^= 4;
}

static void spoil_the_magic(void)
{
	image.bytes[0] ^= 1;
}

static void spoil_the_version(void)
{
	image.bytes[VERSION_AT]++;
}

static void spoil_by_cutting(void)
{
	image.length--;
	image_seal();
}

static void spoil_by_emptying(void)
{
	image.length = 0;
}

static void spoil_by_appending(void)
{
	image.length++;
	image_seal();
}

static void spoil_a_word(void)
{
	image.bytes[PADDING_AT] = 0xff;
	image_seal();
}

static void spoil_by_lengthening(void)
{
	uint32_t words = 10000;

	memcpy(image.bytes + WORDS_AT, &words, 4);
	image.length = HEADER_BYTES + words * 24;
	image_seal();
}

static void spoil_by_a_length_beyond_all(void)
{
	image.length = sizeof(image.bytes);
}

static void bad_images_are_refused(void)
{
	static const struct {
		void (*spoil)(void);
		int error;
	} cases[] = {
		{ spoil_nothing_but_a_bit, EBADMSG }, { spoil_the_magic, ENOEXEC },
		{ spoil_the_version, EPROTONOSUPPORT }, { spoil_by_cutting, ENOEXEC },
		{ spoil_by_emptying, EINVAL }, { spoil_by_appending, ENOEXEC },
		{ spoil_a_word, EILSEQ }, { spoil_by_lengthening, EFBIG },
		{ spoil_by_a_length_beyond_all, EFBIG },
	};
	char before[128], now[128];

	EXPECT_ERRNO(load(GOOD), 0);
	running(before);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		image_read();
		cases[i].spoil();
		EXPECT_ERRNO(image_load(), cases[i].error);
		EXPECT(!strcmp(running(now), before));
	}
	EXPECT_ERRNO(load("builtin"), 0);
}

static int load_unprivileged(void *unused)
{
	(void)unused;
	if (setgid(65534) || setuid(65534))
		return 100;
	return load("builtin") == EACCES ? 0 : 1;
}

static void only_root_may_load(void)
{
	EXPECT_EQ(child_wait(child_start(load_unprivileged, NULL)), 0);
}

/* What runs belongs to the card: binding the driver again makes it the built-in program, so that it is known. */
static void binding_again_loads_the_builtin_program(void)
{
	char now[128];

	EXPECT_ERRNO(load(GOOD), 0);
	EXPECT_ERRNO(nic_rebind(), 0);
	EXPECT(!strncmp(running(now), "builtin ", 8));
}

static void own_statistics_are_numbers(void)
{
	EXPECT(nic_attribute("statistics/headers") >= 0);
	EXPECT(nic_attribute("statistics/commands_refused") >= 0);
	EXPECT(nic_attribute("causes/firmware") >= 0);
}

static void other_cards_have_no_firmware(void)
{
	EXPECT_ERRNO(load("builtin"), ENOENT);
	EXPECT(access(attribute_path("statistics/firmware_fallbacks"), F_OK) && errno == ENOENT);
}

void tests_of_firmware(void)
{
	/* A card that is handed over has other images, and tests of its own. */
	if (nic_has(NICLAB_FEATURE_HAND_OVER))
		return;
	if (!nic_has(NICLAB_FEATURE_FIRMWARE)) {
		tap_run("other cards have no firmware", other_cards_have_no_firmware);
		return;
	}
	tap_run("the card's own statistics are numbers", own_statistics_are_numbers);
	if (geteuid())
		return;
	tap_run("the program is shown and replaced", the_program_is_shown_and_replaced);
	tap_run("a good image of another name is loaded", a_good_image_of_another_name_is_loaded);
	tap_run("impossible names are refused", impossible_names_are_refused);
	tap_run("bad images are refused and change nothing", bad_images_are_refused);
	tap_run("only root may load firmware", only_root_may_load);
	tap_run("binding the driver again loads the built-in program", binding_again_loads_the_builtin_program);
}
