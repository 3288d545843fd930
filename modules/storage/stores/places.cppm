// SPDX-License-Identifier: Apache-2.0
// places: the questions that readers of checkpoints ask about paths, answered by the file system for local paths, and
// by a store for URLs. The names and the meaning are those of std::filesystem, so that a reader that says
// `namespace fs = places;` opens both. Writers use std::filesystem: they work on local files alone.
export module shardmesh.storage:places;

import shardmesh.std;
import shardmesh.core;
import :store;

export namespace shardmesh::places {

using std::filesystem::file_status;
using std::filesystem::file_type;
using std::filesystem::path;

/// Answers for a URL: `regular` for an object, `directory` for a folder, `not_found` for neither. When the store fails,
/// `code` is of a category of its own and equals the std::errc of the error's `sys` (io_error when it has none);
/// `failure` returns the store's error. No URL is a symbolic link. A URL with a query names one
/// object, never a folder.
/// Cost: nothing beside std::filesystem for a local path; one request for a URL, see `remembered_answers`.
file_status status(const path& at, std::error_code& code);
file_status symlink_status(const path& at, std::error_code& code);
bool exists(const path& at, std::error_code& code);
bool exists(const file_status& status);
bool is_directory(const path& at, std::error_code& code);
bool is_directory(const file_status& status);
bool is_regular_file(const path& at, std::error_code& code);
bool is_regular_file(const file_status& status);
bool is_symlink(const path& at, std::error_code& code);
std::uint64_t file_size(const path& at, std::error_code& code);
/// A URL is its own canonical form, without a slash at its end. A part "." or ".." of it is an error
/// (std::errc::invalid_argument). Cost for a URL: no request.
path canonical(const path& at, std::error_code& code);

/// Returns the last part of a path. A URL's query is no part of it: "model.safetensors" of
/// "https://host/model.safetensors?signature=x".
path name_of(const path& at);
/// Returns the path without its last part, and without a URL's query.
path folder_of(const path& at);

/// Makes the error of a question about `at` that set `code`: the store's error for a URL, else that of `fail_sys`.
/// Errors of stores are kept until 256 others followed.
error failure(const std::error_code& code, std::string_view action, const path& at);

/// Returns the status of a name that need not exist. A local path that cannot be examined counts as missing, and so
/// does an object to which the store denies access.
/// \errors the store's, for a URL
result<file_status> checked_status(const path& at);

/// One name in a folder. Valid until its iterator advances.
class directory_entry {
 public:
  const std::filesystem::path& path() const;
  file_status status(std::error_code& code) const;
  bool is_directory(std::error_code& code) const;
  bool is_regular_file(std::error_code& code) const;
  bool is_symlink(std::error_code& code) const;

 private:
  friend class directory_iterator;
  const std::filesystem::directory_entry* local_ = nullptr;  // null for a URL
  std::filesystem::path url_;
  bool is_folder_ = false;
};

/// Lists a folder. A default-constructed iterator is the end. Names of a store that no folder can hold ("", "..", or
/// one with a slash) are an error.
/// Cost for a URL: one request for each page, all of them in the constructor.
class directory_iterator {
 public:
  directory_iterator() = default;
  /// \param code  set when the folder cannot be listed; the iterator is then the end
  directory_iterator(const path& folder, std::error_code& code);
  const directory_entry& operator*() const;
  const directory_entry* operator->() const { return &**this; }
  directory_iterator& increment(std::error_code& code);
  friend bool operator==(const directory_iterator& a, const directory_iterator& b) { return a.state_ == b.state_; }

 private:
  struct state;
  void show();
  std::shared_ptr<state> state_;  // null at the end
};

/// Within this object's lifetime, on this thread, the answers of stores are remembered: recognising a checkpoint asks
/// the same questions many times, and each is a request to a server. The list of a folder answers later questions about
/// its children, also that there is none. Objects that were opened stay open, with their first bytes. Scopes may be
/// nested; the outermost one holds the answers.
class remembered_answers {
 public:
  remembered_answers();
  ~remembered_answers();
  remembered_answers(const remembered_answers&) = delete;
  remembered_answers& operator=(const remembered_answers&) = delete;

  /// Returns the first error of a store in this scope, if any: a reader may have taken a file that the store failed to
  /// look at for a missing one. A missing object and a denied access (see `store`) do not count.
  std::optional<error> failure() const;

 private:
  bool is_outermost_;
};

}  // namespace shardmesh::places
