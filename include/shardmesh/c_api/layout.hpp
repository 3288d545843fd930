// SPDX-License-Identifier: Apache-2.0
// `layout` and `plan`.
#pragma once
#include <shardmesh/c_api/plan.h>
#include <shardmesh/c_api/values.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardmesh {
namespace c_api {

/// The boxes of a tensor that each rank of a mesh holds.
class layout {
 public:
  layout(const std::string& mesh, const std::string& placements, const std::vector<std::int64_t>& shape,
         const std::string& split_rule = "torch_chunk")
      : rank_(shape.size()) {
    shardmesh_layout* made = nullptr;
    checked([&](shardmesh_error** e) {
      return shardmesh_layout_make(c_text(mesh), c_text(placements), shape.data(),
                                   static_cast<std::int32_t>(shape.size()), c_text(split_rule), &made, e);
    });
    handle_.reset(made);
  }

  std::int64_t rank_count() const {
    std::int64_t count = 0;
    checked([&](shardmesh_error** e) { return shardmesh_layout_rank_count(c(), &count, e); });
    return count;
  }
  std::vector<std::int64_t> local_shape(std::int32_t rank) const {
    std::vector<std::int64_t> sizes(rank_);
    checked([&](shardmesh_error** e) { return shardmesh_layout_local_shape(c(), rank, sizes.data(), e); });
    return sizes;
  }
  std::vector<shardmesh_placed_box> boxes(std::int32_t rank) const {
    std::vector<shardmesh_placed_box> made;
    std::size_t count = 0;
    checked([&](shardmesh_error** e) { return shardmesh_layout_boxes(c(), rank, nullptr, 0, &count, e); });
    made.resize(count);
    checked([&](shardmesh_error** e) { return shardmesh_layout_boxes(c(), rank, made.data(), count, &count, e); });
    return made;
  }

  /// The handle for calls of the C interface.
  const shardmesh_layout* c() const { return handle_.get(); }

 private:
  std::size_t rank_;
  std::unique_ptr<shardmesh_layout, free_with<&shardmesh_layout_free>> handle_;
};

struct plan_options {
  shardmesh_dtype from = SHARDMESH_DTYPE_FLOAT32, to = SHARDMESH_DTYPE_UNDEFINED;  // undefined: the same as `from`
  std::int64_t memory_bytes = 0;                                                   // 0: the library's default
  bool allow_narrowing = false;
};

/// The messages between ranks that move a tensor from one layout to another.
class plan {
 public:
  plan(const layout& from, const layout& to, const plan_options& options = {}) {
    shardmesh_plan_options how{};
    how.struct_size = sizeof how;
    how.memory_bytes = options.memory_bytes;
    how.from = options.from;
    how.to = options.to;
    how.allow_narrowing = options.allow_narrowing ? 1 : 0;
    shardmesh_plan* made = nullptr;
    checked([&](shardmesh_error** e) { return shardmesh_plan_make(from.c(), to.c(), &how, &made, e); });
    handle_.reset(made);
  }

  shardmesh_plan_cost cost() const {
    shardmesh_plan_cost made{};
    made.struct_size = sizeof made;
    checked([&](shardmesh_error** e) { return shardmesh_plan_describe(c(), &made, e); });
    return made;
  }
  std::vector<shardmesh_link> links() const {
    std::vector<shardmesh_link> made;
    std::size_t count = 0;
    checked([&](shardmesh_error** e) { return shardmesh_plan_links(c(), nullptr, 0, &count, e); });
    made.resize(count);
    checked([&](shardmesh_error** e) { return shardmesh_plan_links(c(), made.data(), count, &count, e); });
    return made;
  }
  std::vector<shardmesh_step> steps(std::int32_t rank) const {
    std::vector<shardmesh_step> made;
    std::size_t count = 0;
    checked([&](shardmesh_error** e) { return shardmesh_plan_steps(c(), rank, 0, nullptr, 0, &count, e); });
    made.resize(count);
    checked([&](shardmesh_error** e) { return shardmesh_plan_steps(c(), rank, 0, made.data(), count, &count, e); });
    return made;
  }

  /// The handle for calls of the C interface.
  const shardmesh_plan* c() const { return handle_.get(); }

 private:
  std::unique_ptr<shardmesh_plan, free_with<&shardmesh_plan_free>> handle_;
};

}  // namespace c_api
}  // namespace shardmesh
