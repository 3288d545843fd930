// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>
module shardmesh.remote;

import :s3_answers;
import :s3_connection;
import :s3_unfinished;
import :utc_time;

namespace shardmesh::remote {
namespace {

constexpr std::int64_t most_page_bytes = 16 << 20;
constexpr std::size_t most_pages = 1'000, most_uploads = 10'000;

error endless(const s3_connection& at, const s3_name& place) {
  return fail(errc::bad_format, "the server's list of unfinished uploads does not end").with_file(at.url_of(place));
}

// Returns the bytes of an upload's parts; 0 if it has ended meanwhile.
result<std::int64_t> bytes_of_parts(const s3_connection& at, const s3_name& object, const std::string& id) {
  std::int64_t total = 0;
  std::string marker;
  for (std::size_t page = 0; page < most_pages; ++page) {
    s3_request request{.of = object, .query = {{"uploadId", id}}};
    if (!marker.empty()) request.query.emplace_back("part-number-marker", marker);
    SHARDMESH_TRY(const http_response answer, at.send(request, most_page_bytes));
    if (answer.status == 404) return std::int64_t{0};
    if (answer.status != 200) return at.refusal(request, answer);
    auto listed = parse_s3_parts(answer.body);
    if (!listed) return std::move(listed).error().with_file(at.url_of(object));
    total = checked_add(total, listed->bytes).value_or(std::numeric_limits<std::int64_t>::max());
    if (listed->next.empty()) return total;
    if (listed->next == marker) break;
    marker = std::move(listed->next);
  }
  return endless(at, object);
}

}  // namespace

result<std::vector<store::unfinished_upload>> find_unfinished(const s3_connection& at, s3_name place) {
  while (place.key.ends_with('/')) place.key.pop_back();
  const std::string inside = place.key.empty() ? "" : place.key + '/';
  const auto is_here = [&](const std::string& key) {
    if (!place.key.empty() && key == place.key) return true;
    return key.starts_with(inside) && key.size() > inside.size() && key.find('/', inside.size()) == std::string::npos;
  };
  std::vector<store::unfinished_upload> found;
  s3_upload_list page;
  for (std::size_t pages = 0; pages < most_pages; ++pages) {
    s3_request request{.of = {place.bucket, ""}, .query = {{"uploads", ""}, {"prefix", place.key}}};
    if (!page.next_key.empty()) {
      request.query.emplace_back("key-marker", page.next_key);
      request.query.emplace_back("upload-id-marker", page.next_id);
    }
    SHARDMESH_TRY(const http_response answer, at.send(request, most_page_bytes));
    if (answer.status != 200) return at.refusal(request, answer);
    auto listed = parse_s3_uploads(answer.body);
    if (!listed) return std::move(listed).error().with_file(at.url_of(place));
    if (!listed->next_key.empty() && listed->next_key == page.next_key && listed->next_id == page.next_id) break;
    page = *std::move(listed);
    for (const s3_upload_list::entry& one : page.uploads) {
      if (!is_here(one.key)) continue;
      if (found.size() == most_uploads)
        return fail(errc::invalid_argument, "there are too many unfinished uploads")
            .with_file(at.url_of(place))
            .with_values(fmt::format("at most {}", most_uploads), "more");
      const s3_name object{place.bucket, one.key};
      SHARDMESH_TRY(const std::int64_t bytes, bytes_of_parts(at, object, one.id));
      found.push_back({at.url_of(object), one.id, parse_utc_time(one.began), bytes});
    }
    if (page.next_key.empty()) return found;
  }
  return endless(at, place);
}

}  // namespace shardmesh::remote
