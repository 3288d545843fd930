// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.dcp;
import shardmesh.digest;
import shardmesh.storage;
import :run_lock;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{8} << 20;

// Copies the bytes of a step into a new folder, range by range of its record of checksums. Ranges of the step's own
// files keep their places. Those of rank 3's file of another step are appended to "__3_1.distcp".
class step_copy {
 public:
  step_copy(const checkpoint_reader& reader, std::span<const checksum_range> record, staged_output& output)
      : reader_(reader), record_(record), output_(output), buffer_(static_cast<std::size_t>(piece_bytes)) {
    for (const checksum_range& range : record) own_names_.insert(range.file);
  }

  result<void> run() {
    SHARDMESH_TRY(reserve());
    for (const checksum_range& range : record_)
      if (range.file != ".metadata") SHARDMESH_TRY(copy(range));
    return {};
  }

  // The places of all items in the new folder, in the order in which `dcp::finish_folder` takes them.
  result<std::vector<dcp::item_place>> places_of(const conversion& work) const {
    const catalog& contents = reader_.contents();
    std::vector<dcp::item_place> places;
    for (std::size_t i = 0; i < work.tensors.size(); ++i) {
      const tensor_entry& stored = contents.tensors[work.sources[i]];
      for (const stored_range& at : items_of(stored)) {
        auto place = place_of(at);
        if (!place) return std::move(place).error().with_key(stored.key);
        places.push_back(*std::move(place));
      }
    }
    for (const std::size_t object : work.object_sources) {
      auto place = place_of(contents.objects[object].place);
      if (!place) return std::move(place).error().with_key(contents.objects[object].key);
      places.push_back(*std::move(place));
    }
    return places;
  }

  std::vector<checksum_range> ranges() const { return ranges_; }
  std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  result<void> reserve() const {
    std::int64_t total = 0;
    for (const checksum_range& range : record_) {
      const auto sum = range.offset < 0 || range.length < 0 || !checked_add(range.offset, range.length)
                           ? std::nullopt
                           : checked_add(total, range.length);
      if (!sum)
        return fail(errc::bad_format, "the record of checksums has an impossible range")
            .with_file((reader_.path() / range.file).string());
      total = *sum;
    }
    return output_.reserve(total);
  }

  result<void> copy(const checksum_range& range) {
    SHARDMESH_TRY(const dcp::item_place to, new_place_of(range));
    SHARDMESH_TRY(const std::int32_t file, number_of(to.file));
    SHARDMESH_TRY(const byte_source* const from, source_of(range.file));
    xxh3_stream sum;
    for (std::int64_t done = 0; done < range.length;) {
      const std::int64_t size = std::min(range.length - done, piece_bytes);
      const std::span<std::byte> piece(buffer_.data(), static_cast<std::size_t>(size));
      SHARDMESH_TRY(from->read(range.offset + done, piece));
      sum.update(piece);
      SHARDMESH_TRY(output_.write(file, to.offset + done, piece));
      done += size;
    }
    if (const std::string found = to_hex(sum.digest()); found != range.digits)
      return fail(errc::checksum_mismatch, fmt::format("bytes {} to {} have changed since they were saved",
                                                       range.offset, range.offset + range.length))
          .with_file((reader_.path() / range.file).string())
          .with_values(range.digits, found)
          .with_hint("restore the file");
    ranges_.push_back({to.file, to.offset, to.length, range.digits});
    return {};
  }

  result<dcp::item_place> new_place_of(const checksum_range& range) {
    if (!parse_sibling_file(range.file)) return dcp::item_place{range.file, range.offset, range.length};
    const std::string file = new_file_of(rank_of_file(range.file).value_or(0));
    std::int64_t& size = sizes_[file];
    dcp::item_place made{file, size, range.length};
    size += range.length;  // `reserve` has added all lengths
    copied_bytes_ += range.length;
    moved_.insert_or_assign(std::pair(range.file, range.offset), made);
    return made;
  }

  // The file of a rank for items of other steps. No file of the step has its name.
  std::string new_file_of(std::int32_t rank) {
    std::string& name = new_files_[rank];
    for (int number = 1; name.empty(); ++number) {
      std::string candidate = fmt::format("__{}_{}.distcp", rank, number);
      if (!own_names_.contains(candidate)) name = std::move(candidate);
    }
    return name;
  }

  result<std::int32_t> number_of(const std::string& file) {
    const auto known = numbers_.find(file);
    if (known != numbers_.end()) return known->second;
    SHARDMESH_TRY(const std::int32_t number, output_.add_file(file));
    numbers_.emplace(file, number);
    return number;
  }

  result<const byte_source*> source_of(const std::string& file) {
    std::unique_ptr<byte_source>& source = sources_[file];
    if (!source) {
      SHARDMESH_TRY(source, open_recorded(reader_.path(), file, pool_));
    }
    return static_cast<const byte_source*>(source.get());
  }

  // The items of a tensor's chunks, as `select_for_output` lists the chunks: without empty ones, but one at least.
  std::vector<stored_range> items_of(const tensor_entry& stored) const {
    const catalog& contents = reader_.contents();
    std::vector<stored_range> items;
    for (std::int32_t chunk = stored.first_chunk; chunk < stored.first_chunk + stored.chunk_count; ++chunk)
      if (!contents.chunk_box(stored, chunk).is_empty())
        items.push_back(contents.chunk_places[static_cast<std::size_t>(chunk)]);
    if (!items.empty()) return items;
    if (stored.chunk_count == 0) return {stored_range()};
    return {contents.chunk_places[static_cast<std::size_t>(stored.first_chunk)]};
  }

