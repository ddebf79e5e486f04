/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Nodes of a cluster call one another's handlers through GRIM cards, in C. Run it on all:
 *
 *     niclab run --nodes 3 --nic grim -- ./grim_handlers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "niclab.h"

#define PORT 0
#define BYTES 10000
#define TIMEOUT_US (20 * 1000 * 1000)

struct state {
	uint32_t questions, answers, over, answer;
	int is_wrong;
};

static void check(int result, const char *what)
{
	if (result == NICLAB_OK)
		return;
	fprintf(stderr, "grim_handlers: %s: %s: %s\n", what, niclab_strerror(result), niclab_last_error());
	exit(EXIT_FAILURE);
}

/* Sends the payload back, every byte one more. */
static void on_question(grim_queue *send_queue, const grim_message *message, void *user)
{
	const uint8_t *payload = message->payload;
	struct state *state = user;
	uint8_t bytes[BYTES];

	state->questions++;
	for (uint64_t index = 0; index < message->bytes && index < BYTES; index++)
		bytes[index] = payload[index] + 1;
	check(grim_queue_bulk(send_queue, 0, message->source_node, message->source_port, state->answer,
			      message->arguments, bytes, message->bytes), "answer");
}

static void on_answer(grim_queue *send_queue, const grim_message *message, void *user)
{
	const uint8_t *payload = message->payload;
	struct state *state = user;

	(void)send_queue;
	state->answers++;
	state->is_wrong |= message->bytes != BYTES;
	for (uint64_t index = 0; index < message->bytes; index++)
		state->is_wrong |= payload[index] != (uint8_t)(index + message->arguments[0] + 1);
}

static void on_over(grim_queue *send_queue, const grim_message *message, void *user)
{
	(void)send_queue;
	(void)message;
	((struct state *)user)->over++;
}

int main(int count, char **arguments)
{
	struct state state = { 0 };
	uint32_t values[4] = { 0 }, question, over;
	uint8_t bytes[BYTES];
	niclab_device *device;
	niclab_info info;
	grim *grim;

	check(niclab_open(count > 1 ? arguments[1] : NULL, &device), "open the NIC");
	check(niclab_get_info(device, &info), "read the NIC's information");
	check(grim_enable(device, PORT, 1, 0, PORT, &grim), "enable the library");
	check(grim_register_handler(grim, "question", GRIM_ANY_NUMBER, on_question, &state), "register");
	check(grim_register_handler(grim, "answer", GRIM_ANY_NUMBER, on_answer, &state), "register");
	check(grim_register_handler(grim, "over", GRIM_ANY_NUMBER, on_over, &state), "register");
	check(grim_synch_handlers(grim, TIMEOUT_US), "synchronise handlers");
	/* First, because a question may arrive with the next poll. */
	check(grim_get_handler_by_name(grim, "answer", &state.answer, TIMEOUT_US), "find a handler");
	check(grim_get_handler_by_name(grim, "question", &question, TIMEOUT_US), "find a handler");
	check(grim_get_handler_by_name(grim, "over", &over, TIMEOUT_US), "find a handler");

	/* The first node waits for the others: a node that asks is ready. */
	for (uint32_t index = 0; index < BYTES; index++)
		bytes[index] = index + info.node;
	values[0] = info.node;
	if (info.node > 0) {
		check(grim_send_bulk(grim, 0, 0, PORT, question, values, bytes, BYTES, TIMEOUT_US),
		      "send the question");
		while (state.answers < 1)
			check(grim_poll(grim, NULL, TIMEOUT_US), "wait for the answer");
	}
	while (info.node == 0 && state.questions < info.nodes - 1)
		check(grim_poll(grim, NULL, TIMEOUT_US), "wait for questions");
	/* It notifies all of them when it has answered all questions. */
	for (uint32_t node = 1; info.node == 0 && node < info.nodes; node++)
		check(grim_send_short(grim, 0, node, PORT, over, values, TIMEOUT_US), "send the end message");
	while (info.node > 0 && state.over < 1)
		check(grim_poll(grim, NULL, TIMEOUT_US), "wait for the end");
	check(grim_flush(grim, TIMEOUT_US), "wait until all has left");
	if (state.is_wrong) {
		fprintf(stderr, "grim_handlers: node %u: an answer is wrong\n", info.node);
		return EXIT_FAILURE;
	}
	printf("node %u: %u questions, %u answers\n", info.node, state.questions, state.answers);
	grim_disable(grim);
	niclab_close(device);
	return EXIT_SUCCESS;
}
