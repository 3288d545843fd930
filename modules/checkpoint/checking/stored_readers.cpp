// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <set>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import :stored_readers;

namespace shardmesh {

std::set<const checkpoint_reader*> readers_of_parts(const checkpoint_reader& reader) {
  const catalog& contents = reader.contents();
  std::set<const checkpoint_reader*> parts;
  const auto add = [&](const whole_entry& entry) {
    const checkpoint_reader* at = &reader;
    whole_entry there = entry;
    while (at->contents().format == checkpoint_format::parts) {
      const auto from = at->shown(there);
      if (!from) return;
      at = from->reader;
      there = from->entry;
    }
    parts.insert(&at->stored());
  };
  for (std::size_t i = 0; i < contents.tensors.size(); ++i) add({true, i});
  for (std::size_t i = 0; i < contents.objects.size(); ++i) add({false, i});
  return parts;
}

std::vector<checkpoint_reader*> readers_of_copies(const checkpoint_reader& reader) {
  std::vector<checkpoint_reader*> found;
  for (const checkpoint_reader* const stored : readers_of_parts(reader))
    if (checkpoint_reader* const copies = dcp::copies_of(*stored)) found.push_back(copies);
  return found;
}

}  // namespace shardmesh
