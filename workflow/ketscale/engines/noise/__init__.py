"""Noisy circuits: density matrices as Pauli vectors, by kernels that read passes from a table.

`channels` has the matrices of gates and channels on one qubit, `passes` writes a circuit as passes over the vector, `sweep` has
the kernels, and `density` calls them from torch; `pauli_vectors` does the same by torch's operators, for GPUs and for
derivatives beyond the first.
"""
