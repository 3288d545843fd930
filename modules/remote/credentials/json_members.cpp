// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :json_members;

namespace shardmesh::remote {
namespace {

// The document has copies of the secrets.
void wipe_strings(nlohmann::json& value) {
  if (value.is_string()) wipe(value.get_ref<std::string&>());
  if (value.is_structured())
    for (nlohmann::json& one : value) wipe_strings(one);
}

secret_members members_of(const nlohmann::json& object) {
  secret_members made;
  for (auto at = object.begin(); at != object.end(); ++at) {
    if (at.value().is_string())
      made[at.key()] = secret(at.value().get_ref<const std::string&>());
    else if (at.value().is_number())
      made[at.key()] = secret(at.value().dump());
  }
  return made;
}

}  // namespace

result<secret_members> json_members(std::string_view text, std::string_view inner, std::string_view what) {
  if (auto checked = check_json_depth(text, 64); !checked) {
    error why = std::move(checked).error();
    why.message = fmt::format("{}: {}", what, why.message);
    return why;
  }
  nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.is_object()) {
    wipe_strings(document);
    return fail(errc::bad_format, fmt::format("{} is not a JSON object", what));
  }
  const nlohmann::json* object = &document;
  if (!inner.empty()) {
    const auto at = document.find(std::string(inner));
    object = at == document.end() || !at->is_object() ? nullptr : &*at;
  }
  secret_members made;
  if (object != nullptr) made = members_of(*object);
  wipe_strings(document);
  if (object == nullptr) return fail(errc::bad_format, fmt::format("{} lacks the object {}", what, inner));
  return made;
}

std::string_view member(const secret_members& members, std::string_view name) noexcept {
  const auto at = members.find(name);
  return at == members.end() ? std::string_view{} : at->second.reveal();
}

result<aws_credentials> credentials_of(const secret_members& members, const credential_names& names,
                                       std::string_view what) {
  for (const std::string_view name : {names.access_key, names.secret_key})
    if (member(members, name).empty()) return fail(errc::bad_format, fmt::format("{} lacks the member {}", what, name));
  aws_credentials made;
  made.access_key = member(members, names.access_key);
  made.secret_key = secret(member(members, names.secret_key));
  made.session_token = secret(member(members, names.session_token));
  const std::string_view expiration = member(members, names.expiration);
  if (expiration.empty()) return made;
  made.expires = parse_utc_time(expiration);
  if (!made.expires)
    return fail(errc::bad_format, fmt::format("{} has a malformed time in the member {}", what, names.expiration))
        .with_values("a time such as 2026-11-24T10:00:00Z", shortened(escaped(expiration), 40));
  return made;
}

}  // namespace shardmesh::remote
