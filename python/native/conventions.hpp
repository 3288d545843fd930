// SPDX-License-Identifier: Apache-2.0
// The mapping under which a checkpoint is opened, or which changes a state in memory.
#pragma once
#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.mapping;

namespace bindings {

/// `map`, `map_inverse`, `config`, and `sizes` of the options of `open`. The constructor reads the dict; the rest runs
/// without the interpreter's lock.
class mapping_choice {
 public:
  /// given: map (None, or two conventions, or the path of a TOML file). With a map: map_inverse, config (None, the path
  /// of a JSON file, or a dict of integers), and sizes (a dict of integers).
  explicit mapping_choice(const pybind11::dict& given);

  bool is_given() const { return map_.has_value(); }
  /// The chosen mappings, in the order in which they are applied. \pre is_given()
  shardmesh::result<std::vector<shardmesh::mapping_rules>> mappings() const;
  /// The sizes of the model, also from the configuration beside the checkpoint `source`; empty: a state in memory,
  /// which has none beside it.
  shardmesh::result<shardmesh::model_sizes> sizes(const std::string& source) const;
  /// Shows the reader of the checkpoint `source` under the convention to which the mapping leads.
  /// \pre is_given()
  shardmesh::result<std::unique_ptr<shardmesh::checkpoint_reader>> apply(
      std::unique_ptr<shardmesh::checkpoint_reader> reader, const std::string& source, bool check_sums) const;

 private:
  std::optional<std::string> map_;
  bool is_inverse_ = false;
  std::string config_file_;
  std::optional<shardmesh::named_sizes> config_;  // instead of a file
  shardmesh::named_sizes sizes_;
};

/// A mapping that has been read, for calls of several ranks: it fails before the others wait for this rank.
struct chosen_mapping {
  std::vector<shardmesh::mapping_rules> mappings;  // in the order in which they are applied
  shardmesh::model_sizes sizes;                    // of a state in memory, which has no configuration beside it

  /// given: as for `mapping_choice`; without a map, there are no mappings. Raises the errors of the mapping and of the
  /// configuration.
  static chosen_mapping make(const pybind11::dict& given);
};

}  // namespace bindings
