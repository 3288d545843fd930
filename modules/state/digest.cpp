// SPDX-License-Identifier: Apache-2.0
module;

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.state;

import shardmesh.digest;

namespace shardmesh::detail {
namespace {

// The bytes to hash, little-endian on every machine.
class hashed_bytes {
 public:
  explicit hashed_bytes(std::string_view what) { text(what); }
  void number(std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) bytes_.push_back(static_cast<char>(value >> (8 * byte)));
  }
  void numbers(const extents& values) {
    number(values.rank());
    for (const std::int64_t value : values) number(static_cast<std::uint64_t>(value));
  }
  void text(std::string_view value) {
    number(value.size());
    bytes_ += value;
  }
  void digest(const digest128& value) {
    number(value.low);
    number(value.high);
  }
  digest128 done() const { return xxh3(std::as_bytes(std::span(bytes_))); }

 private:
  std::string bytes_;
};

}  // namespace

digest128 digest_of_kind(value_kind kind) {
  return hashed_bytes(name(kind)).done();
}

digest128 digest_of_tensor(dtype type, const extents& sizes) {
  hashed_bytes hashed("tensor");
  hashed.text(name(type));
  hashed.numbers(sizes);
  return hashed.done();
}

// Devices do not count: ranks may name their own differently ("cuda", "cuda:0").
digest128 digest_of_metadata(const sharded_tensor_metadata& metadata) {
  struct held {
    extents offsets, sizes;
    std::int64_t rank = -1;
    std::string_view worker;
    auto operator<=>(const held&) const = default;
  };
  std::vector<held> shards;
  shards.reserve(metadata.shards.size());
  for (const shard_metadata& shard : metadata.shards)
    shards.push_back({shard.offsets, shard.sizes, shard.rank().value_or(-1),
                      shard.placement ? std::string_view(shard.placement->worker) : std::string_view()});
  std::sort(shards.begin(), shards.end());
  hashed_bytes hashed("sharded tensor");
  hashed.text(name(metadata.properties.type));
  hashed.numbers(metadata.size);
  hashed.number(shards.size());
  for (const held& one : shards) {
    hashed.numbers(one.offsets);
    hashed.numbers(one.sizes);
    hashed.number(static_cast<std::uint64_t>(one.rank));
    hashed.text(one.worker);
  }
  return hashed.done();
}

result<digest128> digest_of_dtensor(const layout& l, dtype type) {
  SHARDMESH_TRY(const distribution held, distribute(l));
  hashed_bytes hashed("dtensor");
  hashed.text(name(type));
  hashed.numbers(l.shape());
  hashed.digest(held.description_digest());
  return hashed.done();
}

// Each node is hashed with its typed path. The sum of the digests does not depend on the order.
digest128 digest_of_tree(const tree_spec& spec, const std::vector<digest128>& leaves) {
  const auto nodes = spec.nodes();
  const auto keys = spec.keys();
  struct container {
    digest128 path;
    std::int32_t children_left;
  };
  std::vector<container> open;
  digest128 sum;
  std::size_t leaf = leaves.size();
  for (std::size_t node = nodes.size(); node-- > 0;) {  // parents before children
    const tree_node& n = nodes[node];
    while (!open.empty() && open.back().children_left == 0) open.pop_back();
    hashed_bytes hashed("path");
    if (!open.empty()) {
      --open.back().children_left;
      hashed.digest(open.back().path);
      hashed.number(keys[node].is_index() ? 0 : 1);
      if (keys[node].is_index())
        hashed.number(static_cast<std::uint64_t>(keys[node].index()));
      else
        hashed.text(keys[node].name());
    }
    const digest128 where = hashed.done();
    hashed_bytes whole("node");
    whole.digest(where);
    whole.number(static_cast<std::uint64_t>(n.kind));
    if (n.kind == node_kind::leaf)
      whole.digest(leaves[--leaf]);
    else
      open.push_back({where, n.arity});
    const digest128 one = whole.done();
    const std::uint64_t low = sum.low + one.low;
    sum.high += one.high + (low < sum.low ? 1 : 0);
    sum.low = low;
  }
  hashed_bytes hashed("state dict");
  hashed.number(nodes.size());
  hashed.digest(sum);
  return hashed.done();
}

}  // namespace shardmesh::detail
