// SPDX-License-Identifier: Apache-2.0
// Answers of the C interface in the library's own types, so that a test compares whole answers. Templates over module
// types, which the test imports.
#pragma once
#include <shardmesh/c_api.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace c_answers {

namespace c = shardmesh::c_api;

/// Every field of a list of our errors as text, and the line that users see.
template <class Error>
std::string ours(const std::vector<Error>& errors) {
  std::string all;
  for (const Error& e : errors) {
    all += std::to_string(static_cast<int>(e.code)) + "|" + e.message + "|" + e.key + "|" + e.file + "|" + e.expected +
           "|" + e.found + "|" + e.hint + "|" + std::to_string(e.sys);
    for (const std::int32_t rank : e.ranks) all += "|rank " + std::to_string(rank);
    for (const auto& b : e.boxes) all += "|" + to_string(b);
    all += "\n" + to_string(e) + "\n";
  }
  return all;
}

/// The same for errors of the C interface; `to_box` makes one of our boxes.
template <class ToBox>
std::string theirs(const std::vector<c::error>& errors, ToBox to_box) {
  std::string all;
  for (const c::error& e : errors) {
    all += std::to_string(e.status) + "|" + e.message + "|" + e.key + "|" + e.path + "|" + e.expected + "|" + e.found +
           "|" + e.hint + "|" + std::to_string(e.system_error);
    for (const std::int32_t rank : e.ranks) all += "|rank " + std::to_string(rank);
    for (const shardmesh_box& b : e.boxes) all += "|" + to_string(to_box(b));
    all += std::string("\n") + e.what() + "\n";
  }
  return all;
}

/// The problems that a call throws, or none.
template <class Call>
std::vector<c::error> problems_of(Call&& call) {
  try {
    call();
  } catch (const c::error& e) {
    std::vector<c::error> all{e};
    all.insert(all.end(), e.others.begin(), e.others.end());
    return all;
  }
  return {};
}

/// A temporary folder with the test's lifetime.
struct scratch_folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("shardmesh-c-api-" + std::to_string(std::random_device{}()));
  scratch_folder() { std::filesystem::create_directory(path); }
  ~scratch_folder() { std::filesystem::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

/// Damages a file: flips one bit of a byte.
inline void flip_byte(const std::filesystem::path& file, std::int64_t offset) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(offset);
  const char was = static_cast<char>(bytes.get());
  bytes.seekp(offset);
  bytes.put(static_cast<char>(was ^ 0x10));
}

}  // namespace c_answers
