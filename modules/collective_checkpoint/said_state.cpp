// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.comm;
import :path_wire;
import :said_state;

namespace shardmesh {
namespace {

constexpr std::int64_t format_version = 2;

// Returns null for malformed bytes.
std::shared_ptr<const tensor_list> read_list(std::vector<std::byte> bytes) {
  auto list = std::make_shared<tensor_list>();
  list->bytes = std::move(bytes);
  detail::wire_reader in(list->bytes);
  const std::size_t tensors = in.count();
  for (std::size_t i = 0; i < tensors && in.ok(); ++i) {
    listed_tensor tensor;
    tensor.where = read_path(in);
    tensor.shape = in.numbers();
    tensor.type = static_cast<dtype>(in.in_range(0, static_cast<std::int64_t>(dtype::bits4x2)));
    if (!checked_volume(tensor.shape)) return nullptr;
    list->tensors.push_back(std::move(tensor));
  }
  return in.finished() ? list : nullptr;
}

}  // namespace

std::optional<said_state> read_state(std::span<const std::byte> bytes, std::shared_ptr<const tensor_list> latest) {
  detail::wire_reader in(bytes);
  said_state state;
  if (in.number() != format_version) return std::nullopt;
  std::vector<std::byte> listed = in.bytes();
  state.list = latest && latest->bytes == listed ? std::move(latest) : read_list(std::move(listed));
  if (!state.list) return std::nullopt;
  for (const listed_tensor& tensor : state.list->tensors) {
    const box whole = box::whole(tensor.shape);
    const std::size_t parts = in.count();
    for (std::size_t k = 0; k < parts && in.ok(); ++k) {
      box where = whole;
      for (std::int64_t& offset : where.offsets) offset = in.number();
      for (std::int64_t& size : where.sizes) size = in.number();
      if (!is_well_formed(where) || !lies_within(where, whole)) return std::nullopt;
      state.parts.push_back(where);
    }
    state.in_each.push_back(parts);
  }
  const std::size_t objects = in.count();
  for (std::size_t i = 0; i < objects && in.ok(); ++i) {
    described_object object;
    object.where = read_path(in);
    object.digest = in.digest();
    object.length = in.in_range(0, INT64_MAX);
    object.summary = in.text();
    state.objects.push_back(std::move(object));
  }
  if (!in.finished()) return std::nullopt;
  return state;
}

std::vector<std::byte> describe(const const_local_state& state, std::span<const described_object> objects) {
  detail::wire_writer list, out;
  list.number(static_cast<std::int64_t>(state.tensors.size()));
  for (const const_local_state_tensor& tensor : state.tensors) {
    write(list, tensor.where);
    list.numbers(tensor.shape);
    list.number(static_cast<std::int64_t>(tensor.type));
  }
  out.number(format_version);
  out.bytes(list.written());
  for (const const_local_state_tensor& tensor : state.tensors) {
    out.number(static_cast<std::int64_t>(tensor.parts.size()));
    for (const const_local_part& part : tensor.parts) {
      for (const std::int64_t offset : part.where.offsets) out.number(offset);
      for (const std::int64_t size : part.where.sizes) out.number(size);
    }
  }
  out.number(static_cast<std::int64_t>(objects.size()));
  for (const described_object& object : objects) {
    write(out, object.where);
    out.digest(object.digest);
    out.number(object.length);
    out.text(object.summary);
  }
  return std::move(out).take();
}

}  // namespace shardmesh
