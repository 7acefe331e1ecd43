// Open MPI's side of `cargo xtask bench-host`: MPI_Alltoall, MPI_Allgather, MPI_Allreduce of floats, and a round trip of 8 bytes between 2 ranks, as JSON lines.
// Usage: mpirun -n 2 mpi_host BYTES..   where BYTES are those of each rank's whole input.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Best and median over windows of the slowest rank's time of one operation, microseconds.
static void row(const char *op, long bytes, double *times, int windows, int rank) {
    double slowest[64];
    MPI_Reduce(times, slowest, windows, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank != 0) return;
    qsort(slowest, windows, sizeof(double), compare);
    printf("{\"op\":\"%s\",\"bytes\":%ld,\"best_us\":%.3f,\"median_us\":%.3f}\n", op, bytes, slowest[0], slowest[windows / 2]);
    fflush(stdout);
}

static unsigned char byte_of(int rank, long k) { return (unsigned char)(k * 31 + k / 4096 + rank * 7); }
static float float_of(int rank, long k) { return (float)((k * 31 + rank * 7) % 4096); }

enum { ALL_TO_ALL, ALL_GATHER, ALL_REDUCE, IN_PLACE };

// `bytes` are those of each rank's input.
static void collective(int which, const char *op, long bytes, int rank, int size) {
    double times[64];
    long chunk = bytes / size, kept = which == ALL_GATHER ? bytes * size : bytes;
    int windows = 15, count = bytes >= 16 << 20 ? 2 : bytes >= 1 << 20 ? 10 : 100;
    unsigned char *in = malloc(bytes), *out = malloc(kept);
    float *fin = (float *)in, *fout = (float *)out;
    if (which >= ALL_REDUCE)
        for (long k = 0; k < bytes / 4; k++) fin[k] = float_of(rank, k);
    else
        for (long k = 0; k < bytes; k++) in[k] = byte_of(rank, k);
    memset(out, 0xff, kept);
    // In place sums grow: the first is compared.
    if (which == IN_PLACE) {
        MPI_Allreduce(MPI_IN_PLACE, fin, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        memcpy(out, in, bytes);
    }
    for (int w = -2; w < windows; w++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int n = 0; n < count; n++) {
            if (which == ALL_TO_ALL) MPI_Alltoall(in, chunk, MPI_BYTE, out, chunk, MPI_BYTE, MPI_COMM_WORLD);
            if (which == ALL_GATHER) MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD);
            if (which == IN_PLACE) MPI_Allreduce(MPI_IN_PLACE, fin, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            if (which == ALL_REDUCE) MPI_Allreduce(in, out, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        if (w >= 0) times[w] = (MPI_Wtime() - start) / count * 1e6;
    }
    int wrong = 0;
    if (which >= ALL_REDUCE) {
        for (long k = 0; k < bytes / 4; k++) {
            float want = 0;
            for (int peer = 0; peer < size; peer++) want += float_of(peer, k);
            wrong |= fout[k] != want;
        }
    } else {
        for (long k = 0; k < kept; k++) {
            unsigned char want = which == ALL_GATHER ? byte_of(k / bytes, k % bytes) : byte_of(k / chunk, rank * chunk + k % chunk);
            wrong |= out[k] != want;
        }
    }
    if (wrong) {
        fprintf(stderr, "%s of %ld bytes is wrong on rank %d\n", op, bytes, rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    row(op, bytes, times, windows, rank);
    free(in);
    free(out);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double times[64];
    for (int i = 1; i < argc; i++) {
        long bytes = atol(argv[i]);
        collective(ALL_TO_ALL, "all_to_all", bytes, rank, size);
        collective(ALL_GATHER, "all_gather", bytes, rank, size);
        collective(ALL_REDUCE, "all_reduce", bytes, rank, size);
        collective(IN_PLACE, "all_reduce_in_place", bytes, rank, size);
    }
    int windows = 25, count = 1000;
    long word = rank;
    for (int w = -3; w < windows; w++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int n = 0; n < count; n++) {
            if (rank == 0) {
                MPI_Send(&word, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
                MPI_Recv(&word, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else if (rank == 1) {
                MPI_Recv(&word, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(&word, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            }
        }
        if (w >= 0) times[w] = (MPI_Wtime() - start) / count * 1e6;
    }
    row("round_trip", 8, times, windows, rank);
    MPI_Finalize();
    return 0;
}
