// SPDX-License-Identifier: Apache-2.0
module;
#include <set>
module shardmesh.dcp;

import :own_lists;

namespace shardmesh::dcp {

own_lists::own_lists(const catalog& own) {
  const auto add = [this](const path& where) {
    leaves_.insert(where);
    path at;
    for (const path_key& key : where) {
      containers_.insert(at);
      const bool is_element = key.is_index();
      if (is_element) lists_.insert(at);
      at.push_back(key);
      if (is_element) elements_.insert(at);
    }
  };
  for (const tensor_entry& tensor : own.tensors) add(tensor.where);
  for (const object_entry& object : own.objects) add(object.where);
}

bool own_lists::exclude(const path& where) const {
  path at;
  for (const path_key& key : where) {
    const bool is_element_of_own_list = key.is_index() && lists_.contains(at);
    at.push_back(key);
    if (is_element_of_own_list && !elements_.contains(at)) return true;
    if (at.size() < where.size() && leaves_.contains(at)) return true;
  }
  return containers_.contains(where);
}

}  // namespace shardmesh::dcp
