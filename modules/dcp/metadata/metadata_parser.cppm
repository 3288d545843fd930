// SPDX-License-Identifier: Apache-2.0
// Not exported: reads the entries of a `.metadata`. Bodies: `metadata_parser.cpp` has the fields of the file, and
// `described_entries.cpp` the descriptions of single entries. Single fields of these are in `pickled_fields`, paths in
// `entry_paths`, and places in `storage_data`.
module shardmesh.dcp:metadata_parser;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import shardmesh.checkpoint_core;
import :entry_paths;
import :metadata;
import :parse_account;
import :storage_data;

namespace shardmesh::dcp {

class metadata_parser {
 public:
  // `file` is for messages.
  metadata_parser(std::shared_ptr<const pickle::graph> graph, std::string_view file, read_budget& budget)
      : graph_(std::move(graph)), account_(file, budget) {}

  // Call it once.
  // \errors those of `parse_metadata`
  result<metadata> parse();

 private:
  inline bool spend(std::size_t bytes, std::string_view key) { return account_.spend(bytes, key); }
  inline pickle::value field(const pickle::value& object, std::string_view name) {
    return account_.field(object, name);
  }
  error& problem(errc code, std::string message, std::string_view key) {
    return account_.problem(code, std::move(message), key);
  }
  void problem(error e, std::string_view key) { account_.problem(std::move(e), key); }

  void reserve(std::size_t tensors, std::size_t chunks);
  void read_extras(pickle::value root);
  void read_paths(pickle::value root, pickle::value planner);
  void read_texts(pickle::value texts);
  void read_later_strides(pickle::value key, pickle::value strides);
  void read_entry(pickle::value key, pickle::value entry);
  void read_tensor(std::string_view key, pickle::value entry);
  void read_chunk(std::string_view key, pickle::value chunk);
  void note_foreign_dtype(pickle::value type, std::string_view key, tensor_entry& tensor);
  void read_places(pickle::value storage, bool has_entries);

  std::shared_ptr<const pickle::graph> graph_;
  parse_account account_;
  metadata made_;
  entry_paths paths_{account_};
  entry_numbers names_;
};

}  // namespace shardmesh::dcp
