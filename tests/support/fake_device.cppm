// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.fake_device: host memory that claims to be a device's, a backend that accesses it, and a communicator
// with messages in it. With these, tests check which path bytes take, without a device. Late and reordered work is
// simulated by the double (gpu_double). Tests only.
module;
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

export module shardmesh.test.fake_device;

import shardmesh.comm;
import shardmesh.kernels;

export namespace shardmesh::test {

/// The host's kernels for memory of one device type; for the CPU, it replaces the host's own backend.
class fake_backend final : public kernel_backend {
 public:
  explicit fake_backend(device_type type) : type_(type) {}
  std::string_view name() const override { return "fake"; }
  bool reaches(device where) const override { return where.type == type_; }
  result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref stream) override {
    auto made = host_backend()->allocate(size_bytes, {}, stream);
    if (!made) return made;
    std::byte* const data = made->data();
    const std::int64_t size = made->size_bytes();
    return device_buffer(data, size, where, std::make_shared<device_buffer>(*std::move(made)));
  }
  result<device_buffer> allocate_staging(std::int64_t size_bytes, device) override {
    return host_backend()->allocate_staging(size_bytes, {});
  }
  result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device) override {
    ++prepared;
    return host_backend()->prepare(items, {});
  }
  result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref stream) override {
    ++launched;
    return host_backend()->run(batch, bases, stream);
  }
  result<void> copy_across(std::byte* to, device, const std::byte* from, device, std::int64_t size_bytes,
                           stream_ref stream) override {
    ++crossed;
    return host_backend()->copy_across(to, {}, from, {}, size_bytes, stream);
  }
  result<std::unique_ptr<device_event>> record(device, stream_ref stream) override {
    return host_backend()->record({}, stream);
  }

  std::atomic<int> prepared = 0, launched = 0, crossed = 0;

 private:
  device_type type_;
};

/// Forwards every call; messages are in device memory.
struct device_communicator {
  any_communicator* inner = nullptr;
  device where{};
  std::int32_t rank() const { return inner->rank(); }
  std::int32_t size() const { return inner->size(); }
  device memory() const { return where; }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    return inner->all_gather(bytes, o);
  }
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    return inner->start_exchange(s, r, o);
  }
  void abort(const error& reason) { inner->abort(reason); }
};
static_assert(communicator<device_communicator>);

}  // namespace shardmesh::test
