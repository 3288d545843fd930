// SPDX-License-Identifier: Apache-2.0
// shardmesh.checkpoint: any checkpoint, whatever its format: open, load, save, convert, reshard, verify, diff, and
// which entries. Not here: the formats, ranks that work together (collective_checkpoint), the command line (tools).
export module shardmesh.checkpoint;

export import shardmesh.dcp;
export import shardmesh.safetensors;

export import :conversion;
export import :convert;
export import :diff;
export import :globals;
export import :load;
export import :object_text;
export import :open;
export import :placement_rules;
export import :replaceable;
export import :save;
export import :selection;
export import :source_apart;
export import :verify;
