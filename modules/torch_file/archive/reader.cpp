// SPDX-License-Identifier: Apache-2.0
// The reader of .pt files: an archive of torch.save or torch.jit.save, or a pickle. A state dict has the keys that
// DCP's flattening would give.
module;
#include <shardmesh/try.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
module shardmesh.torch_file;

import :exported_program;
import :spelled_pickle;
import :split_reader;
import :torch_file_reader;

namespace shardmesh::torch_file {
namespace fs = places;

torch_file_reader::torch_file_reader(fs::path file, const open_options& options, std::optional<std::string> part)
    : pool_(options.pool()), root_{.part = std::move(part)}, budget_(options.limits) {
  path_ = std::move(file);
  contents_.format = checkpoint_format::torch_file;
  contents_.files.push_back(fs::name_of(path_).string());
}

result<void> torch_file_reader::open(const std::optional<file_run>& run) {
  SHARDMESH_TRY(std::unique_ptr<byte_source> source, pool_.open(path_));
  source_ = std::move(source);
  if (run) {
    source_ = std::make_shared<const shared_section>(source_, run->offset, run->length);
    begin_ = run->offset;
    notes_ = run->notes;
    unread_tensors_ = run->unread_tensors;
  } else {
    SHARDMESH_TRY(auto plain, with_plain_bytes(*source_, budget_.limits().description_bytes / 4));
    is_rewritten_ = plain != nullptr;
    if (plain) source_ = std::move(plain);
  }
  return read_item();
}

result<void> torch_file_reader::open_bytes(std::shared_ptr<const byte_source> bytes,
                                           std::optional<std::int64_t> offset) {
  source_ = std::move(bytes);
  begin_ = offset.value_or(0);
  is_rewritten_ = is_decoded_ = !offset;
  return read_item();
}

result<void> torch_file_reader::read_item() {
  auto item = torch_file::item::open(
      *source_, {.pickle_limit_bytes = budget_.limits().description_bytes, .budget = &budget_, .is_file = true});
  if (!item) {
    error cause = std::move(item).error();
    if (cause.file.empty()) cause.file = printable_url(path_.string());
    return cause;
  }
  item_ = std::make_unique<torch_file::item>(std::move(*item));
  warnings_.insert(warnings_.end(), item_->warnings().begin(), item_->warnings().end());
  auto listed = list();
  if (!listed) return std::move(listed).error().with_file(path_.string());
  find_expanded();
  return {};
}

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
