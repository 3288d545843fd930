// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.dcp;
import shardmesh.torch_file;
import :interruption;
import :rank_state;
import :save_assignment;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view token_name = ".shardmesh_token";

class rank_save {
 public:
  rank_save(fs::path destination, communicator_ref comm, rank_save_options options)
      : destination_(std::move(destination)),
        comm_(comm),
        options_(std::move(options)),
        round_{comm, options_.saving.call.named("save")},
        interruption_(options_.saving.call, "save") {
    options_.saving = replacing_checkpoints(std::move(options_.saving));
  }

  // Collective. What the ranks hold, and who writes what. False: the report says why not.
  bool plan(const const_held_state& held) {
    return keep([&]() -> result<void> {
      std::vector<std::byte> note;
      const auto mine = guarded([&]() -> result<void> {
        SHARDMESH_CHECK(enter(save_phase::describe));
        SHARDMESH_CHECK(check_held(held));
        SHARDMESH_CHECK(make_archives(held));
        note = describe(held, described_);
        return {};
      });
      SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note), conditions()));
      SHARDMESH_TRY(merged_state all, merge_states(notes));
      // What follows from a contradiction would only hide it.
      if (all.problems.empty()) work_ = assign_writers(all, held, comm_.rank(), options_.lowest_rank_objects);
      problem_list& problems = all.problems.empty() ? work_.problems : all.problems;
      report_.problems = std::move(problems.named);
      report_.more_problems = problems.more;
      return {};
    });
  }

  // Collective. What this rank writes is copied, so that the tensors may change.
  bool copy_sources() {
    return keep([&]() -> result<void> {
      const auto mine = guarded([&]() -> result<void> {
        for (const_tensor_view& view : work_.source.views) {
          SHARDMESH_TRY(host_tensor copied, host_tensor::make(view.type, view.sizes));
          const tensor_view to = adapter<host_tensor>::view(copied);
          SHARDMESH_CHECK(copy_between(to, view));
          copies_.push_back(std::move(copied));
          view = to;
        }
        return {};
      });
      SHARDMESH_CHECK(round_.settle(mine));
      return {};
    });
  }

  // Collective. The files, and the commit.
  save_report write() {
    keep([&]() -> result<void> {
      std::optional<staged_output> output;
      SHARDMESH_CHECK(stage(output));
      auto done = write_and_commit(*output);
      if (done && comm_.rank() != 0) output->release();  // rank 0 has the old checkpoint to take away
      return done;
    });
    return report_;
  }

  const save_report& report() const { return report_; }

 private:
  // The report of an error that every rank has; true when there is none.
  bool keep(function_ref<result<void>()> step) {
    auto done = guarded(comm_, step);
    if (!done) report_.problems.push_back(std::move(done).error());
    return report_.ok();
  }

  result<void> enter(save_phase phase) {
    SHARDMESH_CHECK(interruption_.check());
    return options_.before ? options_.before(phase) : result<void>{};
  }

  // What must be equal on all ranks beside what they hold.
  std::vector<agreement_record> conditions() const {
    std::error_code code;
    const fs::path whole = fs::absolute(destination_, code);
    return {{"(destination)", (code ? destination_ : whole).lexically_normal().string()},
            {"(options)",
             fmt::format("overwrite {}, durable {}, lowest rank's objects {}", options_.saving.output.overwrite,
                         options_.saving.output.durable, options_.lowest_rank_objects)}};
  }

  result<void> make_archives(const const_held_state& held) {
    for (const held_object& object : held.objects) {
      auto archive = torch_file::archive_of_object(object);
      if (!archive) return std::move(archive).error().with_key(dotted(object.where));
      described_.push_back(
          {object.where, xxh3(*archive), static_cast<std::int64_t>(archive->size()), torch_file::summary_of(object)});
      archives_.push_back(*std::move(archive));
    }
    return {};
  }

  // Rank 0 makes the folder, the others find it and what rank 0 wrote there: else they have another file system.
  result<void> stage(std::optional<staged_output>& output) {
    std::string token;
    detail::wire_writer note;
    auto mine = guarded([&]() -> result<void> {
      SHARDMESH_CHECK(enter(save_phase::stage));
      if (comm_.rank() != 0) return {};
      SHARDMESH_TRY(output, staged_output::directory(destination_, options_.saving.output));
      SHARDMESH_CHECK(output->reserve(dcp::data_bytes_of(work_.tensors)));  // of all ranks, before any of them writes
      std::random_device random;
      token = fmt::format("{:08x}{:08x}", random(), random());
      SHARDMESH_TRY(token_file_, output->add_file(token_name));
      SHARDMESH_CHECK(output->write(token_file_, 0, std::as_bytes(std::span(token))));
      note.text(output->folder().string());
      note.text(token);
      return {};
    });
    SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note).take()));
    mine = guarded([&]() -> result<void> {
      if (comm_.rank() == 0) return {};
      detail::wire_reader in(notes.front());
      const fs::path folder = in.text();
      token = in.text();
      const auto found = read_file(folder / token_name, 1024);
      if (!found || std::string(reinterpret_cast<const char*>(found->data()), found->size()) != token)
        return fail(errc::io, "does not see the folder that rank 0 made: the ranks do not share a file system")
            .with_file(folder.string())
            .with_rank(comm_.rank())
            .with_hint("save to a file system that all ranks see");
      SHARDMESH_TRY(output, staged_output::join(folder, options_.saving.output));
      return {};
    });
    SHARDMESH_CHECK(round_.settle(mine));
    return {};
  }

  result<void> write_and_commit(staged_output& output) {
    dcp::rank_files files(output, comm_.rank());
    std::vector<dcp::item_place> object_places;
    std::vector<std::byte> note;
    auto mine = guarded([&]() -> result<void> {
      SHARDMESH_CHECK(enter(save_phase::write));
      SHARDMESH_CHECK(write_file(output, files, object_places));
      SHARDMESH_CHECK(output.prepare());
      SHARDMESH_CHECK(enter(save_phase::finish));
      note = encode(files.ranges());
      return {};
    });
    SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note)));
    bool committed = false;
    mine = guarded([&]() -> result<void> {
      auto entered = enter(save_phase::commit);
      if (comm_.rank() != 0) return {};
      SHARDMESH_CHECK(entered);
      SHARDMESH_TRY(std::vector<checksum_range> ranges, decode(notes));
      std::vector<dcp::item_place>& places = files.places();
      places.insert(places.end(), object_places.begin(), object_places.end());
      SHARDMESH_CHECK(
          dcp::finish_folder(output, work_.tensors, work_.objects, places, dcp::new_extras(), std::move(ranges)));
      SHARDMESH_CHECK(interruption_.check());
      SHARDMESH_CHECK(output.commit());
      committed = true;
      report_.notes.insert(report_.notes.end(), output.notes().begin(), output.notes().end());
      return {};
    });
    auto told = round_.settle(mine);
    if (!told) {
      error why = std::move(told).error();
      if (committed)
        why.hint = "the new checkpoint was put in place before that";
      else if (mine &&
               (why.code == errc::communication || why.code == errc::deadline_exceeded || why.code == errc::cancelled))
        why.hint = "rank 0 may have put the new checkpoint in place before that; it is whole then";
      return why;
    }
    report_.tensors = static_cast<std::int64_t>(work_.tensors.size());
    report_.objects = static_cast<std::int64_t>(work_.objects.size());
    report_.bytes = files.data_bytes();
    report_.files = files.files();
    return {};
  }

  // This rank's file. All ranks give all items their places, so that rank 0 knows them.
  result<void> write_file(staged_output& output, dcp::rank_files& files, std::vector<dcp::item_place>& object_places) {
    if (comm_.rank() == 0) {
      SHARDMESH_CHECK(output.remove_file(token_file_));
    }
    for (std::size_t i = 0; i < work_.objects.size(); ++i) {
      SHARDMESH_TRY(dcp::item_place at, files.place(work_.objects[i].rank, work_.object_lengths[i]));
      if (work_.object_indices[i] >= 0) {
        const std::vector<std::byte>& archive = archives_[static_cast<std::size_t>(work_.object_indices[i])];
        SHARDMESH_CHECK(files.write_archive(work_.objects[i].rank, at, archive));
      }
      object_places.push_back(std::move(at));
    }
    for (output_tensor& tensor : work_.tensors)
      if (auto placed = files.place_tensor(tensor); !placed) return std::move(placed).error().with_key(tensor.key);
    item_run_options run = run_options_of(options_.saving);
    run.call = {.cancel = interruption_.token()};  // which the deadline fires, too
    run.progress = [this](std::int64_t bytes) {
      interruption_.poll();
      if (options_.saving.progress) options_.saving.progress(bytes);
    };
    auto written = files.write_tensors(work_.tensors, work_.source, run);
    if (!written && written.error().code == errc::cancelled) return interruption_.check();
    return written;
  }

  static std::vector<std::byte> encode(std::span<const checksum_range> ranges) {
    detail::wire_writer out;
    out.number(static_cast<std::int64_t>(ranges.size()));
    for (const checksum_range& range : ranges) {
      out.number(range.offset);
      out.number(range.length);
      out.text(range.digits);
    }
    return std::move(out).take();
  }

  static result<std::vector<checksum_range>> decode(const agreement_notes& notes) {
    std::vector<checksum_range> ranges;
    for (std::size_t rank = 0; rank < notes.size(); ++rank) {
      detail::wire_reader in(notes[rank]);
      const std::size_t count = in.count();
      for (std::size_t i = 0; i < count && in.ok(); ++i) {
        checksum_range range{dcp::file_name(static_cast<std::int32_t>(rank)), in.number(), in.number(), {}};
        range.digits = in.text();
        ranges.push_back(std::move(range));
      }
      if (!in.finished())
        return fail(errc::bad_format, "what a rank says that it wrote makes no sense")
            .with_rank(static_cast<std::int32_t>(rank));
    }
    return ranges;
  }

  fs::path destination_;
  communicator_ref comm_;
  rank_save_options options_;
  round_of_ranks round_;
  interruption interruption_;
  save_report report_;
  std::int32_t token_file_ = 0;  // rank 0's, in the staged output
  save_assignment work_;
  std::vector<described_object> described_;
  std::vector<std::vector<std::byte>> archives_;  // of this rank's objects
  std::list<host_tensor> copies_;
};

}  // namespace

