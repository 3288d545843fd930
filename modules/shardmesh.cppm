// SPDX-License-Identifier: Apache-2.0
// The umbrella module: it re-exports the host rooms that users call, and defines nothing.
export module shardmesh;

export import shardmesh.core;
export import shardmesh.tree;
export import shardmesh.layout;
export import shardmesh.kernels;
export import shardmesh.comm;
export import shardmesh.transfer;
export import shardmesh.sharding;
export import shardmesh.state;
export import shardmesh.fsdp;
export import shardmesh.checkpoint;
export import shardmesh.state_checkpoint;
export import shardmesh.collective_checkpoint;
export import shardmesh.draw;
