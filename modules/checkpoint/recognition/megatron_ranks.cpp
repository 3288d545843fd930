// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :megatron_cut;
import :megatron_ranks;

namespace shardmesh {
namespace fs = places;
namespace {

constexpr std::string_view beginning = "mp_rank_";
constexpr std::string_view rank_file = "model_optim_rng.pt", optimizer_file = "distrib_optim.pt";
constexpr std::string_view end_of_model = "decoder.final_layernorm.weight";

// The numbers of "mp_rank_01_002": those of tensor, pipeline, and expert parallelism. Empty if it is no such name.
std::vector<std::int64_t> numbers_of(std::string_view name) {
  std::vector<std::int64_t> numbers;
  name.remove_prefix(beginning.size());
  while (numbers.size() < 3) {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + std::min<std::size_t>(name.size(), 6), number);
    if (parsed.ec != std::errc() || number < 0) return {};
    numbers.push_back(number);
    name.remove_prefix(static_cast<std::size_t>(parsed.ptr - name.data()));
    if (name.empty()) return numbers;
    if (name.front() != '_') return {};
    name.remove_prefix(1);
  }
  return {};
}

std::vector<std::string> rank_folders(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code, ignored;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(beginning) && at->is_directory(ignored)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The folders of the ranks, by the ranks of pipeline and tensor parallelism.
using rank_grid = std::map<std::pair<std::int64_t, std::int64_t>, std::string>;

result<rank_grid> list_ranks(const fs::path& folder) {
  rank_grid made;
  for (const std::string& name : rank_folders(folder)) {
    const std::vector<std::int64_t> numbers = numbers_of(name);
    if (numbers.empty())
      return fail(errc::bad_format, "its name is not that of a rank")
          .with_file((folder / name).string())
          .with_values("mp_rank_TT or mp_rank_TT_PPP", name)
          .with_hint("move it out of the folder, or open one rank's file by its name");
    if (numbers.size() == 3)
      return fail(errc::unsupported, "is a rank of expert parallelism, whose files are not merged")
          .with_file((folder / name).string())
          .with_hint("save with --ckpt-format torch_dist");
    const auto [known, is_new] = made.emplace(std::pair(numbers.size() > 1 ? numbers[1] : 0, numbers[0]), name);
    if (!is_new)
      return fail(errc::duplicate_key, fmt::format("has the numbers of {}", known->second))
          .with_file((folder / name).string());
  }
  return made;
}

// Refuses a grid with gaps.
result<void> check_complete(const rank_grid& grid, std::int64_t tensor_ranks, std::int64_t pipeline_ranks,
                            const fs::path& folder) {
  for (std::int64_t stage = 0; stage < pipeline_ranks; ++stage)
    for (std::int64_t rank = 0; rank < tensor_ranks; ++rank)
      if (!grid.contains(std::pair(stage, rank)))
        return fail(errc::incomplete_save,
                    fmt::format("tensor-parallel rank {} of pipeline rank {} is missing", rank, stage))
            .with_file(folder.string())
            .with_values(fmt::format("{} x {} ranks", tensor_ranks, pipeline_ranks),
                         detail::counted(grid.size(), "rank"));
  return {};
}

}  // namespace

bool holds_megatron_ranks(const fs::path& folder) {
  return rank_folders(folder).size() > 1;
}

error megatron_ranks_reader::at(error problem, const std::string& key, std::size_t part) {
  return std::move(problem).with_key(key).with_file(this->part(part).path().string());
}

result<void> megatron_ranks_reader::open(const open_options& options) {
  SHARDMESH_TRY(open_files(options));
  for (std::int64_t rank = 0; rank < pipeline_ranks_; ++rank) SHARDMESH_TRY(check_same_keys(rank));
  SHARDMESH_TRY(const std::vector<stage> stages, find_stages());
  SHARDMESH_TRY(check_end(stages));
  notes_.push_back(fmt::format("merged: {} of tensor parallelism, and {} of pipeline parallelism",
                               detail::counted(tensor_ranks_, "rank"), detail::counted(pipeline_ranks_, "rank")));
  for (const stage& one : stages) {
    const catalog& contents = contents_of(part_at(0, one.rank));
    for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
      const auto key = parse_megatron_key(contents.tensors[i].key);
      if (key && key->chunk == one.chunk) SHARDMESH_TRY(merge_tensor(*key, one, i));
    }
    for (std::size_t i = 0; i < contents.objects.size(); ++i) {
      const auto key = parse_megatron_key(contents.objects[i].key);
      if (key && key->chunk == one.chunk) SHARDMESH_TRY(merge_object(*key, one, i));
    }
  }
  return add_others();
}

