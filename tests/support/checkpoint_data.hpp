// SPDX-License-Identifier: Apache-2.0
// Golden checkpoints for tests: their files, their JSON, and the items that metadata.json lists. Include before
// imports.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace checkpoint_data {

inline std::filesystem::path golden() {
  return golden::folder();
}

inline std::vector<std::byte> read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) bytes[i] = static_cast<std::byte>(text[i]);
  return bytes;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// Every `.metadata` and `__<rank>.metadata` file of the undamaged golden cases.
inline std::vector<std::filesystem::path> metadata_files() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(golden())) {
    const std::string name = entry.path().filename().string();
    const bool corrupt = entry.path().string().find("/corrupt/") != std::string::npos;
    if (!corrupt && entry.is_regular_file() && name.ends_with(".metadata")) found.push_back(entry.path());
  }
  return found;
}

/// One item of a .distcp file, as listed in the case's metadata.json.
struct item {
  std::string case_name, fqn;
  std::filesystem::path file;
  std::int64_t offset = 0, length = 0;
  bool is_object = false;
};

/// The items without transforms, of every case that has a metadata.json.
inline std::vector<item> items() {
  std::vector<item> found;
  for (const auto& folder : std::filesystem::directory_iterator(golden())) {
    if (!folder.is_directory()) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("metadata.") || !name.ends_with("json")) continue;
      const auto listing = read_json(entry.path());
      if (!listing.contains("storage_data")) continue;
      for (const auto& stored : listing["storage_data"]) {
        if (stored.contains("transform_descriptors") && !stored["transform_descriptors"].is_null()) continue;
        found.push_back({folder.path().filename().string(), stored["fqn"],
                         folder.path() / "checkpoint" / stored["file"].get<std::string>(), stored["pos"],
                         stored["length"], stored["offset"].is_null()});
      }
    }
  }
  return found;
}

}  // namespace checkpoint_data
