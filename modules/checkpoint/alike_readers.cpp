// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;

namespace shardmesh {
namespace {

bool has_wrapping_tensors(checkpoint_reader& reader) {
  reader.identify_opaque_tensors();
  const auto& tensors = reader.contents().tensors;
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const tensor_entry& tensor) { return !tensor.opaque_type.empty(); });
}

}  // namespace

alike_readers::alike_readers(checkpoint_reader& left, checkpoint_reader& right) : left_(&left), right_(&right) {
  // What cannot be seen differently (null, or an error) stays as it is: the comparison then says what differs.
  const auto show = [this](checkpoint_reader*& side, result<std::unique_ptr<checkpoint_reader>> made) {
    if (!made || !*made) return;
    seen_.push_back(*std::move(made));
    side = seen_.back().get();
  };
  for (checkpoint_reader** side : {&left_, &right_})
    show(*side, torch_file::split_objects(**side, torch_file::to_split::opaque_tensors));
  if (!has_wrapping_tensors(*left_) && !has_wrapping_tensors(*right_)) return;
  for (checkpoint_reader** side : {&left_, &right_})
    show(*side, torch_file::wrap_components(**side, torch_file::to_wrap::possible));
}

}  // namespace shardmesh
