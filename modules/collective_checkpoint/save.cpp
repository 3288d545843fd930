// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

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

import shardmesh.torch_file;
import :interruption;
import :rank_share;
import :rank_state;
import :rank_writer;
import :save_assignment;
import :staging_lease;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view token_name = ".shardmesh_token";

// The whole selection as text, for ranks to compare.
std::string text_of(const selection_options& selection) {
  std::string text = fmt::format("no optimizer {}, prefix {}, unused {}, optimizer follows {}, narrowing {}",
                                 selection.no_optimizer, escaped(selection.strip_prefix), selection.allow_unused,
                                 selection.optimizer_follows, selection.allow_narrowing);
  for (const key_pattern& pattern : selection.only) text += fmt::format(", only {}", pattern.text());
  for (const key_pattern& pattern : selection.skip) text += fmt::format(", skip {}", pattern.text());
  for (const rename_rule& rule : selection.rename) text += fmt::format(", rename {}", rule.text());
  for (const cast_rule& rule : selection.cast)
    text += fmt::format(", cast {}={}:{}", rule.what ? rule.what->text() : "(all)", rule.from ? name(*rule.from) : "",
                        name(rule.type));
  return text;
}

class rank_save {
 public:
  rank_save(fs::path destination, communicator_ref comm, rank_save_options options)
      : destination_(std::move(destination)),
        comm_(comm),
        options_(std::move(options)),
        saving_(replacing_checkpoints(options_.saving())),
        round_{comm, saving_.call().named("save")},
        interruption_(saving_.call(), "save") {}

