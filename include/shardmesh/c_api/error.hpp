// SPDX-License-Identifier: Apache-2.0
// `error`: the failure of a call of the C interface, as an exception.
#pragma once
#include <shardmesh/c_api/error.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace shardmesh {
namespace c_api {

/// One problem with every known detail; what() gives all of it on one line.
class error : public std::runtime_error {
 public:
  explicit error(const shardmesh_error* from) : std::runtime_error(shardmesh_error_text(from)) {
    shardmesh_error_fields fields{};
    fields.struct_size = sizeof fields;
    if (shardmesh_error_describe(from, &fields) != SHARDMESH_OK) return;
    status = fields.status;
    message.assign(fields.message.bytes, fields.message.size);
    key.assign(fields.key.bytes, fields.key.size);
    path.assign(fields.path.bytes, fields.path.size);
    expected.assign(fields.expected.bytes, fields.expected.size);
    found.assign(fields.found.bytes, fields.found.size);
    hint.assign(fields.hint.bytes, fields.hint.size);
    ranks.assign(fields.ranks, fields.ranks + fields.rank_count);
    boxes.assign(fields.boxes, fields.boxes + fields.box_count);
    system_error = fields.system_error;
  }

  shardmesh_status status = SHARDMESH_INTERNAL;
  std::string message, key, path, expected, found, hint;
  std::vector<std::int32_t> ranks;
  std::vector<shardmesh_box> boxes;
  std::int32_t system_error = 0;
  /// The other problems, if a call reported several.
  std::vector<error> others;
};

/// Copies a list of errors; the caller still owns the list.
inline std::vector<error> errors_of(const shardmesh_error* first) {
  std::vector<error> made;
  for (; first != nullptr; first = shardmesh_error_next(first)) made.emplace_back(first);
  return made;
}

/// Receives a call's error, throws it, and frees it.
class error_slot {
 public:
  error_slot() = default;
  error_slot(const error_slot&) = delete;
  error_slot& operator=(const error_slot&) = delete;
  ~error_slot() { shardmesh_error_free(held_); }
  shardmesh_error** out() { return &held_; }
  void check(shardmesh_status status) const {
    if (status == SHARDMESH_OK) return;
    error thrown(held_);
    thrown.status = status;
    thrown.others = errors_of(shardmesh_error_next(held_));
    throw thrown;
  }

 private:
  shardmesh_error* held_ = nullptr;
};

/// Runs `call(error)`, which returns a status, and throws `error` on failure.
template <class Call>
void checked(Call&& call) {
  error_slot slot;
  const shardmesh_status status = call(slot.out());
  slot.check(status);
}

}  // namespace c_api
}  // namespace shardmesh
