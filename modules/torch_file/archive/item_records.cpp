// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :checked_archive;
import :content_sum;
import :item_records;

namespace shardmesh::torch_file {
namespace {

// Where a record lies in an archive, and how it is stored.
struct stored_record {
  std::string_view name;
  std::int64_t offset = 0, stored_bytes = 0, size_bytes = 0;
  std::uint16_t method = 0;  // of ZIP
};

// Opens a record as uncompressed bytes. `place` names the archive in the budget.
result<std::unique_ptr<byte_source>> open_record(const byte_source& source, const stored_record& record,
                                                 read_budget* budget, const std::string& place) {
  auto section = std::make_unique<section_source>(source, record.offset, record.stored_bytes);
  if (record.method == 0) return std::unique_ptr<byte_source>(std::move(section));
  if (record.method != 8)
    return fail(errc::unsupported, fmt::format("ZIP compression method {} of record \"{}\" is not supported",
                                               record.method, escaped(record.name)))
        .with_file(source.name());
  SHARDMESH_TRY(std::unique_ptr<byte_source> decoded, open_decoding_source(std::move(section), codec::deflate, budget,
                                                                           fmt::format("{}:{}", place, record.offset)));
  if (decoded->size_bytes() != record.size_bytes)
    return fail(errc::bad_format, fmt::format("record \"{}\" does not have its declared length", escaped(record.name)))
        .with_file(source.name())
        .with_values(detail::counted(record.size_bytes, "byte"), fmt::format("{}", decoded->size_bytes()));
  return decoded;
}

result<record_sums> check_record(const byte_source& record, std::uint32_t crc32, std::string_view name) {
  if (crc32 == 0) return record_sums{0, record.size_bytes()};
  SHARDMESH_TRY(const std::uint32_t found, crc32_of_range(record, 0, record.size_bytes()));
  if (found == crc32) return record_sums{record.size_bytes(), 0};
  return fail(errc::checksum_mismatch, fmt::format("record \"{}\" is damaged: its CRC-32 differs", escaped(name)))
      .with_file(record.name())
      .with_values(fmt::format("{:08x}", crc32), fmt::format("{:08x}", found))
      .with_hint(detail::restore_hint);
}

bool is_empty_storage(const pickle::value& reference) {
  return reference.persistent_id().items()[4].as_int() == 0;
}

// Whether a function built the value from its arguments alone: a frozenset, bytes in protocol 2, an enum member. Like
// equal tuples, equal values may be pickled as one object or as several: our writer pickles dict keys one by one.
bool is_value(const pickle::value& at) {
  return at.kind() == pickle::kind::record && at.form() == pickle::form::reduce && !at.state() &&
         at.keyword_args().items().empty() && at.keyword_args().pairs().empty() && at.appended().items().empty() &&
         at.assigned().pairs().empty();
}

// The items of a set or frozenset that protocols before 4 write as a call with a list.
pickle::value called_with_items(const pickle::value& at) {
  if (!is_value(at) || (!is_builtin(at, "set") && !is_builtin(at, "frozenset"))) return {};
  const pickle::value items = argument_of(at, 0);
  return at.args().items().size() == 1 && items.kind() == pickle::kind::list ? items : pickle::value();
}

// The module and the dotted name of getattr(class, name), as protocols before 4 write a class in a class.
std::optional<std::pair<std::string, std::string>> nested_name(pickle::value at) {
  constexpr int most_levels = 16;         // this runs once for each level of a chain, and walks the rest of it
  constexpr std::size_t most_name = 512;  // many calls may have one long text as their argument
  std::string below;
  for (int level = 0; level < most_levels && is_value(at) && is_builtin(at, "getattr"); ++level) {
    const auto attribute = argument_of(at, 1).text();
    if (!attribute || attribute->size() > most_name || at.args().items().size() != 2) return std::nullopt;
    below.insert(0, "." + std::string(*attribute));
    at = argument_of(at, 0);
  }
  if (at.kind() != pickle::kind::global || below.empty()) return std::nullopt;
  const auto [module_name, name] = python3_name(at);
  return std::pair(std::string(module_name), std::string(name) + below);
}

// Parts without parts of their own that may be long: texts, bytes, integers, and names. Also the calls as which
// protocols before 4 write bytes, a bytearray, or a class in a class: they are added like these values themselves. Each
// is hashed once, however often it is referred to.
class long_parts {
 public:
  // Returns false for other parts, which are not added.
  bool add(content_sum& sum, const pickle::value& at) {
    if (at.kind() == pickle::kind::record) return is_value(at) && add_call(sum, at);
    if (at.bytes()) return add_bytes(sum, at.kind(), at, at);
    constexpr std::size_t most_short = 64;
    const bool is_long = at.kind() == pickle::kind::text ? at.text()->size() > most_short
                                                         : at.kind() == pickle::kind::integer && !at.as_int();
    if (!is_long && at.kind() != pickle::kind::global) return false;
    const auto [known, is_new] = values_.try_emplace(at.identity());
    if (is_new) known->second = sum_of(at);
    return add_digest(sum, at.kind(), known->second);
  }

