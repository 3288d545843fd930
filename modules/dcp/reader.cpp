// SPDX-License-Identifier: Apache-2.0
// Reads DCP folders: entries come from the metadata, and items are opened on demand.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :flattened;
import :folder_listing;
import :item_ends;
import :item_runs;
import :megatron;

namespace shardmesh::dcp {
namespace fs = places;
namespace {

constexpr std::int64_t archive_limit_bytes = std::int64_t{4} << 30;

class dcp_reader final : public checkpoint_reader, public torch_file::archived_objects {
 public:
  dcp_reader(fs::path folder, metadata description, const open_options& options, std::shared_ptr<read_budget> budget)
      : extras_(std::move(description.extras)),
        files_(folder, description.contents.files, options.pool(), file_scope::sibling_folders),
        budget_(std::move(budget)) {
    contents_ = std::move(description.contents);
    problems_ = std::move(description.problems);
    warnings_ = std::move(description.warnings);
    conflicts_ = std::move(description.conflicts);
    notes_ = std::move(description.notes);
    names_ = std::move(description.names);
    path_ = std::move(folder);
  }

  // Counts chunks that repeat an item: many of them would make a small file large. After a refusal here, no chunk is
  // read or rewritten.
  void check_repeats() {
    std::vector<std::pair<place_key, std::size_t>> places;
    places.reserve(contents_.chunk_places.size());
    for (std::size_t i = 0; i < contents_.chunk_places.size(); ++i)
      if (contents_.chunk_places[i].file >= 0) places.emplace_back(key_of(contents_.chunk_places[i]), i);
    std::sort(places.begin(), places.end());
    std::int64_t stored = 0, repeated = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const bool is_repeat = i > 0 && places[i].first == places[i - 1].first;
      std::int64_t& sum = is_repeat ? repeated : stored;
      sum = checked_add(sum, places[i].first[2]).value_or(sum);
      if (is_repeat) last = places[i].second;
    }
    auto done = budget_->expand(repeated, stored);
    if (done) return;
    error problem = std::move(done).error();
    for (const tensor_entry& tensor : contents_.tensors)
      if (last >= static_cast<std::size_t>(tensor.first_chunk) &&
          last < static_cast<std::size_t>(tensor.first_chunk) + static_cast<std::size_t>(tensor.chunk_count))
        problem.key = tensor.key;
    problem.file = (path_ / ".metadata").string();
    problems_.push_back(budget_->keep(std::move(problem)));
  }

  // Takes the files that the metadata names from these sources instead of the folder.
  void provide(const file_sources& files) {
    std::vector<std::shared_ptr<const byte_source>> sources;
    for (const std::string& name : contents_.files) {
      const auto found = files.find(name);
      sources.push_back(found == files.end() ? nullptr : found->second);
    }
    files_.provide(std::move(sources));
    const std::set<std::string_view> referenced(contents_.files.begin(), contents_.files.end());
    for (const auto& [name, source] : files)
      if (name.ends_with(".distcp") && source->size_bytes() > 0 && !referenced.contains(name))
        warnings_.push_back(fail(errc::incomplete_save, "nothing refers to this file: a leftover of another save")
                                .with_file((path_ / name).string()));
  }

  // Keeps a reader of the items that the catalog leaves out.
  void keep_copies(std::unique_ptr<dcp_reader> copies) { copies_ = std::move(copies); }
  checkpoint_reader* copies() const { return copies_.get(); }

  const dcp::extras& extras() const { return extras_; }
  const pickle::used_names* names_of(const fs::path& file) const {
    const auto found = names_.find(file.filename().string());
    return found != names_.end() && path_ / file.filename() == file ? &found->second : nullptr;
  }

