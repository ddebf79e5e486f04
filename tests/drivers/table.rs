//! Drivers with one bug each, as exact changes of correct sources. The bugs are of the kinds that reviewers of kernel
//! drivers find. A change includes all that it needs (a variable, a second place).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The driver whose source is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The example for an ULTRA card.
    Ultra,
    /// The example for a GAMMA card.
    Gamma,
    /// The example for a Match card.
    Match,
    /// niclab's own, with an ULTRA card.
    Ours,
}

/// The check that is expected to name a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// A rule of the device.
    Rule(&'static str),
    /// A rule of the device, with a guest kernel that clears freed memory.
    RuleOnDebugKernel(&'static str),
    /// A debug kernel.
    Kernel(&'static str),
    /// A card that gives a value out of range, on any kernel; and the failure that it causes.
    Believed(&'static str),
    /// No check, and why.
    NotFound(&'static str),
}

/// A change in one place.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// The file in the driver's folder.
    pub file: &'static str,
    /// The original text, which occurs once.
    pub sound: &'static str,
    /// The replacement.
    pub broken: &'static str,
}

/// A driver with a bug.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The name of the bug.
    pub name: &'static str,
    /// The kind of bug in real drivers.
    pub class: &'static str,
    pub driver: Driver,
    pub finder: Finder,
    pub edits: &'static [Edit],
}

/// All drivers with bugs.
pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "launch-before-payload",
        class: "missing write barrier: a descriptor is posted before its data is stored",
        driver: Driver::Ultra,
        finder: Finder::Rule("slot-unchanged"),
        edits: &[Edit {
            file: "example.c",
            sound: "	for (i = first; i < NICLAB_PAYLOAD_WORDS + NICLAB_TAG_WORDS; i++)
		writeq(words[i], slot + i * sizeof(u64));
	/* The payload must be visible before the launch word that announces it. */
	wmb();
	e->launched++;
	writeq(e->launched << NICLAB_LAUNCH_SEQUENCE_SHIFT | first << NICLAB_CODE_LENGTH_SHIFT,
	       slot + NICLAB_SLOT_LAUNCH_WORD * sizeof(u64));
",
            broken: "	e->launched++;
	writeq(e->launched << NICLAB_LAUNCH_SEQUENCE_SHIFT | first << NICLAB_CODE_LENGTH_SHIFT,
	       slot + NICLAB_SLOT_LAUNCH_WORD * sizeof(u64));
	for (i = first; i < NICLAB_PAYLOAD_WORDS + NICLAB_TAG_WORDS; i++)
		writeq(words[i], slot + i * sizeof(u64));
",
        }],
    },
    Variant {
        name: "doorbell-read-before-the-store",
        class: "store and load in the wrong order: the wake-up word is read before the work is visible, so a \
            wake-up is lost",
        driver: Driver::Ultra,
        finder: Finder::NotFound(
            "a waiting driver polls again within 100 ms, and rings; one doorbell for two stores is allowed",
        ),
        edits: &[
            Edit {
                file: "example.c",
                sound: "	u32 i;

	for (i = first;",
                broken: "	bool is_wanted = readq(e->card.bar + NICLAB_INFO_DOORBELL_OFFSET) != \
                    NICLAB_DOORBELL_SPARED;
	u32 i;

	for (i = first;",
            },
            Edit {
                file: "example.c",
                sound: "	       slot + NICLAB_SLOT_LAUNCH_WORD * sizeof(u64));
	ring_if_wanted(&e->card);",
                broken: "	       slot + NICLAB_SLOT_LAUNCH_WORD * sizeof(u64));
	if (is_wanted)
		virtqueue_notify(e->card.queues[NICLAB_QUEUE_DOORBELL]);",
            },
        ],
    },
    Variant {
        name: "no-doorbell",
        class: "missing kick: descriptors are posted, and the device is not notified",
        driver: Driver::Ultra,
        finder: Finder::Rule("launch-doorbell"),
        edits: &[Edit {
            file: "example.c",
            sound: "		virtqueue_notify(card->queues[NICLAB_QUEUE_DOORBELL]);
",
            broken: "",
        }],
    },
    Variant {
        name: "barrier-left-out",
        class: "missing full barrier between a store and the load of the wake-up word",
        driver: Driver::Ultra,
        finder: Finder::NotFound(
            "the processor must reorder a load before a store at the moment when the device goes to sleep",
        ),
        edits: &[Edit { file: "example.c", sound: "	mb();\n", broken: "" }],
    },
    Variant {
        name: "slot-reused-while-busy",
        class: "ring overrun: the free room is wrong, and the driver fills an entry that the device still owns",
        driver: Driver::Ultra,
        finder: Finder::Rule("slot-free"),
        edits: &[Edit {
            file: "example.c",
            sound: "READ_ONCE(e->received->status.launched) < NICLAB_SLOTS;",
            broken: "READ_ONCE(e->received->status.launched) < 2 * NICLAB_SLOTS;",
        }],
    },
    Variant {
        name: "release-ahead",
        class: "credits are returned for buffers that are not consumed",
        driver: Driver::Ultra,
        finder: Finder::Rule("release-number"),
        edits: &[Edit {
            file: "example.c",
            sound: "	e->released = e->taken;",
            broken: "	e->released = e->taken + SLICES / 4;",
        }],
    },
    Variant {
        name: "stale-generation",
        class: "an entry of the previous lap counts as a new one: only a part of its number is compared",
        driver: Driver::Ultra,
        finder: Finder::Rule("release-number"),
        edits: &[Edit {
            file: "example.c",
            sound: "	if (status >> NICLAB_SLICE_NUMBER_SHIFT != (u32)number || !(status & NICLAB_SLICE_VALID))",
            broken: "	if ((status >> NICLAB_SLICE_NUMBER_SHIFT) % SLICES != number % SLICES || !(status & \
                NICLAB_SLICE_VALID))",
        }],
    },
    Variant {
        name: "number-used-up-at-an-error",
        class: "an error path releases less than was reserved: an unfilled slot of the ring is used up",
        driver: Driver::Ultra,
        finder: Finder::Rule("launch-number"),
        edits: &[Edit {
            file: "example.c",
            sound: "	if (copy_from_user(&words[first], user, bytes))
		return -EFAULT;
",
            broken: "	if (copy_from_user(&words[first], user, bytes)) {
		e->launched++;
		return -EFAULT;
	}
",
        }],
    },
    Variant {
        name: "event-buffers-kept",
        class: "buffers of a completion queue are never returned: the device has no buffer for further events",
        driver: Driver::Ultra,
        finder: Finder::Rule("event-buffers-back"),
        edits: &[Edit {
            file: "card.h",
            sound: "	while ((event = virtqueue_get_buf(queue, &written)))
		card_give_event(queue, event);
	virtqueue_kick(queue);
",
            broken: "	while ((event = virtqueue_get_buf(queue, &written)))
		;
",
        }],
    },
    Variant {
        name: "receive-memory-cleared",
        class: "the driver writes into memory that the device has mapped for writing",
        driver: Driver::Ultra,
        finder: Finder::Rule("port-memory-untouched"),
        edits: &[Edit {
            file: "example.c",
            sound: "		slice = *arrived;
",
            broken: "		slice = *arrived;
	if (!err)
		memset(&e->received->slices[e->taken % SLICES], 0, sizeof(slice));
",
        }],
    },
    Variant {
        name: "freed-before-reset",
        class: "receive memory is freed while the device may still write there",
        driver: Driver::Ultra,
        finder: Finder::RuleOnDebugKernel("port-memory-untouched"),
        edits: &[Edit {
            file: "example.c",
            sound: "	misc_deregister(&card->misc);
	example_stop(card);",
            broken: "	struct example *e = container_of(card, struct example, card);

	misc_deregister(&card->misc);
	spin_lock_irq(&card->lock);
	card->is_gone = true;
	spin_unlock_irq(&card->lock);
	devm_release_action(&vdev->dev, card_area_free, e->card.area);
	example_stop(card);",
        }],
    },
    Variant {
        name: "length-believed",
        class: "a length from the device is used without a bounds check",
        driver: Driver::Ultra,
        finder: Finder::Kernel("KASAN"),
        edits: &[
            Edit {
                file: "example.c",
                sound: "	u64 whole, first;
	int err;
",
                broken: "	u64 whole, *payload;
	int err;
",
            },
            Edit {
                file: "example.c",
                sound: "	first = NICLAB_PAYLOAD_WORDS - DIV_ROUND_UP(whole, sizeof(u64));
	return copy_to_user(user, &slice.payload[first], bytes) ? -EFAULT : bytes;",
                broken: "	payload = kzalloc(sizeof(slice.payload), GFP_KERNEL);
	if (!payload)
		return -ENOMEM;
	whole = slice.status & NICLAB_SLICE_WORDS_MASK;
	memcpy(payload, &slice.tag[0] - whole, whole * sizeof(u64));
	err = copy_to_user(user, payload, bytes) ? -EFAULT : 0;
	kfree(payload);
	return err ? err : bytes;",
            },
        ],
    },
    Variant {
        name: "count-believed",
        class: "a completion index from the device is trusted: it may complete more than was submitted",
        driver: Driver::Ultra,
        finder: Finder::Believed("panic"),
        edits: &[
            Edit {
                file: "example.c",
                sound: "	u64 launched, taken, released;
",
                broken: "	u64 launched, taken, released, completed;
	u64 batches[NICLAB_SLOTS + 1];
",
            },
            Edit {
                file: "example.c",
                sound: "	return e->launched - READ_ONCE(e->received->status.launched) < NICLAB_SLOTS;
",
                broken: "	u64 completed = READ_ONCE(e->received->status.launched);
	u32 batch = completed - e->completed;

	e->batches[batch]++;
	e->completed = completed;
	return e->launched - completed < NICLAB_SLOTS;
",
            },
        ],
    },
    Variant {
        name: "port-believed",
        class: "an identifier from the device is an array index without a bounds check",
        driver: Driver::Ultra,
        finder: Finder::Believed("panic"),
        edits: &[
            Edit {
                file: "example.c",
                sound: "	struct slice slices[SLICES];
};",
                broken: "	struct slice slices[SLICES];
	u64 from[8];
};",
            },
            Edit {
                file: "example.c",
                sound: "		slice = *arrived;
",
                broken: "		slice = *arrived;
	if (!err)
		e->received->from[slice.status >> NICLAB_SLICE_PORT_SHIFT & 0xff]++;
",
            },
        ],
    },
    Variant {
        name: "index-unmasked",
        class: "an index into a ring is never wrapped",
        driver: Driver::Ultra,
        finder: Finder::Kernel("UBSAN or KASAN"),
        edits: &[
            Edit {
                file: "example.c",
                sound: "	u64 launched, taken, released;
",
                broken: "	u64 launched, taken, released;
	u32 wakes;
	unsigned long woken[16];
",
            },
            Edit {
                file: "example.c",
                sound: "	wake_up_all(&card->changed);
}

static void example_stop",
                broken: "	struct example *e = container_of(card, struct example, card);

	e->woken[e->wakes++] = jiffies;
	wake_up_all(&card->changed);
}

static void example_stop",
            },
        ],
    },
    Variant {
        name: "size-of-a-pointer",
        class: "a buffer's length is the size of its pointer",
        driver: Driver::Ultra,
        finder: Finder::Rule("event-buffer-size"),
        edits: &[Edit {
            file: "card.h",
            sound: "	sg_init_one(&in, event, sizeof(*event));",
            broken: "	sg_init_one(&in, event, sizeof(event));",
        }],
    },
    Variant {
        name: "no-reset-at-unbind",
        class: "the device is not stopped before its memory is freed",
        driver: Driver::Ultra,
        finder: Finder::Kernel("warning of the virtio core"),
        edits: &[Edit { file: "card.h", sound: "	virtio_reset_device(card->vdev);\n", broken: "" }],
    },
    Variant {
        name: "file-outlives-the-device",
        class: "race between unbind and close: an open file holds no reference to the card",
        driver: Driver::Ultra,
        finder: Finder::Kernel("KASAN"),
        edits: &[
            Edit { file: "card.h", sound: "	kref_get(&card_of(filp)->uses);\n", broken: "" },
            Edit { file: "card.h", sound: "	kref_put(&card_of(filp)->uses, card_free);\n", broken: "" },
        ],
    },
    Variant {
        name: "request-reused-unanswered",
        class: "a slow request is repeated in the same memory",
        driver: Driver::Ultra,
        finder: Finder::Rule("request-unchanged"),
        edits: &[Edit {
            file: "card.h",
            sound: "	err = read_poll_timeout(virtqueue_get_buf, done, done, USEC_PER_MSEC,
				card->config.control_timeout_ms * USEC_PER_MSEC, false, queue,
				&written);
	if (err)
		return err;",
            broken: "	err = read_poll_timeout(virtqueue_get_buf, done, done, USEC_PER_MSEC,
				20 * USEC_PER_MSEC, false, queue, &written);
	if (err)
		return card_request(card, operation, body, body_bytes, answer, answer_bytes);",
        }],
    },
    Variant {
        name: "completion-taken-twice",
        class: "an interrupt counts as a completion: two interrupts for one completion count twice",
        driver: Driver::Ultra,
        finder: Finder::Rule("release-number"),
        edits: &[
            Edit {
                file: "example.c",
                sound: "	u64 launched, taken, released;
",
                broken: "	u64 launched, taken, released;
	atomic_t told;
",
            },
            Edit {
                file: "example.c",
                sound: "	wake_up_all(&card->changed);
}

static void example_stop",
                broken: "	atomic_inc(&container_of(card, struct example, card)->told);
	wake_up_all(&card->changed);
}

static void example_stop",
            },
            Edit {
                file: "example.c",
                sound: "	if (!err)
		slice = *arrived;
",
                broken: "	if (!err)
		slice = e->received->slices[e->taken % SLICES];
",
            },
            Edit {
                file: "example.c",
                sound: "	while (left >= 0 && !card->is_gone && !(*slice = slice_ahead(e, 1))) {
",
                broken: "	while (left >= 0 && !card->is_gone && !atomic_add_unless(&e->told, -1, 0) &&
	       !slice_ahead(e, 1)) {
",
            },
        ],
    },
    Variant {
        name: "sleep-in-atomic-context",
        class: "an allocation that may sleep, under a spinlock",
        driver: Driver::Gamma,
        finder: Finder::Kernel("sleeping function called from invalid context"),
        edits: &[Edit {
            file: "example.c",
            sound: "kmalloc(struct_size(message, data, bytes), GFP_ATOMIC);",
            broken: "kmalloc(struct_size(message, data, bytes), GFP_KERNEL);",
        }],
    },
    Variant {
        name: "leak-at-an-error",
        class: "an error path frees no memory",
        driver: Driver::Gamma,
        finder: Finder::Kernel("kmemleak"),
        edits: &[Edit {
            file: "example.c",
            sound: "	if (copy_to_user(user, message->data, done))
		done = -EFAULT;
	kfree(message);",
            broken: "	if (copy_to_user(user, message->data, done))
		return -EFAULT;
	kfree(message);",
        }],
    },
    Variant {
        name: "work-after-unbind",
        class: "race between unbind and deferred work, which unbind does not cancel",
        driver: Driver::Gamma,
        finder: Finder::Kernel("KASAN or debug objects"),
        edits: &[Edit { file: "example.c", sound: "	cancel_delayed_work_sync(&e->look);\n", broken: "" }],
    },
    Variant {
        name: "address-of-mapped-memory",
        class: "memory of vmalloc is given to a device as contiguous memory",
        driver: Driver::Gamma,
        finder: Finder::Kernel("bug: virt_to_phys"),
        edits: &[Edit {
            file: "example.c",
            sound: "	next->address = page_to_phys(vmalloc_to_page(frame)) + offset_in_page(frame);",
            broken: "	next->address = virt_to_phys(frame);",
        }],
    },
    Variant {
        name: "lock-order",
        class: "two locks are taken in either order",
        driver: Driver::Ours,
        finder: Finder::Kernel("lockdep"),
        edits: &[Edit {
            file: "niclab_map.c",
            sound: "	down_read(&file->nic->map_lock);
	err = niclab_view_find(file, vma->vm_pgoff, &view);
	up_read(&file->nic->map_lock);",
            broken: "	down_read(&file->nic->map_lock);
	err = niclab_lock(file->nic);
	if (!err) {
		err = niclab_view_find(file, vma->vm_pgoff, &view);
		mutex_unlock(&file->nic->lock);
	}
	up_read(&file->nic->map_lock);",
        }],
    },
    Variant {
        name: "port-memory-freed-before-close",
        class: "memory is unpinned or freed before the device has released it",
        driver: Driver::Ours,
        finder: Finder::RuleOnDebugKernel("port-memory-untouched"),
        edits: &[
            Edit {
                file: "niclab_port.c",
                sound: "	niclab_port_announce(file->nic);
	niclab_port_forget(file, niclab_port_ask_close(file), regions);",
                broken: "	niclab_port_announce(file->nic);
	niclab_memory_free(file->nic, file->memory, file->memory_bytes, true);
	file->memory = NULL;
	niclab_port_forget(file, niclab_port_ask_close(file), regions);",
            },
            Edit {
                file: "niclab_port.c",
                sound: "	niclab_memory_free(nic, file->memory, file->memory_bytes, quiet);
	file->memory = NULL;",
                broken: "	if (file->memory)
		niclab_memory_free(nic, file->memory, file->memory_bytes, quiet);
	file->memory = NULL;",
            },
        ],
    },
    Variant {
        name: "time-out-that-frees",
        class: "after a timeout the driver frees the memory of a pending answer",
        driver: Driver::Ours,
        finder: Finder::Rule("request-unchanged"),
        edits: &[
            Edit {
                file: "niclab_control.c",
                sound: "niclab_limit_begin(&limit, nic->config.control_timeout_ms);",
                broken: "niclab_limit_begin(&limit, 20);",
            },
            Edit {
                file: "niclab_control.c",
                sound: "	if (written < 0) {
",
                broken: "	if (written == -ETIMEDOUT) {
		kfree(nic->control);
		if (niclab_control_init(nic))
			return -ENOMEM;
		return niclab_control(nic, operation, body, body_bytes, answer, answer_bytes);
	}
	if (written < 0) {
",
            },
        ],
    },
];

