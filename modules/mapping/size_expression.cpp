// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {

error size_expression::refuse(errc code, std::string message) const {
  return fail(code, fmt::format("{} in the expression '{}'", message, text_));
}

result<std::int64_t> size_expression::evaluate(const named_sizes& sizes) const {
  return value_of(nodes_.size() - 1, sizes);
}

result<std::int64_t> size_expression::size_named(const std::string& name, const named_sizes& sizes) const {
  const auto found = sizes.find(name);
  if (found != sizes.end()) return found->second;
  return refuse(errc::missing_key, fmt::format("the size '{}' is unknown", name))
      .with_hint(fmt::format("pass {}=VALUE as a size, or add it to [sizes]", name));
}

result<std::int64_t> size_expression::value_of(std::size_t index, const named_sizes& sizes) const {
  const node& here = nodes_[index];
  if (here.what == operation::number) return here.number;
  if (here.what == operation::name) return size_named(here.name, sizes);
  if (here.what == operation::element) {
    SHARDMESH_TRY(const std::int64_t at, value_of(here.left, sizes));
    const std::string_view name = here.name;
    const std::size_t bracket = name.find('[') + 1;
    return size_named(fmt::format("{}{}{}", name.substr(0, bracket), at, name.substr(bracket)), sizes);
  }
  // Common, and without the text of an error: a name that may be missing.
  if (const node& left = nodes_[here.left]; here.what == operation::otherwise && left.what == operation::name) {
    const auto found = sizes.find(left.name);
    return found != sizes.end() ? result<std::int64_t>(found->second) : value_of(here.right, sizes);
  }
  auto first = value_of(here.left, sizes);
  if (here.what == operation::otherwise)
    return first || first.error().code != errc::missing_key ? std::move(first) : value_of(here.right, sizes);
  if (!first) return first;
  const std::int64_t a = *first;
  if (here.what == operation::logical_not) return a == 0 ? 1 : 0;
  if (here.what == operation::logical_or && a != 0) return 1;
  if (here.what == operation::logical_and && a == 0) return 0;
  if (here.what == operation::negate) return combine(operation::multiply, a, -1);
  SHARDMESH_TRY(const std::int64_t b, value_of(here.right, sizes));
  return combine(here.what, a, b);
}

result<std::int64_t> size_expression::combine(operation what, std::int64_t a, std::int64_t b) const {
  const bool divides = what == operation::divide || what == operation::divide_down || what == operation::remainder;
  if (divides && b <= 0)
    return refuse(errc::invalid_argument, "the divisor must be positive")
        .with_values("1 or more", fmt::format("{}", b));
  std::optional<std::int64_t> value;
  switch (what) {
    case operation::logical_or:
    case operation::logical_and:
      return b != 0 ? 1 : 0;
    case operation::equal:
      return a == b ? 1 : 0;
    case operation::unequal:
      return a != b ? 1 : 0;
    case operation::less:
      return a < b ? 1 : 0;
    case operation::less_equal:
      return a <= b ? 1 : 0;
    case operation::add:
      value = checked_add(a, b);
      break;
    case operation::subtract:
      if (const auto negative = checked_multiply(b, -1)) value = checked_add(a, *negative);
      break;
    case operation::multiply:
      value = checked_multiply(a, b);
      break;
    case operation::divide:
      if (a % b != 0)
        return refuse(errc::invalid_argument, "a division has a remainder")
            .with_values(fmt::format("a multiple of {}", b), fmt::format("{}", a));
      return a / b;
    case operation::divide_down:
      return a / b - (a % b < 0 ? 1 : 0);
    case operation::remainder:
      return a % b < 0 ? a % b + b : a % b;
    default:
      break;
  }
  if (!value) return refuse(errc::overflow, "a value does not fit in 64 bits");
  return *value;
}

std::vector<std::string> size_expression::names() const {
  std::vector<std::string> found;
  for (const node& one : nodes_)
    if ((one.what == operation::name || one.what == operation::element) &&
        std::find(found.begin(), found.end(), one.name) == found.end())
      found.push_back(one.name);
  return found;
}

const std::string* size_expression::as_name() const {
  return nodes_.size() == 1 && nodes_[0].what == operation::name ? &nodes_[0].name : nullptr;
}

}  // namespace shardmesh
