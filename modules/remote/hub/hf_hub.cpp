// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :failure;
import :hf_hub;
import :hf_place;
import :percent_encoding;
import :process_client;
import :url_text;

namespace shardmesh::remote {
namespace {

using json = nlohmann::json;

constexpr std::int64_t most_answer_bytes = 64 << 20;
constexpr std::size_t most_entries = 1'000'000;
constexpr int most_redirects = 5, most_pages = 10'000;

std::string_view text_of(const http_response& answer) {
  return {reinterpret_cast<const char*>(answer.body.data()), answer.body.size()};
}

// Returns a discarded value for a body that is no JSON.
json parsed(const http_response& answer) {
  if (!check_json_depth(text_of(answer))) return json(json::value_t::discarded);
  return json::parse(text_of(answer), nullptr, false);
}

std::string text_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

error bad_answer(const std::string& url, std::string_view expected) {
  return fail(errc::bad_format, "the hub's answer cannot be read")
      .with_file(printable_url(url))
      .with_values(std::string(expected), "another document");
}

// Returns the URL of the next page: <URL>; rel="next".
std::string next_page(const http_response& answer) {
  const std::string_view link = answer.header("link");
  const std::size_t relation = link.find("rel=\"next\"");
  if (relation == std::string_view::npos) return {};
  const std::size_t begin = link.rfind('<', relation), end = link.rfind('>', relation);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return redirected(answer.url, link.substr(begin + 1, end - begin - 1));
}

// Removes the marks around an ETag.
std::string_view bare_etag(std::string_view text) {
  if (text.starts_with("W/")) text.remove_prefix(2);
  if (text.size() >= 2 && text.starts_with('"') && text.ends_with('"')) text = text.substr(1, text.size() - 2);
  return text;
}

std::optional<hf_entry> entry_of(const json& one, const std::string& folder) {
  if (!one.is_object()) return std::nullopt;
  const std::string path = text_in(one, "path"), kind = text_in(one, "type");
  const std::string prefix = folder.empty() ? "" : folder + "/";
  hf_entry made;
  if (!path.starts_with(prefix) || (kind != "file" && kind != "directory")) return std::nullopt;
  made.name = path.substr(prefix.size());
  made.is_folder = kind == "directory";
  made.object_id = text_in(one, "oid");
  const bool is_member = !made.name.empty() && made.name != "." && made.name != ".." &&
                         made.name.find('/') == std::string::npos && made.name.find('\0') == std::string::npos;
  if (!is_member) return std::nullopt;
  if (made.is_folder) return made;
  const auto size = one.find("size");
  if (size == one.end() || !size->is_number_integer() || size->get<std::int64_t>() < 0) return std::nullopt;
  made.size_bytes = size->get<std::int64_t>();
  if (const auto lfs = one.find("lfs"); lfs != one.end() && lfs->is_object()) made.sha256 = text_in(*lfs, "oid");
  return made;
}

}  // namespace

hf_hub::hf_hub(const hf_options& options, std::shared_ptr<const process_client> client)
    : endpoint_(options.endpoint), token_(options.token), client_(std::move(client)) {
  const char* const variable = std::getenv("HF_ENDPOINT");
  if (endpoint_.empty() && variable != nullptr) endpoint_ = variable;
  if (endpoint_.empty()) endpoint_ = "https://huggingface.co";
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
}

result<void> hf_hub::authorise(http_request& request) const {
  auto found = find_token();
  if (!found) {
    error why = std::move(found).error();
    why.sys = 0;  // readers would take ENOENT and EACCES for the hub's answer about a file
    return why;
  }
  const hf_token token = *std::move(found);
  if (!token.text.empty()) request.headers.emplace_back("Authorization", "Bearer " + token.text);
  return {};
}

std::string hf_hub::api_url(const hf_place& place, std::string_view what) const {
  return fmt::format("{}/api/models/{}/{}", endpoint_, place.repository, what);
}

// A redirect could lead the token elsewhere, so none is followed here: repositories that were renamed answer with one.
result<http_response> hf_hub::get(const std::string& url, std::int64_t limit_bytes) const {
  SHARDMESH_TRY(const auto* const client, client_->get());
  const auto sign = [this](http_request& request) { return authorise(request); };
  http_request request{.url = url};
  for (int i = 0; i != most_redirects; ++i) {
    SHARDMESH_TRY(auto answer, client->send(request, limit_bytes, sign));
    const bool is_redirect = answer.status >= 301 && answer.status <= 308 && !answer.header("location").empty();
    if (!is_redirect) return answer;
    request.url = redirected(request.url, answer.header("location"));
    if (origin_of(request.url) != origin_of(endpoint_))
      return fail(errc::io, "the hub redirects a request to another host")
          .with_file(printable_url(url))
          .with_values(endpoint_, printable_url(request.url))
          .with_hint("set HF_ENDPOINT to the hub's address");
  }
  return fail(errc::io, "the hub redirects a request again and again").with_file(printable_url(url));
}

error hf_hub::refusal(const http_response& answer, const hf_place& place) const {
  const std::string_view code = answer.header("x-error-code");
  const auto found = find_token();
  const std::string token = found && !found->text.empty() ? found->source : std::string();
  const std::string_view secrets[] = {found ? std::string_view(found->text) : std::string_view()};
  const auto base = [&](std::string message) {
    return fail(errc::io, std::move(message)).with_values("status 200", answer_text(answer, text_of(answer), secrets));
  };
  if (code == "RevisionNotFound")
    return base(fmt::format("the repository {} has no revision \"{}\"", place.repository, place.revision))
        .with_hint("name a branch, a tag, or a commit after \"@\"");
  if (code == "GatedRepo")
    return base(fmt::format("the repository {} is gated", place.repository))
        .with_hint(token.empty() ? std::string("set HF_TOKEN to the token of a user who has access")
                                 : fmt::format("accept its conditions at {}/{} as the user whose token is in {}",
                                               endpoint_, place.repository, token));
  if (answer.status == 401 || answer.status == 403 || answer.status == 404)
    return base(fmt::format("there is no repository {}, or it is private", place.repository))
        .with_hint(fmt::format(
            "check the name (a repository without an owner needs \"@\": hf://gpt2@main/FILE), {}",
            token.empty() ? std::string("or set HF_TOKEN") : fmt::format("or the access of the token in {}", token)));
  return base("the hub refuses the request");
}

result<std::string> hf_hub::commit_of(const hf_place& place) const {
  if (is_commit(place.revision)) return place.revision;
  const std::string url = api_url(place, "revision/" + encode_component(place.revision) + "?expand=sha");
  SHARDMESH_TRY(const auto answer, get(url, most_answer_bytes));
  if (answer.status != 200) return refusal(answer, place);
  const json repository = parsed(answer);
  std::string commit = repository.is_object() ? text_in(repository, "sha") : std::string();
  if (!is_commit(commit)) return bad_answer(url, "\"sha\" with a commit");
  return commit;
}

// Adds the entries of a page, and returns the URL of the next page, or an empty text.
result<std::string> hf_hub::add_page(const http_response& answer, const std::string& folder,
                                     std::vector<hf_entry>& to) const {
  const json page = parsed(answer);
  if (!page.is_array()) return bad_answer(answer.url, "a list of entries");
  if (to.size() + page.size() > most_entries)
    return fail(errc::bad_format, "the hub's listing is too long")
        .with_file(printable_url(answer.url))
        .with_values(fmt::format("at most {} entries", most_entries), "more");
  for (const json& one : page) {
    auto entry = entry_of(one, folder);
    if (!entry) return bad_answer(answer.url, "entries with type, path, and size");
    to.push_back(*std::move(entry));
  }
  const std::string next = next_page(answer);
  // A server could send any number of empty pages, each of which leads to another one.
  if (!next.empty() && (page.empty() || origin_of(next) != origin_of(endpoint_)))
    return bad_answer(answer.url, "a next page of the same hub");
  return next;
}

result<std::optional<std::vector<hf_entry>>> hf_hub::list(const hf_place& place, const std::string& commit,
                                                          const std::string& folder) const {
  std::string url = api_url(place, "tree/" + commit);
  if (!folder.empty()) url += "/" + encode_path(folder);
  url += "?recursive=false";
  std::vector<hf_entry> made;
  for (int page = 0; !url.empty(); ++page) {
    if (page == most_pages) return bad_answer(url, "a listing that ends");
    SHARDMESH_TRY(const auto answer, get(url, most_answer_bytes));
    const std::string_view code = answer.header("x-error-code");
    if (answer.status == 404 && !folder.empty() && (code.empty() || code == "EntryNotFound"))
      return std::optional<std::vector<hf_entry>>();
    if (answer.status != 200) return refusal(answer, place);
    SHARDMESH_TRY(url, add_page(answer, folder, made));
  }
  return std::optional(std::move(made));
}

result<hf_location> hf_hub::locate(const hf_place& place, const std::string& commit, const hf_entry& file) const {
  SHARDMESH_TRY(const auto* const client, client_->get());
  http_request request{
      .method = "HEAD",
      .url = fmt::format("{}/{}/resolve/{}/{}", endpoint_, place.repository, commit, encode_path(place.path))};
  const auto sign = [this](http_request& sent) { return authorise(sent); };
  for (int i = 0; i != most_redirects; ++i) {
    SHARDMESH_TRY(const auto answer, client->send(request, 0, sign));
    if (const auto found = answer.header("x-repo-commit"); !found.empty() && found != commit)
      return fail(errc::io, "the hub answers for another commit").with_values(commit, escaped(found));
    const std::string_view size = answer.header("x-linked-size");
    if (!size.empty() && size != std::to_string(file.size_bytes))
      return fail(errc::io, "the hub describes the file in two ways")
          .with_values(fmt::format("{} bytes", file.size_bytes), escaped(size));
    const std::string_view sum = bare_etag(answer.header("x-linked-etag"));
    if (!sum.empty() && !file.sha256.empty() && sum != file.sha256)
      return fail(errc::io, "the hub describes the file in two ways")
          .with_values("SHA-256 " + file.sha256, escaped(sum));
    if (answer.status == 200) return hf_location{request.url, true};
    const std::string_view to = answer.header("location");
    if (answer.status < 301 || answer.status > 308 || to.empty()) return refusal(answer, place);
    const std::string next = redirected(request.url, to);
    // Nothing but TLS protects the bytes: no range can be compared with the file's SHA-256.
    if (origin_of(request.url).starts_with("https:") && !origin_of(next).starts_with("https:"))
      return fail(errc::io, "the hub redirects a request from https to another protocol")
          .with_values("https", printable_url(next))
          .with_hint("check HF_ENDPOINT, and the proxy before the hub");
    const bool is_at_hub = origin_of(next) == origin_of(endpoint_);
    // Files in large file storage have a location that is signed for reading, which needs no token and allows no HEAD.
    if (!is_at_hub || !size.empty()) return hf_location{next, false};
    request.url = next;
  }
  return fail(errc::io, "the hub redirects a request again and again");
}

}  // namespace shardmesh::remote
