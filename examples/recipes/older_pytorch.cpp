// SPDX-License-Identifier: Apache-2.0
// Rewrites a DCP folder so that PyTorch before version 2.15 also loads it. Usage: older_pytorch CHECKPOINT NEW
#include <shardmesh/try.hpp>

#include <cstdio>
#include <string>

import shardmesh;

namespace sm = shardmesh;

sm::result<void> rewrite(const char* source, const char* destination) {
  SHARDMESH_TRY(const sm::checkpoint written, sm::open(source));
  sm::convert_options options;
  options.format = sm::target_format::dcp;  // keeps the ranks' files and chunks
  SHARDMESH_TRY(const sm::save_report report, sm::convert(written, destination, options));
  SHARDMESH_TRY(const sm::checkpoint rewritten, sm::open(destination));
  SHARDMESH_TRY(const sm::diff_report differences, sm::diff(written, rewritten));
  if (!differences.differences.empty()) return sm::fail(sm::errc::checksum_mismatch, "the copy differs");
  std::printf("tensors: %d, files: %d\n", static_cast<int>(report.tensors), static_cast<int>(report.files));
  return {};
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: older_pytorch CHECKPOINT NEW\n"), 2;
  const auto done = rewrite(argv[1], argv[2]);
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
