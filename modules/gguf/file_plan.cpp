// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.gguf;

import :block_encoding;
import :file_plan;
import :header;
import :metadata_encoding;

namespace shardmesh::gguf {
namespace {

constexpr std::uint32_t magic = 0x46554747, written_version = 3;

// llama.cpp refuses longer names. Source: GGML_MAX_NAME
constexpr std::size_t longest_name_of_ggml = 63;

error refusal(const output_tensor& tensor, std::string message) {
  return fail(errc::unsupported, std::move(message)).with_key(tensor.key);
}

std::string written_types() {
  std::string names;
  for (const type_traits& type : tensor_types())
    if (type.is_encoded) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  return names;
}

// Checks that a tensor can be quantized to this type, and returns its bytes.
result<std::int64_t> quantized_bytes(const output_tensor& tensor, const type_traits& type) {
  const extents& shape = tensor.bytes.from.global_shape();
  if (!type.is_encoded)
    return refusal(tensor, fmt::format("cannot be written as {}: blocks of this type are only read", type.name))
        .with_values(written_types(), std::string(type.name));
  if (kind(tensor.type) != dtype_kind::floating)
    return refusal(tensor, fmt::format("only floating tensors can be quantized to {}", type.name))
        .with_values("a floating dtype", std::string(name(tensor.type)));
  auto bytes = stored_bytes(type, shape);
  if (bytes) return *bytes;
  error why = std::move(bytes).error().with_key(tensor.key);
  why.code = why.code == errc::bad_format ? errc::unsupported : why.code;  // a fault of the request, not of a file
  return why;
}

class planner {
 public:
  planner(std::span<const output_tensor> tensors, const file_options& format) : tensors_(tensors), format_(format) {}

  result<file_plan> plan(std::span<const output_object> objects) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) add(i);
    if (!problems_.empty()) return fail_all(std::move(problems_));
    SHARDMESH_TRY(planned_metadata metadata, plan_metadata(objects, format_.carried, has_blocks_));
    made_.notes = std::move(metadata.notes);
    SHARDMESH_TRY(lay_out(metadata));
    if (long_names_ > 0)
      made_.notes.push_back(fmt::format("{} longer than {} bytes, which llama.cpp refuses",
                                        detail::counted(long_names_, "name of a tensor is", "names of tensors are"),
                                        longest_name_of_ggml));
    return std::move(made_);
  }

 private:
  const extents& shape_of(std::size_t i) const { return tensors_[i].bytes.from.global_shape(); }

  void add(std::size_t i) {
    const output_tensor& tensor = tensors_[i];
    if (!names_.insert(tensor.key).second)
      problems_.push_back(fail(errc::duplicate_key, "is given twice").with_key(tensor.key));
    long_names_ += tensor.key.size() > longest_name_of_ggml;
    auto planned = planned_of(i);
    if (!planned) problems_.push_back(std::move(planned).error());
    made_.tensors.push_back(planned ? *planned : planned_tensor{});
    has_blocks_ |= planned && !planned->type->is_plain();
  }

  result<planned_tensor> planned_of(std::size_t i) const {
    const output_tensor& tensor = tensors_[i];
    if (tensor.archive) return refusal(tensor, "a tensor of an unknown representation cannot be written as GGUF");
    const auto wanted = format_.types.empty() ? std::nullopt : format_.types[i];
    if (const stored_blocks* const copied = blocks_to_copy(i, wanted))
      return planned_tensor{&traits_of(copied->type), 0, copied->length, copied};
    if (wanted && !traits_of(*wanted).is_plain()) {
      const type_traits& type = traits_of(*wanted);
      SHARDMESH_TRY(const std::int64_t bytes, quantized_bytes(tensor, type));
      if (auto problem = problem_of(tensor.key, dtype::float32, shape_of(i))) return *std::move(problem);
      return planned_tensor{&type, 0, bytes, nullptr};
    }
    if (wanted && traits_of(*wanted).plain != tensor.type)
      return refusal(tensor, "a plain type is not a cast")
          .with_values(std::string(name(tensor.type)), std::string(traits_of(*wanted).name))
          .with_hint("cast the tensor to another dtype");
    if (auto problem = problem_of(tensor.key, tensor.type, shape_of(i))) return *std::move(problem);
    const type_traits* const type = type_that_holds(tensor.type);
    auto bytes = stored_bytes(*type, shape_of(i));
    if (!bytes) return std::move(bytes).error().with_key(tensor.key);
    return planned_tensor{type, 0, *bytes, nullptr};
  }

