// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.gpu_ranks: thread ranks, each with a device of the double and an NCCL communicator, and bytes in
// device memory. Tests only.
module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

export module shardmesh.test.gpu_ranks;

export import shardmesh.nccl;

export namespace shardmesh::test {

/// The work of one rank; returns a problem, or an empty string.
using gpu_body = std::function<std::string(nccl_communicator&, any_communicator& control)>;

/// Runs the body on `size` threads; rank r has device r of the double at `path`. Returns the problem of the first
/// failing rank, or the reason why the ranks could not start.
[[nodiscard]] std::string on_gpus(const std::string& path, std::int32_t size, const gpu_body& body);

/// Bytes in a device's memory, which the host reads and writes without any stream of the test.
class device_bytes {
 public:
  device_bytes(device where, std::span<const std::byte> bytes);
  device_bytes(device where, std::size_t size_bytes);
  std::span<std::byte> there() { return tensor_.bytes(); }
  std::vector<std::byte> here() const;

 private:
  device_tensor tensor_;
};

/// A communicator for host memory over a communicator for device memory. Every call goes through copies in device
/// memory, so suites for host memory can run over NCCL.
class staged_communicator {
 public:
  explicit staged_communicator(nccl_communicator inner) : inner_(std::move(inner)) {}
  std::int32_t rank() const { return inner_.rank(); }
  std::int32_t size() const { return inner_.size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes,
                                                         const call_options& options) {
    if (auto none = refuse_stream(options); !none) return std::move(none).error();
    return inner_.all_gather(bytes, options);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options);
  result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options);
  result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options);
  result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                             const call_options& options);
  result<pending> broadcast(std::span<const std::byte> send, std::span<std::byte> receive, std::int32_t root,
                            const call_options& options);
  void abort(const error& reason) { inner_.abort(reason); }
  bool is_ordered() const { return true; }

 private:
  using start = std::function<result<pending>(std::span<const std::byte>, std::span<std::byte>)>;
  result<pending> through(std::span<const std::byte> send, std::span<std::byte> receive, const call_options& options,
                          const start& inner);
  result<void> refuse_stream(const call_options& options) const;  // memory is the host's
  nccl_communicator inner_;
};
static_assert(collective_communicator<staged_communicator>);

/// A communicator for device memory over one for host memory, which must outlive it. Sent bytes are copied to the host,
/// and received bytes to the device. Thus the executor's work on devices runs on ranks without NCCL.
class hosted_communicator {
 public:
  hosted_communicator(any_communicator& inner, device where) : inner_(&inner), where_(where) {}
  std::int32_t rank() const { return inner_->rank(); }
  std::int32_t size() const { return inner_->size(); }
  device memory() const { return where_; }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes,
                                                         const call_options& options) {
    return inner_->all_gather(bytes, options);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  void abort(const error& reason) { inner_->abort(reason); }

 private:
  any_communicator* inner_;
  device where_;
};
static_assert(communicator<hosted_communicator>);

/// As `on_gpus`, without NCCL: thread ranks whose messages take the way over the host.
[[nodiscard]] std::string on_hosted_gpus(const std::string& path, std::int32_t size,
                                         const std::function<std::string(hosted_communicator)>& body);

}  // namespace shardmesh::test
