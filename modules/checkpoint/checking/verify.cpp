// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <entry_error.hpp>
#include <plural.hpp>
#include <range/v3/view/enumerate.hpp>

#include <shardmesh/try.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.storage;
import :entry_check;
import :stored_readers;

namespace shardmesh {
namespace {

class verification {
 public:
  verification(checkpoint_reader& reader, const verify_options& options) : reader_(reader), options_(options) {}

  result<verify_report> run() {
    report_.warnings = reader_.warnings();
    report_.unread_tensors = reader_.unread_tensors();
    if (reader_.contents().tensors.empty() && report_.unread_tensors > 0)
      report_.warnings.push_back(
          fail(errc::unsupported, fmt::format("no tensor is checked: it holds {}, and none of them is read",
                                              detail::counted(report_.unread_tensors, "tensor")))
              .with_file(reader_.path().string()));
    reader_.identify_opaque_tensors();
    const catalog& contents = reader_.contents();
    for (const error& problem : reader_.problems()) add(problem);
    for (const tensor_entry& tensor : contents.tensors) check_boxes(tensor);
    if (!options_.quick) open_record();
    SHARDMESH_TRY(check_items());
    for (checkpoint_reader* const copies : readers_of_copies(reader_)) SHARDMESH_TRY(check_copies(*copies));
    if (stopped_) return *std::move(stopped_);
    for (const tensor_entry& tensor : contents.tensors)
      report_.bytes = checked_add(report_.bytes, bytes_of(contents, tensor)).value_or(INT64_MAX);
    if (record_) check_record();
    if (stopped_) return *std::move(stopped_);
    report_.globals = find_globals(reader_.path(), &reader_, {.threads = options_.threads, .limits = options_.limits});
    for (const error& problem : report_.globals.problems) add(problem);
    report_.more_problems += report_.globals.more_problems;
    for (error& warning : warnings_of(report_.globals, reader_.path(), options_.allow_globals))
      report_.warnings.push_back(std::move(warning));
    put_first(dangers_of(report_.globals, reader_.path(), options_.allow_globals));
    drop_repeated_warnings();
    if (stopped_) return *std::move(stopped_);
    return std::move(report_);
  }

 private:
  // Checks every chunk and object of the reader, but not whether the chunks tile their tensors.
  result<void> check_items() {
    std::vector<error> shared = find_shared_bytes(reader_.stored());
    if (!shared.empty()) repeated_ = repeated_items(reader_);
    for (error& problem : shared) add(std::move(problem));
    SHARDMESH_TRY(check_chunks());
    check_whole_entries();
    return {};
  }

  // Checks items that the catalog leaves out, because other items hold the same values.
  result<void> check_copies(checkpoint_reader& copies) {
    if (stopped_) return {};
    copies.identify_opaque_tensors();
    verification other(copies, options_);
    for (const error& problem : copies.problems()) other.add(problem);
    SHARDMESH_TRY(other.check_items());
    if (!stopped_) stopped_ = std::move(other.stopped_);
    verify_report& found = other.report_;
    for (error& problem : found.problems) add(std::move(problem));
    report_.more_problems += found.more_problems;
    report_.chunks += found.chunks;
    report_.objects += found.objects;
    report_.checked_bytes += found.checked_bytes;
    report_.unchecked_chunks += found.unchecked_chunks;
    report_.unchecked_objects += found.unchecked_objects;
    const catalog& contents = copies.contents();
    for (const tensor_entry& tensor : contents.tensors)
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
        const std::int64_t bytes = size_bytes(tensor.type, contents.chunk_box(tensor, chunk).volume()).value_or(0);
        report_.bytes = checked_add(report_.bytes, bytes).value_or(INT64_MAX);
      }
    return {};
  }

