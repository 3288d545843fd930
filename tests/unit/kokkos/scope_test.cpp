// SPDX-License-Identifier: Apache-2.0
// Tests the start and end of Kokkos. A process can start it only once, so kokkos_run.cpp opens a scope for the whole
// run.
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <utility>

import shardmesh.kokkos;

using namespace shardmesh;

TEST_CASE("a scope makes Kokkos the backend of host memory, and its end gives it back") {
  const auto before = backend_for({}).value();
  {
    const auto scope = kokkos_scope::open().value();
    CHECK(backend_for({}).value() == scope.backend());
    CHECK(scope.backend()->name() == "kokkos (" + std::string(scope.execution_space()) + ")");
    CHECK(scope.threads() >= 1);
    CHECK(backend_for({device_type::cuda, 0}).error().code == errc::unsupported);
  }
  CHECK(backend_for({}).value() == before);
}

TEST_CASE("scopes within scopes share one Kokkos, and may be moved") {
  auto outer = kokkos_scope::open().value();
  auto inner = kokkos_scope::open().value();
  const kokkos_scope moved = std::move(inner);
  CHECK(moved.backend() == outer.backend());
  CHECK(moved.started_kokkos() == outer.started_kokkos());
}

TEST_CASE("a number of threads that Kokkos does not run with is refused with both") {
  const int running = kokkos_scope::open().value().threads();
  const auto refused = kokkos_scope::open({.threads = running + 1});
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(to_string(refused.error()).find(std::to_string(running + 1)) != std::string::npos);
  const auto negative = kokkos_scope::open({.threads = -1});
  REQUIRE(!negative);
  CHECK(negative.error().code == errc::invalid_argument);
}
