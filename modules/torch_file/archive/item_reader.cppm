// SPDX-License-Identifier: Apache-2.0
// Builds an item: finds the pickle and the storages, and decodes the rebuild record of every tensor. Nothing is
// trusted: a storage's declared size must equal its record's, and a tensor must lie within its storage. References to
// storages are decoded in `storage_reference` and `pickled_storage`. Not exported.
module shardmesh.torch_file:item_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// Builds one torch_file::item, and lives only while the item is opened.
class item_reader {
 public:
  item_reader(const byte_source& source, const item_options& options)
      : source_(source), options_(options), budget_(options.budget != nullptr ? *options.budget : own_budget_) {}
  result<item> open();

 private:
  result<item> open_zip();
  result<void> check_records() const;
  result<void> charge_inflated(const zip_record& record);
  // Names the records that nothing reads. It is in `unread_records`.
  result<void> find_unread(torch_file::item& item);
  result<item> open_stream();
  result<item> open_legacy(std::span<const std::byte> start, bool is_whole);
  result<void> collect(torch_file::item& item);
  result<void> collect_tensor(torch_file::item& item, const pickle::value& record);
  void collect_quantized(torch_file::item& item, const pickle::value& args, tensor integers);
  result<bool> collect_array(torch_file::item& item, const pickle::value& record);
  result<bool> read_tensor(torch_file::item& item, const pickle::value& callable, const pickle::value& args,
                           tensor& out);
  result<std::size_t> storage_of(torch_file::item& item, const pickle::value& reference, bool is_quantized = false);
  result<std::size_t> pickled_storage_of(torch_file::item& item, const pickle::value& reference);
  std::size_t add_pickled(torch_file::item& item, torch_file::storage storage, std::int64_t begin);
  result<void> locate(torch_file::storage& storage);
  result<void> locate_legacy(torch_file::item& item, const pickle::value& keys, std::int64_t at);
  result<void> check_bytes_text(const pickle::value& record);
  error bad(std::string message) const { return fail(errc::bad_format, std::move(message)).with_file(source_.name()); }

  const byte_source& source_;
  item_options options_;
  read_budget own_budget_;
  read_budget& budget_;
  zip_directory directory_;
  std::string prefix_;                  // "archive/"
  bool is_legacy_ = false;              // all storages are located later
  std::span<const std::byte> pickled_;  // the whole file, for a bare pickle
  std::unordered_map<std::string, std::size_t> by_key_;
  std::set<const char*> checked_texts_;
};

// Returns whether the callable is this function of torch._utils; `is_any_rebuild`: any function that rebuilds a tensor.
bool is_rebuild(const pickle::value& callable, std::string_view function);
bool is_any_rebuild(const pickle::value& callable);

}  // namespace shardmesh::torch_file
