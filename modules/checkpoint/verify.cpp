// SPDX-License-Identifier: Apache-2.0
module;
#include <range/v3/view/enumerate.hpp>

#include <try.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :entry_check;

namespace shardmesh {
namespace {

class verification {
 public:
  verification(checkpoint_reader& reader, const verify_options& options) : reader_(reader), options_(options) {}

  verify_report run() {
    report_.warnings = reader_.warnings();
    reader_.identify_opaque_tensors();
    const catalog& contents = reader_.contents();
    for (const error& problem : reader_.problems()) add(problem);
    for (const tensor_entry& tensor : contents.tensors) check_boxes(tensor);
    for (error& problem : find_shared_bytes(reader_.stored())) add(std::move(problem));
    if (!options_.quick) open_record();
    check_chunks();
    check_whole_entries();
    report_.bytes = contents.tensor_bytes();
    if (record_) check_record();
    report_.globals = find_globals(reader_.path(), &reader_, {.threads = options_.threads, .limits = options_.limits});
    for (const error& problem : report_.globals.problems) add(problem);
    for (error& warning : warnings_of(report_.globals, reader_.path())) report_.warnings.push_back(std::move(warning));
    return std::move(report_);
  }

 private:
  void add(error problem) {
    if (problem.file.empty()) problem.file = reader_.path().string();
    // A file that the checkpoint names is not there: the data's fault, not the system's.
    if (problem.code == errc::io && problem.sys == ENOENT) problem.code = errc::bad_format;
    if (report_.problems.size() >= options_.max_problems) {
      ++report_.more_problems;
      return;
    }
    // The same defect may be met twice (as a chunk without a place and as a gap): one line each.
    if (lines_.insert(to_string(problem)).second) report_.problems.push_back(std::move(problem));
  }

  void check_boxes(const tensor_entry& tensor) {
    if (!tensor.opaque_type.empty() && tensor.chunk_count == 0) return;  // inside a .pt file, in a form of its own
    tiling found = check_tiling(reader_.contents(), tensor);
    for (error& problem : found.problems) {
      if (problem.code == errc::gap && is_of_one_rank(reader_)) return;
      add(std::move(problem));
    }
    report_.more_problems += found.more_problems;
  }

  // Chunks in parallel, their problems in the catalog's order.
  void check_chunks() {
    const catalog& contents = reader_.contents();
    std::vector<std::pair<const tensor_entry*, std::int32_t>> chunks;
    for (const tensor_entry& tensor : contents.tensors) {
      report_.chunks += tensor.chunk_count;
      if (!tensor.opaque_type.empty()) continue;  // among the whole entries
      for (std::int32_t i = 0; i < tensor.chunk_count; ++i) chunks.emplace_back(&tensor, tensor.first_chunk + i);
    }
    storage_sums sums(contents);
    first_problems found(options_.max_problems);
    std::atomic<std::int64_t> checked = 0, unchecked = 0;
    static_cast<void>(
        parallel_for(options_.threads, static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) -> result<void> {
          const auto& [tensor, chunk] = chunks[static_cast<std::size_t>(i)];
          auto covered = check_chunk(*tensor, chunk, sums, unchecked);
          if (covered)
            checked += *covered;
          else
            found.add(i, std::move(covered).error());
          return {};
        }));
    for (error& problem : found.take()) add(std::move(problem));
    report_.more_problems += found.more();
    report_.checked_bytes += checked;
    report_.unchecked_chunks += unchecked;
  }

  result<std::int64_t> check_chunk(const tensor_entry& tensor, std::int32_t chunk, storage_sums& sums,
                                   std::atomic<std::int64_t>& unchecked) {
    SHARDMESH_TRY(const auto opened, reader_.open_chunk(tensor, chunk));
    if (options_.quick) return std::int64_t{0};
    const stored_range& place = reader_.contents().chunk_places[static_cast<std::size_t>(chunk)];
    auto checked = sums.check(*opened, place);
    if (!checked)
      return std::move(checked).error().with_key(tensor.key).with_box(reader_.contents().chunk_box(tensor, chunk));
    const bool is_empty = opened->tensor.size_bytes == 0;
    if (!is_empty && !has_checksum(*opened) && !(record_ && record_->of_item(place))) ++unchecked;
    if (is_next_piece(tensor, chunk)) return std::int64_t{0};
    return checked;
  }

  // Of the item that the chunk before it is a piece of, too: its bytes were counted there.
  bool is_next_piece(const tensor_entry& tensor, std::int32_t chunk) const {
    if (chunk == tensor.first_chunk) return false;
    const auto& places = reader_.contents().chunk_places;
    const stored_range &place = places[static_cast<std::size_t>(chunk)],
                       &before = places[static_cast<std::size_t>(chunk) - 1];
    return place.file >= 0 && std::tie(place.file, place.transform, place.offset, place.length) ==
                                  std::tie(before.file, before.transform, before.offset, before.length);
  }

  // Objects, and tensors of unknown representations; those without chunks (inside a .pt file) count as objects.
  void check_whole_entries() {
    const catalog& contents = reader_.contents();
    std::vector<whole_entry> tensors, objects;
    for (const auto& [i, tensor] : ranges::views::enumerate(contents.tensors))
      if (!tensor.opaque_type.empty()) (tensor.chunk_count > 0 ? tensors : objects).push_back({true, i});
    for (std::size_t i = 0; i < contents.objects.size(); ++i) objects.push_back({false, i});
    report_.objects = static_cast<std::int64_t>(objects.size());
    report_.unchecked_chunks += check_entries(tensors);
    report_.unchecked_objects += check_entries(objects);
  }

  std::int64_t check_entries(std::span<const whole_entry> entries) {
    check_outcome outcome = reader_.check_whole(
        entries, {.quick = options_.quick, .threads = options_.threads, .max_problems = options_.max_problems});
    for (error& problem : outcome.problems) add(std::move(problem));
    report_.more_problems += outcome.more_problems;
    report_.checked_bytes += outcome.checked_bytes;
    return outcome.unchecked_entries;
  }

  // Folders that shardmesh wrote have a record of checksums of every byte.
  void open_record() {
    auto opened = recorded_sums::open(reader_);
    if (!opened) return add(std::move(opened).error());
    record_ = std::move(*opened);
  }

  void check_record() {
    std::vector<std::size_t> all(record_->ranges().size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    for (error& problem : record_->check(all, options_.threads)) add(std::move(problem));
    for (const checksum_range& range : record_->ranges()) report_.checked_bytes += range.length;
  }

  checkpoint_reader& reader_;
  const verify_options& options_;
  verify_report report_;
  std::set<std::string> lines_;  // of the report's problems
  std::shared_ptr<const recorded_sums> record_;
};

}  // namespace

verify_report verify(checkpoint_reader& reader, const verify_options& options) {
  return verification(reader, options).run();
}

}  // namespace shardmesh
