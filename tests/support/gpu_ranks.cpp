// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <on_gpu.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.test.gpu_ranks;

namespace shardmesh::test {
namespace {

const_tensor_view view(std::span<const std::byte> bytes) {
  return {bytes.data(), dtype::uint8, {}, {static_cast<std::int64_t>(bytes.size())}, {1}};
}
tensor_view view(std::span<std::byte> bytes) {
  return {bytes.data(), dtype::uint8, {}, {static_cast<std::int64_t>(bytes.size())}, {1}};
}

// A receive: its device bytes are copied to the host on completion.
struct landing {
  std::span<std::byte> here;
  std::unique_ptr<device_bytes> there;
};

struct staged final : pending::operation {
  pending inner;
  std::vector<landing> receives;
  std::vector<std::unique_ptr<device_bytes>> sends;
  bool done() override { return inner.done(); }
  result<void> wait() override {
    if (auto waited = inner.wait(); !waited) return waited;
    for (const landing& one : receives) {
      const auto bytes = one.there->here();
      std::copy(bytes.begin(), bytes.end(), one.here.begin());
    }
    return {};
  }
};

// An exchange over the host: received bytes are copied to the device on completion.
struct hosted final : pending::operation {
  struct landing {
    std::span<std::byte> there;
    std::vector<std::byte> here;
  };
  std::shared_ptr<kernel_backend> backend;
  device where;
  stream_ref stream;
  std::vector<landing> receives;
  std::vector<std::vector<std::byte>> sends;
  pending inner;  // the last member: its end waits, and the buffers outlive that

  // Waits on the host for all work enqueued so far.
  result<void> settle() {
    auto passed = backend->record(where, stream);
    if (!passed) return std::move(passed).error();
    return (*passed)->wait();
  }
  bool done() override { return inner.done(); }
  result<void> wait() override {
    if (auto waited = inner.wait(); !waited) return waited;
    for (const landing& one : receives) {
      auto copied = backend->copy_across(one.there.data(), where, one.here.data(), {},
                                         static_cast<std::int64_t>(one.here.size()), stream);
      if (!copied) return copied;
    }
    return settle();
  }
};

}  // namespace

std::string on_gpus(const std::string& path, std::int32_t size, const gpu_body& body) {
  const auto scope = cuda_scope::open({.cudart = path, .kernels_on_host = !tests_run_on_gpu()});
  if (!scope) return to_string(scope.error());
  std::vector<std::string> found(static_cast<std::size_t>(size));
  const auto done = run_ranks(size, [&](any_communicator& control) -> result<void> {
    auto comm = nccl_communicator::make(control, {device_type::cuda, static_cast<std::int16_t>(control.rank())},
                                        {.nccl = path, .cudart = path});
    if (!comm) return std::move(comm).error();
    std::string& wrong = found[static_cast<std::size_t>(control.rank())];
    wrong = body(*comm, control);
    if (wrong.empty()) return {};
    return fail(errc::checksum_mismatch, wrong);
  });
  // Reports a rank's own problem first; the group's error may be intended.
  for (std::size_t r = 0; r < found.size(); ++r)
    if (!found[r].empty()) return "rank " + std::to_string(r) + ": " + found[r];
  return done ? std::string() : to_string(done.error());
}

std::string on_hosted_gpus(const std::string& path, std::int32_t size,
                           const std::function<std::string(hosted_communicator)>& body) {
  const auto scope = cuda_scope::open({.cudart = path, .kernels_on_host = !tests_run_on_gpu()});
  if (!scope) return to_string(scope.error());
  const auto done = run_ranks(size, [&](any_communicator& control) -> result<void> {
    const std::int32_t rank = control.rank();
    const std::string wrong = body(hosted_communicator(control, {device_type::cuda, static_cast<std::int16_t>(rank)}));
    if (wrong.empty()) return {};
    return fail(errc::checksum_mismatch, "rank " + std::to_string(rank) + ": " + wrong);
  });
  return done ? std::string() : to_string(done.error());
}

result<pending> hosted_communicator::start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                    const call_options& options) {
  auto backend = backend_for(where_);
  if (!backend) return std::move(backend).error();
  auto made = std::make_unique<hosted>();
  made->backend = *backend;
  made->where = where_;
  made->stream = options.stream;
  std::vector<outgoing> out;
  std::vector<incoming> in;
  for (const outgoing& m : sends) {
    made->sends.emplace_back(m.bytes.size());
    auto copied = made->backend->copy_across(made->sends.back().data(), {}, m.bytes.data(), where_,
                                             static_cast<std::int64_t>(m.bytes.size()), options.stream);
    if (!copied) return std::move(copied).error();
    out.push_back({m.peer, made->sends.back()});
  }
  if (auto settled = made->settle(); !settled) return std::move(settled).error();
  for (const incoming& m : receives) {
    made->receives.push_back({m.bytes, std::vector<std::byte>(m.bytes.size())});
    in.push_back({m.peer, made->receives.back().here});
  }
  call_options over_host = options;
  over_host.stream = {};
  auto started = inner_->start_exchange(out, in, over_host);
  if (!started) return std::move(started).error();
  made->inner = *std::move(started);
  return pending(std::move(made));
}

