// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :float_buffers;

namespace shardmesh::deepspeed {
namespace {

constexpr std::int64_t float_bytes = 4;

// The elements of an opened chunk as float32, in row-major order.
class float_source final : public byte_source {
 public:
  explicit float_source(std::shared_ptr<const opened_chunk> stored)
      : stored_(std::move(stored)), size_(*checked_volume(stored_->tensor.sizes) * float_bytes) {}
  std::int64_t size_bytes() const override { return size_; }
  std::string name() const override { return stored_->source->name(); }

  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const auto length = static_cast<std::int64_t>(out.size());
    if (offset < 0 || offset > size_ || length > size_ - offset)
      return fail(errc::out_of_bounds, "a read goes beyond the end of the data").with_file(name());
    if (offset % float_bytes == 0 && length % float_bytes == 0) return convert(offset / float_bytes, out);
    // A read that is not aligned to elements converts the elements around it.
    const std::int64_t first = offset / float_bytes, end = (offset + length + float_bytes - 1) / float_bytes;
    std::vector<std::byte> elements(static_cast<std::size_t>((end - first) * float_bytes));
    SHARDMESH_TRY(convert(first, elements));
    std::copy_n(elements.begin() + (offset - first * float_bytes), out.size(), out.begin());
    return {};
  }

 private:
  result<void> convert(std::int64_t first, std::span<std::byte> out) const {
    const auto count = static_cast<std::int64_t>(out.size()) / float_bytes;
    for (const auto& [run, begin] : boxes_of_range(stored_->tensor.sizes, {first, count})) {
      std::byte* const to = out.data() + (begin - first) * float_bytes;
      SHARDMESH_TRY(read_box(*stored_->source, stored_->tensor, run,
                             {to, dtype::float32, {}, run.sizes, contiguous_strides(run.sizes)}));
    }
    return {};
  }

  std::shared_ptr<const opened_chunk> stored_;
  std::int64_t size_;
};

class float_reader final : public checkpoint_reader {
 public:
  float_reader(checkpoint_reader& inner, std::vector<std::size_t> tensors)
      : inner_(inner), tensors_(std::move(tensors)) {
    path_ = inner.path();
    contents_.format = inner.contents().format;
    for (const std::size_t tensor : tensors_) {
      tensor_entry entry = inner.contents().tensors[tensor];
      entry.type = dtype::float32;
      entry.first_chunk = static_cast<std::int32_t>(contents_.chunk_places.size());
      entry.chunk_count = 0;
      const box whole = box::whole(entry.shape);
      contents_.tensors.push_back(std::move(entry));
      contents_.add_chunk(whole, {});  // no file holds the converted bytes
    }
  }

  // Verifies the checksum of the stored bytes here, because it does not cover the converted bytes.
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const tensor_entry& stored = inner_.contents().tensors[tensors_[static_cast<std::size_t>(chunk)]];
    SHARDMESH_TRY(auto opened, inner_.open_chunk(stored, stored.first_chunk));
    if (opened->crc_length > 0) {
      SHARDMESH_TRY(const std::uint32_t sum, crc32_of_range(*opened->source, opened->crc_begin, opened->crc_length));
      if (sum != opened->crc32)
        return fail(errc::checksum_mismatch, "is damaged: its CRC-32 differs")
            .with_key(tensor.key)
            .with_file(path_.string())
            .with_values(fmt::format("{:08x}", opened->crc32), fmt::format("{:08x}", sum))
            .with_hint(detail::restore_hint);
    }
    auto made = std::make_shared<opened_chunk>();
    auto source = std::make_shared<const float_source>(std::move(opened));
    made->tensor = contiguous_stored_tensor(dtype::float32, tensor.shape, 0, source->size_bytes());
    made->source = std::move(source);
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }
  result<object_value> read_object(std::size_t) override { return no_objects(); }
  result<std::vector<std::byte>> object_archive(std::size_t) override { return no_objects(); }

 private:
  error no_objects() const { return fail(errc::invalid_argument, "has no objects").with_file(path_.string()); }

  checkpoint_reader& inner_;
  std::vector<std::size_t> tensors_;
};

}  // namespace

std::unique_ptr<checkpoint_reader> as_float32(checkpoint_reader& inner, std::vector<std::size_t> tensors) {
  return std::make_unique<float_reader>(inner, std::move(tensors));
}

}  // namespace shardmesh::deepspeed