  // Describes the state of this rank, and decides with the others who writes what. Collective. Every rank gets the same
  // errors.
  result<void> plan(const const_local_state& held) {
    const detail::call_scope limits(round_.call);
    return guarded(comm_, [&]() -> result<void> {
      std::vector<std::byte> note;
      const auto mine = guarded([&]() -> result<void> {
        SHARDMESH_TRY(enter(save_phase::describe));
        SHARDMESH_TRY(check_held(held));
        SHARDMESH_TRY(make_archives(held));
        note = describe(held, described_);
        return {};
      });
      // Both begin with the same round, in which ranks with different formats learn that.
      if (is_planned_by_root(options_.format)) return plan_by_root(held, mine, std::move(note));
      SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note), conditions()));
      return plan_on_every_rank(held, notes);
    });
  }

  // Copies what this rank writes, so that the tensors may change. Collective.
  result<void> copy_sources() {
    return guarded(comm_, [&]() -> result<void> {
      const auto mine = guarded([&]() -> result<void> {
        if (!planned_) return planned_;
        SHARDMESH_TRY(const std::vector<tensor_view> staged, staging());
        for (std::size_t i = 0; i < staged.size(); ++i) {
          SHARDMESH_TRY(copy_between(staged[i], work_.source.views[i]));
          work_.source.views[i] = staged[i];
        }
        return {};
      });
      const auto told = round_.settle(mine);
      // The other ranks can only report that they waited for this one.
      if (!mine && mine.error().code == errc::deadline_exceeded) return mine;
      SHARDMESH_TRY(told);
      return {};
    });
  }

  // Writes the files, and commits. Collective.
  result<save_report> write() {
    const detail::call_scope limits(round_.call);  // another thread than that of `plan` may write
    auto written = guarded(comm_, [&]() -> result<void> {
      std::optional<staged_output> output;
      SHARDMESH_TRY(stage(output));
      auto done = write_and_commit(*output);
      if (done && comm_.rank() != 0) output->release();  // rank 0 still has to remove the old checkpoint
      return done;
    });
    pooled_.give_back();
    if (!written) return std::move(written).error();
    return std::move(report_);
  }

 private:
  // Memory that matches every view of the source, from the pool if there is one.
  result<std::vector<tensor_view>> staging() {
    std::vector<tensor_view> made;
    if (options_.staging.is_none()) {
      for (const const_tensor_view& view : work_.source.views) {
        SHARDMESH_TRY(host_tensor copy, host_tensor::make(view.type, view.sizes));
        made.push_back(view_of(copies_.emplace_back(std::move(copy))));
      }
      return made;
    }
    constexpr std::int64_t alignment = 64;
    std::vector<std::int64_t> begins;
    std::int64_t total = 0;
    for (const const_tensor_view& view : work_.source.views) {
      begins.push_back(total);
      total += (size_bytes(view.type, numel(view)).value() + alignment - 1) / alignment * alignment;
    }
    SHARDMESH_TRY(pooled_, staging_lease::take(options_.staging, total, comm_.rank(), saving_.call()));
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const const_tensor_view& view = work_.source.views[i];
      made.push_back({pooled_.bytes().data() + begins[i], view.type, {}, view.sizes, contiguous_strides(view.sizes)});
    }
    return made;
  }

  result<void> enter(save_phase phase) {
    SHARDMESH_TRY(interruption_.check());
    return options_.before ? options_.before(phase) : result<void>{};
  }

  // The conditions that must be equal on all ranks, in addition to their states.
  std::vector<agreement_record> conditions() const {
    const auto text_of_path = [](const fs::path& path) {
      std::error_code code;
      const fs::path whole = fs::absolute(path, code);
      return (code ? path : whole).lexically_normal().string();
    };
    return {{"(destination)", text_of_path(destination_)},
            {"(options)", fmt::format("overwrite {}, durable {}, lowest rank's objects {}", saving_.overwrite,
                                      saving_.durable, options_.lowest_rank_objects)},
            {"(previous)", saving_.previous.empty() ? std::string() : text_of_path(saving_.previous)},
            {"(format)", fmt::format("{}, files of {} bytes, objects {}", static_cast<int>(options_.format),
                                     options_.max_shard_bytes, !options_.skip_objects)},
            {"(selection)", text_of(options_.selection)}};
  }

  // Rank 0 gets the descriptions, checks them, and decides who writes what. Every rank gets its verdict and its own
  // share. An error of one rank's own part is told in the next round, in `copy_sources` or `stage`.
  result<void> plan_by_root(const const_local_state& held, const result<void>& described, std::vector<std::byte> note) {
    agreement_notes notes;
    {
      // Freed before the wait for rank 0, because they grow with the number of ranks.
      SHARDMESH_TRY(const std::vector<std::size_t> sizes, round_.announce(described, note.size(), conditions()));
      SHARDMESH_TRY(notes, round_.send_to_root(std::move(note), sizes));
    }
    SHARDMESH_TRY(const std::vector<std::byte> told, round_.hand_out(verdict_and_shares(held, std::move(notes))));
    detail::wire_reader in(told);
    SHARDMESH_TRY(read_verdict(in));
    planned_ = guarded([&]() -> result<void> {
      if (comm_.rank() == 0) return {};
      SHARDMESH_TRY(work_, take_share(in.rest(), held, described_, comm_.rank()));
      return make_writer();
    });
    if (saving_.previous.empty()) return {};
    std::vector<std::byte> own;
    const auto mine = guarded([&]() -> result<void> {
      if (!planned_) return planned_;
      SHARDMESH_TRY(own, note_for_plan());
      return {};
    });
    SHARDMESH_TRY(const agreement_notes noted, round_.collect(mine, std::move(own)));
    planned_ = guarded([&] { return plan_format(noted); });
    return {};
  }

  // On rank 0, for each rank: the verdict about the descriptions, and the rank's share. On the others, nothing.
  agreement_notes verdict_and_shares(const const_local_state& held, agreement_notes notes) {
    if (comm_.rank() != 0) return {};
    std::vector<detail::wire_writer> shares(static_cast<std::size_t>(comm_.size()));
    const auto planned = guarded([&]() -> result<void> {
      SHARDMESH_TRY(assign_all(notes, held, std::span(shares).first(comm_.size() > 1 ? shares.size() : 0)));
      notes = {};
      problem_list problems;
      for (error& problem : writer_->find_problems()) problems.add(std::move(problem));
      return std::move(problems).outcome();
    });
    agreement_notes made;
    for (const detail::wire_writer& share : shares) {
      detail::wire_writer told;
      write_verdict(told, planned);
      if (planned) told.raw(share.written());
      made.push_back(std::move(told).take());
    }
    return made;
  }

  // Every rank has all descriptions, and computes the same plan with the same problems.
  result<void> plan_on_every_rank(const const_local_state& held, const agreement_notes& notes) {
    SHARDMESH_TRY(assign_all(notes, held, {}));
    agreement_notes told(static_cast<std::size_t>(comm_.size()));
    if (writer_->needs_notes()) {
      std::vector<std::byte> own;
      const auto mine = guarded([&]() -> result<void> {
        SHARDMESH_TRY(own, note_for_plan());
        return {};
      });
      SHARDMESH_TRY(told, round_.settle(mine, std::move(own)));
    }
    return plan_format(told);
  }

  // Decides what is saved, and by whom, from the descriptions of all ranks. Ranks with the same descriptions find the
  // same problems. `shares`: as for `assign_writers`.
  result<void> assign_all(const agreement_notes& notes, const const_local_state& held,
                          std::span<detail::wire_writer> shares) {
    SHARDMESH_TRY(merged_state all, merge_states(notes));
    // After a contradiction, further problems would only hide it.
    SHARDMESH_TRY(std::move(all.problems).outcome());
    problem_list problems;
    selection_result chosen = select_saved(all, options_.selection);
    for (error& problem : chosen.errors) problems.add(std::move(problem));
    for (std::string& note : chosen.notes) report_.notes.push_back(std::move(note));
    report_.excluded = static_cast<std::int64_t>(chosen.excluded);
    if (options_.skip_objects)
      report_.skipped_objects = static_cast<std::int64_t>(
          std::erase_if(chosen.kept, [&](const selected& one) { return one.index >= all.tensors.size(); }));
    SHARDMESH_TRY(std::move(problems).outcome());
    work_ = assign_writers(all, chosen.kept, held, comm_.rank(), options_.lowest_rank_objects, shares);
    SHARDMESH_TRY(std::move(work_.problems).outcome());
    return make_writer();
  }

  result<void> make_writer() {
    SHARDMESH_TRY(check_previous(options_.format, saving_.previous));
    const rank_write_request request{
        destination_, comm_.rank(), comm_.size(), &work_, archives_, options_.max_shard_bytes, saving_.previous};
    writer_ = make_rank_writer(options_.format, request);
    if (writer_) return {};
    return fail(errc::unsupported, "many ranks cannot write this format together")
        .with_file(destination_.string())
        .with_hint("save as DCP and convert that");
  }

  // Returns this rank's note for the plan of the format; empty if the plan needs none.
  result<std::vector<std::byte>> note_for_plan() {
    if (!writer_->needs_notes()) return std::vector<std::byte>{};
    item_run_options run = run_options();
    run.progress = [this](std::int64_t) { interruption_.poll(); };  // the write reports the bytes
    return uncancelled(writer_->note_for_plan(run));
  }

  // Plans the place of everything.
  result<void> plan_format(const agreement_notes& told) {
    SHARDMESH_TRY(std::vector<error> found, writer_->plan(told));
    problem_list problems;
    for (error& problem : found) problems.add(std::move(problem));
    return std::move(problems).outcome();
  }

  result<void> make_archives(const const_local_state& held) {
    for (const local_state_object& object : held.objects) {
      auto archive = torch_file::archive_of_object(object);
      if (!archive) return std::move(archive).error().with_key(dotted(object.where));
      described_.push_back(
          {object.where, xxh3(*archive), static_cast<std::int64_t>(archive->size()), torch_file::summary_of(object)});
      archives_.push_back(*std::move(archive));
    }
    return {};
  }

  // Rank 0 makes the folder and writes a token there. A rank that does not find the token has another file system.
  result<void> stage(std::optional<staged_output>& output) {
    std::string token;
    detail::wire_writer note;
    auto mine = guarded([&]() -> result<void> {
      if (!planned_) return planned_;
      SHARDMESH_TRY(enter(save_phase::stage));
      if (comm_.rank() != 0) return {};
      SHARDMESH_TRY(output, writer_->make(saving_.output()));
      std::random_device random;
      token = fmt::format("{:08x}{:08x}", random(), random());
      // A single file starts with the token, until its header replaces it.
      if (is_one_file()) {
        SHARDMESH_TRY(output->write(0, 0, std::as_bytes(std::span(token))));
      } else {
        SHARDMESH_TRY(token_file_, output->add_file(token_name));
        SHARDMESH_TRY(output->write(token_file_, 0, std::as_bytes(std::span(token))));
      }
      note.text(output->folder().string());
      note.text(token);
      return {};
    });
    SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note).take()));
    mine = guarded([&]() -> result<void> {
      if (comm_.rank() == 0) return {};
      detail::wire_reader in(notes.front());
      const fs::path staging = in.text();
      token = in.text();
      const auto found = read_file(is_one_file() ? staging : staging / token_name, 1024);
      if (!found || std::string(reinterpret_cast<const char*>(found->data()), found->size()) != token)
        return fail(errc::io, fmt::format("does not see the {} that rank 0 made: the ranks do not share a file system",
                                          is_one_file() ? "file" : "folder"))
            .with_file(staging.string())
            .with_rank(comm_.rank())
            .with_hint("save to a file system that all ranks see");
      SHARDMESH_TRY(output, staged_output::join(staging, saving_.output()));
      return {};
    });
    SHARDMESH_TRY(round_.settle(mine));
    return {};
  }

  bool is_one_file() const { return !target_of(options_.format).extension.empty(); }

  result<void> write_and_commit(staged_output& output) {
    const item_run_options run = run_options();
    std::vector<std::byte> note;
    auto mine = guarded([&]() -> result<void> {
      SHARDMESH_TRY(enter(save_phase::write));
      if (comm_.rank() == 0 && !is_one_file()) SHARDMESH_TRY(output.remove_file(token_file_));
      SHARDMESH_TRY(note, uncancelled(writer_->write(output, run)));
      SHARDMESH_TRY(output.prepare());
      if (saving_.hooks.last_check) SHARDMESH_TRY(saving_.hooks.last_check());
      if (saving_.hooks.before_commit) saving_.hooks.before_commit();
      SHARDMESH_TRY(enter(save_phase::finish));
      return {};
    });
    SHARDMESH_TRY(const agreement_notes written, round_.collect(mine, std::move(note)));
    agreement_notes seen;
    if (writer_->looks_again()) {
      note = {};
      mine = guarded([&]() -> result<void> {
        SHARDMESH_TRY(note, uncancelled(writer_->look_again(output, run)));
        return {};
      });
      SHARDMESH_TRY(seen, round_.collect(mine, std::move(note)));
    }
    return commit(output, written, seen);
  }

  result<void> commit(staged_output& output, const agreement_notes& written, const agreement_notes& seen) {
    bool committed = false;
    std::vector<std::byte> report;
    const auto mine = guarded([&]() -> result<void> {
      auto entered = enter(save_phase::commit);
      if (comm_.rank() != 0) return {};
      SHARDMESH_TRY(entered);
      SHARDMESH_TRY(writer_->finish(output, written, seen));
      SHARDMESH_TRY(interruption_.check());
      SHARDMESH_TRY(output.commit());
      committed = true;
      report_.notes.insert(report_.notes.end(), output.notes().begin(), output.notes().end());
      SHARDMESH_TRY(writer_->finish_beside(report_.notes));
      complete_report();
      report = encode_report(report_);
      return {};
    });
    const auto told = round_.settle(mine, std::move(report));
    if (!told) {
      error why = told.error();
      if (committed)
        why.hint = "the new checkpoint was committed before that";
      else if (mine &&
               (why.code == errc::communication || why.code == errc::deadline_exceeded || why.code == errc::cancelled))
        why.hint = "rank 0 may have committed the new checkpoint before that; it is complete then";
      return why;
    }
    std::optional<save_report> whole = decode_report(told->front());
    if (!whole)
      return fail(errc::bad_format, "rank 0's report is malformed")
          .with_rank(0)
          .with_hint("the new checkpoint was committed before that");
    report_ = *std::move(whole);
    return {};
  }

  // Rank 0: adds the facts of the whole save.
  void complete_report() {
    report_.tensors = static_cast<std::int64_t>(work_.tensors.size());
    report_.objects = static_cast<std::int64_t>(work_.objects.size());
    report_.bytes = writer_->data_bytes();
    report_.referred_bytes = writer_->referred_bytes();
    report_.files = writer_->files();
    report_.notes.insert(report_.notes.begin(), writer_->notes.begin(), writer_->notes.end());
  }

  item_run_options run_options() {
    item_run_options run = run_options_of(saving_);
    run.call = {.cancel = interruption_.token()};  // which the deadline also fires
    run.progress = [this](std::int64_t bytes) {
      interruption_.poll();
      if (bytes > 0 && saving_.progress) saving_.progress(bytes);
    };
    return run;
  }

  // If the work was stopped, returns an error that says whether the caller or the deadline did it.
  template <class T>
  result<T> uncancelled(result<T> done) {
    if (!done && done.error().code == errc::cancelled) SHARDMESH_TRY(interruption_.check());
    return done;
  }

  fs::path destination_;
  communicator_ref comm_;
  rank_save_options options_;
  save_options saving_;  // those of `options_`
  round_of_ranks round_;
  interruption interruption_;
  save_report report_;
  std::int32_t token_file_ = 0;  // rank 0's, in the staged folder
  save_assignment work_;
  result<void> planned_;  // of this rank's own part, until the next round
  std::unique_ptr<rank_writer> writer_;
  std::vector<described_object> described_;
  std::vector<std::vector<std::byte>> archives_;  // of this rank's objects
  std::list<host_tensor> copies_;                 // of what this rank writes, without a pool
  staging_lease pooled_;                          // with a pool
};

}  // namespace

