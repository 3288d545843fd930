// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.torch_file;
import :mapped_objects;
import :mapped_source;
import :mapping_notes;

namespace shardmesh {
namespace {

// Bytes of each of two tied tensors that are compared at a time.
constexpr std::int64_t compared_bytes = std::int64_t{4} << 20;
// Runs that are read without the bytes between them. They are shorter than elsewhere: a transposed tensor would
// otherwise read all of its source for each of its parts.
constexpr std::int64_t shortest_run_bytes = 256;

class mapped_reader final : public torch_file::archive_forwarding_reader {
 public:
  mapped_reader(std::unique_ptr<checkpoint_reader> inner, bound_mapping bound, chunk_source source,
                const mapped_options& options)
      : archive_forwarding_reader(std::move(inner)),
        bound_(std::move(bound)),
        source_(std::move(source)),
        compares_ties_(options.check_sums) {
    for (const bound_tensor& made : bound_.tensors) list(made);
    for (const std::size_t tensor : bound_.kept) add_whole_tensor(tensor);
    list_objects();
    for (std::string& note : notes_of(bound_, this->inner().contents())) notes_.push_back(std::move(note));
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const std::size_t index = tensor_of_chunk(chunk);
    if (index >= bound_.tensors.size() || is_renamed(bound_.tensors[index]))
      return forwarding_reader::open_chunk(tensor, chunk);
    const bound_tensor& made = bound_.tensors[index];
    if (auto known = cache_.find(chunk)) return known;
    auto opened = std::make_shared<opened_chunk>();
    opened->source = make_mapped_source({&bound_, &inner(), &source_}, made, path_.string());
    opened->tensor = contiguous_stored_tensor(made.type, made.shape, 0, opened->source->size_bytes());
    cache_.insert(chunk, opened);
    return std::shared_ptr<const opened_chunk>(std::move(opened));
  }

  result<object_value> read_object(std::size_t index) override {
    if (const auto list = lists_.find(index); list != lists_.end())
      return renamed_list(inner(), bound_, *list->second, instances_);
    SHARDMESH_TRY(check_joined(index));
    return forwarding_reader::read_object(index);
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    if (lists_.contains(index)) {
      SHARDMESH_TRY(const object_value value, read_object(index));
      return torch_file::archive_from_json(value.json);
    }
    SHARDMESH_TRY(check_joined(index));
    return forwarding_reader::object_archive(index);
  }

  result<torch_file::opened_object> open_object(std::size_t index) override {
    if (lists_.contains(index))
      return fail(errc::unsupported, "a list of renamed parameters has no archive in the checkpoint")
          .with_key(contents_.objects[index].key);
    SHARDMESH_TRY(check_joined(index));
    return archive_forwarding_reader::open_object(index);
  }

  result<void> finish_checks() override {
    SHARDMESH_TRY(source_.finish());
    if (compares_ties_ && !ties_are_equal_) {
      for (const unused_tensor& one : bound_.unused)
        if (one.same_as) SHARDMESH_TRY(compare(one.source, *one.same_as));
      ties_are_equal_ = true;
    }
    return forwarding_reader::finish_checks();
  }

 private:
  bool is_renamed(const bound_tensor& tensor) const { return bound_.renames(bound_.instances[tensor.instance]); }

  // Lists the objects in the order of the checkpoint. An object of joined parameters is where its first source was.
  void list_objects() {
    if (bound_.objects.empty() && bound_.lists.empty() && bound_.unused_objects.empty()) return;
    const catalog& stored = inner().contents();
    std::unordered_map<std::size_t, std::vector<const bound_object*>> made_at;
    std::unordered_map<std::size_t, const bound_list*> list_at;
    std::unordered_set<std::size_t> gone(bound_.unused_objects.begin(), bound_.unused_objects.end());
    for (const bound_object& object : bound_.objects) {
      made_at[object.sources[0]].push_back(&object);
      gone.insert(object.sources.begin(), object.sources.end());
    }
    for (const bound_list& list : bound_.lists) list_at.emplace(list.object, &list);
    if (!bound_.lists.empty()) instances_ = index_instances(bound_, stored);
    clear_objects();
    for (std::size_t i = 0; i < stored.objects.size(); ++i) {
      if (const auto made = made_at.find(i); made != made_at.end())
        for (const bound_object* const object : made->second) {
          joined_.emplace(contents_.objects.size(), object);
          add_object({object->key, {object->key}, stored.objects[i].place, stored.objects[i].hidden_tensors}, i);
        }
      if (gone.contains(i)) continue;
      const auto list = list_at.find(i);
      if (list != list_at.end()) lists_.emplace(contents_.objects.size(), list->second);
      add_object(stored.objects[i], list != list_at.end() ? std::nullopt : std::optional(i));
    }
  }

  result<void> check_joined(std::size_t index) {
    const auto found = joined_.find(index);
    return found == joined_.end() ? result<void>{} : check_equal_objects(inner(), *found->second);
  }

