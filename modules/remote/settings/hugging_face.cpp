// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :endpoint_url;
import :secret_file;
import :text_parts;

namespace shardmesh::remote {
namespace {

constexpr std::int64_t most_token_bytes = std::int64_t{64} << 10;

result<hugging_face_token> token_of(std::string_view text, std::string source) {
  text = trimmed(text);
  if (text.empty()) return hugging_face_token{};
  if (std::any_of(text.begin(), text.end(), [](char c) { return is_control(c) || c == ' '; }))
    return fail(errc::invalid_argument,
                fmt::format("the Hugging Face token of {} has a space or a control character", source))
        .with_hint("write the token alone");
  return hugging_face_token{secret(text), std::move(source)};
}

// The path of the token's file; empty without a home folder.
std::filesystem::path token_file(const environment& variables) {
  if (const std::string_view path = variables.variable("HF_TOKEN_PATH"); !path.empty()) return variables.expanded(path);
  if (const std::string_view home = variables.variable("HF_HOME"); !home.empty())
    return variables.expanded(home) / "token";
  if (const std::string_view cache = variables.variable("XDG_CACHE_HOME"); !cache.empty())
    return variables.expanded(cache) / "huggingface" / "token";
  if (variables.variable("HOME").empty()) return {};
  return variables.expanded("~/.cache/huggingface/token");
}

}  // namespace

result<hugging_face_token> find_hugging_face_token(const environment& variables) {
  constexpr const char* disabled = "HF_HUB_DISABLE_IMPLICIT_TOKEN";
  SHARDMESH_TRY(const bool is_disabled, parse_switch(variables.variable(disabled), disabled));
  if (is_disabled) return hugging_face_token{};
  for (const char* const name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (const std::string_view text = variables.variable(name); !trimmed(text).empty()) return token_of(text, name);
  const std::filesystem::path file = token_file(variables);
  if (file.empty()) return hugging_face_token{};
  const auto text = read_secret_file(file, most_token_bytes);
  if (!text) {
    if (text.error().sys == ENOENT || text.error().sys == ENOTDIR) return hugging_face_token{};
    return text.error();
  }
  return token_of(text->reveal(), variables.shown(file));
}

result<std::string> choose_hugging_face_endpoint(std::string_view given, const environment& variables) {
  const std::string_view chosen = given.empty() ? variables.variable("HF_ENDPOINT") : given;
  if (chosen.empty()) return std::string("https://huggingface.co");
  SHARDMESH_TRY(const endpoint_url url, parse_endpoint_url(chosen, given.empty() ? "HF_ENDPOINT" : "the hub"));
  if (url.rest.find('?') != std::string::npos)
    return fail(errc::invalid_argument, "the URL of the hub has a query").with_hint("write https://HOST");
  std::string made = url.origin() + url.rest;
  while (made.ends_with('/')) made.pop_back();
  return made;
}

}  // namespace shardmesh::remote
