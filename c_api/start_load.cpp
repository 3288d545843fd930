// SPDX-License-Identifier: Apache-2.0
#include <shardmesh/c_api/start_load.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint.hpp"
#include "requests.hpp"
#include "values.hpp"
#include "watching.hpp"

import shardmesh;
import shardmesh.core;

struct shardmesh_loading {
  using mark_type = c_api::marked<c_api::handle_kind::loading>;
  mark_type mark;
  shardmesh_start_load_options options{};
  bindings::watch watching;
  std::mutex waiting;
  std::optional<shardmesh::load_in_progress> load;  // the last member, so that it ends first
};

namespace c_api {
using namespace shardmesh;

namespace {

load_options to_load(shardmesh_loading& loading) {
  const shardmesh_start_load_options& wanted = loading.options;
  load_options made{.threads = to_threads(wanted.threads),
                    .allow_narrowing = wanted.allow_narrowing != 0,
                    .allow_shape_mismatch = wanted.allow_shape_mismatch != 0,
                    .check = wanted.check != 0,
                    .within = deadline_after(wanted.timeout_milliseconds),
                    .cancel = loading.watching.stop.get_token(),
                    .progress = loading.watching.progress()};
  if (wanted.on_arrival != nullptr)
    made.on_arrival = [&loading](const std::string& key) {
      if (loading.options.on_arrival(loading.options.user, to_c(key)) != 0) loading.watching.stop.request_stop();
    };
  return made;
}

result<load_report> load_shared(shardmesh_checkpoint& from, const std::vector<load_request>& wanted,
                                const load_options& how) {
  std::shared_lock shared(from.use, std::defer_lock);
  while (!shared.try_lock_for(between_looks))
    if (auto goes_on = shardmesh::detail::check_limits(how.call(), "load"); !goes_on)
      return std::move(goes_on).error().with_file(from.reader->path().string());
  return load(*from.reader, wanted, how);
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_start_load(shardmesh_checkpoint* checkpoint, const shardmesh_load_request* requests,
                                      size_t request_count, const shardmesh_start_load_options* options,
                                      shardmesh_loading** loading, shardmesh_error** error) {
  return guarded(error, loading, [&] {
    shardmesh_checkpoint& from = opened(checkpoint, "checkpoint");
    auto made = std::make_unique<shardmesh_loading>();
    made->options = given(options, "options");
    const shardmesh::load_options how = to_load(*made);
    std::vector<shardmesh::load_request> wanted =
        to_requests(*from.reader, requests, request_count, how.allow_shape_mismatch);
    made->load.emplace(value_of(shardmesh::load_in_progress::start(
        [&from, wanted = std::move(wanted), how] { return load_shared(from, wanted, how); })));
    return made;
  });
}

shardmesh_status shardmesh_loading_describe(const shardmesh_loading* loading, shardmesh_loading_progress* progress,
                                            shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh_loading& from = opened(loading, "loading");
    shardmesh_loading_progress made{};
    made.done = from.load->done() ? 1 : 0;
    made.bytes = from.watching.bytes;
    give(progress, made, "progress");
  });
}

shardmesh_status shardmesh_loading_cancel(shardmesh_loading* loading, shardmesh_error** error) {
  return guarded(error, [&] { opened(loading, "loading").watching.stop.request_stop(); });
}

shardmesh_status shardmesh_loading_wait(shardmesh_loading* loading, int64_t* bytes_read, shardmesh_error** error) {
  return guarded(error, [&] {
    shardmesh_loading& from = opened(loading, "loading");
    const std::lock_guard alone(from.waiting);
    const shardmesh::result<shardmesh::load_report>& loaded = from.load->wait();
    if (!loaded) refuse(loaded.error());
    if (bytes_read != nullptr) *bytes_read = loaded->bytes_read;
  });
}

void shardmesh_loading_free(shardmesh_loading* loading) {
  if (loading != nullptr) loading->watching.stop.request_stop();
  delete loading;
}

}  // extern "C"