result<void> megatron_ranks_reader::open_files(const open_options& options) {
  SHARDMESH_TRY(const rank_grid grid, list_ranks(path_));
  if (grid.empty()) return fail(errc::bad_format, "has no folder of a rank").with_file(path_.string());
  for (const auto& [place, name] : grid) {
    pipeline_ranks_ = std::max(pipeline_ranks_, place.first + 1);
    tensor_ranks_ = std::max(tensor_ranks_, place.second + 1);
  }
  SHARDMESH_TRY(check_complete(grid, tensor_ranks_, pipeline_ranks_, path_));
  std::size_t optimizers = 0;
  for (const auto& [place, name] : grid) {
    const std::string file = fmt::format("{}/{}", name, rank_file);
    SHARDMESH_TRY(check_inside(path_, file));
    SHARDMESH_TRY(auto opened, torch_file::open(path_ / file, options));
    add_part(std::move(opened), name + "/");
    folders_.push_back(name);
    std::error_code ignored;
    optimizers += fs::exists(path_ / name / optimizer_file, ignored) ? 1 : 0;
  }
  if (optimizers > 0)
    notes_.push_back(fmt::format("not read: {} of {}, which has the state of the distributed optimizer", optimizer_file,
                                 detail::counted(optimizers, "rank")));
  return {};
}

result<void> megatron_ranks_reader::check_same_keys(std::int64_t rank) {
  for (std::int64_t other = 1; other < tensor_ranks_; ++other) {
    SHARDMESH_TRY(check_has_keys(part_at(0, rank), part_at(other, rank)));
    SHARDMESH_TRY(check_has_keys(part_at(other, rank), part_at(0, rank)));
  }
  return {};
}

result<void> megatron_ranks_reader::check_has_keys(std::size_t part, std::size_t other) {
  const catalog &has = contents_of(part), &needs = contents_of(other);
  const auto refuse = [&](const std::string& key, std::string_view kind) {
    return at(fail(errc::missing_key, fmt::format("is no {} here, but one in {}", kind, folders_[part]))
                  .with_values(fmt::format("all entries of the model in {}", folders_[part]), "none of this name")
                  .with_hint("check that the files are of one save, or open them one by one"),
              key, other);
  };
  for (const tensor_entry& tensor : has.tensors)
    if (parse_megatron_key(tensor.key) && needs.find(tensor.key) == nullptr) return refuse(tensor.key, "tensor");
  for (const object_entry& object : has.objects)
    if (parse_megatron_key(object.key) && needs.find_object(object.key) == nullptr) return refuse(object.key, "object");
  return {};
}

result<std::vector<megatron_ranks_reader::stage>> megatron_ranks_reader::find_stages() {
  std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::int64_t>> layers;  // by chunk and pipeline rank
  const auto add = [&](const std::string& entry, std::int64_t rank) {
    const auto key = parse_megatron_key(entry);
    if (!key) return;
    std::set<std::int64_t>& of_stage = layers[std::pair(key->chunk, rank)];
    if (key->layer) of_stage.insert(*key->layer);
  };
  for (std::int64_t rank = 0; rank < pipeline_ranks_; ++rank) {
    const catalog& contents = contents_of(part_at(0, rank));
    for (const tensor_entry& tensor : contents.tensors) add(tensor.key, rank);
    for (const object_entry& object : contents.objects) add(object.key, rank);
  }
  if (layers.empty()) return fail(errc::bad_format, "its files hold no model").with_file(path_.string());
  std::vector<stage> made;
  std::int64_t first = 0;
  for (const auto& [place, numbers] : layers) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    if (count > 0 && *numbers.rbegin() != count - 1)
      return fail(errc::incomplete_save, "the layers of this rank are not numbered without a gap")
          .with_file(part(part_at(0, place.second)).path().string())
          .with_values(fmt::format("layers 0 to {}", count - 1), fmt::format("layer {}", *numbers.rbegin()));
    made.push_back({place.first, place.second, first});
    first += count;
  }
  return made;
}

result<void> megatron_ranks_reader::check_end(const std::vector<stage>& stages) {
  if (stages.size() == 1) return {};
  std::vector<const stage*> found;
  for (const stage& one : stages)
    for (const tensor_entry& tensor : contents_of(part_at(0, one.rank)).tensors) {
      const auto key = parse_megatron_key(tensor.key);
      if (key && key->chunk == one.chunk && key->name == end_of_model) found.push_back(&one);
    }
  if (found.size() == 1 && found.front() == &stages.back()) return {};
  error why = fail(errc::unsupported, "its ranks are not the stages of one pipeline of megatron-core")
                  .with_file(path_.string())
                  .with_values(fmt::format("{} in the last stage only", end_of_model),
                               fmt::format("it in {}", detail::counted(found.size(), "stage")));
  return std::move(why).with_hint(found.size() > 1
                                      ? "ranks of expert parallelism are not merged: save with --ckpt-format torch_dist"
                                      : "open the ranks' files one by one");
}

result<std::unique_ptr<checkpoint_reader>> open_megatron_ranks(const fs::path& folder, const open_options& options) {
  auto reader = std::make_unique<megatron_ranks_reader>(folder);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
