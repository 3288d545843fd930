// SPDX-License-Identifier: Apache-2.0
module;
#include "engine.hpp"

#include <shardmesh/try.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.kokkos;

namespace shardmesh {

// The use of Kokkos by the open scopes. If the first scope started Kokkos, the last one ends it.
class kokkos_scope::session {
 public:
  explicit session(bool starts) : starts_(starts) {}
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session() {
    if (starts_ && kokkos_engine::is_initialised()) kokkos_engine::finalise();
  }
  bool starts() const { return starts_; }

  static result<std::shared_ptr<session>> open(int threads) {
    static std::mutex lock;
    static std::weak_ptr<session> current;
    const std::lock_guard locked(lock);
    if (kokkos_engine::is_finalised())
      return fail(errc::unsupported, "Kokkos was finalised and cannot be initialised again in this process")
          .with_hint("keep one kokkos_scope, or an initialisation of your own, until the end of the program");
    if (kokkos_engine::is_initialised()) {
      const int running = kokkos_engine::host_threads();
      if (threads != 0 && threads != running)
        return fail(errc::invalid_argument, "Kokkos already runs with another number of threads")
            .with_values(std::to_string(threads), std::to_string(running))
            .with_hint("leave kokkos_options::threads at 0 if the application initialises Kokkos");
      if (auto shared = current.lock()) return shared;
      auto joined = std::make_shared<session>(false);
      current = joined;
      return joined;
    }
    if (const std::string problem = kokkos_engine::initialise(threads); !problem.empty())
      return fail(errc::unsupported, "Kokkos cannot be initialised: " + problem);
    auto started = std::make_shared<session>(true);
    current = started;
    return started;
  }

 private:
  bool starts_;
};

result<kokkos_scope> kokkos_scope::open(const kokkos_options& options) {
  if (options.threads < 0)
    return fail(errc::invalid_argument, "kokkos_options::threads is negative")
        .with_values("0 or more", std::to_string(options.threads));
  kokkos_scope made;
  SHARDMESH_TRY(made.session_, session::open(options.threads));
  SHARDMESH_TRY(made.backend_, kokkos_backend());
  made.registered_ = std::make_unique<backend_scope>(made.backend_);
  return made;
}

std::string_view kokkos_scope::execution_space() const {
  return kokkos_engine::host_space();
}
int kokkos_scope::threads() const {
  return kokkos_engine::host_threads();
}
bool kokkos_scope::started_kokkos() const {
  return session_ != nullptr && session_->starts();
}

}  // namespace shardmesh
