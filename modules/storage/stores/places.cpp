// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.storage;

import :answers;

namespace shardmesh::places {
namespace {

namespace local = std::filesystem;

// The errors of stores behind error codes: a code's value is an error's number. Thread-safe.
class store_errors final : public std::error_category {
 public:
  const char* name() const noexcept override { return "shardmesh stores"; }
  std::string message(int number) const override {
    const auto kept = find(number);
    return kept ? to_string(*kept) : "a store failed";
  }
  std::error_condition default_error_condition(int number) const noexcept override {
    const std::scoped_lock guard(lock_);
    const entry& kept = slot(number);
    return {kept.number == number && kept.problem.sys != 0 ? kept.problem.sys : EIO, std::generic_category()};
  }

  std::error_code keep(error problem) {
    const std::scoped_lock guard(lock_);
    last_ = last_ == std::numeric_limits<int>::max() ? 1 : last_ + 1;
    recent_[static_cast<std::size_t>(last_) % recent_.size()] = {last_, std::move(problem)};
    return {last_, *this};
  }
  std::optional<error> find(int number) const {
    const std::scoped_lock guard(lock_);
    const entry& kept = slot(number);
    return kept.number == number ? std::optional(kept.problem) : std::nullopt;
  }

 private:
  struct entry {
    int number = 0;
    error problem{};
  };
  const entry& slot(int number) const { return recent_[static_cast<std::size_t>(number) % recent_.size()]; }

