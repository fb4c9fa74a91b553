// What a test tells it to do: `hello` meets the others and adds up their ranks, `abort` and `exit` end one of them
// while the others wait, `wait` lets the test interfere until the file that is named has appeared.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    const char *what = argc > 1 ? argv[1] : "hello";

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d, sum %d\n", rank, size, sum);
    fflush(stdout);
    if (!strcmp(what, "abort") && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(what, "exit") && rank == 1)
        exit(3);
    if (!strcmp(what, "wait"))
        while (access(argv[2], F_OK))
            usleep(10000);
    else if (strcmp(what, "hello"))
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
