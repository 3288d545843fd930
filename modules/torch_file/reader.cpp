// SPDX-License-Identifier: Apache-2.0
// The reader of .pt files: one torch.save archive with a state dict in it. Its keys are those DCP's flattening would
// give.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :item_records;
import :object_parts;
import :split_reader;

namespace shardmesh::torch_file {
namespace fs = std::filesystem;
namespace {

class torch_file_reader final : public checkpoint_reader {
 public:
  torch_file_reader(fs::path file, const open_options& options)
      : pool_(options.max_open_files), budget_(options.limits) {
    path_ = std::move(file);
    contents_.format = checkpoint_format::torch_file;
    contents_.files.push_back(path_.filename().string());
  }

  result<void> open() {
    SHARDMESH_TRY(std::unique_ptr<byte_source> source, pool_.open(path_));
    source_ = std::move(source);
    auto item = torch_file::item::open(*source_,
                                       {.pickle_limit_bytes = budget_.limits().description_bytes, .budget = &budget_});
    if (!item) {
      error cause = std::move(item).error();
      if (cause.file.empty()) cause.file = path_.string();
      return cause;
    }
    item_ = std::make_unique<torch_file::item>(std::move(*item));
    auto listed = list();
    if (!listed) return std::move(listed).error().with_file(path_.string());
    find_expanded();
    return {};
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (chunk >= first_expanded_) return *expanded_;
    if (const auto refusal = budget_.refusal()) return *refusal;
    auto opened = open_tensor(*item_, chunk_tensors_[static_cast<std::size_t>(chunk)], source_, budget_, "");
    if (!opened) return budget_.keep(std::move(opened).error().with_key(tensor.key).with_file(path_.string()));
    return std::make_shared<const opened_chunk>(std::move(*opened));
  }

  result<object_value> read_object(std::size_t index) override {
    if (const auto refusal = budget_.refusal()) return *refusal;
    auto value = describe_object(*item_, objects_[index], *source_, budget_);
    if (!value)
      return budget_.keep(std::move(value).error().with_key(contents_.objects[index].key).with_file(path_.string()));
    return value;
  }

  // The object's part of the file's pickle, on its own. One that holds tensors would need their storages as well.
  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    const auto refuse = [&](error e) {
      return std::move(e).with_key(contents_.objects[index].key).with_file(path_.string());
    };
    if (holds_tensors(*item_, objects_[index]))
      return refuse(
          fail(errc::unsupported, "an object of a .pt file that holds tensors cannot be written as a DCP item"));
    pickle::writer out(2);
    if (auto done = out.value(objects_[index]); !done) return refuse(std::move(done).error());
    return torch_file::object_archive(std::move(out).finish());
  }

  // Plain data lies in the pickle, which was checked when the file was opened: what is left are the storages of tensors
  // inside objects and of tensors of unknown representations.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    if (options.quick) return {};
    auto opened = item_storages::open(*source_, *item_, &budget_);
    if (!opened) return {{std::move(opened).error()}, 0, 0, 0};
    // One after the other: what entries share is looked at once.
    check_options in_order = options;
    in_order.threads = 1;
    return check_each(entries, in_order,
                      [&](const whole_entry& entry) -> result<std::pair<std::int64_t, std::int64_t>> {
                        SHARDMESH_TRY(const record_sums sums, opened->check_reachable(value_of(entry)));
                        return std::pair(sums.checked_bytes, sums.unchecked_bytes);
                      });
  }

  result<std::optional<digest128>> content_of(const whole_entry& entry) override {
    if (entry.is_tensor && !opaque_tensors_.contains(entry.index)) return std::optional<digest128>();
    SHARDMESH_TRY(item_storages storages, item_storages::open(*source_, *item_, &budget_));
    SHARDMESH_TRY(const digest128 digest, storages.content_of(value_of(entry)));
    return std::optional(digest);
  }

