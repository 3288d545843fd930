// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.moves.
module;
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <indices.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

module shardmesh.test.moves;

import shardmesh.sharding;

using namespace shardmesh;

namespace moves {

whole_tensor whole_tensor::random(std::mt19937_64& source, const extents& size, dtype type) {
  whole_tensor made{size, type, {}};
  made.bytes.resize(static_cast<std::size_t>(box::whole(size).volume()) * made.item());
  for (std::byte& b : made.bytes) b = static_cast<std::byte>(source());
  return made;
}

std::size_t whole_tensor::item() const {
  return static_cast<std::size_t>(item_bytes(type));
}

std::vector<std::byte> whole_tensor::part(const box& b) const {
  std::vector<std::byte> made;
  indices::for_each_in(b, [&](const extents& index) {
    const auto first = bytes.begin() + indices::row_major(index, size) * static_cast<std::int64_t>(item());
    made.insert(made.end(), first, first + static_cast<std::ptrdiff_t>(item()));
  });
  return made;
}

host_tensor whole_tensor::tensor(const box& b) const {
  host_tensor made = host_tensor::make(type, b.sizes).value();
  const auto values = part(b);
  std::copy(values.begin(), values.end(), made.bytes().begin());
  return made;
}

host_tensor whole_tensor::tensor() const {
  return tensor(box::whole(size));
}

bool whole_tensor::holds(const host_tensor& found, const box& b) const {
  const auto values = part(b);
  return found.type() == type && found.sizes() == b.sizes &&
         std::equal(values.begin(), values.end(), found.bytes().begin(), found.bytes().end());
}

bool whole_tensor::holds(const sharded_tensor<host_tensor>& found) const {
  return found.size() == size && std::all_of(found.local_shards().begin(), found.local_shards().end(),
                                             [&](auto& s) { return holds(s.tensor(), s.metadata().where()); });
}

sharded_tensor<host_tensor> cut(const whole_tensor& whole, const std::vector<shard_metadata>& shards,
                                const rank_group& group, std::int32_t rank) {
  std::vector<shard<host_tensor>> local;
  for (const shard_metadata& s : shards)
    if (s.rank() == group.global(rank)) local.push_back(shard<host_tensor>::make(whole.tensor(s.where()), s).value());
  return sharded_tensor<host_tensor>::make(std::move(local), {shards, whole.size, {.type = whole.type}}, group, rank)
      .value();
}

result<void> failed(const std::string& what) {
  return fail(errc::invalid_argument, what);
}

void on_all(std::int32_t ranks, rank_body body) {
  const auto ran = run_ranks(ranks, body);
  INFO((ran ? "" : to_string(ran.error())));
  REQUIRE(ran);
}

std::string error_on_all(std::int32_t ranks, rank_body body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  on_all(ranks, [&](any_communicator& comm) -> result<void> {
    const auto found = body(comm);
    texts[static_cast<std::size_t>(comm.rank())] = found ? "no error" : to_string(found.error());
    const auto after = comm.all_gather({}, {});
    return after ? result<void>() : result<void>(after.error());
  });
  for (const std::string& text : texts) REQUIRE(text == texts[0]);
  return texts[0];
}

}  // namespace moves
