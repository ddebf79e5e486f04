// SPDX-License-Identifier: GPL-2.0
/*
 * The spill area: host memory for list entries that do not fit into the device's own.
 *
 * Without it the number of list entries is limited to those that fit into the device.
 */
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "niclab.h"

static unsigned int niclab_spill_kib = 256;
module_param_named(spill_kib, niclab_spill_kib, uint, 0444);
MODULE_PARM_DESC(spill_kib, "KiB of memory for list entries beyond the device's own, 64 bytes each; 0 for none (default 256)");

/**
 * niclab_spill_open - gives the device its spill area.
 * @nic: the NIC, locked; its card has lists.
 *
 * Return: 0, also, with a warning, if there is no memory or the device refuses it; -ENODEV or -EPROTO.
 */
int niclab_spill_open(struct niclab *nic)
{
	size_t bytes = PAGE_ALIGN((size_t)niclab_spill_kib * SZ_1K);
	struct niclab_spill_open request = { .bytes = bytes };
	int err;

	if (!bytes)
		return 0;
	nic->spill = alloc_pages_exact(bytes, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
	if (!nic->spill) {
		dev_warn(&nic->dev, "cannot allocate %zu contiguous bytes for list entries, so only %u can be linked; load niclab with a smaller spill_kib\n",
			 bytes, nic->config.list_entries);
		return 0;
	}
	nic->spill_bytes = bytes;
	request.address = virt_to_phys(nic->spill);
	err = niclab_control(nic, NICLAB_OP_SPILL_OPEN, &request, sizeof(request), NULL, 0);
	if (!err || !niclab_is_refusal(err))
		return err;
	dev_warn(&nic->dev, "the device refuses memory for list entries (%pe), so only %u can be linked; see the device daemon's log\n",
		 ERR_PTR(err), nic->config.list_entries);
	niclab_spill_free(nic, true);
	return 0;
}

/**
 * niclab_spill_free - frees the spill area.
 * @nic: the NIC, with or without a spill area.
 * @quiet: the device promised not to access it any more; otherwise it is never freed.
 */
void niclab_spill_free(struct niclab *nic, bool quiet)
{
	if (nic->spill)
		niclab_memory_free(nic, nic->spill, nic->spill_bytes, quiet);
	nic->spill = NULL;
}
