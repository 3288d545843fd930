// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint of any format in four formats, and compares each with the source.
// Usage: convert_formats CHECKPOINT
#include <shardmesh/try.hpp>

#include <cstdio>
#include <string>
#include <utility>

import shardmesh;

namespace sm = shardmesh;

sm::result<void> convert_formats(const char* source) {
  SHARDMESH_TRY(const sm::checkpoint trained, sm::open(source));
  using sm::target_format;
  const std::pair<const char*, target_format> copies[] = {{"copy.dcp", target_format::dcp},
                                                          {"copy.safetensors", target_format::safetensors},
                                                          {"copy.hf", target_format::hf},
                                                          {"copy.pt", target_format::pt}};
  for (const auto& [name, format] : copies) {
    sm::convert_options options;
    options.format = format;
    SHARDMESH_TRY(sm::convert(trained, name, options));
    SHARDMESH_TRY(const sm::checkpoint copy, sm::open(name));
    SHARDMESH_TRY(const sm::diff_report found, sm::diff(trained, copy));
    for (const sm::key_difference& one : found.differences) std::printf("%s: %s\n", name, one.key.c_str());
    if (!found.differences.empty()) return sm::fail(sm::errc::checksum_mismatch, "the copy differs").with_file(name);
    std::printf("%s: equal (tensors: %d, objects: %d)\n", name, static_cast<int>(found.tensors),
                static_cast<int>(found.objects));
  }
  return {};
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: convert_formats CHECKPOINT\n"), 2;
  const auto done = convert_formats(argv[1]);
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
