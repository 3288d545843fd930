// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.fake_device: memory that says it is a device's and is the host's, a backend that reaches it, and a
// communicator whose data lies there: which way bytes go is tested without a device. What runs late and in any order is
// the double's (gpu_double). Tests only.
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

/// The host's kernels, for memory of one type of device; of the CPU it takes the place of the host's own backend.
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

/// Hands every call on; messages lie on the device.
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
