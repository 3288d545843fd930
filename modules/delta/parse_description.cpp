// SPDX-License-Identifier: Apache-2.0
// The values of a description, from bytes that may be hostile. Its writer is in description.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import shardmesh.digest;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;
import :block_codec;
import :block_entry;
import :block_grid;
import :byte_fields;
import :description;
import :description_form;
import :file_header;

namespace shardmesh::delta {
namespace {

class parser {
 public:
  parser(std::span<const std::byte> bytes, const file_header& header, read_budget& budget)
      : in_(bytes), end_(header.description_offset), budget_(budget) {
    made_.block_bytes = header.block_bytes;
    budget_.add_description(static_cast<std::int64_t>(bytes.size()));
  }

  result<description> run() {
    SHARDMESH_TRY(read_each(&parser::read_tensor));
    SHARDMESH_TRY(read_each(&parser::read_object));
    SHARDMESH_TRY(read_each(&parser::read_text));
    if (!in_.is_whole() || in_.left() != 0 || next_ != end_)
      return fail(errc::bad_format, "the description of the delta does not fit its file");
    SHARDMESH_TRY(budget_.decode("delta", whole_stored_, whole_plain_));
    return std::move(made_);
  }

 private:
  // Every entry takes at least one byte, so a huge number ends with the bytes.
  result<void> read_each(result<void> (parser::*read)()) {
    const auto count = in_.number<std::uint64_t>();
    for (std::uint64_t i = 0; i < count && in_.is_whole(); ++i) SHARDMESH_TRY((this->*read)());
    return {};
  }

  result<path_key> read_step() {
    switch (static_cast<step_kind>(in_.number<std::uint8_t>())) {
      case step_kind::index:
        return path_key(in_.number<std::int64_t>());
      case step_kind::name:
        return path_key(in_.text());
      case step_kind::integer:
        return path_key::of_integer(in_.number<std::int64_t>());
      case step_kind::python: {
        const std::string text = in_.text(), json = in_.text();
        return torch_file::key_of_json(text, json);
      }
    }
    return fail(errc::bad_format, "a step of a path has an unknown kind");
  }

