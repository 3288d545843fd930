// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.gguf;

import shardmesh.storage;
import :cursor;
import :metadata_value;

namespace shardmesh::gguf {
namespace {

constexpr std::array<std::byte, 4> magic{std::byte{'G'}, std::byte{'G'}, std::byte{'U'}, std::byte{'F'}};
constexpr std::int64_t max_name_bytes = 65535;

// The fewest bytes of a metadata value (key length, type, a number of one byte), and of a tensor's description.
constexpr std::int64_t least_value_bytes = 8 + 4 + 1, least_tensor_bytes = 8 + 4 + 4 + 8;

class header_reader {
 public:
  header_reader(const byte_source& source, read_budget& budget)
      : budget_(budget),
        file_bytes_(source.size_bytes()),
        source_(source),
        at_(source, 0, file_bytes_, budget.limits().description_bytes) {}

  result<header> read() {
    SHARDMESH_TRY(read_version());
    SHARDMESH_TRY(const std::int64_t tensors, at_.count(least_tensor_bytes, "the number of tensors"));
    SHARDMESH_TRY(const std::int64_t values, at_.count(least_value_bytes, "the number of metadata values"));
    for (std::int64_t i = 0; i < values; ++i) SHARDMESH_TRY(read_value_place());
    SHARDMESH_TRY(read_alignment());
    for (std::int64_t i = 0; i < tensors; ++i) SHARDMESH_TRY(read_tensor());
    const auto padded = aligned(at_.position());
    if (!padded) return fail(errc::overflow, "the description's end does not fit in 64 bits");
    made_.data_begin = *padded;
    for (tensor_info& tensor : made_.tensors)
      if (auto placed = place(tensor); !placed) return std::move(placed).error().with_key(tensor.name);
    SHARDMESH_TRY(check_disjoint());
    return std::move(made_);
  }

 private:
  result<void> read_version() {
    SHARDMESH_TRY(const auto found, at_.number<std::uint32_t>("the magic number"));
    if (found != std::uint32_t{0x46554747})
      return fail(errc::bad_format, "is not a GGUF file")
          .with_values("the bytes \"GGUF\" at its beginning", fmt::format("{:#010x}", found));
    SHARDMESH_TRY(made_.version, at_.number<std::uint32_t>("the version"));
    const std::uint32_t version = made_.version;
    if (version != 0 && (version & 0xFFFFU) == 0)
      return fail(errc::unsupported, "is a big-endian GGUF file, which is not read").with_values("little-endian", "");
    if (version != 2 && version != 3)
      return fail(errc::unsupported, "is of a version of GGUF that is not read")
          .with_values("2 or 3", fmt::format("{}", version));
    return {};
  }

  // Charges the bytes that were read since the last call, and the memory of an entry with this name.
  result<void> charge(const std::string& name, std::size_t entry_bytes) {
    budget_.add_description(at_.position() - described_);
    described_ = at_.position();
    return budget_.build(static_cast<std::int64_t>(entry_bytes + 2 * name.size() + 64));
  }

  result<void> read_value_place() {
    metadata_entry entry;
    SHARDMESH_TRY(entry.key, at_.text(max_key_bytes, "the key of a metadata value"));
    const auto refuse = [&](error why) { return std::move(why).with_key(entry.key); };
    if (!keys_.insert(entry.key).second) return refuse(fail(errc::duplicate_key, "the metadata has this key twice"));
    auto type = read_value_type(at_);
    if (!type) return refuse(std::move(type).error());
    entry.type = *type;
    entry.begin = at_.position();
    auto done = skip_value(at_, entry.type, 0);
    if (!done) return refuse(std::move(done).error());
    entry.elements = done->elements;
    entry.count = done->count;
    entry.end = at_.position();
    if (auto charged = charge(entry.key, sizeof entry); !charged) return refuse(std::move(charged).error());
    made_.metadata.push_back(std::move(entry));
    return {};
  }

  result<void> read_alignment() {
    const metadata_entry* const entry = find_metadata(made_, alignment_key);
    if (entry == nullptr) return {};
    SHARDMESH_TRY(const auto value, read_unsigned(source_, *entry));
    if (!value || !is_alignment(*value))
      return fail(errc::bad_format, "the alignment is invalid")
          .with_key(alignment_key)
          .with_values("a power of two from 8 to 2147483648",
                       value ? fmt::format("{}", *value) : "another type of value");
    made_.alignment = static_cast<std::int64_t>(*value);
    return {};
  }

