// SPDX-License-Identifier: Apache-2.0
module;
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.core;
import shardmesh.tree;

namespace shardmesh::detail {

node_kind kind_of_ivalue(const c10::IValue& value) {
  if (value.isList()) return node_kind::sequence;
  if (value.isTuple()) return node_kind::tuple;
  if (!value.isGenericDict()) return node_kind::leaf;
  for (const auto& entry : value.toGenericDict())
    if (!entry.key().isString() && !entry.key().isInt()) return node_kind::leaf;
  return node_kind::mapping;
}

void visit_ivalue(const c10::IValue& value, function_ref<bool(path_key, const c10::IValue&)> visit) {
  switch (kind_of_ivalue(value)) {
    case node_kind::mapping:
      for (const auto& entry : value.toGenericDict()) {
        const c10::IValue& key = entry.key();
        if (!visit(key.isInt() ? path_key(key.toInt()) : path_key(key.toStringView()), entry.value())) return;
      }
      return;
    case node_kind::sequence: {
      std::int64_t index = 0;
      for (const c10::IValue& element : value.toListRef())
        if (!visit(index++, element)) return;
      return;
    }
    case node_kind::tuple: {
      std::int64_t index = 0;
      for (const c10::IValue& element : value.toTupleRef().elements())
        if (!visit(index++, element)) return;
      return;
    }
    case node_kind::leaf:
      return;
  }
}

std::string type_of_ivalue(const c10::IValue& value) {
  return value.tagKind();
}

}  // namespace shardmesh::detail

namespace shardmesh {

result<c10::IValue> node_adapter<c10::IValue>::make(node_kind container,
                                                    std::vector<std::pair<path_key, c10::IValue>> children) {
  if (container == node_kind::mapping) {
    const bool is_indexed = !children.empty() && children.front().first.is_index();
    c10::impl::GenericDict dict(is_indexed ? c10::TypePtr(c10::IntType::get()) : c10::TypePtr(c10::StringType::get()),
                                c10::AnyType::get());
    dict.reserve(children.size());
    for (auto& [key, child] : children) {
      if (key.is_index() != is_indexed)
        return fail(errc::invalid_argument, "a LibTorch dict cannot mix names and integers as keys");
      dict.insert(key.is_index() ? c10::IValue(key.index()) : c10::IValue(std::string(key.name())), std::move(child));
    }
    return c10::IValue(std::move(dict));
  }
  std::vector<c10::IValue> elements;
  elements.reserve(children.size());
  for (auto& [key, child] : children) elements.push_back(std::move(child));
  if (container == node_kind::tuple) return c10::IValue(c10::ivalue::Tuple::create(std::move(elements)));
  c10::impl::GenericList list(c10::AnyType::get());
  list.reserve(elements.size());
  for (c10::IValue& element : elements) list.push_back(std::move(element));
  return c10::IValue(std::move(list));
}

}  // namespace shardmesh
