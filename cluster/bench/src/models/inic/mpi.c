/*
 * A stream in one direction over MPI, with the barriers and the report of `niclab-perf stream`: rank 0 sends, rank 1
 * receives and confirms the last message. The functions of MPI that it uses are declared here, as in all MPICH
 * libraries of this ABI, so guests need no headers, and no compiler that can read them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MPI_COMM_WORLD 0x44000000
#define MPI_BYTE 0x4c00010d
#define MPI_STATUS_IGNORE ((void *)1)

int MPI_Init(int *count, char ***arguments);
int MPI_Comm_rank(int communicator, int *rank);
int MPI_Send(const void *data, int count, int type, int to, int tag, int communicator);
int MPI_Recv(void *data, int count, int type, int from, int tag, int communicator, void *status);
int MPI_Finalize(void);

static int rank;

/*
 * Two pipes to the script on this node, which talks to the coordinator. They stay open while the script runs: if a pipe
 * were reopened for each answer, it could still return the end of the previous one.
 */
static FILE *cues, *answers;

/* Reports that this node has reached a barrier, and waits until the coordinator opens it. */
static void cue(const char *name)
{
	char answer[16];

	fprintf(cues, "niclab-perf: cue %s\n", name);
	fflush(cues);
	if (!fgets(answer, sizeof(answer), answers)) {
		perror("niclab: no answer to a cue");
		exit(1);
	}
}

/* Sends or receives the messages; at the end all have arrived. MPI ends the program at any error. */
static void stream(char *data, int bytes, long count)
{
	for (long number = 0; number < count; number++) {
		if (rank == 0)
			MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		else
			MPI_Recv(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	if (rank == 0)
		MPI_Recv(data, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(data, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);

	int bytes = atoi(arguments[1]);
	long messages = atol(arguments[2]), warmup = atol(arguments[3]);
	char *data = malloc(bytes);

	/* In the same order as the script, because each open waits for the other end. */
	cues = fopen("cues", "w");
	answers = fopen("answers", "r");
	if (!data || !cues || !answers) {
		perror("niclab: cannot begin");
		return 1;
	}
	memset(data, 0xa5, bytes);
	cue("connected");
	if (warmup > 0)
		stream(data, bytes, warmup);
	cue("warm");
	double began = seconds();
	stream(data, bytes, messages);
	double elapsed = seconds() - began;
	cue("measured");
	if (rank == 0)
		printf("{\"tool\": \"niclab-perf\", \"transport\": \"mpi\", "
		       "\"sections\": [{\"benchmark\": \"stream\", \"rows\": [{"
		       "\"payload_bytes\": %d, \"iterations\": %ld, \"elapsed_wall_ns\": %.0f, "
		       "\"messages_per_s_wall\": %f, \"payload_bytes_per_s_wall\": %f}]}]}\n",
		       bytes, messages, elapsed * 1e9, messages / elapsed, messages / elapsed * bytes);
	MPI_Finalize();
	return 0;
}
