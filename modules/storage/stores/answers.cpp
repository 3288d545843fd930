// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.storage;

import :answers;
import :remote_object;

namespace shardmesh {
namespace {

// The files by which readers recognise a folder, of every format. They are requested where a server lists no folders.
// This room knows nothing else about them.
constexpr auto described_names = std::to_array<std::string_view>({
    ".metadata",
    ".snapshot_metadata",
    "metadata.pkl",
    "model.safetensors.index.json",
    "model.safetensors",
    "adapter_model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "latest",
    "latest_universal",
    "latest_checkpointed_iteration.txt",
    "common.pt",
    "metadata.json",
    "objects.json",
    "config.json",
    "params.json",
    ".shardmesh_checksums",
});
constexpr int looks_at_a_time = 8;
constexpr int looks_before_list = 3;
constexpr std::size_t most_heads = 128;  // objects whose first bytes are kept

struct folder_answer {
  folder_list names;
  bool is_complete = true;  // false: only `described_names` were looked for
};

struct answer_table {
  std::map<std::string, std::optional<stored_object>, std::less<>> looks;  // by trimmed URL
  std::map<std::string, folder_answer, std::less<>> folders;               // by trimmed URL
  std::map<std::string, std::shared_ptr<remote_object>> opened;            // by URL
  std::map<std::string, error> unlisted;                                   // by origin: the store cannot list
  std::map<std::string, int> looks_in;                                     // by folder without a list
  std::deque<std::shared_ptr<remote_object>> heads;
  std::optional<error> failure;
};

thread_local answer_table* answers = nullptr;  // of this thread's scope, which owns it

bool is_denied(const error& problem) {
  return problem.sys == EACCES;
}

// Keeps an error that a reader could take for a missing file.
error noted(error problem) {
  const bool is_answer = problem.sys == ENOENT || is_denied(problem) || problem.code == errc::unsupported ||
                         problem.code == errc::bad_format;
  if (answers && !answers->failure && !is_answer) answers->failure = problem;
  return problem;
}

// "https://host" of "https://host/folder/name"
std::string origin_of(const std::string& url) {
  return url.substr(0, url.find('/', url.find("://") + 3));
}

// The last part of a URL without a query.
std::string_view last_part(std::string_view url) {
  const std::string_view text = trimmed(url);
  return text.substr(text.rfind('/') + 1);
}

// A name with a dot is taken for a file. A slash at the end says that it is a folder.
bool may_be_folder(std::string_view url) {
  return url.ends_with('/') || last_part(url).find('.') == std::string_view::npos;
}

error query_of_folder(const std::string& url) {
  return fail(errc::unsupported, "a URL with a query names one object, and this is a folder")
      .with_file(url)
      .with_hint("open the folder by its URL without the query");
}

result<void> check_names(const std::string& url, const std::vector<stored_object>& listed) {
  for (const stored_object& object : listed)
    if (object.name.empty() || object.name == "." || object.name == ".." ||
        object.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      return fail(errc::unsafe_path, "the store lists a name that no folder can hold")
          .with_file(url)
          .with_values("a name without slashes", object.name)
          .with_hint("rename the object, or open the checkpoint's files by their names");
  return {};
}

// Looks for the descriptions in a folder.
result<std::vector<stored_object>> described_objects(const store& handler, const std::string& url) {
  const std::string folder = std::string(trimmed(url)) + "/";
  std::vector<std::optional<stored_object>> looked(described_names.size());
  SHARDMESH_TRY(
      parallel_for(looks_at_a_time, static_cast<std::int64_t>(looked.size()), [&](std::int64_t i) -> result<void> {
        const auto at = static_cast<std::size_t>(i);
        auto one = handler.look(folder + std::string(described_names[at]));
        if (one)
          looked[at] = *std::move(one);
        else if (!is_denied(one.error()) && one.error().sys != ENOENT)
          return std::move(one).error();
        return {};
      }));
  std::vector<stored_object> found;
  for (std::size_t i = 0; i < looked.size(); ++i) {
    if (looked[i] && looked[i]->is_folder) looked[i].reset();
    if (looked[i]) {
      looked[i]->name = described_names[i];
      found.push_back(*looked[i]);
    }
    if (answers) answers->looks.insert_or_assign(folder + std::string(described_names[i]), std::move(looked[i]));
  }
  return found;
}

folder_answer answer_of(std::vector<stored_object> objects, bool is_complete) {
  const auto order = [](const stored_object& object) { return std::tie(object.name, object.is_folder); };
  std::sort(objects.begin(), objects.end(),
            [&](const stored_object& a, const stored_object& b) { return order(a) < order(b); });
  // An object and a folder may share a name; readers see the object.
  const auto is_same = [](const stored_object& a, const stored_object& b) { return a.name == b.name; };
  objects.erase(std::unique(objects.begin(), objects.end(), is_same), objects.end());
  return {std::make_shared<const std::vector<stored_object>>(std::move(objects)), is_complete};
}

result<folder_answer> fresh_list(const std::string& url) {
  if (has_query(url)) return query_of_folder(url);
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(url));
  const std::string origin = origin_of(url);
  std::optional<error> refusal;
  if (answers)
    if (const auto known = answers->unlisted.find(origin); known != answers->unlisted.end()) refusal = known->second;
  if (!refusal) {
    auto listed = handler->list(url);
    if (listed) {
      SHARDMESH_TRY(check_names(url, *listed));
      return answer_of(*std::move(listed), true);
    }
    refusal = std::move(listed).error();
    if (refusal->code != errc::unsupported && !is_denied(*refusal)) return *std::move(refusal);
    if (answers && refusal->code == errc::unsupported) answers->unlisted.emplace(origin, *refusal);
  }
  SHARDMESH_TRY(std::vector<stored_object> found, described_objects(*handler, url));
  if (found.empty()) return *std::move(refusal);
  return answer_of(std::move(found), false);
}

result<folder_answer> answer_of_folder(const std::string& url) {
  const std::string key(trimmed(url));
  if (answers)
    if (const auto known = answers->folders.find(key); known != answers->folders.end()) return known->second;
  auto fresh = fresh_list(url);
  if (!fresh) return noted(std::move(fresh).error());
  if (answers) answers->folders.insert_or_assign(key, *fresh);
  return fresh;
}

result<std::optional<stored_object>> fresh_look(const std::string& url) {
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(url));
  SHARDMESH_TRY(std::optional<stored_object> found, handler->look(url));
  if (found && found->is_folder && has_query(url)) return query_of_folder(url);
  if (found || has_query(url) || !may_be_folder(url)) return found;
  // A server that lists no folders does not know them either: the files in it show that there is one.
  const auto inside = answer_of_folder(url);
  if (!inside && inside.error().code != errc::unsupported && !is_denied(inside.error())) return inside.error();
  if (inside && !inside->is_complete)
    found = stored_object{.name = std::string(last_part(url)), .is_folder = true, .version = {}};
  return found;
}

// A URL's place in the list of its folder.
struct listed_place {
  const folder_answer* folder = nullptr;  // null: the folder was not listed
  const stored_object* object = nullptr;  // null: it has no such name
};

listed_place place_in_list(const std::string& url) {
  const std::size_t slash = url.rfind('/');
  if (slash < url.find("://") + 3) return {};
  const auto folder = answers->folders.find(std::string_view(url).substr(0, slash));
  if (folder == answers->folders.end()) return {};
  const std::string_view name = std::string_view(url).substr(slash + 1);
  const auto& names = *folder->second.names;
  const auto found = std::lower_bound(
      names.begin(), names.end(), name,
      [](const stored_object& object, std::string_view wanted) { return std::string_view(object.name) < wanted; });
  return {&folder->second, found != names.end() && found->name == name ? &*found : nullptr};
}

// Answers from the list of the folder, if there is one.
std::optional<std::optional<stored_object>> listed_answer(const std::string& url) {
  if (has_query(url)) return std::nullopt;
  const listed_place found = place_in_list(url);
  if (found.object != nullptr) return std::optional<std::optional<stored_object>>(std::in_place, *found.object);
  if (found.folder == nullptr || !found.folder->is_complete) return std::nullopt;
  return std::optional<std::optional<stored_object>>(std::in_place, std::nullopt);
}

// Refuses the URL of a listed file whose name the store does not take: it names another object, or none.
result<void> check_listed_name(const std::string& url) {
  if (!answers) return {};
  const listed_place found = place_in_list(url);
  if (found.object == nullptr) return {};
  return detail::check_name_in(url.substr(0, url.rfind('/')), found.object->name);
}

// Lists a folder after many requests about names in it: a format may keep each tensor in a file of its own.
void list_looked_in(const std::string& url) {
  const std::size_t slash = url.rfind('/');
  if (has_query(url) || slash < url.find("://") + 3) return;
  const std::string folder = url.substr(0, slash), origin = origin_of(url);
  if (++answers->looks_in[folder] != looks_before_list + 1 || answers->unlisted.contains(origin)) return;
  const auto handler = store_of(folder);
  if (!handler) return;
  auto listed = (*handler)->list(folder);
  if (listed && check_names(folder, *listed))
    answers->folders.insert_or_assign(folder, answer_of(*std::move(listed), true));
  else if (!listed && listed.error().code == errc::unsupported)
    answers->unlisted.emplace(origin, std::move(listed).error());
}

}  // namespace

