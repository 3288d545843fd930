// SPDX-License-Identifier: Apache-2.0
// A store of your own: checkpoints under URLs of a scheme that your program knows. This one keeps them in a folder; a
// real one asks a server.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.core;
import shardmesh.storage;

namespace sm = shardmesh;

/// shelf://NAME is the file or folder NAME of one folder.
class shelf final : public sm::store {
 public:
  explicit shelf(std::filesystem::path top) : top_(std::move(top)) {}

  sm::result<std::optional<sm::stored_object>> look(const std::string& url) const override {
    std::error_code code;
    const auto status = std::filesystem::status(path_of(url), code);
    if (status.type() == std::filesystem::file_type::not_found) return std::optional<sm::stored_object>();
    if (code) return sm::fail_sys(code.value(), "cannot look at", url);
    return std::optional(object_at(path_of(url)));
  }

  sm::result<std::vector<sm::stored_object>> list(const std::string& url) const override {
    std::vector<sm::stored_object> found;
    std::error_code code;
    for (std::filesystem::directory_iterator at(path_of(url), code), end; !code && at != end; at.increment(code))
      found.push_back(object_at(at->path()));
    if (code && code != std::errc::no_such_file_or_directory) return sm::fail_sys(code.value(), "cannot list", url);
    return found;
  }

  sm::result<std::unique_ptr<sm::byte_source>> open(const std::string& url) const override {
    return sm::file_pool().open(path_of(url));
  }

 private:
  std::filesystem::path path_of(const std::string& url) const { return top_ / url.substr(url.find("://") + 3); }

  static sm::stored_object object_at(const std::filesystem::path& file) {
    std::error_code code;
    sm::stored_object made;
    made.name = file.filename().string();
    made.is_folder = std::filesystem::is_directory(file, code);
    if (!made.is_folder) made.size_bytes = static_cast<std::int64_t>(std::filesystem::file_size(file, code));
    return made;
  }

  std::filesystem::path top_;
};

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: own_store CHECKPOINT\n"), 2;
  const std::filesystem::path folder = argv[1];
  sm::register_store("shelf", std::make_shared<shelf>(folder.parent_path()));
  const auto opened = sm::open("shelf://" + folder.filename().string());
  if (!opened) return std::fprintf(stderr, "%s\n", to_string(opened.error()).c_str()), 1;
  for (const sm::tensor_entry& tensor : opened->tensors()) std::printf("%s\n", to_string(tensor).c_str());
  return opened->tensors().empty() ? 1 : 0;
}
