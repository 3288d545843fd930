// SPDX-License-Identifier: Apache-2.0
// Lists the files in a tar archive, with ranged reads. Nothing is extracted: a member is a section of the source. The
// rooms of the formats interpret the members.
export module shardmesh.storage:tar;

import shardmesh.std;
import shardmesh.core;
import :read_limits;
import :source;

export namespace shardmesh {

/// One regular file of an archive: the bytes [offset, offset + size_bytes) of the source.
struct tar_member {
  std::string name;  // a relative path of plain steps, without "./" in front
  std::int64_t offset = 0;
  std::int64_t size_bytes = 0;
  friend bool operator==(const tar_member&, const tar_member&) = default;
};

/// Returns whether the first bytes are those of a tar archive (ustar, GNU, or pax). Cost: one read of 512 bytes.
bool looks_like_tar(const byte_source& source);

/// Lists the regular files, in the order of the archive. Folders are skipped. Reads the headers only, in ascending
/// order.
/// \errors errc::bad_format, naming the file and the member: a damaged header, a size that leaves the file, no end, or
///         bytes behind the end; errc::unsafe_path for an absolute name, and for "..", or a NUL in a name;
///         errc::duplicate_key for two members of one name; errc::unsupported for links, devices, pipes, sparse files,
///         and members of unknown kinds; the limits of `budget`
/// Cost: one read of 512 bytes per member, and up to 1 MiB for each long name.
/// Source: POSIX pax, and the GNU tar manual ("Basic Tar Format")
result<std::vector<tar_member>> read_tar(const byte_source& source, read_budget& budget);

}  // namespace shardmesh