device_bytes::device_bytes(device where, std::span<const std::byte> bytes) : device_bytes(where, bytes.size()) {
  if (!bytes.empty()) copy_between(view_of(tensor_), view(bytes)).value();
}
device_bytes::device_bytes(device where, std::size_t size_bytes)
    : tensor_(device_tensor::make(dtype::uint8, {static_cast<std::int64_t>(size_bytes)}, where).value()) {}

std::vector<std::byte> device_bytes::here() const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor_.size_bytes()));
  if (!bytes.empty()) copy_between(view(std::span(bytes)), view_of(tensor_)).value();
  return bytes;
}

result<pending> staged_communicator::start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                    const call_options& options) {
  if (auto none = refuse_stream(options); !none) return std::move(none).error();
  auto made = std::make_unique<staged>();
  std::vector<outgoing> out;
  std::vector<incoming> in;
  for (const outgoing& m : sends) {
    made->sends.push_back(std::make_unique<device_bytes>(inner_.memory(), m.bytes));
    out.push_back({m.peer, made->sends.back()->there()});
  }
  for (const incoming& m : receives) {
    // Bytes keep their value if nothing is received.
    made->receives.push_back({m.bytes, std::make_unique<device_bytes>(inner_.memory(), m.bytes)});
    in.push_back({m.peer, made->receives.back().there->there()});
  }
  auto started = inner_.start_exchange(out, in, options);
  if (!started) return std::move(started).error();
  made->inner = *std::move(started);
  return pending(std::move(made));
}

result<void> staged_communicator::refuse_stream(const call_options& options) const {
  if (options.stream.handle == nullptr) return {};
  return fail(errc::unsupported, "rank " + std::to_string(rank()) + " gives a stream for memory of the host")
      .with_rank(rank());
}

result<pending> staged_communicator::through(std::span<const std::byte> send, std::span<std::byte> receive,
                                             const call_options& options, const start& inner) {
  if (auto none = refuse_stream(options); !none) return std::move(none).error();
  auto made = std::make_unique<staged>();
  made->sends.push_back(std::make_unique<device_bytes>(inner_.memory(), send));
  made->receives.push_back({receive, std::make_unique<device_bytes>(inner_.memory(), receive.size())});
  auto started = inner(made->sends.back()->there(), made->receives.back().there->there());
  if (!started) return std::move(started).error();
  made->inner = *std::move(started);
  return pending(std::move(made));
}

result<pending> staged_communicator::all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                                     const call_options& options) {
  return through(send, receive, options, [&](auto s, auto r) { return inner_.all_gather_into(s, r, options); });
}
result<pending> staged_communicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                                                const call_options& options) {
  return through(send, receive, options, [&](auto s, auto r) { return inner_.all_to_all(s, r, options); });
}
result<pending> staged_communicator::reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive,
                                                    dtype type, reduce_op op, const call_options& options) {
  return through(send, receive, options,
                 [&](auto s, auto r) { return inner_.reduce_scatter(s, r, type, op, options); });
}
result<pending> staged_communicator::all_reduce(std::span<const std::byte> send, std::span<std::byte> receive,
                                                dtype type, reduce_op op, const call_options& options) {
  return through(send, receive, options, [&](auto s, auto r) { return inner_.all_reduce(s, r, type, op, options); });
}
result<pending> staged_communicator::broadcast(std::span<const std::byte> send, std::span<std::byte> receive,
                                               std::int32_t root, const call_options& options) {
  return through(send, receive, options, [&](auto s, auto r) { return inner_.broadcast(s, r, root, options); });
}

}  // namespace shardmesh::test
