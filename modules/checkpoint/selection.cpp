// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <re2/re2.h>
#include <try.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.catalog;

namespace shardmesh {
namespace {

// One expression, compiled for UTF-8 keys and for keys that are any bytes.
class pattern {
 public:
  static result<pattern> compile(std::string_view option, const std::string& text, std::string_view replacement = {}) {
    pattern made;
    made.text_ = text;
    made.bytes_ = std::make_unique<re2::RE2>(text, options(re2::RE2::Options::EncodingLatin1));
    if (is_utf8(text)) made.utf8_ = std::make_unique<re2::RE2>(text, options(re2::RE2::Options::EncodingUTF8));
    for (const re2::RE2* compiled : {made.utf8_.get(), made.bytes_.get()}) {
      if (compiled == nullptr) continue;
      std::string problem;
      if (!compiled->ok())
        problem = compiled->error();
      else if (compiled->CheckRewriteString(replacement, &problem))
        continue;
      return fail(errc::invalid_argument, fmt::format("{} '{}': {}", option, text, problem));
    }
    return made;
  }

  bool matches(std::string_view key) const {
    return re2::RE2::FullMatch(re2::StringPiece(key.data(), key.size()), *of(key));
  }

  // What the key becomes, or nothing when it does not match.
  std::optional<std::string> rewritten(std::string_view key, const std::string& replacement) const {
    const re2::RE2& compiled = *of(key);
    std::array<re2::StringPiece, 10> groups;  // \0 to \9 are all that a rewrite can name
    const int count = std::min(compiled.NumberOfCapturingGroups() + 1, 10);
    const re2::StringPiece piece(key.data(), key.size());
    if (!compiled.Match(piece, 0, piece.size(), re2::RE2::ANCHOR_BOTH, groups.data(), count)) return std::nullopt;
    std::string made;
    if (!compiled.Rewrite(&made, replacement, groups.data(), count)) return std::nullopt;
    return made;
  }

  const std::string& text() const { return text_; }

 private:
  static re2::RE2::Options options(re2::RE2::Options::Encoding encoding) {
    re2::RE2::Options made;
    made.set_encoding(encoding);
    made.set_log_errors(false);
    made.set_dot_nl(true);  // a key may hold a newline; "." is any character of it
    return made;
  }
  const re2::RE2* of(std::string_view key) const { return utf8_ && is_utf8(key) ? utf8_.get() : bytes_.get(); }

  std::string text_;
  std::unique_ptr<re2::RE2> utf8_, bytes_;
};

struct rename_rule {
  pattern what;
  std::string replacement, option;
};
struct dtype_rule {
  std::optional<pattern> what;  // nothing: every floating tensor
  dtype type;
  std::string option;
};

struct split_option {
  std::string left, right;
};
std::optional<split_option> split(const std::string& option) {
  const std::size_t at = option.rfind('=');
  if (at == std::string::npos) return std::nullopt;
  return split_option{option.substr(0, at), option.substr(at + 1)};
}

// What a plain --dtype NAME casts: not FP8, FP4 and the like, which were chosen by hand.
bool is_wide_float(dtype type) {
  return kind(type) == dtype_kind::floating && bits(type) >= 16;
}

}  // namespace

struct selection::rules {
  std::vector<pattern> only, skip;
  bool no_optimizer = false, allow_unused = false;
  std::string strip_prefix;
  std::vector<rename_rule> rename;
  std::vector<dtype_rule> dtypes;
};

selection::selection() : rules_(std::make_unique<rules>()) {}
selection::selection(selection&&) noexcept = default;
selection& selection::operator=(selection&&) noexcept = default;
selection::~selection() = default;

result<selection> selection::compile(const selection_options& options) {
  selection made;
  rules& r = *made.rules_;
  for (const std::string& text : options.only) {
    SHARDMESH_TRY(pattern p, pattern::compile("--only", text));
    r.only.push_back(std::move(p));
  }
  for (const std::string& text : options.skip) {
    SHARDMESH_TRY(pattern p, pattern::compile("--skip", text));
    r.skip.push_back(std::move(p));
  }
  for (const std::string& text : options.rename) {
    const auto parts = split(text);
    if (!parts) return fail(errc::invalid_argument, fmt::format("--rename '{}' is not RE=REPLACEMENT", text));
    SHARDMESH_TRY(pattern p, pattern::compile("--rename", parts->left, parts->right));
    r.rename.push_back({std::move(p), parts->right, text});
  }
  for (const std::string& text : options.dtype) {
    const auto parts = split(text);
    const std::string& spelled = parts ? parts->right : text;
    const auto type = parse_dtype(spelled);
    if (!type || *type == dtype::undefined)
      return fail(errc::invalid_argument, fmt::format("--dtype '{}': no dtype is called {}", text, spelled));
    std::optional<pattern> what;
    if (parts) {
      SHARDMESH_TRY(pattern p, pattern::compile("--dtype", parts->left));
      what = std::move(p);
    }
    r.dtypes.push_back({std::move(what), *type, text});
  }
  r.no_optimizer = options.no_optimizer;
  r.allow_unused = options.allow_unused;
  r.strip_prefix = options.strip_prefix;
  return made;
}

bool selection::keeps_everything() const {
  const rules& r = *rules_;
  return r.only.empty() && r.skip.empty() && !r.no_optimizer && r.strip_prefix.empty() && r.rename.empty() &&
         r.dtypes.empty();
}

namespace {

// Rules that were asked and matched, by position.
class usage {
 public:
  explicit usage(std::size_t rules) : used_(rules) {}
  // True when any matches; asks every one, since each must be seen to match something.
  bool any_matches(const std::vector<pattern>& patterns, std::string_view key) {
    bool any = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (any && used_[i]) continue;
      if (!patterns[i].matches(key)) continue;
      used_[i] = any = true;
    }
    return any;
  }
  void mark(std::size_t rule) { used_[rule] = true; }
  bool is_used(std::size_t rule) const { return used_[rule]; }

