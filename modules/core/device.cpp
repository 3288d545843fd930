// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.core;

namespace shardmesh {
namespace {

constexpr auto device_names = std::to_array<std::pair<std::string_view, device_type>>({
    {"cpu", device_type::cpu},
    {"cuda", device_type::cuda},
    {"hip", device_type::hip},
    {"xpu", device_type::xpu},
    {"mps", device_type::mps},
    {"hpu", device_type::hpu},
    {"meta", device_type::meta},
    {"other", device_type::other},
});

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::string to_string(const device& d) {
  const std::string_view type = device_names[static_cast<std::size_t>(d.type)].first;
  return d.index < 0 ? std::string(type) : fmt::format("{}:{}", type, d.index);
}

result<device> parse_device(std::string_view text) {
  const auto colon = text.find(':');
  for (const auto& [spelling, type] : device_names) {
    if (text.substr(0, colon) != spelling) continue;
    if (colon == std::string_view::npos) return device{type, -1};
    if (const auto index = parse_number<std::int16_t>(text.substr(colon + 1))) return device{type, *index};
  }
  return fail(errc::invalid_argument, fmt::format("'{}' is not a device such as cpu or cuda:0", text));
}

std::string to_string(const remote_device& d) {
  if (d.rank) return fmt::format("rank:{}/{}", *d.rank, to_string(d.where));
  return d.worker.empty() ? to_string(d.where) : fmt::format("{}/{}", d.worker, to_string(d.where));
}

result<remote_device> parse_remote_device(std::string_view text) {
  const auto refuse = [&] {
    return fail(errc::invalid_argument, fmt::format("'{}' is not a remote device such as rank:1/cuda:0", text));
  };
  const auto slash = text.find('/');
  remote_device made;
  std::string_view owner = text;  // without a device, "worker0" and "rank:1" are on the CPU
  if (slash == std::string_view::npos) {
    if (auto here = parse_device(text)) return made.where = *here, made;
  } else {
    owner = text.substr(0, slash);
    auto where = parse_device(text.substr(slash + 1));
    if (!where) return refuse();
    made.where = *where;
  }
  if (owner.starts_with("rank:")) {
    made.rank = parse_number<std::int32_t>(owner.substr(5));
    if (!made.rank) return refuse();
    return made;
  }
  if (owner.empty() || owner.find(':') != std::string_view::npos) return refuse();
  return made.worker = owner, made;
}

}  // namespace shardmesh
