// SPDX-License-Identifier: Apache-2.0
// shardmesh.checkpoint: checkpoints of any format: open, load, save, convert, reshard, verify, diff, and selection of
// entries. Formats are rooms of their own. Ranks that work together are in collective_checkpoint, and the command line
// is in tools. `reexports` re-exports some names of the rooms below (checkpoint_core, storage, the formats); users
// import those rooms by name for everything else.
export module shardmesh.checkpoint;

export import shardmesh.tree;
export import shardmesh.transfer;

export import :comparable_views;
export import :conversion;
export import :convert;
export import :dequantized;
export import :diff;
export import :param_group_renames;
export import :reexports;
export import :pickle_globals;
export import :key_pattern;
export import :load;
export import :map_tensor;
export import :object_text;
export import :open;
export import :parameter_list;
export import :placement_rules;
export import :overwrite_rule;
export import :quantize_rule;
export import :resize;
export import :save;
export import :select_entries;
export import :selection;
export import :shared_destinations;
export import :destination_conflict;
export import :start_load;
export import :state_names;
export import :stored_bytes;
export import :targets;
export import :verify;
