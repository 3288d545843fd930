// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :hf_place;
import :url_text;

namespace shardmesh::remote {
namespace {

using parts = std::vector<std::string>;

parts parts_between_slashes(std::string_view text) {
  parts made;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('/'), text.size());
    if (end != 0) made.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return made;
}

std::string joined(const parts& all, std::size_t from) {
  std::string made;
  for (std::size_t i = from; i < all.size(); ++i) made += (made.empty() ? "" : "/") + all[i];
  return made;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

bool is_name(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && std::all_of(text.begin(), text.end(), is_name_char);
}

error bad_place(std::string_view url, std::string_view found) {
  return fail(errc::invalid_argument, "is not a place in a repository")
      .with_file(url)
      .with_values("hf://owner/name@revision/path", std::string(found));
}

}  // namespace

std::string hf_place::folder() const {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string hf_place::last_name() const {
  const std::string& whole = path.empty() ? repository : path;
  const std::size_t slash = whole.rfind('/');
  return slash == std::string::npos ? whole : whole.substr(slash + 1);
}

result<hf_place> parse_hf_place(std::string_view url, function_ref<bool(const std::string& name)> is_ownerless) {
  constexpr std::string_view scheme = "hf://";
  if (!url.starts_with(scheme)) return bad_place(url, url);
  parts all = parts_between_slashes(url.substr(scheme.size()));
  if (all.empty()) return bad_place(url, url);
  if (all.size() > 1 && (all[0] == "datasets" || all[0] == "spaces"))
    return fail(errc::unsupported, "only repositories of models are read")
        .with_file(url)
        .with_values("a model", all[0]);

  // "@" ends the repository's name, which has one part or two.
  const bool has_owner = all.size() > 1 && all[0].find('@') == std::string::npos && !is_ownerless(all[0]);
  const std::size_t last = has_owner ? 1 : 0;
  hf_place made;
  std::size_t next = last + 1;
  if (const std::size_t at = all[last].find('@'); at != std::string::npos) {
    made.revision = decoded(all[last].substr(at + 1));
    all[last].resize(at);
    if (made.revision.empty()) return bad_place(url, "an empty revision");
    // The names of pull requests and conversions have slashes.
    const bool is_reference = made.revision == "refs" && all.size() > next + 1;
    if (is_reference && (all[next] == "pr" || all[next] == "convert")) {
      made.revision += "/" + all[next] + "/" + all[next + 1];
      next += 2;
    }
  } else {
    made.revision = "main";
  }
  for (std::size_t i = 0; i <= last; ++i)
    if (!is_name(all[i]))  // the text around ":" may be a secret
      return bad_place(url, all[i].find(':') == std::string::npos ? all[i] : "a name with a \":\"");
  made.repository = has_owner ? all[0] + "/" + all[1] : all[0];
  made.path = joined(all, next);
  for (std::size_t i = next; i < all.size(); ++i)
    if (all[i] == "." || all[i] == "..") return bad_place(url, made.path);
  return made;
}

}  // namespace shardmesh::remote
