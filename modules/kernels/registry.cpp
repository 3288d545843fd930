// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>
module shardmesh.kernels;

namespace shardmesh {
namespace {

struct open_scopes {
  std::mutex lock;
  std::vector<std::shared_ptr<kernel_backend>> backends;  // in the order of opening
};

open_scopes& scopes() {
  static open_scopes all;
  return all;
}

}  // namespace

result<std::shared_ptr<kernel_backend>> backend_for(device where) {
  {
    open_scopes& all = scopes();
    const std::scoped_lock locked(all.lock);
    for (auto one = all.backends.rbegin(); one != all.backends.rend(); ++one)
      if ((*one)->reaches(where)) return *one;
  }
  auto host = host_backend();
  if (host->reaches(where)) return host;
  return fail(errc::unsupported, "the memory is not host memory, and no backend reaches it")
      .with_values("cpu, or a device of a backend", to_string(where))
      .with_hint("open the scope of a backend that reaches it (cuda_scope, kokkos_scope)");
}

result<void> check_reachable(device where) {
  if (where.type == device_type::cpu) return {};
  if (auto found = backend_for(where); !found) return std::move(found).error();
  return {};
}

backend_scope::backend_scope(std::shared_ptr<kernel_backend> backend) : backend_(std::move(backend)) {
  open_scopes& all = scopes();
  const std::scoped_lock locked(all.lock);
  all.backends.push_back(backend_);
}

backend_scope::~backend_scope() {
  open_scopes& all = scopes();
  const std::scoped_lock locked(all.lock);
  const auto last = std::find(all.backends.rbegin(), all.backends.rend(), backend_);
  if (last != all.backends.rend()) all.backends.erase(std::next(last).base());
}

}  // namespace shardmesh
