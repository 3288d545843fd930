// SPDX-License-Identifier: Apache-2.0
// Pickles of tests: parses bytes that a test spells out, writes values again, and compares graphs. It imports, so it is
// the last header that a test includes.
#pragma once
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.pickle;

namespace pickles {

using namespace shardmesh;

inline const std::filesystem::path fixtures = std::filesystem::path(SHARDMESH_TEST_DATA) / "pickle";

inline std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

inline pickle::graph parsed(std::string_view text) {
  return pickle::graph::parse(bytes_of(text)).value();
}

/// The error that refuses the pickle; the test fails if there is none.
inline error problem_of(std::string_view text) {
  const auto graph = pickle::graph::parse(bytes_of(text));
  REQUIRE(!graph);
  return graph.error();
}

/// Structural equality of two graphs. Pairs under comparison count as equal, so cycles end.
inline bool equal(const pickle::value& a, const pickle::value& b) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  std::vector<std::pair<pickle::value, pickle::value>> pending{{a, b}};
  while (!pending.empty()) {
    const auto [x, y] = pending.back();
    pending.pop_back();
    if (x.kind() != y.kind()) return false;
    if (!seen.insert({x.identity(), y.identity()}).second) continue;
    if (x.as_bool() != y.as_bool() || x.decimal() != y.decimal() || x.text() != y.text()) return false;
    if (x.as_float() && std::bit_cast<std::uint64_t>(*x.as_float()) != std::bit_cast<std::uint64_t>(*y.as_float()))
      return false;
    if (x.bytes() && !std::ranges::equal(*x.bytes(), *y.bytes())) return false;
    if (x.global_module() != y.global_module() || x.global_name() != y.global_name() || x.size() != y.size())
      return false;
    if (x.kind() == pickle::kind::dict) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        pending.push_back({x.pairs()[i].key, y.pairs()[i].key});
        pending.push_back({x.pairs()[i].value, y.pairs()[i].value});
      }
    } else {
      for (std::size_t i = 0; i < x.size(); ++i) pending.push_back({x.items()[i], y.items()[i]});
    }
    if (x.kind() == pickle::kind::record) {
      if (x.form() != y.form()) return false;
      pending.push_back({x.callable(), y.callable()});
      pending.push_back({x.args(), y.args()});
      pending.push_back({x.state(), y.state()});
      pending.push_back({x.appended(), y.appended()});
      pending.push_back({x.assigned(), y.assigned()});
      pending.push_back({x.keyword_args(), y.keyword_args()});
    }
    if (x.kind() == pickle::kind::persistent) pending.push_back({x.persistent_id(), y.persistent_id()});
  }
  return true;
}

/// The graph of the value's pickle in `protocol`.
inline pickle::graph written_again(const pickle::value& value, int protocol = 4) {
  pickle::writer writer(protocol);
  writer.value(value).value();
  return pickle::graph::parse(std::move(writer).finish()).value();
}

}  // namespace pickles