  // Shows Megatron's additions to the folder as Megatron sees them; returns `plain` itself when there are none.
  // `common`: the bytes of common.pt, if it is not a file of the folder.
  static result<std::unique_ptr<checkpoint_reader>> with_megatron(std::unique_ptr<dcp_reader> plain,
                                                                  const open_options& options,
                                                                  std::shared_ptr<const byte_source> common = {}) {
    dcp_reader& reader = *plain;
    if (auto note = bucket_note(reader.contents_)) reader.notes_.push_back(*std::move(note));
    std::vector<error> problems;
    const std::vector<flattened_tensor> flattened = find_flattened(reader.contents_, reader.extras_, problems);
    for (error& problem : problems)
      reader.problems_.push_back(std::move(problem).with_file((reader.path_ / ".metadata").string()));
    std::error_code code;
    if (flattened.empty() && !common && !fs::exists(fs::symlink_status(reader.path_ / common_file, code)))
      return std::unique_ptr<checkpoint_reader>(std::move(plain));
    SHARDMESH_TRY(megatron_view_result seen, megatron_view(std::move(plain), flattened, options, common));
    if (!common) reader.extras_.common_keys = std::move(seen.common_keys);
    // The attribute describes the flat tensors, not the whole ones.
    if (!flattened.empty())
      std::erase_if(reader.extras_.attributes, [](const auto& named) { return named.first == megatron_attribute; });
    return std::move(seen.reader);
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (auto known = cache_.find(chunk)) return known;
    if (const auto refusal = budget_->refusal()) return *refusal;
    auto opened = open_item(tensor, chunk);
    if (!opened) return describe(std::move(opened).error(), tensor, chunk);
    auto shared = std::make_shared<const opened_chunk>(std::move(*opened));
    cache_.insert(chunk, shared);
    return shared;
  }

  result<object_value> read_object(std::size_t index) override {
    const object_entry& object = contents_.objects[index];
    if (const auto refusal = budget_->refusal()) return *refusal;
    const place_key place = key_of(object.place);
    {
      const std::scoped_lock guard(repeated_lock_);
      // Tensors inside have keys below the object's own, so a value with tensors is not shared.
      if (repeated_value_ && repeated_value_->first == place && repeated_value_->second.tensors.empty())
        return repeated_value_->second;
    }
    auto value = [&]() -> result<object_value> {
      SHARDMESH_TRY(const auto source, item_source_of(object.place));
      SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(*source, item_options()));
      SHARDMESH_TRY(object_value described, describe_object(item, item.root(), *source, *budget_));
      SHARDMESH_TRY(described.tensors, tensors_inside(item, object));
      return described;
    }();
    if (!value) return name_in(std::move(value).error(), object.key, object.place);
    const std::scoped_lock guard(repeated_lock_);
    repeated_value_.emplace(place, *value);
    return value;
  }

  result<torch_file::opened_object> open_object(std::size_t index) override {
    const object_entry& object = contents_.objects[index];
    auto opened = [&]() -> result<torch_file::opened_object> {
      SHARDMESH_TRY(const auto source, item_source_of(object.place));
      SHARDMESH_TRY(torch_file::item item, torch_file::item::open(*source, item_options()));
      return torch_file::opened_object{source, std::make_shared<const torch_file::item>(std::move(item)), budget_,
                                       name_of(object.place)};
    }();
    if (!opened) return name_in(std::move(opened).error(), object.key, object.place);
    return opened;
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    const object_entry& object = contents_.objects[index];
    auto bytes = archive_of(object.place);
    if (!bytes) return name_in(std::move(bytes).error(), object.key, object.place);
    return bytes;
  }

  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override {
    const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
    auto bytes = archive_of(place);
    if (!bytes) return name_in(std::move(bytes).error(), tensor.key, place);
    return bytes;
  }

