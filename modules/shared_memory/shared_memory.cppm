// SPDX-License-Identifier: Apache-2.0
// shardmesh.shared_memory: ranks that are processes on one machine, without MPI or sockets. An optional room:
// `import shardmesh;` does not include it. Linux only.
export module shardmesh.shared_memory;

export import shardmesh.comm;

export import :shared_memory_communicator;
export import :shared_memory_group;
