// SPDX-License-Identifier: Apache-2.0
// Describes any checkpoint, whatever its format: entries, chunks, objects, and files. It also has the reader interface,
// chunks as a source of elements, and the input of writers. This module knows no format; `checkpoint` detects the
// format of a path.
export module shardmesh.checkpoint_core;

export import shardmesh.tree;
export import shardmesh.transfer;
export import shardmesh.storage;

export import :checked_source;
export import :chunk_cache;
export import :composed_reader;
export import :computed_source;
export import :entries;
export import :file_maps;
export import :file_texts;
export import :forwarding_reader;
export import :key_role;
export import :load_balancer;
export import :name_list;
export import :nearest_key;
export import :output;
export import :reader;
export import :recorded_sums;
export import :side_files;
export import :stable_piece;
export import :stored_tensor;
export import :view_source;
