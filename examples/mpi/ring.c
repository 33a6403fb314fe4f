// An MPI program: every rank learns the sum of all ranks, and a token goes from rank to rank, once around.
//
//	mpicc -o ring ring.c

#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int rank, size, sum, token = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);

	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of %d: the sum of all ranks is %d\n", rank, size, sum);

	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	if (rank > 0)
		MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	token++;
	if (size > 1)
		MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		if (size > 1)
			MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		printf("the token was with %d ranks\n", token);
	}

	MPI_Finalize();
	return 0;
}
