// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.storage;

import :store;
import :unfinished_uploads;

namespace shardmesh {
namespace {

using unfinished_upload = store::unfinished_upload;

constexpr std::string_view id_field = "?uploadId=";
constexpr std::chrono::hours age_of_dead{24};

bool is_dead(const unfinished_upload& one) {
  return one.began && std::chrono::system_clock::now() - *one.began >= age_of_dead;
}

}  // namespace

result<std::vector<left_upload>> find_unfinished_uploads(const std::string& url) {
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(url));
  SHARDMESH_TRY(const std::vector<unfinished_upload> uploads, handler->unfinished_uploads(url));
  std::vector<left_upload> found;
  for (const unfinished_upload& one : uploads)
    found.push_back({one.url + std::string(id_field) + one.id, one.size_bytes, is_dead(one)});
  return found;
}

result<void> remove_unfinished_upload(const std::string& path) {
  const std::size_t at = path.rfind(id_field);
  if (at == std::string::npos)
    return fail(errc::destination_exists, "is not an unfinished upload").with_file(printable_url(path));
  const std::string url = path.substr(0, at), id = path.substr(at + id_field.size());
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(url));
  SHARDMESH_TRY(const std::vector<unfinished_upload> uploads, handler->unfinished_uploads(url));
  const auto found = std::find_if(uploads.begin(), uploads.end(),
                                  [&](const unfinished_upload& one) { return one.url == url && one.id == id; });
  if (found == uploads.end()) return {};  // it has ended meanwhile
  if (is_dead(*found)) return handler->end_upload(*found);
  return fail(errc::destination_exists,
              "is kept: its writer may be alive, because the upload is less than a day old or its age is unknown")
      .with_file(printable_url(url))
      .with_values("", "upload " + escaped(id));
}

}  // namespace shardmesh
