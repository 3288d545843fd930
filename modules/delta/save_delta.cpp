// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import shardmesh.digest;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :block_codec;
import :block_entry;
import :block_grid;
import :delta_plan;
import :description;
import :file_header;
import :idle_pool;
import :zstd_frame;

namespace shardmesh {
namespace {

using delta::described_tensor;
using delta::encoded_block;

// Stored blocks that are held until they are written in order. More of them would only take memory.
constexpr std::int64_t blocks_per_thread = 16;
constexpr std::int64_t most_held_bytes = std::int64_t{1} << 30;

// The elements of one block on both sides, and their encoder.
struct block_work {
  block_work(int level, std::int64_t block_bytes)
      : encoder(level),
        base(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(block_bytes))),
        next(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(block_bytes))) {}
  delta::block_encoder encoder;
  std::unique_ptr<std::byte[]> base, next;
};

// A checkpoint whose elements are read, with or without a comparison of its checksums.
struct element_reader {
  checkpoint_reader* reader = nullptr;
  chunk_source chunks;

  static result<element_reader> open(checkpoint_reader& reader, bool checks) {
    if (!checks) return element_reader{&reader, chunk_source(reader)};
    SHARDMESH_TRY(std::shared_ptr<const recorded_sums> record, recorded_sums::open(reader));
    return element_reader{&reader, chunk_source::checking(reader, std::move(record))};
  }
  result<void> read(const tensor_entry& tensor, const box& part, std::byte* to) {
    const tensor_view view{to, tensor.type, {}, part.sizes, contiguous_strides(part.sizes)};
    return stored_boxes{reader, &chunks, &tensor}.read(part, view);
  }
  result<void> finish() {
    SHARDMESH_TRY(chunks.finish());
    return reader->finish_checks();
  }
};

result<void> check_options_of(const delta_options& options) {
  if (options.level < delta::lowest_level || options.level > delta::highest_level)
    return fail(errc::invalid_argument, "zstd has no such level")
        .with_values(fmt::format("{} to {}", delta::lowest_level, delta::highest_level),
                     fmt::format("{}", options.level));
  if (options.block_bytes < delta::least_block_bytes || options.block_bytes > delta::most_block_bytes)
    return fail(errc::invalid_argument, "blocks of a delta cannot have this size")
        .with_values(fmt::format("{} to {} bytes", delta::least_block_bytes, delta::most_block_bytes),
                     fmt::format("{}", options.block_bytes));
  return {};
}

class delta_save {
 public:
  delta_save(delta::delta_plan plan, element_reader& base, element_reader& next, staged_output& output,
             const delta_options& options)
      : plan_(std::move(plan)), base_(base), next_(next), output_(output), options_(options) {}

  result<delta_report> run() {
    SHARDMESH_TRY(file_, output_.add_file(""));
    SHARDMESH_TRY(write_tensors());
    SHARDMESH_TRY(write_objects());
    SHARDMESH_TRY(write_description());
    count();
    return std::move(report_);
  }

 private:
  struct job {
    std::size_t tensor = 0;
    std::int64_t block = 0;
  };

  delta::description& described() { return plan_.described; }

  result<void> check_limits() const {
    return detail::check_limits({.within = options_.within, .cancel = options_.cancel}, "delta");
  }

  result<void> write(std::span<const std::byte> bytes) {
    if (bytes.empty()) return {};
    SHARDMESH_TRY(output_.write(file_, end_, bytes));
    end_ += static_cast<std::int64_t>(bytes.size());
    return {};
  }

  result<void> write_tensors() {
    const std::int64_t most =
        std::clamp<std::int64_t>(blocks_per_thread * thread_count(options_.threads), 1,
                                 std::max<std::int64_t>(most_held_bytes / options_.block_bytes, 1));
    std::vector<job> jobs;
    for (std::size_t i = 0; i < described().tensors.size(); ++i) {
      described_tensor& one = described().tensors[i];
      if (one.archive) {
        SHARDMESH_TRY(write_blocks(jobs));
        SHARDMESH_TRY(write_tensor_archive(one, *plan_.sources[i].next));
        continue;
      }
      one.first_block = described().blocks.size() + jobs.size();
      for (std::int64_t block = 0; block < one.grid.count(); ++block) {
        jobs.push_back({i, block});
        if (std::ssize(jobs) == most) SHARDMESH_TRY(write_blocks(jobs));
      }
    }
    return write_blocks(jobs);
  }

  // Encodes blocks on all threads, and writes them in their order, so that the file does not depend on the threads.
  result<void> write_blocks(std::vector<job>& jobs) {
    std::vector<encoded_block> made(jobs.size());
    SHARDMESH_TRY(parallel_for(options_.threads, std::ssize(jobs), [&](std::int64_t i) -> result<void> {
      const auto at = static_cast<std::size_t>(i);
      SHARDMESH_TRY(made[at], encode(jobs[at]));
      return {};
    }));
    std::vector<std::byte> bytes;
    std::int64_t offset = end_;
    for (encoded_block& one : made) {
      one.entry.offset = offset;
      offset += one.entry.stored_bytes;
      bytes.insert(bytes.end(), one.stored.begin(), one.stored.end());
      std::vector<std::byte>().swap(one.stored);
      described().blocks.push_back(one.entry);
    }
    jobs.clear();
    return write(bytes);
  }

