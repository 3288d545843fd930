// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import :load_share;
import :load_share_bytes;
import :rank_share;

namespace shardmesh {
namespace {

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

}  // namespace

std::vector<std::vector<std::byte>> encode_load_shares(const load_plan& plan, const catalog& contents,
                                                       read_sharing sharing, std::int32_t ranks) {
  return load_share_writer(plan, contents, sharing, ranks).run();
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
