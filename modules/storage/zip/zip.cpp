// SPDX-License-Identifier: Apache-2.0
// The records of an archive, by name. The steps of reading them are in `zip_end`, `zip_entry`, and `local_headers`. The
// bytes of single records are read in `zip_record`.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.storage;

import :local_headers;
import :zip_end;
import :zip_entry;
import :zip_error;

namespace shardmesh {
using namespace zip_reading;

namespace {

// A directory with at most this many records is searched without an index, which would take longer to make. An archive
// of one tensor has seven records, and a folder has such an archive for each chunk.
constexpr std::uint64_t few_records = 32;

char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c;
}
std::string lower_case(std::string name) {
  for (char& c : name) c = lower_case(c);
  return name;
}
// NumPy looks its arrays up with regard to case, and PyTorch has no such records.
bool is_numpy_array(std::string_view name) {
  return name.ends_with(".npy");
}
bool are_alike_but_for_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, [](char c) { return lower_case(c); }, [](char c) { return lower_case(c); });
}

}  // namespace

result<zip_directory> zip_directory::read(const byte_source& source, std::vector<error>* contradictions) {
  SHARDMESH_TRY(const extent where, find_directory(source));
  directory_window window(source, where);
  zip_directory directory;
  std::unordered_set<std::string> folded;
  const bool is_short = where.records <= few_records;
  if (is_short) directory.records_.reserve(static_cast<std::size_t>(where.records));
  for (std::uint64_t i = 0; i < where.records; ++i) {
    SHARDMESH_TRY(zip_record record, read_entry(source, window, where.offset));
    const bool is_known = is_short ? directory.find(record.name) != nullptr
                                   : !directory.by_name_.emplace(record.name, directory.records_.size()).second;
    if (is_known) return bad(source, fmt::format("two records are named \"{}\"", record.name));
    // PyTorch's reader looks names up without regard to case, others with: they would see different records.
    const auto is_alike = [&](const zip_record& other) {
      return !is_numpy_array(other.name) && are_alike_but_for_case(other.name, record.name);
    };
    const bool is_folded = !is_numpy_array(record.name) && (is_short ? std::ranges::any_of(directory.records_, is_alike)
                                                                     : !folded.insert(lower_case(record.name)).second);
    if (is_folded) return bad(source, fmt::format("two records are named \"{}\" apart from case", record.name));
    directory.records_.push_back(std::move(record));
  }
  if (window.left() != 0) return bad(source, "the directory has more records than it says");
  SHARDMESH_TRY(
      read_local_headers(source, directory.records_, static_cast<std::int64_t>(where.offset), contradictions));
  return directory;
}

const zip_record* zip_directory::find(std::string_view name) const {
  if (by_name_.empty()) {
    const auto found = std::ranges::find(records_, name, &zip_record::name);
    return found == records_.end() ? nullptr : &*found;
  }
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &records_[found->second];
}

}  // namespace shardmesh