  void list(const bound_tensor& made) {
    const std::vector<std::size_t>& sources = bound_.instances[made.instance].sources;
    const catalog& stored = inner().contents();
    if (sources.empty()) {  // stacked over an empty range
      tensor_entry entry;
      entry.key = made.key, entry.where = {made.key}, entry.type = made.type, entry.shape = made.shape;
      return add_tensor(std::move(entry), std::nullopt);
    }
    tensor_entry entry = stored.tensors[sources[0]];
    const std::int32_t first = entry.first_chunk, count = entry.chunk_count;
    entry.key = made.key;
    entry.where = {made.key};
    entry.shape = made.shape;
    if (is_renamed(made)) {
      add_tensor(std::move(entry), sources[0]);
      for (std::int32_t chunk = first; chunk < first + count; ++chunk)
        add_chunk(stored.chunk_box(stored.tensors[sources[0]], chunk), {static_cast<std::int32_t>(sources[0]), chunk});
      return;
    }
    entry.properties.strides = {};
    // The place names a file for messages. Its length of 0 means that the bytes are not those of an item.
    stored_range place = count > 0 ? stored.chunk_places[static_cast<std::size_t>(first)] : stored_range{};
    place.length = 0;
    add_tensor(std::move(entry), std::nullopt);
    add_chunk(box::whole(made.shape), place, {static_cast<std::int32_t>(sources[0]), -1});
  }

  result<void> compare(std::size_t a, std::size_t b) {
    const catalog& stored = inner().contents();
    const tensor_entry &tied = stored.tensors[a], &partner = stored.tensors[b];
    const extents& shape = tied.shape;
    if (bits(tied.type) == 0 || !tied.opaque_type.empty() || !partner.opaque_type.empty()) return compare_opaque(a, b);
    const auto size = shardmesh::size_bytes(tied.type, box::whole(shape).volume());
    if (!size) return fail(errc::overflow, "the elements of a tied tensor are no whole bytes").with_key(tied.key);
    if (*size == 0) return {};
    const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0];
    const bool is_sub_byte = bits(tied.type) % 8 != 0;  // these can only be read whole
    const std::int64_t step = is_sub_byte ? rows : std::max(std::int64_t{1}, compared_bytes / (*size / rows));
    for (std::int64_t begin = 0; begin < rows; begin += step) {
      box part = box::whole(shape);
      if (shape.rank() > 0) part.offsets[0] = begin, part.sizes[0] = std::min(step, rows - begin);
      const auto bytes =
          static_cast<std::size_t>(is_sub_byte ? *size : part.volume() * shardmesh::item_bytes(tied.type));
      std::vector<std::byte> left(bytes), right(bytes);
      const extents strides = contiguous_strides(part.sizes);
      SHARDMESH_TRY(
          (stored_boxes{&inner(), &source_, &tied}.read(part, {left.data(), tied.type, {}, part.sizes, strides})));
      SHARDMESH_TRY(
          (stored_boxes{&inner(), &source_, &partner}.read(part, {right.data(), tied.type, {}, part.sizes, strides})));
      if (left != right) return tied_apart(tied, partner).with_box(part);
    }
    return {};
  }

  // The same for quantized tensors and others without plain elements.
  result<void> compare_opaque(std::size_t a, std::size_t b) {
    const catalog& stored = inner().contents();
    const tensor_entry &tied = stored.tensors[a], &partner = stored.tensors[b];
    SHARDMESH_TRY(const auto left, inner().content_of({true, a}));
    SHARDMESH_TRY(const auto right, inner().content_of({true, b}));
    if (!left || !right)
      return fail(errc::unsupported,
                  fmt::format("the mapping ties this tensor to {}, and tensors of {} cannot be compared",
                              escaped(partner.key), tied.opaque_type))
          .with_key(tied.key)
          .with_hint("use a mapping that keeps both tensors");
    if (*left == *right) return {};
    return tied_apart(tied, partner);
  }

  static error tied_apart(const tensor_entry& tied, const tensor_entry& partner) {
    return fail(errc::disagreement,
                fmt::format("the mapping ties this tensor to {}, and their values differ", escaped(partner.key)))
        .with_key(tied.key)
        .with_hint("use a mapping that keeps both tensors");
  }

  bound_mapping bound_;
  std::unordered_map<std::size_t, const bound_object*> joined_;  // by object of this catalog
  std::unordered_map<std::size_t, const bound_list*> lists_;     // by object of this catalog
  instances_by_key instances_;                                   // for `renamed_list`
  chunk_source source_;
  bool compares_ties_;
  std::atomic<bool> ties_are_equal_ = false;  // compared once: every call that reads ends with `finish_checks`
  chunk_cache cache_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> mapped(std::unique_ptr<checkpoint_reader> inner, bound_mapping bound,
                                                  const mapped_options& options) {
  std::shared_ptr<const recorded_sums> record;
  if (options.check_sums) {
    SHARDMESH_TRY(record, recorded_sums::open(*inner));
  }
  const read_options reads{.min_run_bytes = shortest_run_bytes};
  chunk_source source =
      options.check_sums ? chunk_source::checking(*inner, std::move(record), reads) : chunk_source(*inner, reads);
  return std::unique_ptr<checkpoint_reader>(
      std::make_unique<mapped_reader>(std::move(inner), std::move(bound), std::move(source), options));
}

}  // namespace shardmesh
