// SPDX-License-Identifier: Apache-2.0
module;
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.remote;

namespace shardmesh::remote {
namespace {

bool is_used(std::string_view name) {
  constexpr std::array<std::string_view, 4> prefixes{"AWS_", "HF_", "HUGGING_FACE_", "SHARDMESH_S3_"};
  return name == "HOME" || name == "XDG_CACHE_HOME" ||
         std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The home folder of the user account; empty if there is none.
std::string account_home() {
  std::vector<char> buffer(std::size_t{16} << 10);
  passwd account{};
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &account, buffer.data(), buffer.size(), &found) != 0 || found == nullptr ||
      found->pw_dir == nullptr)
    return {};
  return found->pw_dir;
}

}  // namespace

std::string_view environment::variable(std::string_view name) const noexcept {
  const auto at = values_.find(name);
  return at == values_.end() ? std::string_view{} : at->second.reveal();
}

std::filesystem::path environment::expanded(std::string_view path) const {
  const std::string_view home = variable("HOME");
  if (!home.empty() && (path == "~" || path.starts_with("~/"))) return std::string(home) + std::string(path.substr(1));
  return path;
}

std::string environment::shown(const std::filesystem::path& path) const {
  const std::string_view home = variable("HOME");
  std::string text = path.string();
  if (home.size() > 1 && text.size() > home.size() && text.starts_with(home) && text[home.size()] == '/')
    text = "~" + text.substr(home.size());
  return text;
}

environment process_environment() {
  environment made;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_used(text.substr(0, equals))) continue;
    made.set(text.substr(0, equals), text.substr(equals + 1));
  }
  if (made.variable("HOME").empty()) made.set("HOME", account_home());
  return made;
}

}  // namespace shardmesh::remote