  void add(error problem) {
    // A limit was reached, or memory ran out: the checkpoint is not at fault, and the rest of it is unchecked.
    if (detail::is_limit_error(problem) || (problem.code == errc::no_memory && problem.sys == ENOMEM)) {
      if (!stopped_) stopped_ = std::move(problem);
      return;
    }
    if (problem.file.empty()) problem.file = printable_url(reader_.path().string());
    // The checkpoint names a file that is missing: the data is at fault, not the system.
    if (problem.code == errc::io && problem.sys == ENOENT) problem.code = errc::bad_format;
    if (report_.problems.size() >= options_.max_problems) {
      ++report_.more_problems;
      return;
    }
    // The same defect may be found twice (as a chunk without a place and as a gap), but gets one line.
    if (lines_.insert(to_string(problem)).second) report_.problems.push_back(std::move(problem));
  }

  // Dangerous names come first, and the limit on problems does not cut them, because a user may read only the first
  // line.
  void put_first(std::vector<error> dangerous) {
    report_.problems.insert(report_.problems.begin(), std::make_move_iterator(dangerous.begin()),
                            std::make_move_iterator(dangerous.end()));
  }

  // An entry of which the ranks saved different values is a warning of the reader, and a problem of the entry, which
  // cannot be read: one line is enough.
  void drop_repeated_warnings() {
    std::erase_if(report_.warnings, [&](error warning) {
      if (warning.file.empty()) warning.file = printable_url(reader_.path().string());
      return lines_.contains(to_string(warning));
    });
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

  // Checks chunks in parallel, and reports their problems in the catalog's order. Fails if there is no memory for that.
  result<void> check_chunks() {
    const catalog& contents = reader_.contents();
    std::vector<std::pair<const tensor_entry*, std::int32_t>> chunks;
    for (const tensor_entry& tensor : contents.tensors) {
      report_.chunks += tensor.chunk_count;
      if (!tensor.opaque_type.empty()) continue;  // checked as a whole entry
      for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
        const std::int32_t chunk = tensor.first_chunk + i;
        if (is_repeated(static_cast<std::size_t>(chunk)))
          report_.unchecked_chunks += options_.quick ? 0 : 1;
        else
          chunks.emplace_back(&tensor, chunk);
      }
    }
    storage_sums sums(contents);
    first_problems found(options_.max_problems);
    std::atomic<std::int64_t> checked = 0, unchecked = 0;
    SHARDMESH_TRY(
        parallel_for(options_.threads, static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) -> result<void> {
          SHARDMESH_TRY(detail::check_current_call());
          const auto& [tensor, chunk] = chunks[static_cast<std::size_t>(i)];
          auto covered = check_chunk(*tensor, chunk, sums, unchecked);
          if (covered)
            checked += *covered;
          else if (detail::is_limit_error(covered.error()))
            return std::move(covered).error();
          else
            found.add(i, std::move(covered).error());
          return {};
        }));
    for (error& problem : found.take()) add(std::move(problem));
    report_.more_problems += found.more();
    report_.checked_bytes += checked;
    report_.unchecked_chunks += unchecked;
    return {};
  }

  result<std::int64_t> check_chunk(const tensor_entry& tensor, std::int32_t chunk, storage_sums& sums,
                                   std::atomic<std::int64_t>& unchecked) {
    SHARDMESH_TRY(const auto opened, reader_.open_chunk(tensor, chunk));
    if (options_.quick) return std::int64_t{0};
    const stored_range& place = reader_.contents().chunk_places[static_cast<std::size_t>(chunk)];
    auto checked = sums.check(*opened, place);
    if (!checked)
      return detail::at_entry(std::move(checked).error(), tensor.key)
          .with_box(reader_.contents().chunk_box(tensor, chunk));
    const bool is_empty = opened->tensor.size_bytes == 0;
    if (!is_empty && !has_checksum(*opened) && !(record_ && record_->of_item(place))) ++unchecked;
    if (is_next_piece(tensor, chunk)) return std::int64_t{0};
    return checked;
  }