  // A copy of such an entry is a copy of its archive, so every record of the archive is checked.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    return check_each(entries, options, [&](const whole_entry& entry) -> result<std::pair<std::int64_t, std::int64_t>> {
      if (!entry.is_tensor) {
        const object_entry& object = contents_.objects[entry.index];
        auto sums = check_item(object.place, options.quick);
        if (!sums) return name_in(std::move(sums).error(), object.key, object.place);
        return sums;
      }
      const tensor_entry& tensor = contents_.tensors[entry.index];
      std::pair<std::int64_t, std::int64_t> total;
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
        auto sums = check_item(contents_.chunk_places[static_cast<std::size_t>(chunk)], options.quick);
        if (!sums) return describe(std::move(sums).error(), tensor, chunk);
        total = {total.first + sums->first, total.second + sums->second};
      }
      return total;
    });
  }

  result<std::optional<digest128>> content_of(const whole_entry& entry) override {
    const tensor_entry* const tensor = entry.is_tensor ? &contents_.tensors[entry.index] : nullptr;
    const std::string& key = tensor ? tensor->key : contents_.objects[entry.index].key;
    // The parts of a sharded tensor of unknown representation cannot be compared with the parts of another sharding.
    if (tensor && tensor->chunk_count != 1) return std::optional<digest128>();
    const stored_range& place = tensor ? contents_.chunk_places[static_cast<std::size_t>(tensor->first_chunk)]
                                       : contents_.objects[entry.index].place;
    auto digest = [&]() -> result<digest128> {
      SHARDMESH_TRY(const auto source, item_source_of(place));
      SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(*source, item_options()));
      SHARDMESH_TRY(torch_file::item_storages storages,
                    torch_file::item_storages::open(*source, item, budget_.get(), name_of(place)));
      return storages.content_of(item.root());
    }();
    if (!digest) return name_in(std::move(digest).error(), key, place);
    return std::optional(*digest);
  }

  void identify_opaque_tensors() override {
    if (std::exchange(is_identified_, true)) return;
    std::vector<tensor_entry*> unknown;
    for (tensor_entry& tensor : contents_.tensors)
      if (tensor.chunk_count > 0 && tensor.opaque_kind.empty() && first_place(tensor).file >= 0)
        unknown.push_back(&tensor);
    const std::span<tensor_entry* const> all(unknown);
    for (std::size_t i = 0; i < all.size() && is_identified_; i += identified_together)
      identify(all.subspan(i, std::min(identified_together, all.size() - i)));
  }

  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override {
    return item_source_of(place);
  }

 private:
  using place_key = std::array<std::int64_t, 4>;
  static place_key key_of(const stored_range& place) {
    return {place.file, place.offset, place.length, place.transform};
  }
  torch_file::item_options item_options() const {
    return {.pickle_limit_bytes = budget_->limits().description_bytes, .budget = budget_.get()};
  }

  error name_in(error e, const std::string& key, const stored_range& place) {
    if (place.file < 0)
      if (const auto conflict = conflicts_.find(key); conflict != conflicts_.end()) e = conflict->second;
    if (e.key.empty()) e.key = key;
    if (e.file.empty() && place.file >= 0) e.file = files_.path_of(place.file).string();
    return budget_->keep(std::move(e));
  }
  error describe(error e, const tensor_entry& tensor, std::int32_t chunk) {
    if (e.boxes.empty()) e.boxes.push_back(contents_.chunk_box(tensor, chunk));
    return name_in(std::move(e), tensor.key, contents_.chunk_places[static_cast<std::size_t>(chunk)]);
  }

  const stored_range& first_place(const tensor_entry& tensor) const {
    return contents_.chunk_places[static_cast<std::size_t>(tensor.first_chunk)];
  }

  void identify(std::span<tensor_entry* const> tensors) {
    std::vector<std::shared_ptr<const byte_source>> on_server(tensors.size());
    if (is_url(path_)) {
      std::vector<stored_range> places;
      for (const tensor_entry* const tensor : tensors) places.push_back(first_place(*tensor));
      on_server = with_ends(files_, places);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!detail::check_current_call()) {
        is_identified_ = false;  // the next call continues
        return;
      }
      tensor_entry& tensor = *tensors[i];
      std::shared_ptr<const byte_source> source = on_server[i];
      if (!source) {
        auto found = item_source_of(first_place(tensor));
        if (!found) continue;  // `verify` and reading report the error
        source = *std::move(found);
      }
      const auto item = torch_file::item::open(*source, item_options());
      if (!item || !item->is_opaque_tensor(item->root())) continue;
      // For a dtype that we lack, the type is known from the metadata.
      if (tensor.opaque_type.empty()) tensor.opaque_type = classify(*item, item->root()).type;
      tensor.opaque_kind = torch_file::tensor_kind(item->root());
    }
    if (!detail::check_current_call()) is_identified_ = false;  // it may have ended the reads of the last item
  }

  // Returns the item's bytes, decoded when it has a transform.
  result<std::shared_ptr<const byte_source>> item_source_of(const stored_range& place) {
    if (place.file < 0) return fail(errc::missing_key, "the metadata does not say where it is stored");
    SHARDMESH_TRY(auto section, files_.section(place.file, place.offset, place.length));
    const std::string& transform = contents_.transforms[static_cast<std::size_t>(place.transform)];
    if (transform.empty()) return runs_.with_bytes(place, section);
    if (!transform.starts_with("stream.zstd") || transform.find('+') != std::string::npos)
      return fail(errc::unsupported, "is stored through an unknown transform").with_values("stream.zstd/1", transform);
    // Entries that share a stream share its decoder, because opening one decodes the whole stream to measure it.
    const place_key key = key_of(place);
    {
      const std::scoped_lock guard(repeated_lock_);
      if (decoded_.first == key && decoded_.second) return decoded_.second;
    }
    auto encoded = std::make_unique<shared_section>(section, 0, section->size_bytes());
    SHARDMESH_TRY(std::shared_ptr<const byte_source> decoded,
                  open_decoding_source(std::move(encoded), codec::zstd, budget_.get(), name_of(place)));
    const std::scoped_lock guard(repeated_lock_);
    decoded_ = {key, decoded};
    return decoded;
  }

  // Returns the bytes to be copied, checked: a damaged record must not get a fresh checksum.
  result<std::vector<std::byte>> archive_of(const stored_range& place) {
    SHARDMESH_TRY(const auto source, item_source_of(place));
    SHARDMESH_TRY(std::vector<std::byte> bytes, read_all(*source, archive_limit_bytes));
    SHARDMESH_TRY(torch_file::check_archive(memory_source(bytes, source->name()), budget_.get(), name_of(place)));
    return bytes;
  }

  // Returns the number of bytes with and without checksums in an item that is copied verbatim.
  result<std::pair<std::int64_t, std::int64_t>> check_item(const stored_range& place, bool quick) {
    auto sums = [&]() -> result<torch_file::record_sums> {
      SHARDMESH_TRY(const auto source, item_source_of(place));
      SHARDMESH_TRY(torch_file::item::open(*source, item_options()));
      if (quick) return torch_file::record_sums{};
      return torch_file::check_archive(*source, budget_.get(), name_of(place));
    }();
    if (!sums) return name_in(std::move(sums).error(), {}, place);
    return std::pair(sums->checked_bytes, sums->unchecked_bytes);
  }

  result<opened_chunk> open_item(const tensor_entry& tensor, std::int32_t chunk) {
    const stored_range& place = contents_.chunk_places[static_cast<std::size_t>(chunk)];
    SHARDMESH_TRY(const auto source, item_source_of(place));
    SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(*source, item_options()));
    const auto root = item.tensor_of(item.root());
    if (!root) {
      const torch_file::object_class what = classify(item, item.root());
      if (what.kind == torch_file::object_kind::opaque_tensor)
        return fail(errc::unsupported,
                    fmt::format("holds a {}, which is not supported", torch_file::tensor_kind(item.root())))
            .with_values("", what.type);
      return fail(errc::bad_format, "the item is not a tensor").with_values("torch.Tensor", what.type);
    }
    SHARDMESH_TRY(opened_chunk opened, torch_file::open_tensor(item, *root, source, *budget_, name_of(place)));
    if (opened.tensor.type != tensor.type)
      return fail(errc::dtype_mismatch, "the stored dtype is not the declared one")
          .with_values(std::string(name(tensor.type)), std::string(name(opened.tensor.type)));
    const extents sizes = contents_.chunk_box(tensor, chunk).sizes;
    if (opened.tensor.sizes != sizes)
      return fail(errc::shape_mismatch, "the stored sizes are not the declared ones")
          .with_values(to_string(sizes), to_string(opened.tensor.sizes));
    opened.reads_in_order |= place.transform != 0;
    if (place.transform == 0 && opened.source == source) opened.item_length = place.length;
    SHARDMESH_TRY(pay_for_repeats(opened, chunk));
    return opened;
  }

  static std::string name_of(const stored_range& place) {
    return fmt::format("{}:{}:{}", place.file, place.offset, place.length);
  }

  // Counts elements that an expanded view repeats: little is stored, but much would be read.
  result<void> pay_for_repeats(const opened_chunk& opened, std::int32_t chunk) {
    const std::int64_t bytes = size_bytes(opened.tensor.type, box::whole(opened.tensor.sizes).volume()).value_or(0);
    const std::int64_t beyond = bytes - opened.tensor.size_bytes;
    const std::scoped_lock guard(repeated_lock_);
    if (beyond <= 0 || !paid_.insert(chunk).second) return {};
    return budget_->expand(beyond, opened.tensor.size_bytes);
  }

  dcp::extras extras_;
  std::unique_ptr<dcp_reader> copies_;                   // null: none
  std::map<std::string, error, std::less<>> conflicts_;  // keys under which ranks hold different values
  std::map<std::string, pickle::used_names, std::less<>> names_;
  folder_files files_;
  chunk_cache cache_;
  std::shared_ptr<read_budget> budget_;
  bool is_identified_ = false;  // whether `identify_opaque_tensors` was called
  static constexpr std::size_t identified_together = 256;
  item_runs runs_{files_};
  std::mutex repeated_lock_;
  std::optional<std::pair<place_key, object_value>>
      repeated_value_;  // optional: no key can mean "none", because an entry without a place has a key as well
  std::pair<place_key, std::shared_ptr<const byte_source>> decoded_{{-1, 0, 0, 0}, nullptr};
  std::set<std::int32_t> paid_;  // chunks whose repeats were counted
};

}  // namespace

