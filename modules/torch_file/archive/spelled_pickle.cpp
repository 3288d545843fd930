// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :spelled_pickle;

namespace shardmesh::torch_file {
namespace {

constexpr std::byte proto{0x80};

// Protocols 0 and 1 do not begin with a mark of their own.
result<bool> may_be_spelled(const byte_source& file) {
  std::array<std::byte, 2> head{};
  if (file.size_bytes() < 2 || looks_like_zip(file)) return false;
  SHARDMESH_TRY(file.read(0, head));
  return head[0] != proto || head[1] <= std::byte{2};
}

bool names_bytes(std::span<const std::byte> bytes) {
  const pickle::used_names found = pickle::names_in(bytes);
  return std::any_of(found.names.begin(), found.names.end(),
                     [](const pickle::used_name& name) { return name.text == "_codecs.encode"; });
}

}  // namespace

result<std::shared_ptr<const byte_source>> with_plain_bytes(const byte_source& file, std::int64_t limit_bytes) {
  const std::shared_ptr<const byte_source> nothing;
  SHARDMESH_TRY(const bool may_be, may_be_spelled(file));
  if (!may_be) return nothing;
  // Tries ever longer prefixes while the pickle is cut short. Bulk data and files that are not pickles show early.
  const std::int64_t size = file.size_bytes(), most = std::min(size, limit_bytes);
  for (std::int64_t window = 1 << 16;; window *= 8) {
    SHARDMESH_TRY(std::vector<std::byte> bytes, read_range(file, 0, std::min(window, most), limit_bytes));
    const bool is_last = static_cast<std::int64_t>(bytes.size()) == most;
    const auto graph = pickle::graph::parse(std::span<const std::byte>(bytes));
    if (!graph && graph.error().found == pickle::cut_short && !is_last) continue;
    if (!graph || graph->consumed_bytes() != static_cast<std::size_t>(size)) return nothing;
    if (bytes[0] == proto && !names_bytes(bytes)) return nothing;
    pickle::writer out;
    // Twice the size suffices: protocol 4 may write names longer than protocol 0, and writes shared bytes once.
    if (!out.value(graph->root(), 2 * bytes.size() + 4096)) return nothing;
    return std::shared_ptr<const byte_source>(
        std::make_shared<const owned_source>(std::move(out).finish(), file.name()));
  }
}

}  // namespace shardmesh::torch_file
