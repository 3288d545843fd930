// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :load_balancer;
import :rank_state;
import :rank_wire;
import :view_source;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view token_name = ".shardmesh_token";

error cover_error(const cover_problem& problem, const std::string& key) {
  if (problem.kind == cover_kind::overlap)
    return fail(errc::overlap, "two ranks hold boxes that are not equal and share cells")
        .with_key(key)
        .with_rank(problem.first)
        .with_rank(problem.second)
        .with_box(problem.where);
  return fail(errc::gap, "is held by no rank").with_key(key).with_box(problem.where);
}

// Fires when the caller's tokens do or the deadline has passed; polled from the progress of the writes.
class interruption {
 public:
  interruption(const std::stop_token& first, const call_options& call)
      : deadline_(call.deadline), on_first_(first, stop{&source_}), on_second_(call.cancel, stop{&source_}) {}

  std::stop_token token() const { return source_.get_token(); }
  void poll() {
    if (deadline_ && std::chrono::steady_clock::now() >= *deadline_ && !late_.exchange(true)) source_.request_stop();
  }
  result<void> check() {
    poll();
    if (late_) return fail(errc::deadline_exceeded, "the save's deadline has passed");
    if (source_.stop_requested()) return fail(errc::cancelled, "the save was cancelled");
    return {};
  }

 private:
  struct stop {
    std::stop_source* source;
    void operator()() const { source->request_stop(); }
  };
  std::stop_source source_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::atomic<bool> late_ = false;
  std::stop_callback<stop> on_first_, on_second_;
};

class rank_save {
 public:
  rank_save(fs::path destination, any_communicator& comm, rank_save_options options)
      : destination_(std::move(destination)),
        comm_(comm),
        options_(std::move(options)),
        round_{comm, options_.call},
        interruption_(options_.saving.cancel, options_.call) {}