  result<encoded_block> encode(const job& one) {
    SHARDMESH_TRY(check_limits());
    const described_tensor& tensor = plan_.described.tensors[one.tensor];
    const delta::delta_plan::source& from = plan_.sources[one.tensor];
    const box block = tensor.grid.block(one.block);
    const std::int64_t item = item_bytes(tensor.entry.type);
    const auto bytes = static_cast<std::size_t>(block.volume() * item);
    auto work = idle_.take(options_.level, std::max(options_.block_bytes, item));
    SHARDMESH_TRY(next_.read(*from.next, block, work->next.get()));
    if (from.base != nullptr) SHARDMESH_TRY(base_.read(*from.base, block, work->base.get()));
    encoded_block made =
        work->encoder.encode({work->base.get(), from.base != nullptr ? bytes : 0}, {work->next.get(), bytes}, item);
    idle_.put(std::move(work));
    if (options_.progress) options_.progress(static_cast<std::int64_t>(bytes));
    return made;
  }

  result<delta::stored_archive> write_archive(std::span<const std::byte> bytes) {
    const delta::stored_archive made{end_, static_cast<std::int64_t>(bytes.size()), xxh3(bytes)};
    SHARDMESH_TRY(write(bytes));
    return made;
  }

  result<void> write_tensor_archive(described_tensor& one, const tensor_entry& tensor) {
    SHARDMESH_TRY(check_limits());
    SHARDMESH_TRY(const std::vector<std::byte> archive, next_.reader->chunk_archive(tensor, tensor.first_chunk));
    SHARDMESH_TRY(one.archive, write_archive(archive));
    return {};
  }

  result<void> write_objects() {
    const catalog& contents = next_.reader->contents();
    std::vector<std::string> skipped;
    for (const std::size_t index : plan_.objects) {
      SHARDMESH_TRY(check_limits());
      const object_entry& object = contents.objects[index];
      auto archive = next_.reader->object_archive(index);
      if (!archive) {
        error why = std::move(archive).error();
        if (why.code != errc::unsupported) return why;
        if (!options_.skip_unsupported) return std::move(why).with_hint("pass skip_unsupported to leave it out");
        skipped.push_back(escaped(object.key));
        continue;
      }
      delta::described_object made{object.key, object.where, {}};
      SHARDMESH_TRY(made.archive, write_archive(*archive));
      described().objects.push_back(std::move(made));
    }
    plan_.skipped_objects += std::ssize(skipped);
    if (!skipped.empty())
      plan_.notes.push_back(
          fmt::format("left out, because the checkpoint does not hold them whole: {}", name_list(skipped)));
    return {};
  }

  result<void> write_description() {
    const std::vector<std::byte> text = delta::format_description(described());
    const delta::file_header header{options_.block_bytes, end_, static_cast<std::int64_t>(text.size()), xxh3(text)};
    SHARDMESH_TRY(write(text));
    return output_.write(file_, 0, delta::format_header(header));
  }

  void count() {
    report_.notes = std::move(plan_.notes);
    report_.tensors = std::ssize(described().tensors);
    report_.objects = std::ssize(described().objects);
    report_.skipped_tensors = plan_.skipped_tensors;
    report_.skipped_objects = plan_.skipped_objects;
    report_.delta_bytes = end_;
    for (const described_tensor& one : described().tensors) {
      if (!one.archive) report_.bytes += size_bytes(one.entry.type, box::whole(one.entry.shape).volume()).value_or(0);
      ++(!one.has_base ? report_.added : is_unchanged(one) ? report_.unchanged : report_.changed);
    }
    for (const tensor_entry& tensor : base_.reader->contents().tensors)
      report_.removed += next_.reader->contents().find(tensor.key) == nullptr ? 1 : 0;
  }

  bool is_unchanged(const described_tensor& one) {
    const auto blocks =
        std::span(described().blocks).subspan(one.first_block, static_cast<std::size_t>(one.grid.count()));
    return std::all_of(blocks.begin(), blocks.end(),
                       [](const delta::block_entry& block) { return block.coding == delta::block_coding::same; });
  }

  delta::delta_plan plan_;
  element_reader& base_;
  element_reader& next_;
  staged_output& output_;
  const delta_options& options_;
  delta_report report_;
  delta::idle_pool<block_work> idle_;
  std::int32_t file_ = 0;
  std::int64_t end_ = delta::header_bytes;
};

}  // namespace

result<delta_report> save_delta(checkpoint_reader& base, checkpoint_reader& next, const std::filesystem::path& file,
                                const delta_options& options) {
  const detail::call_scope limits({.within = options.within, .cancel = options.cancel, .name = "delta"});
  const places::remembered_answers answers;  // the checkpoints may lie under URLs
  SHARDMESH_TRY(check_options_of(options));
  SHARDMESH_TRY(check_disjoint(file, base));
  SHARDMESH_TRY(check_disjoint(file, next));
  SHARDMESH_TRY(delta::delta_plan plan, delta::plan_delta(base, next, options.block_bytes, options.skip_unsupported));
  SHARDMESH_TRY(element_reader base_elements, element_reader::open(base, options.check_sums));
  SHARDMESH_TRY(element_reader next_elements, element_reader::open(next, options.check_sums));
  SHARDMESH_TRY(staged_output output,
                staged_output::file(file, {.overwrite = options.overwrite, .durable = options.durable}));
  SHARDMESH_TRY(delta_report report, delta_save(std::move(plan), base_elements, next_elements, output, options).run());
  SHARDMESH_TRY(base_elements.finish());
  SHARDMESH_TRY(next_elements.finish());
  SHARDMESH_TRY(output.prepare());
  if (options.before_commit) options.before_commit();
  SHARDMESH_TRY(detail::check_limits({.within = options.within, .cancel = options.cancel}, "delta"));
  SHARDMESH_TRY(output.commit());
  report.notes.insert(report.notes.end(), output.notes().begin(), output.notes().end());
  return report;
}

}  // namespace shardmesh