 private:
  pickle::value value_of(const whole_entry& entry) const {
    return entry.is_tensor ? opaque_tensors_.at(entry.index) : objects_[entry.index];
  }

  // Views may repeat what is stored (zeros(1).expand(2**38)), and many may share one storage. From the tensor on that
  // makes all of them together implausibly many bytes, none is read.
  void find_expanded() {
    std::int64_t left = source_->size_bytes();
    for (const tensor_entry& tensor : contents_.tensors) {
      if (tensor.chunk_count == 0) continue;
      const std::int64_t bytes = size_bytes(tensor.type, checked_volume(tensor.shape).value_or(0)).value_or(0);
      const std::int64_t stored = std::min(bytes, left);
      left -= stored;
      auto done = budget_.expand(bytes - stored, stored);
      if (done) continue;
      first_expanded_ = tensor.first_chunk;
      expanded_ = std::move(done).error().with_key(tensor.key).with_file(path_.string());
      problems_.push_back(*expanded_);
      return;
    }
  }

  // A state dict, or what is none and has tensors in it: a list of them, a whole nn.Module.
  result<void> list() {
    const pickle::value root = item_->root();
    std::vector<flat_entry> entries{{{}, {}, root, {}, 0}};
    const bool is_tensor = item_->tensor_of(root) || item_->is_opaque_tensor(root);
    // Every entry takes a byte or two of the pickle, unless parts are shared: then these limits are what ends it.
    const auto pickle_bytes = static_cast<std::int64_t>(item_->graph().consumed_bytes());
    if (is_mapping(root) || is_tensor || !holds_tensors(*item_, root)) {
      SHARDMESH_TRY(entries, flatten_state_dict(*item_, root,
                                                {.max_entries = static_cast<std::size_t>(250'000 + pickle_bytes / 2),
                                                 .max_depth = 64,  // it recurses
                                                 .max_path_bytes = static_cast<std::size_t>(budget_.left_to_build())}));
    }
    SHARDMESH_TRY(taken_apart parts, take_apart(*item_, std::move(entries)));
    notes_ = std::move(parts.notes);
    for (const flat_entry& entry : parts.entries) {
      if (entry.path.empty())
        return fail(errc::unsupported, fmt::format("it holds a {}, whose tensors ({}) have no names",
                                                   escaped(classify(*item_, root).type), entry.hidden_tensors))
            .with_hint("load it in Python and torch.save its state_dict()");
      add(entry);
    }
    return {};
  }

  void add(const flat_entry& entry) {
    if (!entry.tensor && !item_->is_opaque_tensor(entry.value)) {
      contents_.objects.push_back({entry.fqn, path_of(entry), {}, entry.hidden_tensors});
      objects_.push_back(entry.value);
      return;
    }
    contents_.tensors.push_back(tensor_of_entry(*item_, entry));
    if (!entry.tensor) {
      opaque_tensors_.emplace(contents_.tensors.size() - 1, entry.value);
      return;
    }
    const torch_file::tensor& tensor = item_->tensors()[*entry.tensor];
    const torch_file::storage& storage = item_->storages()[tensor.storage];
    contents_.add_chunk(box::whole(tensor.sizes), {0, 0, storage.offset, storage.stored_bytes});
    chunk_tensors_.push_back(*entry.tensor);
  }

  file_pool pool_;
  std::shared_ptr<const byte_source> source_;
  std::unique_ptr<item> item_;
  std::vector<pickle::value> objects_;
  std::unordered_map<std::size_t, pickle::value> opaque_tensors_;  // by index into the catalog
  std::vector<std::size_t> chunk_tensors_;
  read_budget budget_;
  std::int32_t first_expanded_ = std::numeric_limits<std::int32_t>::max();
  std::optional<error> expanded_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& file, const open_options& options) {
  auto reader = std::make_unique<torch_file_reader>(file, options);
  SHARDMESH_CHECK(reader->open());
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh::torch_file
