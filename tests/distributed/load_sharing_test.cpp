// SPDX-License-Identifier: Apache-2.0
// Ranks that load together read for each other. Exactly one rank reads each stored byte, the load is even, and all
// ranks get the right values, whatever the layouts. A failure on one rank fails all. Mismatches between a request and
// the checkpoint are in load_faults_test.cpp; random layouts are in checkpoint_test.cpp.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dice.hpp>
#include <fabric.hpp>
#include <filesystem>
#include <functional>
#include <golden.hpp>
#include <indices.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <rank_folder.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>

#include "problems_of.hpp"

import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.storage;
import shardmesh.test.holdings;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
using holdings::boxes_of_ranks;
using holdings::holding;
using holdings::tensor_model;
namespace fs = std::filesystem;

namespace {

// A range of bytes that was read from a chunk's source.
struct range_read {
  std::int64_t chunk = 0, begin = 0, end = 0;
  friend auto operator<=>(const range_read&, const range_read&) = default;
};

// A reader that records its reads of chunks and can call a function before each.
class observed_reader final : public checkpoint_reader {
 public:
  explicit observed_reader(const fs::path& checkpoint, std::function<result<void>()> before = {})
      : inner_(open_checkpoint(checkpoint).value()), before_(std::move(before)) {
    contents_ = inner_->contents();
    path_ = inner_->path();
  }
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    auto opened = inner_->open_chunk(tensor, chunk);
    if (!opened) return opened;
    auto made = std::make_shared<opened_chunk>(**opened);
    made->source = std::make_shared<source>(*this, chunk, (*opened)->source);
    return std::shared_ptr<const opened_chunk>(std::move(made));
  }
  result<object_value> read_object(std::size_t index) override { return inner_->read_object(index); }
  result<std::vector<std::byte>> object_archive(std::size_t index) override { return inner_->object_archive(index); }

  std::vector<range_read> ranges() const {
    const std::lock_guard locked(lock_);
    return ranges_;
  }

 private:
  class source final : public byte_source {
   public:
    source(observed_reader& reader, std::int32_t chunk, std::shared_ptr<const byte_source> inner)
        : reader_(reader), chunk_(chunk), inner_(std::move(inner)) {}
    std::int64_t size_bytes() const override { return inner_->size_bytes(); }
    std::string name() const override { return inner_->name(); }
    result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
      if (reader_.before_)
        if (auto done = reader_.before_(); !done) return done;
      {
        const std::lock_guard locked(reader_.lock_);
        reader_.ranges_.push_back({chunk_, offset, offset + static_cast<std::int64_t>(out.size())});
      }
      return inner_->read(offset, out);
    }

   private:
    observed_reader& reader_;
    std::int32_t chunk_;
    std::shared_ptr<const byte_source> inner_;
  };

  std::unique_ptr<checkpoint_reader> inner_;
  std::function<result<void>()> before_;
  mutable std::mutex lock_;
  std::vector<range_read> ranges_;
};

// The reads of all ranks, by rank.
std::vector<std::vector<range_read>> gathered(any_communicator& comm, const std::vector<range_read>& mine) {
  const auto bytes = std::as_bytes(std::span(mine));
  const auto all = comm.all_gather({bytes.begin(), bytes.end()}, {.within = 60s}).value();
  std::vector<std::vector<range_read>> made;
  for (const std::vector<std::byte>& one : all) {
    made.emplace_back(one.size() / sizeof(range_read));
    if (!one.empty()) std::memcpy(made.back().data(), one.data(), one.size());
  }
  return made;
}

std::int64_t sum(const std::vector<range_read>& ranges) {
  std::int64_t bytes = 0;
  for (const range_read& one : ranges) bytes += one.end - one.begin;
  return bytes;
}

