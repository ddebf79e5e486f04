/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * All nodes of a cluster add vectors, and one of them multicasts the sum, through INIC cards, in C. Run it on all:
 *
 *     niclab run --nodes 4 --nic inic -- ./inic_collective
 */
#include <stdio.h>
#include <stdlib.h>

#include "niclab.h"

#define GROUP 1
#define EVENTS 64
#define VALUES 100
#define BYTES (VALUES * sizeof(int64_t))
#define MOST_NODES 256
#define TIMEOUT_US (20 * 1000 * 1000)

static void check(int result, const char *what)
{
	if (result == NICLAB_OK)
		return;
	fprintf(stderr, "inic_collective: %s: %s: %s\n", what, niclab_strerror(result), niclab_last_error());
	exit(EXIT_FAILURE);
}

/* Waits for a successful event of this kind. */
static void await(niclab_inic_port *port, uint32_t kind, const char *what)
{
	niclab_inic_event event;

	check(niclab_inic_next_event(port, &event, TIMEOUT_US), what);
	if (event.kind == kind && event.result == 0)
		return;
	fprintf(stderr, "inic_collective: %s: %s\n", what, niclab_inic_result_text(event.result));
	exit(EXIT_FAILURE);
}

static void barrier(niclab_inic_port *port)
{
	check(niclab_inic_barrier(port, GROUP, 0, false, TIMEOUT_US), "request a barrier");
	await(port, NICLAB_INIC_DONE, "wait for all nodes");
}

int main(int count, char **arguments)
{
	niclab_device *device;
	niclab_inic_port *port;
	niclab_region *own, *received;
	niclab_info info;
	uint32_t nodes[MOST_NODES];
	int64_t *values, *sums, sum;

	check(niclab_open(count > 1 ? arguments[1] : NULL, &device), "open the NIC");
	check(niclab_get_info(device, &info), "read the NIC's information");
	check(niclab_inic_open(device, 0, EVENTS, &port), "open the port");
	check(niclab_inic_allocate(port, BYTES, &own), "register memory for the values");
	check(niclab_inic_allocate(port, BYTES, &received), "register memory for the received sum");
	values = niclab_region_memory(own);
	sums = niclab_region_memory(received);
	for (uint32_t node = 0; node < info.nodes && node < MOST_NODES; node++)
		nodes[node] = node;
	for (int64_t index = 0; index < VALUES; index++)
		values[index] = index * (info.node + 1);
	check(niclab_inic_receive(port, received, 0, BYTES, 0, false, TIMEOUT_US), "post a receive");
	check(niclab_inic_group(port, GROUP, nodes, info.nodes), "create the group");
	barrier(port);

	check(niclab_inic_reduce(port, GROUP, own, 0, BYTES, NICLAB_INIC_SUM, NICLAB_INIC_SIGNED_64, 0, false,
				 TIMEOUT_US), "request a sum");
	await(port, NICLAB_INIC_DONE, "wait for the sum");
	if (info.node == 0) {
		check(niclab_inic_multicast(port, GROUP, own, 0, BYTES, 0, false, TIMEOUT_US), "multicast the sum");
		await(port, NICLAB_INIC_DONE, "wait for the end of the multicast");
		sums = values;
	} else {
		await(port, NICLAB_INIC_RECEIVED, "receive the sum");
	}
	sum = (int64_t)info.nodes * (info.nodes + 1) / 2;
	for (int64_t index = 0; index < VALUES; index++) {
		if (values[index] == index * sum && sums[index] == index * sum)
			continue;
		fprintf(stderr, "inic_collective: value %d is wrong\n", (int)index);
		return EXIT_FAILURE;
	}
	barrier(port);
	printf("node %u: %u nodes have added %d values\n", info.node, info.nodes, VALUES);
	check(niclab_inic_group(port, GROUP, NULL, 0), "drop the group");
	niclab_region_release(own);
	niclab_region_release(received);
	niclab_inic_close(port);
	niclab_close(device);
	return EXIT_SUCCESS;
}