  // Collective. What the ranks hold, and who writes what. False: the report says why not.
  bool plan(const held_state& held) {
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
      report_.problems = std::move(all.problems);
      assign(all, held);
      return {};
    });
  }

  // Collective. What this rank writes is copied, so that the tensors may change.
  bool copy_sources() {
    return keep([&]() -> result<void> {
      const auto mine = guarded([&]() -> result<void> {
        for (tensor_view& view : source_.views) {
          SHARDMESH_TRY(host_tensor copied, host_tensor::make(view.type, view.sizes));
          const tensor_view to = adapter<host_tensor>::view(copied);
          SHARDMESH_CHECK(copy(to, view));
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
    bool threw = true;
    auto done = guarded([&] {
      auto ended = step();
      threw = false;
      return ended;
    });
    if (threw) comm_.abort(done.cause());  // between the rounds: the others are not to wait for this rank
    if (!done) report_.problems.push_back(std::move(done).take_error());
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

  result<void> make_archives(const held_state& held) {
    for (const held_object& object : held.objects) {
      auto archive = archive_of_object(object);
      if (!archive) return std::move(archive).take_error().with_key(dotted(object.where));
      described_.push_back(
          {object.where, xxh3(*archive), static_cast<std::int64_t>(archive->size()), summary_of(object)});
      archives_.push_back(*std::move(archive));
    }
    return {};
  }

  // The same on every rank, but for the sources.
  void assign(const merged_state& all, const held_state& held) {
    if (!report_.ok()) return;  // what follows from a contradiction would only hide it
    std::vector<std::vector<replica_range>> boxes;
    for (const merged_tensor& tensor : all.tensors) {
      boxes.push_back(replicas_of(tensor));
      check_tensor(tensor, boxes.back());
    }
    for (const merged_object& object : all.objects) assign_object(object);
    if (!report_.ok()) return;
    const std::vector<std::vector<std::int32_t>> writers = choose_writers(all, boxes);
    for (std::size_t t = 0; t < all.tensors.size(); ++t) add_tensor(all.tensors[t], boxes[t], writers[t], held);
  }

  void complain(error e) {
    if (report_.problems.size() < most_problems) report_.problems.push_back(std::move(e));
  }

  void check_tensor(const merged_tensor& tensor, std::span<const replica_range> boxes) {
    if (auto can = torch_tensor_archive::make(tensor.type, tensor.shape); !can)
      return complain(std::move(can).take_error().with_key(tensor.key));
    std::vector<std::int64_t> offsets, sizes;
    std::vector<owner_id> owners;
    for (const replica_range& range : boxes) {
      const rank_box& one = tensor.boxes[range.first];
      offsets.insert(offsets.end(), one.where.offsets.begin(), one.where.offsets.end());
      sizes.insert(sizes.end(), one.where.sizes.begin(), one.where.sizes.end());
      owners.push_back(one.rank);
    }
    const cover_report cover = check_boxes(tensor.shape, offsets, sizes, owners, most_problems);
    for (const cover_problem& problem : cover.problems) complain(cover_error(problem, tensor.key));
    if (bits(tensor.type) % 8 != 0 && boxes.size() > 1)
      complain(fail(errc::unaligned, fmt::format("{} is not cut", name(tensor.type))).with_key(tensor.key));
  }

  void assign_object(const merged_object& object) {
    const described_object& first = object.said.front();
    for (std::size_t i = 1; i < object.said.size() && !options_.lowest_rank_objects; ++i)
      if (object.said[i].digest != first.digest)
        return complain(fail(errc::disagreement, "ranks hold different values of an object")
                            .with_key(object.key)
                            .with_rank(object.ranks.front())
                            .with_rank(object.ranks[i])
                            .with_values(first.summary, object.said[i].summary)
                            .with_hint("lowest_rank_objects takes the lowest rank's"));
    objects_.push_back({object.key, object.where, object.ranks.front(), {}, {}});
    object_lengths_.push_back(first.length);
    object_indices_.push_back(object.ranks.front() == comm_.rank() ? object.index_on(comm_.rank()) : -1);
  }

  // Per tensor and box, which of its holders writes it.
  static std::vector<std::vector<std::int32_t>> choose_writers(const merged_state& all,
                                                               std::span<const std::vector<replica_range>> boxes) {
    struct shared_box {
      std::int64_t bytes;
      std::size_t tensor, box;
    };
    load_balancer balance;
    std::vector<std::vector<std::int32_t>> writers(boxes.size());
    std::vector<shared_box> shared;
    const auto holders_of = [&](std::size_t t, std::size_t b) {
      std::vector<owner_id> holders;
      for (std::size_t i = boxes[t][b].first; i < boxes[t][b].last; ++i)
        holders.push_back(all.tensors[t].boxes[i].rank);
      return holders;
    };
    for (std::size_t t = 0; t < boxes.size(); ++t) {
      writers[t].resize(boxes[t].size());
      for (std::size_t b = 0; b < boxes[t].size(); ++b) {
        const replica_range& range = boxes[t][b];
        const std::int64_t bytes =
            size_bytes(all.tensors[t].type, all.tensors[t].boxes[range.first].where.volume()).value_or(0);
        if (range.last - range.first == 1)
          writers[t][b] = balance.give(holders_of(t, b), bytes);
        else
          shared.push_back({bytes, t, b});
      }
    }
    std::sort(shared.begin(), shared.end(), [](const shared_box& a, const shared_box& b) {
      return std::tuple(-a.bytes, a.tensor, a.box) < std::tuple(-b.bytes, b.tensor, b.box);
    });
    for (const shared_box& one : shared)
      writers[one.tensor][one.box] = balance.give(holders_of(one.tensor, one.box), one.bytes);
    return writers;
  }

  void add_tensor(const merged_tensor& tensor, std::span<const replica_range> boxes,
                  std::span<const std::int32_t> writers, const held_state& held) {
    output_tensor made;
    made.key = tensor.key;
    made.where = tensor.where;
    made.type = made.bytes.from_type = made.bytes.to_type = tensor.type;
    distribution_builder sources(tensor.shape, owner_space::items);
    const std::ptrdiff_t index = tensor.index_on(comm_.rank());
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      const box& where = tensor.boxes[boxes[b].first].where;
      made.chunks.push_back({where, writers[b]});
      if (writers[b] != comm_.rank()) continue;
      for (std::size_t i = boxes[b].first; i < boxes[b].last; ++i) {
        if (tensor.boxes[i].rank != comm_.rank()) continue;
        const auto part = static_cast<std::size_t>(tensor.boxes[i].part);
        sources.add(0, static_cast<std::int32_t>(source_.views.size()), where.offsets, where.sizes);
        source_.views.push_back(held.tensors[static_cast<std::size_t>(index)].parts[part].memory);
      }
    }
    // A tensor without elements has one empty chunk.
    if (boxes.empty()) made.chunks.push_back({box::whole(tensor.shape), tensor.ranks.front()});
    auto from = sources.finish();
    if (!from) return complain(std::move(from).take_error().with_key(tensor.key));
    made.bytes.from = *std::move(from);
    tensors_.push_back(std::move(made));
  }

  // Rank 0 makes the folder, the others find it and what rank 0 wrote there: else they have another file system.
  result<void> stage(std::optional<staged_output>& output) {
    std::string token;
    rank_writer note;
    auto mine = guarded([&]() -> result<void> {
      SHARDMESH_CHECK(enter(save_phase::stage));
      if (comm_.rank() != 0) return {};
      SHARDMESH_TRY(output, staged_output::directory(destination_, options_.saving.output));
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
      rank_reader in(notes.front());
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
    dcp_files files(output, comm_.rank());
    std::vector<dcp_place> object_places;
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
      std::vector<dcp_place>& places = files.places();
      places.insert(places.end(), object_places.begin(), object_places.end());
      dcp_extras extras;
      extras.version = "1.0.0";
      SHARDMESH_CHECK(finish_dcp_folder(output, tensors_, objects_, places, extras, std::move(ranges)));
      SHARDMESH_CHECK(interruption_.check());
      SHARDMESH_CHECK(output.commit());
      committed = true;
      return {};
    });
    auto told = round_.settle(mine);
    if (!told) {
      error why = std::move(told).take_error();
      if (committed)
        why.hint = "the new checkpoint was put in place before that";
      else if (mine &&
               (why.code == errc::communication || why.code == errc::deadline_exceeded || why.code == errc::cancelled))
        why.hint = "rank 0 may have put the new checkpoint in place before that; it is whole then";
      return why;
    }
    report_.tensors = static_cast<std::int64_t>(tensors_.size());
    report_.objects = static_cast<std::int64_t>(objects_.size());
    report_.bytes = files.data_bytes();
    report_.files = files.files();
    return {};
  }

  // This rank's file. All ranks give all items their places, so that rank 0 knows them.
  result<void> write_file(staged_output& output, dcp_files& files, std::vector<dcp_place>& object_places) {
    if (comm_.rank() == 0) {
      SHARDMESH_CHECK(output.remove_file(token_file_));
    }
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      SHARDMESH_TRY(dcp_place at, files.place(objects_[i].rank, object_lengths_[i]));
      if (object_indices_[i] >= 0) {
        const std::vector<std::byte>& archive = archives_[static_cast<std::size_t>(object_indices_[i])];
        SHARDMESH_CHECK(files.write_archive(objects_[i].rank, at, archive));
      }
      object_places.push_back(std::move(at));
    }
    for (output_tensor& tensor : tensors_)
      if (auto placed = files.place_tensor(tensor); !placed) return std::move(placed).take_error().with_key(tensor.key);
    item_run_options run = run_options_of(options_.saving);
    run.cancel = interruption_.token();
    run.progress = [this](std::int64_t bytes) {
      interruption_.poll();
      if (options_.saving.progress) options_.saving.progress(bytes);
    };
    auto written = files.write_tensors(tensors_, source_, run);
    if (!written && written.cause().code == errc::cancelled) return interruption_.check();
    return written;
  }

  static std::vector<std::byte> encode(std::span<const checksum_range> ranges) {
    rank_writer out;
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
      rank_reader in(notes[rank]);
      const std::size_t count = in.count();
      for (std::size_t i = 0; i < count && in.ok(); ++i) {
        checksum_range range{dcp_file_name(static_cast<std::int32_t>(rank)), in.number(), in.number(), {}};
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
  any_communicator& comm_;
  rank_save_options options_;
  round_of_ranks round_;
  interruption interruption_;
  save_report report_;
  std::int32_t token_file_ = 0;  // rank 0's, in the staged output
  std::vector<output_tensor> tensors_;
  std::vector<output_object> objects_;
  std::vector<std::int64_t> object_lengths_;    // per object, of its archive
  std::vector<std::ptrdiff_t> object_indices_;  // per object, which of `archives_` this rank writes; -1: none
  std::vector<described_object> described_;
  std::vector<std::vector<std::byte>> archives_;
  view_source source_;
  std::list<host_tensor> copies_;
};

}  // namespace

save_report save(const fs::path& destination, const held_state& held, any_communicator& comm,
                 const rank_save_options& options) {
  rank_save work(destination, comm, options);
  return work.plan(held) ? work.write() : work.report();
}

struct save_in_progress::state {
  state(fs::path destination, any_communicator& comm, const rank_save_options& options)
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

result<save_in_progress> start_save(const fs::path& destination, const held_state& held, any_communicator& comm,
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
    comm.abort(started.cause());  // the others are under way already
    return started.cause();
  }
  return save_in_progress(std::move(made));
}

}  // namespace shardmesh
