// SPDX-License-Identifier: Apache-2.0
// Opens the layouts of an item: an archive, the older stream of pickles, and a bare pickle.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :checked_archive;
import :foreign_file;
import :item_reader;

namespace shardmesh::torch_file {

result<item> item_reader::open() {
  if (looks_like_zip(source_)) return open_zip();
  return open_stream();
}

// Allows only one data.pkl, so that every program that reads the archive sees the same pickle.
result<void> item_reader::check_records() const {
  const zip_record* found = nullptr;
  for (const zip_record& record : directory_.records()) {
    const std::string_view base = std::string_view(record.name).substr(record.name.rfind('/') + 1);
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; };
    const bool is_pickle = std::ranges::equal(base, std::string_view("data.pkl"), {}, lower);
    if (is_pickle && found != nullptr)
      return bad(
          fmt::format("the archive has two pickles, \"{}\" and \"{}\"", escaped(found->name), escaped(record.name)));
    if (is_pickle) found = &record;
  }
  return {};
}

result<void> item_reader::charge_inflated(const zip_record& record) {
  const std::string place = fmt::format("{}:{}:{}", source_.name(), record.name, record.crc32);
  auto done = budget_.decode(place, record.compressed_bytes, record.size_bytes);
  if (done) return done;
  return std::move(done).error().with_file(source_.name());
}

result<item> item_reader::open_zip() {
  SHARDMESH_TRY(directory_, open_archive(source_, budget_));
  if (directory_.records().empty()) return bad("the archive has no records");
  // All records lie in one folder. PyTorch takes its name from the first record.
  prefix_ = archive_prefix(directory_);
  SHARDMESH_TRY(check_records());
  const zip_record* data = directory_.find(prefix_ + "data.pkl");
  if (data == nullptr) return not_torch_archive(directory_, prefix_ + "data.pkl").with_file(source_.name());
  const bool is_script = directory_.find(prefix_ + "constants.pkl") != nullptr;
  if (is_script && !options_.is_file)
    return fail(errc::unsupported, "an item is a TorchScript archive").with_file(source_.name());
  if (data->method == 8) SHARDMESH_TRY(charge_inflated(*data));
  SHARDMESH_TRY(auto bytes, read_record(source_, *data, options_.pickle_limit_bytes));
  budget_.add_description(static_cast<std::int64_t>(bytes.size()));
  SHARDMESH_TRY(auto graph, pickle::graph::parse(std::move(bytes)));
  torch_file::item item(std::move(graph));
  item.is_script_ = is_script;
  if (const zip_record* order = directory_.find(prefix_ + "byteorder")) {
    SHARDMESH_TRY(const auto text, read_record(source_, *order, 64));
    const std::string_view word(reinterpret_cast<const char*>(text.data()), text.size());
    if (word != "little" && word != "big") return bad("the byte order is \"" + escaped(word) + "\"");
    item.byte_order_ = word == "big" ? std::endian::big : std::endian::little;
  }
  if (options_.is_file) item.warnings_ = refusals_of_torch_load(source_, directory_);
  SHARDMESH_TRY(collect(item));
  if (options_.is_file && !is_script) SHARDMESH_TRY(find_unread(item));
  return item;
}