/// This project's folder.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Driver {
    /// Its folder in the project.
    pub fn folder(self) -> PathBuf {
        project().join(match self {
            Self::Ultra => "guest-driver/examples/ultra",
            Self::Gamma => "guest-driver/examples/gamma",
            Self::Match => "guest-driver/examples/match",
            Self::Ours => "guest-driver/kernel",
        })
    }

    /// The card that the driver is for.
    pub fn nic(self) -> &'static str {
        match self {
            Self::Gamma => "gamma",
            Self::Match => "match",
            Self::Ultra | Self::Ours => "ultra",
        }
    }
}

impl Variant {
    /// Writes the driver's sources with this bug to an existing folder.
    ///
    /// If a file cannot be read or written, or a text to change does not occur exactly once.
    pub fn plant(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(self.driver.folder())? {
            let entry = entry?;
            // Follows symbolic links, which the examples have.
            if !fs::metadata(entry.path())?.is_file() {
                continue;
            }
            let mut source = fs::read_to_string(entry.path())?;
            for edit in self.edits.iter().filter(|edit| entry.file_name() == edit.file) {
                let places = source.matches(edit.sound).count();
                if places != 1 {
                    let why = format!("{}: {} occurs {places} times in {}", self.name, edit.sound, edit.file);
                    return Err(io::Error::other(why));
                }
                source = source.replacen(edit.sound, edit.broken, 1);
            }
            fs::write(folder.join(entry.file_name()), source)?;
        }
        Ok(())
    }
}
