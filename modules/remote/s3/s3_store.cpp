// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.remote;

import :process_client;
import :s3_answers;
import :s3_connection;
import :s3_sources;
import :s3_store_parts;
import :s3_unfinished;
import :s3_upload;

namespace shardmesh::remote {
namespace {

constexpr std::int64_t most_answer_bytes = 1 << 20, most_page_bytes = 16 << 20;
// A listing that never ends would fill the memory.
constexpr std::size_t most_objects = 1'000'000;
// Pages beside one for every ten objects. Pages of S3 may be empty, but a server must not send them without end.
constexpr std::size_t most_sparse_pages = 1'000;

std::string last_part(const std::string& key) {
  return key.substr(key.rfind('/') + 1);
}

std::optional<std::int64_t> size_of(const http_response& answer) {
  const std::string_view text = answer.header("content-length");
  std::int64_t size = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (text.empty() || problem != std::errc() || end != text.data() + text.size() || size < 0) return std::nullopt;
  return size;
}

error no_such_object(const std::string& url) {
  error missing = fail(errc::io, "there is no such object").with_file(url);
  missing.sys = ENOENT;
  return missing;
}

class s3_object final : public byte_source {
 public:
  s3_object(std::shared_ptr<const s3_connection> at, s3_name name, stored_object object)
      : at_(std::move(at)), name_(std::move(name)), object_(std::move(object)) {}
  std::int64_t size_bytes() const override { return object_.size_bytes; }
  std::string name() const override { return at_->url_of(name_); }
  std::string version() const override { return object_.version; }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const source_range range{offset, out};
    return read_ranges({&range, 1});
  }
  result<void> read_ranges(std::span<const source_range> ranges) const override {
    return at_->read(name_, ranges, object_.version, object_.size_bytes);
  }
  std::int64_t bytes_per_request() const override { return at_->bytes_per_request(name_); }

 private:
  std::shared_ptr<const s3_connection> at_;
  s3_name name_;
  stored_object object_;
};

class s3_store final : public store {
 public:
  explicit s3_store(std::shared_ptr<const s3_connection> at) : at_(std::move(at)) {}

  result<std::optional<stored_object>> look(const std::string& url) const override {
    SHARDMESH_TRY(const s3_name name, parse_s3_url(url));
    if (!name.key.empty() && !name.key.ends_with('/')) {
      SHARDMESH_TRY(auto object, head(name));
      if (object) return object;
    }
    SHARDMESH_TRY(const bool is_folder, has_keys(folder(name)));
    if (!is_folder && !name.key.empty()) return std::optional<stored_object>();
    std::string key = name.key;
    while (key.ends_with('/')) key.pop_back();
    return std::optional(stored_object{last_part(key), true, 0, {}});
  }

  result<std::vector<stored_object>> list(const std::string& url) const override {
    SHARDMESH_TRY(const s3_name name, parse_s3_url(url));
    std::vector<stored_object> all;
    std::string token;
    std::size_t pages = 0;
    do {
      const std::size_t most_pages = most_sparse_pages + all.size() / 10;
      if (pages++ >= most_pages)
        return fail(errc::bad_format, "the server's listing does not end")
            .with_file(at_->url_of(name))
            .with_values(fmt::format("at most {} pages for {} objects", most_pages, all.size()), "more");
      SHARDMESH_TRY(s3_listing page, page_of(folder(name), token, 1000));
      if (page.next == token && !token.empty())
        return fail(errc::bad_format, "the server's listing repeats a page").with_file(at_->url_of(name));
      token = std::move(page.next);
      all.insert(all.end(), std::make_move_iterator(page.objects.begin()), std::make_move_iterator(page.objects.end()));
      if (all.size() > most_objects)
        return fail(errc::invalid_argument, "the folder holds too many objects")
            .with_file(at_->url_of(name))
            .with_values(fmt::format("at most {}", most_objects), "more");
    } while (!token.empty());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
  }

  result<std::unique_ptr<byte_source>> open(const std::string& url) const override {
    SHARDMESH_TRY(const s3_name name, parse_s3_url(url));
    SHARDMESH_TRY(auto object, head(name));
    if (!object) return no_such_object(url);
    return std::unique_ptr<byte_source>(std::make_unique<s3_object>(at_, name, *std::move(object)));
  }

  bool can_write() const override { return true; }
  result<std::string> put(const std::string& url, const byte_source& content,
                          const put_condition& condition) const override {
    SHARDMESH_TRY(s3_name name, parse_s3_url(url));
    if (name.key.empty() || name.key.ends_with('/'))
      return fail(errc::invalid_argument, "is not the name of an object").with_file(url);
    return s3_upload(*at_, std::move(name), condition).put(content);
  }

  result<void> remove(const std::string& url) const override {
    SHARDMESH_TRY(const s3_name name, parse_s3_url(url));
    return send_removal({.method = "DELETE", .of = name});
  }