// Returns "" if no byte was read twice.
std::string twice(const std::vector<std::vector<range_read>>& by_rank) {
  std::vector<range_read> all;
  for (const auto& one : by_rank) all.insert(all.end(), one.begin(), one.end());
  std::sort(all.begin(), all.end());
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].chunk == all[i - 1].chunk && all[i].begin < all[i - 1].end)
      return "bytes " + std::to_string(all[i].begin) + " to " + std::to_string(all[i - 1].end) + " of chunk " +
             std::to_string(all[i].chunk) + " were read twice";
  return {};
}

// The bytes of the elements that some rank wants, counted one by one.
std::int64_t wanted_bytes(const tensor_model& model, const boxes_of_ranks& boxes) {
  std::int64_t count = 0;
  indices::for_each(model.shape, [&](const extents& at) {
    const box cell{at, extents::filled(at.rank(), 1)};
    const bool wanted = std::any_of(boxes.begin(), boxes.end(), [&](const std::vector<box>& of_rank) {
      return std::any_of(of_rank.begin(), of_rank.end(), [&](const box& one) { return lies_within(cell, one); });
    });
    count += wanted ? 1 : 0;
  });
  return count * bits(model.type) / 8;
}

boxes_of_ranks laid_out(const extents& mesh, const std::vector<placement>& placements, const extents& shape) {
  const layout laid = layout::make(device_mesh::make(mesh).value(), placements, shape).value();
  boxes_of_ranks made;
  for (std::int32_t rank = 0; rank < device_mesh::make(mesh).value().size(); ++rank) {
    made.emplace_back();
    for (const placed_box& placed : laid.boxes(rank)) made.back().push_back(placed.where);
  }
  return made;
}

box random_box(dice& roll, const extents& shape) {
  box made = box::whole(shape);
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    made.offsets[d] = roll.below(shape[d]);
    made.sizes[d] = 1 + roll.below(shape[d] - made.offsets[d]);
  }
  return made;
}

struct stored_models {
  std::vector<tensor_model> models;
  std::vector<boxes_of_ranks> boxes;  // the boxes that each rank saves
};

std::string save_all(const fs::path& checkpoint, const stored_models& stored, any_communicator& comm) {
  holding mine;
  for (std::size_t t = 0; t < stored.models.size(); ++t)
    mine.add(t, stored.models[t], stored.boxes[t][static_cast<std::size_t>(comm.rank())], true);
  return text_of(problems_of(save(checkpoint, mine.state, comm, {.overwrite = true, .within = 60s})));
}

struct loaded_together {
  std::string wrong;
  std::vector<std::vector<range_read>> read;  // by rank
};

loaded_together load_all(const fs::path& checkpoint, const stored_models& stored,
                         const std::vector<boxes_of_ranks>& wanted, any_communicator& comm,
                         const rank_load_options& options) {
  holding mine;
  std::vector<std::size_t> numbers;
  for (std::size_t t = 0; t < stored.models.size(); ++t) {
    mine.add(t, stored.models[t], wanted[t][static_cast<std::size_t>(comm.rank())], false);
    numbers.push_back(t);
  }
  observed_reader reader(checkpoint);
  const auto report = load(reader, mine.state, comm, options);
  loaded_together made;
  made.read = gathered(comm, reader.ranges());
  made.wrong = report ? mine.differences(numbers) : text_of(report.error().problems());
  return made;
}

}  // namespace

