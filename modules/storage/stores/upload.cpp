// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.storage;

import :upload;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

error exists(const std::string& url, std::string message) {
  return fail(errc::destination_exists, std::move(message)).with_file(printable_url(url));
}

// Describes an existing folder of a store for a `folder_rule`.
destination_snapshot snapshot_of(const std::map<std::string, stored_object>& objects) {
  destination_snapshot seen;
  seen.self = file_identity{.kind = S_IFDIR};
  for (const auto& [name, object] : objects) {
    file_identity identity{.kind = object.is_folder ? std::uint32_t{S_IFDIR} : std::uint32_t{S_IFREG}};
    identity.size_bytes = object.size_bytes;
    seen.entries.emplace(name, identity);
  }
  return seen;
}

error changed_meanwhile(const std::string& url) {
  return exists(url, "appeared or changed while the new checkpoint was written, and is left alone");
}

// Files that hold data come first, then the record of checksums, and the description last.
int order_of(const std::string& name) {
  if (is_description(name)) return 2;
  return name == checksum_file_name ? 1 : 0;
}

// The error of an object of the old checkpoint that could not be removed.
error room_refused(error why, const std::string& removed) {
  std::string advice = why.hint;
  const auto add = [&](const std::string& text) { advice += (advice.empty() ? "" : "; ") + text; };
  if (why.code == errc::destination_exists) {
    if (!removed.empty()) add("check the checkpoint with verify: of the previous one, these were removed: " + removed);
    return changed_meanwhile(why.file).with_hint(advice);
  }
  add("check the previous checkpoint with verify: this object may be gone");
  if (!removed.empty()) advice += ", and these were removed: " + removed;
  return std::move(why).with_hint(advice);
}

// Readers would not find what is written to these URLs.
result<void> check_readable_url(const std::string& url, bool is_directory) {
  if (is_directory && url.find('?') != std::string::npos)
    return fail(errc::unsupported, "a URL with a question mark names one object, and this is to be a folder")
        .with_file(printable_url(url))
        .with_hint("choose a name without a question mark");
  if (url.ends_with("//") && !url.ends_with("://"))
    return fail(errc::invalid_argument, "ends with more than one slash")
        .with_file(printable_url(url))
        .with_hint("leave out all but one");
  return {};
}

}  // namespace

bool is_description(std::string_view name) {
  return name == ".metadata" || name == ".snapshot_metadata" || name == "metadata.pkl" || name == "model.safetensors" ||
         name.ends_with(".safetensors.index.json");
}

result<upload> upload::look(std::string url, bool is_directory, const output_options& options) {
  SHARDMESH_TRY(detail::check_can_write(url));
  SHARDMESH_TRY(check_readable_url(url, is_directory));
  if (url.ends_with('/') && !url.ends_with("://")) url.pop_back();
  upload made;
  SHARDMESH_TRY(made.store_, store_of(url));
  made.url_ = std::move(url);
  made.is_directory_ = is_directory;
  made.memory_bytes_ = options.memory_bytes;
  SHARDMESH_TRY(is_directory ? made.look_at_folder(options) : made.look_at_file(options));
  return made;
}

result<void> upload::look_at_file(const output_options& options) {
  SHARDMESH_TRY(const auto there, store_->look(url_));
  if (!there) return {};
  if (there->is_folder) return exists(url_, "is a folder");
  if (!options.overwrite) return exists(url_, "exists already").with_hint("pass overwrite to replace it");
  before_.emplace("", *there);
  return {};
}

result<void> upload::look_at_folder(const output_options& options) {
  SHARDMESH_TRY(const auto there, store_->look(url_));
  if (!there) return {};
  if (!there->is_folder) return exists(url_, "is an object, and a folder is to be written");
  SHARDMESH_TRY(std::vector<stored_object> objects, store_->list(url_));
  for (stored_object& object : objects) {
    std::string name = object.name;
    before_.emplace(std::move(name), std::move(object));
  }
  if (before_.empty()) return {};
  if (!options.overwrite) return exists(url_, "exists already").with_hint("pass overwrite to replace it");
  return check_replaceable(options.may_replace, url_, snapshot_of(before_));
}

result<void> upload::put(const fs::path& staging, std::vector<std::string>& notes) {
  std::vector<file> files;
  if (!is_directory_) {
    files.push_back({staging, ""});
  } else {
    std::error_code code;
    for (fs::directory_iterator at(staging, code), end; !code && at != end; at.increment(code))
      files.push_back({at->path(), at->path().filename().string()});
    if (code) return fail_sys(code.value(), "cannot list the written files", staging.string());
    std::sort(files.begin(), files.end(), [](const file& a, const file& b) {
      const int first = order_of(a.name), second = order_of(b.name);
      return first != second ? first < second : a.name < b.name;
    });
  }
  SHARDMESH_TRY(make_room(files));
  for (const file& one : files)
    if (auto done = put_file(one); !done) return undone(one.name, std::move(done).error());
  if (!store_->keeps_conditions(url_))
    notes.push_back(printable_url(url_) +
                    ": the server ignores conditions, so that two writers of this destination can mix their files");
  return remove_stale(files, notes);
}

