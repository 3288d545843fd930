// SPDX-License-Identifier: Apache-2.0
module;
#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :record;

namespace shardmesh::mpi {

std::vector<std::byte> short_error_bytes(error e) {
  auto bytes = to_bytes(e);
  // Halves the limits on lists and texts until the error fits: the rest still says what failed and where.
  for (std::size_t most = inline_bytes / 4; bytes.size() > inline_bytes && most > 0; most /= 2) {
    e.ranks.resize(std::min(e.ranks.size(), most / 16));
    e.boxes.resize(std::min(e.boxes.size(), most / 256));
    e.more = e.problem_count() - 1;
    e.others.clear();
    for (std::string* text : {&e.message, &e.key, &e.file, &e.expected, &e.found, &e.hint})
      if (text->size() > most) text->replace(most, std::string::npos, "...");
    bytes = to_bytes(e);
  }
  return bytes;
}

}  // namespace shardmesh::mpi
