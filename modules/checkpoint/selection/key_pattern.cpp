// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <re2/re2.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

re2::RE2::Options options(re2::RE2::Options::Encoding encoding) {
  re2::RE2::Options made;
  made.set_encoding(encoding);
  made.set_log_errors(false);
  made.set_dot_nl(true);  // a key may hold a newline
  return made;
}

error refused(std::string_view expression, std::string_view why) {
  return fail(errc::invalid_argument, fmt::format("'{}': {}", expression, why));
}

// The one key that an expression matches, if its only special characters are dots, which are common in keys.
std::optional<std::string> plain_name(std::string_view expression) {
  std::string name;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] == '\\' && i + 1 < expression.size() && expression[i + 1] == '.') ++i;
    if (std::string_view("\\^$|?*+()[]{}").find(expression[i]) != std::string_view::npos) return std::nullopt;
    name += expression[i];
  }
  return name;
}

}  // namespace

// The expression, compiled for UTF-8 keys and for keys of arbitrary bytes.
struct key_pattern::compiled {
  explicit compiled(std::string_view expression)
      : text(expression), bytes(text, options(re2::RE2::Options::EncodingLatin1)) {
    if (is_utf8(text)) utf8.emplace(text, options(re2::RE2::Options::EncodingUTF8));
  }
  const re2::RE2& of(std::string_view key) const { return utf8 && is_utf8(key) ? *utf8 : bytes; }

  std::string text;
  re2::RE2 bytes;
  std::optional<re2::RE2> utf8;
};

result<key_pattern> key_pattern::compile(std::string_view expression) {
  auto made = std::make_shared<const compiled>(expression);
  if (made->utf8 && !made->utf8->ok()) return refused(expression, made->utf8->error());
  if (!made->bytes.ok()) return refused(expression, made->bytes.error());
  key_pattern pattern;
  pattern.compiled_ = std::move(made);
  return pattern;
}

key_pattern key_pattern::exactly(std::string_view key) {
  key_pattern pattern;
  pattern.compiled_ = std::make_shared<const compiled>(re2::RE2::QuoteMeta(re2::StringPiece(key.data(), key.size())));
  return pattern;
}

bool key_pattern::matches(std::string_view key) const {
  if (!compiled_) return key.empty();
  return re2::RE2::FullMatch(re2::StringPiece(key.data(), key.size()), compiled_->of(key));
}

std::optional<std::string> key_pattern::rewritten(std::string_view key, const std::string& replacement) const {
  if (!compiled_) return key.empty() ? std::optional(replacement) : std::nullopt;
  const re2::RE2& expression = compiled_->of(key);
  std::array<re2::StringPiece, 10> groups;  // \0 to \9 are all that a rewrite can name
  const int count = std::min(expression.NumberOfCapturingGroups() + 1, 10);
  const re2::StringPiece piece(key.data(), key.size());
  if (!expression.Match(piece, 0, piece.size(), re2::RE2::ANCHOR_BOTH, groups.data(), count)) return std::nullopt;
  std::string made;
  if (!expression.Rewrite(&made, replacement, groups.data(), count)) return std::nullopt;
  return made;
}

result<void> key_pattern::check_replacement(std::string_view replacement) const {
  const re2::StringPiece piece(replacement.data(), replacement.size());
  std::string why;
  if (!compiled_) return {};
  if (compiled_->utf8 && !compiled_->utf8->CheckRewriteString(piece, &why)) return refused(text(), why);
  if (!compiled_->bytes.CheckRewriteString(piece, &why)) return refused(text(), why);
  return {};
}

const std::string& key_pattern::text() const {
  static const std::string none;
  return compiled_ ? compiled_->text : none;
}

std::string suggestion(const key_pattern& unused, std::span<const std::string_view> keys) {
  const auto name = plain_name(unused.text());
  const std::string meant = name ? did_you_mean(nearest_key(keys, *name)) : std::string();
  return meant.empty() ? meant : meant + " ";
}

}  // namespace shardmesh
