// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.forwarding: a third-party communicator with exactly the members that the concept requires. It forwards
// every call to a correct one; models with a defect derive from it. Tests only.
module;
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

export module shardmesh.test.forwarding;

import shardmesh.comm;

export namespace shardmesh::test {

struct forwarding_communicator {
  thread_communicator inner;
  std::int32_t rank() const { return inner.rank(); }
  std::int32_t size() const { return inner.size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    return inner.all_gather(bytes, o);
  }
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    return inner.start_exchange(s, r, o);
  }
  void abort(const error& reason) { inner.abort(reason); }
};
static_assert(communicator<forwarding_communicator> && !collective_communicator<forwarding_communicator>);

}  // namespace shardmesh::test
