// SPDX-License-Identifier: Apache-2.0
// Does with any path what `inspect`, `verify`, and `convert` do, for targets that write their input to one.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>

import shardmesh.checkpoint;
import shardmesh.storage;

namespace fuzz {

inline void look_at(const std::filesystem::path& path) {
  using namespace shardmesh;
  auto reader = open_checkpoint(path);
  static_cast<void>(find_globals(path, reader ? reader->get() : nullptr, {.threads = 1}));
  if (!reader) return;
  for (std::size_t i = 0; i < (*reader)->contents().objects.size(); ++i) {
    static_cast<void>((*reader)->read_object(i));
    static_cast<void>((*reader)->object_archive(i));
  }
  static_cast<void>(verify(**reader, {.threads = 1}));
}

}  // namespace fuzz
