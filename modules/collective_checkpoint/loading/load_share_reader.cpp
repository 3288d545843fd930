// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import :load_share;
import :load_share_bytes;

namespace shardmesh {
namespace {

class load_share_reader {
 public:
  load_share_reader(std::span<const std::byte> bytes, const catalog& contents, std::int32_t ranks)
      : in_(bytes), contents_(contents), ranks_(ranks) {}

  std::optional<load_share> run() && {
    const std::vector<std::byte> common = in_.bytes();
    if (!in_.ok() || !read_common(common)) return std::nullopt;
    while (in_.ok() && is_ok_ && !in_.finished()) read_own();
    if (!in_.ok() || !is_ok_) return std::nullopt;
    return std::move(share_);
  }

 private:
  static dtype read_type(detail::wire_reader& in) {
    return static_cast<dtype>(in.in_range(0, static_cast<std::int64_t>(dtype::bits4x2)));
  }
  static std::int64_t below(detail::wire_reader& in, std::size_t count) {
    return in.in_range(0, static_cast<std::int64_t>(count) - 1);
  }

  bool read_common(std::span<const std::byte> bytes) {
    detail::wire_reader in(bytes);
    for (bool* const flag : {&share_.check, &share_.has_ties, &share_.opens_chunks, &share_.has_rounds})
      *flag = in.flag();
    if (!read_report(in)) return false;
    const std::size_t count = in.count();
    position_reader positions(in, contents_.tensors.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t stored = positions.next();
      const dtype type = read_type(in);
      if (!positions.ok() || !in.ok()) return false;
      share_.shared.push_back({stored, type});
    }
    return in.finished();
  }

  bool read_report(detail::wire_reader& in) {
    load_report& report = share_.report;
    const std::size_t tensors = contents_.tensors.size(), loaded = in.count();
    position_reader positions(in, tensors + contents_.objects.size());
    for (std::size_t i = 0; i < loaded; ++i) {
      const std::size_t at = positions.next();
      if (!positions.ok()) return false;
      report.loaded.push_back(at < tensors ? contents_.tensors[at].key : contents_.objects[at - tensors].key);
    }
    const std::size_t casts = in.count();
    position_reader cast_positions(in, tensors);
    for (std::size_t i = 0; i < casts; ++i) {
      const std::size_t at = cast_positions.next();
      const dtype type = read_type(in);
      if (!cast_positions.ok() || !in.ok()) return false;
      report.casts.push_back({contents_.tensors[at].key, contents_.tensors[at].type, type});
    }
    for (std::size_t left = in.count(); left > 0 && in.ok(); --left) report.missing.push_back(in.text());
    // All stored keys that were not loaded: a load in which a key has two kinds fails.
    const std::unordered_set<std::string_view> known(report.loaded.begin(), report.loaded.end());
    const auto find_surplus = [&](const std::string& key) {
      if (!known.contains(key)) report.unexpected.push_back(key);
    };
    for (const tensor_entry& tensor : contents_.tensors) find_surplus(tensor.key);
    for (const object_entry& object : contents_.objects) find_surplus(object.key);
    return in.ok();
  }

  void read_own() {
    switch (static_cast<own_entry>(in_.in_range(0, static_cast<std::int64_t>(own_entry::chunk)))) {
      case own_entry::in_pieces:
        share_.in_pieces.push_back(static_cast<std::size_t>(below(in_, contents_.tensors.size())));
        return;
      case own_entry::shared:
        return read_shared();
      case own_entry::object: {
        const auto stored = static_cast<std::size_t>(below(in_, contents_.objects.size()));
        share_.objects.push_back({stored, in_.flag()});
        return;
      }
      case own_entry::chunk:
        return read_chunk();
    }
  }

  void read_shared() {
    const auto position = static_cast<std::size_t>(below(in_, share_.shared.size()));
    shared_part part{.part = in_.in_range(0, INT32_MAX), .reads = in_.flag(), .peers = {}};
    if (!part.reads) {
      part.peers.push_back(static_cast<std::int32_t>(in_.in_range(0, ranks_ - 1)));
    } else {
      const std::size_t count = in_.count();
      position_reader receivers(in_, static_cast<std::size_t>(ranks_));
      for (std::size_t i = 0; i < count && receivers.ok(); ++i)
        part.peers.push_back(static_cast<std::int32_t>(receivers.next()));
      is_ok_ = is_ok_ && receivers.ok();
    }
    if (in_.ok() && is_ok_) share_.shared[position].parts.push_back(std::move(part));
  }

  void read_chunk() {
    chunk_to_open one{.number = in_.in_range(0, INT64_MAX)};
    one.stored = static_cast<std::size_t>(below(in_, contents_.tensors.size()));
    if (!in_.ok()) return;
    const tensor_entry& tensor = contents_.tensors[one.stored];
    one.chunk = static_cast<std::int32_t>(
        in_.in_range(tensor.first_chunk, std::int64_t{tensor.first_chunk} + tensor.chunk_count - 1));
    share_.chunks.push_back(one);
  }

  detail::wire_reader in_;
  const catalog& contents_;
  std::int32_t ranks_;
  load_share share_;
  bool is_ok_ = true;
};

}  // namespace

std::optional<load_share> read_load_share(std::span<const std::byte> bytes, const catalog& contents,
                                          std::int32_t ranks) {
  return load_share_reader(bytes, contents, ranks).run();
}

}  // namespace shardmesh
