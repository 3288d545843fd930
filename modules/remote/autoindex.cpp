// SPDX-License-Identifier: Apache-2.0
module;
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :http_store_parts;

namespace shardmesh::remote {
namespace {

error no_listing(const std::string& url) {
  return fail(errc::unsupported, "the server sends no listing that can be read")
      .with_file(printable_url(url))
      .with_values("the JSON of nginx's autoindex", "another document")
      .with_hint("name a file, or a folder with model.safetensors.index.json or .metadata");
}

bool is_member_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

result<std::vector<stored_object>> parse_autoindex(std::string_view text, const std::string& url) {
  if (!check_json_depth(text)) return no_listing(url);
  const auto listed = nlohmann::json::parse(text, nullptr, false);
  if (!listed.is_array()) return no_listing(url);
  std::vector<stored_object> made;
  for (const auto& one : listed) {
    if (!one.is_object()) return no_listing(url);
    const auto name = one.find("name"), type = one.find("type"), size = one.find("size");
    if (name == one.end() || !name->is_string() || type == one.end() || !type->is_string()) return no_listing(url);
    const auto& kind = type->get_ref<const std::string&>();
    stored_object object{name->get<std::string>(), kind == "directory", 0, {}};
    if (!is_member_name(object.name))
      return fail(errc::bad_format, "the listing has a name that leaves its folder")
          .with_file(printable_url(url))
          .with_values("a name without \"/\"", object.name);
    if (!object.is_folder) {
      if (kind != "file") continue;  // a device or a socket
      if (size == one.end() || !size->is_number_integer() || size->get<std::int64_t>() < 0) return no_listing(url);
      object.size_bytes = size->get<std::int64_t>();
    }
    made.push_back(std::move(object));
  }
  std::sort(made.begin(), made.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return made;
}

}  // namespace shardmesh::remote
