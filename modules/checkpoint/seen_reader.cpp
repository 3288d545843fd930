// SPDX-License-Identifier: Apache-2.0
module;
#include <try.hpp>

#include <memory>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :seen_reader;

namespace shardmesh {
using namespace torch_file;

result<void> seen_reader::add(result<std::unique_ptr<checkpoint_reader>> made) {
  if (!made) return std::move(made).error();
  if (!*made) return {};
  readers_.push_back(*std::move(made));
  last_ = readers_.back().get();
  return {};
}

result<void> seen_reader::take_apart(bool to_pickles, bool components) {
  const bool is_apart = !to_pickles || components;
  if (is_apart) SHARDMESH_CHECK(add(split_objects(*last_, to_pickles ? to_split::opaque_tensors : to_split::all)));
  // What has no archive of its own is taken apart to be put together at once.
  SHARDMESH_TRY(auto unwrapped, unwrap_tensors(*last_, is_apart ? to_unwrap::all : to_unwrap::without_archive));
  SHARDMESH_CHECK(add(std::move(unwrapped.reader)));
  return is_apart ? result<void>{} : add(wrap_components(*last_));
}

result<void> seen_reader::give_archives() {
  SHARDMESH_TRY(auto unwrapped, unwrap_tensors(*last_, to_unwrap::without_archive));
  if (!unwrapped.reader) return {};
  SHARDMESH_CHECK(add(std::move(unwrapped.reader)));
  return add(wrap_components(*last_));
}

void make_objects_of_layouts(conversion& work) {
  const auto is_object = [](const output_tensor& tensor) {
    return tensor.archive && tensor.properties.layout != stored_properties{}.layout;
  };
  for (output_tensor& tensor : work.tensors)
    if (is_object(tensor))
      work.objects.push_back({tensor.key, tensor.where, tensor.chunks.front().rank, tensor.archive, {}});
  drop_tensors(work, is_object);
}

}  // namespace shardmesh
