// SPDX-License-Identifier: Apache-2.0
// Checksums of ranges of a source, in bounded memory.
export module shardmesh.storage:byte_sums;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :source;

export namespace shardmesh {

/// Visits the range front to back in pieces of at most 1 MiB.
result<void> for_each_piece(const byte_source& source, std::int64_t begin, std::int64_t length,
                            function_ref<void(std::span<const std::byte>)> visit);

/// Returns the range's CRC-32, as ZIP archives use it, or its XXH3-128. Cost: reads the range once.
result<std::uint32_t> crc32_of_range(const byte_source& source, std::int64_t begin, std::int64_t length);
result<digest128> xxh3_of_range(const byte_source& source, std::int64_t begin, std::int64_t length);

}  // namespace shardmesh
