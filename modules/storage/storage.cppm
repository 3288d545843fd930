// SPDX-License-Identifier: Apache-2.0
// Bytes by range (files, memory, sections of both), and every operation on them before they are interpreted: decoding
// streams, ZIP archives, checksums, limits on the cost of reading. The module also has destinations that appear whole
// or not at all. The formats interpret the bytes.
export module shardmesh.storage;

export import shardmesh.core;
export import shardmesh.digest;

export import :byte_sums;
export import :checksum;
export import :companion;
export import :decoding;
export import :first_problems;
export import :folder_rule;
export import :json_depth;
export import :leftover;
export import :mapped_file;
export import :places;
export import :read_limits;
export import :destination_snapshot;
export import :sibling_file;
export import :source;
export import :staged_output;
export import :tar;
export import :store;
export import :store_cache;
export import :zip;