save_report save(const fs::path& destination, const const_held_state& held, communicator_ref comm,
                 const rank_save_options& options) {
  rank_save work(destination, comm, options);
  return work.plan(held) ? work.write() : work.report();
}

struct save_in_progress::state {
  state(fs::path destination, communicator_ref comm, const rank_save_options& options)
      : work(std::move(destination), comm, options) {}
  rank_save work;
  save_report report;
  std::atomic<bool> done = false;
  std::thread thread;
};

save_in_progress::save_in_progress(std::unique_ptr<state> made) : state_(std::move(made)) {}
save_in_progress::save_in_progress(save_in_progress&&) noexcept = default;
save_in_progress& save_in_progress::operator=(save_in_progress&& other) noexcept {
  if (this != &other) {
    if (state_) wait();
    state_ = std::move(other.state_);
  }
  return *this;
}
save_in_progress::~save_in_progress() {
  if (state_) wait();
}

bool save_in_progress::done() const {
  return state_->done;
}

const save_report& save_in_progress::wait() {
  if (state_->thread.joinable()) state_->thread.join();
  return state_->report;
}

result<save_in_progress> start_save(const fs::path& destination, const const_held_state& held, communicator_ref comm,
                                    const rank_save_options& options) {
  auto made = std::make_unique<save_in_progress::state>(destination, comm, options);
  if (!made->work.plan(held) || !made->work.copy_sources()) return made->work.report().problems.front();
  auto* const running = made.get();
  const auto started = guarded([&]() -> result<void> {
    running->thread = std::thread([running] {
      running->report = running->work.write();
      running->done = true;
    });
    return {};
  });
  if (!started) {
    comm.abort(started.error());  // the others are under way already
    return started.error();
  }
  return save_in_progress(std::move(made));
}

}  // namespace shardmesh
