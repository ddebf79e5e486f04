/*
 * messages.c - sends messages over a device that is a pipe of messages, as the example drivers make one, and verifies
 * each. Both nodes of a pair run it: messages DEVICE MOST_BYTES. It exits with 0 if all messages arrived complete, once
 * and in order.
 *
 * It sends messages back and forth; bursts of more messages than a card has room for, to a slow reader and to a
 * sleeping one; and messages in both directions at once. It makes errors of programs: bad pointers, invalid lengths,
 * and signals during a wait. After a failure it continues for a moment before it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Maximum wait for one message, in seconds of a guest that may be slow. After it the run ends. */
#define TIMEOUT 15
#define ROUND_TRIPS 120
#define BURST 150
#define WRONGS 8
#define LARGEST 4096
/* Messages from this number on are read to an invalid address: the driver may keep one of them, or drop it. */
#define TO_NOWHERE 0xf0000000u

/* Messages that are sent and read after a failure, in AFTERWARDS_SECONDS: more than any ring has room for. */
#define AFTERWARDS 300
#define AFTERWARDS_SECONDS 2

static int device;
static unsigned int most_bytes;

static void give_up(int signal)
{
	(void)signal;
	_exit(1);
}

/*
 * Continues after a failure, and exits with 1. A driver with a wrong count shows it to its device only if traffic
 * continues after the first lost message.
 */
static void continue_after_failure(void)
{
	uint8_t message[64] = {};
	int i;

	signal(SIGALRM, give_up);
	alarm(AFTERWARDS_SECONDS);
	/* In a separate process: a sender that waits for room must not block the reader. */
	if (fork() == 0) {
		signal(SIGALRM, give_up);
		alarm(AFTERWARDS_SECONDS);
		for (i = 0; i < AFTERWARDS && write(device, message, 8) > 0; i++)
			;
		_exit(0);
	}
	for (i = 0; i < AFTERWARDS; i++)
		if (read(device, message, sizeof(message)) < 0 && errno != EIO)
			break;
	wait(NULL);
	_exit(1);
}

static void fail(const char *what, unsigned int number, long expected, long found)
{
	fprintf(stderr, "messages: %s %u: expected %ld, found %ld (%s)\n", what, number, expected, found,
		found < 0 ? strerror(errno) : "no error");
	continue_after_failure();
}

/* Every number determines a length and contents. */
static unsigned int length_of(uint32_t number)
{
	uint32_t mixed = number * 2654435761u;

	return 4 + (mixed >> 8) % (most_bytes - 3);
}

static void fill(uint8_t *message, uint32_t number)
{
	unsigned int i, bytes = length_of(number);

	memcpy(message, &number, sizeof(number));
	for (i = sizeof(number); i < bytes; i++)
		message[i] = (uint8_t)(number * 31 + i * 7);
}

static void put(uint32_t number)
{
	uint8_t message[LARGEST];
	long written;

	fill(message, number);
	alarm(TIMEOUT);
	do
		written = write(device, message, length_of(number));
	while (written < 0 && errno == EINTR);
	if (written != (long)length_of(number))
		fail("written", number, length_of(number), written);
}

static void take(uint32_t number)
{
	uint8_t message[LARGEST], expected[LARGEST];
	uint32_t found;
	long bytes;

	alarm(TIMEOUT);
	do {
		bytes = read(device, message, most_bytes);
		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes < (long)sizeof(found))
			fail("read", number, length_of(number), bytes);
		memcpy(&found, message, sizeof(found));
	} while (bytes < 0 || found >= TO_NOWHERE);
	if (found != number)
		fail("number of message", number, number, found);
	if (bytes != (long)length_of(number))
		fail("length of message", number, length_of(number), bytes);
	fill(expected, number);
	if (memcmp(message, expected, bytes))
		fail("bytes of message", number, 0, 1);
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* A wait has timed out. */
static void on_timeout(int signal)
{
	static const char said[] = "messages: timeout: no message arrives, or none can be sent\n";

	(void)signal;
	write(STDERR_FILENO, said, sizeof(said) - 1);
	continue_after_failure();
}

