// SPDX-License-Identifier: Apache-2.0
// shardmesh.mpi: a communicator over MPI processes. An optional room: `import shardmesh;` does not include it.
export module shardmesh.mpi;

export import shardmesh.comm;

export import :mpi_communicator;
