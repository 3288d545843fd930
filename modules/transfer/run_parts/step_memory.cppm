// SPDX-License-Identifier: Apache-2.0
// The memory that the steps of a route read and write: bound slots, and staging. Exports nothing.
module shardmesh.transfer:step_memory;

import shardmesh.std;
import shardmesh.core;
import :bound_memory;
import :route;
import :route_cursor;
import :step;

namespace shardmesh {

inline tensor_view row_major(std::byte* data, dtype type, const extents& sizes, device where = {}) {
  return {data, type, where, sizes, contiguous_strides(sizes)};
}

// The tasks of a route as views. Staging holds sums until they are rounded, and elements of the source's type
// afterwards, so a view of staging depends on the round.
class step_memory {
 public:
  // Both must outlive this object.
  inline step_memory(const route& r, const bound_memory& bound) : route_(r), bound_(bound) {}

  // The address of the staging of the batches that follow.
  inline void set_staging(std::byte* begin) { staging_ = begin; }
  inline std::byte* staging() const { return staging_; }

  inline step step_of(const task& work) const { return route_.step_of(work); }
  inline const transfer_types& types_of(std::size_t transfer) const { return route_.types[transfer]; }
  // The dtype of a task's piece in a message, and its bytes.
  inline dtype type_in_message(const task& work, const step& s) const { return types_of(work.transfer).in_message(s); }
  inline std::int64_t bytes_in_message(const task& work, const step& s) const {
    return bytes_of(s.where, type_in_message(work, s));
  }

  // Precondition: `s` is `step_of(work)`, and `work` belongs to the batch at `at`.
  const_tensor_view source_of(const task& work, const step& s, const route_cursor& at) const;
  tensor_view target_of(const task& work, const step& s, const route_cursor& at) const;

  // Whether a message has its wire form in memory, because it is one contiguous piece of a slot or of staging. It is
  // then neither packed nor unpacked. Each end decides this alone: the bytes on the wire are the same.
  bool is_sent_directly(const message_round& round, const message& m) const;
  bool is_received_directly(const message_round& round, const message& m) const;

 private:
  tensor_view staging_of(const task& work, const step& s, const route_cursor& at) const;
  const_tensor_view slot_source(const task& work, const step& s) const;
  tensor_view slot_target(const task& work, const step& s) const;

  const route& route_;
  const bound_memory& bound_;
  std::byte* staging_ = nullptr;
};

}  // namespace shardmesh
