// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

// Room `remote` defines it, and its link options make the linker take it. A program without this room has none.
extern "C" __attribute__((weak)) void shardmesh_register_remote_stores();
module shardmesh.storage;

import :store;

namespace shardmesh {
namespace {

struct store_table {
  std::mutex lock;
  std::map<std::string, std::shared_ptr<const store>> by_scheme;
};

// Never destroyed: a checkpoint that is a static object may still read at the end of the program.
store_table& table() {
  static auto* const made = new store_table;
  return *made;
}

void register_remote_stores() {
  static const bool done = [] {
    if (shardmesh_register_remote_stores != nullptr) shardmesh_register_remote_stores();
    return true;
  }();
  static_cast<void>(done);
}

std::string known_schemes(const store_table& all) {
  std::string names;
  for (const auto& [scheme, handler] : all.by_scheme) names += (names.empty() ? "" : ", ") + scheme;
  return names.empty() ? std::string("none") : names;
}

bool is_scheme(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
  });
}

std::string lower_case(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

// Returns whether URLs have this scheme, also in a program without room `remote`.
bool is_of_stores(const std::string& scheme) {
  constexpr auto ours = std::to_array<std::string_view>({"gs", "hf", "http", "https", "s3"});
  if (std::find(ours.begin(), ours.end(), scheme) != ours.end()) return true;
  store_table& all = table();
  const std::scoped_lock guard(all.lock);
  return all.by_scheme.contains(scheme);
}

error cannot_write(const std::string& url) {
  return fail(errc::unsupported, fmt::format("the store of {}:// only reads", scheme_of(url)))
      .with_file(printable_url(url))
      .with_hint("write to a local path, and upload the result");
}

}  // namespace

bool store::can_write() const {
  return false;
}
result<std::string> store::put(const std::string& url, const byte_source&, const put_condition&) const {
  return cannot_write(url);
}
result<void> store::remove(const std::string& url) const {
  return cannot_write(url);
}
result<void> store::remove_version(const std::string& url, const std::string& version) const {
  SHARDMESH_TRY(const std::optional<stored_object> there, look(url));
  if (!there || there->is_folder) return {};
  if (!version.empty() && there->version != version)
    return fail(errc::destination_exists, "has changed meanwhile").with_file(printable_url(url));
  return remove(url);
}
result<std::vector<store::unfinished_upload>> store::unfinished_uploads(const std::string&) const {
  return std::vector<unfinished_upload>();
}
result<void> store::end_upload(const unfinished_upload& upload) const {
  return cannot_write(upload.url);
}
bool store::keeps_conditions(const std::string&) const {
  return true;
}
bool store::takes_name(std::string_view) const {
  return true;
}

std::string scheme_of(const std::filesystem::path& path) {
  const std::string& text = path.native();
  const std::size_t end = text.find("://");
  if (end == std::string::npos || !is_scheme(std::string_view(text).substr(0, end))) return {};
  return text.substr(0, end);
}

bool is_url(const std::filesystem::path& path) {
  return !scheme_of(path).empty();
}

void register_store(const std::string& scheme, std::shared_ptr<const store> handler) {
  register_remote_stores();
  store_table& all = table();
  const std::scoped_lock guard(all.lock);
  if (handler)
    all.by_scheme.insert_or_assign(scheme, std::move(handler));
  else
    all.by_scheme.erase(scheme);
}

void detail::add_default_store(const std::string& scheme, std::shared_ptr<const store> handler) {
  store_table& all = table();
  const std::scoped_lock guard(all.lock);
  all.by_scheme.try_emplace(scheme, std::move(handler));
}

result<void> detail::check_can_write(const std::filesystem::path& destination) {
  if (!is_url(destination)) return check_not_shortened(destination);
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(destination));
  if (!handler->can_write()) return cannot_write(destination.native());
  return {};
}

result<void> detail::check_name_in(const std::filesystem::path& folder, std::string_view name) {
  if (!is_url(folder)) return {};
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(folder));
  if (handler->takes_name(name)) return {};
  return fail(errc::unsupported, "the name of a file in this folder reads as something else in a URL")
      .with_file(printable_url(folder.native()))
      .with_values("", std::string(name))
      .with_hint("rename the file, or open a copy of the folder on this machine");
}

result<void> detail::check_not_shortened(const std::filesystem::path& path) {
  const std::string& text = path.native();
  const std::size_t end = text.find(":/");
  if (end == std::string::npos || end + 2 == text.size() || text[end + 2] == '/') return {};
  const std::string_view written = std::string_view(text).substr(0, end);
  if (!is_scheme(written)) return {};
  const std::string scheme = lower_case(written);
  const bool is_file = scheme == "file";
  if (!is_file && !is_of_stores(scheme)) return {};
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) return {};
  const std::string url = printable_url(fmt::format("{}://{}", written, std::string_view(text).substr(end + 2)));
  const std::string shown = url.substr(0, end + 2) + url.substr(end + 3);  // as written, without secrets
  error refused =
      is_file ? fail(errc::invalid_argument, "looks like a URL of a local file").with_values("a local path", "file:/")
              : fail(errc::invalid_argument, "looks like a URL with one slash")
                    .with_values(fmt::format("{}://", written), fmt::format("{}:/", written));
  return std::move(refused).with_file(shown).with_hint(
      fmt::format("write {}, or ./{} for a local path", is_file ? shown.substr(end + 1) : url, shown));
}

result<std::shared_ptr<const store>> store_of(const std::filesystem::path& url) {
  register_remote_stores();
  const std::string scheme = scheme_of(url);
  store_table& all = table();
  const std::scoped_lock guard(all.lock);
  const auto found = all.by_scheme.find(scheme);
  if (found != all.by_scheme.end()) return found->second;
  if (lower_case(scheme) == "file")
    return fail(errc::unsupported, "is a URL of a local file")
        .with_file(printable_url(url.native()))
        .with_values("a local path, or a URL of a store", scheme + "://")
        .with_hint("write the local path, without file://");
  return fail(errc::unsupported, fmt::format("no store knows the scheme \"{}\"", scheme))
      .with_file(printable_url(url.native()))
      .with_values("one of: " + known_schemes(all), scheme)
      .with_hint(shardmesh_register_remote_stores != nullptr
                     ? "use one of these schemes; in C++, register_store adds another"
                     : "link the component shardmesh::remote, which reads http, https, s3, gs, and hf");
}

}  // namespace shardmesh
