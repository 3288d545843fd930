// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
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

import shardmesh.torch_file;
import :quantized_sources;

namespace shardmesh {
namespace {

constexpr std::string_view fp8_scales = ".weight_scale_inv", fp8_weight = ".weight";
constexpr std::string_view mxfp4_scales = "_scales", mxfp4_blocks = "_blocks";

// The most bytes in an MXFP4 group; every known model has 16. A group is computed whole, so this bounds the memory for
// a part.
constexpr std::int64_t most_group_bytes = std::int64_t{1} << 16;

enum class representation : std::uint8_t { plain, fp8, mxfp4 };

std::string counted(std::int64_t tensors, std::string_view what) {
  return fmt::format("{} {}", detail::counted(tensors, "tensor"), what);
}

bool is_fp8(dtype type) {
  return type == dtype::float8_e4m3fn || type == dtype::float8_e5m2 || type == dtype::float8_e4m3fnuz ||
         type == dtype::float8_e5m2fnuz;
}

bool is_scale_of_fp8(dtype type) {
  return type == dtype::float32 || type == dtype::bfloat16 || type == dtype::float16;
}

std::string with_suffix(std::string_view key, std::string_view suffix, std::string_view replacement) {
  return std::string(key.substr(0, key.size() - suffix.size())).append(replacement);
}

class dequantized_reader final : public torch_file::archive_forwarding_reader {
 public:
  dequantized_reader(std::unique_ptr<checkpoint_reader> inner, chunk_source source, std::int64_t block_size)
      : archive_forwarding_reader(std::move(inner)), source_(std::move(source)), block_size_(block_size) {
    list();
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const made_of& from = made_of_[tensor_of_chunk(chunk)];
    if (from.kind == representation::plain) return forwarding_reader::open_chunk(tensor, chunk);
    if (auto known = cache_.find(chunk)) return known;
    SHARDMESH_TRY(const auto opened, forwarding_reader::open_chunk(tensor, chunk));
    const auto& [index, number] = origin_of_chunk(chunk);
    const tensor_entry& stored = inner().contents().tensors[static_cast<std::size_t>(index)];
    const tensor_entry& scales = inner().contents().tensors[from.scales];
    const stored_boxes of{&inner(), &source_, &stored}, scales_of{&inner(), &source_, &scales};
    quantized_chunk quantized{of, number, inner().contents().chunk_box(stored, number), opened->source->name()};
    auto made = std::make_shared<opened_chunk>();
    made->source = from.kind == representation::fp8 ? make_fp8_source(std::move(quantized), scales_of, block_size_)
                                                    : make_mxfp4_source(std::move(quantized), scales_of);
    made->tensor = contiguous_stored_tensor(dtype::float32, contents_.chunk_box(tensor, chunk).sizes, 0,
                                            made->source->size_bytes());
    made->reads_in_order = opened->reads_in_order;
    cache_.insert(chunk, made);
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }

  result<void> finish_checks() override {
    SHARDMESH_TRY(source_.finish());
    return forwarding_reader::finish_checks();
  }

 private:
  // How a tensor of the result is made: its kind, and the index of its scales in the inner catalog.
  struct made_of {
    std::size_t scales = 0;
    representation kind = representation::plain;
  };

  void refuse(error why, const tensor_entry& tensor) {
    const catalog& stored = inner().contents();
    const std::int32_t file =
        tensor.chunk_count > 0 ? stored.chunk_places[static_cast<std::size_t>(tensor.first_chunk)].file : -1;
    const std::string name = file < 0 ? "" : stored.files[static_cast<std::size_t>(file)];
    const bool is_file = name.empty() || places::name_of(path_) == name;
    problems_.push_back(std::move(why).with_key(tensor.key).with_file((is_file ? path_ : path_ / name).string()));
  }

