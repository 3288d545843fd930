// SPDX-License-Identifier: Apache-2.0
// shardmesh.state: state dicts, which are trees whose leaves are tensors, sharded tensors, dtensors, and plain values.
// Trees in general are in tree; files are in checkpoint.
export module shardmesh.state;

export import shardmesh.sharding;
export import shardmesh.tree;

export import :value;
export import :dict;
export import :node;
export import :builder;
export import :flat;
export import :local_view;
export import :transform_leaves;
export import :difference;
export import :digest;
export import :flatten_nested;
export import :flatten_shards;
export import :dict_tree;
export import :indirect;
export import :nest;