TEST_CASE("each stored byte is read by one of eight ranks, evenly, whatever they hold") {
  const fabric::rank_folder folder("load-sharing");
  const placement s0 = placement::shard(0), s1 = placement::shard(1), r = placement::replicate();
  struct wish {
    const char* name;
    std::vector<std::int64_t> mesh;
    std::vector<placement> placements;
  };
  const std::vector<wish> wishes = {{"S(0)", {8}, {s0}},
                                    {"S(1)", {8}, {s1}},
                                    {"R", {8}, {r}},
                                    {"S(0),S(1) on 2x4", {2, 4}, {s0, s1}},
                                    {"S(1),S(0) on 4x2", {4, 2}, {s1, s0}},
                                    {"R,S(1) on 2x4", {2, 4}, {r, s1}},
                                    {"R,S(0) on 4x2", {4, 2}, {r, s0}},
                                    {"strided", {2, 4}, {placement::strided_shard(0, 4), s0}}};
  saving::on_ranks({8}, [&](any_communicator& comm) -> std::string {
    stored_models stored;
    std::int64_t unique = 0;
    for (const extents& shape : {extents{509, 251}, extents{64, 1024}, extents{127, 31, 17}, extents{96, 96}}) {
      stored.models.push_back({{"w", static_cast<std::int64_t>(stored.models.size())}, shape});
      stored.boxes.push_back(laid_out({8}, {s0}, shape));
      unique += box::whole(shape).volume() * 4;
    }
    const fs::path checkpoint = folder.path / "rows";
    if (std::string wrong = save_all(checkpoint, stored, comm); !wrong.empty()) return wrong;
    for (const wish& one : wishes)
      for (const std::int64_t memory : {std::int64_t{128} << 20, std::int64_t{32} << 10}) {
        std::vector<boxes_of_ranks> wanted;
        for (const tensor_model& model : stored.models)
          wanted.push_back(laid_out(extents(one.mesh), one.placements, model.shape));
        const loaded_together got = load_all(checkpoint, stored, wanted, comm,
                                             {.within = 60s, .sharing = read_sharing::group, .memory_bytes = memory});
        const std::string which = std::string(one.name) + ", memory " + std::to_string(memory) + ": ";
        if (!got.wrong.empty()) return which + got.wrong;
        if (std::string wrong = twice(got.read); !wrong.empty()) return which + wrong;
        std::int64_t all = 0, most = 0;
        for (const auto& of_rank : got.read) {
          all += sum(of_rank);
          most = std::max(most, sum(of_rank));
        }
        if (all < unique || all > unique + unique / 20)
          return which + std::to_string(all) + " bytes were read of " + std::to_string(unique);
        // Even, up to the smallest unit that one rank reads at once.
        if (most > all / 8 + (std::int64_t{256} << 10))
          return which + "a rank read " + std::to_string(most) + " of " + std::to_string(all);
      }
    return {};
  });
}

TEST_CASE("boxes that overlap in any way are loaded right, and no byte of a chunk is read twice") {
  const watchdog dog(300s);
  const fabric::rank_folder folder("load-overlaps");
  std::uint64_t number = 0;
  for (int round = 0; round < fabric::rounds(12); ++round) {
    const std::uint64_t seed = fabric::seed() + 77 * ++number;
    INFO("SHARDMESH_SEED=" << fabric::seed() << " round " << round);
    saving::on_ranks({2, 3, 4, 8}, [&](any_communicator& comm) -> std::string {
      dice roll(seed);
      stored_models stored;
      std::vector<boxes_of_ranks> wanted;
      std::int64_t unique = 0, whole = 0;
      for (std::int64_t t = 0, count = 1 + roll.below(3); t < count; ++t) {
        extents shape;
        for (std::int64_t d = 1 + roll.below(3); d > 0; --d) shape.push_back(1 + roll.below(d == 1 ? 60 : 14));
        stored.models.push_back({{"w", t}, shape, roll.one_in(2) ? dtype::float32 : dtype::bfloat16});
        stored.boxes.push_back(holdings::random_boxes(roll, shape, comm.size()));
        boxes_of_ranks boxes(static_cast<std::size_t>(comm.size()));
        const std::int64_t kind = roll.below(3);
        if (kind == 0) boxes = holdings::random_boxes(roll, shape, comm.size());
        for (auto& of_rank : boxes)
          for (std::int64_t k = kind == 0 ? roll.below(2) : 1 + roll.below(3); k > 0; --k) {
            const box extra = random_box(roll, shape);
            if (std::find(of_rank.begin(), of_rank.end(), extra) == of_rank.end()) of_rank.push_back(extra);
          }
        unique += wanted_bytes(stored.models.back(), boxes);
        whole += box::whole(shape).volume() * bits(stored.models.back().type) / 8;
        wanted.push_back(std::move(boxes));
      }
      const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
      if (std::string wrong = save_all(checkpoint, stored, comm); !wrong.empty()) return wrong;
      const std::int64_t memory = roll.pick({std::int64_t{128} << 20, std::int64_t{1}});
      const loaded_together got = load_all(checkpoint, stored, wanted, comm,
                                           {.within = 60s, .sharing = read_sharing::group, .memory_bytes = memory});
      if (!got.wrong.empty()) return got.wrong;
      std::int64_t all = 0;
      for (const auto& of_rank : got.read) all += sum(of_rank);
      if (all < unique || all > whole)
        return std::to_string(all) + " bytes were read, of " + std::to_string(unique) + " and in all " +
               std::to_string(whole);
      return comm.size() == 1 ? "" : twice(got.read);
    });
  }
}

