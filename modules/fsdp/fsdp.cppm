// SPDX-License-Identifier: Apache-2.0
// shardmesh.fsdp: many parameters in one flat, evenly sharded tensor, and their state dicts, without gathering anything
// that need not move. State dicts in general are in room state; files are in room checkpoint.
export module shardmesh.fsdp;

export import shardmesh.state;

export import :keys;
export import :flat_parameter;
export import :shard_group;
export import :flat_distribution;
export import :parallel_parameters;
export import :unit;
export import :chunk;
export import :model;
export import :local_view;
export import :planned;
export import :mover;
export import :extension;
export import :save;
export import :load;
