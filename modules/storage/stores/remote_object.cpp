// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.storage;

import :remote_object;

namespace shardmesh {
namespace {

// The header of a safetensors file, or the beginning of an archive, is mostly shorter.
constexpr std::int64_t head_bytes = std::int64_t{1} << 16;

class object_source final : public byte_source {
 public:
  explicit object_source(std::shared_ptr<const remote_object> object) : object_(std::move(object)) {}
  std::int64_t size_bytes() const override { return object_->size_bytes(); }
  std::string name() const override { return object_->name(); }
  std::string version() const override { return object_->version(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    SHARDMESH_TRY(check(offset, out.size()));
    if (out.empty()) return {};
    return object_->read(offset, out);
  }
  result<void> read_ranges(std::span<const source_range> ranges) const override {
    // A small tensor is a call with one range, and the next call continues it.
    if (ranges.size() == 1) return read(ranges.front().offset, ranges.front().out);
    for (const source_range& one : ranges) SHARDMESH_TRY(check(one.offset, one.out.size()));
    return object_->read_ranges(ranges);
  }
  std::int64_t bytes_per_request() const override { return object_->bytes_per_request(); }

 private:
  result<void> check(std::int64_t offset, std::size_t size) const {
    const auto length = static_cast<std::int64_t>(size);
    if (offset >= 0 && offset <= size_bytes() && length <= size_bytes() - offset) return {};
    return fail(errc::out_of_bounds,
                fmt::format("bytes {} to {} lie outside of the file's {} bytes", offset, offset + length, size_bytes()))
        .with_file(name());
  }

  std::shared_ptr<const remote_object> object_;
};

}  // namespace

result<std::shared_ptr<remote_object>> remote_object::make(std::unique_ptr<byte_source> opened, std::string name) {
  const std::int64_t size = opened->size_bytes();
  if (size < 0)
    return fail(errc::bad_format, "the store reports a negative size")
        .with_file(name)
        .with_values("", fmt::format("{} bytes", size));
  return std::shared_ptr<remote_object>(new remote_object(std::move(opened), std::move(name), size));
}

void remote_object::keep_head(bool keep) {
  const std::scoped_lock guard(lock_);
  keeps_head_ = keep;
  if (!keep) head_ = {};
}

bool remote_object::keeps_head() const {
  const std::scoped_lock guard(lock_);
  return keeps_head_;
}

bool remote_object::copy_from_head(std::int64_t offset, std::span<std::byte> out) const {
  const std::scoped_lock guard(lock_);
  if (head_.empty()) return false;
  std::copy_n(head_.begin() + offset, out.size(), out.begin());
  return true;
}

result<void> remote_object::read(std::int64_t offset, std::span<std::byte> out) const {
  const std::int64_t end = offset + static_cast<std::int64_t>(out.size());
  if (end > head_bytes || !keeps_head()) return ahead_.read(*opened_, offset, out);
  if (copy_from_head(offset, out)) return {};
  SHARDMESH_TRY(const auto held, reading_head_.acquire());
  if (copy_from_head(offset, out)) return {};
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(size_, head_bytes)));
  SHARDMESH_TRY(opened_->read(0, bytes));
  std::copy_n(bytes.begin() + offset, out.size(), out.begin());
  const std::scoped_lock guard(lock_);
  if (keeps_head_) head_ = std::move(bytes);
  return {};
}

std::unique_ptr<byte_source> source_of(std::shared_ptr<const remote_object> object) {
  return std::make_unique<object_source>(std::move(object));
}

}  // namespace shardmesh
