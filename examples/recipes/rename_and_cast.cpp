// SPDX-License-Identifier: Apache-2.0
// Writes a model as bfloat16 safetensors under shorter names, without optimizer state.
// Usage: rename_and_cast CHECKPOINT NEW.safetensors
#include <shardmesh/try.hpp>

#include <cstdio>
#include <string>
#include <utility>

import shardmesh;

namespace sm = shardmesh;

sm::result<void> rename_and_cast(const char* source, const char* destination) {
  SHARDMESH_TRY(const sm::checkpoint trained, sm::open(source));
  SHARDMESH_TRY(auto shorter, sm::parse_rename_rule("model\\.(.*)=\\1"));  // RE2, matches whole keys
  SHARDMESH_TRY(auto half, sm::parse_cast_rule("bfloat16"));               // every floating tensor
  sm::convert_options options;
  options.selection.no_optimizer = true;
  options.selection.rename.push_back(std::move(shorter));
  options.selection.cast.push_back(std::move(half));
  SHARDMESH_TRY(const sm::save_report report, sm::convert(trained, destination, options));
  std::printf("tensors: %d\n", static_cast<int>(report.tensors));
  for (const std::string& note : report.notes) std::printf("note: %s\n", note.c_str());
  return {};
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: rename_and_cast CHECKPOINT NEW.safetensors\n"), 2;
  const auto done = rename_and_cast(argv[1], argv[2]);
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
