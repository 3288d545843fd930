// SPDX-License-Identifier: Apache-2.0
// Folders that MLX writes: weights.npz, or weights.00.npz and its successors. One file is read in `reader`.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.npz;

import shardmesh.storage;
import shardmesh.torch_file;

namespace shardmesh::npz {
namespace fs = places;
namespace {

// The number in "weights.07.npz"; nothing for other names.
std::optional<std::int64_t> shard_number(std::string_view name) {
  constexpr std::string_view begin = "weights.", end = ".npz";
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) return std::nullopt;
  const std::string_view digits = name.substr(begin.size(), name.size() - begin.size() - end.size());
  if (digits.size() > 6 || digits.find_first_not_of("0123456789") != digits.npos) return std::nullopt;
  std::int64_t number = 0;
  for (const char digit : digits) number = number * 10 + (digit - '0');
  return number;
}

class mlx_reader final : public composed_reader {
 public:
  explicit mlx_reader(const fs::path& folder) : composed_reader(checkpoint_format::npz, folder) {}

  result<void> open(const open_options& options) {
    SHARDMESH_TRY(const std::vector<std::string> files, choose_files());
    for (const std::string& file : files) SHARDMESH_TRY(add_file(file, options));
    return {};
  }

 private:
  // The single file takes precedence, as in MLX.
  result<std::vector<std::string>> choose_files() {
    std::map<std::int64_t, std::string> shards;
    std::vector<std::string> all;
    bool has_whole = false;
    std::error_code code;
    for (fs::directory_iterator at(path_, code), end; !code && at != end; at.increment(code)) {
      const std::string name = at->path().filename().string();
      has_whole |= name == "weights.npz";
      const auto number = shard_number(name);
      if (!number) continue;
      if (const auto [known, is_new] = shards.emplace(*number, name); !is_new)
        return fail(errc::duplicate_key, fmt::format("has two files of one number: {} and {}", known->second, name))
            .with_file(path_.string())
            .with_hint("remove one of them");
    }
    if (code) return fail_sys(code.value(), "cannot list", path_.string());
    for (const auto& [number, name] : shards) all.push_back(name);
    if (has_whole && !all.empty())
      warnings_.push_back(
          fail(errc::duplicate_key, fmt::format("also has the model in parts, which are not read: {}", name_list(all)))
              .with_file(path_.string())
              .with_hint("open one of them by its name to read it"));
    if (has_whole) return std::vector<std::string>{"weights.npz"};
    for (std::int64_t i = 0; i < std::ssize(all); ++i)
      if (!shards.contains(i))
        return fail(errc::bad_format, fmt::format("weights.{:02}.npz is missing", i)).with_file(path_.string());
    return all;
  }

  result<void> add_file(const std::string& name, const open_options& options) {
    SHARDMESH_TRY(auto opened, npz::open(path_ / name, options));
    const std::size_t part = add_part(std::move(opened));
    const catalog& contents = this->part(part).contents();
    const auto in_file = [&](error why) { return std::move(why).with_file((path_ / name).string()); };
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      if (auto added = add_whole_tensor(contents.tensors[i].key, contents.tensors[i].where, part, i); !added)
        return in_file(std::move(added).error());
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      if (auto added = add_object(contents.objects[i].key, contents.objects[i].where, part, i); !added)
        return in_file(std::move(added).error());
    return {};
  }
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_folder(const fs::path& folder, const open_options& options) {
  auto reader = std::make_unique<mlx_reader>(folder);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

bool is_weights_name(std::string_view name) {
  return name == "weights.npz" || shard_number(name);
}

}  // namespace shardmesh::npz
