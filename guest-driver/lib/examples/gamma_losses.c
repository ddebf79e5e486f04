/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A loss in the network is reported and never repaired. Node 0 sends numbered messages until node 1 notifies it to
 * stop. Node 1 prints how many arrived, and how many losses were raised. Run it on both nodes, with a faulty link
 * between them:
 *
 *     niclab run --nodes 2 --cluster gamma.toml -- ./gamma_losses 2000
 *
 * A second number is the time in milliseconds that node 0 waits with a used-up window before it reports a stall.
 *
 * The network must not lose node 1's last message. So remove the faults once node 1 prints "enough", and then write a
 * line to node 1's standard input.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "niclab.h"

#define PORT 4
#define BYTES 1000
/* Node 1 may not run for a third of a second. A message without a buffer is dropped, and not counted here. */
#define BUFFERS 1024
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
	/* Messages before node 1 opened its port do not count. Losses raised before the first message precede it. */
	if (!messages)
		first = number - lost;
	disorder += number <= last;
	last = number;
	messages++;
}

/* Sends until any message arrives, which means stop. */
static void send_all(gamma_port *port)
{
	static uint8_t message[BYTES];
	uint64_t number = 0;
	int result;

	while (!messages) {
		number++;
		memcpy(message, &number, sizeof(number));
		check(gamma_send(port, 1, PORT, message, BYTES, limit_us), "send");
		/* Pause, so as not to send faster than node 1 receives. */
		result = gamma_poll(port, on_message, NULL, NULL, PAUSE_US);
		check(result == NICLAB_ERROR_TIMEOUT ? NICLAB_OK : result, "poll for the end");
	}
	printf("node 0: %llu messages sent\n", (unsigned long long)number);
}

/* An error contains the number of lost frames; here each frame is a message. */
static uint64_t lost_frames(void)
{
	const char *text = strchr(niclab_last_error(), '(');
	unsigned long long frames = 0;

	return text && sscanf(text, "(%llu frames lost)", &frames) == 1 ? frames : 0;
}

/* Whether standard input has a line, or is closed. */
static int has_input(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&input, 1, 0) > 0;
}

/* Polls for messages for a while, and counts losses that are raised. Returns whether there was either. */
static int poll_port(gamma_port *port, int64_t wait_us)
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
	int has_reported = 0;

	printf("node 1: ready\n");
	fflush(stdout);
	while (!has_reported || !has_input()) {
		idle = poll_port(port, RETRY_US) ? 0 : idle + 1;
		if (idle * RETRY_US > TIMEOUT_US)
			check(NICLAB_ERROR_TIMEOUT, "wait for messages");
		if (messages < wanted || has_reported)
			continue;
		printf("node 1: enough\n");
		fflush(stdout);
		has_reported = 1;
	}
	check(gamma_send(port, 0, PORT, "stop", 4, TIMEOUT_US), "send stop");
	while (poll_port(port, 50 * RETRY_US))
		;
	printf("node 1: %llu of %llu messages arrived, %llu frames lost, raised %llu times, %llu out of order\n",
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