  // AWS compares the condition. Other servers ignore it, or refuse it as unknown: then the look before protects alone.
  result<void> remove_version(const std::string& url, const std::string& version) const override {
    SHARDMESH_TRY(const s3_name name, parse_s3_url(url));
    SHARDMESH_TRY(const auto there, head(name));
    if (!there) return {};
    if (version.empty() || there->version.empty()) return send_removal({.method = "DELETE", .of = name});
    // Lists and answers may spell one ETag with quotation marks and without.
    if (unquoted(there->version) != unquoted(version)) return changed(url);
    const s3_request request{.method = "DELETE", .of = name, .headers = {{"if-match", there->version}}};
    SHARDMESH_TRY(const http_response answer, at_->send(request, most_answer_bytes));
    if (is_removed(answer)) return {};
    if (answer.status != 400 && answer.status != 412 && answer.status != 501) return at_->refusal(request, answer);
    SHARDMESH_TRY(const auto now, head(name));
    if (!now) return {};  // an earlier attempt has removed it, and its answer was lost
    if (now->version != there->version) return changed(url);
    return send_removal({.method = "DELETE", .of = name});
  }

  result<std::vector<unfinished_upload>> unfinished_uploads(const std::string& url) const override {
    SHARDMESH_TRY(s3_name name, parse_s3_url(url));
    return find_unfinished(*at_, std::move(name));
  }

  result<void> end_upload(const unfinished_upload& upload) const override {
    SHARDMESH_TRY(const s3_name name, parse_s3_url(upload.url));
    return send_removal({.method = "DELETE", .of = name, .query = {{"uploadId", upload.id}}});
  }

  bool keeps_conditions(const std::string&) const override { return !at_->ignores_conditions(); }

 private:
  static s3_name folder(s3_name name) {
    if (!name.key.empty() && !name.key.ends_with('/')) name.key += '/';
    return name;
  }
  static bool is_removed(const http_response& answer) {
    return answer.status == 200 || answer.status == 204 || answer.status == 404;
  }
  static error changed(const std::string& url) {
    return fail(errc::destination_exists, "has changed meanwhile").with_file(url);
  }

  result<void> send_removal(const s3_request& request) const {
    SHARDMESH_TRY(const http_response answer, at_->send(request, most_answer_bytes));
    if (is_removed(answer)) return {};
    return at_->refusal(request, answer);
  }

  // Returns whether a key begins with the folder's. A page may have no key, and the first key may be the marker that a
  // console made for the folder.
  result<bool> has_keys(const s3_name& folder) const {
    std::string token;
    for (std::size_t pages = 0; pages != most_sparse_pages; ++pages) {
      SHARDMESH_TRY(s3_listing page, page_of(folder, token, 1));
      if (page.has_marker || !page.objects.empty()) return true;
      if (page.next.empty()) return false;
      token = std::move(page.next);
    }
    return fail(errc::bad_format, "the server's listing does not end")
        .with_file(at_->url_of(folder))
        .with_values(fmt::format("at most {} pages without a key", most_sparse_pages), "more");
  }

  // Nothing: there is no such object.
  result<std::optional<stored_object>> head(const s3_name& name) const {
    const s3_request request{.method = "HEAD", .of = name};
    SHARDMESH_TRY(const http_response answer, at_->send(request, most_answer_bytes));
    if (answer.status == 404) return std::optional<stored_object>();
    if (answer.status != 200) return at_->refusal(request, answer);
    const auto size = size_of(answer);
    if (!size)
      return fail(errc::bad_format, "the server does not state the object's size").with_file(at_->url_of(name));
    return std::optional(stored_object{last_part(name.key), false, *size, std::string(answer.header("etag"))});
  }

  result<s3_listing> page_of(const s3_name& folder, const std::string& token, int most) const {
    s3_request request{
        .of = {folder.bucket, ""},
        .query = {
            {"list-type", "2"}, {"delimiter", "/"}, {"prefix", folder.key}, {"max-keys", fmt::format("{}", most)}}};
    if (!token.empty()) request.query.emplace_back("continuation-token", token);
    SHARDMESH_TRY(const http_response answer, at_->send(request, most_page_bytes));
    if (answer.status != 200) {
      error refused = at_->refusal(request, answer);
      const auto failure = parse_s3_failure(answer.body);
      // Readers would take it for a missing object.
      if (failure && failure->code == "NoSuchBucket") refused.sys = 0;
      return refused;
    }
    auto page = parse_s3_listing(answer.body, folder.key);
    if (page) return page;
    error why = std::move(page).error().with_file(at_->url_of(folder));
    why.code = errc::io;  // readers take errc::bad_format for a property of the folder, and look elsewhere
    return why;
  }

  std::shared_ptr<const s3_connection> at_;
};

}  // namespace

std::shared_ptr<const store> make_s3_store_over(std::shared_ptr<const process_client> client, const s3_options& options,
                                                const std::string& scheme) {
  return std::make_shared<const s3_store>(
      std::make_shared<const s3_connection>(std::move(client), find_s3_sources(options, scheme), scheme));
}

std::shared_ptr<const store> make_s3_store(const s3_options& options) {
  return make_s3_store_over(std::make_shared<const process_client>(options.http), options, "s3");
}

std::shared_ptr<const store> make_gs_store(const s3_options& options) {
  return make_s3_store_over(std::make_shared<const process_client>(options.http), options, "gs");
}

}  // namespace shardmesh::remote
