// SPDX-License-Identifier: Apache-2.0
// shardmesh.checkpoint: checkpoint formats, read and written without Python: PyTorch DCP and .pt, safetensors, Hugging
// Face folders. Not here: the command line (tools), layouts (layout).
export module shardmesh.checkpoint;

export import shardmesh.tree;
export import shardmesh.transfer;

export import :catalog;
export import :checksum;
export import :conversion;
export import :convert;
export import :dcp_files;
export import :dcp_metadata;
export import :decoding_source;
export import :diff;
export import :formats;
export import :hf;
export import :item_writer;
export import :load;
export import :load_on_ranks;
export import :object_json;
export import :object_text;
export import :objects_file;
export import :output;
export import :pickle;
export import :pickle_writer;
export import :placement_rules;
export import :plain_object;
export import :reader;
export import :safetensors;
export import :safetensors_checksum;
export import :safetensors_writer;
export import :save;
export import :save_dcp;
export import :save_on_ranks;
export import :save_safetensors;
export import :selection;
export import :sha256;
export import :staged_output;
export import :storage;
export import :stored_tensor;
export import :torch_archive;
export import :torch_flatten;
export import :torch_item;
export import :torch_object;
export import :verify;
export import :xxh3;
export import :zip;

import :archive_from_json;
import :checked_source;
import :chunk_cache;
import :interruption;
import :load_balancer;
import :objects_document;
import :path_wire;
import :pickle_opcode;
import :pickle_text;
import :rank_state;
import :save_assignment;
import :torch_chunk;
import :view_source;
