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
import :rank_share;

namespace shardmesh {
namespace {

// The kinds of a rank's own entries, which follow the part that is the same on every rank.
enum class own_entry : std::uint8_t { in_pieces, shared, object, chunk };

// Writes or reads ascending positions as differences, which take one byte each.
class position_writer {
 public:
  explicit position_writer(detail::wire_writer& out) : out_(out) {}
  void add(std::size_t position) {
    out_.number(static_cast<std::int64_t>(position) - last_);
    last_ = static_cast<std::int64_t>(position);
  }

 private:
  detail::wire_writer& out_;
  std::int64_t last_ = -1;
};

class position_reader {
 public:
  position_reader(detail::wire_reader& in, std::size_t count) : in_(in), count_(static_cast<std::int64_t>(count)) {}
  // Returns `count` after malformed bytes.
  std::size_t next() {
    const std::int64_t step = in_.in_range(-count_, count_);
    last_ += step;
    is_ok_ = is_ok_ && in_.ok() && last_ >= 0 && last_ < count_;
    return static_cast<std::size_t>(is_ok_ ? last_ : count_);
  }
  bool ok() const { return is_ok_; }

 private:
  detail::wire_reader& in_;
  std::int64_t count_;
  std::int64_t last_ = -1;
  bool is_ok_ = true;
};

class load_share_writer {
 public:
  load_share_writer(const load_plan& plan, const catalog& contents, read_sharing sharing, std::int32_t ranks)
      : plan_(plan), contents_(contents), sharing_(sharing), own_(static_cast<std::size_t>(ranks)) {}

  std::vector<std::vector<std::byte>> run() && {
    const std::vector<std::byte> common = write_common();
    write_pieces();
    write_shared();
    write_objects();
    write_chunks();
    std::vector<std::vector<std::byte>> made;
    made.reserve(own_.size());
    for (detail::wire_writer& own : own_) {
      detail::wire_writer share;
      share.bytes(common);
      share.raw(own.written());
      own = {};
      made.push_back(std::move(share).take());
    }
    return made;
  }

 private:
  std::size_t stored(std::size_t tensor) const {
    return static_cast<std::size_t>(contents_.find(plan_.all.tensors[tensor].key) - contents_.tensors.data());
  }

  detail::wire_writer& own(std::int32_t rank, own_entry kind) {
    detail::wire_writer& out = own_[static_cast<std::size_t>(rank)];
    out.number(static_cast<std::int64_t>(kind));
    return out;
  }

  std::vector<std::byte> write_common() const {
    detail::wire_writer out;
    for (const bool flag : {plan_.check, plan_.has_ties, !plan_.reads.unclear.empty(), !plan_.reads.in_pieces.empty()})
      out.flag(flag);
    write_report(out);
    // `shared` is ordered by tensor.
    std::int64_t count = 0;
    for (std::size_t i = 0; i < plan_.reads.shared.size(); ++i) count += begins_tensor(i) ? 1 : 0;
    out.number(count);
    position_writer positions(out);
    for (std::size_t i = 0; i < plan_.reads.shared.size(); ++i) {
      if (!begins_tensor(i)) continue;
      const std::size_t tensor = plan_.reads.shared[i].tensor;
      positions.add(stored(tensor));
      out.number(static_cast<std::int64_t>(plan_.all.tensors[tensor].type));
    }
    return std::move(out).take();
  }

  void write_report(detail::wire_writer& out) const {
    const load_report& report = plan_.match.report;
    out.number(static_cast<std::int64_t>(report.loaded.size()));
    position_writer positions(out);
    for (std::size_t t = 0; t < plan_.all.tensors.size(); ++t)
      if (plan_.match.is_there[t]) positions.add(stored(t));
    for (const std::ptrdiff_t object : plan_.match.stored_objects)
      if (object >= 0) positions.add(contents_.tensors.size() + static_cast<std::size_t>(object));
    out.number(static_cast<std::int64_t>(report.casts.size()));
    position_writer cast_positions(out);
    for (const loaded_cast& cast : report.casts) {
      cast_positions.add(static_cast<std::size_t>(contents_.find(cast.key) - contents_.tensors.data()));
      out.number(static_cast<std::int64_t>(cast.loaded));
    }
    out.number(static_cast<std::int64_t>(report.missing.size()));
    for (const std::string& key : report.missing) out.text(key);
  }

