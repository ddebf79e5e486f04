// SPDX-License-Identifier: GPL-2.0
/*
 * Firmware of the card: loaded by name through the kernel's firmware loader.
 *
 * The device keeps its program whatever a driver resets, and cannot be asked which it runs. The driver therefore loads
 * the built-in program when it starts, and notes what it loads from then on.
 */
#include <linux/firmware.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "niclab.h"

#define NICLAB_FIRMWARE_BUILTIN "builtin"
/* Folder of the firmware search path in which names are looked for first. */
#define NICLAB_FIRMWARE_FOLDER "niclab/"
/* What runs where neither this driver nor the card's maker has chosen it: the host of the cluster has. */
#define NICLAB_FIRMWARE_OTHER "other"
/* Longest image that is passed on to the device: more than any control store holds. */
#define NICLAB_FIRMWARE_MOST_BYTES SZ_256K

/* What to do about an image that the device refused. */
static const char *niclab_firmware_fix(int err)
{
	switch (err) {
	case -ENOEXEC:
		return "it is no image of niclab asm, or not all of one; copy it again";
	case -EBADMSG:
		return "its checksum does not fit its content; copy it again";
	case -EPROTONOSUPPORT:
		return "it is of a version that this device does not run; assemble it with the niclab that runs the device";
	case -EILSEQ:
		return "a word of it has a value that is not defined; assemble it with the niclab that runs the device";
	case -ERANGE:
		return "it is whole, and makes no sense on this card; check it with the niclab that runs the device";
	case -EBUSY:
		return "the card is taking another program already; try again when that runs";
	case -EFBIG:
		return "it is longer than the control store; shorten the program";
	default:
		return "the device did not take it; see its log";
	}
}

/* Programs that the device has replaced since it was made. */
static int niclab_firmware_fallbacks(struct niclab *nic, u64 *fallbacks)
{
	*fallbacks = 0;
	/* Parts of a protocol have no endless loops. */
	if (niclab_has(nic, NICLAB_FEATURE_HAND_OVER))
		return 0;
	return niclab_counter_read(nic, "firmware_fallbacks", fallbacks);
}

/* Loads @bytes bytes of @image, or with none the built-in program, and notes that it runs. With the NIC locked. */
static int niclab_firmware_load(struct niclab *nic, const char *name, void *image, size_t bytes)
{
	struct niclab_firmware_load request = { .address = bytes ? virt_to_phys(image) : 0, .bytes = bytes };
	struct niclab_firmware_loaded loaded;
	u64 fallbacks;
	int err;

	/* First, so that a program which is replaced as soon as it runs is not missed. */
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

/* Waits until a program runs that was loaded when @before programs had been handed over. With the NIC not locked. */
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
 * niclab_firmware_start - loads the built-in program, whatever an earlier driver has loaded.
 * @nic: the NIC, locked; its card takes firmware.
 *
 * A card that is handed over keeps what it has: the cards of a cluster must have the same.
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

/* Loads a firmware file, with the NIC not locked: files may be slow. */
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
	/* The loader's own copy need not be one piece of physical memory. */
	image = kmemdup(file->data, file->size, GFP_KERNEL);
	if (!image)
		return -ENOMEM;
	err = niclab_lock(nic);
	if (!err) {
		err = niclab_firmware_load(nic, name, image, file->size);
		quiet = !err || niclab_is_refusal(err);
		mutex_unlock(&nic->lock);
	}
	/* A device that does not answer may still read it; what it reads does not matter, but where it is does. */
	if (quiet)
		kfree(image);
	return err;
}

/**
 * niclab_firmware_store - loads the firmware of a name.
 * @nic: the NIC, not locked; its card takes firmware.
 * @text: a file name, or "builtin", or nothing but blanks for the same; blanks around it do not count.
 *
 * A program that is refused changes nothing. Of a card that is handed over, this returns when the program runs: what
 * was under way has ended then.
 *
 * Return: 0; -EINVAL or -ENAMETOOLONG for an impossible name; the error of the firmware loader; -ENOEXEC, -EBADMSG,
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
		dev_err(&nic->dev, "firmware %s is not loaded (%pe): %s; the program before goes on\n", name, ERR_PTR(err),
			niclab_firmware_fix(err));
	return err ? err : niclab_firmware_wait(nic, before);
}

/* What a card that is handed over runs, which the host of the cluster may have chosen. */
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
 * niclab_firmware_show - tells which program runs.
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
