// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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
bool store::keeps_conditions(const std::string&) const {
  return true;
}

std::string scheme_of(const std::filesystem::path& path) {
  const std::string& text = path.native();
  const std::size_t end = text.find("://");
  if (end == std::string::npos || end == 0) return {};
  const auto is_scheme_char = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
  };
  if (!std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), is_scheme_char)) return {};
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
  if (!is_url(destination)) return {};
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(destination));
  if (!handler->can_write()) return cannot_write(destination.native());
  return {};
}

result<std::shared_ptr<const store>> store_of(const std::filesystem::path& url) {
  register_remote_stores();
  const std::string scheme = scheme_of(url);
  store_table& all = table();
  const std::scoped_lock guard(all.lock);
  const auto found = all.by_scheme.find(scheme);
  if (found != all.by_scheme.end()) return found->second;
  return fail(errc::unsupported, fmt::format("no store knows the scheme \"{}\"", scheme))
      .with_file(printable_url(url.native()))
      .with_values("one of: " + known_schemes(all), scheme)
      .with_hint(shardmesh_register_remote_stores != nullptr
                     ? "use one of these schemes, or call register_store"
                     : "link the component shardmesh::remote, which reads http, https, s3, gs, and hf");
}

}  // namespace shardmesh
