// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.comm;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.tree;
import :element_pieces;
import :mapped_moves;
import :ranks_state;

namespace shardmesh {
namespace {

// A smaller tensor is not divided: its chunks would be too small for files. Neither is one of a sub-byte type, whose
// cuts must be at whole bytes.
constexpr std::int64_t least_divided_bytes = std::int64_t{1} << 20;

std::vector<std::byte> encode(const const_local_state& held, bool skips_objects) {
  detail::wire_writer out;
  out.number(static_cast<std::int64_t>(held.tensors.size()));
  for (const const_local_state_tensor& tensor : held.tensors) {
    out.text(dotted(tensor.where));
    out.numbers(tensor.shape);
    out.number(static_cast<std::int64_t>(tensor.type));
    out.number(static_cast<std::int64_t>(tensor.parts.size()));
    for (const const_local_part& part : tensor.parts) out.where(part.where);
  }
  out.number(skips_objects ? 0 : static_cast<std::int64_t>(held.objects.size()));
  if (skips_objects) return std::move(out).take();
  for (const local_state_object& object : held.objects) out.text(dotted(object.where));
  return std::move(out).take();
}

// Combines the ranks' descriptions.
class state_merger {
 public:
  // Returns false if the bytes cannot be decoded.
  bool add(std::int32_t rank, std::span<const std::byte> said) {
    detail::wire_reader in(said);
    std::set<std::string> own;
    for (std::size_t left = in.count(); left > 0 && in.ok(); --left) {
      std::string key = in.text();
      const extents shape = in.numbers();
      const auto type = static_cast<dtype>(in.in_range(0, static_cast<std::int64_t>(dtype::bits4x2)));
      std::vector<box> parts;
      for (std::size_t p = in.count(); p > 0 && in.ok(); --p) parts.push_back(in.where());
      if (!in.ok()) return false;
      if (!own.insert(key).second)
        problems_.add(
            fail(errc::duplicate_key, "two tensors of the state have the same name").with_key(key).with_rank(rank));
      else
        add_tensor(rank, std::move(key), shape, type, parts);
    }
    for (std::size_t left = in.count(); left > 0 && in.ok(); --left) {
      std::string key = in.text();
      if (objects_.insert(key).second) made_.objects.push_back(std::move(key));
    }
    return in.finished();
  }

  result<ranks_state> finish(std::int32_t ranks) && {
    for (std::size_t i = 0; i < builders_.size(); ++i) {
      held_tensor& tensor = made_.tensors[i];
      builders_[i].at_least_owners(ranks);
      auto where = builders_[i].finish();
      if (where)
        tensor.where = *std::move(where);
      else
        problems_.add(std::move(where).error().with_key(tensor.key));
    }
    SHARDMESH_TRY(std::move(problems_).outcome());
    return std::move(made_);
  }

 private:
  void add_tensor(std::int32_t rank, std::string key, const extents& shape, dtype type, const std::vector<box>& parts) {
    const auto [found, is_new] = known_.emplace(key, made_.tensors.size());
    if (is_new) {
      builders_.emplace_back(shape, owner_space::ranks);
      shapes_.push_back(shape);
      made_.tensors.push_back({std::move(key), {}, type});
    }
    const std::size_t index = found->second;
    if (shapes_[index] != shape)
      return problems_.add(fail(errc::shape_mismatch, "ranks disagree on the shape of a tensor")
                               .with_key(made_.tensors[index].key)
                               .with_rank(rank)
                               .with_values(to_string(shapes_[index]), to_string(shape)));
    if (made_.tensors[index].type != type)
      return problems_.add(fail(errc::dtype_mismatch, "ranks disagree on the dtype of a tensor")
                               .with_key(made_.tensors[index].key)
                               .with_rank(rank)
                               .with_values(std::string(name(made_.tensors[index].type)), std::string(name(type))));
    for (std::size_t p = 0; p < parts.size(); ++p)
      builders_[index].add(rank, static_cast<std::int32_t>(p), parts[p].offsets, parts[p].sizes);
  }

  ranks_state made_;
  std::unordered_map<std::string, std::size_t> known_;
  std::vector<distribution_builder> builders_;
  std::vector<extents> shapes_;
  std::set<std::string> objects_;
  detail::problem_list problems_;
};

// The dimension of which each rank gets a part: the first one that is long enough, otherwise the longest one.
std::size_t divided_dimension(const extents& shape, std::int32_t ranks) {
  std::size_t longest = 0;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] >= ranks) return d;
    if (shape[d] > shape[longest]) longest = d;
  }
  return longest;
}

}  // namespace

result<ranks_state> gather_states(const const_local_state& held, bool skips_objects, communicator_ref comm,
                                  const call_options& call) {
  const agree_options agreement{.what = "states", .note = encode(held, skips_objects)};
  SHARDMESH_TRY(const agreement_notes notes,
                agree(comm, digest128{}, [] { return std::vector<agreement_record>(); }, agreement, call));
  state_merger merger;
  for (std::size_t rank = 0; rank < notes.size(); ++rank)
    if (!merger.add(static_cast<std::int32_t>(rank), notes[rank]))
      return fail(errc::bad_format, "the description of a rank's state cannot be decoded")
          .with_rank(static_cast<std::int32_t>(rank));
  return std::move(merger).finish(comm.size());
}

result<std::vector<held_tensor>> spread_evenly(std::span<const target_elements> made, std::int32_t ranks) {
  SHARDMESH_TRY(const device_mesh mesh, device_mesh::make({std::int64_t{ranks}}));
  std::vector<std::int64_t> whole_bytes(static_cast<std::size_t>(ranks), 0);  // of small tensors, per rank
  std::vector<held_tensor> all;
  all.reserve(made.size());
  for (const target_elements& one : made) {
    const std::int64_t bytes = size_bytes(one.type, box::whole(one.shape).volume()).value_or(0);
    if (bytes < least_divided_bytes || one.shape.rank() == 0 || bits(one.type) % 8 != 0) {
      const auto least = std::min_element(whole_bytes.begin(), whole_bytes.end());
      *least += bytes;
      const auto rank = static_cast<std::int32_t>(least - whole_bytes.begin());
      SHARDMESH_TRY(distribution where, on_one_rank(one.shape, rank));
      all.push_back({one.key, std::move(where), one.type});
      continue;
    }
    const auto d = static_cast<std::int32_t>(divided_dimension(one.shape, ranks));
    SHARDMESH_TRY(const layout even, layout::make(mesh, {placement::shard(d)}, one.shape, split_rule::balanced()));
    SHARDMESH_TRY(distribution where, distribute(even));
    all.push_back({one.key, std::move(where), one.type});
  }
  return all;
}

}  // namespace shardmesh