bool has_query(std::string_view url) {
  return url.find('?') != std::string_view::npos;
}

std::string_view trimmed(std::string_view url) {
  if (has_query(url)) return url;
  const std::size_t begin = url.find("://") + 3;
  while (url.size() > begin && url.back() == '/') url.remove_suffix(1);
  return url;
}

result<std::optional<stored_object>> ask_look(const std::string& url) {
  const std::string key(trimmed(url));
  SHARDMESH_TRY(check_listed_name(key));
  if (answers) {
    if (const auto known = answers->looks.find(key); known != answers->looks.end()) return known->second;
    if (auto listed = listed_answer(key)) return *std::move(listed);
    list_looked_in(key);
    if (auto listed = listed_answer(key)) return *std::move(listed);
  }
  auto found = fresh_look(url);
  if (!found) return noted(std::move(found).error());
  if (answers) answers->looks.insert_or_assign(key, *found);
  return found;
}

result<folder_list> ask_list(const std::string& url) {
  SHARDMESH_TRY(folder_answer answer, answer_of_folder(url));
  return std::move(answer.names);
}

result<std::unique_ptr<byte_source>> ask_open(const std::string& url) {
  SHARDMESH_TRY(check_listed_name(url));
  if (answers)
    if (const auto known = answers->opened.find(url); known != answers->opened.end()) return source_of(known->second);
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(url));
  auto opened = handler->open(url);
  if (!opened) return noted(std::move(opened).error());
  SHARDMESH_TRY(std::unique_ptr<byte_source> source, through_cache(*std::move(opened), url));
  SHARDMESH_TRY(std::shared_ptr<remote_object> object, remote_object::make(std::move(source), printable_url(url)));
  if (answers) {
    object->keep_head(true);
    answers->heads.push_back(object);
    if (answers->heads.size() > most_heads) {
      answers->heads.front()->keep_head(false);
      answers->heads.pop_front();
    }
    answers->opened.emplace(url, object);
  }
  return source_of(std::move(object));
}

std::vector<std::pair<std::string, folder_list>> complete_lists() {
  std::vector<std::pair<std::string, folder_list>> made;
  if (answers)
    for (const auto& [url, folder] : answers->folders)
      if (folder.is_complete) made.emplace_back(url, folder.names);
  return made;
}

bool begin_answers() {
  if (answers) return false;
  answers = new answer_table;
  return true;
}

void end_answers() {
  for (const auto& object : answers->heads) object->keep_head(false);
  delete std::exchange(answers, nullptr);
}

std::optional<error> first_failure() {
  return answers ? answers->failure : std::nullopt;
}

}  // namespace shardmesh
