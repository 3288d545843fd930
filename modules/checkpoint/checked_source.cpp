// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <libdeflate.h>
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
module shardmesh.checkpoint;

namespace shardmesh {

checked_source::checked_source(std::shared_ptr<const opened_chunk> chunk) : chunk_(std::move(chunk)) {
  next_ = chunk_->digest ? chunk_->tensor.begin : chunk_->crc_begin;
  end_ = chunk_->digest ? next_ + chunk_->tensor.size_bytes : next_ + chunk_->crc_length;
}

result<void> checked_source::read(std::int64_t offset, std::span<std::byte> out) const {
  SHARDMESH_CHECK(chunk_->source->read(offset, out));
  return sum(offset, out);
}

result<void> checked_source::sum(std::int64_t offset, std::span<const std::byte> bytes) const {
  const std::scoped_lock guard(lock_);
  if (next_ != offset || offset + static_cast<std::int64_t>(bytes.size()) > end_) {
    next_ = -1;
    return {};
  }
  next_ += static_cast<std::int64_t>(bytes.size());
  if (chunk_->digest)
    sum_.update(bytes);
  else
    crc32_ = libdeflate_crc32(crc32_, bytes.data(), bytes.size());
  if (next_ < end_) return {};
  const bool equal = chunk_->digest ? sum_.digest() == *chunk_->digest : crc32_ == chunk_->crc32;
  if (equal) return {};
  return fail(errc::checksum_mismatch, "the tensor's bytes are not what was written").with_file(name());
}

}  // namespace shardmesh
