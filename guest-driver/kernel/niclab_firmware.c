// SPDX-License-Identifier: GPL-2.0
/*
 * Firmware of the card: loaded by name through the kernel's firmware loader.
 *
 * The device keeps its program across driver resets, and cannot report its name. The driver therefore loads the
 * built-in program when it starts, and records what it loads from then on.
 */
#include <linux/firmware.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "niclab.h"

#define NICLAB_FIRMWARE_BUILTIN "builtin"
/* Folder of the firmware search path that is searched first. */
#define NICLAB_FIRMWARE_FOLDER "niclab/"
/* Name of a program that the cluster's host chose, and neither this driver nor the card's maker. */
#define NICLAB_FIRMWARE_OTHER "other"
/* Longest image that is passed to the device: longer than any control store. */
#define NICLAB_FIRMWARE_MOST_BYTES SZ_256K

/* Why the device refused an image, and the fix. */
static const char *niclab_firmware_fix(int err)
{
	switch (err) {
	case -ENOEXEC:
		return "the file is not an image of niclab asm, or is incomplete; copy it again";
	case -EBADMSG:
		return "its checksum does not match its content; copy it again";
	case -EPROTONOSUPPORT:
		return "this device does not run images of its version; assemble it with the niclab that runs the device";
	case -EILSEQ:
		return "one of its words has an undefined value; assemble it with the niclab that runs the device";
	case -ERANGE:
		return "it is intact, but not valid on this card; check it with the niclab that runs the device";
	case -EBUSY:
		return "the card is loading another program; try again when that one runs";
	case -EFBIG:
		return "it does not fit into the control store; shorten the program";
	default:
		return "the device refused it; see the device daemon's log";
	}
}

/* Reads how many programs the device has replaced since it was created. */
static int niclab_firmware_fallbacks(struct niclab *nic, u64 *fallbacks)
{
	*fallbacks = 0;
	/* Protocol components have no endless loops, so the device never replaces them. */
	if (niclab_has(nic, NICLAB_FEATURE_HAND_OVER))
		return 0;
	return niclab_counter_read(nic, "firmware_fallbacks", fallbacks);
}

/* Loads @bytes bytes of @image, or the built-in program if @bytes is 0, and records it. The NIC is locked. */
static int niclab_firmware_load(struct niclab *nic, const char *name, void *image, size_t bytes)
{
	struct niclab_firmware_load request = { .address = bytes ? virt_to_phys(image) : 0, .bytes = bytes };
	struct niclab_firmware_loaded loaded;
	u64 fallbacks;
	int err;

	/* Read first, so that a replacement directly after the load is not missed. */
	err = niclab_firmware_fallbacks(nic, &fallbacks);
	if (err)
		return err;
	err = niclab_control(nic, NICLAB_OP_FIRMWARE_LOAD, &request, sizeof(request), &loaded, sizeof(loaded));
	if (err)
		return err;
	strscpy(nic->firmware.name, name);
	nic->firmware.words = loaded.words;
	nic->firmware.checksum = loaded.checksum;
	nic->fallbacks = fallbacks;
	return 0;
}

static u64 niclab_firmware_handed_over(struct niclab *nic)
{
	u64 count;

	spin_lock_irq(&nic->event_lock);
	count = nic->causes[NICLAB_CAUSE_HANDED_OVER];
	spin_unlock_irq(&nic->event_lock);
	return count;
}

/* Waits until the firmware reload after reload number @before is complete. The NIC is not locked. */
static int niclab_firmware_wait(struct niclab *nic, u64 before)
{
	int err;

	if (!niclab_has(nic, NICLAB_FEATURE_HAND_OVER))
		return 0;
	err = wait_event_killable(nic->handed_over,
				  niclab_firmware_handed_over(nic) != before || READ_ONCE(nic->dead));
	if (err)
		return -EINTR;
	return READ_ONCE(nic->dead) ? -ENODEV : 0;
}

/**
 * niclab_firmware_start - loads the built-in program, also if an earlier driver loaded another.
 * @nic: the NIC, locked; its card takes firmware.
 *
 * A card that reloads its program while it runs keeps it: all cards of a cluster must run the same program.
 *
 * Return: 0 or an error.
 */
int niclab_firmware_start(struct niclab *nic)
{
	int err;

	if (!niclab_has(nic, NICLAB_FEATURE_FIRMWARE) || niclab_has(nic, NICLAB_FEATURE_HAND_OVER))
		return 0;
	err = niclab_firmware_load(nic, NICLAB_FIRMWARE_BUILTIN, NULL, 0);

	nic->builtin = nic->firmware;
	return err;
}