 private:
  static bool add_digest(content_sum& sum, pickle::kind kind, const digest128& digest) {
    sum.number(static_cast<std::uint64_t>(kind)), sum.number(digest.high), sum.number(digest.low);
    return true;
  }

  // The decimal digits of a very long integer would take quadratic time: its stored bytes are hashed instead. They are
  // the same in every protocol but 0, in which Python reads no such integer.
  static digest128 sum_of(const pickle::value& at) {
    content_sum sum;
    pickle::writer stored(2);
    if (at.kind() == pickle::kind::integer && !at.decimal() && stored.value(at)) {
      const std::vector<std::byte> bytes = std::move(stored).finish();
      return xxh3(bytes);
    }
    sum.leaf(at);
    return sum.digest();
  }

  // `from`: the text or the bytes that determine the content of `at`. Many calls may have the same.
  bool add_bytes(content_sum& sum, pickle::kind kind, const pickle::value& at, const pickle::value& from) {
    const auto [known, is_new] = contents_.try_emplace(from.identity());
    if (is_new) {
      if (const auto content = bytes_of(at)) known->second = xxh3(std::as_bytes(std::span(*content)));
    }
    return known->second && add_digest(sum, kind, *known->second);
  }

  bool add_call(content_sum& sum, const pickle::value& at) {
    const bool is_encoded = at.is_record_of("_codecs", "encode"), is_array = is_builtin(at, "bytearray");
    if (is_encoded || is_array || is_builtin(at, "bytes")) {
      const pickle::kind kind = is_array ? pickle::kind::bytearray : pickle::kind::bytes;
      pickle::value from = argument_of(at, 0), encoding = argument_of(at, 1);
      if (!from && !is_encoded) return add_digest(sum, kind, xxh3({}));
      if (from.bytes() && !is_encoded) return add_bytes(sum, kind, at, from);
      if (!is_encoded && from.is_record_of("_codecs", "encode")) {
        encoding = argument_of(from, 1);
        from = argument_of(from, 0);
      }
      const bool is_latin1 = encoding.text() == "latin1" || encoding.text() == "latin-1";
      return from.text() && is_latin1 && add_bytes(sum, kind, at, from);
    }
    if (!is_builtin(at, "getattr")) return false;
    const auto name = nested_name(at);
    if (!name) return false;
    content_sum as_global;
    as_global.number(static_cast<std::uint64_t>(pickle::kind::global));
    as_global.text(name->first), as_global.text(name->second);
    return add_digest(sum, pickle::kind::global, as_global.digest());
  }

