/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two neighbouring nodes write into each other's memory through Match NICs, in C. Run it on both:
 *
 *     niclab run --nodes 2 --nic match -- ./exchange
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "niclab.h"

#define PORT 0
#define EVENTS 64
#define PORTAL 0
#define GREETING 0x677265657400ULL
#define BYTES (1 << 20)
#define TIMEOUT_US (10 * 1000 * 1000)
#define PAUSE_US (10 * 1000)
/* Attempts before the program gives up on the peer. */
#define ATTEMPTS 3000

static void check(int result, const char *what)
{
	if (result == NICLAB_OK)
		return;
	fprintf(stderr, "exchange: %s: %s: %s\n", what, niclab_strerror(result), niclab_last_error());
	exit(EXIT_FAILURE);
}

/* Posts memory for one message from the peer. */
static void post(niclab_match_port *port, const niclab_region *into, uint32_t peer)
{
	niclab_match_entry entry = { 0 };

	entry.region = into;
	entry.bytes = BYTES;
	entry.match_bits = GREETING;
	entry.ignore_bits = 0xff;
	entry.portal = PORTAL;
	entry.source_node = peer;
	entry.source_port = PORT;
	entry.threshold = 1;
	entry.counter = NICLAB_MATCH_NO_COUNTER;
	entry.flags = NICLAB_MATCH_PUTS | NICLAB_MATCH_NO_UNLINK_EVENT;
	check(niclab_match_append(port, &entry, NULL, TIMEOUT_US), "post the receive");
}

/* Puts a whole region. The acknowledgement reports whether the peer had posted its memory. */
static void put(niclab_match_port *port, const niclab_region *from, uint32_t node, uint32_t peer)
{
	niclab_match_transfer transfer = { 0 };

	transfer.region = from;
	transfer.bytes = BYTES;
	transfer.match_bits = GREETING | (node & 0xff);
	transfer.node = peer;
	transfer.port = PORT;
	transfer.portal = PORTAL;
	transfer.counter = NICLAB_MATCH_NO_COUNTER;
	transfer.flags = NICLAB_MATCH_ACK;
	check(niclab_match_put(port, &transfer, NULL, TIMEOUT_US), "put");
}

int main(int count, char **arguments)
{
	niclab_device *device;
	niclab_match_port *port;
	niclab_region *into, *from;
	niclab_match_event event;
	niclab_info info;
	uint32_t peer;
	int received = 0, stored = 0, attempts = 0, result;

	check(niclab_open(count > 1 ? arguments[1] : NULL, &device), "open the NIC");
	check(niclab_get_info(device, &info), "read the NIC's information");
	peer = info.node ^ 1;
	if (peer >= info.nodes) {
		printf("node %u has no neighbour\n", info.node);
		return EXIT_SUCCESS;
	}
	check(niclab_match_open(device, PORT, EVENTS, &port), "open the port");
	check(niclab_match_allocate(port, BYTES, &into), "register memory to receive into");
	check(niclab_match_allocate(port, BYTES, &from), "register memory to send from");
	memset(niclab_region_memory(from), (int)(info.node + 1), BYTES);

	post(port, into, peer);
	put(port, from, info.node, peer);
	while (!received || !stored) {
		result = niclab_match_next_event(port, &event, TIMEOUT_US);
		check(result, "wait for the other node");
		if (event.kind == NICLAB_MATCH_PUT) {
			received = 1;
		} else if (event.kind == NICLAB_MATCH_ACKNOWLEDGED && event.result == 0) {
			stored = 1;
		} else if (event.kind == NICLAB_MATCH_ACKNOWLEDGED && attempts++ < ATTEMPTS) {
			/* The peer has not posted its memory yet. This wait ends early if its message arrives first. */
			result = received ? NICLAB_ERROR_TIMEOUT : niclab_match_next_event(port, &event, PAUSE_US);
			received |= result == NICLAB_OK && event.kind == NICLAB_MATCH_PUT;
			put(port, from, info.node, peer);
		} else {
			fprintf(stderr, "exchange: %s\n", niclab_match_result_text(event.result));
			return EXIT_FAILURE;
		}
	}
	for (size_t index = 0; index < BYTES; index++) {
		if (((unsigned char *)niclab_region_memory(into))[index] != peer + 1) {
			fprintf(stderr, "exchange: byte %zu is wrong\n", index);
			return EXIT_FAILURE;
		}
	}
	printf("node %u wrote %d bytes into the memory of node %u\n", peer, BYTES, info.node);
	niclab_region_release(from);
	niclab_region_release(into);
	niclab_match_close(port);
	niclab_close(device);
	return EXIT_SUCCESS;
}