 private:
  std::vector<bool> used_;
};

std::string new_name(std::string_view key, std::string_view prefix, const std::vector<rename_rule>& rules, usage& used,
                     bool& prefix_used) {
  if (!prefix.empty() && key.starts_with(prefix)) {
    key.remove_prefix(prefix.size());
    prefix_used = true;
  }
  std::string made(key);
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (auto rewritten = rules[i].what.rewritten(made, rules[i].replacement)) {
      used.mark(i);
      made = *std::move(rewritten);
    }
  return made;
}

dtype new_type(const selectable& s, const std::vector<dtype_rule>& rules, usage& used) {
  std::optional<dtype> chosen;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (!rules[i].what) {
      used.mark(i);
      if (!chosen && is_wide_float(s.type)) chosen = rules[i].type;
    } else if ((!chosen || !used.is_used(i)) && rules[i].what->matches(s.key)) {
      used.mark(i);
      if (!chosen) chosen = rules[i].type;
    }
  }
  return chosen.value_or(s.type);
}

}  // namespace

selection_result selection::apply(std::span<const selectable> keys) const {
  const rules& r = *rules_;
  selection_result found;
  usage only(r.only.size()), skip(r.skip.size()), rename(r.rename.size()), dtypes(r.dtypes.size());
  bool prefix_used = r.strip_prefix.empty();
  key_roles roles;
  if (r.no_optimizer)
    for (const selectable& s : keys) roles.add(s.key);
  std::unordered_map<std::string, std::size_t> taken;  // new name -> position in `kept`
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const selectable& s = keys[i];
    const bool wanted = only.any_matches(r.only, s.key) || r.only.empty();
    const bool skipped = skip.any_matches(r.skip, s.key);
    if (!wanted || skipped || (r.no_optimizer && roles.role_of(s.key) == key_role::optimizer)) {
      ++found.excluded;
      continue;
    }
    selected kept{i, new_name(s.key, r.strip_prefix, r.rename, rename, prefix_used), s.type};
    if (s.is_tensor) kept.type = new_type(s, r.dtypes, dtypes);
    if (kept.type != s.type && !is_convertible(s.type, kept.type))
      found.errors.push_back(
          fail(errc::invalid_argument, fmt::format("{} cannot be converted to {}", name(s.type), name(kept.type)))
              .with_key(s.key));
    const auto [other, is_new] = taken.emplace(kept.key, found.kept.size());
    if (!is_new)
      found.errors.push_back(
          fail(errc::invalid_argument, fmt::format("{} and {} would both be called {}",
                                                   keys[found.kept[other->second].index].key, s.key, kept.key))
              .with_key(kept.key));
    found.kept.push_back(std::move(kept));
  }
  if (r.allow_unused) return found;
  const auto unused = [&](std::string_view option, std::string_view text) {
    found.errors.push_back(fail(errc::invalid_argument, fmt::format("{} '{}' matches no key", option, text))
                               .with_hint("--allow-unused lets it pass"));
  };
  for (std::size_t i = 0; i < r.only.size(); ++i)
    if (!only.is_used(i)) unused("--only", r.only[i].text());
  for (std::size_t i = 0; i < r.skip.size(); ++i)
    if (!skip.is_used(i)) unused("--skip", r.skip[i].text());
  if (!prefix_used) unused("--strip-prefix", r.strip_prefix);
  for (std::size_t i = 0; i < r.rename.size(); ++i)
    if (!rename.is_used(i)) unused("--rename", r.rename[i].option);
  for (std::size_t i = 0; i < r.dtypes.size(); ++i)
    if (r.dtypes[i].what && !dtypes.is_used(i)) unused("--dtype", r.dtypes[i].option);
  return found;
}

}  // namespace shardmesh
