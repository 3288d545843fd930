// SPDX-License-Identifier: Apache-2.0
// The decoded bytes of a compressed stream, read by range without holding all of them.
export module shardmesh.storage:decoding;

import shardmesh.std;
import shardmesh.core;
import :read_limits;
import :source;

export namespace shardmesh {

/// The encoding of a stream: frames of zstd, raw deflate data (a record of a ZIP archive), or the members of a gzip
/// file.
enum class codec : std::uint8_t { zstd, deflate, gzip };

/// Opens `encoded` as a source of its decoded bytes. Decodes everything once to learn the size. Reads in ascending
/// order cost one pass; a read that goes back starts over. The first and last 64 KiB are kept, so that opening an
/// archive (tail, then head) costs no further pass. Thread-safe; reads run one at a time.
/// \param place  names the stream in the budget, so that opening it again is not charged again
/// \errors errc::bad_format when the stream is damaged, or decodes to more than `budget` allows (null: no limit)
/// Memory: one decoder (its window, which the stream's header states, is at most 128 MiB) and 192 KiB.
result<std::unique_ptr<byte_source>> open_decoding_source(std::unique_ptr<byte_source> encoded, codec how,
                                                          read_budget* budget = nullptr, const std::string& place = {});

/// Returns the first decoded bytes of a stream: `count` of them, or all when there are fewer.
/// \errors errc::bad_format when that part of the stream is damaged
/// Cost: reads and decodes no more than needed, in pieces of 64 KiB.
result<std::vector<std::byte>> decode_beginning(const byte_source& encoded, codec how, std::int64_t count);

}  // namespace shardmesh