  // Returns the blocks of a tensor that keeps its type, and is not cast.
  const stored_blocks* blocks_to_copy(std::size_t i, const std::optional<tensor_type>& wanted) const {
    if (format_.blocks.empty() || !format_.blocks[i]) return nullptr;
    const stored_blocks& blocks = *format_.blocks[i];
    const output_tensor& tensor = tensors_[i];
    const bool is_kept = tensor.type == dtype::float32 && tensor.bytes.from_type == dtype::float32 &&
                         blocks.shape == shape_of(i) && is_utf8(tensor.key) &&
                         static_cast<std::int64_t>(tensor.key.size()) <= max_key_bytes;
    return is_kept && (!wanted || *wanted == blocks.type) ? &blocks : nullptr;
  }

  // Appends the description of a tensor at this offset of the data.
  void describe(std::string& out, std::size_t i, std::int64_t offset) const {
    const extents& shape = shape_of(i);
    append_text(out, tensors_[i].key);
    append_number(out, static_cast<std::uint32_t>(shape.rank()));
    for (std::size_t d = shape.rank(); d-- > 0;) append_number(out, static_cast<std::uint64_t>(shape[d]));
    append_number(out, static_cast<std::uint32_t>(made_.tensors[i].type->type));
    append_number(out, static_cast<std::uint64_t>(offset));
  }

  result<void> lay_out(const planned_metadata& metadata) {
    std::string& out = made_.description;
    append_number(out, magic);
    append_number(out, written_version);
    append_number(out, static_cast<std::uint64_t>(tensors_.size()));
    append_number(out, metadata.count);
    out += metadata.values;
    const auto padded = [&](std::int64_t bytes) -> std::optional<std::int64_t> {
      const auto end = checked_add(bytes, metadata.alignment - 1);
      return end ? std::optional(*end / metadata.alignment * metadata.alignment) : std::nullopt;
    };
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      describe(out, i, offset);
      made_.tensors[i].begin = offset;
      const auto end = checked_add(offset, made_.tensors[i].length);
      const auto next = end ? padded(*end) : std::nullopt;
      if (!next) return fail(errc::overflow, "the tensors do not fit in one file").with_key(tensors_[i].key);
      offset = *next;
    }
    const auto data_begin = padded(static_cast<std::int64_t>(out.size()));
    const auto total = data_begin ? checked_add(*data_begin, offset) : std::nullopt;
    if (!total) return fail(errc::overflow, "the tensors do not fit in one file");
    out.resize(static_cast<std::size_t>(*data_begin), '\0');
    for (planned_tensor& tensor : made_.tensors) tensor.begin += *data_begin;
    made_.size_bytes = *total;
    return {};
  }

  std::span<const output_tensor> tensors_;
  const file_options& format_;
  file_plan made_;
  std::vector<error> problems_;
  std::unordered_set<std::string_view> names_;
  std::size_t long_names_ = 0;
  bool has_blocks_ = false;
};

}  // namespace

std::optional<error> problem_of(std::string_view key, dtype type, const extents& shape) {
  const auto refuse = [&](std::string message) { return fail(errc::unsupported, std::move(message)).with_key(key); };
  if (!is_utf8(key)) return refuse("the name is not UTF-8, which GGUF needs");
  if (static_cast<std::int64_t>(key.size()) > max_key_bytes)
    return refuse("the name is too long for GGUF")
        .with_values(fmt::format("at most {} bytes", max_key_bytes), fmt::format("{}", key.size()))
        .with_hint("rename the tensor");
  if (shape.rank() > max_dimensions)
    return refuse("has more dimensions than GGUF can hold")
        .with_values(fmt::format("at most {}", max_dimensions), to_string(shape));
  if (type_that_holds(type) == nullptr)
    return refuse(fmt::format("GGUF cannot hold {}", name(type))).with_hint("cast it, or leave it out");
  return std::nullopt;
}

result<file_plan> plan_file(std::span<const output_tensor> tensors, std::span<const output_object> objects,
                            const file_options& format) {
  return planner(tensors, format).plan(objects);
}

}  // namespace shardmesh::gguf
