// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.nemo;

import shardmesh.checkpoint_core;
import shardmesh.dcp;
import shardmesh.storage;
import shardmesh.torch_file;

namespace shardmesh::nemo {
namespace fs = places;
namespace {

constexpr std::int64_t most_config_bytes = 16 << 20;

bool is_below_weights(const tar_member& member) {
  return member.name.starts_with(weights_folder);
}

bool is_of_zarr(const tar_member& member) {
  return is_below_weights(member) && (member.name.ends_with("/.zarray") || member.name.ends_with("/.zgroup"));
}

// The weights of one rank: "mp_rank_00/model_weights.ckpt".
bool is_of_rank(const tar_member& member) {
  return member.name.ends_with(std::string("/") + std::string(weights_name));
}

// True for members that may hold tensors, judged by their names.
bool may_hold_tensors(const tar_member& member) {
  for (const std::string_view ending : {".ckpt", ".pt", ".pth", ".bin", ".safetensors", ".distcp", ".nemo"})
    if (member.name.ends_with(ending)) return true;
  return is_below_weights(member);
}

class nemo_reader final : public composed_reader {
 public:
  explicit nemo_reader(const fs::path& file) : composed_reader(checkpoint_format::nemo, file) {}

  // A folder's own reader knows the attributes of its metadata, and which items share bytes.
  const checkpoint_reader& stored() const override { return folder_ != nullptr ? folder_->stored() : *this; }

  result<void> open(const open_options& options) {
    read_budget budget(options.limits);
    SHARDMESH_TRY(const archive opened, archive::open(path_, options.pool(), budget));
    const auto members = opened.members();
    const tar_member* const weights = opened.find(weights_name);
    reads_folder_ = weights == nullptr && std::any_of(members.begin(), members.end(), is_below_weights) &&
                    std::none_of(members.begin(), members.end(), is_of_zarr);
    if (weights != nullptr)
      SHARDMESH_TRY(add_weights(opened, *weights, options));
    else if (reads_folder_)
      SHARDMESH_TRY(add_folder(opened, options));
    else
      return error_without_weights(opened);
    SHARDMESH_TRY(keep_config(opened));
    name_others(opened);
    return {};
  }

 private:
  // Names the member in an error about all of it: the archive itself is not empty, or too large.
  static error of_member(error why, std::string_view member) {
    return why.key.empty() ? std::move(why).with_key(member) : why;
  }

  error error_without_weights(const archive& opened) const {
    const auto members = opened.members();
    const auto refuse = [&](std::string message) {
      return fail(errc::unsupported, std::move(message)).with_file(path_.string());
    };
    if (std::any_of(members.begin(), members.end(), is_of_zarr))
      return refuse("its weights are in zarr, a format of Megatron that is not read")
          .with_hint("load it in NeMo, and save it in the format torch_dist");
    std::vector<std::string> ranks;
    for (const tar_member& member : members)
      if (is_of_rank(member)) ranks.push_back(escaped(member.name));
    if (!ranks.empty())
      return refuse(fmt::format("its weights are in a file for each rank, which are not read: {}", name_list(ranks)))
          .with_hint("extract the archive with tar, and open one of them by its name");
    return fail(errc::bad_format, "holds no weights")
        .with_file(path_.string())
        .with_values(std::string(weights_name), detail::counted(members.size(), "other member"));
  }

  result<void> add_weights(const archive& opened, const tar_member& weights, const open_options& options) {
    const auto place = opened.is_compressed() ? std::nullopt : std::optional(weights.offset);
    auto reader = torch_file::open_section(path_, opened.bytes_of(weights), place, options);
    if (!reader) return of_member(std::move(reader).error(), weights_name);
    return add_entries(*std::move(reader));
  }

  result<void> add_folder(const archive& opened, const open_options& options) {
    if (opened.is_compressed())
      return fail(errc::unsupported, "its weights are many files in a compressed archive, which has no random access")
          .with_file(path_.string())
          .with_hint("decompress the archive with gunzip, and open the result");
    dcp::file_sources files;
    for (const tar_member& member : opened.members())
      if (is_below_weights(member)) files.emplace(member.name.substr(weights_folder.size()), opened.bytes_of(member));
    SHARDMESH_TRY(auto reader, dcp::open_files(path_ / "model_weights", files, options));
    contents_.format = checkpoint_format::dcp;
    contents_.version = reader->contents().version;
    contents_.texts = reader->contents().texts;
    folder_ = reader.get();
    return add_entries(std::move(reader));
  }

  // Shows all entries of the weights. The files of a folder keep their names, which state the ranks that wrote them.
  result<void> add_entries(std::unique_ptr<checkpoint_reader> reader) {
    const std::size_t part = add_part(std::move(reader));
    const catalog& contents = this->part(part).contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      SHARDMESH_TRY(add_whole_tensor(contents.tensors[i].key, contents.tensors[i].where, part, i));
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      SHARDMESH_TRY(add_object(contents.objects[i].key, contents.objects[i].where, part, i));
    return {};
  }

  result<void> keep_config(const archive& opened) {
    const tar_member* const config = opened.find(config_name);
    if (config == nullptr) {
      warnings_.push_back(
          fail(errc::missing_key, fmt::format("has no {}: the model's settings are missing", config_name))
              .with_file(path_.string()));
      return {};
    }
    const auto bytes = read_all(*opened.bytes_of(*config), most_config_bytes);
    if (!bytes) return of_member(bytes.error(), config_name);
    std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    if (is_utf8(text))
      contents_.texts.push_back({std::string(config_name), std::move(text), -1});
    else
      warnings_.push_back(
          fail(errc::bad_format, fmt::format("{} is not UTF-8, and not kept", config_name)).with_file(path_.string()));
    return {};
  }

  void name_others(const archive& opened) {
    std::vector<std::string> others, suspects;
    for (const tar_member& member : opened.members()) {
      if (member.name == weights_name || member.name == config_name) continue;
      if (reads_folder_ && is_below_weights(member)) continue;
      (may_hold_tensors(member) ? suspects : others).push_back(escaped(member.name));
    }
    if (!others.empty()) notes_.push_back("not kept: members of the .nemo file: " + name_list(others));
    if (!suspects.empty())
      warnings_.push_back(
          fail(errc::unsupported, "has members that may hold tensors, and are not read: " + name_list(suspects))
              .with_file(path_.string()));
  }

  bool reads_folder_ = false;
  const checkpoint_reader* folder_ = nullptr;  // the part that reads it
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& file, const open_options& options) {
  auto reader = std::make_unique<nemo_reader>(file);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh::nemo
