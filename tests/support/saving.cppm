// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.saving: data and checks for tests in which ranks save and load together. Tests only.
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

export module shardmesh.test.saving;

import shardmesh.collective_checkpoint;

export namespace saving {

/// The same number of rows of one tensor on every rank; `value` is in every element.
struct rows {
  static constexpr std::int64_t per_rank = 64, width = 32;
  std::vector<std::int32_t> memory;
  shardmesh::local_state state;

  rows(std::int32_t rank, std::int32_t ranks, std::int32_t value);
  shardmesh::tensor_view view();
  shardmesh::local_state_tensor& tensor() { return state.tensors.front(); }
  shardmesh::local_part& part() { return tensor().parts.front(); }
};

std::string text_of(std::span<const shardmesh::error> problems);

/// Returns "" if there are problems and their text contains all of `texts`.
[[nodiscard]] std::string must_say(std::span<const shardmesh::error> problems, const std::vector<std::string>& texts);

/// Calls `fabric::on_ranks`, compiled once for all tests.
void on_ranks(const std::vector<std::int32_t>& sizes,
              const std::function<std::string(shardmesh::any_communicator&)>& body);

/// The number of entries of a folder.
std::size_t entries(const std::filesystem::path& folder);

}  // namespace saving
