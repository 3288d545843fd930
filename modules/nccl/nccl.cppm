// SPDX-License-Identifier: Apache-2.0
// shardmesh.nccl: a communicator over GPUs. An optional room: `import shardmesh;` does not include it. It builds
// without NCCL and CUDA, and finds their libraries at run time.
export module shardmesh.nccl;

export import shardmesh.comm;
export import shardmesh.cuda;

export import :functions;
export import :library;
export import :nccl_communicator;
