// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh {
namespace {

constexpr std::int64_t last_int = std::numeric_limits<std::int32_t>::max();
// A count of dropped problems up to this one cannot overflow `error::problem_count`.
constexpr std::int64_t most_dropped = std::numeric_limits<std::int64_t>::max() / 2;

// One problem, without its others.
void write_problem(detail::wire_writer& out, const error& e) {
  out.number(static_cast<std::int64_t>(e.code));
  out.number(e.sys);
  for (const std::string* text : {&e.message, &e.key, &e.file, &e.expected, &e.found, &e.hint}) out.text(*text);
  out.number(static_cast<std::int64_t>(e.ranks.size()));
  for (const std::int32_t rank : e.ranks) out.number(rank);
  out.number(static_cast<std::int64_t>(e.boxes.size()));
  for (const box& b : e.boxes) out.where(b);
}

error read_problem(detail::wire_reader& in) {
  error e;
  e.code = static_cast<errc>(in.in_range(1, static_cast<std::int64_t>(errc::communication)));
  e.sys = static_cast<int>(in.in_range(-last_int, last_int));
  for (std::string* text : {&e.message, &e.key, &e.file, &e.expected, &e.found, &e.hint}) *text = in.text();
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left)
    e.ranks.push_back(static_cast<std::int32_t>(in.in_range(-last_int, last_int)));
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) e.boxes.push_back(in.where());
  return e;
}

}  // namespace

std::vector<std::byte> to_bytes(const error& e) {
  detail::wire_writer out;
  write_problem(out, e);
  const std::size_t sent = std::min(e.others.size(), error::max_others);
  out.number(e.more + static_cast<std::int64_t>(e.others.size() - sent));
  out.number(static_cast<std::int64_t>(sent));
  for (const error& other : std::span(e.others).first(sent)) write_problem(out, other);
  return std::move(out).take();
}

std::optional<error> error_from_bytes(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  error e = read_problem(in);
  e.more = in.in_range(0, most_dropped);
  // The memory grows with the problems that are read, not with the count.
  for (std::int64_t left = in.in_range(0, static_cast<std::int64_t>(error::max_others)); left > 0 && in.ok(); --left)
    e.others.push_back(read_problem(in));
  return in.finished() ? std::optional(std::move(e)) : std::nullopt;
}

error detail::reported_by(error e, std::int32_t rank) {
  const auto report = [&](error& problem) {
    if (problem.ranks.empty() && problem.code != errc::gap) problem.ranks.push_back(rank);
  };
  report(e);
  for (error& other : e.others) report(other);
  return e;
}

}  // namespace shardmesh
