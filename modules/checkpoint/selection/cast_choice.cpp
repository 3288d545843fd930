// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <plural.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :cast_choice;

namespace shardmesh {
namespace {

constexpr std::int64_t named_keys = 20;  // keys named for each refused cast

bool is_floating_like(dtype type) {
  return is_floating(type) || type == dtype::float4_e2m1fn || type == dtype::float4_e2m1fn_x2 ||
         type == dtype::float6_e2m3 || type == dtype::float6_e3m2;
}

// True when the rule applies to tensors of this dtype, whatever their keys.
bool is_of(const cast_rule& rule, dtype type) {
  if (rule.from) return *rule.from == type;
  if (kind(rule.type) == dtype_kind::bits) return true;  // nothing converts to these: the cast is refused later
  if (kind(rule.type) != dtype_kind::floating) return kind(type) == kind(rule.type);
  return rule.what ? is_floating_like(type) : is_floating(type) && bits(type) >= 16;
}

// A cast to a smaller type of the same kind rounds, as its user expects. Every other lossy cast is damage.
bool is_rounding(dtype from, dtype to) {
  const dtype_kind of = kind(from);
  return of == kind(to) && (of == dtype_kind::floating || of == dtype_kind::complex);
}

// "int64 (3), bool (1)"
std::string counted(const std::map<dtype, std::int64_t>& types) {
  std::vector<std::string> parts;
  for (const auto& [type, count] : types) parts.push_back(fmt::format("{} ({})", name(type), count));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string_view kind_name(dtype type) {
  switch (kind(type)) {
    case dtype_kind::floating:
      return "floating";
    case dtype_kind::integer:
      return "integer";
    case dtype_kind::complex:
      return "complex";
    case dtype_kind::boolean:
      return "bool";
    case dtype_kind::bits:
      break;
  }
  return name(type);
}

// The largest finite value of an integer, floating, or complex dtype (of each part); 0 for others.
double largest(dtype type) {
  switch (type) {
    case dtype::float64:
    case dtype::complex128:
      return 1.7976931348623157e308;
    case dtype::float32:
    case dtype::complex64:
      return 3.4028234663852886e38;
    case dtype::bfloat16:
      return 3.3895313892515355e38;
    case dtype::float8_e8m0fnu:
      return 1.7014118346046923e38;
    case dtype::float16:
    case dtype::complex32:
      return 65504;
    case dtype::float8_e5m2:
    case dtype::float8_e5m2fnuz:
      return 57344;
    case dtype::float8_e4m3fn:
      return 448;
    case dtype::float8_e4m3fnuz:
      return 240;
    default:
      if (kind(type) != dtype_kind::integer) return 0;
      return std::ldexp(
          1.0,
          bits(type) -
              (type == dtype::int8 || type == dtype::int16 || type == dtype::int32 || type == dtype::int64 ? 1 : 0));
  }
}

// "; numbers beyond 65504 become infinity and are not counted"; empty where every value of `from` fits into `to`.
// Counting would read every element again, because casts are made in the one pass that moves the bytes.
std::string overflow_text(dtype from, dtype to) {
  if (kind(to) != dtype_kind::floating && kind(to) != dtype_kind::complex) return {};
  if (largest(to) == 0 || largest(from) <= largest(to)) return {};
  std::string_view becomes = "infinity";
  if (to == dtype::float8_e4m3fn) becomes = "448";
  if (to == dtype::float8_e4m3fnuz || to == dtype::float8_e5m2fnuz || to == dtype::float8_e8m0fnu) becomes = "NaN";
  return fmt::format("; numbers beyond {:.5g} become {} and are not counted", largest(to), becomes);
}

// "'w=int64:float32' casts int64": the rule, written for one of the dtypes that can be cast. Prefers any other dtype to
// bool.
std::string way_of_naming(const cast_rule& rule, const std::map<dtype, std::int64_t>& types) {
  std::optional<dtype> chosen;
  for (const auto& [type, count] : types)
    if (is_convertible(type, rule.type) && (!chosen || kind(*chosen) == dtype_kind::boolean)) chosen = type;
  if (!chosen) return {};
  return fmt::format("'{}{}{}:{}' casts {}", rule.what ? rule.what->text() : "", rule.what ? "=" : "", name(*chosen),
                     name(rule.type), name(*chosen));
}

}  // namespace

void cast_choice::key_count::add(std::string_view key) {
  if (count++ == 0) first = key;
}

cast_choice::cast_choice(const selection_options& options) : options_(options), uses_(options.cast.size()) {}

dtype cast_choice::type_of(const selectable& tensor) {
  std::optional<std::size_t> chosen;  // the rule that decides
  std::vector<std::size_t> passing;   // rules that match its key, but are for another kind
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    const cast_rule& rule = options_.cast[i];
    rule_use& use = uses_[i];
    const bool is_kind = is_of(rule, tensor.type);
    // A rule without a pattern selects by dtype alone.
    if (!rule.what && !is_kind) continue;
    if (chosen && (use.casts > 0 || use.earlier)) continue;
    if (rule.what && !rule.what->matches(tensor.key)) continue;
    use.is_matched = true;
    if (!is_kind) {
      passing.push_back(i);
    } else if (chosen) {
      use.earlier = chosen;
      use.taken = tensor.key;
    } else {
      ++use.casts;
      chosen = i;
    }
  }
  if (!chosen) {
    for (const std::size_t rule : passing) ++uses_[rule].left[tensor.type];
    return tensor.type;
  }
  const dtype to = options_.cast[*chosen].type;
  if (to != tensor.type) note_cast(tensor, to);
  return to;
}

void cast_choice::note_cast(const selectable& tensor, dtype to) {
  if (!is_convertible(tensor.type, to)) {
    errors_.push_back(
        fail(errc::invalid_argument, fmt::format("{} cannot be converted to {}", name(tensor.type), name(to)))
            .with_key(tensor.key));
    return;
  }
  if (widens(tensor.type, to)) return;
  if (is_rounding(tensor.type, to) || options_.allow_narrowing) return lossy_[{tensor.type, to}].add(tensor.key);
  key_count& refused = refused_[{tensor.type, to}];
  refused.add(tensor.key);
  if (refused.count <= named_keys)
    errors_.push_back(fail(errc::narrowing, fmt::format("casting {} to {} loses values", name(tensor.type), name(to)))
                          .with_key(tensor.key)
                          .with_hint("pass allow_narrowing to cast it anyway"));
}

bool cast_choice::matches_any(std::size_t rule) const {
  const cast_rule& one = options_.cast[rule];
  return uses_[rule].is_matched || (!one.what && !one.from);
}

void cast_choice::report_left(selection_result& into) const {
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    const rule_use& use = uses_[i];
    const cast_rule& rule = options_.cast[i];
    if (use.left.empty() || (rule.from && use.casts > 0)) continue;
    if (use.casts == 0 && use.earlier && !options_.allow_unused) continue;  // `report_shadowed` refuses it
    const std::string how = way_of_naming(rule, use.left);
    if (use.casts == 0 && !options_.allow_unused) {
      into.errors.push_back(fail(errc::invalid_argument,
                                 fmt::format("cast '{}' casts nothing: no tensor that it matches is {}",
                                             to_string(rule), rule.from ? name(*rule.from) : kind_name(rule.type)))
                                .with_values("", counted(use.left))
                                .with_hint(how + (how.empty() ? "" : "; ") + "pass allow_unused to ignore this"));
      continue;
    }
    std::int64_t total = 0;
    for (const auto& [type, count] : use.left) total += count;
    into.notes.push_back(fmt::format("the cast '{}' leaves {} as {}: {}{}{}", to_string(rule),
                                     detail::counted(total, "tensor"), total == 1 ? "it is" : "they are",
                                     counted(use.left), how.empty() ? "" : "; ", how));
  }
}