  result<path> read_path(const std::string& key) {
    const auto count = in_.number<std::uint32_t>();
    path made;
    for (std::uint32_t i = 0; i < count && in_.is_whole(); ++i) {
      SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(path_key))));
      auto step = read_step();
      if (!step) return std::move(step).error().with_key(key);
      made.push_back(*std::move(step));
    }
    if (made.empty()) made.push_back(key);
    return made;
  }

  result<extents> read_extents(const std::string& key) {
    const std::size_t rank = in_.number<std::uint8_t>();
    if (rank > max_rank)
      return fail(errc::rank_too_large, "has too many dimensions")
          .with_key(key)
          .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", rank));
    extents made;
    for (std::size_t d = 0; d < rank; ++d) made.push_back(in_.number<std::int64_t>());
    return made;
  }

  // Takes the next bytes of the file.
  result<std::int64_t> take(std::int64_t length, const std::string& key) {
    if (length < 0 || length > end_ - next_)
      return fail(errc::bad_format, "its stored bytes lie beyond the end of the file")
          .with_key(key)
          .with_values(fmt::format("at most {} bytes", end_ - next_), fmt::format("{}", length));
    return std::exchange(next_, next_ + length);
  }

  result<stored_archive> read_archive(const std::string& key) {
    stored_archive made;
    made.length = in_.number<std::int64_t>();
    made.digest = in_.digest();
    SHARDMESH_TRY(made.offset, take(made.length, key));
    return made;
  }

  result<tensor_entry> read_entry() {
    tensor_entry made;
    made.key = in_.text();
    SHARDMESH_TRY(made.where, read_path(made.key));
    const std::string type = in_.text();
    const auto known = parse_dtype(type);
    const bool is_undefined = type == name(dtype::undefined);  // valid for an opaque tensor only
    if (!known && !is_undefined && in_.is_whole())
      return fail(errc::unsupported, "has a dtype that this release does not know")
          .with_key(made.key)
          .with_values("", type);
    made.type = known.value_or(dtype::undefined);
    SHARDMESH_TRY(made.shape, read_extents(made.key));
    made.properties.layout = in_.text();
    const auto flags = in_.number<std::uint8_t>();
    made.properties.requires_grad = (flags & gradient_bit) != 0;
    made.properties.pin_memory = (flags & pinned_bit) != 0;
    made.properties.memory_format = in_.number<std::int32_t>();
    made.properties.foreign_dtype = in_.text();
    if ((flags & strides_bit) != 0) {
      SHARDMESH_TRY(made.properties.strides, read_extents(made.key));
      if (made.properties.strides->rank() != made.shape.rank() && in_.is_whole())
        return fail(errc::bad_format, "has strides for another number of dimensions")
            .with_key(made.key)
            .with_values(fmt::format("{}", made.shape.rank()), fmt::format("{}", made.properties.strides->rank()));
    }
    made.opaque_type = in_.text();
    made.opaque_kind = in_.text();
    return made;
  }

  result<void> read_tensor() {
    SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(described_tensor))));
    described_tensor one;
    SHARDMESH_TRY(one.entry, read_entry());
    const auto form = in_.number<std::uint8_t>();
    const tensor_entry& entry = one.entry;
    const auto volume = checked_volume(entry.shape);
    if (!volume) return fail(errc::overflow, "its shape has a negative size, or is too large").with_key(entry.key);
    if (form == static_cast<std::uint8_t>(tensor_form::archive)) {
      if (entry.opaque_type.empty())
        return fail(errc::bad_format, "a tensor of plain elements is stored as an archive").with_key(entry.key);
      SHARDMESH_TRY(one.archive, read_archive(entry.key));
    } else {
      if (form > static_cast<std::uint8_t>(tensor_form::archive) || !entry.opaque_type.empty())
        return fail(errc::bad_format, "the tensor is stored in an unknown form").with_key(entry.key);
      one.has_base = form == static_cast<std::uint8_t>(tensor_form::on_base);
      SHARDMESH_TRY(read_blocks(one, *volume));
    }
    made_.tensors.push_back(std::move(one));
    return {};
  }

  result<void> read_blocks(described_tensor& one, std::int64_t volume) {
    const tensor_entry& entry = one.entry;
    if (!in_.is_whole()) return {};
    if (!has_block_elements(entry.type))
      return fail(errc::unsupported, "elements of this dtype are not stored in blocks")
          .with_key(entry.key)
          .with_values("", std::string(name(entry.type)));
    if (!size_bytes(entry.type, volume)) return fail(errc::overflow, "its size does not fit").with_key(entry.key);
    one.grid = grid_of(entry.type, entry.shape, made_.block_bytes);
    one.first_block = made_.blocks.size();
    for (std::int64_t i = 0; i < one.grid.count() && in_.is_whole(); ++i) {
      SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(block_entry))));
      SHARDMESH_TRY(read_block(entry.key, one.has_base, one.grid.block(i).volume() * item_bytes(entry.type)));
    }
    return {};
  }

  // `bytes`: the size of the block's elements.
  result<void> read_block(const std::string& key, bool has_base, std::int64_t bytes) {
    const auto tag = in_.number<std::uint8_t>();
    block_entry made;
    made.coding = static_cast<block_coding>(tag & coding_bits);
    made.is_compressed = (tag & compressed_bit) != 0;
    const bool is_same = made.coding == block_coding::same;
    if (tag > (coding_bits | compressed_bit) || (is_same && made.is_compressed) ||
        has_base != (made.coding != block_coding::whole))
      return fail(errc::bad_format, "a block is stored in an unknown way").with_key(key);
    if (has_base) made.base = in_.digest();
    made.result = made.base;
    if (!is_same) {
      made.stored_bytes = in_.number<std::uint32_t>();
      made.plain_bytes = in_.number<std::uint32_t>();
      made.result = in_.digest();
      made.stored = in_.digest();
      const std::int64_t most = most_plain_bytes(made.coding, bytes);
      const bool fits =
          made.stored_bytes > 0 && made.plain_bytes <= most &&
          (made.coding == block_coding::sparse || made.plain_bytes == most) &&
          (made.is_compressed ? made.stored_bytes < made.plain_bytes : made.stored_bytes == made.plain_bytes);
      if (!fits && in_.is_whole())
        return fail(errc::bad_format, "the sizes of a block contradict each other").with_key(key);
    }
    SHARDMESH_TRY(made.offset, take(made.stored_bytes, key));
    if (made.coding == block_coding::whole) {
      whole_stored_ += made.stored_bytes;  // at most the file's size
      whole_plain_ += made.plain_bytes;
    }
    made_.blocks.push_back(made);
    return {};
  }

  result<void> read_object() {
    SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(described_object))));
    described_object one;
    one.key = in_.text();
    SHARDMESH_TRY(one.where, read_path(one.key));
    SHARDMESH_TRY(one.archive, read_archive(one.key));
    made_.objects.push_back(std::move(one));
    return {};
  }

  result<void> read_text() {
    SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(file_text))));
    file_text one;
    one.key = in_.text();
    one.value = in_.text();
    made_.texts.push_back(std::move(one));
    return {};
  }

  field_reader in_;
  std::int64_t next_ = header_bytes, end_;  // of the stored bytes
  read_budget& budget_;
  description made_;
  std::int64_t whole_stored_ = 0, whole_plain_ = 0;  // of blocks without a base
};

}  // namespace

result<description> parse_description(std::span<const std::byte> bytes, const file_header& header,
                                      read_budget& budget) {
  return parser(bytes, header, budget).run();
}

}  // namespace shardmesh::delta
