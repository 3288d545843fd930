// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import shardmesh.layout;
import :box_sets;
import :round_share;

namespace shardmesh {
namespace {

void encode_box(detail::wire_writer& out, const box& where) {
  for (const std::int64_t offset : where.offsets) out.number(offset);
  for (const std::int64_t size : where.sizes) out.number(size);
}

// Returns nothing unless the box is not empty and lies within `outer`.
std::optional<box> decode_box(detail::wire_reader& in, const box& outer) {
  box where = outer;
  for (std::int64_t& offset : where.offsets) offset = in.number();
  for (std::int64_t& size : where.sizes) size = in.in_range(1, std::numeric_limits<std::int64_t>::max());
  if (!in.ok() || !is_well_formed(where) || !lies_within(where, outer)) return std::nullopt;
  return where;
}

class round_share_writer {
 public:
  round_share_writer(const merged_state& all, const catalog& contents, std::int32_t ranks)
      : all_(all), contents_(contents), own_(static_cast<std::size_t>(ranks)) {}

  result<std::vector<std::vector<std::byte>>> run(std::span<const reading_round> rounds) && {
    common_.number(static_cast<std::int64_t>(rounds.size()));
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      common_.number(static_cast<std::int64_t>(rounds[round].size()));
      for (std::size_t i = 0; i < rounds[round].size(); ++i) {
        const round_tensor& read = rounds[round][i];
        if (auto found = find_boxes(read.tensor); !found)
          return std::move(found).error().with_key(all_.tensors[read.tensor].key);
        write_tensor(read);
        for (const read_piece& piece : read.pieces) write_piece(round, i, piece);
      }
    }
    std::vector<std::vector<std::byte>> made;
    made.reserve(own_.size());
    for (detail::wire_writer& own : own_) {
      detail::wire_writer share;
      share.bytes(common_.written());
      share.raw(own.written());
      own = {};
      made.push_back(std::move(share).take());
    }
    return made;
  }

 private:
  struct wanted_box {
    std::size_t box_index = 0;  // in the tensor's boxes
    box where;                  // the part within the piece
  };

  // Indexes the boxes of a tensor, and finds their layers. The rounds of a tensor follow each other.
  result<void> find_boxes(std::size_t tensor) {
    if (tensor_ == tensor) return {};
    const merged_tensor& wanted = all_.tensors[tensor];
    distribution_builder made(wanted.shape, owner_space::ranks);
    made.reserve(wanted.boxes.size());
    std::vector<box> boxes;
    boxes.reserve(wanted.boxes.size());
    for (std::size_t i = 0; i < wanted.boxes.size(); ++i) {
      const rank_box& one = wanted.boxes[i];
      made.add(one.rank, static_cast<std::int32_t>(i), one.where.offsets, one.where.sizes);
      boxes.push_back(one.where);
    }
    SHARDMESH_TRY(boxes_, made.finish());
    layer_of_ = layers_of(wanted.shape.rank(), boxes);
    tensor_ = tensor;
    return {};
  }

  void write_tensor(const round_tensor& read) {
    const merged_tensor& tensor = all_.tensors[read.tensor];
    const auto stored = contents_.find(tensor.key) - contents_.tensors.data();
    common_.number(stored);
    common_.number(static_cast<std::int64_t>(tensor.type));
    common_.flag(read.is_last);
    common_.number(
        static_cast<std::int64_t>(layer_of_.empty() ? 1 : 1 + *std::max_element(layer_of_.begin(), layer_of_.end())));
  }

  void write_piece(std::size_t round, std::size_t position, const read_piece& piece) {
    const std::vector<rank_box>& boxes = all_.tensors[*tensor_].boxes;
    std::vector<wanted_box> wanted;
    boxes_.overlapping(piece.where, [&](const fragment& one) {
      wanted.push_back({static_cast<std::size_t>(one.slot), *intersect(piece.where, one.where)});
      return true;
    });
    const auto write_for = [&](std::int32_t rank, std::span<const wanted_box> parts) {
      detail::wire_writer& out = own_[static_cast<std::size_t>(rank)];
      out.number(static_cast<std::int64_t>(round));
      out.number(static_cast<std::int64_t>(position));
      out.flag(rank == piece.reader);
      out.number(rank == piece.reader ? piece.chunk : piece.reader);
      encode_box(out, piece.where);
      out.number(std::ssize(parts));
      for (const wanted_box& part : parts) write_part(out, rank, piece, part);
    };
    write_for(piece.reader, wanted);
    // The boxes were visited rank by rank.
    for (std::size_t first = 0, last = 0; first < wanted.size(); first = last) {
      const std::int32_t rank = boxes[wanted[first].box_index].rank;
      while (last < wanted.size() && boxes[wanted[last].box_index].rank == rank) ++last;
      if (rank != piece.reader) write_for(rank, std::span(wanted).subspan(first, last - first));
    }
  }

