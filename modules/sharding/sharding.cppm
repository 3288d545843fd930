// SPDX-License-Identifier: Apache-2.0
// shardmesh.sharding: PyTorch's ShardedTensor and DTensor as C++ types: metadata, specs, shards, and the checks between
// them. Not here: trees of them (state), moving bytes (transfer).
export module shardmesh.sharding;

export import shardmesh.transfer;
