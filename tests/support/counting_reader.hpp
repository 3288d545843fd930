// SPDX-License-Identifier: Apache-2.0
// A checkpoint whose chunks count the bytes that are read of them. It imports, so tests include it after all headers
// without imports.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

import shardmesh.checkpoint_core;

using byte_count = std::shared_ptr<std::atomic<std::int64_t>>;

class counting_bytes final : public shardmesh::byte_source {
 public:
  counting_bytes(std::shared_ptr<const shardmesh::byte_source> inner, byte_count count)
      : inner_(std::move(inner)), count_(std::move(count)) {}
  std::int64_t size_bytes() const override { return inner_->size_bytes(); }
  std::string name() const override { return inner_->name(); }
  shardmesh::result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    *count_ += static_cast<std::int64_t>(out.size());
    return inner_->read(offset, out);
  }

 private:
  std::shared_ptr<const shardmesh::byte_source> inner_;
  byte_count count_;
};

/// Shows a checkpoint unchanged, and adds the number of bytes that are read of its chunks to `count`.
class counting_reader final : public shardmesh::forwarding_reader {
 public:
  counting_reader(std::unique_ptr<shardmesh::checkpoint_reader> shown, byte_count count)
      : forwarding_reader(std::move(shown)), count_(std::move(count)) {
    for (std::size_t i = 0; i < inner().contents().tensors.size(); ++i) add_whole_tensor(i);
  }
  shardmesh::result<std::shared_ptr<const shardmesh::opened_chunk>> open_chunk(const shardmesh::tensor_entry& tensor,
                                                                               std::int32_t chunk) override {
    auto opened = forwarding_reader::open_chunk(tensor, chunk);
    if (!opened) return opened;
    auto counted = std::make_shared<shardmesh::opened_chunk>(**opened);
    counted->source = std::make_shared<const counting_bytes>((*opened)->source, count_);
    return std::shared_ptr<const shardmesh::opened_chunk>(std::move(counted));
  }

 private:
  byte_count count_;
};
