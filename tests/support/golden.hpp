// SPDX-License-Identifier: Apache-2.0
// Golden JSON: the files of tests/data/golden, and readers of the values that all of them have in one form. The modules
// shardmesh.test.layouts and shardmesh.test.shards read types of shardmesh's modules. Include this header before
// imports.
// SHARDMESH_GOLDEN_DIR names another folder to read from: tests/oracle/mutate_golden.py makes copies with one answer
// changed, which a test must notice.
#pragma once
#include <shardmesh/extents.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace golden {

/// tests/data/golden, or the folder that SHARDMESH_GOLDEN_DIR names.
inline std::filesystem::path folder() {
  const char* other = std::getenv("SHARDMESH_GOLDEN_DIR");
  return other ? other : SHARDMESH_TEST_DATA "/golden";
}

/// A file under tests/data/golden, read once: `golden::file("seeds/traverse.json")`.
inline const nlohmann::json& file(const std::string& name) {
  static std::mutex lock;
  static std::map<std::string, nlohmann::json> read;
  const std::lock_guard guard(lock);
  const auto [entry, is_new] = read.try_emplace(name);
  if (is_new) {
    std::ifstream stream(folder() / name);
    entry->second = nlohmann::json::parse(stream);
  }
  return entry->second;
}

/// A list of numbers as extents, unchecked.
inline shardmesh::extents to_extents(const nlohmann::json& values) {
  shardmesh::extents made;
  for (const nlohmann::json& v : values) made.push_back(v.get<std::int64_t>());
  return made;
}

inline nlohmann::json to_json(const shardmesh::extents& values) {
  return nlohmann::json(std::vector<std::int64_t>(values.begin(), values.end()));
}

/// Whether PyTorch raised instead of answering.
inline bool refused(const nlohmann::json& answer) {
  return answer.is_object() && answer.contains("exception");
}

}  // namespace golden
