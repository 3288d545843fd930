// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
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
module shardmesh.remote;

import :hf_hub;
import :hf_place;
import :hf_store_parts;
import :process_client;
import :url_text;

namespace shardmesh::remote {
namespace {

constexpr std::size_t most_folders = 256;

// Errors name the URL that the user gave, not that of a request. An error of the token names its own file.
error for_url(error why, const std::string& url) {
  if (why.file.empty() || why.file.starts_with("http")) why.file = printable_url(url);
  return why;
}

stored_object object_of(const hf_entry& entry) {
  if (entry.is_folder) return {entry.name, true, 0, {}};
  return {entry.name, false, entry.size_bytes, entry.sha256.empty() ? entry.object_id : entry.sha256};
}

class hf_file final : public byte_source {
 public:
  hf_file(std::shared_ptr<const hf_hub> hub, std::string url, hf_place place, std::string commit, hf_entry entry)
      : hub_(std::move(hub)),
        url_(std::move(url)),
        place_(std::move(place)),
        commit_(std::move(commit)),
        entry_(std::move(entry)) {}
  std::int64_t size_bytes() const override { return entry_.size_bytes; }
  std::string name() const override { return printable_url(url_); }
  std::string version() const override { return object_of(entry_).version; }
  std::int64_t bytes_per_request() const override {
    const auto client = hub_->client().get();
    return client ? (*client)->bytes_per_request(url_) : 0;
  }

  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const source_range range{offset, out};
    return read_ranges({&range, 1});
  }
  result<void> read_ranges(std::span<const source_range> ranges) const override {
    SHARDMESH_TRY(const auto* const client, hub_->client().get());
    http_request object{.url = url_};
    object.recover = [this](const http_request& sent, const http_response&) { return forget(sent.url); };
    const auto sign = [this](http_request& request) -> result<void> {
      SHARDMESH_TRY(const auto at, location());
      request.url = at.url;
      if (at.takes_token) return hub_->authorise(request);
      return {};
    };
    // The commit is immutable, and ETags of locations differ from each other: the size alone is compared here.
    auto done = client->read(object, ranges, {}, entry_.size_bytes, sign);
    if (!done) return for_url(std::move(done).error(), url_);
    return {};
  }

 private:
  result<hf_location> location() const {
    SHARDMESH_TRY(const auto held, lock_.acquire());  // one request for all threads
    if (!location_) {
      SHARDMESH_TRY(location_, hub_->locate(place_, commit_, entry_));
    }
    return *location_;
  }
  // Forgets a location that the server refuses, because it has expired. Returns whether another may work.
  bool forget(const std::string& url) const {
    const auto held = lock_.acquire();
    if (!held) return true;  // the next attempt ends at the same limit
    if (location_ && location_->takes_token) return false;
    if (location_ && location_->url == url) location_.reset();
    return true;
  }

  std::shared_ptr<const hf_hub> hub_;
  std::string url_;
  hf_place place_;
  std::string commit_;
  hf_entry entry_;
  mutable detail::call_lock lock_;
  mutable std::optional<hf_location> location_;
};

class hf_store final : public store {
 public:
  explicit hf_store(std::shared_ptr<const hf_hub> hub) : hub_(std::move(hub)) {}

  result<std::optional<stored_object>> look(const std::string& url) const override {
    SHARDMESH_TRY(const auto place, place_of(url));
    auto found = find(place);
    if (!found) return for_url(std::move(found).error(), url);
    if (!*found) return std::optional<stored_object>();
    return std::optional(object_of(**found));
  }

  result<std::vector<stored_object>> list(const std::string& url) const override {
    SHARDMESH_TRY(const auto place, place_of(url));
    const auto found = entries(place, place.path);
    if (!found) return for_url(found.error(), url);
    std::vector<stored_object> made;
    if (!*found) return made;
    for (const hf_entry& one : **found) made.push_back(object_of(one));
    std::sort(made.begin(), made.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return made;
  }

  result<std::unique_ptr<byte_source>> open(const std::string& url) const override {
    SHARDMESH_TRY(const auto place, place_of(url));
    auto found = find(place);
    if (!found) return for_url(std::move(found).error(), url);
    if (!*found || (*found)->is_folder) {
      error why = fail(errc::io, *found ? "is a folder, not a file" : "there is no such file");
      why.sys = *found ? EISDIR : ENOENT;
      return for_url(std::move(why), url);
    }
    SHARDMESH_TRY(auto commit, commit_of(place));
    return std::unique_ptr<byte_source>(
        std::make_unique<hf_file>(hub_, url, place, std::move(commit), std::move(**found)));
  }

 private:
  using members = std::shared_ptr<const std::vector<hf_entry>>;

  result<hf_place> place_of(const std::string& url) const {
    return parse_hf_place(url, [this](const std::string& name) {
      const std::scoped_lock guard(lock_);
      return ownerless_.contains(name);
    });
  }

  result<std::string> commit_of(const hf_place& place) const {
    const auto key = std::pair(place.repository, place.revision);
    {
      const std::scoped_lock guard(lock_);
      if (const auto known = commits_.find(key); known != commits_.end()) return known->second;
    }
    SHARDMESH_TRY(auto commit, hub_->commit_of(place));
    const std::scoped_lock guard(lock_);
    if (place.repository.find('/') == std::string::npos) ownerless_.insert(place.repository);
    return commits_.try_emplace(key, std::move(commit)).first->second;  // the first of two threads decides
  }

  // Returns the entries of a folder; null when there is none.
  result<members> entries(const hf_place& place, const std::string& folder) const {
    SHARDMESH_TRY(const auto commit, commit_of(place));
    const std::string key = place.repository + "@" + commit + ":" + folder;
    {
      const std::scoped_lock guard(lock_);
      if (const auto known = folders_.find(key); known != folders_.end()) return known->second;
    }
    SHARDMESH_TRY(auto listed, hub_->list(place, commit, folder));
    members made = listed ? std::make_shared<const std::vector<hf_entry>>(*std::move(listed)) : members();
    const std::scoped_lock guard(lock_);
    if (folders_.size() >= most_folders) folders_.clear();
    folders_.insert_or_assign(key, made);
    return made;
  }

  // Finds a file or folder in the listing of its folder. One request answers for all files of a checkpoint.
  result<std::optional<hf_entry>> find(const hf_place& place) const {
    if (place.path.empty()) {
      SHARDMESH_TRY(entries(place, ""));
      return std::optional(hf_entry{place.last_name(), true, 0, {}, {}});
    }
    SHARDMESH_TRY(const auto siblings, entries(place, place.folder()));
    if (!siblings) return std::optional<hf_entry>();
    const auto found = std::find_if(siblings->begin(), siblings->end(),
                                    [name = place.last_name()](const hf_entry& one) { return one.name == name; });
    if (found == siblings->end()) return std::optional<hf_entry>();
    return std::optional(*found);
  }

  std::shared_ptr<const hf_hub> hub_;
  // Answers about commits, which never change.
  mutable std::mutex lock_;
  mutable std::set<std::string> ownerless_;
  mutable std::map<std::pair<std::string, std::string>, std::string> commits_;
  mutable std::map<std::string, members> folders_;
};

}  // namespace

std::shared_ptr<const store> make_hf_store_over(const hf_options& options,
                                                std::shared_ptr<const process_client> client) {
  return std::make_shared<const hf_store>(std::make_shared<const hf_hub>(options, std::move(client)));
}

std::shared_ptr<const store> make_hf_store(const hf_options& options) {
  return make_hf_store_over(options, std::make_shared<const process_client>(options.http));
}

}  // namespace shardmesh::remote
