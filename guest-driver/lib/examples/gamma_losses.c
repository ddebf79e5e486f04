/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a network loses is told and never sent again: node 0 sends numbered messages to node 1 until that has told it to
 * stop, and node 1 says which came, and what was raised instead of the others. Run it on both, with a faulty link
 * between them:
 *
 *     niclab run --nodes 2 --cluster gamma.toml -- ./gamma_losses 2000
 *
 * A second number is for how many milliseconds node 0 waits when its window is used up, before it says that the pair is
 * stalled.
 *
 * The network may not lose what node 1 says at the end. So heal it once node 1 says "enough", and then write a line to
 * node 1's standard input.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "niclab.h"

#define PORT 4
#define BYTES 1000
#define BUFFERS 64
#define RETRY_US (20 * 1000)
#define PAUSE_US 300
#define TIMEOUT_US (30 * 1000 * 1000)

static uint64_t messages, first, last, disorder, raised, lost;
static int64_t limit_us = TIMEOUT_US;

static void check(int result, const char *what)
{
	if (result == NICLAB_OK)
		return;
	fprintf(stderr, "gamma_losses: %s: %s: %s\n", what, niclab_strerror(result), niclab_last_error());
	exit(EXIT_FAILURE);
}

static void on_message(const gamma_message *message, void *user)
{
	uint64_t number = 0;

	(void)user;
	memcpy(&number, message->data, message->bytes < sizeof(number) ? message->bytes : sizeof(number));
	/* How many there were for which nobody was here is known to nobody; what was raised before the first was sent before it. */
	if (!messages)
		first = number - lost;
	disorder += number <= last;
	last = number;
	messages++;
}

/* Sends until it is told to stop: by any message. */
static void send_all(gamma_port *port)
{
	static uint8_t message[BYTES];
	uint64_t number = 0;
	int result;

	while (!messages) {
		number++;
		memcpy(message, &number, sizeof(number));
		check(gamma_send(port, 1, PORT, message, BYTES, limit_us), "send");
		/* No faster than node 1 takes them. */
		result = gamma_poll(port, on_message, NULL, NULL, PAUSE_US);
		check(result == NICLAB_ERROR_TIMEOUT ? NICLAB_OK : result, "look for the end");
	}
	printf("node 0: %llu messages sent\n", (unsigned long long)number);
}

/* The errors say how many frames they stand for, each of which is a message here. */
static uint64_t lost_frames(void)
{
	const char *text = strchr(niclab_last_error(), '(');
	unsigned long long frames = 0;

	return text && sscanf(text, "(%llu frames lost)", &frames) == 1 ? frames : 0;
}

/* Whether there is a line to read, or nobody who would write one. */
static int is_told(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&input, 1, 0) > 0;
}

/* Looks for messages for a while, and counts what was raised instead of some. Returns whether there was anything. */
static int look(gamma_port *port, int64_t wait_us)
{
	int result = gamma_poll(port, on_message, NULL, NULL, wait_us);

	if (result == NICLAB_ERROR_TIMEOUT)
		return 0;
	if (result != NICLAB_ERROR_REFUSED)
		check(result, "wait for messages");
	if (result == NICLAB_ERROR_REFUSED) {
		lost += lost_frames();
		raised++;
	}
	return 1;
}

static void receive_all(gamma_port *port, uint64_t wanted)
{
	uint64_t idle = 0;
	int has_said = 0;

	printf("node 1: ready\n");
	fflush(stdout);
	while (!has_said || !is_told()) {
		idle = look(port, RETRY_US) ? 0 : idle + 1;
		if (idle * RETRY_US > TIMEOUT_US)
			check(NICLAB_ERROR_TIMEOUT, "wait for messages");
		if (messages < wanted || has_said)
			continue;
		printf("node 1: enough\n");
		fflush(stdout);
		has_said = 1;
	}
	check(gamma_send(port, 0, PORT, "stop", 4, TIMEOUT_US), "say stop");
	while (look(port, 50 * RETRY_US))
		;
	printf("node 1: %llu messages came of %llu, %llu frames lost, raised %llu times, %llu out of order\n",
	       (unsigned long long)messages, (unsigned long long)(last - first + 1), (unsigned long long)lost,
	       (unsigned long long)raised, (unsigned long long)disorder);
}

int main(int argc, char **argv)
{
	niclab_device *device;
	niclab_info info;
	gamma_port *port;

	check(niclab_open(NULL, &device), "open");
	check(niclab_get_info(device, &info), "info");
	check(gamma_open(device, PORT, BUFFERS, BYTES, NICLAB_SPIN, &port), "open a port");
	if (argc > 2)
		limit_us = 1000 * strtoll(argv[2], NULL, 10);
	if (info.node == 0)
		send_all(port);
	else if (info.node == 1)
		receive_all(port, argc > 1 ? strtoull(argv[1], NULL, 10) : 1000);
	gamma_close(port);
	niclab_close(device);
	return EXIT_SUCCESS;
}
