// SPDX-License-Identifier: Apache-2.0
// Compares excerpts of a pickle with the whole: kept values are equal, and nothing else is kept.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.pickle;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view dicts[] = {"state_dict_metadata", "planner_data", "storage_data"};

std::vector<std::byte> bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::optional<std::vector<std::byte>> excerpt_of(std::span<const std::byte> whole,
                                                 const std::vector<std::string>& wanted) {
  const auto read = [&](std::int64_t offset, std::span<std::byte> out) -> result<void> {
    REQUIRE(offset >= 0);
    REQUIRE(static_cast<std::size_t>(offset) + out.size() <= whole.size());
    std::copy_n(whole.begin() + offset, out.size(), out.begin());
    return {};
  };
  return pickle::excerpt(read, static_cast<std::int64_t>(whole.size()), {dicts, wanted}).value();
}

// A value as text, in full: records with their arguments, state, and items.
std::string spell(const pickle::value& value, int depth = 0) {
  if (depth > 40) return "...";
  std::string text = std::string(pickle::name(value.kind())) + "{";
  if (const auto t = value.text()) text += *t;
  if (const auto i = value.as_int()) text += std::to_string(*i);
  if (const auto b = value.as_bool()) text += *b ? "true" : "false";
  if (const auto f = value.as_float()) text += std::to_string(*f);
  if (value.kind() == pickle::kind::global)
    text += std::string(value.global_module()) + "." + std::string(value.global_name());
  for (const pickle::value item : value.items()) text += spell(item, depth + 1) + ",";
  for (const auto [key, item] : value.pairs()) text += spell(key, depth + 1) + ":" + spell(item, depth + 1) + ",";
  if (value.kind() == pickle::kind::record)
    text += spell(value.callable(), depth + 1) + "(" + spell(value.args(), depth + 1) + ")" +
            spell(value.state(), depth + 1);
  return text + "}";
}

pickle::value attributes_of(const pickle::graph& graph) {
  const pickle::value state = graph.root().state();
  return state.kind() == pickle::kind::tuple ? state.items()[0] : state;
}

bool holds(const pickle::value& key, const std::set<std::string>& wanted) {
  if (const auto text = key.text()) return wanted.contains(std::string(*text));
  if (key.kind() != pickle::kind::record) return false;
  for (const auto [name, value] : key.state().pairs())
    if (value.text() && wanted.contains(std::string(*value.text()))) return true;
  return false;
}

// The root's attributes as text. Dicts that excerpts cut show only items with a wanted key (null: all items).
std::map<std::string, std::string> spelled_attributes(const pickle::graph& graph, const std::set<std::string>* wanted) {
  std::map<std::string, std::string> spelled;
  for (const auto [name, value] : attributes_of(graph).pairs()) {
    std::string& text = spelled[std::string(name.text().value())];
    const bool is_cut = std::find(std::begin(dicts), std::end(dicts), *name.text()) != std::end(dicts) &&
                        value.kind() == pickle::kind::dict;
    if (!is_cut) text = spell(value);
    for (const auto [key, item] : is_cut ? value.pairs() : pickle::value().pairs())
      if (wanted == nullptr || holds(key, *wanted)) text += spell(key) + " -> " + spell(item) + "\n";
  }
  return spelled;
}

std::vector<fs::path> metadata_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(SHARDMESH_TEST_DATA))
    if (entry.path().filename().string().ends_with(".metadata")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> keys_of(const pickle::graph& graph) {
  std::vector<std::string> keys;
  for (const auto [name, value] : attributes_of(graph).pairs())
    if (name.text() == "state_dict_metadata")
      for (const auto [key, item] : value.pairs())
        if (key.text()) keys.emplace_back(*key.text());
  return keys;
}

}  // namespace

TEST_CASE("an excerpt of every metadata file has the wanted items, each as it is in the whole") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::size_t cut = 0, whole_only = 0;
  for (const fs::path& file : metadata_files()) {
    const std::vector<std::byte> bytes = bytes_of(file);
    const auto whole = pickle::graph::parse(bytes);
    if (!whole || whole->root().kind() != pickle::kind::record) continue;
    INFO(file.string());
    const std::vector<std::string> keys = keys_of(*whole);
    for (int trial = 0; trial < 6; ++trial) {
      std::set<std::string> wanted{"no such key"};
      const std::size_t count = trial == 5 ? keys.size() : static_cast<std::size_t>(trial);
      for (std::size_t i = 0; i < count && !keys.empty(); ++i)
        wanted.insert(trial == 5 ? keys[i] : keys[random() % keys.size()]);
      const auto part = excerpt_of(bytes, {wanted.begin(), wanted.end()});
      if (!part) {
        ++whole_only;
        continue;
      }
      ++cut;
      const auto parsed = pickle::graph::parse(*part);
      REQUIRE(parsed);
      std::map<std::string, std::string> expected = spelled_attributes(*whole, &wanted);
      const std::map<std::string, std::string> found = spelled_attributes(*parsed, nullptr);
      for (const auto& [attribute, text] : expected) CHECK(found.at(attribute) == text);
      CHECK(found.size() == expected.size());
    }
  }
  CHECK(cut > 100);
  CHECK(whole_only < cut / 4);
}

TEST_CASE("what is not written as picklers write it has no excerpt, and damage is never read past the end") {
  const std::vector<std::byte> bytes =
      bytes_of(fs::path(SHARDMESH_TEST_DATA) / "golden/single_rank/checkpoint/.metadata");
  const auto whole = pickle::graph::parse(bytes).value();
  const std::string key = keys_of(whole).at(0);
  REQUIRE(excerpt_of(bytes, {key}));
  CHECK_FALSE(excerpt_of(bytes, {"storage_data"}));  // could be confused with the attribute
  const auto text_pickle = [](std::string_view text) {
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    return std::vector<std::byte>(begin, begin + text.size());
  };
  CHECK_FALSE(excerpt_of({}, {key}));
  CHECK_FALSE(excerpt_of(text_pickle("}."), {key}));               // no object
  CHECK_FALSE(excerpt_of(text_pickle("cm\nM\n)\x81}b."), {key}));  // without such attributes
  CHECK_FALSE(excerpt_of(text_pickle("N20."), {key}));             // DUP and POP
  for (std::size_t cut = 0; cut < bytes.size(); cut += 7) CHECK_FALSE(excerpt_of(std::span(bytes).first(cut), {key}));
  // Damaged bytes give no excerpt, or one that is parsed like any pickle; `read` checks its ranges.
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<std::byte> damaged = bytes;
    for (int i = 0; i <= trial % 3; ++i) damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    if (const auto part = excerpt_of(damaged, {key})) static_cast<void>(pickle::graph::parse(*part));
  }
}
