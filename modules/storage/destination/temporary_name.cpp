// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <re2/re2.h>
#include <unistd.h>
#include <host_name.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
module shardmesh.storage;

import :temporary_name;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// The most that is added to a stem: "." ".shardmesh-tmp-" HOST "-" PID "-" RANDOM "-discarded-" PID. A process number
// has up to ten digits.
constexpr std::size_t added = 1 + 15 + 8 + 1 + 10 + 1 + 8 + 11 + 10;

std::string digits_of(std::string_view text, std::size_t count) {
  return to_hex(xxh3(std::as_bytes(std::span(text.data(), text.size())))).substr(0, count);
}

std::size_t longest_name(const fs::path& folder) {
  const long limit = ::pathconf(folder.c_str(), _PC_NAME_MAX);
  return limit > 0 ? static_cast<std::size_t>(limit) : 255;
}

std::string shortened(const fs::path& destination, std::size_t room) {
  std::string name = destination.filename().string();
  if (name.size() <= room) return name;
  const std::string digest = "~" + digits_of(name, 16);
  std::size_t end = room > digest.size() ? room - digest.size() : 0;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // not inside a UTF-8 character
  return name.substr(0, end) + digest;
}

std::string random_digits() {
  std::random_device random;
  return fmt::format("{:08x}", random());
}

}  // namespace

std::string temporary_stem(const fs::path& destination) {
  const std::size_t most = longest_name(destination.parent_path());
  return shortened(destination, most > added ? most - added : 0);
}

std::string make_temporary_name(const fs::path& destination, std::string_view host) {
  return fmt::format(".{}.shardmesh-tmp-{}-{}-{}", temporary_stem(destination), host, ::getpid(), random_digits());
}

std::optional<temporary_name> parse_temporary_name(const std::string& name) {
  static const re2::RE2 pattern(
      R"((?s)\.(.+)\.shardmesh-tmp-(?:([0-9a-f]{8})-)?([0-9]{1,10})-[0-9a-f]{8}(?:-discarded-[0-9]{1,10})?)",
      re2::RE2::Latin1);
  temporary_name found;
  if (!re2::RE2::FullMatch(name, pattern, &found.stem, &found.host, &found.process)) return std::nullopt;
  return found;
}

fs::path discarded_name(const fs::path& temporary) {
  fs::path name = temporary;
  return name += fmt::format("-discarded-{}", ::getpid());
}

std::string kept_name(const fs::path& destination) {
  return fmt::format("{}.kept-{}", temporary_stem(destination), random_digits());
}

const std::string& this_host() {
  static const std::string digits = [] {
    std::string identity;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), identity);
    if (identity.empty()) identity = detail::host_name();
    return digits_of(identity, 8);
  }();
  return digits;
}

}  // namespace shardmesh
