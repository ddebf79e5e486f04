/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two nodes play ping-pong between active ports of GAMMA cards, in C; each answer is checked. Run it on both:
 *
 *     niclab run --nodes 2 --nic gamma -- ./gamma_pingpong
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "niclab.h"

#define PORT 3
#define BYTES 5000
#define ROUNDS 50
#define RETRY_US (100 * 1000)
#define TIMEOUT_US (20 * 1000 * 1000)

static uint8_t received[BYTES];
static uint64_t greetings, rounds;

static void check(int result, const char *what)
{
	if (result == NICLAB_OK)
		return;
	fprintf(stderr, "gamma_pingpong: %s: %s: %s\n", what, niclab_strerror(result), niclab_last_error());
	exit(EXIT_FAILURE);
}

/* The receiver handler. It runs in this process when the process polls. */
static void on_message(const gamma_message *message, void *user)
{
	(void)user;
	if (message->bytes != BYTES) {
		greetings++;
		return;
	}
	memcpy(received, message->data, BYTES);
	rounds++;
}

/* Node 1 greets until the first ball arrives: a message for a port that is not open is dropped. */
static void meet(gamma_port *port, uint32_t node)
{
	int result;

	while (node == 0 && !greetings)
		check(gamma_poll(port, on_message, NULL, NULL, TIMEOUT_US), "wait for the other node");
	while (node == 1 && !rounds) {
		check(gamma_send(port, 0, PORT, "hello", 5, TIMEOUT_US), "greet");
		result = gamma_poll(port, on_message, NULL, NULL, RETRY_US);
		if (result != NICLAB_ERROR_TIMEOUT)
			check(result, "wait for the other node");
	}
}

static void expect(gamma_port *port)
{
	uint64_t before = rounds;

	while (rounds == before)
		check(gamma_poll(port, on_message, NULL, NULL, TIMEOUT_US), "poll");
}

int main(int argc, char **argv)
{
	static uint8_t ball[BYTES];
	niclab_device *device;
	niclab_info info;
	gamma_port *port;

	check(niclab_open(argc > 1 ? argv[1] : NULL, &device), "open");
	check(niclab_get_info(device, &info), "info");
	check(gamma_open(device, PORT, 8, BYTES, NICLAB_SPIN, &port), "open a port");
	meet(port, info.node);
	for (uint32_t round = 0; round < ROUNDS && info.node < 2; round++) {
		memset(ball, (int)round, BYTES);
		if (info.node == 1 && round > 0)
			expect(port);
		check(gamma_send(port, 1 - info.node, PORT, ball, BYTES, TIMEOUT_US), "send");
		if (info.node == 0)
			expect(port);
		if (memcmp(ball, received, BYTES)) {
			fprintf(stderr, "gamma_pingpong: the reply of round %u is damaged\n", round);
			return EXIT_FAILURE;
		}
	}
	printf("node %u: %llu messages of %d bytes\n", info.node, (unsigned long long)rounds, BYTES);
	gamma_close(port);
	niclab_close(device);
	return EXIT_SUCCESS;
}
