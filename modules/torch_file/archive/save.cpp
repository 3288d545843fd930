// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

// Like PyTorch, names the archive after its file.
std::string prefix_of(const std::filesystem::path& destination) {
  const std::string stem = destination.stem().string();
  const bool is_plain = std::all_of(stem.begin(), stem.end(), [](char c) { return c >= ' ' && c <= '~' && c != '/'; });
  return is_plain && !stem.empty() ? stem : "archive";
}

class pt_save {
 public:
  pt_save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
          std::span<const output_object> objects, const save_options& options)
      : destination_(destination), tensors_(std::move(tensors)), objects_(objects), options_(options) {}

  result<save_report> run(element_source source) {
    std::vector<error> problems;
    const auto check_name = [&](const std::string& key) {
      if (auto problem = problem_of_name(key)) problems.push_back(*std::move(problem));
    };
    for (const output_object& object : objects_) check_name(object.key);
    for (const output_tensor& tensor : tensors_) check_name(tensor.key);
    for (const output_tensor& tensor : tensors_)
      if (auto can = tensor_pickle(tensor.type, tensor.bytes.from.global_shape()); !tensor.archive && !can)
        problems.push_back(std::move(can).error().with_key(tensor.key));
    if (!problems.empty()) return fail_all(std::move(problems));
    SHARDMESH_TRY(write(source));
    return std::move(report_);
  }

 private:
  result<void> write(element_source source) {
    SHARDMESH_TRY(state_file state, state_file::make(entries(), prefix_of(destination_)));
    SHARDMESH_TRY(staged_output output, staged_output::file(destination_, options_.output()));
    SHARDMESH_TRY(const std::int32_t file, output.add_file(""));
    SHARDMESH_TRY(output.reserve(state.size_bytes()));
    std::vector<written_item> items;
    state.place(file, items);
    SHARDMESH_TRY(place_tensors(state, file));
    item_writer writer(output, std::move(items), source);
    SHARDMESH_TRY(writer.write_empty_items());
    SHARDMESH_TRY(state.write_archived(writer));
    SHARDMESH_TRY(write_items(transfers_, keys_, source, writer, run_options_of(options_)));
    SHARDMESH_TRY(writer.check_complete());
    if (auto done = state.finish(output, writer); !done) return std::move(done).error();
    SHARDMESH_TRY(output.prepare());
    SHARDMESH_TRY(ask_before_commit(options_));
    SHARDMESH_TRY(output.commit());
    report_.notes = output.notes();
    report_.files = 1;
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    for (const written_item& item : writer.items()) report_.bytes += item.size_bytes;
    return {};
  }

  std::vector<state_entry> entries() const {
    std::vector<state_entry> made;
    made.reserve(tensors_.size() + objects_.size());
    const auto place_of = [](const path& where, const std::string& key) { return where.empty() ? path{key} : where; };
    for (const output_tensor& tensor : tensors_)
      made.push_back({tensor.key, place_of(tensor.where, tensor.key), tensor.type, tensor.bytes.from.global_shape(),
                      tensor.archive});
    for (const output_object& object : objects_)
      made.push_back({object.key, place_of(object.where, object.key), dtype::undefined, {}, object.archive});
    return made;
  }

  result<void> place_tensors(const state_file& state, std::int32_t file) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto slot = state.slot_of(i);
      if (!slot) continue;
      output_tensor& tensor = tensors_[i];
      const extents& shape = tensor.bytes.from.global_shape();
      const fragment whole{box::whole(shape), file, *slot, extents::filled(shape.rank(), 0), 0};
      SHARDMESH_TRY(tensor.bytes.to, distribution::from_fragments(shape, {&whole, 1}, owner_space::items));
      tensor.bytes.to_type = tensor.type;
      transfers_.push_back(tensor.bytes);
      keys_.push_back(tensor.key);
    }
    return {};
  }

  const std::filesystem::path& destination_;
  std::vector<output_tensor> tensors_;
  std::span<const output_object> objects_;
  const save_options& options_;
  save_report report_;
  std::vector<tensor_transfer> transfers_;
  std::vector<std::string> keys_;
};

}  // namespace

result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const save_options& options) {
  const detail::call_scope limits(options.call().named("save"));
  return pt_save(destination, std::move(tensors), objects, options).run(source);
}

}  // namespace shardmesh::torch_file
