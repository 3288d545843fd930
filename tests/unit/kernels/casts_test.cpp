// SPDX-License-Identifier: Apache-2.0
// Compares every conversion with PyTorch's, by hashes that tests/oracle/make_casts.py wrote.
#include <fmt/format.h>
#include <cast_patterns.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.kernels;

using namespace shardmesh;

namespace {

std::size_t part_bytes(dtype type) {
  const auto item = static_cast<std::size_t>(item_bytes(type));
  return kind(type) == dtype_kind::complex ? item / 2 : item;
}

tensor_view line(std::vector<std::byte>& bytes, dtype type) {
  const auto count = static_cast<std::int64_t>(bytes.size()) / item_bytes(type);
  return {bytes.data(), type, {}, {count}, {1}};
}

// PyTorch leaves the conversion of a float that does not fit undefined; the hashes use 0.
void clear_undefined(cast_patterns::words& results, std::vector<std::byte>& source, dtype from, dtype to) {
  if (kind(to) != dtype_kind::integer || (kind(from) != dtype_kind::floating && kind(from) != dtype_kind::complex))
    return;
  std::vector<double> values(results.size());
  const auto count = static_cast<std::int64_t>(values.size());
  REQUIRE(copy({reinterpret_cast<std::byte*>(values.data()), dtype::float64, {}, {count}, {1}}, line(source, from)));
  const bool is_signed = name(to).starts_with("int");
  const double high = std::ldexp(1.0, bits(to) - (is_signed ? 1 : 0));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double whole = std::trunc(values[i]);
    if (!(whole >= (is_signed ? -high : 0.0) && whole < high)) results[i] = 0;
  }
}

}  // namespace

TEST_CASE("every conversion gives PyTorch's bits for all small and many large patterns") {
  std::ifstream file(SHARDMESH_TEST_DATA "/casts/casts.json");
  const auto expected = nlohmann::json::parse(file).at("hashes");
  REQUIRE(expected.size() == 21 * 21);
  for (const auto& [pair, hash] : expected.items()) {
    const auto from = parse_dtype(pair.substr(0, pair.find(' '))).value();
    const auto to = parse_dtype(pair.substr(pair.find(' ') + 1)).value();
    INFO(pair);
    auto source = cast_patterns::to_bytes(cast_patterns::of(name(from)), part_bytes(from));
    const std::size_t count = source.size() / static_cast<std::size_t>(item_bytes(from));
    std::vector<std::byte> target(count * static_cast<std::size_t>(item_bytes(to)));
    REQUIRE(copy(line(target, to), line(source, from)));
    auto results = cast_patterns::to_words(target, part_bytes(to));
    clear_undefined(results, source, from, to);
    CHECK(fmt::format("{:016x}", cast_patterns::hash(results)) == hash.get<std::string>());
    // For a closer look, compare this folder with PyTorch's output.
    if (const char* folder = std::getenv("SHARDMESH_DUMP_CASTS"))
      std::ofstream(fmt::format("{}/{}", folder, pair), std::ios::binary)
          .write(reinterpret_cast<const char*>(target.data()), static_cast<std::streamsize>(target.size()));
  }
}
