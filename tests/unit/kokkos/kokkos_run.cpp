// SPDX-License-Identifier: Apache-2.0
// Runs Kokkos from the first test to the last, because a process can start it only once.
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <optional>

import shardmesh.kokkos;

namespace {

class kokkos_run : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override { scope_ = shardmesh::kokkos_scope::open().value(); }
  void testRunEnded(const Catch::TestRunStats&) override { scope_.reset(); }

 private:
  std::optional<shardmesh::kokkos_scope> scope_;
};

}  // namespace
CATCH_REGISTER_LISTENER(kokkos_run)
