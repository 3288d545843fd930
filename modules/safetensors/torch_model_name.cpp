// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace {

bool is_number(std::string_view text) {
  return text.size() == 5 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<torch_model_name> parse_torch_model_name(std::string_view file) {
  constexpr std::string_view ending = ".bin";
  constexpr auto stems = std::to_array<std::string_view>(
      {"pytorch_model", "diffusion_pytorch_model", "adapter_model", "open_clip_pytorch_model", "pytorch_lora_weights"});
  if (!file.ends_with(ending)) return std::nullopt;
  std::string_view rest = file.substr(0, file.size() - ending.size());
  torch_model_name made;
  // "-00001-of-00002"
  if (rest.size() > 15) {
    const std::string_view part = rest.substr(rest.size() - 15);
    if (part[0] == '-' && is_number(part.substr(1, 5)) && part.substr(6, 4) == "-of-" && is_number(part.substr(10))) {
      made.part = std::stoi(std::string(part.substr(1, 5)));
      made.parts = std::stoi(std::string(part.substr(10)));
      rest.remove_suffix(15);
    }
  }
  const std::size_t dot = rest.find('.');
  made.stem = rest.substr(0, dot);
  if (dot != std::string_view::npos) made.variant = rest.substr(dot + 1);
  if (std::find(stems.begin(), stems.end(), made.stem) == stems.end()) return std::nullopt;
  return made;
}

bool is_torch_model_index(std::string_view file) {
  return file.ends_with(".json") && file.find(".bin.index.") != std::string_view::npos;
}

}  // namespace shardmesh::safetensors
