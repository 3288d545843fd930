// SPDX-License-Identifier: Apache-2.0
// Stores our own checksums in a safetensors file, as one __metadata__ value of fixed length. The caller patches it
// after writing the data. Other readers see an ordinary metadata string. Does no I/O.
export module shardmesh.safetensors:checksum;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import :header;

export namespace shardmesh::safetensors {

/// The __metadata__ key. Its value has 32 lower-case hex digits per checksum: first the header's, then each tensor's in
/// file order. The header's checksum covers every byte before the data, with all digits of the value as '0'. XXH3-128,
/// seed 0, in canonical (big-endian) byte order.
inline constexpr std::string_view checksum_key = "shardmesh.xxh3";

/// Returns the value for laying out a file: zeros for the header and for `tensors` tensors.
std::string checksum_placeholder(std::size_t tensors);

/// Replaces the placeholder in a header from `safetensors::layout_file` with the tensors' checksums (in file order) and
/// the header's own. errc::invalid_argument when there is no placeholder for that many tensors.
result<void> patch_checksums(std::string& header, std::span<const digest128> tensors);

/// Verifies the header's checksum and returns the tensors' checksums in file order; nothing when the file has none.
/// `header_bytes` are the file's first `header.data_begin` bytes. errc::checksum_mismatch when the header's checksum
/// differs, errc::bad_format when the value has the wrong length or is not hex.
result<std::optional<std::vector<digest128>>> read_checksums(std::span<const std::byte> header_bytes,
                                                             const safetensors::header& header);

}  // namespace shardmesh::safetensors
