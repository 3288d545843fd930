// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import :load_conditions;

namespace shardmesh {
namespace {

std::string text_of(const catalog& contents, read_sharing sharing) {
  detail::wire_writer all;
  for (const tensor_entry& tensor : contents.tensors) {
    all.text(tensor.key);
    all.number(static_cast<std::int64_t>(tensor.type));
    all.numbers(tensor.shape);
    if (sharing == read_sharing::each_rank) continue;
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      const stored_range& place = contents.chunk_places[static_cast<std::size_t>(chunk)];
      all.where(contents.chunk_box(tensor, chunk));
      for (const std::int64_t number : {std::int64_t{place.file}, place.offset, std::int64_t{place.transform}})
        all.number(number);
    }
  }
  for (const object_entry& object : contents.objects) all.text(object.key);
  return fmt::format("{} and {}, digest {}", detail::counted(contents.tensors.size(), "tensor"),
                     detail::counted(contents.objects.size(), "object"), to_hex(xxh3(all.written())));
}

}  // namespace

agreement_record condition_of(const rank_load_options& options) {
  return {"(options)",
          fmt::format("sharing {}, missing {}, unexpected {}, narrowing {}, memory {}",
                      static_cast<int>(options.sharing), static_cast<int>(options.missing),
                      static_cast<int>(options.unexpected), options.allow_narrowing, options.memory_bytes)};
}

agreement_record condition_of(const catalog& contents, read_sharing sharing) {
  return {"(checkpoint)", text_of(contents, sharing)};
}

}  // namespace shardmesh
