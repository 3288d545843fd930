// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <entry_error.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

std::string file_of(const checkpoint_reader& part, const tensor_entry& tensor, std::int32_t chunk) {
  const stored_range& place = part.contents().chunk_places[static_cast<std::size_t>(chunk)];
  if (tensor.chunk_count == 0 || place.file < 0) return part.path().string();
  const std::string& name = part.contents().files[static_cast<std::size_t>(place.file)];
  return places::name_of(part.path()) == name ? part.path().string() : (part.path() / name).string();
}

}  // namespace

composed_reader::composed_reader(checkpoint_format format, std::filesystem::path path) {
  contents_.format = format;
  path_ = std::move(path);
}

std::size_t composed_reader::add_part(std::unique_ptr<checkpoint_reader> part, const std::string& folder) {
  const catalog& contents = part->contents();
  const auto first_file = static_cast<std::int32_t>(contents_.files.size());
  const auto first_transform = static_cast<std::int32_t>(contents_.transforms.size());
  for (const std::string& file : contents.files) contents_.files.push_back(folder + file);
  std::copy(contents.transforms.begin() + 1, contents.transforms.end(), std::back_inserter(contents_.transforms));
  std::copy(part->warnings().begin(), part->warnings().end(), std::back_inserter(warnings_));
  std::copy(part->problems().begin(), part->problems().end(), std::back_inserter(problems_));
  for (const std::string& note : part->notes())  // files of several ranks often have the same notes
    if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
  unread_tensors_ += part->unread_tensors();
  parts_.push_back({std::move(part), first_file, first_transform - 1});
  return parts_.size() - 1;
}

stored_range composed_reader::place_here(std::size_t part, stored_range place) const {
  if (place.file >= 0) place.file += parts_[part].first_file;
  if (place.transform > 0) place.transform += parts_[part].first_transform;
  return place;
}

result<void> composed_reader::take_key(const std::string& key) {
  if (keys_.insert(key).second) return {};
  return detail::at_entry(fail(errc::duplicate_key, "two entries have the same name"), key).with_file(path_.string());
}

result<void> composed_reader::add_tensor(tensor_entry entry) {
  SHARDMESH_TRY(take_key(entry.key));
  entry.first_chunk = static_cast<std::int32_t>(pieces_.size());
  entry.chunk_count = 0;
  contents_.tensors.push_back(std::move(entry));
  wholes_.push_back(std::nullopt);
  return {};
}