  bool begins_tensor(std::size_t shared) const {
    return shared == 0 || plan_.reads.shared[shared].tensor != plan_.reads.shared[shared - 1].tensor;
  }

  void write_pieces() {
    for (const std::size_t t : plan_.reads.in_pieces) {
      const merged_tensor& tensor = plan_.all.tensors[t];
      const auto position = static_cast<std::int64_t>(stored(t));
      for (const std::int32_t rank : tensor.ranks) own(rank, own_entry::in_pieces).number(position);
    }
  }

  void write_shared() {
    std::int64_t position = -1;
    for (std::size_t i = 0; i < plan_.reads.shared.size(); ++i) {
      const shared_box& one = plan_.reads.shared[i];
      position += begins_tensor(i) ? 1 : 0;
      const std::vector<rank_box>& boxes = plan_.all.tensors[one.tensor].boxes;
      const rank_box& reader = boxes[one.reader];
      for (std::size_t k = one.holders.first; k < one.holders.last; ++k) {
        detail::wire_writer& out = own(boxes[k].rank, own_entry::shared);
        out.number(position);
        out.number(boxes[k].part);
        out.flag(k == one.reader);
        if (k != one.reader) {
          out.number(reader.rank);
          continue;
        }
        out.number(static_cast<std::int64_t>(one.holders.last - one.holders.first) - 1);
        position_writer receivers(out);
        for (std::size_t to = one.holders.first; to < one.holders.last; ++to)
          if (to != one.reader) receivers.add(static_cast<std::size_t>(boxes[to].rank));
      }
    }
  }

  void write_objects() {
    for (std::size_t i = 0; i < plan_.all.objects.size(); ++i) {
      const std::int64_t object = plan_.match.stored_objects[i];
      if (object < 0) continue;
      const std::vector<std::int32_t>& ranks = plan_.all.objects[i].ranks;
      const bool for_all = sharing_ != read_sharing::each_rank;
      for (const std::int32_t rank : std::span(ranks).first(for_all ? 1 : ranks.size())) {
        detail::wire_writer& out = own(rank, own_entry::object);
        out.number(object);
        out.flag(for_all && ranks.size() > 1);
      }
    }
  }

  void write_chunks() {
    for (std::size_t i = 0; i < plan_.reads.unclear.size(); ++i) {
      const unclear_chunk& one = plan_.reads.unclear[i];
      detail::wire_writer& out = own(one.rank, own_entry::chunk);
      out.number(static_cast<std::int64_t>(i));
      out.number(static_cast<std::int64_t>(stored(one.tensor)));
      out.number(one.chunk);
    }
  }

  const load_plan& plan_;
  const catalog& contents_;
  read_sharing sharing_;
  std::vector<detail::wire_writer> own_;  // per rank
};

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

std::vector<std::vector<std::byte>> encode_load_shares(const load_plan& plan, const catalog& contents,
                                                       read_sharing sharing, std::int32_t ranks) {
  return load_share_writer(plan, contents, sharing, ranks).run();
}

std::optional<load_share> read_load_share(std::span<const std::byte> bytes, const catalog& contents,
                                          std::int32_t ranks) {
  return load_share_reader(bytes, contents, ranks).run();
}

std::vector<std::vector<std::byte>> with_verdict(const result<void>& planned, std::vector<std::vector<std::byte>> parts,
                                                 std::int32_t ranks) {
  std::vector<std::vector<std::byte>> made;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    detail::wire_writer told;
    write_verdict(told, planned);
    if (planned) told.raw(std::exchange(parts[rank], {}));
    made.push_back(std::move(told).take());
  }
  return made;
}

}  // namespace shardmesh
