// SPDX-License-Identifier: Apache-2.0
// Problems and costs of parsing.
module;
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :parse_account;

namespace shardmesh::dcp {
namespace {

constexpr std::size_t most_problems = 200;

}  // namespace

bool parse_account::spend(std::size_t bytes, std::string_view key) {
  if (refusal_) return false;
  if (auto done = budget_.build(static_cast<std::int64_t>(bytes)); !done)
    refusal_ = std::move(done).error().with_file(file_).with_key(key.substr(0, 200));
  return !refusal_;
}

pickle::value parse_account::field(const pickle::value& object, std::string_view attribute) {
  const pickle::value state = object.state();
  if (state.size() > 16 && !spend(8 * state.size(), {})) return {};
  return object.attribute(attribute);
}

error& parse_account::problem(errc code, std::string message, std::string_view key) {
  return add(fail(code, std::move(message)), key);
}

void parse_account::problem(error e, std::string_view key) {
  add(std::move(e), key);
}

error& parse_account::add(error e, std::string_view key) {
  if (problems_.size() == most_problems) return ++unnamed_, spare_ = std::move(e);
  problems_.push_back(std::move(e).with_file(file_).with_key(key));
  return problems_.back();
}

std::vector<error> parse_account::take_problems() && {
  if (unnamed_ > 0)
    problems_.push_back(
        fail(errc::bad_format, fmt::format("{} more of its entries cannot be used", unnamed_)).with_file(file_));
  return std::move(problems_);
}

}  // namespace shardmesh::dcp