result<save_report> save(const fs::path& destination, const const_local_state& held, communicator_ref comm,
                         const rank_save_options& options) {
  rank_save work(destination, comm, options);
  SHARDMESH_TRY(work.plan(held));
  return work.write();
}

struct save_in_progress::state {
  state(fs::path destination, communicator_ref comm, const rank_save_options& options)
      : work(std::move(destination), comm, options) {}
  rank_save work;
  result<save_report> outcome = save_report();
  result<save_report> in_child = save_report();  // of `wait` in a forked process
  std::atomic<bool> done = false;
  std::thread thread;
  detail::maker_process maker;
};

save_in_progress::save_in_progress(std::unique_ptr<state> made) : state_(std::move(made)) {}
save_in_progress::save_in_progress(save_in_progress&&) noexcept = default;
save_in_progress& save_in_progress::operator=(save_in_progress&& other) noexcept {
  if (this != &other) {
    detail::end_background_work(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}
save_in_progress::~save_in_progress() {
  detail::end_background_work(state_);
}

bool save_in_progress::done() const {
  return state_->done;
}

const result<save_report>& save_in_progress::wait() {
  if (!state_->maker.is_this()) {
    state_->in_child = fail(errc::invalid_argument, "the save runs in the process that forked this one")
                           .with_hint("wait for it there");
    return state_->in_child;
  }
  if (state_->thread.joinable()) state_->thread.join();
  return state_->outcome;
}

result<save_in_progress> start_save(const fs::path& destination, const const_local_state& held, communicator_ref comm,
                                    const rank_save_options& options) {
  auto made = std::make_unique<save_in_progress::state>(destination, comm, options);
  SHARDMESH_TRY(made->work.plan(held));
  SHARDMESH_TRY(made->work.copy_sources());
  auto* const running = made.get();
  const auto started = guarded([&]() -> result<void> {
    running->thread = std::thread([running] {
      running->outcome = running->work.write();
      running->done = true;
    });
    return {};
  });
  if (!started) {
    comm.abort(started.error());  // the others are already running
    return started.error();
  }
  return save_in_progress(std::move(made));
}

}  // namespace shardmesh
