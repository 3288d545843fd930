// SPDX-License-Identifier: Apache-2.0
// Fuses tensors along their rows, such as q, k, and v to qkv, and saves everything else unchanged.
// Usage: fuse_qkv CHECKPOINT NEW FUSED KEY...
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh;

namespace sm = shardmesh;

sm::result<void> fuse(const char* source, const char* destination, const char* fused, std::span<char* const> keys) {
  SHARDMESH_TRY(const sm::checkpoint trained, sm::open(source));
  SHARDMESH_TRY(auto state, trained.state_dict());  // whole tensors in memory
  std::vector<sm::tensor_entry> parts;
  for (const char* const key : keys) {
    const sm::tensor_entry* const entry = trained.find(key);
    if (entry == nullptr) return sm::fail(sm::errc::missing_key, "the checkpoint has no such tensor").with_key(key);
    parts.push_back(*entry);
    SHARDMESH_TRY(state.erase(entry->where));
  }

  // All parts have the same columns; `load_into` refuses others.
  sm::extents shape = parts.front().shape, first = sm::extents::filled(shape.rank(), 0);
  for (std::size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i].shape[0];
  SHARDMESH_TRY(auto whole, sm::host_tensor::make(parts.front().type, shape));
  for (const sm::tensor_entry& part : parts) {
    sm::box rows{first, shape};
    rows.sizes[0] = part.shape[0];
    SHARDMESH_TRY(sm::load_into(trained, part.key, sm::subview(sm::view_of(whole), rows)));  // straight into its rows
    first[0] += part.shape[0];
  }
  SHARDMESH_TRY(state.set({fused}, std::move(whole)));
  SHARDMESH_TRY(sm::save(destination, state));
  std::printf("%s: %s of %zu tensors\n", fused, to_string(shape).c_str(), parts.size());
  return {};
}

int main(int argc, char** argv) {
  if (argc < 5) return std::fprintf(stderr, "usage: fuse_qkv CHECKPOINT NEW FUSED KEY...\n"), 2;
  const auto done = fuse(argv[1], argv[2], argv[3], std::span(argv + 4, static_cast<std::size_t>(argc - 4)));
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
