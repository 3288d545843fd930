// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :damaged_archives;
import :entry_check;
import :stored_readers;

namespace shardmesh {
namespace views = ranges::views;
namespace {

// Equal boxes are replicas to the planner, but a checkpoint must store each box only once.
void find_stored_twice(const catalog& contents, const tensor_entry& tensor, std::vector<error>& problems) {
  std::vector<box> boxes;
  for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
    box b = contents.chunk_box(tensor, tensor.first_chunk + i);
    if (!b.is_empty()) boxes.push_back(b);
  }
  std::sort(boxes.begin(), boxes.end());
  for (const auto& [before, b] : views::zip(boxes, boxes | views::drop(1)))
    if (b == before)
      problems.push_back(fail(errc::overlap, "a chunk is stored twice").with_key(tensor.key).with_box(b));
}

// A stored run of bytes, and the entry that it belongs to.
struct stored_item {
  std::int32_t file = 0;
  std::int64_t begin = 0, end = 0;
  std::size_t entry = 0;  // tensors first, then objects
  friend auto operator<=>(const stored_item&, const stored_item&) = default;
};

std::vector<stored_item> items_of(const catalog& contents) {
  std::vector<stored_item> items;
  const auto note = [&](const stored_range& place, std::size_t entry) {
    if (place.file >= 0 && place.length > 0)
      items.push_back({place.file, place.offset, place.offset + place.length, entry});
  };
  for (const auto& [t, tensor] : views::enumerate(contents.tensors))
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i)
      note(contents.chunk_places[static_cast<std::size_t>(tensor.first_chunk + i)], t);
  for (const auto& [o, object] : views::enumerate(contents.objects)) note(object.place, contents.tensors.size() + o);
  std::sort(items.begin(), items.end());
  return items;
}

// Finds out whether a range of a file overlaps any of the given items.
class met_items {
 public:
  // `items` must be ascending.
  explicit met_items(std::vector<stored_item> items) : items_(std::move(items)) {
    std::int64_t furthest = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (i == 0 || items_[i].file != items_[i - 1].file) furthest = 0;
      furthest_.push_back(furthest = std::max(furthest, items_[i].end));
    }
  }
  bool meets(std::int32_t file, std::int64_t begin, std::int64_t end) const {
    const auto behind = std::lower_bound(
        items_.begin(), items_.end(), std::pair(file, end),
        [](const stored_item& item, const auto& wanted) { return std::pair(item.file, item.begin) < wanted; });
    if (behind == items_.begin()) return false;
    const auto last = static_cast<std::size_t>(behind - items_.begin()) - 1;
    return items_[last].file == file && furthest_[last] > begin;
  }

 private:
  std::vector<stored_item> items_;
  std::vector<std::int64_t> furthest_;  // the largest end of a file's items up to this one
};

const std::string& key_of(const catalog& contents, std::size_t entry) {
  return entry < contents.tensors.size() ? contents.tensors[entry].key
                                         : contents.objects[entry - contents.tensors.size()].key;
}

// The recorded ranges that copying does not check: the ranges of touched entries, except chunks whose elements are
// copied, and the ranges of no entry at all (headers, indices, metadata). `copied`: per chunk.
std::vector<std::size_t> recorded_apart(const catalog& contents, const recorded_sums& record,
                                        const std::vector<bool>& touched, const std::vector<bool>& copied) {
  std::vector<stored_item> all = items_of(contents), wanted;
  for (const stored_item& item : all)
    if (touched[item.entry]) wanted.push_back(item);
  const met_items of_any(std::move(all)), of_touched(std::move(wanted));
  std::vector<bool> on_the_way(record.ranges().size());
  for (std::size_t chunk = 0; chunk < copied.size(); ++chunk)
    if (const auto range = copied[chunk] ? record.of_item(contents.chunk_places[chunk]) : std::nullopt)
      on_the_way[*range] = true;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < on_the_way.size(); ++i) {
    const checksum_range& range = record.ranges()[i];
    const std::int64_t end = checked_add(range.offset, range.length).value_or(INT64_MAX);
    if (on_the_way[i]) continue;
    if (of_touched.meets(record.file_of(i), range.offset, end) || !of_any.meets(record.file_of(i), range.offset, end))
      chosen.push_back(i);
  }
  return chosen;
}

}  // namespace

