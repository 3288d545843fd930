// SPDX-License-Identifier: Apache-2.0
// shardmesh.storage: bytes by range (files, memory, sections of both) and what is asked of them before anything is
// understood: decoding streams, ZIP archives, checksums, limits on what reading may cost; and destinations that appear
// whole or not at all. Not here: what the bytes mean.
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
export import :read_limits;
export import :seen_destination;
export import :source;
export import :staged_output;
export import :zip;
