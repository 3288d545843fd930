// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
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
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

constexpr std::array<std::byte, 16> zeros{};  // one element of any dtype

// The part of `wanted` outside `stored`, as at most one box per dimension. Both begin at 0.
std::vector<box> beyond(const extents& stored, const extents& wanted) {
  std::vector<box> boxes;
  box rest = box::whole(wanted);
  for (std::size_t d = 0; d < wanted.rank(); ++d) {
    const std::int64_t kept = std::min(stored[d], wanted[d]);
    box outside = rest;
    outside.offsets[d] = kept;
    outside.sizes[d] = wanted[d] - kept;
    if (!outside.is_empty()) boxes.push_back(outside);
    rest.sizes[d] = kept;
  }
  return boxes;
}

result<void> check_resizable(const checkpoint_reader& reader, const tensor_entry& stored, const extents& wanted) {
  const auto refuse = [&](errc code, std::string message) {
    return fail(code, std::move(message))
        .with_key(stored.key)
        .with_file(reader.path().string())
        .with_values(to_string(wanted), to_string(stored.shape));
  };
  if (wanted.rank() != stored.shape.rank())
    return refuse(errc::shape_mismatch, "has a different number of dimensions than the requested shape");
  if (!stored.opaque_type.empty())
    return refuse(errc::unsupported, fmt::format("a {} cannot be resized", stored.opaque_kind));
  if (bits(stored.type) % 8 != 0) return refuse(errc::unaligned, fmt::format("{} cannot be cut", name(stored.type)));
  const auto volume = checked_volume(wanted);
  if (!volume || !size_bytes(stored.type, *volume))
    return refuse(errc::overflow, "the requested size does not fit in 64 bits");
  return {};
}

class resized_reader final : public forwarding_reader {
 public:
  explicit resized_reader(checkpoint_reader& inner) : forwarding_reader(inner) {}

  // `wanted`: the new shapes, by tensor index.
  void add_tensors(const std::unordered_map<std::size_t, extents>& wanted) {
    const catalog& stored = inner().contents();
    for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
      const auto shape = wanted.find(i);
      if (shape == wanted.end()) {
        add_whole_tensor(i);
        continue;
      }
      const tensor_entry& tensor = stored.tensors[i];
      const auto number = static_cast<std::int32_t>(i);
      tensor_entry made = tensor;
      made.shape = shape->second;
      made.properties.strides.reset();
      add_tensor(std::move(made), i);
      const box all = box::whole(shape->second);
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
        if (const auto kept = intersect(stored.chunk_box(tensor, chunk), all); kept && !kept->is_empty())
          add_chunk(*kept, {number, chunk});
      for (const box& outside : beyond(tensor.shape, shape->second)) add_chunk(outside, zeros_place(), {number, -1});
    }
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const extents sizes = contents_.chunk_box(tensor, chunk).sizes;
    if (origin_of_chunk(chunk).chunk < 0) return zeros_of(tensor.type, sizes);
    SHARDMESH_TRY(auto opened, forwarding_reader::open_chunk(tensor, chunk));
    if (sizes == opened->tensor.sizes) return opened;
    // Only ends are cut, so the rest begins where the chunk does.
    auto cut = std::make_shared<opened_chunk>(*opened);
    cut->tensor.sizes = sizes;
    return std::shared_ptr<const opened_chunk>(std::move(cut));
  }

 private:
  // Zeros are in no file, but a chunk without a file would be a defect.
  stored_range zeros_place() {
    if (zeros_file_ < 0) {
      zeros_file_ = static_cast<std::int32_t>(contents_.files.size());
      contents_.files.emplace_back("(zeros)");
    }
    return {zeros_file_, 0, 0, 0};
  }
  static result<std::shared_ptr<const opened_chunk>> zeros_of(dtype type, const extents& sizes) {
    auto made = std::make_shared<opened_chunk>();
    made->source = std::make_shared<const memory_source>(zeros, "(zeros)");
    made->tensor.size_bytes = bits(type) / 8;
    made->tensor.type = type;
    made->tensor.sizes = sizes;
    made->tensor.strides = extents::filled(sizes.rank(), 0);
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }

  std::int32_t zeros_file_ = -1;
};

}  // namespace

std::string to_string(const resized_tensor& tensor) {
  std::string text =
      fmt::format("{}: {} becomes {}", escaped(tensor.key), to_string(tensor.stored), to_string(tensor.wanted));
  std::string_view separator = ": ";
  for (std::size_t d = 0; d < std::min(tensor.stored.rank(), tensor.wanted.rank()); ++d) {
    if (tensor.stored[d] == tensor.wanted[d]) continue;
    text += tensor.stored[d] < tensor.wanted[d]
                ? fmt::format("{}dimension {} is filled with zeros from {} on", separator, d, tensor.stored[d])
                : fmt::format("{}dimension {} is cut at {}", separator, d, tensor.wanted[d]);
    separator = ", ";
  }
  return text;
}

result<std::unique_ptr<checkpoint_reader>> resize_tensors(checkpoint_reader& inner,
                                                          std::span<const resized_tensor> tensors) {
  const catalog& contents = inner.contents();
  std::unordered_map<std::size_t, extents> wanted;
  for (const resized_tensor& tensor : tensors) {
    const tensor_entry* const stored = contents.find(tensor.key);
    if (!stored) return no_such_entry(inner, tensor.key, entry_kind::tensor);
    SHARDMESH_TRY(check_resizable(inner, *stored, tensor.wanted));
    wanted.insert_or_assign(static_cast<std::size_t>(stored - contents.tensors.data()), tensor.wanted);
  }
  auto made = std::make_unique<resized_reader>(inner);
  made->add_tensors(wanted);
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

std::vector<resized_tensor> shape_differences(const checkpoint_reader& reader, const selection_options& selection,
                                              const checkpoint_reader& like) {
  std::vector<selectable> candidates;
  for (const tensor_entry& tensor : reader.contents().tensors) candidates.push_back({tensor.key, tensor.type, true});
  std::vector<resized_tensor> found;
  for (const selected& one : select_keys(candidates, selection).kept) {
    const tensor_entry& stored = reader.contents().tensors[one.index];
    const tensor_entry* const wanted = like.contents().find(one.key);
    // The shape of a wrapping tensor inside a .pt file is not known.
    const auto is_unknown = [](const tensor_entry& tensor) {
      return !tensor.opaque_type.empty() && tensor.chunk_count == 0;
    };
    if (!wanted || is_unknown(*wanted) || is_unknown(stored)) continue;
    if (wanted->shape != stored.shape) found.push_back({stored.key, stored.shape, wanted->shape});
  }
  return found;
}

result<std::unique_ptr<checkpoint_reader>> resize_like(checkpoint_reader& reader, const selection_options& selection,
                                                       const checkpoint_reader& like, std::vector<std::string>& notes) {
  const std::vector<resized_tensor> differences = shape_differences(reader, selection, like);
  if (differences.empty()) return std::unique_ptr<checkpoint_reader>();
  reader.identify_opaque_tensors();  // only plain tensors can be resized
  SHARDMESH_TRY(auto resized, resize_tensors(reader, differences));
  for (const resized_tensor& tensor : differences) notes.push_back(to_string(tensor));
  return resized;
}

}  // namespace shardmesh