  void write_part(detail::wire_writer& out, std::int32_t rank, const read_piece& piece, const wanted_box& part) const {
    const rank_box& of = all_.tensors[*tensor_].boxes[part.box_index];
    if (rank == piece.reader) out.number(of.rank);
    if (rank == of.rank) out.number(of.part);
    out.number(static_cast<std::int64_t>(layer_of_[part.box_index]));
    out.flag(part.where == piece.where);
    if (part.where != piece.where) encode_box(out, part.where);
  }

  const merged_state& all_;
  const catalog& contents_;
  detail::wire_writer common_;
  std::vector<detail::wire_writer> own_;  // per rank
  std::optional<std::size_t> tensor_;     // whose boxes follow
  distribution boxes_;                    // a slot is an index into the tensor's boxes
  std::vector<std::size_t> layer_of_;     // per box
};

class round_share_reader {
 public:
  round_share_reader(const catalog& contents, std::int32_t rank, std::int32_t ranks)
      : contents_(contents), rank_(rank), ranks_(ranks) {}

  std::optional<std::vector<round_share>> run(std::span<const std::byte> bytes) && {
    detail::wire_reader in(bytes);
    const std::vector<std::byte> common = in.bytes();
    if (!in.ok() || !read_common(common)) return std::nullopt;
    while (in.ok() && !in.finished())
      if (!read_piece_into(in)) return std::nullopt;
    if (!in.ok()) return std::nullopt;
    return std::move(rounds_);
  }

 private:
  bool read_common(std::span<const std::byte> bytes) {
    detail::wire_reader in(bytes);
    const std::size_t rounds = in.count();
    for (std::size_t round = 0; round < rounds && in.ok(); ++round) {
      round_share& made = rounds_.emplace_back();
      const std::size_t tensors = in.count();
      for (std::size_t i = 0; i < tensors && in.ok(); ++i) {
        round_tensor_share one;
        one.stored = static_cast<std::size_t>(in.in_range(0, std::ssize(contents_.tensors) - 1));
        one.type = static_cast<dtype>(in.in_range(0, static_cast<std::int64_t>(dtype::bits4x2)));
        one.is_last = in.flag();
        one.layers = static_cast<std::size_t>(in.in_range(1, std::numeric_limits<std::int32_t>::max()));
        made.push_back(std::move(one));
      }
    }
    return in.finished();
  }

  bool read_piece_into(detail::wire_reader& in) {
    const auto round = static_cast<std::size_t>(in.in_range(0, std::ssize(rounds_) - 1));
    if (!in.ok()) return false;
    const auto position = static_cast<std::size_t>(in.in_range(0, std::ssize(rounds_[round]) - 1));
    if (!in.ok()) return false;
    round_tensor_share& tensor = rounds_[round][position];
    const tensor_entry& stored = contents_.tensors[tensor.stored];
    piece_share piece;
    if (in.flag()) {
      piece.reader = rank_;
      piece.chunk = static_cast<std::int32_t>(
          in.in_range(stored.first_chunk, std::int64_t{stored.first_chunk} + stored.chunk_count - 1));
    } else {
      piece.reader = static_cast<std::int32_t>(in.in_range(0, ranks_ - 1));
    }
    auto where = decode_box(in, box::whole(stored.shape));
    if (!where) return false;
    piece.where = *std::move(where);
    const std::size_t parts = in.count();
    for (std::size_t i = 0; i < parts && in.ok(); ++i) {
      auto part = read_part(in, piece, tensor.layers);
      if (!part) return false;
      piece.wanted.push_back(*std::move(part));
    }
    tensor.pieces.push_back(std::move(piece));
    return in.ok();
  }

  std::optional<wanted_part> read_part(detail::wire_reader& in, const piece_share& piece, std::size_t layers) const {
    wanted_part part;
    part.rank = piece.reader == rank_ ? static_cast<std::int32_t>(in.in_range(0, ranks_ - 1)) : rank_;
    if (part.rank == rank_) part.part = in.in_range(0, std::numeric_limits<std::int32_t>::max());
    part.layer = static_cast<std::size_t>(in.in_range(0, static_cast<std::int64_t>(layers) - 1));
    if (in.flag()) {
      part.where = piece.where;
    } else {
      auto where = decode_box(in, piece.where);
      if (!where) return std::nullopt;
      part.where = *std::move(where);
    }
    if (!in.ok()) return std::nullopt;
    return part;
  }

  const catalog& contents_;
  std::int32_t rank_, ranks_;
  std::vector<round_share> rounds_;
};

}  // namespace

result<std::vector<std::vector<std::byte>>> encode_round_shares(const merged_state& all, const catalog& contents,
                                                                std::span<const reading_round> rounds,
                                                                std::int32_t ranks) {
  return round_share_writer(all, contents, ranks).run(rounds);
}

std::optional<std::vector<round_share>> read_round_shares(std::span<const std::byte> bytes, const catalog& contents,
                                                          std::int32_t rank, std::int32_t ranks) {
  return round_share_reader(contents, rank, ranks).run(bytes);
}

}  // namespace shardmesh
