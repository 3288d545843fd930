// SPDX-License-Identifier: Apache-2.0
// shardmesh.sharding: PyTorch's ShardedTensor and DTensor as C++ types: metadata, specs, shards, and the checks between
// them. Trees of tensors are in room state; moving bytes is in room transfer.
export module shardmesh.sharding;

export import shardmesh.transfer;

export import :metadata;
export import :metadata_like;
export import :validation;
export import :remote;
export import :checks;
export import :recalculate;
export import :shard;
export import :shard_like;
export import :build;
export import :spec;
export import :init;
export import :gather;
export import :redistribute;
export import :reshard;
export import :shard_tensor;
export import :dtensor;
export import :elements;

// These two are not for users. Room fsdp allocates with the first; room state exchanges the bytes of the second.
export import :shard_moves;
export import :metadata_wire;
