// SPDX-License-Identifier: Apache-2.0
// The reader of .pt files: an archive of torch.save or torch.jit.save, or a pickle. A state dict has the keys that
// DCP's flattening would give.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :exported_program;
import :item_records;
import :local_tensor;
import :object_parts;
import :plain_data;
import :root_entries;
import :spelled_pickle;
import :split_reader;

namespace shardmesh::torch_file {
namespace fs = places;
namespace {

constexpr std::int64_t chunk_bytes = 2048;

class torch_file_reader final : public checkpoint_reader, public file_of_ranks, public opaque_values {
 public:
  // `part`: the first step of all keys, in a file that is a part of a larger state.
  torch_file_reader(fs::path file, const open_options& options, std::optional<std::string> part = {})
      : pool_(options.pool()), root_{.part = std::move(part)}, budget_(options.limits) {
    path_ = std::move(file);
    contents_.format = checkpoint_format::torch_file;
    contents_.files.push_back(fs::name_of(path_).string());
  }

  // `run`: the range of the file's bytes that is the archive.
  result<void> open(const std::optional<file_run>& run) {
    SHARDMESH_TRY(std::unique_ptr<byte_source> source, pool_.open(path_));
    source_ = std::move(source);
    if (run) {
      source_ = std::make_shared<const shared_section>(source_, run->offset, run->length);
      begin_ = run->offset;
      notes_ = run->notes;
    } else {
      SHARDMESH_TRY(auto plain, with_plain_bytes(*source_, budget_.limits().description_bytes / 4));
      is_rewritten_ = plain != nullptr;
      if (plain) source_ = std::move(plain);
    }
    return read_item();
  }

  // Opens an archive within the file. `offset`: its place there, if the file holds its bytes as they are.
  result<void> open_bytes(std::shared_ptr<const byte_source> bytes, std::optional<std::int64_t> offset) {
    source_ = std::move(bytes);
    begin_ = offset.value_or(0);
    is_rewritten_ = is_decoded_ = !offset;
    return read_item();
  }

  // Reads the description of the archive in `source_`.
  result<void> read_item() {
    auto item = torch_file::item::open(
        *source_, {.pickle_limit_bytes = budget_.limits().description_bytes, .budget = &budget_, .is_file = true});
    if (!item) {
      error cause = std::move(item).error();
      if (cause.file.empty()) cause.file = printable_url(path_.string());
      return cause;
    }
    item_ = std::make_unique<torch_file::item>(std::move(*item));
    auto listed = list();
    if (!listed) return std::move(listed).error().with_file(path_.string());
    find_expanded();
    return {};
  }

  // Makes empty dicts entries.
  void keep_empty() { root_.keeps_empty = true; }

  // Reports the missing ranks when the file of one rank is opened alone.
  void say_what_is_missing() {
    if (!first_part_) return;
    const auto& [tensor, holder] = *first_part_;
    problems_.push_back(
        fail(errc::incomplete_save,
             fmt::format("is one rank's part ({}): only the files of all ranks together hold the tensor", holder))
            .with_key(contents_.tensors[tensor].key)
            .with_file(path_.string())
            .with_hint("open the folder that holds them"));
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (chunk >= first_expanded_) return *expanded_;
    if (const auto refusal = budget_.refusal()) return *refusal;
    const chunk_place& place = chunks_[static_cast<std::size_t>(chunk)];
    auto opened = open_tensor(*item_, place.tensor, source_, budget_, "");
    if (!opened) return budget_.keep(std::move(opened).error().with_key(tensor.key).with_file(path_.string()));
    for (std::size_t d = 0; d < place.local.rank(); ++d)
      opened->tensor.storage_offset += place.local.offsets[d] * opened->tensor.strides[d];
    opened->tensor.sizes = place.local.sizes;
    opened->reads_in_order = opened->reads_in_order || is_decoded_;
    return std::make_shared<const opened_chunk>(std::move(*opened));
  }

  std::int64_t ranks() const override { return ranks_; }

