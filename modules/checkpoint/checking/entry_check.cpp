// SPDX-License-Identifier: Apache-2.0
module;
#include <entry_error.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/zip.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :damaged_archives;
import :entry_check;
import :stored_items;

namespace shardmesh {
namespace views = ranges::views;
namespace {

// Equal boxes are replicas to the planner, but a checkpoint must store each box only once.
void find_stored_twice(const catalog& contents, const tensor_entry& tensor, std::vector<error>& problems) {
  const std::vector<box> boxes = boxes_of(contents, tensor);
  for (const auto& [before, b] : views::zip(boxes, boxes | views::drop(1)))
    if (b == before)
      problems.push_back(detail::at_entry(fail(errc::overlap, "a chunk is stored twice"), tensor.key).with_box(b));
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
  for (const cover_problem& problem : cover.problems)
    found.problems.push_back(detail::at_entry(to_error(problem), tensor.key));
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
          found.add(
              i,
              detail::at_entry(std::move(checked).error(), tensor->key).with_box(contents.chunk_box(*tensor, chunk)));
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
    for (error& problem : record->check(recorded_apart(contents, *record, touched, copied), threads, stored.contents()))
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
