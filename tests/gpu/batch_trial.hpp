// SPDX-License-Identifier: Apache-2.0
// Tries one batch: random memory, the kernels' result, and that of a loop over elements. Whole memories are compared:
// bytes that no item names must not change.
#pragma once
#include "memory.hpp"

#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/batch.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <reference_elements.hpp>
#include <string>
#include <vector>

namespace gpu_suite {

using shardmesh::batch_item;
using shardmesh::batch_op;
using shardmesh::dtype;
using shardmesh::reduce_op;
using bytes = std::vector<unsigned char>;

inline const char* name_of(dtype type) {
  static const char* const names[] = {
      "undefined",   "boolean",         "uint8",           "int8",          "int16",      "int32",
      "int64",       "uint16",          "uint32",          "uint64",        "float16",    "bfloat16",
      "float32",     "float64",         "complex32",       "complex64",     "complex128", "float8_e4m3fn",
      "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"};
  return names[static_cast<int>(type)];
}

/// Every dtype whose elements have values.
inline std::vector<dtype> value_types() {
  std::vector<dtype> found;
  for (int i = 1; i <= static_cast<int>(dtype::float8_e8m0fnu); ++i) found.push_back(static_cast<dtype>(i));
  return found;
}

/// Whether a reduction is defined on a dtype, as `is_combinable` of module kernels.
inline bool is_combinable(dtype type, reduce_op op) {
  const bool bitwise = op == reduce_op::band || op == reduce_op::bor || op == reduce_op::bxor;
  if (type == dtype::float8_e8m0fnu) return false;
  if (reference_elements::is_complex(type))
    return op == reduce_op::sum || op == reduce_op::avg || op == reduce_op::product;
  return reference_elements::is_integral(type) ? op != reduce_op::avg : !bitwise;
}

inline std::string describe(const batch_item& item) {
  static const char* const ops[] = {"copy", "accumulate", "fill", "scale", "divide"};
  static const char* const reductions[] = {"", "sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
  std::string text = std::string(ops[static_cast<int>(item.op)]) + " " + reductions[static_cast<int>(item.reduction)] +
                     " to " + name_of(item.to_type) + " from " + name_of(item.from_type) + " of";
  for (int d = 0; d < item.rank; ++d)
    text += " " + std::to_string(item.loops[d].size) + "(" + std::to_string(item.loops[d].to) + "," +
            std::to_string(item.loops[d].from) + ")";
  return text + " at " + std::to_string(item.to_offset) + " from " + std::to_string(item.from_offset);
}

/// Calls `visit(to, from)` with the offset of every element.
template <class Visit>
void for_each_element(const batch_item& item, const Visit& visit) {
  std::int64_t index[shardmesh::batch_max_loops] = {};
  while (true) {
    std::int64_t to = item.to_offset;
    std::int64_t from = item.from_offset;
    for (int d = 0; d < item.rank; ++d) {
      to += index[d] * item.loops[d].to;
      from += index[d] * item.loops[d].from;
    }
    visit(to, from);
    int d = item.rank;
    while (d-- > 0 && ++index[d] == item.loops[d].size) index[d] = 0;
    if (d < 0) return;
  }
}

/// Carries out an item, one element at a time.
inline void carry_out(const batch_item& item, bytes& to_memory, const bytes& from_memory) {
  namespace elements = reference_elements;
  for_each_element(item, [&](std::int64_t to_at, std::int64_t from_at) {
    auto* const to = reinterpret_cast<std::byte*>(to_memory.data() + to_at);
    const auto* const from = reinterpret_cast<const std::byte*>(from_memory.data() + from_at);
    const auto width = static_cast<std::size_t>(elements::width_bytes(item.to_type));
    std::byte term[16];
    switch (item.op) {
      case batch_op::copy:
        if (item.to_type == item.from_type)
          std::memcpy(to, from, width);
        else
          elements::convert(item.from_type, from, item.to_type, to);
        return;
      case batch_op::accumulate:
        if (item.to_type == item.from_type)
          std::memcpy(term, from, width);
        else
          elements::convert(item.from_type, from, item.to_type, term);
        return elements::combine(item.to_type, to, term, item.reduction);
      case batch_op::fill:
        return elements::store_identity(item.to_type, item.reduction, to);
      case batch_op::scale:
      case batch_op::divide: {
        const dtype part = elements::part_of(item.to_type);
        for (int p = 0; p < (elements::is_complex(item.to_type) ? 2 : 1); ++p) {
          std::byte* const at = to + p * elements::width_bytes(part);
          const auto value = static_cast<double>(elements::load_part(part, at));
          elements::store_part(part, item.op == batch_op::scale ? value * item.factor : value / item.factor, at);
        }
      }
    }
  });
}

/// A batch with its memory; slots of destinations and of sources are separate.
struct trial {
  std::vector<batch_item> items;
  std::vector<bytes> to, from;

  /// Returns "" if everything equals the loop over elements.
  std::string run() const {
    std::size_t refused = 0;
    void* table = nullptr;
    const int created = shardmesh_cuda_table_create(items.data(), items.size(), 0, &refused, &table);
    if (created != 0)
      return "no table (" + std::to_string(created) + "): " + (created < 0 ? describe(items[refused]) : std::string());
    std::vector<unsigned char*> to_there, from_there;
    for (const bytes& each : to) {
      to_there.push_back(allocate(each.size()));
      to_device(to_there.back(), each.data(), each.size());
    }
    for (const bytes& each : from) {
      from_there.push_back(allocate(each.size()));
      to_device(from_there.back(), each.data(), each.size());
    }
    std::vector<bytes> wanted = to;
    std::string problem;
    for (int time = 0; time < 2 && problem.empty(); ++time) {  // a table is run many times
      const int launched = shardmesh_cuda_table_launch(table, to_there.data(), to_there.size(),
                                                       const_cast<const unsigned char* const*>(from_there.data()),
                                                       from_there.size(), nullptr);
      if (launched != 0) problem = "not launched: " + std::to_string(launched);
      synchronize();
      std::uint32_t phases = 0;
      for (const batch_item& each : items) phases = std::max(phases, each.phase + 1);
      for (std::uint32_t phase = 0; phase < phases; ++phase)
        for (const batch_item& each : items)
          if (each.phase == phase) carry_out(each, wanted[each.to_slot], from.empty() ? to[0] : from[each.from_slot]);
      for (std::size_t slot = 0; slot < to.size() && problem.empty(); ++slot) {
        bytes got(to[slot].size());
        from_device(got.data(), to_there[slot], got.size());
        problem = compare(slot, wanted[slot], got);
      }
    }
    for (unsigned char* each : to_there) release(each);
    for (unsigned char* each : from_there) release(each);
    shardmesh_cuda_table_destroy(table);
    return problem;
  }

 private:
  // All NaNs count as equal. Each NaN found is copied into `wanted`, so that later phases and runs see the same bits.
  std::string compare(std::size_t slot, bytes& wanted, const bytes& got) const {
    if (wanted == got) return {};
    for (const batch_item& item : items) {
      if (item.to_slot != slot) continue;
      std::string wrong;
      for_each_element(item, [&](std::int64_t at, std::int64_t) {
        auto* const want = reinterpret_cast<std::byte*>(wanted.data() + at);
        const auto* const have = reinterpret_cast<const std::byte*>(got.data() + at);
        if (reference_elements::same(item.to_type, want, have))
          std::memcpy(want, have, static_cast<std::size_t>(reference_elements::width_bytes(item.to_type)));
        else if (wrong.empty())
          wrong = describe(item) + ": the element at byte " + std::to_string(at) + " is " + hex(have, item.to_type) +
                  " instead of " + hex(want, item.to_type);
      });
      if (!wrong.empty()) return wrong;
    }
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != wanted[i])
        return "byte " + std::to_string(i) + " of slot " + std::to_string(slot) + ", of no item, changed";
    return {};
  }

  static std::string hex(const std::byte* element, dtype type) {
    std::string text;
    char two[3];
    for (int i = reference_elements::width_bytes(type); i-- > 0;) {
      std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(element[i]));
      text += two;
    }
    return text;
  }
};

}  // namespace gpu_suite