  result<object_value> read_object(std::size_t index) override {
    if (const auto refusal = budget_.refusal()) return *refusal;
    auto value = describe_object(*item_, objects_[index], *source_, budget_);
    if (!value)
      return budget_.keep(std::move(value).error().with_key(contents_.objects[index].key).with_file(path_.string()));
    return value;
  }

  // The result refers to members of this reader and is valid as long as the reader.
  result<opened_value> open_opaque(std::size_t tensor) override {
    const auto lent = [](auto& thing) {
      return std::shared_ptr<std::remove_reference_t<decltype(thing)>>(std::shared_ptr<void>(), &thing);
    };
    return opened_value{{source_, lent(std::as_const(*item_)), lent(budget_), ""}, opaque_tensors_.at(tensor)};
  }

  // Returns the object's part of the pickle as an archive. Refuses objects with tensors, which need storages as well.
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

  // Plain data lies in the pickle, which was checked when the file was opened. This checks the rest: the storages of
  // tensors inside objects and of opaque tensors.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    if (options.quick) return {};
    if (std::none_of(entries.begin(), entries.end(), [&](const auto& entry) { return may_refer(value_of(entry)); }))
      return {};
    auto opened = item_storages::open(*source_, *item_, &budget_);
    if (!opened) return {{std::move(opened).error()}, 0, 0, 0};
    // One thread: storages that entries share are then checked once.
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