  // True if the previous chunk is a piece of the same item, whose bytes were counted there.
  bool is_next_piece(const tensor_entry& tensor, std::int32_t chunk) const {
    if (chunk == tensor.first_chunk) return false;
    const auto& places = reader_.contents().chunk_places;
    const stored_range &place = places[static_cast<std::size_t>(chunk)],
                       &before = places[static_cast<std::size_t>(chunk) - 1];
    return place.file >= 0 && std::tie(place.file, place.transform, place.offset, place.length) ==
                                  std::tie(before.file, before.transform, before.offset, before.length);
  }

  // Checks objects and tensors of unknown representations. Such tensors without chunks (inside a .pt file) count as
  // objects.
  void check_whole_entries() {
    const catalog& contents = reader_.contents();
    std::vector<whole_entry> tensors, objects;
    for (const auto& [i, tensor] : ranges::views::enumerate(contents.tensors))
      if (!tensor.opaque_type.empty() && !has_repeated_chunk(tensor))
        (tensor.chunk_count > 0 ? tensors : objects).push_back({true, i});
    report_.objects = static_cast<std::int64_t>(objects.size() + contents.objects.size());
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      if (is_repeated(contents.chunk_places.size() + i))
        report_.unchecked_objects += options_.quick ? 0 : 1;
      else
        objects.push_back({false, i});
    report_.unchecked_chunks += check_entries(tensors);
    report_.unchecked_objects += check_entries(objects);
  }

  // `number` is an index into the result of `repeated_items`.
  bool is_repeated(std::size_t number) const { return number < repeated_.size() && repeated_[number]; }
  bool has_repeated_chunk(const tensor_entry& tensor) const {
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i)
      if (is_repeated(static_cast<std::size_t>(tensor.first_chunk + i))) return true;
    return false;
  }

  std::int64_t check_entries(std::span<const whole_entry> entries) {
    check_outcome outcome = reader_.check_whole(
        entries, {.quick = options_.quick, .threads = options_.threads, .max_problems = options_.max_problems});
    for (error& problem : outcome.problems) add(std::move(problem));
    report_.more_problems += outcome.more_problems;
    report_.checked_bytes += outcome.checked_bytes;
    return outcome.unchecked_entries;
  }

  // Folders that shardmesh wrote have a record with checksums of every byte.
  void open_record() {
    auto opened = recorded_sums::open(reader_);
    if (!opened) return add(std::move(opened).error());
    record_ = std::move(*opened);
  }

  void check_record() {
    std::vector<std::size_t> all(record_->ranges().size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    for (error& problem : record_->check(all, options_.threads, reader_.stored().contents())) add(std::move(problem));
    for (const checksum_range& range : record_->ranges()) report_.checked_bytes += range.length;
  }

  checkpoint_reader& reader_;
  const verify_options& options_;
  verify_report report_;
  std::set<std::string> lines_;  // of the report's problems
  std::vector<bool> repeated_;   // see `repeated_items`
  std::shared_ptr<const recorded_sums> record_;
  std::optional<error> stopped_;  // the error that ended the check early
};

}  // namespace

result<verify_report> verify(checkpoint_reader& reader, const verify_options& options) {
  const detail::call_scope limits(options.call().named("verification"));
  const places::remembered_answers answers;
  auto report = verification(reader, options).run();
  // A file that the store failed to look at is unchecked.
  if (auto failed = answers.failure();
      report && failed && std::ranges::find(report->problems, *failed) == report->problems.end())
    report->problems.push_back(*std::move(failed));
  return report;
}

result<verify_report> verify_unreadable(const std::filesystem::path& path, error why, const verify_options& options) {
  const detail::call_scope limits(options.call().named("verification"));
  const places::remembered_answers answers;
  verify_report report;
  report.problems.push_back(std::move(why));
  report.globals = find_globals(path, nullptr, {.threads = options.threads, .limits = options.limits});
  report.warnings = warnings_of(report.globals, path, options.allow_globals);
  for (error& problem : dangers_of(report.globals, path, options.allow_globals))
    report.problems.push_back(std::move(problem));
  return report;
}

}  // namespace shardmesh