void cast_choice::report_shadowed(selection_result& into) const {
  if (options_.allow_unused) return;
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    const rule_use& use = uses_[i];
    const cast_rule& rule = options_.cast[i];
    if (use.casts > 0 || !use.earlier || (!rule.what && !rule.from)) continue;
    const std::string earlier = to_string(options_.cast[*use.earlier]);
    into.errors.push_back(
        fail(errc::invalid_argument, fmt::format("cast '{}' casts nothing: an earlier rule casts each tensor that it "
                                                 "would cast: '{}' casts {}",
                                                 to_string(rule), earlier, escaped(use.taken)))
            .with_hint(fmt::format("give it before '{}', or pass allow_unused to ignore this", earlier)));
  }
}

void cast_choice::report(selection_result& into) const {
  into.errors.insert(into.errors.end(), errors_.begin(), errors_.end());
  for (const auto& [made, keys] : refused_)
    if (const std::int64_t more = keys.count - named_keys; more > 0)
      into.errors.push_back(fail(errc::narrowing, fmt::format("casting {} to {} loses values of {}", name(made.from),
                                                              name(made.to), detail::counted(more, "more tensor"))));
  for (const auto& [made, keys] : lossy_)
    into.notes.push_back(fmt::format("{} cast from {} to {}, which does not hold every value of {}: {}{}{}",
                                     detail::counted(keys.count, "tensor is", "tensors are"), name(made.from),
                                     name(made.to), name(made.from), keys.first,
                                     keys.count == 1 ? "" : fmt::format(" and {} more", keys.count - 1),
                                     overflow_text(made.from, made.to)));
  report_left(into);
  report_shadowed(into);
}

}  // namespace shardmesh
