// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :checked_archive;

namespace shardmesh::torch_file {
namespace {

// Whether the record is a storage ("archive/data/17"), whose bytes are never unpickled.
bool is_storage_record(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || slash + 1 == name.size() || !name.substr(0, slash).ends_with("/data"))
    return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(slash) + 1, name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

bool is_pickle(const zip_record& record) {
  if (record.offset < 0 || is_storage_record(record.name)) return false;
  if (record.name.ends_with(".pkl")) return true;
  return record.method == 0 && record.size_bytes >= 2 && record.beginning[0] == std::byte{0x80} &&
         record.beginning[1] <= std::byte{5};
}

std::int64_t most_bytes(const zip_record& record, const read_limits& limits) {
  return std::min(limits.description_bytes,
                  std::max<std::int64_t>(record.compressed_bytes * 64, std::int64_t{1} << 26));
}

}  // namespace

result<void> for_each_pickle(const byte_source& archive, const zip_directory& directory, const read_limits& limits,
                             std::string_view except, function_ref<result<void>(archived_pickle)> visit) {
  for (const zip_record& record : directory.records()) {
    if (record.name == except || !is_pickle(record)) continue;
    archived_pickle found{record, {}, {}};
    auto bytes = read_record(archive, record, most_bytes(record, limits), false);
    if (!bytes) {
      found.problem = std::move(bytes).error();
    } else {
      if (record.crc32 != 0 && crc32_of(*bytes) != record.crc32)
        found.problem =
            fail(errc::checksum_mismatch, fmt::format("record \"{}\" differs from its CRC-32", escaped(record.name)))
                .with_file(archive.name());
      found.bytes = *std::move(bytes);
    }
    SHARDMESH_TRY(visit(std::move(found)));
  }
  return {};
}

result<zip_directory> open_archive(const byte_source& archive, read_budget& budget) {
  SHARDMESH_TRY(zip_directory directory, zip_directory::read(archive));
  const std::string main = archive_prefix(directory) + "data.pkl";
  if (const zip_record* const record = directory.find(main); record != nullptr) {
    const std::int64_t most = most_bytes(*record, budget.limits());
    if (record->size_bytes > most)
      return fail(errc::bad_format, fmt::format("record \"{}\" is too large", escaped(main)))
          .with_file(archive.name())
          .with_values(fmt::format("at most {} bytes", most), fmt::format("{}", record->size_bytes));
  }
  SHARDMESH_TRY(
      for_each_pickle(archive, directory, budget.limits(), main, [&](const archived_pickle& pickle) -> result<void> {
        if (pickle.problem) return *pickle.problem;
        const zip_record& record = pickle.record;
        if (record.method == 0) return {};
        auto done = budget.decode(fmt::format("{}:{}:{}", archive.name(), record.name, record.crc32),
                                  record.compressed_bytes, record.size_bytes);
        if (done) return done;
        return std::move(done).error().with_file(archive.name());
      }));
  return directory;
}

std::string archive_prefix(const zip_directory& directory) {
  if (directory.records().empty()) return {};
  const std::string& first = directory.records().front().name;
  return first.substr(0, first.find('/') + 1);
}

std::vector<std::string> extra_files(const zip_directory& directory) {
  std::vector<std::string> names;
  // The second folder is that of torch.export.save up to PyTorch 2.6.
  for (const std::string& folder : {archive_prefix(directory) + "extra/", std::string("extra_files/")})
    for (const zip_record& record : directory.records())
      if (record.name.starts_with(folder) && record.name.size() > folder.size())
        names.push_back(escaped(std::string_view(record.name).substr(folder.size())));
  return names;
}

}  // namespace shardmesh::torch_file