  // Reads a tensor's description. `begin` is the offset in the data until `place`.
  result<void> read_tensor() {
    tensor_info tensor;
    SHARDMESH_TRY(tensor.name, at_.text(max_name_bytes, "the name of a tensor"));
    const auto refuse = [&](error why) { return std::move(why).with_key(tensor.name); };
    if (!names_.insert(tensor.name).second) return refuse(fail(errc::duplicate_key, "two tensors have this name"));
    if (auto read = read_shape(tensor.shape); !read) return refuse(std::move(read).error());
    auto type = at_.number<std::uint32_t>("the type of a tensor");
    if (!type) return refuse(std::move(type).error());
    tensor.type = *type;
    auto offset = at_.number<std::uint64_t>("the offset of a tensor");
    if (!offset) return refuse(std::move(offset).error());
    if (*offset > static_cast<std::uint64_t>(file_bytes_))
      return refuse(fail(errc::bad_format, "its data begins outside of the file")
                        .with_values(fmt::format("an offset of at most {}", file_bytes_), fmt::format("{}", *offset)));
    tensor.begin = static_cast<std::int64_t>(*offset);
    if (auto charged = charge(tensor.name, sizeof tensor); !charged) return refuse(std::move(charged).error());
    made_.tensors.push_back(std::move(tensor));
    return {};
  }

  result<void> read_shape(extents& shape) {
    SHARDMESH_TRY(const auto rank, at_.number<std::uint32_t>("the number of dimensions of a tensor"));
    if (rank > max_dimensions)
      return fail(errc::rank_too_large, "has too many dimensions")
          .with_values(fmt::format("at most {}", max_dimensions), fmt::format("{}", rank));
    shape.resize(rank);
    for (std::size_t d = rank; d-- > 0;) {
      SHARDMESH_TRY(const auto size, at_.number<std::uint64_t>("the shape of a tensor"));
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return fail(errc::overflow, "one of its sizes does not fit in 63 bits")
            .with_values("", fmt::format("{}", size));
      shape[d] = static_cast<std::int64_t>(size);
    }
    return {};
  }

  std::optional<std::int64_t> aligned(std::int64_t offset) const {
    const auto end = checked_add(offset, made_.alignment - 1);
    return end ? std::optional(*end / made_.alignment * made_.alignment) : std::nullopt;
  }

  result<void> place(tensor_info& tensor) const {
    if (tensor.begin % made_.alignment != 0)
      return fail(errc::bad_format, "its data is not aligned")
          .with_values(fmt::format("an offset that is a multiple of {}", made_.alignment),
                       fmt::format("{}", tensor.begin));
    const auto begin = checked_add(made_.data_begin, tensor.begin);
    if (!begin) return fail(errc::overflow, "its offset does not fit in 64 bits");
    tensor.begin = tensor.end = *begin;
    const type_traits* const type = find_type(tensor.type);
    if (type == nullptr) return {};
    SHARDMESH_TRY(const std::int64_t bytes, stored_bytes(*type, tensor.shape));
    const auto end = checked_add(*begin, bytes);
    if (bytes > 0 && (!end || *end > file_bytes_))
      return fail(errc::bad_format, fmt::format("its {} of {} leave the file", type->name, to_string(tensor.shape)))
          .with_values(fmt::format("an end at {} or before", file_bytes_),
                       end ? fmt::format("{}", *end) : "more than 64 bits hold");
    tensor.end = *begin + bytes;
    return {};
  }

  result<void> check_disjoint() const {
    const std::vector<tensor_info>& tensors = made_.tensors;
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::erase_if(order, [&](std::size_t i) { return tensors[i].begin == tensors[i].end; });
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(tensors[a].begin, a) < std::pair(tensors[b].begin, b);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const tensor_info &before = tensors[order[i - 1]], &tensor = tensors[order[i]];
      if (tensor.begin < before.end)
        return fail(errc::bad_format, fmt::format("its data overlaps {}", escaped(before.name)))
            .with_key(tensor.name)
            .with_values(fmt::format("a beginning at {} or later", before.end), fmt::format("{}", tensor.begin));
    }
    return {};
  }

  read_budget& budget_;
  std::int64_t file_bytes_;
  const byte_source& source_;
  cursor at_;
  header made_;
  std::int64_t described_ = 0;
  std::unordered_set<std::string> keys_, names_;
};

}  // namespace

result<header> parse_header(const byte_source& source, read_budget& budget) {
  auto read = header_reader(source, budget).read();
  if (read) return read;
  error why = std::move(read).error();
  return why.file.empty() ? std::move(why).with_file(source.name()) : why;
}

const metadata_entry* find_metadata(const gguf::header& header, std::string_view key) {
  const auto found = std::find_if(header.metadata.begin(), header.metadata.end(),
                                  [&](const metadata_entry& entry) { return entry.key == key; });
  return found == header.metadata.end() ? nullptr : &*found;
}

result<bool> looks_like_gguf(const std::filesystem::path& file) {
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(file));
  std::array<std::byte, magic.size()> head{};
  if (source->size_bytes() < static_cast<std::int64_t>(head.size())) return false;
  SHARDMESH_TRY(source->read(0, head));
  return head == magic;
}

}  // namespace shardmesh::gguf
