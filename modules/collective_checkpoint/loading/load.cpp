// SPDX-License-Identifier: Apache-2.0
// Begins the load of one rank.
module;
#include <shardmesh/try.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.collective_checkpoint;

import :rank_load;
import :rank_state;

namespace shardmesh {

result<load_report> load(checkpoint_reader& reader, local_state& wanted, communicator_ref comm,
                         const rank_load_options& options) {
  return rank_load(&reader, wanted, comm, options).run({});
}

result<load_report> load(const std::filesystem::path& checkpoint, local_state& wanted, communicator_ref comm,
                         const rank_load_options& options) {
  const detail::call_scope limits(options.loading().call().named("load"));
  std::unique_ptr<checkpoint_reader> reader;
  const auto opened = guarded([&]() -> result<void> {
    SHARDMESH_TRY(reader, open_checkpoint(checkpoint));
    return {};
  });
  return rank_load(reader.get(), wanted, comm, options).run(opened);
}

result<load_in_progress> start_load(const std::filesystem::path& checkpoint, local_state& wanted, communicator_ref comm,
                                    const rank_load_options& options) {
  auto started =
      load_in_progress::start([checkpoint, &wanted, comm, options] { return load(checkpoint, wanted, comm, options); });
  if (!started) comm.abort(started.error());  // the others are already running
  return started;
}

}  // namespace shardmesh
