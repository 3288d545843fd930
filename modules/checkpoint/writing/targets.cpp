// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import shardmesh.gguf;
import shardmesh.npz;
import shardmesh.safetensors;
import shardmesh.storage;
import shardmesh.torch_checkpointing;
import shardmesh.torch_file;

namespace shardmesh {
namespace {

namespace fs = std::filesystem;
using tensor_list = std::vector<output_tensor>;
using object_list = std::span<const output_object>;

result<save_report> write_dcp(const fs::path& destination, tensor_list tensors, object_list objects,
                              element_source source, const target_settings& settings, const save_options& options) {
  return dcp::save(destination, std::move(tensors), objects, source, settings.metadata, options);
}

result<save_report> write_pt(const fs::path& destination, tensor_list tensors, object_list objects,
                             element_source source, const target_settings&, const save_options& options) {
  return torch_file::save(destination, std::move(tensors), objects, source, options);
}

result<save_report> write_torch_checkpointing(const fs::path& destination, tensor_list tensors, object_list objects,
                                              element_source source, const target_settings& settings,
                                              const save_options& options) {
  return torch_checkpointing::save(destination, std::move(tensors), objects, source, settings.items, options);
}

template <bool IsFolder>
result<save_report> write_safetensors(const fs::path& destination, tensor_list tensors, object_list objects,
                                      element_source source, const target_settings& settings,
                                      const save_options& options) {
  safetensors::file_options files = settings.files;
  files.folder = IsFolder;
  return safetensors::save(destination, std::move(tensors), objects, source, files, options);
}

std::optional<error> problem_of_pickled(std::string_view key, dtype, const extents&) {
  return torch_file::problem_of_name(key);
}

// The metadata of torch_checkpointing is JSON.
std::optional<error> problem_of_item(std::string_view key, dtype, const extents&) {
  if (is_utf8(key)) return std::nullopt;
  return fail(errc::unsupported, "the metadata cannot hold a name that is not UTF-8")
      .with_key(key)
      .with_hint("rename the entry, or leave it out");
}

std::optional<error> problem_of_safetensors(std::string_view key, dtype type, const extents& shape) {
  const safetensors::tensor entry{std::string(key), type, shape};
  std::vector<error> problems = safetensors::problems_of({&entry, 1});
  return problems.empty() ? std::nullopt : std::optional(std::move(problems.front()));
}

result<save_report> write_gguf(const fs::path& destination, tensor_list tensors, object_list objects,
                               element_source source, const target_settings& settings, const save_options& options) {
  return gguf::save(destination, std::move(tensors), objects, source, settings.gguf_file, options);
}

result<save_report> write_npz(const fs::path& destination, tensor_list tensors, object_list objects,
                              element_source source, const target_settings&, const save_options& options) {
  return npz::save(destination, std::move(tensors), objects, source, options);
}

constexpr std::array of_dcp{checkpoint_format::dcp};
// A model in .bin files is a Hugging Face folder of an older kind.
constexpr std::array of_hugging_face{checkpoint_format::hf, checkpoint_format::torch_files};

constexpr std::array all{
    target{.format = target_format::dcp,
           .name = "dcp",
           .extension = {},
           .is_pickled = true,
           .is_nested = false,
           .has_texts = true,
           .has_items = false,
           .has_objects_file = false,
           .has_block_types = false,
           .problem_of = problem_of_pickled,
           .side_files_of = of_dcp,
           .write = write_dcp},
    target{.format = target_format::safetensors,
           .name = "safetensors",
           .extension = ".safetensors",
           .is_pickled = false,
           .is_nested = false,
           .has_texts = true,
           .has_items = false,
           .has_objects_file = true,
           .has_block_types = false,
           .problem_of = problem_of_safetensors,
           .side_files_of = {},
           .write = write_safetensors<false>},
    target{.format = target_format::hf,
           .name = "hf",
           .extension = {},
           .is_pickled = false,
           .is_nested = false,
           .has_texts = true,
           .has_items = false,
           .has_objects_file = true,
           .has_block_types = false,
           .problem_of = problem_of_safetensors,
           .side_files_of = of_hugging_face,
           .write = write_safetensors<true>},
    target{.format = target_format::pt,
           .name = "pt",
           .extension = ".pt",
           .is_pickled = true,
           .is_nested = true,
           .has_texts = false,
           .has_items = false,
           .has_objects_file = false,
           .has_block_types = false,
           .problem_of = problem_of_pickled,
           .side_files_of = {},
           .write = write_pt},
    target{.format = target_format::torch_checkpointing,
           .name = "torch-checkpointing",
           .extension = {},
           .is_pickled = true,
           .is_nested = true,
           .has_texts = false,
           .has_items = true,
           .has_objects_file = false,
           .has_block_types = false,
           .problem_of = problem_of_item,
           .side_files_of = {},
           .write = write_torch_checkpointing},
    target{.format = target_format::gguf,
           .name = "gguf",
           .extension = ".gguf",
           .is_pickled = false,
           .is_nested = false,
           .has_texts = true,
           .has_items = false,
           .has_objects_file = false,
           .has_block_types = true,
           .problem_of = gguf::problem_of,
           .side_files_of = {},
           .write = write_gguf},
    target{.format = target_format::npz,
           .name = "npz",
           .extension = ".npz",
           .is_pickled = false,
           .is_nested = false,
           .has_texts = false,
           .has_items = false,
           .has_objects_file = false,
           .has_block_types = false,
           .problem_of = npz::problem_of,
           .side_files_of = {},
           .write = write_npz},
};

}  // namespace

std::span<const target> targets() {
  return all;
}

const target& target_of(target_format format) {
  return all[static_cast<std::size_t>(format)];
}

const target* find_target(std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const target& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const target* target_by_extension(const fs::path& destination) {
  const std::string extension = destination.extension().string();
  if (extension.empty()) return nullptr;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const target& one) { return one.extension == extension; });
  return found == all.end() ? nullptr : &*found;
}

std::string target_names(std::string_view prefix) {
  std::string text;
  for (const target& one : all)
    text += fmt::format("{}{}{}", &one == all.begin() ? "" : &one == &all.back() ? ", or " : ", ", prefix, one.name);
  return text;
}

result<void> check_previous(target_format format, const fs::path& previous) {
  if (previous.empty() || format == target_format::dcp) return {};
  return fail(errc::invalid_argument, "only a DCP folder can refer to a previous checkpoint")
      .with_file(previous.string())
      .with_values("dcp", std::string(target_of(format).name))
      .with_hint("save as DCP, or without `previous`");
}

fs::path objects_file(const target& format, const fs::path& destination) {
  if (!format.has_objects_file) return {};
  return format.extension.empty() ? destination / "objects.json" : objects_beside(destination);
}

}  // namespace shardmesh
