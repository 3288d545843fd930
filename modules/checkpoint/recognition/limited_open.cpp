// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.storage;
import :limited_open;

namespace shardmesh {
namespace {

result<void> check_limits(const std::filesystem::path& path) {
  auto checked = detail::check_current_call();
  if (!checked) return std::move(checked).error().with_file(path.string());
  return {};
}

}  // namespace

opened_reader open_within_limits(const std::filesystem::path& path, const open_options& options,
                                 function_ref<opened_reader(const open_options&)> work) {
  const detail::call_scope limits(options.call().named("opening"));
  // The call that opens a local file checks its own limits, in collective calls together with the other ranks.
  const bool checks = is_url(path) || options.within || options.cancel.stop_possible();
  if (checks) SHARDMESH_TRY(check_limits(path));
  open_options all = options;
  all.files = options.pool();
  // Some parts are opened later, by reads with limits of their own.
  all.within = {};
  all.cancel = {};
  const places::remembered_answers answers;
  auto opened = work(all);
  // A file that the store failed to look at is not a missing file.
  if (auto failed = answers.failure(); failed && (opened || opened.error().code != failed->code))
    return *std::move(failed);
  // Data is read later, and then belongs to the description that was read now.
  if (opened && is_url(path)) SHARDMESH_TRY(all.files->keep_lists());
  // A part whose request was ended is neither missing nor damaged.
  if (checks && (opened || !detail::is_limit_error(opened.error()))) SHARDMESH_TRY(check_limits(path));
  return opened;
}

}  // namespace shardmesh
