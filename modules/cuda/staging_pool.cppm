// SPDX-License-Identifier: Apache-2.0
// staging_pool: reuse of pinned host memory. Pinning takes milliseconds, but a copy from or to pinned memory takes only
// microseconds.
module shardmesh.cuda:staging_pool;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import :runtime;

namespace shardmesh::cuda {

class staging_pool : public std::enable_shared_from_this<staging_pool> {
 public:
  staging_pool(const runtime& cuda, std::int64_t keep_bytes) : cuda_(cuda), keep_bytes_(keep_bytes) {}
  staging_pool(const staging_pool&) = delete;
  staging_pool& operator=(const staging_pool&) = delete;
  ~staging_pool();

  // Takes pinned memory of at least that size, for copies from or to a device. Destroying the buffer returns the memory
  // to the pool; keep the buffer until no copy uses it. errc::no_memory, or the device's error.
  result<device_buffer> take(std::int64_t size_bytes, device where);

 private:
  void give_back(std::byte* memory, std::int64_t size_bytes);

  runtime cuda_;
  std::int64_t keep_bytes_;
  std::mutex lock_;
  std::map<std::int64_t, std::vector<std::byte*>> kept_;  // by size, which is a power of two
  std::int64_t kept_bytes_ = 0;
};

}  // namespace shardmesh::cuda
