// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
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
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.torch_file;
import :mapped_source;

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
    for (std::size_t i = 0; i < bound_.tensors.size(); ++i) list(bound_.tensors[i]);
    note();
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const bound_tensor& made = bound_.tensors[tensor_of_chunk(chunk)];
    if (is_renamed(made)) return forwarding_reader::open_chunk(tensor, chunk);
    if (auto known = cache_.find(chunk)) return known;
    auto opened = std::make_shared<opened_chunk>();
    opened->source = make_mapped_source({&bound_, &inner(), &source_}, made, path_.string());
    opened->tensor = contiguous_stored_tensor(made.type, made.shape, 0, opened->source->size_bytes());
    cache_.insert(chunk, opened);
    return std::shared_ptr<const opened_chunk>(std::move(opened));
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
  bool is_renamed(const bound_tensor& tensor) const {
    const mapping_rule& rule = bound_.rule_of(bound_.instances[tensor.instance]);
    return rule.index.is_rename() && rule.values.empty();
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

  void note() {
    const auto computed = static_cast<std::int64_t>(bound_.tensors.size()) - bound_.renamed_tensors;
    notes_.push_back(fmt::format("mapped from {} to {}: {} renamed, {} computed", bound_.mapping.left,
                                 bound_.mapping.right, detail::counted(bound_.renamed_tensors, "tensor"), computed));
    if (bound_.filled_elements > 0)
      notes_.push_back(
          fmt::format("{} that the mapping fills with zeros", detail::counted(bound_.filled_elements, "element")));
    if (bound_.dropped_elements > 0)
      notes_.push_back(fmt::format("{} of filler not used", detail::counted(bound_.dropped_elements, "element")));
    for (const unused_tensor& one : bound_.unused)
      notes_.push_back(
          fmt::format("{} is not used: {}", escaped(inner().contents().tensors[one.source].key), one.reason));
  }

  result<void> compare(std::size_t a, std::size_t b) {
    const catalog& stored = inner().contents();
    const tensor_entry &tied = stored.tensors[a], &partner = stored.tensors[b];
    const extents& shape = tied.shape;
    if (bits(tied.type) % 8 != 0 || box::whole(shape).is_empty()) return {};
    const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0],
                       row = box::whole(shape).volume() / rows * shardmesh::item_bytes(tied.type);
    const std::int64_t step = std::max(std::int64_t{1}, compared_bytes / row);
    for (std::int64_t begin = 0; begin < rows; begin += step) {
      box part = box::whole(shape);
      if (shape.rank() > 0) part.offsets[0] = begin, part.sizes[0] = std::min(step, rows - begin);
      const auto bytes = static_cast<std::size_t>(part.volume() * shardmesh::item_bytes(tied.type));
      std::vector<std::byte> left(bytes), right(bytes);
      const extents strides = contiguous_strides(part.sizes);
      SHARDMESH_TRY(
          (stored_boxes{&inner(), &source_, &tied}.read(part, {left.data(), tied.type, {}, part.sizes, strides})));
      SHARDMESH_TRY(
          (stored_boxes{&inner(), &source_, &partner}.read(part, {right.data(), tied.type, {}, part.sizes, strides})));
      if (left != right)
        return fail(errc::disagreement,
                    fmt::format("the mapping ties this tensor to {}, and their values differ", escaped(partner.key)))
            .with_key(tied.key)
            .with_box(part)
            .with_hint("use a mapping that keeps both tensors");
    }
    return {};
  }

  bound_mapping bound_;
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
