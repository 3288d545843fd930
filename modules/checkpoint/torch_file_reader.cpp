// SPDX-License-Identifier: Apache-2.0
// The reader of .pt files: one torch.save archive with a state dict in it. Its keys are those DCP's flattening would
// give.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.checkpoint;

import :item_records;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

class torch_file_reader final : public checkpoint_reader {
 public:
  torch_file_reader(fs::path file, const open_options& options) : pool_(options.max_open_files) {
    path_ = std::move(file);
    contents_.format = checkpoint_format::torch_file;
    contents_.files.push_back(path_.filename().string());
  }

  result<void> open() {
    SHARDMESH_TRY(std::unique_ptr<byte_source> source, pool_.open(path_));
    source_ = std::move(source);
    auto item = torch_item::open(*source_);
    if (!item) {
      error cause = std::move(item).take_error();
      if (cause.file.empty()) cause.file = path_.string();
      return cause;
    }
    item_ = std::make_unique<torch_item>(std::move(*item));
    auto entries = flatten_state_dict(*item_, item_->root());
    if (!entries) return std::move(entries).take_error().with_file(path_.string());
    for (const flat_entry& entry : *entries) add(entry);
    return {};
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    auto opened = open_torch_tensor(*item_, chunk_tensors_[static_cast<std::size_t>(chunk)], source_);
    if (!opened) return std::move(opened).take_error().with_key(tensor.key).with_file(path_.string());
    return std::make_shared<const opened_chunk>(std::move(*opened));
  }

  result<object_value> read_object(std::size_t index) override {
    auto value = describe_object(*item_, objects_[index], *source_);
    if (!value) return std::move(value).take_error().with_key(contents_.objects[index].key).with_file(path_.string());
    return value;
  }

  // The object's part of the file's pickle, on its own. One that holds tensors would need their storages as well.
  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    const auto refuse = [&](error e) {
      return std::move(e).with_key(contents_.objects[index].key).with_file(path_.string());
    };
    if (holds_tensor(objects_[index]))
      return refuse(
          fail(errc::unsupported, "an object of a .pt file that holds tensors cannot be written as a DCP item"));
    pickle_writer out;
    if (auto done = out.value(objects_[index]); !done) return refuse(std::move(done).take_error());
    return torch_object_archive(std::move(out).finish());
  }

  // Plain data lies in the pickle, which was checked when the file was opened: what is left are the storages of tensors
  // inside objects and of tensors of unknown representations.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    if (options.quick) return {};
    auto opened = item_storages::open(*source_, *item_);
    if (!opened) return {{std::move(opened).take_error()}, 0, 0, 0};
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
    SHARDMESH_TRY(item_storages storages, item_storages::open(*source_, *item_));
    SHARDMESH_TRY(const digest128 digest, storages.content_of(value_of(entry)));
    return std::optional(digest);
  }

 private:
  pickle_value value_of(const whole_entry& entry) const {
    return entry.is_tensor ? opaque_tensors_.at(entry.index) : objects_[entry.index];
  }

  void add(const flat_entry& entry) {
    shardmesh::path where;
    for (const flat_path_item& item : entry.path) {
      if (const auto* name = std::get_if<std::string>(&item))
        where.push_back(*name);
      else
        where.push_back(std::get<std::int64_t>(item));
    }
    if (!entry.tensor && !item_->is_opaque_tensor(entry.value)) {
      contents_.objects.push_back({entry.fqn, std::move(where), {}});
      objects_.push_back(entry.value);
      return;
    }
    tensor_entry made;
    made.key = entry.fqn;
    made.where = std::move(where);
    if (!entry.tensor) {
      made.opaque_type = classify(*item_, entry.value).type;
      opaque_tensors_.emplace(contents_.tensors.size(), entry.value);
      contents_.tensors.push_back(std::move(made));
      return;
    }
    const torch_tensor& tensor = item_->tensors()[*entry.tensor];
    made.type = tensor.type;
    made.shape = tensor.sizes;
    made.properties.requires_grad = tensor.requires_grad;
    contents_.tensors.push_back(std::move(made));
    const torch_storage& storage = item_->storages()[tensor.storage];
    contents_.add_chunk(box::whole(tensor.sizes), {0, 0, storage.offset, storage.stored_bytes});
    chunk_tensors_.push_back(*entry.tensor);
  }

  // A persistent id below the value is a storage. Shared values are looked at once.
  bool holds_tensor(const pickle_value& value) const {
    std::vector<pickle_value> pending{value};
    for (std::size_t budget = 0; !pending.empty(); ++budget) {
      const pickle_value at = pending.back();
      pending.pop_back();
      if (item_->tensor_of(at) || item_->is_opaque_tensor(at)) return true;
      if (budget > 1'000'000) return true;  // too tangled to prove: refuse rather than lose bytes
      for (const pickle_value item : sequence_items(at)) pending.push_back(item);
      for (const auto [key, item] : mapping_entries(at).pairs()) pending.push_back(item);
      if (at.kind() == pickle_kind::persistent) return true;
      if (at.kind() == pickle_kind::record) {
        pending.push_back(at.args());
        pending.push_back(at.state());
      }
    }
    return false;
  }

  file_pool pool_;
  std::shared_ptr<const byte_source> source_;
  std::unique_ptr<torch_item> item_;
  std::vector<pickle_value> objects_;
  std::unordered_map<std::size_t, pickle_value> opaque_tensors_;  // by index into the catalog
  std::vector<std::size_t> chunk_tensors_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_torch_file(const fs::path& file, const open_options& options) {
  auto reader = std::make_unique<torch_file_reader>(file, options);
  SHARDMESH_CHECK(reader->open());
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
