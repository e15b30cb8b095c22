/* How long collectives of MPI take: an all-to-all and an all-reduce of some sizes. Rank 0 prints a line for each:
 * name, bytes, microseconds of the very first one, microseconds of one after the warm-up (the median of the rounds). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 65536, MOST_RANKS = 64, ROUNDS = 9, MOST_TURNS = 400 };

/* A round takes about so long, and the warm-up as long as a round. */
static const double ROUND_S = 0.06;

static char *sent, *received;
static int ranks;

static void all_to_all(int bytes)
{
    MPI_Alltoall(sent, bytes, MPI_CHAR, received, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void all_reduce(int bytes)
{
    MPI_Allreduce(sent, received, bytes / (int)sizeof(int), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int ascending(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

/* Microseconds of one of so many. */
static double timed(void (*collective)(int), int bytes, int turns)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int turn = 0; turn < turns; turn++)
        collective(bytes);
    return (MPI_Wtime() - begun) / turns * 1e6;
}

static void measure(const char *name, void (*collective)(int), int bytes, int rank)
{
    double first = timed(collective, bytes, 1), warm = timed(collective, bytes, 20), rounds[ROUNDS];
    /* All ranks must agree on how many there are. */
    int turns = (int)(ROUND_S * 1e6 / (warm + 1));
    turns = turns < 5 ? 5 : turns > MOST_TURNS ? MOST_TURNS : turns;
    MPI_Bcast(&turns, 1, MPI_INT, 0, MPI_COMM_WORLD);
    timed(collective, bytes, turns);
    for (int round = 0; round < ROUNDS; round++)
        rounds[round] = timed(collective, bytes, turns);
    qsort(rounds, ROUNDS, sizeof rounds[0], ascending);
    if (rank == 0)
        printf("%s %d %.2f %.2f\n", name, bytes, first, rounds[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {64, 4096, LARGEST};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    sent = calloc(ranks, LARGEST);
    received = calloc(ranks, LARGEST);
    if (!sent || !received || ranks > MOST_RANKS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t index = 0; index < sizeof sizes / sizeof sizes[0]; index++) {
        measure("all-to-all", all_to_all, sizes[index], rank);
        measure("all-reduce", all_reduce, sizes[index], rank);
    }
    MPI_Finalize();
    return 0;
}
