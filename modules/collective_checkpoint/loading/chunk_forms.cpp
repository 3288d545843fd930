// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import :chunk_forms;

namespace shardmesh {
namespace {

// The dimensions by descending stride.
extents order_of(const stored_tensor& tensor) {
  extents order = extents::filled(tensor.strides.rank(), 0);
  for (std::size_t d = 0; d < order.rank(); ++d) order[d] = static_cast<std::int64_t>(d);
  if (is_contiguous(tensor.sizes, tensor.strides)) return order;
  const auto stride = [&](std::int64_t d) { return tensor.strides[static_cast<std::size_t>(d)]; };
  std::sort(order.begin(), order.end(),
            [&](std::int64_t a, std::int64_t b) { return stride(a) != stride(b) ? stride(a) > stride(b) : a < b; });
  return order;
}

bool is_order(extents order, std::size_t rank) {
  std::sort(order.begin(), order.end());
  bool complete = order.rank() == rank;
  for (std::size_t d = 0; complete && d < rank; ++d) complete = order[d] == static_cast<std::int64_t>(d);
  return complete;
}

}  // namespace

result<std::vector<std::byte>> look_at_chunks(checkpoint_reader& reader, std::span<const chunk_to_open> chunks) {
  detail::wire_writer note;
  for (const chunk_to_open& one : chunks) {
    SHARDMESH_TRY(const auto opened, reader.open_chunk(reader.contents().tensors[one.stored], one.chunk));
    if (!opened->reads_in_order && is_contiguous(opened->tensor.sizes, opened->tensor.strides)) continue;
    note.number(one.number);
    note.flag(opened->reads_in_order);
    note.numbers(order_of(opened->tensor));
  }
  return std::move(note).take();
}

result<std::unordered_map<std::int32_t, chunk_form>> read_forms(const agreement_notes& notes, const merged_state& all,
                                                                std::span<const unclear_chunk> chunks) {
  std::unordered_map<std::int32_t, chunk_form> forms;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    detail::wire_reader in(notes[rank]);
    while (in.ok() && !in.finished()) {
      const auto i = static_cast<std::size_t>(in.in_range(0, std::ssize(chunks) - 1));
      chunk_form form{in.flag(), in.numbers()};
      if (!in.ok() || !is_order(form.order, all.tensors[chunks[i].tensor].shape.rank()))
        return fail(errc::bad_format, "a rank's description of a chunk is malformed")
            .with_rank(static_cast<std::int32_t>(rank));
      forms.insert_or_assign(chunks[i].chunk, std::move(form));
    }
  }
  return forms;
}

}  // namespace shardmesh
