// SPDX-License-Identifier: Apache-2.0
// shardmesh.state: state dicts: trees whose leaves are tensors, sharded tensors and plain values.
// Not here: trees in general (tree), files (checkpoint).
export module shardmesh.state;

export import shardmesh.sharding;
export import shardmesh.tree;