  result<dcp::item_place> place_of(const stored_range& at) const {
    if (at.file < 0 || at.transform != 0)
      return fail(errc::unsupported, "an item without a place, or a compressed one, cannot be copied as it is")
          .with_file(reader_.path().string())
          .with_hint("save the step again without previous");
    const std::string& file = reader_.contents().files[static_cast<std::size_t>(at.file)];
    if (!parse_sibling_file(file)) return dcp::item_place{file, at.offset, at.length};
    const auto moved = moved_.find(std::pair(file, at.offset));
    if (moved != moved_.end() && moved->second.length == at.length) return moved->second;
    return fail(errc::bad_format, "the record of checksums lacks an item to which the step refers")
        .with_file((reader_.path() / file).string())
        .with_values("", fmt::format("{} bytes at {}", at.length, at.offset));
  }

  const checkpoint_reader& reader_;
  std::span<const checksum_range> record_;
  staged_output& output_;
  std::vector<std::byte> buffer_;
  file_pool pool_;
  std::set<std::string> own_names_;
  std::map<std::string, std::unique_ptr<byte_source>> sources_;
  std::map<std::string, std::int32_t> numbers_;                            // in the output
  std::map<std::int32_t, std::string> new_files_;                          // by rank
  std::map<std::string, std::int64_t> sizes_;                              // of the new files
  std::map<std::pair<std::string, std::int64_t>, dcp::item_place> moved_;  // by the old file and offset
  std::vector<checksum_range> ranges_;                                     // of the new folder
  std::int64_t copied_bytes_ = 0;
};

// Checks the written copy: it must be whole, independent, and equal to the step.
result<void> check_copy(checkpoint_reader& step, const fs::path& copy, int threads) {
  SHARDMESH_TRY(const auto made, open_checkpoint(copy));
  if (!made->problems().empty()) return fail_all(made->problems());
  for (const std::string& file : made->contents().files)
    if (parse_sibling_file(file))
      return fail(errc::bad_format, "the copy of the step refers to another step").with_file(file);
  SHARDMESH_TRY(verify_report checked, verify(*made, {.threads = threads}));
  if (!checked.ok()) return fail_all(std::move(checked.problems), checked.more_problems);
  SHARDMESH_TRY(diff_report compared, diff(step, *made, {.layout = true, .threads = threads}));
  if (!compared.problems.empty()) return fail_all(std::move(compared.problems));
  if (compared.differences.empty()) return {};
  return fail(errc::checksum_mismatch, "the copy of the step differs from it: " + compared.differences.front().text)
      .with_key(compared.differences.front().key)
      .with_file(step.path().string());
}

// The attributes and texts of the description.
dcp::extras extras_of_step(const checkpoint_reader& step) {
  dcp::extras made = dcp::extras_of(step);
  made.texts.clear();
  for (const file_text& text : step.contents().texts) made.texts.emplace_back(text.key, text.value);
  return made;
}

// Writes, checks, and commits the new folder.
result<flatten_report> rewrite(checkpoint_reader& reader, const recorded_sums& record, int threads) {
  conversion work = select_for_output(reader, {});
  for (error& refused : work.unsupported) work.problems.push_back(std::move(refused));
  if (!work.problems.empty()) return fail_all(std::move(work.problems));
  SHARDMESH_TRY(staged_output output, staged_output::directory(reader.path(), {.overwrite = true}));
  step_copy copy(reader, record.ranges(), output);
  SHARDMESH_TRY(copy.run());
  SHARDMESH_TRY(const std::vector<dcp::item_place> places, copy.places_of(work));
  SHARDMESH_TRY(dcp::finish_folder(output, work.tensors, work.objects, places, extras_of_step(reader), copy.ranges()));
  SHARDMESH_TRY(output.prepare());
  SHARDMESH_TRY(check_copy(reader, output.folder(), threads));
  SHARDMESH_TRY(output.commit());
  flatten_report made;
  made.copied_bytes = copy.copied_bytes();
  made.notes = output.notes();
  return made;
}

}  // namespace

result<flatten_report> flatten_step(const fs::path& run, std::int64_t step, step_names names, int threads) {
  std::error_code code;
  if (step < 0 || !fs::is_directory(run / folder_name(step, names), code))
    return fail(errc::invalid_argument, fmt::format("the run has no step {} to flatten", step)).with_file(run.string());
  const fs::path path = run / folder_name(step, names);
  // The lock of this run does not keep a writer away from the folder to which a link leads.
  if (fs::is_symlink(fs::symlink_status(path, code)))
    return fail(errc::unsupported, "the step is a symbolic link, and its folder belongs to another run")
        .with_file(path.string())
        .with_hint("flatten the step in the run to which the link leads");
  SHARDMESH_TRY(const run_lock lock, run_lock::take(run));
  step_check checked = check_step(path);
  if (checked.problem) return *std::move(checked.problem);
  if (checked.references.empty()) return flatten_report();
  SHARDMESH_TRY(const auto reader, open_checkpoint(path));
  if (!dcp::extras_of(*reader).common_keys.empty())
    return fail(errc::unsupported, "a step with Megatron's common.pt cannot be flattened").with_file(path.string());
  SHARDMESH_TRY(const std::shared_ptr<const recorded_sums> record, recorded_sums::open(*reader));
  if (!record)
    return fail(errc::bad_format, "the step refers to others, but has no record of checksums")
        .with_file((path / checksum_file_name).string())
        .with_hint("restore the file, or save the step again");
  SHARDMESH_TRY(flatten_report made, rewrite(*reader, *record, threads));
  made.references = std::move(checked.references);
  return made;
}

}  // namespace shardmesh
