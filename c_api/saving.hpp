// SPDX-License-Identifier: Apache-2.0
// The options and the report that all calls that write have in common.
#pragma once
#include <shardmesh/c_api/saving.h>

#include <memory>
#include <string>
#include <vector>

#include "conventions.hpp"
#include "handle.hpp"
#include "watching.hpp"

struct shardmesh_save_report {
  using mark_type = c_api::marked<c_api::handle_kind::save_report>;
  mark_type mark;
  shardmesh::save_report made;
};

namespace c_api {

shardmesh::target_format to_target(shardmesh_format format);

/// Checks the options, and makes the library's options for use within a watched call.
class checked_saving {
 public:
  explicit checked_saving(const shardmesh_save_options* options);
  const shardmesh_call* call() const { return given_.call; }
  shardmesh::target_format format() const { return to_target(given_.format); }
  /// Refuses the options that only `save` has.
  void refuse_options_of_save() const;
  bool has_map() const { return given_.map != nullptr; }
  /// The mapping of the options. \pre has_map()
  chosen_mapping mapping() const;
  shardmesh::save_options with(bindings::watch& watching) const;

 private:
  mapping_choice choice() const;

  shardmesh_save_options given_;
};

/// Hands the report to the caller, if the caller wants it.
void give_report(shardmesh_save_report** to, shardmesh::save_report made);

}  // namespace c_api