static int niclab_firmware_find(struct niclab *nic, const char *name, const struct firmware **found)
{
	char path[sizeof(NICLAB_FIRMWARE_FOLDER) + NICLAB_FIRMWARE_NAME_BYTES];
	int err;

	snprintf(path, sizeof(path), NICLAB_FIRMWARE_FOLDER "%s", name);
	err = firmware_request_nowarn(found, path, &nic->dev);
	if (err == -ENOENT)
		err = firmware_request_nowarn(found, name, &nic->dev);
	if (err)
		dev_err(&nic->dev, "firmware %s cannot be read (%pe); put it into /lib/firmware/" NICLAB_FIRMWARE_FOLDER "\n",
			name, ERR_PTR(err));
	return err;
}

/* Loads a firmware file. The NIC is not locked, because reading files may be slow. */
static int niclab_firmware_load_file(struct niclab *nic, const char *name, const struct firmware *file)
{
	bool quiet = true;
	void *image;
	int err;

	if (file->size > NICLAB_FIRMWARE_MOST_BYTES)
		return -EFBIG;
	/* Without bytes the request would mean the built-in program. */
	if (!file->size)
		return -ENOEXEC;
	/* The loader's own copy need not be physically contiguous. */
	image = kmemdup(file->data, file->size, GFP_KERNEL);
	if (!image)
		return -ENOMEM;
	err = niclab_lock(nic);
	if (!err) {
		err = niclab_firmware_load(nic, name, image, file->size);
		quiet = !err || niclab_is_refusal(err);
		mutex_unlock(&nic->lock);
	}
	/* A device that does not answer may still read this memory, so the memory must not be reused. */
	if (quiet)
		kfree(image);
	return err;
}

/**
 * niclab_firmware_store - loads a firmware by name.
 * @nic: the NIC, not locked; its card takes firmware.
 * @text: a file name, or "builtin", or only blanks for the built-in program; surrounding blanks are ignored.
 *
 * A program that is refused changes nothing. If the card reloads programs while it runs, this function returns when the
 * new program runs. Work of the old program has then ended.
 *
 * Return: 0; -EINVAL or -ENAMETOOLONG for an invalid name; the error of the firmware loader; -ENOEXEC, -EBADMSG,
 * -EPROTONOSUPPORT, -EILSEQ or -EFBIG for a bad image; another error of niclab_control().
 */
int niclab_firmware_store(struct niclab *nic, const char *text)
{
	const char *start = skip_spaces(text);
	size_t length = strcspn(start, " \t\r\n");
	char name[NICLAB_FIRMWARE_NAME_BYTES];
	u64 before = niclab_firmware_handed_over(nic);
	const struct firmware *file;
	int err;

	if (*skip_spaces(start + length))
		return -EINVAL;
	if (length >= sizeof(name))
		return -ENAMETOOLONG;
	memcpy(name, start, length);
	name[length] = '\0';
	if (!length || !strcmp(name, NICLAB_FIRMWARE_BUILTIN)) {
		err = niclab_lock(nic);
		if (err)
			return err;
		err = niclab_firmware_load(nic, NICLAB_FIRMWARE_BUILTIN, NULL, 0);
		mutex_unlock(&nic->lock);
		return err ? err : niclab_firmware_wait(nic, before);
	}
	err = niclab_firmware_find(nic, name, &file);
	if (err)
		return err;
	err = niclab_firmware_load_file(nic, name, file);
	release_firmware(file);
	if (err && err != -EINTR)
		dev_err(&nic->dev, "firmware %s is not loaded (%pe): %s; the previous program continues\n", name, ERR_PTR(err),
			niclab_firmware_fix(err));
	return err ? err : niclab_firmware_wait(nic, before);
}

/* Finds the program of a card that reloads while it runs: the cluster's host may have chosen it. */
static int niclab_firmware_running(struct niclab *nic, struct niclab_program *program)
{
	u64 checksum;
	int err = niclab_counter_read(nic, "program", &checksum);

	if (err || program->checksum == checksum)
		return err;
	strscpy(program->name, NICLAB_FIRMWARE_OTHER);
	program->words = 0;
	program->checksum = checksum;
	return 0;
}

/**
 * niclab_firmware_show - names the program that runs.
 * @nic: the NIC, not locked; its card takes firmware.
 * @text: a page for the text: name, words, checksum.
 *
 * Return: length of the text, or an error.
 */
ssize_t niclab_firmware_show(struct niclab *nic, char *text)
{
	struct niclab_program program;
	u64 fallbacks;
	int err;

	err = niclab_lock(nic);
	if (err)
		return err;
	err = niclab_firmware_fallbacks(nic, &fallbacks);
	program = fallbacks == nic->fallbacks ? nic->firmware : nic->builtin;
	if (!err && niclab_has(nic, NICLAB_FEATURE_HAND_OVER))
		err = niclab_firmware_running(nic, &program);
	mutex_unlock(&nic->lock);
	if (err)
		return err;
	return sysfs_emit(text, "%s %u %#010x\n", program.name, program.words, program.checksum);
}