const extras& extras_of(const checkpoint_reader& reader) {
  static const extras none = new_extras();
  const auto* const read = dynamic_cast<const dcp_reader*>(&reader.stored());
  return read ? read->extras() : none;
}

checkpoint_reader* copies_of(const checkpoint_reader& reader) {
  const auto* const read = dynamic_cast<const dcp_reader*>(&reader.stored());
  return read ? read->copies() : nullptr;
}

const pickle::used_names* names_of_metadata(const checkpoint_reader& reader, const fs::path& file) {
  const auto* const read = dynamic_cast<const dcp_reader*>(&reader.stored());
  return read ? read->names_of(file) : nullptr;
}

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  SHARDMESH_TRY(const folder_listing listing, list_folder(folder));
  const auto budget = std::make_shared<read_budget>(options.limits);
  SHARDMESH_TRY(metadata description, read_metadata(folder, listing, options, *budget));
  if (options.only_keys.empty()) note_oddities(folder, listing, description);  // skipped entries are unknown
  metadata copied;
  copied.contents = std::move(description.copies);
  auto reader = std::make_unique<dcp_reader>(folder, std::move(description), options, budget);
  reader->check_repeats();
  if (!copied.contents.tensors.empty() || !copied.contents.objects.empty()) {
    auto copies = std::make_unique<dcp_reader>(folder, std::move(copied), options, budget);
    copies->check_repeats();
    reader->keep_copies(std::move(copies));
  }
  return dcp_reader::with_megatron(std::move(reader), options);
}

result<std::unique_ptr<checkpoint_reader>> open_files(const fs::path& folder, const file_sources& files,
                                                      const open_options& options) {
  const auto described = files.find(".metadata");
  if (described == files.end())
    return fail(errc::incomplete_save, "incomplete save: it has no .metadata").with_file(folder.string());
  const auto budget = std::make_shared<read_budget>(options.limits);
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_all(*described->second, budget->limits().description_bytes));
  SHARDMESH_TRY(metadata description, parse_metadata(std::move(bytes), (folder / ".metadata").string(), budget.get()));
  auto reader = std::make_unique<dcp_reader>(folder, std::move(description), options, budget);
  reader->provide(files);
  reader->check_repeats();
  const auto common = files.find(common_file);
  return dcp_reader::with_megatron(std::move(reader), options, common == files.end() ? nullptr : common->second);
}

}  // namespace shardmesh::dcp
