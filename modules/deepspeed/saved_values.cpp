// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :saved_values;

namespace shardmesh::deepspeed {
namespace {

// The members of ZeroStageEnum, by value.
constexpr std::array<std::string_view, 4> stage_names{"disabled", "optimizer_states", "gradients", "weights"};

// Opens the object's own pickle, because its JSON does not show values such as `zero_stage`.
result<torch_file::item> pickled(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const auto archive, from.reader->object_archive(object));
  return torch_file::item::open(memory_source(archive, from.file()));
}

error other_kind(const saved_file& from, std::size_t object, std::string expected) {
  auto value = from.reader->read_object(object);
  constexpr std::size_t longest = 80;
  std::string found = value ? value->json : value.error().message;
  if (found.size() > longest) found = found.substr(0, longest) + "...";
  return fail(errc::bad_format, "its value is of another kind")
      .with_key(from.reader->contents().objects[object].key)
      .with_file(from.file())
      .with_values(std::move(expected), std::move(found));
}

bool is_sequence(const pickle::value& value) {
  return value.kind() == pickle::kind::list || value.kind() == pickle::kind::tuple;
}

std::optional<std::vector<std::int64_t>> integers(const pickle::items& items) {
  std::vector<std::int64_t> found;
  for (const pickle::value item : items) {
    const auto number = item.as_int();
    if (!number) return std::nullopt;
    found.push_back(*number);
  }
  return found;
}

}  // namespace

std::optional<std::size_t> number_of(const path_key& step) {
  const std::string text = key_text(step);
  std::uint32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool begins_with(const shardmesh::path& where, std::initializer_list<std::string_view> names) {
  if (where.size() < names.size()) return false;
  std::size_t i = 0;
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) {
    const path_key& step = where[i++];
    return !step.is_index() && step.name() == name;
  });
}

result<extents> read_shape(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const torch_file::item item, pickled(from, object));
  const pickle::value value = item.root();
  const bool is_size = value.is_record_of("torch", "Size");
  const auto sizes = is_size || is_sequence(value) ? integers(pickle::sequence_items(value))
                                                   : std::optional<std::vector<std::int64_t>>();
  if (!sizes || std::any_of(sizes->begin(), sizes->end(), [](std::int64_t size) { return size < 0; }))
    return other_kind(from, object, "a parameter's sizes");
  if (sizes->size() > static_cast<std::size_t>(max_rank))
    return fail(errc::rank_too_large, "a parameter has too many dimensions")
        .with_key(from.reader->contents().objects[object].key)
        .with_file(from.file());
  extents shape;
  for (const std::int64_t size : *sizes) shape.push_back(size);
  if (!checked_volume(shape))
    return fail(errc::overflow, "the number of elements of a parameter does not fit in 64 bits")
        .with_key(from.reader->contents().objects[object].key)
        .with_file(from.file());
  return shape;
}

result<std::string> read_text(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const torch_file::item item, pickled(from, object));
  const auto text = item.root().text();
  if (!text) return other_kind(from, object, "a name");
  return std::string(*text);
}

result<std::vector<std::string>> read_texts(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const torch_file::item item, pickled(from, object));
  std::vector<std::string> found;
  for (const pickle::value value : pickle::sequence_items(item.root())) {
    const auto text = value.text();
    if (!text) return other_kind(from, object, "a list of names");
    found.emplace_back(*text);
  }
  if (found.empty() && !is_sequence(item.root())) return other_kind(from, object, "a list of names");
  return found;
}

result<std::int64_t> read_largest(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const torch_file::item item, pickled(from, object));
  if (const auto number = item.root().as_int()) return *number;
  const auto numbers =
      is_sequence(item.root()) ? integers(item.root().items()) : std::optional<std::vector<std::int64_t>>();
  if (!numbers || numbers->empty()) return other_kind(from, object, "a number of ranks");
  return *std::max_element(numbers->begin(), numbers->end());
}

result<std::int64_t> read_stage(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const torch_file::item item, pickled(from, object));
  if (const auto number = item.root().as_int()) return *number;
  if (const auto number = pickle::argument_of(item.root(), 0).as_int()) return *number;
  const std::string name = pickle::global_text(item.root()).value_or("");
  const auto member = std::find(stage_names.begin(), stage_names.end(), name.substr(name.rfind('.') + 1));
  if (member != stage_names.end()) return member - stage_names.begin();
  return other_kind(from, object, "a stage of ZeRO");
}

result<std::vector<std::vector<std::int64_t>>> read_lists(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const torch_file::item item, pickled(from, object));
  if (!is_sequence(item.root())) return other_kind(from, object, "a list of lists");
  std::vector<std::vector<std::int64_t>> found;
  for (const pickle::value list : item.root().items()) {
    auto numbers = is_sequence(list) ? integers(list.items()) : std::optional<std::vector<std::int64_t>>();
    if (!numbers) return other_kind(from, object, "a list of lists of numbers");
    found.push_back(std::move(*numbers));
  }
  return found;
}

result<bool> is_none(const saved_file& from, std::size_t object) {
  SHARDMESH_TRY(const torch_file::item item, pickled(from, object));
  return item.root().is_none();
}

result<std::vector<std::byte>> read_scalar(const saved_file& from, std::size_t tensor) {
  const tensor_entry& entry = from.reader->contents().tensors[tensor];
  if (entry.shape.rank() != 0 || entry.chunk_count != 1 || bits(entry.type) < 8)
    return fail(errc::unsupported, "is not a plain number").with_key(entry.key).with_file(from.file());
  SHARDMESH_TRY(const auto opened, from.reader->open_chunk(entry, entry.first_chunk));
  std::vector<std::byte> bytes(static_cast<std::size_t>(item_bytes(entry.type)));
  SHARDMESH_TRY(read_box(*opened->source, opened->tensor, box::whole(entry.shape),
                         {bytes.data(), entry.type, {}, entry.shape, entry.shape}));
  return bytes;
}

}  // namespace shardmesh::deepspeed
