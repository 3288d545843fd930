// SPDX-License-Identifier: Apache-2.0
// A consumer of the component kokkos: a batch that moves one View into another.
#include "views.hpp"

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

import shardmesh.kokkos;

using namespace shardmesh;

int main() {
  const auto scope = kokkos_scope::open();
  if (!scope) return std::fprintf(stderr, "%s\n", to_string(scope.error()).c_str()), 1;
  with_matrices([&](const tensor_view& to, const tensor_view& from) {
    batch_builder work;
    work.copy(place(0, to.data, to), place(0, from.data, from)).value();
    const auto backend = backend_for(to.where).value();
    const auto batch = backend->prepare(work.items(), to.where).value();
    std::byte* const targets[] = {to.data};
    const std::byte* const sources[] = {from.data};
    backend->run(*batch, {targets, sources}, {}).value();
    const auto* const last = reinterpret_cast<const float*>(to.data) + 300 * 200 - 1;
    std::printf("moved by %s: the last element is %g\n", std::string(backend->name()).c_str(),
                static_cast<double>(*last));
  });
  return 0;
}
