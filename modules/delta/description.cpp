// SPDX-License-Identifier: Apache-2.0
// The bytes of a description. Its parser is in parse_description.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
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

namespace shardmesh::delta {
namespace {

void write_path(field_writer& out, const path& where) {
  out.number(static_cast<std::uint32_t>(where.size()));
  for (const path_key& key : where) {
    const auto json = !key.is_index() && key.is_python() ? torch_file::json_of_key(key) : std::nullopt;
    if (key.is_index()) {
      out.number(static_cast<std::uint8_t>(step_kind::index));
      out.number(key.index());
    } else if (key.is_integer()) {
      out.number(static_cast<std::uint8_t>(step_kind::integer));
      out.number(key.integer());
    } else {
      out.number(static_cast<std::uint8_t>(json ? step_kind::python : step_kind::name));
      out.text(key.name());
      if (json) out.text(*json);
    }
  }
}

void write_extents(field_writer& out, const extents& values) {
  out.number(static_cast<std::uint8_t>(values.rank()));
  for (const std::int64_t value : values) out.number(value);
}

void write_archive(field_writer& out, const stored_archive& archive) {
  out.number(archive.length);
  out.digest(archive.digest);
}

void write_entry(field_writer& out, const tensor_entry& entry) {
  const stored_properties& properties = entry.properties;
  out.text(entry.key);
  write_path(out, entry.where);
  out.text(name(entry.type));
  write_extents(out, entry.shape);
  out.text(properties.layout);
  out.number(static_cast<std::uint8_t>((properties.requires_grad ? gradient_bit : 0) |
                                       (properties.pin_memory ? pinned_bit : 0) |
                                       (properties.strides ? strides_bit : 0)));
  out.number(properties.memory_format);
  out.text(properties.foreign_dtype);
  if (properties.strides) write_extents(out, *properties.strides);
  out.text(entry.opaque_type);
  out.text(entry.opaque_kind);
}

void write_block(field_writer& out, const block_entry& block, bool has_base) {
  out.number(static_cast<std::uint8_t>(static_cast<unsigned>(block.coding) |
                                       (block.is_compressed ? unsigned{compressed_bit} : 0U)));
  if (has_base) out.digest(block.base);
  if (block.coding == block_coding::same) return;
  out.number(static_cast<std::uint32_t>(block.stored_bytes));
  out.number(static_cast<std::uint32_t>(block.plain_bytes));
  out.digest(block.result);
  out.digest(block.stored);
}

}  // namespace

block_grid grid_of(dtype type, const extents& shape, std::int64_t block_bytes) {
  return {shape, std::max<std::int64_t>(block_bytes / item_bytes(type), 1)};
}

std::vector<std::byte> format_description(const description& described) {
  field_writer out;
  out.number(static_cast<std::uint64_t>(described.tensors.size()));
  for (const described_tensor& one : described.tensors) {
    write_entry(out, one.entry);
    out.number(static_cast<std::uint8_t>(one.archive    ? tensor_form::archive
                                         : one.has_base ? tensor_form::on_base
                                                        : tensor_form::alone));
    if (one.archive) {
      write_archive(out, *one.archive);
      continue;
    }
    for (std::int64_t i = 0; i < one.grid.count(); ++i)
      write_block(out, described.blocks[one.first_block + static_cast<std::size_t>(i)], one.has_base);
  }
  out.number(static_cast<std::uint64_t>(described.objects.size()));
  for (const described_object& one : described.objects) {
    out.text(one.key);
    write_path(out, one.where);
    write_archive(out, one.archive);
  }
  out.number(static_cast<std::uint64_t>(described.texts.size()));
  for (const file_text& one : described.texts) {
    out.text(one.key);
    out.text(one.value);
  }
  return out.take();
}

}  // namespace shardmesh::delta
