// SPDX-License-Identifier: Apache-2.0
// A store in memory under URLs of a scheme of its own, with faults and counts of requests. It imports, so it is among
// the last headers that a test includes.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.storage;

/// Objects by name: "bucket/run/.metadata" is at SCHEME://bucket/run/.metadata. Thread-safe, except for its faults.
class memory_store final : public shardmesh::store {
 public:
  /// Requests so far.
  struct counts {
    int looks = 0, lists = 0, opens = 0, reads = 0;
    std::int64_t bytes = 0;  // that were read
    int descriptions() const { return looks + lists + opens; }
    friend bool operator==(const counts&, const counts&) = default;
  };
  struct object {
    std::string content;
    int version = 0;
  };

  bool claims_to_write = false;        // `can_write`; nothing is written
  std::int64_t bytes_per_request = 0;  // of its objects
  bool states_versions = true;         // of opened objects
  bool can_list = true;                // false: `list` is unsupported
  bool knows_folders = true;           // false: as a plain web server, which looks at files alone
  std::set<std::string> denied{};      // names, of objects and folders, to which access is denied
  std::set<std::string> failing{};     // names, at which the server fails
  std::set<std::string> unlisted{};    // names that `list` leaves out
  std::set<std::string> untaken{};     // names of files that a URL of the store cannot spell
  std::string list_mark{};             // before the versions in lists
  std::string query{};                 // when not empty: the query without which access is denied

