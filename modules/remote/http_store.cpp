// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :http_store_parts;
import :process_client;
import :url_text;

namespace shardmesh::remote {
namespace {

constexpr std::int64_t most_listing_bytes = 64 << 20, most_refusal_bytes = 1 << 20;

// The files by which a folder of a checkpoint is recognised where the server has no folders.
constexpr std::array<std::string_view, 3> well_known = {"model.safetensors.index.json", ".metadata",
                                                        "model.safetensors"};

// Returns whether a missing name may be a folder, for which the well-known names are worth a request each. Names of
// files have a suffix that contains a letter; "step-1.5" has none.
bool may_be_folder(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return true;
  return std::none_of(name.begin() + static_cast<std::ptrdiff_t>(dot), name.end(),
                      [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

// Files of checkpoints that nginx does not list, because their names begin with a dot.
constexpr std::array<std::string_view, 3> hidden_names = {".metadata", ".shardmesh_checksums", ".snapshot_metadata"};

error not_an_object(const std::string& url, bool is_folder) {
  error why =
      fail(errc::io, is_folder ? "is a folder, not a file" : "there is no such object").with_file(printable_url(url));
  why.sys = is_folder ? EISDIR : ENOENT;
  return why;
}

// The names of files come from descriptions and listings, and are appended as they are.
result<void> check_steps(const std::string& url) {
  if (!leads_up_encoded(url)) return {};
  return fail(errc::unsafe_path, "an encoded part of the path leads out of its folder")
      .with_file(printable_url(url))
      .with_hint("name the folder that it leads to");
}

class http_file final : public byte_source {
 public:
  http_file(std::shared_ptr<const process_client> client, std::string url, stored_object object)
      : client_(std::move(client)), url_(std::move(url)), object_(std::move(object)) {}
  std::int64_t size_bytes() const override { return object_.size_bytes; }
  std::string name() const override { return printable_url(url_); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const source_range range{offset, out};
    return read_ranges({&range, 1});
  }
  result<void> read_ranges(std::span<const source_range> ranges) const override {
    SHARDMESH_TRY(const auto* const client, client_->get());
    const http_request object{.url = encoded_url(url_), .follow_redirects = true};
    return client->read(object, ranges, object_.version, object_.size_bytes);
  }
  // A weak ETag allows other bytes.
  std::string version() const override { return object_.version.starts_with("W/") ? "" : object_.version; }
  std::int64_t bytes_per_request() const override {
    const auto client = client_->get();
    return client ? (*client)->bytes_per_request(encoded_url(url_)) : 0;
  }

 private:
  std::shared_ptr<const process_client> client_;
  std::string url_;
  stored_object object_;
};

class http_store final : public store {
 public:
  explicit http_store(std::shared_ptr<const process_client> client) : client_(std::move(client)) {}

  result<std::optional<stored_object>> look(const std::string& url) const override {
    SHARDMESH_TRY(const auto answer, head(url));
    SHARDMESH_TRY(auto found, described(answer, url));
    if (found || !may_be_folder(last_part(url))) return found;
    for (const std::string_view name : well_known) {
      const std::string member = member_url(url, name);
      SHARDMESH_TRY(const auto of_member, head(member));
      SHARDMESH_TRY(const auto file, described(of_member, member));
      if (file && !file->is_folder) return std::optional(stored_object{last_part(url), true, 0, {}});
    }
    return found;
  }

  result<std::vector<stored_object>> list(const std::string& url) const override {
    SHARDMESH_TRY(check_steps(url));
    SHARDMESH_TRY(const auto* const client, client_->get());
    const http_request request{
        .url = encoded_url(member_url(url, "")), .headers = {{"Accept", "application/json"}}, .follow_redirects = true};
    SHARDMESH_TRY(const auto answer, client->send(request, most_listing_bytes));
    const std::string_view text(reinterpret_cast<const char*>(answer.body.data()), answer.body.size());
    SHARDMESH_TRY(auto listed, parse_autoindex(answer.status == 200 ? text : std::string_view(), url));
    SHARDMESH_TRY(add_hidden(listed, url));
    return listed;
  }

  result<std::unique_ptr<byte_source>> open(const std::string& url) const override {
    SHARDMESH_TRY(const auto answer, head(url));
    SHARDMESH_TRY(auto found, described(answer, url));
    if (!found || found->is_folder) return not_an_object(url, found.has_value());
    if (answer.header("accept-ranges") == "none")
      return fail(errc::unsupported, "the server refuses requests for ranges")
          .with_file(printable_url(url))
          .with_hint("download the file, and open the copy");
    return std::unique_ptr<byte_source>(std::make_unique<http_file>(client_, url, *std::move(found)));
  }

  bool takes_name(std::string_view name) const override { return is_literal_name(name); }

 private:
  // Looks for hidden files of a folder whose listing has none. A denied one counts as missing.
  result<void> add_hidden(std::vector<stored_object>& listed, const std::string& url) const {
    const auto is_hidden = [](const stored_object& one) { return one.name.starts_with('.'); };
    if (std::any_of(listed.begin(), listed.end(), is_hidden)) return {};
    std::array<std::optional<stored_object>, hidden_names.size()> found;
    SHARDMESH_TRY(parallel_for(static_cast<int>(found.size()), std::ssize(found), [&](std::int64_t i) -> result<void> {
      const auto at = static_cast<std::size_t>(i);
      const std::string member = member_url(url, hidden_names[at]);
      SHARDMESH_TRY(const auto answer, head(member));
      auto one = described(answer, member);
      if (!one && one.error().sys == EACCES) return {};
      if (!one) return std::move(one).error();
      if (*one && !(*one)->is_folder) found[at] = *std::move(one);
      return {};
    }));
    for (auto& one : found)
      if (one) listed.push_back(*std::move(one));
    std::sort(listed.begin(), listed.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return {};
  }

  // Asks for the description of a URL. Presigned URLs and some servers refuse HEAD: then for its first byte.
  result<http_response> head(const std::string& url) const {
    SHARDMESH_TRY(check_steps(url));
    SHARDMESH_TRY(const auto* const client, client_->get());
    http_request request{.method = "HEAD", .url = encoded_url(url), .follow_redirects = true};
    SHARDMESH_TRY(auto answer, client->send(request, 0));
    const bool is_refused = answer.status == 403 || answer.status == 405 || answer.status == 501;
    if (!is_refused || is_folder_url(answer.url)) return answer;
    request.method = "GET";
    request.headers.emplace_back("Range", "bytes=0-0");
    auto first = client->send(request, most_refusal_bytes);
    if (!first && first.error().code == errc::bad_format)
      return fail(errc::unsupported, "the server answers neither HEAD nor requests for ranges")
          .with_file(printable_url(url))
          .with_hint("download the file, and open the copy");
    return first;
  }

  std::shared_ptr<const process_client> client_;
};

}  // namespace

std::shared_ptr<const store> make_http_store_over(std::shared_ptr<const process_client> client) {
  return std::make_shared<const http_store>(std::move(client));
}

std::shared_ptr<const store> make_http_store(const http_options& options) {
  return make_http_store_over(std::make_shared<const process_client>(options));
}

}  // namespace shardmesh::remote
