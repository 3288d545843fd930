// SPDX-License-Identifier: Apache-2.0
// Counts the problems and costs of parsing.
module;
#include <fmt/core.h>

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

void parse_account::refuse(error e, std::string_view key) {
  refusal_ = std::move(e).with_file(file_).with_key(key.substr(0, 200));
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
