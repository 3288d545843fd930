// SPDX-License-Identifier: Apache-2.0
// decoding_source: the decoded bytes of a compressed run, read by range without holding them all.
export module shardmesh.storage:decoding;

import shardmesh.std;
import shardmesh.core;
import :read_limits;
import :source;

export namespace shardmesh {

enum class codec : std::uint8_t { zstd, deflate };

/// The decoded bytes of `encoded`. Reads in ascending order cost one pass; a read behind the last one starts over. The
/// first and last 64 KiB are kept, so that opening an archive (tail, then head) costs no further pass.
/// The first call decodes everything once to learn the size: refused with errc::bad_format when the stream is damaged,
/// or beyond what `budget` (null: none) allows; `place` names the stream there, so that opening it again costs nothing.
/// Memory: one decoder (its window, at most 128 MiB, is in the stream's header) and 192 KiB. Thread-safe; reads take
/// turns.
result<std::unique_ptr<byte_source>> open_decoding_source(std::unique_ptr<byte_source> encoded, codec how,
                                                          read_budget* budget = nullptr, const std::string& place = {});

}  // namespace shardmesh
