// SPDX-License-Identifier: Apache-2.0
module;
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace {

// As `look_at`, also for a URL. Of an object in a store, only the kind is known.
result<destination_snapshot> look_at_file(const std::filesystem::path& file) {
  if (!is_url(file)) return look_at(file);
  SHARDMESH_TRY(const places::file_status there, places::checked_status(file));
  destination_snapshot seen;
  if (places::exists(there))
    seen.self = file_identity{.kind = places::is_regular_file(there) ? std::uint32_t{S_IFREG} : std::uint32_t{S_IFDIR}};
  return seen;
}

// Returns the version of an object in a store; an empty text for a local file.
result<std::string> version_of(const std::filesystem::path& file) {
  if (!is_url(file)) return std::string();
  SHARDMESH_TRY(const auto store, store_of(file));
  SHARDMESH_TRY(const auto there, store->look(file.native()));
  return there ? there->version : std::string();
}

result<void> remove_object(const std::filesystem::path& url, const std::string& version) {
  SHARDMESH_TRY(const auto store, store_of(url));
  return store->remove_version(url.native(), version);
}

}  // namespace

result<objects_copy> objects_copy::look(const std::filesystem::path& destination, std::string_view document,
                                        const output_options& options) {
  objects_copy made;
  made.destination_ = destination;
  made.beside_ = objects_beside(destination);
  made.document_ = document;
  made.options_ = options;
  if (!options.overwrite) return made;
  SHARDMESH_TRY(made.old_, look_at_file(made.beside_));
  if (!made.old_.self) return made;
  SHARDMESH_TRY(made.old_version_, version_of(made.beside_));
  const bool is_copy = made.old_.is_file() && is_objects_file(made.beside_);
  if (!is_copy && !document.empty())
    return fail(errc::destination_exists, "is not a file of objects that shardmesh wrote, and is not replaced")
        .with_file(made.beside_.string());
  if (!is_copy) made.old_ = {};
  return made;
}

result<void> objects_copy::stage() {
  if (document_.empty()) return {};
  SHARDMESH_TRY(output_, staged_output::file(beside_, options_));
  return {};
}

result<void> objects_copy::prepare() {
  if (!output_) return {};
  SHARDMESH_TRY(const std::int32_t number, output_->add_file(""));
  SHARDMESH_TRY(output_->write(number, 0, std::as_bytes(std::span(document_.data(), document_.size()))));
  return output_->prepare();
}

result<void> objects_copy::commit(std::vector<std::string>& notes) {
  if (output_) {
    auto placed = output_->commit();
    if (!placed)
      return std::move(placed).error().with_hint("the file itself was written, with the objects in its header");
    notes.insert(notes.end(), output_->notes().begin(), output_->notes().end());
    return {};
  }
  if (is_url(beside_)) {
    auto gone = old_.self ? remove_object(beside_, old_version_) : result<void>();
    if (!gone) notes.push_back("a file of the old checkpoint could not be removed: " + to_string(gone.error()));
    return {};
  }
  const auto now = look_at(beside_);
  if (!old_.self || !now || change_between(old_, *now, false)) return {};
  std::error_code code;
  std::filesystem::remove(beside_, code);
  if (code) notes.push_back(beside_.string() + ": belongs to the old file and could not be removed: " + code.message());
  return {};
}

}  // namespace shardmesh::safetensors
