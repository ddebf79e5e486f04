/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An ordinary socket and a program with a GRIM card communicate through the I/O card of a third node, whose host is not
 * involved. Run it on three nodes, of which the second has an I/O card:
 *
 *     [[node]]
 *     [[node]]
 *     nic = { model = "grim", grim.io_card_channel = 7 }
 *     [[node]]
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "niclab.h"

#define PORT 0
#define IO_CARD 7
#define BRIDGE_PORT 4000
#define SOCKET_PORT 4001
#define BYTES 1000
#define TIMEOUT_US (20 * 1000 * 1000)

struct state {
	uint32_t ready, answers;
	int is_wrong;
};

static void fail(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static void check(int result, const char *what)
{
	if (result == NICLAB_OK)
		return;
	fprintf(stderr, "grim_bridge: %s: %s: %s\n", what, niclab_strerror(result), niclab_last_error());
	exit(EXIT_FAILURE);
}

/* The address of a node's Ethernet function, by rank. */
static uint32_t address_of(unsigned rank)
{
	const char *addresses = getenv("NICLAB_ADDRESSES");
	char text[INET_ADDRSTRLEN] = "";
	struct in_addr address;

	for (; addresses && rank > 0; rank--) {
		addresses = strchr(addresses, ',');
		addresses = addresses ? addresses + 1 : NULL;
	}
	if (addresses)
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(addresses, ","), addresses);
	if (inet_pton(AF_INET, text, &address) != 1) {
		fprintf(stderr, "grim_bridge: NICLAB_ADDRESSES lacks a node: use `niclab run` with three nodes\n");
		exit(EXIT_FAILURE);
	}
	return ntohl(address.s_addr);
}

static void on_ready(grim_queue *send_queue, const grim_message *message, void *user)
{
	(void)send_queue;
	(void)message;
	((struct state *)user)->ready++;
}

static void on_bridged(grim_queue *send_queue, const grim_message *message, void *user)
{
	const uint8_t *payload = message->payload;
	struct state *state = user;

	(void)send_queue;
	state->answers++;
	state->is_wrong |= message->bytes != BYTES || message->arguments[0] != 2;
	state->is_wrong |= message->arguments[3] != ((uint32_t)SOCKET_PORT << 16 | BRIDGE_PORT);
	for (uint64_t index = 0; index < message->bytes; index++)
		state->is_wrong |= payload[index] != (uint8_t)(3 * index + 1);
}

/* The first node: sends to the socket through the bridge, and waits for its answer. */
static void ask(grim *grim, struct state *state)
{
	/* An unused address of the guests' network. */
	uint32_t own = (address_of(1) & 0xffffff00) | 200, bridge;
	uint32_t values[4] = { 2, address_of(2), own, (uint32_t)BRIDGE_PORT << 16 | SOCKET_PORT };
	uint8_t bytes[BYTES];

	for (uint32_t index = 0; index < BYTES; index++)
		bytes[index] = 3 * index;
	while (state->ready < 1)
		check(grim_poll(grim, NULL, TIMEOUT_US), "wait for the socket");
	check(grim_get_handler_by_name(grim, "peripheral.bridge", &bridge, 0), "find the bridge's handler");
	check(grim_send_bulk(grim, 0, 1, IO_CARD, bridge, values, bytes, BYTES, TIMEOUT_US), "send to the bridge");
	while (state->answers < 1)
		check(grim_poll(grim, NULL, TIMEOUT_US), "wait for the answer");
	printf("node 0: the socket has answered through the bridge\n");
}

/* The third node: an ordinary socket. It uses GRIM only to announce that the socket is open. */
static void answer(grim *grim, uint32_t ready)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(SOCKET_PORT) }, from;
	socklen_t length = sizeof(from);
	uint32_t values[4] = { 0 };
	uint8_t bytes[2 * BYTES];
	char text[INET_ADDRSTRLEN];
	int socket_of = socket(AF_INET, SOCK_DGRAM, 0);

	if (socket_of < 0 || bind(socket_of, (struct sockaddr *)&own, sizeof(own)))
		fail("grim_bridge: a socket");
	check(grim_send_short(grim, 0, 0, PORT, ready, values, TIMEOUT_US), "announce the socket");
	check(grim_flush(grim, TIMEOUT_US), "wait until that has left");
	ssize_t received = recvfrom(socket_of, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &length);
	if (received < 0)
		fail("grim_bridge: receive");
	for (ssize_t index = 0; index < received; index++)
		bytes[index]++;
	if (sendto(socket_of, bytes, received, 0, (struct sockaddr *)&from, length) != received)
		fail("grim_bridge: answer");
	inet_ntop(AF_INET, &from.sin_addr, text, sizeof(text));
	printf("node 2: %zd bytes from %s, port %u\n", received, text, ntohs(from.sin_port));
}

int main(int count, char **arguments)
{
	struct state state = { 0 };
	niclab_device *device;
	niclab_info info;
	uint32_t ready;
	grim *grim;

	check(niclab_open(count > 1 ? arguments[1] : NULL, &device), "open the NIC");
	check(niclab_get_info(device, &info), "read the NIC's information");
	if (info.node == 1) {
		niclab_close(device);
		return EXIT_SUCCESS;
	}
	check(grim_enable(device, PORT, 1, 0, PORT, &grim), "enable the library");
	check(grim_register_handler(grim, "ready", GRIM_ANY_NUMBER, on_ready, &state), "register");
	check(grim_register_handler(grim, "peripheral.bridged", GRIM_ANY_NUMBER, on_bridged, &state), "register");
	check(grim_synch_handlers(grim, TIMEOUT_US), "synchronise handlers");
	check(grim_get_handler_by_name(grim, "ready", &ready, TIMEOUT_US), "find a handler");
	if (info.node == 0)
		ask(grim, &state);
	else
		answer(grim, ready);
	if (state.is_wrong) {
		fprintf(stderr, "grim_bridge: the answer is wrong\n");
		return EXIT_FAILURE;
	}
	grim_disable(grim);
	niclab_close(device);
	return EXIT_SUCCESS;
}
