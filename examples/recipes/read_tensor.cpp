// SPDX-License-Identifier: Apache-2.0
// Reads a float32 matrix of a checkpoint of any format: whole, and one row. Usage: read_tensor CHECKPOINT KEY
#include <shardmesh/try.hpp>

#include <cstdint>
#include <cstdio>
#include <string>

import shardmesh;

namespace sm = shardmesh;

sm::result<void> read_tensor(const char* path, const char* key) {
  SHARDMESH_TRY(const sm::checkpoint trained, sm::open(path));    // reads the description, no tensor
  SHARDMESH_TRY(const sm::host_tensor whole, trained.load(key));  // in the stored dtype
  std::printf("%s: %s, bytes: %zu\n", key, to_string(whole.sizes()).c_str(), whole.bytes().size());

  // A box of it: only these bytes are read.
  const std::int64_t columns = whole.sizes()[1];
  SHARDMESH_TRY(const sm::host_tensor row, trained.load(key, sm::box{{1, 0}, {1, columns}}));
  std::printf("row 1: %s, from %g\n", to_string(row.sizes()).c_str(), static_cast<double>(row.values<float>()[0]));
  return {};
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: read_tensor CHECKPOINT KEY\n"), 2;
  const auto done = read_tensor(argv[1], argv[2]);
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