  void add(const std::string& name, std::string content) {
    const std::scoped_lock guard(lock_);
    object& one = objects_[name];
    one = {std::move(content), one.version + 1};
  }
  /// Adds every file of a local folder, or one file.
  void add_files(const std::string& name, const std::filesystem::path& local) {
    if (!std::filesystem::is_directory(local)) return add(name, content_of(local));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(local))
      if (entry.is_regular_file()) add(name + "/" + entry.path().lexically_relative(local).string(), content_of(entry));
  }
  void erase(const std::string& name) {
    const std::scoped_lock guard(lock_);
    objects_.erase(name);
  }
  std::size_t size() const {
    const std::scoped_lock guard(lock_);
    return objects_.size();
  }
  counts take_counts() {
    const std::scoped_lock guard(lock_);
    return std::exchange(counts_, {});
  }

  bool can_write() const override { return claims_to_write; }
  bool takes_name(std::string_view name) const override { return !untaken.contains(std::string(name)); }

  shardmesh::result<std::optional<shardmesh::stored_object>> look(const std::string& url) const override {
    const std::scoped_lock guard(lock_);
    ++counts_.looks;
    const std::string name = name_of(url);
    if (auto refused = refusal(url)) return *std::move(refused);
    const std::string last = name.substr(name.rfind('/') + 1);
    if (const auto found = objects_.find(name); found != objects_.end())
      return std::optional(described(last, found->second));
    if (!knows_folders || !is_folder(name)) return std::optional<shardmesh::stored_object>();
    return std::optional(shardmesh::stored_object{.name = last, .is_folder = true, .version = {}});
  }

  shardmesh::result<std::vector<shardmesh::stored_object>> list(const std::string& url) const override {
    const std::scoped_lock guard(lock_);
    ++counts_.lists;
    if (auto refused = refusal(url)) return *std::move(refused);
    if (!can_list) return shardmesh::fail(shardmesh::errc::unsupported, "the server lists no folders").with_file(url);
    const std::string folder = name_of(url) + "/";
    std::map<std::string, shardmesh::stored_object> found;
    for (auto at = objects_.lower_bound(folder); at != objects_.end() && at->first.starts_with(folder); ++at) {
      const std::string below = at->first.substr(folder.size()), name = below.substr(0, below.find('/'));
      if (unlisted.contains(folder + name)) continue;
      if (below == name)
        found.emplace(name, described(name, at->second, list_mark));
      else
        found.emplace(name, shardmesh::stored_object{.name = name, .is_folder = true, .version = {}});
    }
    std::vector<shardmesh::stored_object> listed;
    for (auto& [name, one] : found) listed.push_back(std::move(one));
    return listed;
  }

  shardmesh::result<std::unique_ptr<shardmesh::byte_source>> open(const std::string& url) const override {
    const std::scoped_lock guard(lock_);
    ++counts_.opens;
    if (auto refused = refusal(url)) return *std::move(refused);
    const auto found = objects_.find(name_of(url));
    if (found == objects_.end()) return failed(url, "there is no such object", ENOENT);
    return std::unique_ptr<shardmesh::byte_source>(std::make_unique<source>(
        *this, url, static_cast<std::int64_t>(found->second.content.size()), found->second.version));
  }

 private:
  class source final : public shardmesh::byte_source {
   public:
    source(const memory_store& from, std::string url, std::int64_t size, int version)
        : from_(from), url_(std::move(url)), size_(size), version_(version) {}
    std::int64_t size_bytes() const override { return size_; }
    std::string name() const override { return url_; }
    std::string version() const override { return from_.states_versions ? std::to_string(version_) : ""; }
    std::int64_t bytes_per_request() const override { return from_.bytes_per_request; }
    shardmesh::result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
      const std::scoped_lock guard(from_.lock_);
      ++from_.counts_.reads;
      from_.counts_.bytes += static_cast<std::int64_t>(out.size());
      const auto found = from_.objects_.find(from_.name_of(url_));
      if (found == from_.objects_.end()) return failed(url_, "the object has vanished", ENOENT);
      if (found->second.version != version_) return failed(url_, "the object was replaced after it was opened", 0);
      const std::string_view part =
          std::string_view(found->second.content).substr(static_cast<std::size_t>(offset), out.size());
      std::copy(part.begin(), part.end(), reinterpret_cast<char*>(out.data()));
      return {};
    }

   private:
    const memory_store& from_;
    std::string url_;
    std::int64_t size_;
    int version_;
  };

  static std::string content_of(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  static std::string name_of(const std::string& url) {
    std::string name = url.substr(url.find("://") + 3);
    name.resize(std::min(name.size(), name.find('?')));
    while (name.ends_with('/')) name.pop_back();
    return name;
  }
  static shardmesh::stored_object described(const std::string& name, const object& one, const std::string& mark = {}) {
    return {.name = name,
            .size_bytes = static_cast<std::int64_t>(one.content.size()),
            .version = mark + std::to_string(one.version)};
  }
  static shardmesh::error failed(const std::string& url, std::string message, int sys) {
    shardmesh::error made = shardmesh::fail(shardmesh::errc::io, std::move(message)).with_file(url);
    made.sys = sys;
    return made;
  }
  bool is_folder(const std::string& name) const {
    const auto at = objects_.lower_bound(name + "/");
    return at != objects_.end() && at->first.starts_with(name + "/");
  }
  std::optional<shardmesh::error> refusal(const std::string& url) const {
    const std::string name = name_of(url);
    const std::size_t begin = url.find('?');
    const bool is_signed = query.empty() || (begin != std::string::npos && url.substr(begin + 1) == query);
    if (denied.contains(name) || !is_signed) return failed(url, "access is denied", EACCES);
    if (failing.contains(name)) return failed(url, "the server failed", 0);
    return std::nullopt;
  }

  mutable std::mutex lock_;
  mutable counts counts_;
  std::map<std::string, object> objects_;
};

/// Registers a memory_store for a scheme in its lifetime.
struct registered_store {
  std::string scheme;
  std::shared_ptr<memory_store> store = std::make_shared<memory_store>();

  explicit registered_store(std::string name) : scheme(std::move(name)) { shardmesh::register_store(scheme, store); }
  ~registered_store() { shardmesh::register_store(scheme, nullptr); }
  registered_store(const registered_store&) = delete;
  registered_store& operator=(const registered_store&) = delete;
  std::string url(const std::string& name) const { return scheme + "://" + name; }
  memory_store* operator->() const { return store.get(); }
};