/* An unmapped address. */
static void *volatile nowhere = (void *)8;

/* Errors of programs get an error code, and change nothing for later calls. No message arrives meanwhile. */
static void do_wrong(void)
{
	/* Repeated, because the first signal may come before the wait begins. */
	struct itimerval soon = { .it_value = { .tv_usec = 20000 }, .it_interval = { .tv_usec = 20000 } }, never = {};
	struct sigaction action = { .sa_handler = on_alarm };
	uint8_t message[LARGEST + 8] = {};
	int i;

	for (i = 0; i < WRONGS; i++) {
		if (write(device, nowhere, 8) != -1 || errno != EFAULT)
			fail("write from nowhere", i, -1, 0);
		if (write(device, message, 0) > 0 || write(device, message, sizeof(message)) != -1)
			fail("write of no bytes, or too many", i, -1, 0);
		/* A signal ends the wait. */
		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &soon, NULL);
		if (read(device, message, most_bytes) != -1 || errno != EINTR)
			fail("read without a message", i, -1, 0);
		setitimer(ITIMER_REAL, &never, NULL);
		signal(SIGALRM, on_timeout);
	}
}

/* Reads the other node's messages to an invalid address. */
static void take_to_nowhere(void)
{
	int i;

	alarm(TIMEOUT);
	for (i = 0; i < WRONGS; i++)
		if (read(device, nowhere, most_bytes) != -1 || errno != EFAULT)
			fail("read to nowhere", i, -1, 0);
}

static void put_to_nowhere(void)
{
	uint32_t i;

	for (i = 0; i < WRONGS; i++)
		put(TO_NOWHERE + i);
}

static void burst(int sends, uint32_t first, unsigned int pause_every)
{
	uint32_t i;

	for (i = 0; i < BURST; i++) {
		if (sends)
			put(first + i);
		else
			take(first + i);
		if (pause_every && i % pause_every == 0)
			usleep(3000);
	}
}

int main(int argc, char **argv)
{
	const char *text = getenv("NICLAB_RANK");
	uint32_t rank, i, at = 0;
	int status;
	pid_t sender;

	if (argc != 3 || !text) {
		fprintf(stderr, "usage: messages DEVICE MOST_BYTES, with NICLAB_RANK\n");
		return 2;
	}
	rank = atoi(text) % 2;
	most_bytes = atoi(argv[2]);
	device = open(argv[1], O_RDWR);
	if (device < 0 || most_bytes < 8 || most_bytes > LARGEST)
		fail("open", 0, 0, device);
	signal(SIGALRM, on_timeout);
	/* While one node makes errors, the other one waits for it. */
	if (rank == 0) {
		do_wrong();
		put_to_nowhere();
		put(at);
		take(at);
	} else {
		take_to_nowhere();
		take(at);
		do_wrong();
		put(at);
	}
	at++;
	for (i = 0; i < ROUND_TRIPS; i++, at++) {
		if (rank == 0)
			put(at);
		take(at);
		if (rank == 1)
			put(at);
	}
	/* A fast sender and a slow reader, in both directions. */
	burst(rank == 0, at, rank == 1 ? 8 : 0);
	burst(rank == 1, at += BURST, rank == 0 ? 8 : 0);
	burst(rank == 0, at += BURST, rank == 0 ? 4 : 0);
	at += BURST;
	/* Both directions at once. */
	fflush(NULL);
	sender = fork();
	if (sender == 0) {
		burst(1, at, 0);
		_exit(0);
	}
	burst(0, at, 16);
	alarm(TIMEOUT);
	if (waitpid(sender, &status, 0) != sender || status)
		fail("sender", 0, 0, status);
	return 0;
}
