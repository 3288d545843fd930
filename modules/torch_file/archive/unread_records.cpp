// SPDX-License-Identifier: Apache-2.0
// The part of item_reader that finds the records of a file that nothing reads.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :item_reader;
import :item_records;

namespace shardmesh::torch_file {
namespace {

// The records that torch.save writes since PyTorch 1.6, besides storages and the folder ".data".
constexpr std::array<std::string_view, 5> written_names{"data.pkl", "version", "byteorder", ".format_version",
                                                        ".storage_alignment"};

bool is_written(std::string_view name) {
  return name.starts_with(".data/") || std::ranges::find(written_names, name) != written_names.end();
}

// Returns the keys of all storages to which the value refers, also from tensors that the item does not expose.
std::unordered_set<std::string> storages_below(const pickle::value& root) {
  std::unordered_set<std::string> keys;
  std::unordered_set<std::uint64_t> seen;
  std::vector<pickle::value> pending{root};
  while (!pending.empty()) {
    const pickle::value at = pending.back();
    pending.pop_back();
    if (!at || at.kind() < pickle::kind::list || !seen.insert(at.identity()).second) continue;
    if (at.kind() != pickle::kind::persistent)
      push_parts(at, pending);
    else if (auto key = storage_key(at))
      keys.insert(*std::move(key));
  }
  return keys;
}

}  // namespace

// The storages of exposed tensors are known already. The pickle is searched only when there are other records.
result<void> item_reader::find_unread(torch_file::item& item) {
  const std::string storages = prefix_ + "data/";
  std::vector<const zip_record*> others;
  for (const zip_record& record : directory_.records()) {
    const std::string_view name = record.name;
    if (name.ends_with('/')) continue;  // a folder
    if (name.starts_with(storages) && by_key_.contains(record.name.substr(storages.size()))) continue;
    if (name.starts_with(prefix_) && is_written(name.substr(prefix_.size()))) continue;
    others.push_back(&record);
  }
  if (others.empty()) return {};
  const std::unordered_set<std::string> referred = storages_below(item.root());
  for (const zip_record* const record : others) {
    if (record->name.starts_with(storages) && referred.contains(record->name.substr(storages.size()))) continue;
    std::string name = escaped(record->name);
    SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(std::string) + name.size())));
    item.unread_records_.push_back(std::move(name));
  }
  return {};
}

}  // namespace shardmesh::torch_file
