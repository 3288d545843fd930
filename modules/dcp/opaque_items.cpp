// SPDX-License-Identifier: Apache-2.0
// Finds the tensors of a folder whose items hold tensors of unknown representation.
module;
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :folder_reader;
import :item_ends;

namespace shardmesh::dcp {
namespace {

constexpr std::size_t identified_together = 256;

}  // namespace

void folder_reader::identify_opaque_tensors() {
  if (std::exchange(is_identified_, true)) return;
  std::vector<tensor_entry*> unknown;
  for (tensor_entry& tensor : contents_.tensors)
    if (tensor.chunk_count > 0 && tensor.opaque_kind.empty() && first_place(tensor).file >= 0)
      unknown.push_back(&tensor);
  const std::span<tensor_entry* const> all(unknown);
  for (std::size_t i = 0; i < all.size() && is_identified_; i += identified_together)
    identify(all.subspan(i, std::min(identified_together, all.size() - i)));
}

void folder_reader::identify(std::span<tensor_entry* const> tensors) {
  std::vector<std::shared_ptr<const byte_source>> on_server(tensors.size());
  if (is_url(path_)) {
    std::vector<stored_range> places;
    for (const tensor_entry* const tensor : tensors) places.push_back(first_place(*tensor));
    on_server = with_ends(files_, places);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!detail::check_current_call()) {
      is_identified_ = false;  // the next call continues
      return;
    }
    tensor_entry& tensor = *tensors[i];
    std::shared_ptr<const byte_source> source = on_server[i];
    if (!source) {
      auto found = item_source_of(first_place(tensor));
      if (!found) continue;  // `verify` and reading report the error
      source = *std::move(found);
    }
    const auto item = torch_file::item::open(*source, item_options());
    if (!item || !item->is_opaque_tensor(item->root())) continue;
    // For a dtype that we lack, the type is known from the metadata.
    if (tensor.opaque_type.empty()) tensor.opaque_type = classify(*item, item->root()).type;
    tensor.opaque_kind = torch_file::tensor_kind(item->root());
  }
  if (!detail::check_current_call()) is_identified_ = false;  // it may have ended the reads of the last item
}

}  // namespace shardmesh::dcp
