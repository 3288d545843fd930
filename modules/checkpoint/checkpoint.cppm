// SPDX-License-Identifier: Apache-2.0
// shardmesh.checkpoint: any checkpoint, whatever its format: open, load, save, convert, reshard, verify, diff, and
// which entries. Not here: the formats, ranks that work together (collective_checkpoint), the command line (tools).
// What lies below (catalog, storage, the formats) is imported by its own name, except for what `from_below` shows.
export module shardmesh.checkpoint;

export import shardmesh.tree;
export import shardmesh.transfer;

export import :alike_readers;
export import :conversion;
export import :convert;
export import :dequantized;
export import :diff;
export import :followed_lists;
export import :from_below;
export import :globals;
export import :key_pattern;
export import :load;
export import :map_tensor;
export import :object_text;
export import :open;
export import :parameter_list;
export import :placement_rules;
export import :replaceable;
export import :resize;
export import :save;
export import :selection;
export import :shared_destinations;
export import :source_apart;
export import :start_load;
export import :state_names;
export import :stored_bytes;
export import :targets;
export import :verify;
