// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint as bfloat16 safetensors under another naming convention, by the rules of a TOML file.
// Usage: map_names CHECKPOINT MAPPING.toml CONFIG.json NEW.safetensors
#include <shardmesh/try.hpp>

#include <cstdio>
#include <string>
#include <utility>

import shardmesh;
import shardmesh.mapping;

namespace sm = shardmesh;

sm::result<void> map_names(const char* source, const char* file, const char* config, const char* destination) {
  SHARDMESH_TRY(const sm::mapping_rules rules, sm::read_mapping(file));
  sm::model_sizes sizes;
  SHARDMESH_TRY(sizes.config, sm::read_config(config));  // hidden_size, num_attention_heads, ...
  SHARDMESH_TRY(auto reader, sm::open_checkpoint(source));
  SHARDMESH_TRY(auto bound, sm::bind_mapping(rules, reader->contents(), sizes));  // or names every problem
  SHARDMESH_TRY(auto renamed, sm::mapped(std::move(reader), std::move(bound), {.check_sums = true}));
  SHARDMESH_TRY(auto half, sm::parse_cast_rule("bfloat16"));
  sm::convert_options options;
  options.selection.cast.push_back(std::move(half));
  SHARDMESH_TRY(const sm::save_report report, sm::convert(*renamed, destination, options));
  std::printf("tensors: %d\n", static_cast<int>(report.tensors));
  for (const std::string& note : renamed->notes()) std::printf("note: %s\n", note.c_str());
  return {};
}

int main(int argc, char** argv) {
  if (argc != 5)
    return std::fprintf(stderr, "usage: map_names CHECKPOINT MAPPING.toml CONFIG.json NEW.safetensors\n"), 2;
  const auto done = map_names(argv[1], argv[2], argv[3], argv[4]);
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