TEST_CASE("a compressed chunk is read front to back by one rank, in as many rounds as the memory needs") {
  const fs::path checkpoint = golden::folder() / "options_zstd" / "checkpoint";
  saving::on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    observed_reader reader(checkpoint);
    local_state wanted;
    std::vector<host_tensor> memory, expected;
    const auto entries = reader.contents().tensors;
    memory.reserve(entries.size());
    for (const tensor_entry& tensor : entries) {
      // Rank r wants all but the first r rows, so that boxes overlap.
      box part = box::whole(tensor.shape);
      if (part.rank() > 0 && part.sizes[0] > comm.size()) {
        part.offsets[0] = comm.rank();
        part.sizes[0] -= comm.rank();
      }
      memory.push_back(host_tensor::make(tensor.type, part.sizes).value());
      expected.push_back(load_tensor(*open_checkpoint(checkpoint).value(), tensor.key, part).value());
      wanted.tensors.push_back({tensor.where.empty() ? path{tensor.key} : tensor.where,
                                tensor.shape,
                                tensor.type,
                                {{part, adapter<host_tensor>::view(memory.back())}}});
    }
    const auto report = load(reader, wanted, comm, {.within = 60s, .sharing = read_sharing::group, .memory_bytes = 1});
    if (!report) return text_of(report.error().problems());
    for (std::size_t t = 0; t < memory.size(); ++t)
      if (!std::equal(memory[t].bytes().begin(), memory[t].bytes().end(), expected[t].bytes().begin()))
        return entries[t].key + " differs";
    const auto all = gathered(comm, reader.ranges());
    std::map<std::int64_t, std::size_t> reader_of;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      std::map<std::int64_t, std::int64_t> end_of;
      for (const range_read& one : all[rank]) {
        if (reader_of.emplace(one.chunk, rank).first->second != rank) return "two ranks read a chunk";
        if (one.begin < end_of[one.chunk]) return "a rank went back in a chunk";
        end_of[one.chunk] = one.end;
      }
    }
    return reader_of.empty() ? "nothing was read" : "";
  });
}

TEST_CASE("a rank that cannot read what it reads for others fails the load on every rank, and is named") {
  const fabric::rank_folder folder("load-sharing-fails");
  saving::on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const extents shape{64, 48};
    stored_models stored{{{{"w"}, shape}}, {laid_out({comm.size()}, {placement::shard(0)}, shape)}};
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    if (std::string wrong = save_all(checkpoint, stored, comm); !wrong.empty()) return wrong;
    const auto columns = laid_out({comm.size()}, {placement::shard(1)}, shape)[static_cast<std::size_t>(comm.rank())];
    holding mine;
    mine.add(0, stored.models[0], columns, false);
    std::atomic<int> reads = 0;
    observed_reader reader(checkpoint, [&]() -> result<void> {
      if (comm.rank() != 1 || ++reads < 2) return {};
      return fail(errc::io, "cannot read").with_file("a broken disk");
    });
    const auto report =
        load(reader, mine.state, comm, {.within = 60s, .sharing = read_sharing::group, .memory_bytes = 1});
    return must_say(problems_of(report), {"w", "a broken disk", "cannot read", "(rank 1)"});
  });
}