  // Views may repeat stored elements (zeros(1).expand(2**38)), and many may share one storage. Reading stops at the
  // tensor that takes the total past the plausible size.
  void find_expanded() {
    std::int64_t left = source_->size_bytes();
    for (const tensor_entry& tensor : contents_.tensors) {
      if (tensor.chunk_count == 0) continue;
      std::int64_t elements = 0;
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
        elements += checked_volume(contents_.chunk_box(tensor, chunk).sizes).value_or(0);
      const std::int64_t bytes = size_bytes(tensor.type, elements).value_or(0);
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

  result<void> list() {
    SHARDMESH_TRY(taken_apart parts, entries_of_root(*item_, *source_, budget_, root_));
    std::move(parts.notes.begin(), parts.notes.end(), std::back_inserter(notes_));
    unread_tensors_ += parts.unread_tensors;
    for (flat_entry& entry : parts.entries) {
      if (entry.where.empty())
        return fail(errc::unsupported, fmt::format("it holds a {}, whose tensors ({}) have no names",
                                                   escaped(classify(*item_, item_->root()).type), entry.hidden_tensors))
            .with_hint("load it in Python and torch.save its state_dict()");
      SHARDMESH_TRY(add(std::move(entry)));
    }
    return {};
  }

  result<void> add(flat_entry entry) {
    if (root_.part && !entry.tensor) entry.tensor = local_tensor_of(*item_, entry.value);
    if (!entry.tensor && !item_->is_opaque_tensor(entry.value)) {
      contents_.objects.push_back({entry.fqn, entry.where, {}, entry.hidden_tensors});
      objects_.push_back(entry.value);
      return {};
    }
    contents_.tensors.push_back(tensor_of_entry(*item_, entry));
    if (!entry.tensor) return add_part(entry);
    const box whole = box::whole(item_->tensors()[*entry.tensor].sizes);
    add_chunk(whole, *entry.tensor, whole);
    return {};
  }

  void add_chunk(const box& where, std::size_t tensor, const box& local) {
    const torch_file::storage& storage = item_->storages()[item_->tensors()[tensor].storage];
    // Bytes that were rewritten or decoded have no place in the file to refer to.
    contents_.add_chunk(
        where, is_rewritten_ ? stored_range{} : stored_range{0, 0, begin_ + storage.offset, storage.stored_bytes});
    chunks_.push_back({tensor, local});
  }

  // Adds the chunks of a DTensor or ShardedTensor that are in this file. Other values, and those whose chunks cannot be
  // read, stay opaque.
  result<void> add_part(const flat_entry& entry) {
    tensor_entry& made = contents_.tensors.back();
    auto part = rank_part_of(*item_, entry.value);
    if (!part && part.error().code != errc::unsupported) return std::move(part).error().with_key(made.key);
    if (!part || !*part) {
      if (!part) made.opaque_kind = part.error().message;
      opaque_tensors_.emplace(contents_.tensors.size() - 1, entry.value);
      return {};
    }
    // Charges 2 KiB per piece: each becomes a catalog entry, and comparing ranks opens it.
    SHARDMESH_TRY(budget_.build(chunk_bytes * static_cast<std::int64_t>((*part)->pieces.size())));
    made.type = (*part)->type;
    made.shape = (*part)->shape;
    made.properties.requires_grad = (*part)->requires_grad;
    made.opaque_type.clear();
    made.opaque_kind.clear();
    ranks_ = std::max(ranks_, (*part)->ranks);
    std::int64_t held = 0;
    for (const rank_piece& piece : (*part)->pieces) {
      held += checked_volume(piece.where.sizes).value_or(0);
      add_chunk(piece.where, piece.tensor, {piece.local_offsets, piece.where.sizes});
    }
    if (held < checked_volume(made.shape) && !first_part_)
      first_part_.emplace(contents_.tensors.size() - 1, std::move((*part)->holder));
    return {};
  }

  // A chunk: a box of one of the item's tensors.
  struct chunk_place {
    std::size_t tensor = 0;
    box local;
  };

  file_pool pool_;
  root_options root_;
  std::shared_ptr<const byte_source> source_;
  std::int64_t begin_ = 0;     // of the archive in the file
  bool is_rewritten_ = false;  // `source_` is the file's pickle with plain bytes, or a decoded part of the file
  bool is_decoded_ = false;    // the latter: a read that goes back starts over
  std::unique_ptr<item> item_;
  std::vector<pickle::value> objects_;
  std::unordered_map<std::size_t, pickle::value> opaque_tensors_;  // by index into the catalog
  std::vector<chunk_place> chunks_;
  std::int64_t ranks_ = 1;
  // The first incomplete tensor: its index, and which rank's part it is.
  std::optional<std::pair<std::size_t, std::string>> first_part_;
  read_budget budget_;
  std::int32_t first_expanded_ = std::numeric_limits<std::int32_t>::max();
  std::optional<error> expanded_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& file, const open_options& options) {
  auto reader = open_run(file, options, std::nullopt);
  if (reader || reader.error().code != errc::bad_format) return reader;
  // Without a data.pkl, the archive may be an exported program.
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(file));
  if (!looks_like_zip(*source)) return reader;
  const auto directory = zip_directory::read(*source);
  return directory && is_exported_program(*directory) ? open_exported_program(file, options) : std::move(reader);
}

result<std::unique_ptr<checkpoint_reader>> open_run(const fs::path& file, const open_options& options,
                                                    const std::optional<file_run>& run) {
  auto reader = std::make_unique<torch_file_reader>(file, options);
  reader->keep_empty();
  SHARDMESH_TRY(reader->open(run));
  reader->say_what_is_missing();
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

result<std::unique_ptr<checkpoint_reader>> open_section(const fs::path& file, std::shared_ptr<const byte_source> bytes,
                                                        std::optional<std::int64_t> offset,
                                                        const open_options& options) {
  auto reader = std::make_unique<torch_file_reader>(file, options);
  reader->keep_empty();
  SHARDMESH_TRY(reader->open_bytes(std::move(bytes), offset));
  reader->say_what_is_missing();
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

result<std::unique_ptr<checkpoint_reader>> open_part(const fs::path& file, const std::string& name,
                                                     const open_options& options) {
  auto reader = std::make_unique<torch_file_reader>(file, options, name);
  reader->keep_empty();
  SHARDMESH_TRY(reader->open(std::nullopt));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

result<std::unique_ptr<checkpoint_reader>> open_rank_file(const fs::path& file, const open_options& options,
                                                          empty_dicts empty) {
  auto reader = std::make_unique<torch_file_reader>(file, options);
  if (empty == empty_dicts::kept) reader->keep_empty();
  SHARDMESH_TRY(reader->open(std::nullopt));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh::torch_file