  std::unordered_map<std::uint64_t, digest128> values_;                   // by identity
  std::unordered_map<std::uint64_t, std::optional<digest128>> contents_;  // by the identity of `from`
};

// Unwraps a Parameter, because some writers save only its tensor.
pickle::value without_parameter(const pickle::value& value) {
  const bool parameter = value.is_record_of("torch._utils", "_rebuild_parameter") ||
                         value.is_record_of("torch._utils", "_rebuild_parameter_with_state");
  return parameter && value.args().size() >= 2 ? value.args().items()[0] : value;
}

}  // namespace

void push_parts(const pickle::value& value, std::vector<pickle::value>& pending) {
  switch (value.kind()) {
    case pickle::kind::list:
    case pickle::kind::tuple:
    case pickle::kind::set:
    case pickle::kind::frozenset:
      for (const pickle::value part : value.items()) pending.push_back(part);
      return;
    case pickle::kind::dict:
      for (const pickle::pair pair : value.pairs()) pending.push_back(pair.key), pending.push_back(pair.value);
      return;
    case pickle::kind::record:
      for (const pickle::value part :
           {value.callable(), value.args(), value.keyword_args(), value.state(), value.appended(), value.assigned()})
        pending.push_back(part);
      return;
    default:
      return;
  }
}

std::optional<std::string> storage_key(const pickle::value& reference) {
  const pickle::items id = reference.persistent_id().items();
  if (id.size() < 5 || id[0].text() != "storage" || !id[2].text()) return std::nullopt;
  return std::string(*id[2].text());
}

result<record_sums> check_archive(const byte_source& archive, read_budget* budget, const std::string& place) {
  if (!looks_like_zip(archive)) return record_sums{0, archive.size_bytes()};
  SHARDMESH_TRY(const auto windows, windowed_source::open(archive));
  SHARDMESH_TRY(const zip_directory directory, zip_directory::read(windows));
  record_sums total;
  for (const zip_record& record : directory.records()) {
    SHARDMESH_TRY(const auto bytes, open_record(windows,
                                                {.name = record.name,
                                                 .offset = record.offset,
                                                 .stored_bytes = record.compressed_bytes,
                                                 .size_bytes = record.size_bytes,
                                                 .method = record.method},
                                                budget, place));
    SHARDMESH_TRY(const record_sums sums, check_record(*bytes, record.crc32, record.name));
    total = total + sums;
  }
  return total;
}

result<item_storages> item_storages::open(const byte_source& source, const torch_file::item& item, read_budget* budget,
                                          const std::string& place) {
  item_storages made(source);
  made.budget_ = budget;
  made.place_ = place;
  for (const torch_file::storage& storage : item.storages()) made.by_key_.emplace(storage.key, storage);
  if (item.format() != item_format::zip) return made;
  SHARDMESH_TRY(const auto windows, windowed_source::open(source));
  SHARDMESH_TRY(const zip_directory directory, zip_directory::read(windows));
  const std::string prefix = archive_prefix(directory) + "data/";
  for (const zip_record& record : directory.records()) {
    if (!record.name.starts_with(prefix)) continue;
    std::string key = record.name.substr(prefix.size());
    if (made.by_key_.contains(key)) continue;
    torch_file::storage storage{
        key, dtype::undefined, record.size_bytes, record.offset, record.compressed_bytes, record.method, record.crc32};
    made.by_key_.emplace(std::move(key), std::move(storage));
  }
  return made;
}

result<item_storages::opened_storage> item_storages::open_storage(const std::string& key, bool is_empty) const {
  opened_storage opened;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    if (is_empty) return opened;
    return fail(errc::bad_format, fmt::format("there is no data of storage \"{}\"", escaped(key)))
        .with_file(source_->name());
  }
  const torch_file::storage& storage = found->second;
  opened.crc32 = storage.crc32;
  SHARDMESH_TRY(opened.bytes, open_record(*source_,
                                          {.name = "data/" + key,
                                           .offset = storage.offset,
                                           .stored_bytes = storage.stored_bytes,
                                           .size_bytes = storage.size_bytes,
                                           .method = storage.method},
                                          budget_, place_));
  return opened;
}