TEST_CASE("a rank that is cancelled, or late, while ranks read for each other ends the load on every rank") {
  const fabric::rank_folder folder("load-sharing-ends");
  const extents shape{64, 48};
  const auto run = [&](any_communicator& comm, const call_options& call, std::function<result<void>()> before) {
    const auto columns = laid_out({comm.size()}, {placement::shard(1)}, shape)[static_cast<std::size_t>(comm.rank())];
    holding mine;
    mine.add(0, {{"w"}, shape}, columns, false);
    observed_reader reader(folder.path / std::to_string(comm.size()), std::move(before));
    return load(reader, mine.state, comm,
                {.within = call.within, .cancel = call.cancel, .sharing = read_sharing::group, .memory_bytes = 1});
  };
  saving::on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const stored_models stored{{{{"w"}, shape}}, {laid_out({comm.size()}, {placement::shard(0)}, shape)}};
    return save_all(folder.path / std::to_string(comm.size()), stored, comm);
  });
  saving::on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    std::stop_source stop;
    call_options call{.within = 30s};
    if (comm.rank() == 1) call.cancel = stop.get_token();
    const auto report = run(comm, call, [&]() -> result<void> {
      if (comm.rank() == 1) stop.request_stop();
      return {};
    });
    return must_say(problems_of(report), {"cancelled"});
  });
  saving::on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const call_options soon{.within = 300ms};
    const auto report = run(comm, soon, [&]() -> result<void> {
      if (comm.rank() == 1) std::this_thread::sleep_until(*soon.within + 50ms);
      return {};
    });
    if (report) return "it was loaded";
    if (report.error().problem_count() != 1 || report.error().code != errc::deadline_exceeded)
      return "not late: " + text_of(report.error().problems());
    return {};
  });
}

TEST_CASE("what a rank reads for one that wants checksums compared is compared, and damage is told to all") {
  const fabric::rank_folder folder("load-sharing-damaged");
  saving::on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const extents shape{64, 48};
    stored_models stored{{{{"w"}, shape}}, {laid_out({comm.size()}, {placement::shard(0)}, shape)}};
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    if (std::string wrong = save_all(checkpoint, stored, comm); !wrong.empty()) return wrong;
    const auto wanted = laid_out({comm.size()}, {placement::shard(1)}, shape);
    const auto load_it = [&](bool check) {
      return load_all(
                 checkpoint, stored, {wanted}, comm,
                 {.check = check && comm.rank() == 0, .within = 60s, .sharing = read_sharing::group, .memory_bytes = 1})
          .wrong;
    };
    if (std::string wrong = load_it(true); !wrong.empty()) return wrong;
    if (comm.rank() == 0) {  // flip a bit of the first element of rank 1's chunk
      const auto reader = open_checkpoint(checkpoint).value();
      const tensor_entry& tensor = reader->contents().tensors[0];
      for (std::int32_t chunk = 0; chunk < tensor.chunk_count; ++chunk) {
        const auto opened = reader->open_chunk(tensor, chunk).value();
        const auto file = opened->source->plain_file().value();
        if (file.path.find("__1_0") == std::string::npos) continue;
        const int before = [&] {
          std::byte one{};
          opened->source->read(opened->tensor.begin, {&one, 1}).value();
          return static_cast<int>(one);
        }();
        std::FILE* const to = std::fopen(file.path.c_str(), "r+b");
        std::fseek(to, static_cast<long>(file.offset + opened->tensor.begin), SEEK_SET);
        std::fputc(before ^ 1, to);
        std::fclose(to);
      }
    }
    static_cast<void>(comm.all_gather({}, {.within = 60s}));
    if (load_it(false).find("differs") == std::string::npos && comm.rank() == 0)
      return "the damage is not where it should be";
    const std::string wrong = load_it(true);
    for (const char* text : {"w", "__1_0.distcp"})
      if (wrong.find(text) == std::string::npos) return "it says: " + wrong;
    return {};
  });
}