  void list() {
    const std::vector<tensor_entry>& stored = inner().contents().tensors;
    std::unordered_map<std::string_view, std::size_t> index_of;
    for (std::size_t i = 0; i < stored.size(); ++i) index_of.emplace(stored[i].key, i);
    const auto find = [&](const std::string& key) -> std::optional<std::size_t> {
      const auto found = index_of.find(key);
      return found == index_of.end() ? std::nullopt : std::optional(found->second);
    };
    std::int64_t fp8 = 0, mxfp4 = 0;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const tensor_entry& tensor = stored[i];
      const std::string_view key = tensor.key;
      if (key.ends_with(fp8_scales)) {
        if (find(with_suffix(key, fp8_scales, fp8_weight))) continue;
        refuse(fail(errc::missing_key, "these are the scales of a missing weight")
                   .with_values(with_suffix(key, fp8_scales, fp8_weight), ""),
               tensor);
      } else if (key.ends_with(mxfp4_scales) && find(with_suffix(key, mxfp4_scales, mxfp4_blocks))) {
        continue;
      } else if (key.ends_with(fp8_weight)) {
        const auto scales = find(std::string(key) + "_scale_inv");
        if (scales || is_fp8(tensor.type)) {
          fp8 += add_fp8(i, scales);
          continue;
        }
      } else if (key.ends_with(mxfp4_blocks)) {
        const auto scales = find(with_suffix(key, mxfp4_blocks, mxfp4_scales));
        if (scales || (tensor.type == dtype::uint8 && tensor.shape.rank() >= 3)) {
          mxfp4 += add_mxfp4(i, scales);
          continue;
        }
      }
      add_whole_tensor(i);
      made_of_.push_back({});
    }
    if (fp8 + mxfp4 == 0 && problems_.empty()) notes_.push_back("no tensor is quantized in FP8 blocks or MXFP4");
    if (fp8 + mxfp4 > 0)  // of the whole checkpoint: a selection may leave out some of them
      notes_.push_back(fmt::format(
          "the checkpoint has {}{}{}, read as float32; a quantization_config in a config.json is not changed",
          fp8 > 0 ? counted(fp8, "of FP8 blocks") : "", fp8 > 0 && mxfp4 > 0 ? " and " : "",
          mxfp4 > 0 ? counted(mxfp4, "of MXFP4") : ""));
  }

  void add_made_chunk(const box& where, std::int32_t number) {
    stored_range place = inner().contents().chunk_places[static_cast<std::size_t>(number)];
    // Weights that share bytes, as in a .pt file, are different tensors if their scales differ. DCP and Hugging Face
    // folders share no bytes, and the look-up of their recorded checksums needs the offset and the length.
    const bool may_share = contents_.format != checkpoint_format::dcp && contents_.format != checkpoint_format::hf;
    if (may_share) place.length = 0;
    add_chunk(where, place, {static_cast<std::int32_t>(*origin_of_tensor(made_of_.size() - 1)), number});
  }

  // Returns false, and adds a problem, when the tensor cannot be dequantized.
  bool add_fp8(std::size_t index, const std::optional<std::size_t>& scales_index) {
    const std::vector<tensor_entry>& stored = inner().contents().tensors;
    const tensor_entry& weight = stored[index];
    if (!is_fp8(weight.type))
      return refuse(fail(errc::dtype_mismatch, "has block scales, but is not an FP8 weight")
                        .with_values("a float8 type", std::string(name(weight.type))),
                    weight),
             false;
    if (!scales_index)
      return refuse(fail(errc::missing_key, "the FP8 weight has no block scales")
                        .with_values(weight.key + "_scale_inv", ""),
                    weight),
             false;
    const tensor_entry& scales = stored[*scales_index];
    if (weight.shape.rank() != 2)
      return refuse(fail(errc::unsupported, "FP8 blocks can only be dequantized in a matrix")
                        .with_values("two dimensions", to_string(weight.shape)),
                    weight),
             false;
    if (!is_scale_of_fp8(scales.type))
      return refuse(fail(errc::dtype_mismatch, "the block scales have another dtype")
                        .with_values("float32, bfloat16, or float16", std::string(name(scales.type))),
                    scales),
             false;
    extents expected = weight.shape;
    for (std::int64_t& size : expected) size = size / block_size_ + (size % block_size_ > 0 ? 1 : 0);
    if (scales.shape != expected)
      return refuse(fail(errc::shape_mismatch,
                         fmt::format("the block scales do not have the shape for blocks of {0} by {0}", block_size_))
                        .with_values(to_string(expected), to_string(scales.shape)),
                    scales),
             false;
    add_float32(index, *scales_index, representation::fp8, weight.shape);
    for (std::int32_t chunk = weight.first_chunk; chunk < weight.first_chunk + weight.chunk_count; ++chunk)
      add_made_chunk(inner().contents().chunk_box(weight, chunk), chunk);
    return true;
  }

