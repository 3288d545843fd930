// SPDX-License-Identifier: Apache-2.0
// Opens DCP folders: entries come from the metadata, and items are opened on demand by `folder_reader`.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :folder_listing;
import :folder_reader;
import :megatron;

namespace shardmesh::dcp {
namespace fs = places;

const extras& extras_of(const checkpoint_reader& reader) {
  static const extras none = new_extras();
  const auto* const read = dynamic_cast<const folder_reader*>(&reader.stored());
  return read ? read->extras() : none;
}

checkpoint_reader* copies_of(const checkpoint_reader& reader) {
  const auto* const read = dynamic_cast<const folder_reader*>(&reader.stored());
  return read ? read->copies() : nullptr;
}

std::span<const std::int32_t> shared_chunks_of(const checkpoint_reader& reader) {
  const auto* const read = dynamic_cast<const folder_reader*>(&reader);
  return read ? read->shared_chunks() : std::span<const std::int32_t>();
}

const pickle::used_names* names_of_metadata(const checkpoint_reader& reader, const fs::path& file) {
  const auto* const read = dynamic_cast<const folder_reader*>(&reader.stored());
  return read ? read->names_of(file) : nullptr;
}

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  const auto before = folder_files::identity_of(folder);
  SHARDMESH_TRY(const folder_listing listing, list_folder(folder));
  const auto budget = std::make_shared<read_budget>(options.limits);
  SHARDMESH_TRY(metadata description, read_metadata(folder, listing, options, *budget));
  if (options.only_keys.empty()) note_oddities(folder, listing, description);  // skipped entries are unknown
  metadata copied;
  copied.contents = std::move(description.copies);
  auto reader = std::make_unique<folder_reader>(folder, std::move(description), options, budget);
  reader->check_repeats();
  if (!copied.contents.tensors.empty() || !copied.contents.objects.empty()) {
    auto copies = std::make_unique<folder_reader>(folder, std::move(copied), options, budget);
    copies->check_repeats();
    reader->keep_copies(std::move(copies));
  }
  // From now on, the readers compare the identity of the folder themselves.
  const auto now = folder_files::identity_of(folder);
  if (before && (!now || !now->is_same_as(*before)))
    return fail(errc::io, "the checkpoint was replaced or removed while it was opened")
        .with_file(folder.string())
        .with_hint("open it again");
  return folder_reader::with_megatron(std::move(reader), options);
}

result<std::unique_ptr<checkpoint_reader>> open_files(const fs::path& folder, const file_sources& files,
                                                      const open_options& options) {
  const auto described = files.find(".metadata");
  if (described == files.end())
    return fail(errc::incomplete_save, "incomplete save: it has no .metadata").with_file(folder.string());
  const auto budget = std::make_shared<read_budget>(options.limits);
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_all(*described->second, budget->limits().description_bytes));
  SHARDMESH_TRY(metadata description, parse_metadata(std::move(bytes), (folder / ".metadata").string(), budget.get()));
  auto reader = std::make_unique<folder_reader>(folder, std::move(description), options, budget);
  reader->provide(files);
  reader->check_repeats();
  const auto common = files.find(common_file);
  return folder_reader::with_megatron(std::move(reader), options, common == files.end() ? nullptr : common->second);
}

}  // namespace shardmesh::dcp
