// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as a mapping file, and binds it and its inverse to a small checkpoint that has
// tensors for the first names of its rules. What binds is related element by element without leaving a tensor.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.mapping;

namespace {

using namespace shardmesh;

// Sizes that make most expressions small.
named_sizes small_sizes(const mapping_rules& mapping) {
  named_sizes made;
  const auto add = [&](const size_expression& expression) {
    for (const std::string& name : expression.names()) made.emplace(name, 2);
  };
  for (const named_expression& one : mapping.sizes) add(one.value);
  for (const named_expression& one : mapping.captures) add(one.value);
  return made;
}

// A tensor for each name of the first rules, as the first values of the captures spell it.
catalog catalog_of(const mapping_rules& mapping) {
  catalog made;
  for (const mapping_rule& rule : mapping.rules)
    for (std::size_t t = 0; t < rule.left.size() && made.tensors.size() < 16; ++t) {
      named_sizes zeros;
      for (const std::string& name : rule.left[t].name.captures()) zeros[name] = 0;
      const auto key = rule.left[t].name.spell(zeros);
      if (!key) continue;
      tensor_entry entry;
      entry.key = *key;
      entry.type = dtype::float32;
      const std::size_t rank = rule.index.is_rename() ? 1 : rule.index.left[t].dimensions.size();
      entry.shape = extents::filled(rank, 2);
      made.tensors.push_back(entry);
    }
  return made;
}

void check(const bound_mapping& bound) {
  for (const bound_relation& one : bound.relations)
    for (const index_piece& piece : one.relation.pieces)
      for (const index_loop& loop : piece.loops) {
        const auto last = [&](const index_loop::step& step, const extents& origin, const extents& shape) {
          if (step.dimension < 0) return true;
          const auto d = static_cast<std::size_t>(step.dimension);
          return loop.extent == 0 || origin[d] + (loop.extent - 1) * step.stride < shape[d];
        };
        if (!last(loop.left, piece.left_origin, one.relation.left[piece.left_tensor].shape)) std::abort();
        if (!last(loop.right, piece.right_origin, one.relation.right[piece.right_tensor].shape)) std::abort();
      }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto mapping = parse_mapping({reinterpret_cast<const char*>(data), size});
  if (!mapping) return 0;
  for (const mapping_rules& one : {*mapping, mapping->inverse()})
    if (const auto bound = bind_mapping(one, catalog_of(one), {small_sizes(one), {}})) check(*bound);
  return 0;
}