// Opens a stream of pickles: torch.save before 1.6, or a bare pickle. Only parsing shows where the pickles end, and
// bulk data may follow, so it tries ever longer prefixes of the file.
result<item> item_reader::open_stream() {
  // The pickles of torch.save's stream hold no tensor data, so their limit is lower than that of a record.
  const std::int64_t size = source_.size_bytes(), most = std::min(size, options_.pickle_limit_bytes / 4);
  std::array<std::byte, 32> beginning{};
  if (size == 0) return bad("it is empty");
  const auto first =
      std::span(beginning).first(static_cast<std::size_t>(std::min<std::int64_t>(size, beginning.size())));
  SHARDMESH_TRY(source_.read(0, first));
  if (auto foreign = foreign_beginning(first)) return std::move(*foreign).with_file(source_.name());
  const bool has_protocol = first[0] == std::byte{0x80};
  for (std::int64_t window = 1 << 16;; window *= 8) {
    const std::int64_t length = std::min(window, most);
    SHARDMESH_TRY(std::vector<std::byte> start, read_range(source_, 0, length, options_.pickle_limit_bytes / 4));
    auto graph = pickle::graph::parse(std::span<const std::byte>(start));
    if (graph && graph->root().decimal() == "119547037146038801333356") return open_legacy(start, length == size);
    if (graph) budget_.add_description(length);
    if (graph && graph->consumed_bytes() == static_cast<std::size_t>(size)) {
      pickled_ = start;  // valid after the move below, which keeps the buffer's address
      SHARDMESH_TRY(auto owning, pickle::graph::parse(std::move(start)));
      torch_file::item item(std::move(owning));
      item.format_ = item_format::pickle;
      SHARDMESH_TRY(collect(item));
      return item;
    }
    if (graph || !has_protocol) return bad("it is neither an archive of torch.save nor a pickle");
    const bool is_cut = graph.error().found == pickle::cut_short;
    if (is_cut && length == most && most < size)
      return beyond_limit("the pickle is too long", most).with_file(source_.name());
    // More bytes help only if the pickle was cut short.
    if (!is_cut || length == most) return std::move(graph).error().with_file(source_.name());
  }
}

result<item> item_reader::open_legacy(std::span<const std::byte> start, bool is_whole) {
  std::vector<std::byte> larger;
  for (;;) {
    // magic number, protocol version, system information, object, storage keys
    std::size_t at = 0;
    std::array<std::size_t, 6> begins{};
    std::optional<error> problem;
    bool is_little = true;
    for (int i = 0; i < 5 && !problem; ++i) {
      begins[static_cast<std::size_t>(i)] = at;
      auto part = pickle::graph::parse(start.subspan(at));
      if (!part) {
        problem = std::move(part).error();
        break;
      }
      if (i == 1 && part->root().as_int() != 1001)
        return fail(errc::unsupported, "unknown version of PyTorch's old format").with_file(source_.name());
      if (i == 2) is_little = part->root().find("little_endian").as_bool().value_or(true);
      at += part->consumed_bytes();
    }
    begins[5] = at;
    if (problem) {
      const std::int64_t most = std::min(source_.size_bytes(), options_.pickle_limit_bytes / 4);
      if (problem->found != pickle::cut_short || is_whole || static_cast<std::int64_t>(start.size()) >= most)
        return std::move(*problem).with_file(source_.name());
      const std::int64_t length = std::min(static_cast<std::int64_t>(start.size()) * 8, most);
      SHARDMESH_TRY(larger, read_range(source_, 0, length, options_.pickle_limit_bytes / 4));
      start = larger;
      continue;
    }
    const auto copy = [&start](std::size_t begin, std::size_t end) {
      return std::vector<std::byte>(start.begin() + static_cast<std::ptrdiff_t>(begin),
                                    start.begin() + static_cast<std::ptrdiff_t>(end));
    };
    budget_.add_description(static_cast<std::int64_t>(at));
    SHARDMESH_TRY(auto graph, pickle::graph::parse(copy(begins[3], begins[4])));
    SHARDMESH_TRY(auto keys, pickle::graph::parse(copy(begins[4], begins[5])));
    torch_file::item item(std::move(graph));
    item.format_ = item_format::legacy_stream;
    item.byte_order_ = is_little ? std::endian::little : std::endian::big;
    is_legacy_ = true;
    SHARDMESH_TRY(collect(item));
    SHARDMESH_TRY(locate_legacy(item, keys.root(), static_cast<std::int64_t>(at)));
    return item;
  }
}

}  // namespace shardmesh::torch_file
