// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <plural.hpp>
#include <shardmesh/assert.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.core;

namespace shardmesh {
namespace {

class category_type final : public std::error_category {
 public:
  const char* name() const noexcept override { return "shardmesh"; }
  std::string message(int value) const override {
    switch (static_cast<errc>(value)) {
      case errc::ok:
        return "no error";
      case errc::invalid_argument:
        return "invalid argument";
      case errc::overflow:
        return "sizes do not fit in 64 bits";
      case errc::rank_too_large:
        return "too many dimensions";
      case errc::shape_mismatch:
        return "shape mismatch";
      case errc::dtype_mismatch:
        return "dtype mismatch";
      case errc::out_of_bounds:
        return "out of bounds";
      case errc::overlap:
        return "overlap";
      case errc::gap:
        return "gap";
      case errc::mixed_partial:
        return "mixed partial reductions";
      case errc::unaligned:
        return "a sub-byte type is cut inside a byte";
      case errc::narrowing:
        return "a narrowing cast was not allowed";
      case errc::no_memory:
        return "not enough memory";
      case errc::missing_key:
        return "missing key";
      case errc::duplicate_key:
        return "duplicate key";
      case errc::bad_format:
        return "malformed file";
      case errc::bad_pickle:
        return "malformed pickle";
      case errc::unsupported:
        return "not supported";
      case errc::checksum_mismatch:
        return "checksum mismatch";
      case errc::incomplete_save:
        return "incomplete save";
      case errc::unsafe_path:
        return "unsafe path";
      case errc::destination_exists:
        return "destination exists";
      case errc::io:
        return "input/output error";
      case errc::no_space:
        return "no space left";
      case errc::cancelled:
        return "cancelled";
      case errc::deadline_exceeded:
        return "deadline exceeded";
      case errc::disagreement:
        return "ranks disagree";
      case errc::communication:
        return "communication failed";
    }
    return "unknown error";
  }
};

}  // namespace

const std::error_category& category() noexcept {
  static const category_type the_category;
  return the_category;
}

std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), category()};
}

error error::with_key(std::string_view name) && {
  return key = name, std::move(*this);
}
error error::with_file(std::string_view path) && {
  return file = printable_url(path), std::move(*this);
}
error error::with_rank(std::int32_t rank) && {
  return ranks.push_back(rank), std::move(*this);
}
error error::with_box(const box& b) && {
  return boxes.push_back(b), std::move(*this);
}
error error::with_values(std::string expected_value, std::string found_value) && {
  expected = std::move(expected_value);
  found = std::move(found_value);
  return std::move(*this);
}
error error::with_hint(std::string_view text) && {
  return hint = text, std::move(*this);
}

std::vector<error> error::problems() const {
  std::vector<error> all;
  all.reserve(1 + others.size());
  all.push_back(*this);
  all.front().others.clear();
  all.front().more = 0;
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::int64_t error::problem_count() const {
  return 1 + static_cast<std::int64_t>(others.size()) + more;
}

error fail(errc code, std::string message) {
  error e;
  e.code = code;
  e.message = std::move(message);
  return e;
}

error fail_all(std::vector<error> problems, std::int64_t more) {
  SHARDMESH_ASSERT(!problems.empty());
  error first = std::move(problems.front());
  std::vector<error> found = std::exchange(first.others, {});
  const auto keep = [&](error problem) {
    if (first.others.size() < error::max_others)
      first.others.push_back(std::move(problem));
    else
      ++more;
  };
  more += std::exchange(first.more, 0);
  for (error& other : found) keep(std::move(other));
  for (auto problem = problems.begin() + 1; problem != problems.end(); ++problem) {
    found = std::exchange(problem->others, {});
    more += std::exchange(problem->more, 0);
    keep(std::move(*problem));
    for (error& other : found) keep(std::move(other));
  }
  first.more = more;
  return first;
}

error fail_sys(int sys, std::string_view action, std::string_view file) {
  error e = fail(sys == ENOSPC || sys == EDQUOT ? errc::no_space : errc::io,
                 fmt::format("{}: {}", action, std::strerror(sys)));
  e.sys = sys;
  e.file = printable_url(file);
  return e;
}

std::string to_string(const error& e) {
  std::string text;
  const auto out = std::back_inserter(text);
  if (!e.file.empty()) fmt::format_to(out, "{}: ", escaped(e.file));
  if (!e.key.empty()) fmt::format_to(out, "{}: ", escaped(e.key));
  text += e.message.empty() ? category().message(static_cast<int>(e.code)) : escaped(e.message);
  std::string_view link = " in ";
  for (const box& where : e.boxes) {
    if (where.rank() == 0) continue;  // a number is its only box
    fmt::format_to(out, "{}{}", std::exchange(link, " and "), to_string(where));
  }
  if (!e.ranks.empty()) fmt::format_to(out, " (rank{} {})", e.ranks.size() == 1 ? "" : "s", fmt::join(e.ranks, ", "));
  if (!e.expected.empty()) fmt::format_to(out, ": expected {}", escaped(e.expected));
  if (!e.found.empty()) fmt::format_to(out, "{} found {}", e.expected.empty() ? ":" : ",", escaped(e.found));
  if (!e.hint.empty()) fmt::format_to(out, "; {}", escaped(e.hint));
  if (e.problem_count() > 1) fmt::format_to(out, " (and {})", detail::counted(e.problem_count() - 1, "other problem"));
  return text;
}

exception::exception(error_type e) : error_(std::move(e)), text_(to_string(error_)) {}

error detail::caught_error() {
  try {
    throw;
  } catch (const exception& e) {
    return e.error();
  } catch (const std::bad_alloc&) {
    error made = fail(errc::no_memory, "there is not enough memory");
    made.sys = ENOMEM;
    return made;
  } catch (const std::exception& e) {
    return fail(errc::invalid_argument, fmt::format("an exception was thrown: {}", e.what()));
  } catch (...) {
    return fail(errc::invalid_argument, "an unknown exception was thrown");
  }
}

}  // namespace shardmesh
