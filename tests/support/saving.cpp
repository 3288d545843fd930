// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.saving.
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <on_ranks.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

module shardmesh.test.saving;

import shardmesh.collective_checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace saving {

rows::rows(std::int32_t rank, std::int32_t ranks, std::int32_t value)
    : memory(static_cast<std::size_t>(per_rank * width), value) {
  const box mine{{rank * per_rank, 0}, {per_rank, width}};
  state.tensors.push_back({{"w"}, {ranks * per_rank, width}, dtype::int32, {{mine, view()}}});
}

tensor_view rows::view() {
  return {reinterpret_cast<std::byte*>(memory.data()), dtype::int32, {}, {per_rank, width}, {width, 1}};
}

std::string text_of(std::span<const error> problems) {
  std::string all;
  for (const error& problem : problems) all += to_string(problem) + "\n";
  return all;
}

std::string must_say(std::span<const error> problems, const std::vector<std::string>& texts) {
  if (problems.empty()) return "there was no error";
  const std::string all = text_of(problems);
  for (const std::string& text : texts)
    if (all.find(text) == std::string::npos) return "it does not say '" + text + "': " + all;
  return {};
}

void on_ranks(const std::vector<std::int32_t>& sizes, const std::function<std::string(any_communicator&)>& body) {
  fabric::on_ranks<any_communicator>(sizes, body);
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace saving
