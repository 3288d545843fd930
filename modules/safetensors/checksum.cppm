// SPDX-License-Identifier: Apache-2.0
// Our own checksums inside a safetensors file: one __metadata__ value of fixed length, patched after the data was
// written. Other readers see an ordinary metadata string. Does no I/O.
export module shardmesh.safetensors:checksum;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import :header;

export namespace shardmesh::safetensors {

/// The __metadata__ key. Its value is 32 lower-case hex digits per checksum: first of the header (every byte before the
/// data, with all digits of the value as '0'), then of each tensor's bytes in file order. XXH3-128, seed 0, canonical
/// (big-endian) spelling.
inline constexpr std::string_view checksum_key = "shardmesh.xxh3";

/// The value to lay a file out with: zeros for the header and for `tensors` tensors.
std::string checksum_placeholder(std::size_t tensors);

/// Replaces the placeholder in a header from `safetensors::layout_file` by these checksums of its tensors (in file
/// order) and of the header itself. errc::invalid_argument when there is no placeholder for that many tensors.
result<void> patch_checksums(std::string& header, std::span<const digest128> tensors);

/// The checksums of the tensors in file order, after the header's own was verified; nothing when the file has none.
/// `header_bytes` are the file's first `header.data_begin` bytes. errc::checksum_mismatch when the header's differs,
/// errc::bad_format when the value has the wrong length or is not hex.
result<std::optional<std::vector<digest128>>> read_checksums(std::span<const std::byte> header_bytes,
                                                             const safetensors::header& header);

}  // namespace shardmesh::safetensors