tiling check_tiling(const catalog& contents, const tensor_entry& tensor) {
  tiling found;
  auto held = contents.distribution_of(tensor);
  if (!held) {
    found.problems.push_back(std::move(held).error());
    return found;
  }
  const cover_report cover = check_cover(*held);
  for (const cover_problem& problem : cover.problems) found.problems.push_back(to_error(problem).with_key(tensor.key));
  found.more_problems = std::max<std::int64_t>(cover.total - static_cast<std::int64_t>(cover.problems.size()), 0);
  find_stored_twice(contents, tensor, found.problems);
  if (found.problems.empty() && cover.ok()) found.held = std::move(*held);
  return found;
}

bool is_of_one_rank(const checkpoint_reader& reader) {
  return reader.contents().format == checkpoint_format::torch_file &&
         std::any_of(reader.problems().begin(), reader.problems().end(),
                     [](const error& problem) { return problem.code == errc::incomplete_save; });
}

// Finds shared bytes within each checkpoint of the folder.
static std::vector<error> shared_bytes_of_parts(const checkpoint_reader& reader) {
  std::vector<error> problems;
  for (const checkpoint_reader* part : readers_of_parts(reader))
    for (error& problem : find_shared_bytes(*part)) problems.push_back(std::move(problem));
  std::ranges::sort(problems, {}, [](const error& e) { return to_string(e); });
  return problems;
}

std::vector<error> find_shared_bytes(const checkpoint_reader& reader, const std::vector<bool>* touched) {
  const catalog& contents = reader.contents();
  std::vector<error> problems;
  if (contents.format == checkpoint_format::parts) return shared_bytes_of_parts(reader);
  if (contents.format != checkpoint_format::dcp) return problems;  // a .pt file's tensors may share storage
  const std::vector<stored_item> items = items_of(contents);
  // Compares each item with the earlier one that reaches furthest, so an item that shares bytes is found at least once.
  const stored_item* furthest = nullptr;
  for (const stored_item& item : items) {
    if (furthest && furthest->file == item.file && item.begin < furthest->end &&
        (!touched || (*touched)[item.entry] || (*touched)[furthest->entry]))
      problems.push_back(fail(errc::overlap, fmt::format("shares bytes {} to {} with the item of {}", item.begin,
                                                         std::min(item.end, furthest->end),
                                                         escaped(key_of(contents, furthest->entry))))
                             .with_file((reader.path() / contents.files[static_cast<std::size_t>(item.file)]).string())
                             .with_key(key_of(contents, item.entry)));
    if (!furthest || furthest->file != item.file || item.end > furthest->end) furthest = &item;
  }
  return problems;
}

std::vector<bool> repeated_items(const checkpoint_reader& reader) {
  const catalog& contents = reader.contents();
  if (contents.format != checkpoint_format::dcp) return {};
  struct placed {
    stored_range place;
    std::size_t number;
  };
  std::vector<placed> items;
  const std::size_t chunks = contents.chunk_places.size();
  const auto note = [&](const stored_range& place, std::size_t number) {
    if (place.file >= 0 && place.length > 0) items.push_back({place, number});
  };
  for (std::size_t i = 0; i < chunks; ++i) note(contents.chunk_places[i], i);
  for (std::size_t i = 0; i < contents.objects.size(); ++i) note(contents.objects[i].place, chunks + i);
  std::sort(items.begin(), items.end(), [](const placed& a, const placed& b) {
    return std::tie(a.place.file, a.place.offset, a.place.length, a.number) <
           std::tie(b.place.file, b.place.offset, b.place.length, b.number);
  });
  std::vector<bool> repeated;
  std::int32_t file = -1;
  std::int64_t end = 0;
  for (const placed& item : items) {
    if (item.place.file == file && item.place.offset < end) {
      repeated.resize(chunks + contents.objects.size());
      repeated[item.number] = true;
      continue;
    }
    file = item.place.file;
    end = checked_add(item.place.offset, item.place.length).value_or(INT64_MAX);
  }
  return repeated;
}

std::vector<whole_entry> unsupported_entries(const catalog& contents, const conversion& work) {
  std::vector<whole_entry> entries;
  for (const error& why : work.unsupported) {
    if (const tensor_entry* const tensor = contents.find(why.key))
      entries.push_back({true, static_cast<std::size_t>(tensor - contents.tensors.data())});
    else if (const object_entry* const object = contents.find_object(why.key))
      entries.push_back({false, static_cast<std::size_t>(object - contents.objects.data())});
  }
  return entries;
}

