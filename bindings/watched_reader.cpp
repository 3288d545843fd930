// SPDX-License-Identifier: Apache-2.0
#include "watched_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.core;
import shardmesh.torch_file;

namespace bindings {
using namespace shardmesh;

namespace {

class watched_source final : public byte_source {
 public:
  watched_source(std::shared_ptr<const byte_source> inner, watch& watching)
      : inner_(std::move(inner)), watching_(watching) {}
  std::int64_t size_bytes() const override { return inner_->size_bytes(); }
  std::string name() const override { return inner_->name(); }
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    return inner_->stored_bytes(offset, length);
  }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    if (watching_.stop.stop_requested()) return fail(errc::cancelled, "interrupted").with_file(name());
    auto done = inner_->read(offset, out);
    if (done) watching_.bytes += static_cast<std::int64_t>(out.size());
    return done;
  }
  result<void> read_ranges(std::span<const source_range> ranges) const override {
    if (watching_.stop.stop_requested()) return fail(errc::cancelled, "interrupted").with_file(name());
    auto done = inner_->read_ranges(ranges);
    if (done)
      for (const source_range& one : ranges) watching_.bytes += static_cast<std::int64_t>(one.out.size());
    return done;
  }
  std::int64_t bytes_per_request() const override { return inner_->bytes_per_request(); }

 private:
  std::shared_ptr<const byte_source> inner_;
  watch& watching_;
};

class watched_reader final : public checkpoint_reader, public torch_file::archived_objects {
 public:
  watched_reader(checkpoint_reader& inner, watch& watching) : inner_(inner), watching_(watching) {
    contents_ = inner.contents();
    path_ = inner.path();
    warnings_ = inner.warnings();
    problems_ = inner.problems();
    notes_ = inner.notes();
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (watching_.stop.stop_requested()) return fail(errc::cancelled, "interrupted").with_key(tensor.key);
    auto opened = inner_.open_chunk(tensor, chunk);
    if (!opened) return opened;
    auto made = std::make_shared<opened_chunk>(**opened);
    made->source = std::make_shared<watched_source>(made->source, watching_);
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }
  result<object_value> read_object(std::size_t index) override { return inner_.read_object(index); }
  result<std::vector<std::byte>> object_archive(std::size_t index) override { return inner_.object_archive(index); }
  result<torch_file::opened_object> open_object(std::size_t index) override {
    return torch_file::open_object(inner_, index);
  }
  const checkpoint_reader& stored() const override { return inner_.stored(); }
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override {
    return inner_.item_bytes(place);
  }
  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override {
    return inner_.chunk_archive(tensor, chunk);
  }
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    if (watching_.stop.stop_requested()) return {};
    return inner_.check_whole(entries, options);
  }
  result<void> finish_checks() override { return inner_.finish_checks(); }
  std::optional<shown_entry> shown(const whole_entry& entry) const override { return shown_entry{&inner_, entry}; }
  void identify_opaque_tensors() override {
    inner_.identify_opaque_tensors();
    contents_.tensors = inner_.contents().tensors;
  }

 private:
  checkpoint_reader& inner_;
  watch& watching_;
};

}  // namespace

std::unique_ptr<checkpoint_reader> watched(checkpoint_reader& inner, watch& watching) {
  return std::make_unique<watched_reader>(inner, watching);
}

}  // namespace bindings
