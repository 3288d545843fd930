// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.dcp;

namespace shardmesh::dcp {
namespace {

class dcp_save {
 public:
  dcp_save(std::vector<output_tensor> tensors, std::span<const output_object> objects, const dcp::extras& extras,
           const save_options& options)
      : tensors_(std::move(tensors)), objects_(objects), extras_(extras), options_(options) {}

  result<save_report> run(const std::filesystem::path& destination, element_source source) {
    if (std::vector<error> problems = find_problems(); !problems.empty()) return fail_all(std::move(problems));
    SHARDMESH_TRY(write(destination, source));
    return std::move(report_);
  }

 private:
  std::vector<error> find_problems() const {
    std::vector<error> problems;
    std::set<std::string_view> keys;
    const auto check_key = [&](const std::string& key) {
      if (!keys.insert(key).second)
        problems.push_back(fail(errc::duplicate_key, "two entries have the same key").with_key(key));
      if (auto problem = torch_file::problem_of_name(key)) problems.push_back(*std::move(problem));
    };
    for (const output_tensor& tensor : tensors_) {
      check_key(tensor.key);
      if (tensor.archive) continue;
      if (auto can = torch_file::tensor_pickle(tensor.type, tensor.bytes.from.global_shape()); !can)
        problems.push_back(std::move(can).error().with_key(tensor.key));
    }
    for (const output_object& object : objects_) check_key(object.key);
    return problems;
  }

  result<void> write(const std::filesystem::path& destination, element_source source) {
    SHARDMESH_TRY(staged_output output, staged_output::directory(destination, options_.output()));
    SHARDMESH_TRY(const referred_items referred, unchanged_items(destination, source));
    SHARDMESH_TRY(output.reserve(data_bytes_of(tensors_, referred)));
    rank_files files(output, std::nullopt, referred);
    // Objects come first in every file, as PyTorch places them; their archives are known already.
    std::vector<item_place> object_places;
    for (const output_object& object : objects_) {
      SHARDMESH_TRY(item_place place, write_archive(files, object.rank, object.key, object.archive));
      object_places.push_back(std::move(place));
    }
    SHARDMESH_TRY(place_tensors(files));
    SHARDMESH_TRY(files.write_tensors(tensors_, source, run_options_of(options_)));
    std::vector<item_place>& places = files.places();
    places.insert(places.end(), object_places.begin(), object_places.end());
    std::vector<checksum_range> ranges = files.ranges();
    std::ranges::move(files.referred_ranges(), std::back_inserter(ranges));
    SHARDMESH_TRY(finish_folder(output, tensors_, objects_, places, extras_, std::move(ranges)));
    SHARDMESH_TRY(output.prepare());
    SHARDMESH_TRY(ask_before_commit(options_));
    if (previous_) SHARDMESH_TRY(previous_->check_unchanged(referred));
    SHARDMESH_TRY(output.commit());
    report_.notes = output.notes();
    // With text as keys, an optimizer's load_state_dict() silently drops its state.
    if (auto note = torch_file::note_of_integer_keys(
            tensors_, objects_,
            "text for PyTorch's dcp_to_torch_save, as always in DCP; shardmesh restores the integers"))
      report_.notes.push_back(*std::move(note));
    const auto is_kept = [](const path_key& key) { return torch_file::json_of_key(key).has_value(); };
    if (auto note = torch_file::note_of_python_keys(
            tensors_, objects_, "text for PyTorch's dcp_to_torch_save, as always in DCP (shardmesh keeps them)",
            is_kept))
      report_.notes.push_back(*std::move(note));
    if (auto note = torch_file::note_of_python_keys(tensors_, objects_, "text in DCP's metadata",
                                                    [&](const path_key& key) { return !is_kept(key); }))
      report_.notes.push_back(*std::move(note));
    report_.files = files.files();
    report_.bytes = files.data_bytes();
    report_.referred_bytes = files.referred_bytes();
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    return {};
  }

  // Returns the items of the previous checkpoint that hold chunks of this one.
  result<referred_items> unchanged_items(const std::filesystem::path& destination, element_source source) {
    if (options_.previous.empty()) return referred_items{};
    SHARDMESH_TRY(previous_, previous_checkpoint::open(options_.previous, destination));
    item_run_options run = run_options_of(options_);
    run.progress = {};  // which the write reports
    SHARDMESH_TRY(const auto unchanged, previous_->find_unchanged(tensors_, source, std::nullopt, run));
    return previous_->items_of(tensors_, unchanged);
  }

  static result<item_place> write_archive(rank_files& files, std::int32_t rank, const std::string& key,
                                          const std::function<result<std::vector<std::byte>>()>& make) {
    auto bytes = make();
    if (!bytes) return std::move(bytes).error().with_key(key);
    SHARDMESH_TRY(item_place place, files.place(rank, static_cast<std::int64_t>(bytes->size())));
    SHARDMESH_TRY(files.write_archive(rank, place, *bytes));
    return place;
  }

  // Gives every chunk its item and every tensor its `to` distribution. Writes opaque tensors immediately.
  result<void> place_tensors(rank_files& files) {
    for (output_tensor& tensor : tensors_) {
      if (tensor.archive) {
        SHARDMESH_TRY(item_place at, write_archive(files, tensor.chunks.front().rank, tensor.key, tensor.archive));
        files.places().push_back(std::move(at));
        continue;
      }
      auto placed = files.place_tensor(tensor);
      if (!placed) return std::move(placed).error().with_key(tensor.key);
      SHARDMESH_TRY(check_chunks(tensor));
    }
    return {};
  }

  // Checks that the chunks tile the tensor. `bytes.to` has only those that are written.
  result<void> check_chunks(const output_tensor& tensor) {
    offsets_.clear(), sizes_.clear();
    for (const output_chunk& chunk : tensor.chunks) {
      offsets_.insert(offsets_.end(), chunk.where.offsets.begin(), chunk.where.offsets.end());
      sizes_.insert(sizes_.end(), chunk.where.sizes.begin(), chunk.where.sizes.end());
    }
    owners_.resize(tensor.chunks.size());  // no message names them
    const cover_report cover =
        check_boxes(tensor.bytes.from.global_shape(), offsets_, sizes_, owners_, 1, owner_space::items);
    if (cover.ok()) return {};
    return to_error(cover.problems.front()).with_key(tensor.key);
  }

  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const extras& extras_;
  const save_options& options_;
  std::optional<previous_checkpoint> previous_;
  save_report report_;
  // The memory of `check_chunks`, which each tensor uses again.
  std::vector<std::int64_t> offsets_, sizes_;
  std::vector<owner_id> owners_;
};

}  // namespace

result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const dcp::extras& extras,
                         const save_options& options) {
  const detail::call_scope limits(options.call().named("save"));
  return dcp_save(std::move(tensors), objects, extras, options).run(destination, source);
}

}  // namespace shardmesh::dcp
