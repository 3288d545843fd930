// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

result<output_tensor> describe(const save_tensor& tensor, view_source& source) {
  output_tensor made;
  made.key = tensor.key;
  made.where = tensor.where;
  made.type = tensor.parts.empty() ? dtype::undefined : tensor.parts.front().from.type;
  distribution_builder parts(tensor.shape, owner_space::items);
  for (const save_part& part : tensor.parts) {
    if (part.from.type != made.type)
      return fail(errc::dtype_mismatch, "parts of one tensor have different dtypes")
          .with_box(part.where)
          .with_values(std::string(name(made.type)), std::string(name(part.from.type)));
    if (part.from.sizes != part.where.sizes)
      return fail(errc::shape_mismatch, "the memory does not have the sizes of its box")
          .with_box(part.where)
          .with_values(to_string(part.where.sizes), to_string(part.from.sizes));
    if (auto held = check_reachable(part.from); !held) return std::move(held).error().with_box(part.where);
    parts.add(0, static_cast<std::int32_t>(source.views.size()), part.where.offsets, part.where.sizes);
    source.views.push_back(part.from);
    if (!part.where.is_empty()) made.chunks.push_back({part.where, part.rank});
  }
  if (made.type == dtype::undefined) return fail(errc::gap, "has no parts, and therefore no dtype");
  if (made.chunks.empty()) made.chunks.push_back({box::whole(tensor.shape), tensor.parts.front().rank});
  SHARDMESH_TRY(made.bytes.from, parts.finish());
  made.bytes.from_type = made.bytes.to_type = made.type;
  const cover_report cover = check_cover(made.bytes.from, 1);
  if (!cover.ok()) return to_error(cover.problems.front());
  return made;
}

}  // namespace

result<save_report> save(const std::filesystem::path& destination, std::span<const save_tensor> tensors,
                         target_format to, const save_options& options) {
  SHARDMESH_TRY(detail::check_can_write(destination));
  SHARDMESH_TRY(check_previous(to, options.previous));
  view_source source;
  std::vector<output_tensor> described;
  std::vector<error> problems;
  for (const save_tensor& tensor : tensors) {
    auto made = describe(tensor, source);
    if (made)
      described.push_back(std::move(*made));
    else
      problems.push_back(std::move(made).error().with_key(tensor.key));
  }
  if (!problems.empty()) return fail_all(std::move(problems));
  return target_of(to).write(destination, std::move(described), {}, source, {}, replacing_checkpoints(options));
}

}  // namespace shardmesh