namespace {

// True for a tensor whose elements are stored plainly, and not as part or all of an entry that is checked whole. Its
// checksums are compared when its elements are read.
bool is_stored_plain(const checkpoint_reader& reader, std::size_t tensor) {
  const checkpoint_reader* at = &reader;
  whole_entry entry{true, tensor};
  while (const auto there = at->shown(entry)) {
    at = there->reader;
    entry = there->entry;
  }
  return &at->stored() == at && entry.is_tensor && at->contents().tensors[entry.index].opaque_type.empty();
}

// Checks the chunks of tensors whose elements are not copied.
std::vector<error> check_chunks_of(checkpoint_reader& reader, std::span<const std::size_t> tensors, int threads) {
  const catalog& contents = reader.contents();
  std::vector<std::pair<const tensor_entry*, std::int32_t>> chunks;
  for (const std::size_t index : tensors) {
    const tensor_entry& tensor = contents.tensors[index];
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i) chunks.emplace_back(&tensor, tensor.first_chunk + i);
  }
  storage_sums sums(contents);
  first_problems found(check_options{}.max_problems);
  const auto ended =
      parallel_for(threads, static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) -> result<void> {
        const auto& [tensor, chunk] = chunks[static_cast<std::size_t>(i)];
        const auto opened = reader.open_chunk(*tensor, chunk);
        if (!opened) {
          found.add(i, opened.error());
          return {};
        }
        auto checked = sums.check(**opened, contents.chunk_places[static_cast<std::size_t>(chunk)]);
        if (!checked)
          found.add(i, std::move(checked).error().with_key(tensor->key).with_box(contents.chunk_box(*tensor, chunk)));
        return {};
      });
  if (!ended) found.add(static_cast<std::int64_t>(chunks.size()), ended.error());  // the rest is unchecked
  return found.take();
}

}  // namespace

std::vector<error> check_before_copying(checkpoint_reader& reader, const conversion& work,
                                        std::span<const whole_entry> left_out, const recorded_sums* record,
                                        int threads) {
  const checkpoint_reader& stored = reader.stored();
  const catalog& contents = reader.contents();
  std::vector<bool> touched(contents.tensors.size() + contents.objects.size());
  std::vector<bool> copied(contents.chunk_places.size());
  std::vector<whole_entry> whole;
  std::vector<error> problems;
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    const std::size_t index = work.sources[i];
    const tensor_entry& tensor = contents.tensors[index];
    touched[index] = true;
    if (work.tensors[i].archive || !is_stored_plain(reader, index)) whole.push_back({true, index});
    if (work.tensors[i].archive) continue;
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      if (!contents.chunk_box(tensor, chunk).is_empty()) {
        copied[static_cast<std::size_t>(chunk)] = true;
        continue;
      }
      const auto opened = reader.open_chunk(tensor, chunk);
      if (!opened) problems.push_back(opened.error());
    }
  }
  for (const std::size_t index : work.object_sources) {
    touched[contents.tensors.size() + index] = true;
    whole.push_back({false, index});
  }
  std::vector<std::size_t> plain_left_out;
  for (const whole_entry& entry : left_out) {
    touched[entry.is_tensor ? entry.index : contents.tensors.size() + entry.index] = true;
    if (!entry.is_tensor || !is_stored_plain(reader, entry.index)) whole.push_back(entry);
    if (entry.is_tensor && contents.tensors[entry.index].opaque_type.empty()) plain_left_out.push_back(entry.index);
  }
  for (error& problem : find_shared_bytes(stored, &reader == &stored ? &touched : nullptr))
    problems.push_back(std::move(problem));
  for (error& problem : damaged_archives(reader)) problems.push_back(std::move(problem));
  if (!problems.empty()) return problems;  // shared bytes would be read once for each entry that names them
  check_outcome outcome = reader.check_whole(whole, {.quick = false, .threads = threads});
  std::move(outcome.problems.begin(), outcome.problems.end(), std::back_inserter(problems));
  for (error& problem : check_chunks_of(reader, plain_left_out, threads)) problems.push_back(std::move(problem));
  if (record)
    for (error& problem : record->check(recorded_apart(contents, *record, touched, copied), threads))
      problems.push_back(std::move(problem));
  return problems;
}

save_options with_last_check(save_options options, checkpoint_reader& reader, chunk_source& source) {
  options.hooks.last_check = [&reader, &source, given = std::move(options.hooks.last_check)]() -> result<void> {
    SHARDMESH_TRY(source.finish());
    SHARDMESH_TRY(reader.finish_checks());
    return given ? given() : result<void>{};
  };
  return options;
}

}  // namespace shardmesh
