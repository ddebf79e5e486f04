/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A ping-pong between port 0 of two neighbouring nodes, in C. Run it on both:
 *
 *     niclab run --nodes 2 -- ./pingpong
 */
#define _POSIX_C_SOURCE 199309L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "niclab.h"

#define PORT 0
#define SLICES 256
#define ROUNDS 1000
#define TIMEOUT_US (10 * 1000 * 1000)
#define RETRY_US (10 * 1000)
/* Number of greetings, RETRY_US apart, before the program gives up on the peer. */
#define GREETINGS 3000

static void check(int result, const char *what)
{
	if (result == NICLAB_OK)
		return;
	fprintf(stderr, "pingpong: %s: %s: %s\n", what, niclab_strerror(result), niclab_last_error());
	exit(EXIT_FAILURE);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* A tag of zero is a greeting; any other tag is the number of a round. */
static void send(niclab_ultra_port *port, uint64_t number, uint32_t flags)
{
	const uint64_t payload[2] = { number, ~number };
	const uint64_t tag[2] = { number, 0 };

	check(niclab_ultra_send(port, payload, 2, tag, flags, TIMEOUT_US), "send");
}

static void receive(niclab_ultra_port *port, uint64_t number)
{
	niclab_message message;

	do
		check(niclab_ultra_receive(port, &message, TIMEOUT_US), "receive");
	while (message.tag[0] == 0);
	if (message.tag[0] != number || message.words != 2 || message.payload[1] != ~number) {
		fprintf(stderr, "pingpong: round %llu: a wrong message\n", (unsigned long long)number);
		exit(EXIT_FAILURE);
	}
}

/*
 * The first node greets until the second one, which may not have opened its port yet, answers. Only greetings are lost;
 * they are repeated, and late ones are skipped.
 */
static void greet(niclab_ultra_port *port, int first)
{
	niclab_message message;
	int result = NICLAB_ERROR_TIMEOUT;

	for (int greeting = 0; greeting < GREETINGS && result == NICLAB_ERROR_TIMEOUT; greeting++) {
		if (first)
			send(port, 0, 0);
		result = niclab_ultra_receive(port, &message, RETRY_US);
	}
	check(result, "wait for the other node");
	if (!first)
		send(port, 0, 0);
}

int main(int count, char **arguments)
{
	niclab_device *device;
	niclab_ultra_port *port;
	niclab_info info;
	double began;
	int first;

	check(niclab_open(count > 1 ? arguments[1] : NULL, &device), "open the NIC");
	check(niclab_get_info(device, &info), "read the NIC's information");
	if ((info.node ^ 1) >= info.nodes) {
		printf("node %u has no neighbour\n", info.node);
		return EXIT_SUCCESS;
	}
	first = (info.node & 1) == 0;
	check(niclab_ultra_open(device, PORT, SLICES, &port), "open the port");
	/* Fastest if each node has a core of its own; otherwise keep the default, NICLAB_ADAPTIVE. */
	check(niclab_ultra_set_wait_policy(port, NICLAB_SPIN), "set the wait policy");
	check(niclab_ultra_authorize(port, info.node ^ 1, PORT, SLICES), "authorize the neighbour");
	check(niclab_ultra_route(port, info.node ^ 1, PORT), "route to the neighbour");

	greet(port, first);
	began = now_us();
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		if (first)
			send(port, round, 0);
		receive(port, round);
		if (!first)
			send(port, round, round == ROUNDS ? NICLAB_NOTIFY : 0);
	}
	if (first)
		printf("%d round trips of 16 bytes, %.2f us each (wall time)\n", ROUNDS, (now_us() - began) / ROUNDS);
	else
		check(niclab_ultra_flush(port, TIMEOUT_US), "send the last message");

	niclab_ultra_close(port);
	niclab_close(device);
	return EXIT_SUCCESS;
}
