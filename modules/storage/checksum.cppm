// SPDX-License-Identifier: Apache-2.0
// Checksums of files that shardmesh wrote: the XXH3-128 of every byte, by ranges. They are in a record beside the
// files, which PyTorch and others ignore. With the record, `verify` finds any flipped bit.
export module shardmesh.storage:checksum;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :source;

export namespace shardmesh {

/// One range of one file, and its checksum.
struct checksum_range {
  std::string file;  // relative to the folder
  std::int64_t offset = 0, length = 0;
  std::string digits;
  friend bool operator==(const checksum_range&, const checksum_range&) = default;
};

inline constexpr std::string_view checksum_file_name = ".shardmesh_checksums";

/// Formats the record: a line "shardmesh-checksums 1 xxh3-128", a line "DIGITS OFFSET LENGTH FILE" per range, and a
/// last line with the checksum of everything before it. File names are escaped.
std::string format_checksums(std::span<const checksum_range> ranges);
/// Parses a record.
/// \errors errc::checksum_mismatch when the record itself is damaged; errc::unsafe_path when it names a file outside of
///         the folder
result<std::vector<checksum_range>> parse_checksums(std::string_view text);

/// Compares one range of an opened file with its checksum.
/// \errors errc::checksum_mismatch, errc::io
result<void> check_checksum(const byte_source& file, const checksum_range& range);
/// Compares the files of `folder` with the record. `threads`: 0 is all cores.
/// \returns every problem (missing files, other lengths, flipped bits), each naming the file and the byte range
/// Cost: reads every byte once.
std::vector<error> check_checksums(const std::filesystem::path& folder, std::span<const checksum_range> ranges,
                                   file_pool& files, int threads = 0);
/// Does the same for the ranges with these indices, and for the lengths of their files.
std::vector<error> check_checksums(const std::filesystem::path& folder, std::span<const checksum_range> ranges,
                                   std::span<const std::size_t> chosen, file_pool& files, int threads = 0);

}  // namespace shardmesh
