// SPDX-License-Identifier: Apache-2.0
// Checksums of files that shardmesh wrote: one XXH3-128 for each range, and the ranges cover every byte. A record
// beside the files holds them; PyTorch and other readers ignore it. With the record, `verify` finds any flipped bit.
export module shardmesh.storage:checksum;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :source;

export namespace shardmesh {

/// One range of one file, and its checksum.
struct checksum_range {
  std::string file;  // a name in the folder, or a `sibling_file`
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
///         the folder that is not a `sibling_file`
result<std::vector<checksum_range>> parse_checksums(std::string_view text);

/// Opens a file that a record of `folder` names.
/// \errors those of `file_pool::open`; those of `check_sibling` for a file of another folder
result<std::unique_ptr<byte_source>> open_recorded(const std::filesystem::path& folder, const std::string& name,
                                                   file_pool& files);

/// Compares one range of an opened file with its checksum.
/// \errors errc::checksum_mismatch, errc::io
result<void> check_checksum(const byte_source& file, const checksum_range& range);
/// Compares the files of `folder` with the record. With 0 `threads`, uses all cores.
/// A file of another folder may be longer than its recorded ranges.
/// \returns every problem (missing files, other lengths, flipped bits), each naming the file and the byte range
/// Cost: reads every byte once.
std::vector<error> check_checksums(const std::filesystem::path& folder, std::span<const checksum_range> ranges,
                                   file_pool& files, int threads = 0);
/// Checks only the ranges whose indices are in `chosen`, and the lengths of their files.
/// \param key_of  returns the key that the problem of a range names, by the range's index; several threads call it
std::vector<error> check_checksums(const std::filesystem::path& folder, std::span<const checksum_range> ranges,
                                   std::span<const std::size_t> chosen, file_pool& files, int threads = 0,
                                   const std::function<std::string(std::size_t)>& key_of = {});

}  // namespace shardmesh