result<record_sums> item_storages::check_reachable(const pickle::value& value) {
  record_sums total;
  std::vector<pickle::value> pending{value};
  while (!pending.empty()) {
    const pickle::value at = pending.back();
    pending.pop_back();
    const bool has_parts = at.kind() >= pickle::kind::list && at.kind() != pickle::kind::global;
    if (!at || !has_parts || !seen_.emplace(at.identity(), true).second) continue;
    push_parts(at, pending);
    if (at.kind() != pickle::kind::persistent) continue;
    const auto key = storage_key(at);
    if (!key || !checked_.emplace(*key, true).second) continue;
    SHARDMESH_TRY(const opened_storage storage, open_storage(*key, is_empty_storage(at)));
    if (!storage.bytes) continue;
    SHARDMESH_TRY(const record_sums sums, check_record(*storage.bytes, storage.crc32, "data/" + *key));
    total = total + sums;
  }
  return total;
}

result<digest128> item_storages::content_of(const pickle::value& value) {
  constexpr std::int64_t most_parts = 50'000'000;
  content_sum sum;
  std::unordered_map<std::uint64_t, std::uint64_t> numbers;  // of the values met so far, by identity
  long_parts long_ones;
  // `of_value`: `at` lies in the arguments of a value, directly or inside their tuples.
  struct visit {
    pickle::value at;
    bool of_value = false;
  };
  std::vector<visit> pending{{without_parameter(value)}};
  std::vector<pickle::value> parts;
  for (std::int64_t visited = 0; !pending.empty(); ++visited) {
    if (visited == most_parts)
      return fail(errc::unsupported, "an object has too many parts to be compared")
          .with_file(source_->name())
          .with_values(fmt::format("at most {}", most_parts), "more");
    const auto [at, of_value] = pending.back();
    pending.pop_back();
    if (long_ones.add(sum, at)) continue;
    const pickle::value called = called_with_items(at);
    pickle::kind kind = at.kind();
    if (called) kind = is_builtin(at, "set") ? pickle::kind::set : pickle::kind::frozenset;
    if (called)
      sum.number(static_cast<std::uint64_t>(kind));
    else
      sum.leaf(at);
    if (at.kind() == pickle::kind::persistent) {
      const auto key = storage_key(at);
      if (!key) continue;
      sum.leaf(at.persistent_id().items()[1]);
      const auto [known, is_new] = contents_.try_emplace(*key);
      if (is_new) {
        SHARDMESH_TRY(const opened_storage storage, open_storage(*key, is_empty_storage(at)));
        const std::int64_t size = storage.bytes ? storage.bytes->size_bytes() : 0;
        if (size > 0) {
          SHARDMESH_TRY(known->second, xxh3_of_range(*storage.bytes, 0, size));
        }
      }
      sum.number(known->second.high), sum.number(known->second.low);
      continue;
    }
    parts.clear();
    push_parts(called ? called : at, parts);
    if (parts.empty()) continue;
    // A writer may pickle equal tuples as one object or two, so only mutable objects count by identity.
    const bool is_tuple = kind == pickle::kind::tuple, is_made = !called && is_value(at);
    const bool is_argument = of_value && kind == pickle::kind::list;  // a list that a function got
    if (!is_tuple && !is_made && !is_argument && kind != pickle::kind::frozenset) {
      const auto [known, is_new] = numbers.try_emplace(at.identity(), numbers.size());
      sum.number(is_new ? UINT64_MAX : known->second);
      if (!is_new) continue;
    }
    sum.number(parts.size());
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      pending.push_back({*part, is_made || (is_tuple && of_value)});
  }
  return sum.digest();
}

}  // namespace shardmesh::torch_file
