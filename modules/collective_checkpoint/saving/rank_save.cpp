// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import :rank_save;
import :rank_share;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view token_name = ".shardmesh_token";

}  // namespace

rank_save::rank_save(fs::path destination, communicator_ref comm, rank_save_options options)
    : destination_(std::move(destination)),
      comm_(comm),
      options_(std::move(options)),
      saving_(replacing_checkpoints(options_.saving())),
      round_{comm, saving_.call().named("save")},
      interruption_(saving_.call(), "save"),
      keeper_(options_.plans) {}

result<void> rank_save::copy_sources() {
  return guarded(comm_, [&]() -> result<void> {
    const auto mine = guarded([&]() -> result<void> {
      if (!planned_) return planned_;
      return copies_.take(work_.source.views, options_.staging, comm_.rank(), saving_.call());
    });
    const auto told = round_.settle(mine);
    // The other ranks can only report that they waited for this one.
    if (!mine && mine.error().code == errc::deadline_exceeded) return mine;
    SHARDMESH_TRY(told);
    return {};
  });
}

result<save_report> rank_save::write() {
  const detail::call_scope limits(round_.call);  // another thread than that of `plan` may write
  auto written = guarded(comm_, [&]() -> result<void> {
    std::optional<staged_output> output;
    SHARDMESH_TRY(stage(output));
    auto done = write_and_commit(*output);
    if (done && comm_.rank() != 0) output->release();  // rank 0 still has to remove the old checkpoint
    return done;
  });
  copies_.give_back();
  if (!written) return std::move(written).error();
  return std::move(report_);
}

result<void> rank_save::stage(std::optional<staged_output>& output) {
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
  SHARDMESH_TRY(const std::vector<std::byte> told, round_.settle_with_root(mine, std::move(note).take()));
  mine = guarded([&]() -> result<void> {
    if (comm_.rank() == 0) return {};
    detail::wire_reader in(told);
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

bool rank_save::is_one_file() const {
  return !target_of(options_.format).extension.empty();
}

result<void> rank_save::write_and_commit(staged_output& output) {
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

result<void> rank_save::commit(staged_output& output, const agreement_notes& written, const agreement_notes& seen) {
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
  const auto told = round_.settle_with_root(mine, std::move(report));
  if (!told) {
    error why = told.error();
    if (committed)
      why.hint = "the new checkpoint was committed before that";
    else if (mine &&
             (why.code == errc::communication || why.code == errc::deadline_exceeded || why.code == errc::cancelled))
      why.hint = "rank 0 may have committed the new checkpoint before that; it is complete then";
    return why;
  }
  std::optional<save_report> whole = decode_report(*told);
  if (!whole)
    return fail(errc::bad_format, "rank 0's report is malformed")
        .with_rank(0)
        .with_hint("the new checkpoint was committed before that");
  report_ = *std::move(whole);
  return {};
}

void rank_save::complete_report() {
  report_.tensors = static_cast<std::int64_t>(work_.tensors.size());
  report_.objects = static_cast<std::int64_t>(work_.objects.size());
  report_.bytes = writer_->data_bytes();
  report_.referred_bytes = writer_->referred_bytes();
  report_.files = writer_->files();
  report_.notes.insert(report_.notes.begin(), writer_->notes.begin(), writer_->notes.end());
}

result<void> rank_save::enter(save_phase phase) {
  SHARDMESH_TRY(interruption_.check());
  if (!options_.before) return {};
  return guarded([&] { return options_.before(phase); });  // an exception counts as an error, also in `commit`
}

item_run_options rank_save::run_options() {
  item_run_options run = run_options_of(saving_);
  run.call = {.cancel = interruption_.token()};  // the deadline also fires this token
  run.progress = [this](std::int64_t bytes) {
    interruption_.poll();
    if (bytes > 0 && saving_.progress) saving_.progress(bytes);
  };
  return run;
}

result<std::vector<std::byte>> rank_save::uncancelled(result<std::vector<std::byte>> done) {
  if (!done && done.error().code == errc::cancelled) SHARDMESH_TRY(interruption_.check());
  return done;
}

}  // namespace shardmesh
