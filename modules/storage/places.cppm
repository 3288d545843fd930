// SPDX-License-Identifier: Apache-2.0
// places: the questions that readers of checkpoints ask about paths, answered by the file system for local paths, and
// by a store for URLs. The names and the meaning are those of std::filesystem, so that a reader that says
// `namespace fs = shardmesh::places;` opens both. Writers use std::filesystem: they work on local files alone.
export module shardmesh.storage:places;

import shardmesh.std;
import shardmesh.core;
import :store;

export namespace shardmesh::places {

using std::filesystem::file_status;
using std::filesystem::file_type;
using std::filesystem::path;

/// Answers for a URL: `regular` for an object, `directory` for a folder, `not_found` for neither. When the store fails,
/// `code` is std::errc::io_error and `last_error` has the reason.
file_status status(const path& at, std::error_code& code);
file_status symlink_status(const path& at, std::error_code& code);
bool exists(const path& at, std::error_code& code);
bool exists(const file_status& status);
bool is_directory(const path& at, std::error_code& code);
bool is_directory(const file_status& status);
bool is_regular_file(const path& at, std::error_code& code);
bool is_regular_file(const file_status& status);
bool is_symlink(const path& at, std::error_code& code);
std::uintmax_t file_size(const path& at, std::error_code& code);
/// A URL is its own canonical form; a part "." or ".." of it is an error (std::errc::invalid_argument).
path canonical(const path& at, std::error_code& code);
path absolute(const path& at, std::error_code& code);

/// Returns the error of the last failed question about a URL on this thread, and forgets it.
std::optional<error> last_error();

/// Within this object's lifetime, on this thread, answers about URLs are remembered: recognising a checkpoint asks the
/// same questions many times, and each is a request to a server. `open_checkpoint` holds one. They may be nested.
class remembered_answers {
 public:
  remembered_answers();
  ~remembered_answers();
  remembered_answers(const remembered_answers&) = delete;
  remembered_answers& operator=(const remembered_answers&) = delete;
};

}  // namespace shardmesh::places