result<void> upload::check_unchanged() const {
  SHARDMESH_TRY(const std::vector<stored_object> listed, store_->list(url_));
  std::map<std::string, const stored_object*> now;
  for (const stored_object& object : listed) now.emplace(object.name, &object);
  for (const auto& [name, object] : before_) {
    if (object.is_folder) continue;
    const auto found = now.find(name);
    if (found == now.end() || *found->second != object) return changed_meanwhile(url_of(name));
  }
  return {};
}

// Objects cannot be exchanged together. If data or checksums of the old checkpoint would be overwritten, its
// description goes first: until the new one is there, readers find no checkpoint, and never files of both. The record
// of checksums goes before it, so that a refusal leaves the old checkpoint readable.
result<void> upload::make_room(const std::vector<file>& files) {
  const bool overwrites_data = std::any_of(files.begin(), files.end(), [&](const file& one) {
    return is_directory_ && !is_description(one.name) && before_.contains(one.name);
  });
  if (!overwrites_data) return {};
  SHARDMESH_TRY(check_unchanged());
  std::string removed;
  for (const int order : {1, 2})
    for (auto at = before_.begin(); at != before_.end();) {
      if (order_of(at->first) != order) {
        ++at;
        continue;
      }
      auto gone = store_->remove_version(url_of(at->first), at->second.version);
      if (!gone) return room_refused(std::move(gone).error(), removed);
      has_made_room_ |= is_description(at->first);
      removed += (removed.empty() ? "" : ", ") + at->first;
      at = before_.erase(at);
    }
  return {};
}

result<void> upload::put_file(const file& one) {
  file_pool files(1);
  SHARDMESH_TRY(const std::unique_ptr<byte_source> content, files.open(one.path));
  const auto old = before_.find(one.name);
  put_condition condition{.memory_bytes = memory_bytes_};
  if (old == before_.end())
    condition.if_absent = true;
  else
    condition.if_version = old->second.version;
  auto done = store_->put(url_of(one.name), *content, condition);
  if (!done)
    return done.error().code == errc::destination_exists ? changed_meanwhile(url_of(one.name))
                                                         : std::move(done).error();
  if (old == before_.end()) written_.push_back({one.name, *std::move(done)});
  return {};
}

result<void> upload::remove_stale(const std::vector<file>& files, std::vector<std::string>& notes) {
  for (const file& one : files) before_.erase(one.name);
  for (const auto& [name, object] : before_) {
    if (object.is_folder) continue;
    if (auto gone = store_->remove_version(url_of(name), object.version); !gone)
      notes.push_back(fmt::format("a file of the old checkpoint could not be removed: {}", to_string(gone.error())));
  }
  return {};
}

bool upload::is_as_before(const std::string& name) const {
  const auto now = store_->look(url_of(name));
  if (!now) return false;
  const auto old = before_.find(name);
  if (old == before_.end()) return !now->has_value();
  return now->has_value() && (*now)->version == old->second.version;
}

// Removes the objects with new names, the last one first. A replaced object stays, because its old content is gone.
error upload::undone(const std::string& failed, error why) {
  const detail::cleanup_scope limits;
  // The server may store a description later than any look at it: without its data, it would be damaged.
  const bool may_appear = is_description(failed) && why.sys == EINPROGRESS;
  const bool may_be_stored = may_appear || (why.code != errc::destination_exists && !is_as_before(failed));
  std::string advice = why.hint;
  const auto add = [&](const std::string& text) { advice += (advice.empty() ? "" : "; ") + text; };
  if (has_made_room_) add("write it again: the previous checkpoint was removed to make room");
  // The server may have stored the object although its answer was lost. A description is the last object, so that the
  // checkpoint is then complete: without its data, it would be damaged.
  if (may_be_stored && (failed.empty() || is_description(failed))) {
    add("check it with verify: the server may have stored this object");
    return std::move(why).with_hint(advice);
  }
  std::string left = may_be_stored && !before_.contains(failed) ? failed : std::string();
  std::string theirs;
  bool is_answering = true;  // a server that has failed to remove one object would take long to fail for all
  for (auto one = written_.rbegin(); one != written_.rend(); ++one) {
    if (is_answering) {
      const auto gone = store_->remove_version(url_of(one->name), one->version);
      const bool is_theirs = !gone && gone.error().code == errc::destination_exists;
      if (is_theirs) theirs += (theirs.empty() ? "" : ", ") + one->name;
      is_answering = gone || is_theirs;
    }
    if (!is_answering) left += (left.empty() ? "" : ", ") + one->name;
  }
  if (!left.empty()) add("remove what is left of the upload: " + left);
  if (!theirs.empty()) add("these have changed since their upload, and are left alone: " + theirs);
  return std::move(why).with_hint(advice);
}

}  // namespace shardmesh
