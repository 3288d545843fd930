// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :previous_folder;

namespace shardmesh::dcp {
namespace fs = std::filesystem;

error refuse_previous(errc code, std::string what, const fs::path& folder) {
  return fail(code, std::move(what))
      .with_file(folder.string())
      .with_hint("name a DCP folder beside the destination that shardmesh wrote, or save without `previous`");
}

error in_previous(error cause, const fs::path& folder) {
  cause.message = fmt::format("the previous checkpoint cannot be referred to: {}", cause.message);
  if (cause.file.empty()) cause.file = folder.string();
  cause.hint = "repair it, or save without `previous`";
  return cause;
}

result<fs::path> resolved_destination(const fs::path& destination) {
  std::error_code code;
  fs::path whole = fs::absolute(destination, code);
  if (!code) whole = fs::weakly_canonical(whole, code);
  if (!code && whole.filename().empty()) whole = whole.parent_path();
  if (code) return fail_sys(code.value(), "cannot resolve the path", destination.string());
  return whole;
}

result<fs::path> checked_folder(const fs::path& folder, const fs::path& destination) {
  std::error_code code;
  const fs::path real = fs::canonical(folder, code);
  if (code || !fs::is_directory(real, code))
    return refuse_previous(errc::invalid_argument, "the previous checkpoint is not a folder", folder);
  SHARDMESH_TRY(const fs::path target, resolved_destination(destination));
  if (real == target)
    return refuse_previous(errc::invalid_argument, "the previous checkpoint is the destination, and would be replaced",
                           folder);
  if (real.parent_path() != target.parent_path())
    return refuse_previous(errc::invalid_argument, "the previous checkpoint does not lie beside the destination",
                           folder)
        .with_values(target.parent_path().string(), real.parent_path().string());
  const std::string name = real.filename().string();
  if (escaped(name) != name || !parse_sibling_file(to_string(sibling_file{name, "x.distcp"})))
    return refuse_previous(errc::invalid_argument,
                           "the name of the previous checkpoint has characters that cannot be referred to", folder)
        .with_values("visible characters", name);
  if (!fs::is_regular_file(real / ".metadata", code))
    return refuse_previous(errc::invalid_argument, "the previous checkpoint is not a DCP folder with a .metadata file",
                           folder);
  return real;
}

result<void> check_record(const recorded_sums& record, const fs::path& folder) {
  bool has_metadata = false;
  for (std::size_t i = 0; i < record.ranges().size(); ++i) {
    if (record.ranges()[i].file != ".metadata") continue;
    has_metadata = true;
    if (auto done = record.check(i); !done) return in_previous(std::move(done).error(), folder);
  }
  if (has_metadata) return {};
  return refuse_previous(errc::checksum_mismatch, "the record of checksums does not cover the .metadata file", folder);
}

}  // namespace shardmesh::dcp