  mutable std::mutex lock_;
  std::array<entry, 256> recent_;
  int last_ = 0;
};

// Never destroyed: codes refer to it.
store_errors& kept_errors() {
  static auto* const made = new store_errors;
  return *made;
}

path without_query(const path& url) {
  return url.native().substr(0, url.native().find('?'));
}

file_status status_of(const path& url, std::error_code& code) {
  auto found = ask_look(url.native());
  if (!found) {
    code = kept_errors().keep(std::move(found).error());
    return file_status(file_type::none);
  }
  if (!*found) {
    code = std::make_error_code(std::errc::no_such_file_or_directory);
    return file_status(file_type::not_found);
  }
  code.clear();
  return file_status((*found)->is_folder ? file_type::directory : file_type::regular);
}

}  // namespace

file_status status(const path& at, std::error_code& code) {
  return is_url(at) ? status_of(at, code) : local::status(at, code);
}
file_status symlink_status(const path& at, std::error_code& code) {
  return is_url(at) ? status_of(at, code) : local::symlink_status(at, code);
}
bool exists(const path& at, std::error_code& code) {
  if (!is_url(at)) return local::exists(at, code);
  const file_status found = status_of(at, code);
  if (found.type() == file_type::not_found) code.clear();
  return local::exists(found);
}
bool exists(const file_status& status) {
  return local::exists(status);
}
bool is_directory(const path& at, std::error_code& code) {
  return is_url(at) ? local::is_directory(status_of(at, code)) : local::is_directory(at, code);
}
bool is_directory(const file_status& status) {
  return local::is_directory(status);
}
bool is_regular_file(const path& at, std::error_code& code) {
  return is_url(at) ? local::is_regular_file(status_of(at, code)) : local::is_regular_file(at, code);
}
bool is_regular_file(const file_status& status) {
  return local::is_regular_file(status);
}
bool is_symlink(const path& at, std::error_code& code) {
  if (!is_url(at)) return local::is_symlink(at, code);
  code.clear();
  return false;
}

std::uint64_t file_size(const path& at, std::error_code& code) {
  if (!is_url(at)) return local::file_size(at, code);
  constexpr auto unknown = static_cast<std::uint64_t>(-1);
  auto found = ask_look(at.native());
  if (!found) {
    code = kept_errors().keep(std::move(found).error());
    return unknown;
  }
  const bool is_object = *found && !(*found)->is_folder && (*found)->size_bytes >= 0;
  if (is_object) {
    code.clear();
    return static_cast<std::uint64_t>((*found)->size_bytes);
  }
  code = std::make_error_code(*found ? std::errc::is_a_directory : std::errc::no_such_file_or_directory);
  return unknown;
}

path canonical(const path& at, std::error_code& code) {
  if (!is_url(at)) return local::canonical(at, code);
  const path parts = without_query(at);
  const bool leads_up =
      std::any_of(parts.begin(), parts.end(), [](const path& part) { return part == "." || part == ".."; });
  if (leads_up) {
    error refused = fail(errc::unsafe_path, "a part of the URL is \".\" or \"..\"")
                        .with_file(at.native())
                        .with_hint("write the URL without this part");
    refused.sys = EINVAL;
    code = kept_errors().keep(std::move(refused));
    return {};
  }
  code.clear();
  return path(trimmed(at.native()));
}

path name_of(const path& at) {
  return is_url(at) ? without_query(at).filename() : at.filename();
}
path folder_of(const path& at) {
  return is_url(at) ? without_query(at).parent_path() : at.parent_path();
}

error failure(const std::error_code& code, std::string_view action, const path& at) {
  if (code.category() != kept_errors()) return fail_sys(code.value(), action, at.string());
  if (auto kept = kept_errors().find(code.value())) return *std::move(kept);
  return fail(errc::io, std::string(action) + ": the store failed").with_file(at.string());
}

result<file_status> checked_status(const path& at) {
  std::error_code code;
  const file_status found = places::status(at, code);
  const bool is_answer = !code || code == std::errc::no_such_file_or_directory || code == std::errc::permission_denied;
  if (is_url(at) && !is_answer) return failure(code, "cannot look at", at);
  return local::exists(found) ? found : file_status(file_type::not_found);
}

const std::filesystem::path& directory_entry::path() const {
  return local_ != nullptr ? local_->path() : url_;
}
file_status directory_entry::status(std::error_code& code) const {
  if (local_ != nullptr) return local_->status(code);
  code.clear();
  return file_status(is_folder_ ? file_type::directory : file_type::regular);
}
bool directory_entry::is_directory(std::error_code& code) const {
  if (local_ != nullptr) return local_->is_directory(code);
  code.clear();
  return is_folder_;
}
bool directory_entry::is_regular_file(std::error_code& code) const {
  if (local_ != nullptr) return local_->is_regular_file(code);
  code.clear();
  return !is_folder_;
}
bool directory_entry::is_symlink(std::error_code& code) const {
  if (local_ != nullptr) return local_->is_symlink(code);
  code.clear();
  return false;
}

struct directory_iterator::state {
  local::directory_iterator files;
  path folder;        // a URL
  folder_list names;  // null for a local folder
  std::size_t at = 0;
  directory_entry shown;
};

directory_iterator::directory_iterator(const path& folder, std::error_code& code) {
  auto made = std::make_shared<state>();
  if (!is_url(folder)) {
    made->files = local::directory_iterator(folder, code);
    if (code || made->files == local::directory_iterator()) return;
  } else {
    auto names = ask_list(folder.native());
    if (!names) {
      code = kept_errors().keep(std::move(names).error());
      return;
    }
    code.clear();
    if ((*names)->empty()) return;
    made->folder = path(trimmed(folder.native()));
    made->names = *std::move(names);
  }
  state_ = std::move(made);
  show();
}

void directory_iterator::show() {
  if (!state_->names) {
    state_->shown.local_ = &*state_->files;
    return;
  }
  const stored_object& object = (*state_->names)[state_->at];
  state_->shown.url_ = state_->folder / object.name;
  state_->shown.is_folder_ = object.is_folder;
}

const directory_entry& directory_iterator::operator*() const {
  return state_->shown;
}

directory_iterator& directory_iterator::increment(std::error_code& code) {
  bool is_end = false;
  if (state_->names) {
    code.clear();
    is_end = ++state_->at == state_->names->size();
  } else {
    state_->files.increment(code);
    is_end = code || state_->files == local::directory_iterator();
  }
  if (is_end)
    state_.reset();
  else
    show();
  return *this;
}

remembered_answers::remembered_answers() : is_outermost_(begin_answers()) {}
remembered_answers::~remembered_answers() {
  if (is_outermost_) end_answers();
}
std::optional<error> remembered_answers::failure() const {
  return first_failure();
}

}  // namespace shardmesh::places
