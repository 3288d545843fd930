// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder with one embedding, and the values for llama.cpp that a mapping makes of its files. It imports,
// so it is the last header that a test includes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

struct model_folder {
  scratch_folder folder;
  std::unique_ptr<shardmesh::checkpoint_reader> reader;  // of the last `map`

  /// Writes an embedding with this many rows.
  explicit model_folder(std::int64_t rows = 6) {
    small_tensors::tensors all{{"embedding", small_tensors::counted({rows, 4})}};
    small_tensors::write(folder / "model.safetensors", all);
  }

  void write(const std::string& name, std::string_view text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
  }

  /// Maps the folder to a convention, and returns its objects as JSON.
  std::map<std::string, std::string> map(const std::string& convention) {
    const std::vector<shardmesh::mapping_rules> mappings{
        shardmesh::parse_mapping("left = 'own'\nright = '" + convention +
                                 "'\n[rename]\n'embedding' = 'token_embd.weight'\n")
            .value()};
    const std::filesystem::path file = folder / "model.safetensors";
    reader = shardmesh::map_checkpoint(shardmesh::open_checkpoint(file).value(), mappings,
                                       shardmesh::read_model_sizes(file).value())
                 .value();
    std::map<std::string, std::string> made;
    for (std::size_t i = 0; i < reader->contents().objects.size(); ++i)
      made[reader->contents().objects[i].key] = reader->read_object(i).value().json;
    return made;
  }

  /// Returns whether one note of the last `map` contains the text.
  bool notes(std::string_view text) const {
    for (const std::string& note : reader->notes())
      if (note.find(text) != std::string::npos) return true;
    return false;
  }
};

/// The number in {"$float":"0x1.8p+1"}.
inline double fraction(const std::string& json) {
  const std::size_t begin = json.find("0x");
  return begin == std::string::npos ? -1 : std::strtod(json.c_str() + begin, nullptr);
}
