// SPDX-License-Identifier: Apache-2.0
// Checks an item's records against their CRC-32, finds the storages that a value refers to, and computes a digest of a
// value's content. Elements of plain tensors are checked in `entry_check` and `checked_source`.
export module shardmesh.torch_file:item_records;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import shardmesh.pickle;
import :item;

export namespace shardmesh::torch_file {

/// Bytes whose checksum was compared, and bytes without a checksum.
struct record_sums {
  std::int64_t checked_bytes = 0, unchecked_bytes = 0;
  friend record_sums operator+(const record_sums& a, const record_sums& b) {
    return {a.checked_bytes + b.checked_bytes, a.unchecked_bytes + b.unchecked_bytes};
  }
};

/// Compares every record of a torch.save archive with its CRC-32. Files of other kinds have no checksums.
/// \errors errc::checksum_mismatch, errc::bad_format, errc::unsupported, naming the file and the record
/// Cost: reads every byte once, in bounded memory.
result<record_sums> check_archive(const byte_source& archive, read_budget* budget = nullptr,
                                  const std::string& place = {});

/// The storages of one opened item by their keys in persistent references, including those of tensors that we do not
/// expose. The source and the item must outlive this.
class item_storages {
 public:
  // Decompressed bytes are charged to `budget` (if not null), under names that begin with `place`.
  static result<item_storages> open(const byte_source& source, const torch_file::item& item,
                                    read_budget* budget = nullptr, const std::string& place = {});

  // Compares the CRC-32 of every storage reachable from the value. Parts that an earlier call visited are skipped, so
  // shared parts are read once and reported once.
  result<record_sums> check_reachable(const pickle::value& value);

  // Computes a digest of the value's content: types, plain values, and bytes of storages. Keys and places of storages
  // do not count, so a value saved alone and in a larger file has the same digest. A Parameter has the digest of its
  // tensor.
  // \errors errc::unsupported for a value with too many parts
  result<digest128> content_of(const pickle::value& value);

 private:
  explicit item_storages(const byte_source& source) : source_(&source) {}
  struct opened_storage {
    std::unique_ptr<byte_source> bytes;  // decoded; null for an empty storage without a record
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

namespace shardmesh::torch_file {

// Appends the parts of a value, in order. Other values than containers and records have none.
void push_parts(const pickle::value& value, std::vector<pickle::value>& pending);

// Returns the storage key in a persistent reference, ("storage", class, key, location, count). Empty for others.
std::optional<std::string> storage_key(const pickle::value& reference);

}  // namespace shardmesh::torch_file
