// What MPI programs do, with every byte verified: messages of all sizes there and back, many at once, collectives and
// windows. Started by `cargo xtask programs` with two ranks or more; prints one line at the end, and aborts at the first
// thing that is wrong.

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20, TURNS = 20, OUTSTANDING = 64, SMALL = 100 };

static int rank, ranks;

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: wrong: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

// What a rank sends in a turn: no two are the same.
static uint8_t pattern(int from, int turn, size_t place)
{
	return (uint8_t)(from * 31 + turn * 17 + place * 7 + (place >> 8));
}

static void fill(uint8_t *bytes, size_t length, int from, int turn)
{
	for (size_t place = 0; place < length; place++)
		bytes[place] = pattern(from, turn, place);
}

static void verify(const uint8_t *bytes, size_t length, int from, int turn, const char *what)
{
	for (size_t place = 0; place < length; place++)
		check(bytes[place] == pattern(from, turn, place), what);
}

// Rank 0 with each other one: eager and rendezvous protocols, whatever their limits are.
static void ping_pong(uint8_t *sent, uint8_t *received)
{
	for (int peer = 1; peer < ranks; peer++) {
		if (rank != 0 && rank != peer)
			continue;
		int other = rank == 0 ? peer : 0;
		for (size_t length = 0; length <= LARGEST; length = length ? length * 4 : 1) {
			int turns = length > 65536 ? 3 : TURNS;
			for (int turn = 0; turn < turns; turn++) {
				fill(sent, length, rank, turn);
				memset(received, 0xee, length);
				if (rank == 0)
					MPI_Send(sent, length, MPI_BYTE, other, turn, MPI_COMM_WORLD);
				MPI_Recv(received, length, MPI_BYTE, other, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				verify(received, length, other, turn, "ping-pong");
				if (rank != 0)
					MPI_Send(sent, length, MPI_BYTE, other, turn, MPI_COMM_WORLD);
			}
		}
	}
}

// Everybody to the next, many at once, received in the opposite order of tags. Synchronous ones one by one: with many at
// once Open MPI 4.1 reads completions over libfabric while it still goes through those it has read before, and crashes.
static void ring(uint8_t *sent, uint8_t *received)
{
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	for (size_t length = 64; length <= 65536; length *= 32) {
		MPI_Request requests[2 * OUTSTANDING];
		for (int i = 0; i < OUTSTANDING; i++)
			MPI_Irecv(received + i * length, length, MPI_BYTE, previous, OUTSTANDING - i, MPI_COMM_WORLD,
				  &requests[i]);
		for (int i = 0; i < OUTSTANDING; i++) {
			fill(sent + i * length, length, rank, i);
			MPI_Isend(sent + i * length, length, MPI_BYTE, next, i + 1, MPI_COMM_WORLD,
				  &requests[OUTSTANDING + i]);
		}
		MPI_Waitall(2 * OUTSTANDING, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < OUTSTANDING; i++)
			verify(received + i * length, length, previous, OUTSTANDING - i - 1, "ring");
		for (int turn = 0; turn < TURNS; turn++) {
			MPI_Request request;
			fill(sent, length, rank, turn);
			MPI_Issend(sent, length, MPI_BYTE, next, turn, MPI_COMM_WORLD, &request);
			MPI_Recv(received, length, MPI_BYTE, previous, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			verify(received, length, previous, turn, "synchronous send");
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		}
	}
}

static void collectives(uint8_t *sent, uint8_t *received)
{
	for (size_t length = 8; length <= 256 * 1024; length *= 32) {
		for (int root = 0; root < ranks; root++) {
			fill(sent, length, rank == root ? root : ranks, 1);
			MPI_Bcast(sent, length, MPI_BYTE, root, MPI_COMM_WORLD);
			verify(sent, length, root, 1, "broadcast");
		}
		fill(sent, length, rank, 2);
		MPI_Gather(sent, length, MPI_BYTE, received, length, MPI_BYTE, 0, MPI_COMM_WORLD);
		for (int from = 0; rank == 0 && from < ranks; from++)
			verify(received + from * length, length, from, 2, "gather");
		fill(sent, length, rank, 3);
		MPI_Allgather(sent, length, MPI_BYTE, received, length, MPI_BYTE, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			verify(received + from * length, length, from, 3, "allgather");
		for (int to = 0; to < ranks; to++)
			fill(sent + to * length, length, rank, to);
		MPI_Alltoall(sent, length, MPI_BYTE, received, length, MPI_BYTE, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			verify(received + from * length, length, from, rank, "alltoall");
		MPI_Scatter(sent, length, MPI_BYTE, received, length, MPI_BYTE, 0, MPI_COMM_WORLD);
		verify(received, length, 0, rank, "scatter");

		int count = length / sizeof(double);
		double *numbers = (double *)sent, *sums = (double *)received;
		for (int i = 0; i < count; i++)
			numbers[i] = rank + i;
		MPI_Allreduce(numbers, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			check(sums[i] == (double)ranks * i + ranks * (ranks - 1) / 2, "allreduce");
		MPI_Reduce(numbers, sums, count, MPI_DOUBLE, MPI_MAX, ranks - 1, MPI_COMM_WORLD);
		for (int i = 0; rank == ranks - 1 && i < count; i++)
			check(sums[i] == (double)(ranks - 1) + i, "reduce");
		MPI_Scan(numbers, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			check(sums[i] == (double)(rank + 1) * i + rank * (rank + 1) / 2, "scan");
	}
	for (int i = 0; i < TURNS; i++)
		MPI_Barrier(MPI_COMM_WORLD);
}

// One-sided: everybody puts into, gets from and counts in the next one's memory.
static void windows(uint8_t *sent, uint8_t *received)
{
	const size_t length = 256 * 1024;
	uint8_t *memory;
	MPI_Win window;
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	MPI_Win_fence(0, window);
	fill(sent, length, rank, 4);
	MPI_Put(sent, length, MPI_BYTE, next, 0, length, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	verify(memory, length, previous, 4, "put");
	MPI_Get(received, length, MPI_BYTE, next, 0, length, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	verify(received, length, rank, 4, "get");
	MPI_Win_free(&window);

	int64_t *counters, one = 1, found, swapped;
	MPI_Win_allocate(3 * sizeof *counters, sizeof *counters, MPI_INFO_NULL, MPI_COMM_WORLD, &counters, &window);
	memset(counters, 0, 3 * sizeof *counters);
	MPI_Win_fence(0, window);
	MPI_Win_fence(0, window);
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < SMALL; i++) {
		MPI_Fetch_and_op(&one, &found, MPI_INT64_T, 0, 0, MPI_SUM, window);
		MPI_Win_flush(0, window);
		check(found >= i && found < (int64_t)ranks * SMALL, "fetch and add");
		MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_SUM, window);
	}
	// Not with one's own memory: Open MPI 4.1 reads a null pointer then, on shared memory.
	for (int64_t expected = 0; expected < SMALL / 10; expected++) {
		swapped = expected + 1;
		MPI_Compare_and_swap(&swapped, &expected, &found, MPI_INT64_T, next, 2, window);
		MPI_Win_flush(next, window);
		check(found == expected, "compare and swap");
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
	int64_t totals[3];
	MPI_Get(totals, 3, MPI_INT64_T, 0, 0, 3, MPI_INT64_T, window);
	MPI_Win_unlock(0, window);
	check(totals[0] == (int64_t)ranks * SMALL, "sum of fetch and add");
	check(totals[1] == (int64_t)ranks * SMALL, "sum of accumulate");
	check(totals[2] == SMALL / 10, "result of compare and swap");
	MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	size_t room = OUTSTANDING * 65536;
	if (room < LARGEST)
		room = LARGEST;
	uint8_t *sent = malloc(room), *received = malloc(room);
	check(sent && received, "no memory");
	ping_pong(sent, received);
	ring(sent, received);
	collectives(sent, received);
	windows(sent, received);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("mpi_check: all is well with %d ranks\n", ranks);
	MPI_Finalize();
	return 0;
}
