// SPDX-License-Identifier: Apache-2.0
// The primary interface of room mapping: how the tensors of one naming convention correspond to those of another.
//
// A `mapping_rules` value lists rules: names with captures, and index expressions. `bind_mapping` combines it with a
// checkpoint and the sizes of a model, and proves that every tensor and element is used and made once. `mapped` then
// shows the checkpoint under the other convention: any box of any tensor can be read, in bounded memory.
// `map_checkpoint` does both for each mapping that a user names, and adds the values that a file for llama.cpp needs
// (folder llama_cpp). `redistribute` and `save_mapped` apply mappings to the memory of ranks.
export module shardmesh.mapping;

export import shardmesh.checkpoint_core;
export import shardmesh.checkpoint;
export import shardmesh.collective_checkpoint;

export import :binding;
export import :conventions;
export import :index_relation;
export import :index_rule;
export import :map_checkpoint;
export import :mapped;
export import :model_sizes;
export import :name_template;
export import :redistribute_mapped;
export import :rules;
export import :save_mapped;
export import :save_mapped_ranks;
export import :size_expression;
export import :source_boxes;
export import :value_step;