result<void> composed_reader::add_chunk(const box& where, const chunk_piece& from) {
  const checkpoint_reader& part = *parts_[from.part].reader;
  const tensor_entry& stored = part.contents().tensors[from.tensor];
  const tensor_entry& made = contents_.tensors.back();
  const auto refuse = [&](error e) {
    return detail::at_entry(std::move(e), made.key).with_box(where).with_file(file_of(part, stored, from.chunk));
  };
  if (stored.type != made.type)
    return refuse(fail(errc::dtype_mismatch, "its parts have different dtypes")
                      .with_values(std::string(name(made.type)), std::string(name(stored.type))));
  if (where.sizes != from.sizes)
    return refuse(fail(errc::shape_mismatch, "the shape of a part is not that of its place")
                      .with_values(to_string(where.sizes), to_string(from.sizes)));
  if (where.rank() != made.shape.rank() || !is_well_formed(where) || !lies_within(where, box::whole(made.shape)))
    return refuse(fail(errc::out_of_bounds, "a part lies outside of the tensor")
                      .with_values(fmt::format("within {}", to_string(made.shape)), to_string(where)));
  const std::int64_t wanted = checked_volume(from.sizes).value_or(std::numeric_limits<std::int64_t>::max());
  const std::int64_t there = checked_volume(part.contents().chunk_box(stored, from.chunk).sizes).value_or(0);
  if (from.first < 0 || from.first > there || wanted > there - from.first)
    return refuse(
        fail(errc::out_of_bounds, fmt::format("{} has too few elements", escaped(stored.key)))
            .with_values(fmt::format("{} elements from {} on", wanted, from.first), fmt::format("{} elements", there)));
  if (pieces_.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    return refuse(fail(errc::overflow, "there are more chunks than 32 bits can number"));
  contents_.add_chunk(where, place_here(from.part, part.contents().chunk_places[static_cast<std::size_t>(from.chunk)]));
  pieces_.push_back(from);
  return {};
}

result<void> composed_reader::add_whole_tensor(std::string key, shardmesh::path where, std::size_t part,
                                               std::size_t tensor) {
  const catalog& contents = parts_[part].reader->contents();
  tensor_entry entry = contents.tensors[tensor];
  const std::int32_t first = entry.first_chunk, count = entry.chunk_count;
  entry.key = std::move(key);
  entry.where = std::move(where);
  SHARDMESH_TRY(add_tensor(std::move(entry)));
  wholes_.back() = origin{part, tensor};
  for (std::int32_t chunk = first; chunk < first + count; ++chunk) {
    const box held = contents.chunk_box(contents.tensors[tensor], chunk);
    contents_.add_chunk(held, place_here(part, contents.chunk_places[static_cast<std::size_t>(chunk)]));
    pieces_.push_back({part, tensor, chunk, 0, held.sizes});
  }
  return {};
}

result<void> composed_reader::add_object(std::string key, shardmesh::path where, std::size_t part, std::size_t object) {
  SHARDMESH_TRY(take_key(key));
  const object_entry& stored = parts_[part].reader->contents().objects[object];
  contents_.objects.push_back(
      {std::move(key), std::move(where), place_here(part, stored.place), stored.hidden_tensors});
  objects_.push_back({part, object});
  return {};
}

result<std::shared_ptr<const opened_chunk>> composed_reader::open_chunk(const tensor_entry&, std::int32_t chunk) {
  const chunk_piece& from = pieces_[static_cast<std::size_t>(chunk)];
  checkpoint_reader& part = *parts_[from.part].reader;
  const tensor_entry& stored = part.contents().tensors[from.tensor];
  SHARDMESH_TRY(auto opened, part.open_chunk(stored, from.chunk));
  if (from.first == 0 && from.sizes == opened->tensor.sizes) return opened;
  if (!is_contiguous(opened->tensor.sizes, opened->tensor.strides))
    return fail(errc::unsupported, "elements of a tensor that is not contiguous are not one run of bytes")
        .with_key(stored.key)
        .with_file(file_of(part, stored, from.chunk));
  auto made = std::make_shared<opened_chunk>(*opened);
  made->tensor.storage_offset += from.first;
  made->tensor.sizes = from.sizes;
  made->tensor.strides = contiguous_strides(from.sizes);
  return std::shared_ptr<const opened_chunk>(std::move(made));
}

result<object_value> composed_reader::read_object(std::size_t index) {
  return parts_[objects_[index].part].reader->read_object(objects_[index].index);
}

result<std::vector<std::byte>> composed_reader::object_archive(std::size_t index) {
  return parts_[objects_[index].part].reader->object_archive(objects_[index].index);
}

std::optional<shown_entry> composed_reader::shown(const whole_entry& entry) const {
  const std::optional<origin> from = entry.is_tensor ? wholes_[entry.index] : std::optional(objects_[entry.index]);
  if (!from) return std::nullopt;
  return shown_entry{parts_[from->part].reader.get(), {entry.is_tensor, from->index}};
}

void composed_reader::identify_opaque_tensors() {
  for (part_state& part : parts_) part.reader->identify_opaque_tensors();
  for (std::size_t i = 0; i < contents_.tensors.size(); ++i) {
    if (!wholes_[i]) continue;
    const tensor_entry& stored = parts_[wholes_[i]->part].reader->contents().tensors[wholes_[i]->index];
    contents_.tensors[i].opaque_type = stored.opaque_type;
    contents_.tensors[i].opaque_kind = stored.opaque_kind;
  }
}

result<std::shared_ptr<const byte_source>> composed_reader::item_bytes(const stored_range& place) {
  for (std::size_t i = parts_.size(); i-- > 0;) {
    if (place.file < parts_[i].first_file) continue;
    stored_range there = place;
    there.file -= parts_[i].first_file;
    if (there.transform > 0) there.transform -= parts_[i].first_transform;
    return parts_[i].reader->item_bytes(there);
  }
  return checkpoint_reader::item_bytes(place);
}

result<std::vector<std::byte>> composed_reader::chunk_archive(const tensor_entry& tensor, std::int32_t chunk) {
  const std::size_t index = tensor_of_chunk(chunk);
  if (!wholes_[index]) return checkpoint_reader::chunk_archive(tensor, chunk);
  checkpoint_reader& part = *parts_[wholes_[index]->part].reader;
  return part.chunk_archive(part.contents().tensors[wholes_[index]->index],
                            pieces_[static_cast<std::size_t>(chunk)].chunk);
}

result<void> composed_reader::finish_checks() {
  for (part_state& part : parts_) SHARDMESH_TRY(part.reader->finish_checks());
  return {};
}

check_outcome composed_reader::check_whole(std::span<const whole_entry> entries, const check_options& options) {
  check_outcome all;
  std::vector<std::vector<whole_entry>> stored(parts_.size());
  for (const whole_entry& entry : entries) {
    const std::optional<origin> from = entry.is_tensor ? wholes_[entry.index] : std::optional(objects_[entry.index]);
    if (from) stored[from->part].push_back({entry.is_tensor, from->index});
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (stored[i].empty()) continue;
    check_outcome one = parts_[i].reader->check_whole(stored[i], options);
    std::move(one.problems.begin(), one.problems.end(), std::back_inserter(all.problems));
    all.more_problems += one.more_problems;
    all.checked_bytes += one.checked_bytes;
    all.unchecked_entries += one.unchecked_entries;
  }
  if (all.problems.size() > options.max_problems) {
    all.more_problems += static_cast<std::int64_t>(all.problems.size() - options.max_problems);
    all.problems.erase(all.problems.begin() + static_cast<std::ptrdiff_t>(options.max_problems), all.problems.end());
  }
  return all;
}

}  // namespace shardmesh
