// SPDX-License-Identifier: Apache-2.0
// Not exported: the fields of one header of a tar archive. The members are read in `tar`.
module shardmesh.storage:tar_header;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::tar_header {

inline constexpr std::int64_t block_bytes = 512;

// A header, or 512 bytes of a member.
using block = std::array<std::byte, block_bytes>;

// Returns a number in octal digits, which spaces may surround, or in base 256. Returns nothing when it is neither, or
// too large.
std::optional<std::int64_t> number_at(const block& header, std::size_t offset, std::size_t length);

// Returns whether all bytes are 0, as in the blocks at the end.
bool is_zero(std::span<const std::byte> bytes);

// Compares the sum of a header's bytes, in which the sum itself counts as spaces.
bool has_its_sum(const block& header);

// Returns whether a header has the mark of POSIX or GNU.
bool has_mark(const block& header);

// Returns the kind of a member that is not read; empty for those that are.
std::string_view refused_kind(char type);

// Returns the name in a header, with its prefix.
std::string name_of(const block& header);

}  // namespace shardmesh::tar_header
