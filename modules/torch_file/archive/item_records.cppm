// SPDX-License-Identifier: Apache-2.0
// item_records: what lies in an item beside plain tensors: its records held against their CRC-32, the storages that a
// value refers to, and a digest of what a value is made of. Not here: tensors' elements (entry_check, checked_source).
export module shardmesh.torch_file:item_records;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import shardmesh.pickle;
import :item;

export namespace shardmesh::torch_file {

/// Bytes that have a checksum that was compared, and bytes that have none.
struct record_sums {
  std::int64_t checked_bytes = 0, unchecked_bytes = 0;
  friend record_sums operator+(const record_sums& a, const record_sums& b) {
    return {a.checked_bytes + b.checked_bytes, a.unchecked_bytes + b.unchecked_bytes};
  }
};

/// Holds every record of a torch.save archive against its CRC-32. A file of another kind has no checksums.
/// errc::checksum_mismatch, errc::bad_format, errc::unsupported, naming file and record. Cost: reads every byte once,
/// in bounded memory.
result<record_sums> check_archive(const byte_source& archive, read_budget* budget = nullptr,
                                  const std::string& place = {});

/// The storages of one opened item by the keys that persistent references give them, also those of tensors that we do
/// not expose. The source and the item must outlive this.
class item_storages {
 public:
  // What is decompressed counts against `budget` (null: none), under names that begin with `place`.
  static result<item_storages> open(const byte_source& source, const torch_file::item& item,
                                    read_budget* budget = nullptr, const std::string& place = {});

  // Compares the CRC-32 of every storage that is reached from the value. What an earlier call met is not looked at
  // again: shared parts cost once, and are reported once.
  result<record_sums> check_reachable(const pickle::value& value);

  // A digest of what the value is made of: types, plain values and the bytes of storages. Keys and places of storages
  // do not count, so the same value saved alone or inside a larger file has one digest; nor does being a Parameter.
  // errc::unsupported when the value is too tangled to be walked.
  result<digest128> content_of(const pickle::value& value);

 private:
  explicit item_storages(const byte_source& source) : source_(&source) {}
  struct opened_storage {
    std::unique_ptr<byte_source> bytes;  // decoded; null: there is nothing to read
    std::uint32_t crc32 = 0;
  };
  result<opened_storage> open_storage(const std::string& key, bool is_empty) const;

  const byte_source* source_;
  read_budget* budget_ = nullptr;
  std::string place_;
  std::unordered_map<std::string, storage> by_key_;
  std::unordered_map<std::uint64_t, bool> seen_;         // by identity
  std::unordered_map<std::string, bool> checked_;        // keys of storages
  std::unordered_map<std::string, digest128> contents_;  // of storages
};

}  // namespace shardmesh::torch_file
