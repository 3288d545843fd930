// SPDX-License-Identifier: Apache-2.0
// Not exported: an object of a store as a source of bytes that several readers share.
module shardmesh.storage:remote_object;

import shardmesh.std;
import shardmesh.core;
import :read_ahead;
import :source;

namespace shardmesh {

// An opened object. Thread-safe. While `keep_head` is on, small reads near its beginning are served from its first
// bytes, which are read once: the recognition of a file reads them several times.
class remote_object {
 public:
  // errc::bad_format when the store reports a negative size.
  static result<std::shared_ptr<remote_object>> make(std::unique_ptr<byte_source> opened, std::string name);
  std::int64_t size_bytes() const { return size_; }
  const std::string& name() const { return name_; }
  std::string version() const { return opened_->version(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const;
  result<void> read_ranges(std::span<const source_range> ranges) const { return opened_->read_ranges(ranges); }
  std::int64_t bytes_per_request() const { return opened_->bytes_per_request(); }
  void keep_head(bool keep);

 private:
  bool keeps_head() const;
  // Returns false when the head is not there. Precondition: the range lies within it.
  bool copy_from_head(std::int64_t offset, std::span<std::byte> out) const;

  remote_object(std::unique_ptr<byte_source> opened, std::string name, std::int64_t size)
      : opened_(std::move(opened)), name_(std::move(name)), size_(size) {}
  const std::unique_ptr<byte_source> opened_;
  const std::string name_;
  const std::int64_t size_;
  read_ahead ahead_;
  mutable detail::call_lock reading_head_;  // one request for all threads
  mutable std::mutex lock_;                 // is not held during a request
  bool keeps_head_ = false;
  mutable std::vector<std::byte> head_;
};

// Returns a source over a shared object.
std::unique_ptr<byte_source> source_of(std::shared_ptr<const remote_object> object);

}  // namespace shardmesh
