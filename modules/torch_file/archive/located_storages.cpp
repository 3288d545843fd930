// SPDX-License-Identifier: Apache-2.0
// The storages of item_reader: declared by the pickle and located in the archive, the stream, or the pickle itself.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
module shardmesh.torch_file;

import :foreign_file;
import :item_reader;
import :pickled_storage;
import :storage_reference;

namespace shardmesh::torch_file {

/// Returns the index of the storage that a value refers to, and adds the storage if it is new.
result<std::size_t> item_reader::storage_of(torch_file::item& item, const pickle::value& reference, bool is_quantized) {
  if (reference.is_record_of("torch.storage", "_load_from_bytes")) return pickled_storage_of(item, reference);
  SHARDMESH_TRY(torch_file::storage storage, declared_storage(reference, is_legacy_ || is_quantized));
  if (const auto known = by_key_.find(storage.key); known != by_key_.end()) {
    const torch_file::storage& before = item.storages_[known->second];
    if (before.type != storage.type || before.size_bytes != storage.size_bytes)
      return fail(errc::bad_format, fmt::format("storage \"{}\" is declared twice, differently", escaped(storage.key)));
    return known->second;
  }
  if (!is_legacy_) SHARDMESH_TRY(locate(storage));
  by_key_.emplace(storage.key, item.storages_.size());
  item.storages_.push_back(std::move(storage));
  return item.storages_.size() - 1;
}

// A storage of pickle.dump: a torch.save stream as bytes inside the pickle. The elements lie unchanged in the file.
result<std::size_t> item_reader::pickled_storage_of(torch_file::item& item, const pickle::value& reference) {
  if (pickled_.empty()) return tensors_of_bare_pickle();
  SHARDMESH_TRY(const pickled_storage found, find_pickled_storage(reference, pickled_));
  if (found.order != item.byte_order_ && !item.storages_.empty()) return bad("its storages have two byte orders");
  item.byte_order_ = found.order;
  const std::string key = fmt::format("at byte {}", found.begin);
  if (const auto known = by_key_.find(key); known != by_key_.end()) return known->second;
  SHARDMESH_TRY(torch_file::storage storage, declared_storage(found.reference(), false));
  const auto counted = size_bytes(storage.type == dtype::undefined ? dtype::uint8 : storage.type, found.count);
  if (storage.size_bytes != found.length || found.count < 0 || counted != found.length)
    return bad(fmt::format("the storage {} does not have its declared size", key))
        .with_values(detail::counted(storage.size_bytes, "byte"), detail::counted(found.length, "byte"));
  storage.key = key;
  return add_pickled(item, std::move(storage), found.begin);
}

std::size_t item_reader::add_pickled(torch_file::item& item, torch_file::storage storage, std::int64_t begin) {
  storage.offset = begin;
  storage.stored_bytes = storage.size_bytes;
  by_key_.emplace(storage.key, item.storages_.size());
  item.storages_.push_back(std::move(storage));
  return item.storages_.size() - 1;
}

// The storages follow in the order of the keys, each as a count of elements and the bytes.
result<void> item_reader::locate_legacy(torch_file::item& item, const pickle::value& keys, std::int64_t at) {
  std::size_t located = 0;
  for (const pickle::value key : keys.items()) {
    const auto found = by_key_.find(std::string(key.text().value_or("")));
    if (found == by_key_.end()) return bad("a storage of PyTorch's old format belongs to no known tensor");
    torch_file::storage& storage = item.storages_[found->second];
    std::array<std::byte, 8> count_bytes;
    SHARDMESH_TRY(source_.read(at, count_bytes));
    if (item.byte_order_ == std::endian::big) std::reverse(count_bytes.begin(), count_bytes.end());
    const auto count = std::bit_cast<std::int64_t>(count_bytes);
    const auto bytes = size_bytes(storage.type == dtype::undefined ? dtype::uint8 : storage.type, count);
    if (count < 0 || !bytes || *bytes != storage.size_bytes || *bytes > source_.size_bytes() - at - 8)
      return bad(fmt::format("storage \"{}\" does not have its declared size", escaped(storage.key)));
    storage.offset = at + 8;
    storage.stored_bytes = *bytes;
    at += 8 + *bytes;
    ++located;
  }
  if (located != item.storages_.size()) return bad("a storage of PyTorch's old format is missing");
  return {};
}

result<void> item_reader::locate(torch_file::storage& storage) {
  const zip_record* record = directory_.find(prefix_ + "data/" + storage.key);
  if (record == nullptr && storage.size_bytes == 0) return {};
  if (record == nullptr) return bad(fmt::format("the archive has no data of storage \"{}\"", escaped(storage.key)));
  if (record->size_bytes != storage.size_bytes)
    return bad(fmt::format("storage \"{}\" does not have its declared size", escaped(storage.key)))
        .with_values(detail::counted(storage.size_bytes, "byte"), detail::counted(record->size_bytes, "byte"));
  if (record->method != 0 && record->method != 8)
    return fail(errc::unsupported, fmt::format("ZIP compression method {} is not supported", record->method));
  storage.offset = record->offset;
  storage.stored_bytes = record->compressed_bytes;
  storage.method = record->method;
  storage.crc32 = record->crc32;
  return {};
}

}  // namespace shardmesh::torch_file