  bool add_mxfp4(std::size_t index, const std::optional<std::size_t>& scales_index) {
    const std::vector<tensor_entry>& stored = inner().contents().tensors;
    const tensor_entry& blocks = stored[index];
    if (!scales_index)
      return refuse(fail(errc::missing_key, "the MXFP4 blocks have no scales")
                        .with_values(with_suffix(blocks.key, mxfp4_blocks, mxfp4_scales), ""),
                    blocks),
             false;
    const tensor_entry& scales = stored[*scales_index];
    for (const tensor_entry* tensor : {&blocks, &scales})
      if (tensor->type != dtype::uint8)
        return refuse(fail(errc::dtype_mismatch, "the MXFP4 tensor has another dtype")
                          .with_values("uint8", std::string(name(tensor->type))),
                      *tensor),
               false;
    const std::size_t rank = blocks.shape.rank();
    if (rank < 2 || blocks.shape[rank - 1] < 1 || blocks.shape[rank - 1] > most_group_bytes)
      return refuse(fail(errc::shape_mismatch, "the shape is not that of MXFP4 blocks")
                        .with_values(fmt::format("[..., groups, 1 to {} bytes]", most_group_bytes),
                                     to_string(blocks.shape)),
                    blocks),
             false;
    extents expected = blocks.shape;
    expected.resize(rank - 1);
    if (scales.shape != expected)
      return refuse(fail(errc::shape_mismatch, "the MXFP4 scales do not have the shape of the groups")
                        .with_values(to_string(expected), to_string(scales.shape)),
                    scales),
             false;
    const std::int64_t group = blocks.shape[rank - 1] * 2;
    extents shape = expected;
    const auto last = checked_multiply(shape[rank - 2], group);
    shape[rank - 2] = last.value_or(0);
    const auto count = checked_volume(shape);
    if (!last || !count || !size_bytes(dtype::float32, *count))
      return refuse(fail(errc::overflow, "its dequantized size does not fit in 64 bits"), blocks), false;
    const std::int32_t end = blocks.first_chunk + blocks.chunk_count;
    for (std::int32_t chunk = blocks.first_chunk; chunk < end; ++chunk)
      if (const box where = inner().contents().chunk_box(blocks, chunk);
          !where.is_empty() && where.sizes[rank - 1] != blocks.shape[rank - 1])
        return refuse(fail(errc::unsupported, "MXFP4 cannot be dequantized where a chunk cuts one of its groups")
                          .with_box(where),
                      blocks),
               false;
    add_float32(index, *scales_index, representation::mxfp4, shape);
    for (std::int32_t chunk = blocks.first_chunk; chunk < end; ++chunk) {
      box where = inner().contents().chunk_box(blocks, chunk);
      const bool is_empty = where.is_empty();
      where.offsets.resize(rank - 1);
      where.sizes.resize(rank - 1);
      where.offsets[rank - 2] *= group;
      where.sizes[rank - 2] *= is_empty ? 0 : group;
      add_made_chunk(where, chunk);
    }
    return true;
  }

  void add_float32(std::size_t index, std::size_t scales, representation kind, const extents& shape) {
    tensor_entry made = inner().contents().tensors[index];
    made.type = dtype::float32;
    made.shape = shape;
    made.properties.strides = {};
    add_tensor(std::move(made), index);
    made_of_.push_back({scales, kind});
  }

  chunk_source source_;
  std::int64_t block_size_;
  std::vector<made_of> made_of_;  // one per tensor
  chunk_cache cache_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> dequantized(std::unique_ptr<checkpoint_reader> inner,
                                                       const dequantize_options& options) {
  if (options.block_size < 1)
    return fail(errc::invalid_argument, "a block must have at least one row and column")
        .with_values("1 or more", fmt::format("{}", options.block_size));
  std::shared_ptr<const recorded_sums> record;
  if (options.check_sums) {
    SHARDMESH_TRY(record, recorded_sums::open(*inner));
  }
  chunk_source source = options.check_sums ? chunk_source::checking(*inner, std::move(record)) : chunk_source(*inner);
  return std::unique_ptr<checkpoint_reader>(
      std::make_unique<dequantized_reader>(std::move(inner), std::move(source), options.block_size));
}

}  // namespace shardmesh
