// SPDX-License-Identifier: GPL-2.0
/*
 * The spill area: host memory for list entries that do not fit into the device's own.
 *
 * Without it a guest can do everything but have more list entries than the device holds.
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
 * Return: 0, also when there is no memory or the device does not want it, which is told; -ENODEV or -EPROTO.
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
		dev_warn(&nic->dev, "no %zu bytes in one piece for list entries, so that only %u can be linked; load niclab with a smaller spill_kib\n",
			 bytes, nic->config.list_entries);
		return 0;
	}
	nic->spill_bytes = bytes;
	request.address = virt_to_phys(nic->spill);
	err = niclab_control(nic, NICLAB_OP_SPILL_OPEN, &request, sizeof(request), NULL, 0);
	if (!err || !niclab_is_refusal(err))
		return err;
	dev_warn(&nic->dev, "the device does not take memory for list entries (%pe), so that only %u can be linked\n",
		 ERR_PTR(err), nic->config.list_entries);
	niclab_spill_free(nic, true);
	return 0;
}

/**
 * niclab_spill_free - takes the spill area back.
 * @nic: the NIC; whether it has one or not.
 * @quiet: the device promised to have forgotten it; otherwise it keeps it.
 */
void niclab_spill_free(struct niclab *nic, bool quiet)
{
	if (nic->spill)
		niclab_memory_free(nic, nic->spill, nic->spill_bytes, quiet);
	nic->spill = NULL;
}
