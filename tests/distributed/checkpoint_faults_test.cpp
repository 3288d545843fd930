// SPDX-License-Identifier: Apache-2.0
// What goes wrong while ranks save and load together: every rank gets the same error, in time; the previous checkpoint
// stays whole, and nothing is left beside it.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fabric.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>
import shardmesh.checkpoint;

using namespace shardmesh;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

struct scratch_folder {
  fs::path path;
  explicit scratch_folder(const std::string& name)
      : path(fs::temp_directory_path() / ("shardmesh-faults-" + std::to_string(fabric::seed()) + "-" + name)) {
    std::error_code ignored;
    fs::create_directories(path, ignored);
  }
  ~scratch_folder() {
    // No rank takes it away while another one looks into it.
    for (const fabric::kind& kind : fabric::all()) kind.run(1, [](void*) { return std::string(); });
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Rows of one tensor on every rank, the same number everywhere; `value` is in every element.
struct rows {
  static constexpr std::int64_t per_rank = 64, width = 32;
  std::vector<std::int32_t> memory;
  held_state state;

  rows(std::int32_t rank, std::int32_t ranks, std::int32_t value)
      : memory(static_cast<std::size_t>(per_rank * width), value) {
    const box mine{{rank * per_rank, 0}, {per_rank, width}};
    state.tensors.push_back({{"w"}, {ranks * per_rank, width}, dtype::int32, {{mine, view()}}});
  }
  tensor_view view() {
    return {reinterpret_cast<std::byte*>(memory.data()), dtype::int32, {}, {per_rank, width}, {width, 1}};
  }
  held_tensor& tensor() { return state.tensors.front(); }
  held_part& part() { return tensor().parts.front(); }
};

std::string text_of(std::span<const error> problems) {
  std::string all;
  for (const error& problem : problems) all += to_string(problem) + "\n";
  return all;
}

call_options within(std::chrono::milliseconds time) {
  return {.deadline = std::chrono::steady_clock::now() + time, .cancel = {}, .stream = {}};
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// "" when there are problems, and their text says all of this.
std::string must_say(std::span<const error> problems, const std::vector<std::string>& texts) {
  if (problems.empty()) return "there was no error";
  const std::string all = text_of(problems);
  for (const std::string& text : texts)
    if (all.find(text) == std::string::npos) return "it does not say '" + text + "': " + all;
  return {};
}

using body = std::function<std::string(any_communicator&)>;

void on_ranks(const std::vector<std::int32_t>& sizes, const body& run) {
  const watchdog dog(120s);
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t size : sizes) {
      if (std::find(kind.sizes.begin(), kind.sizes.end(), size) == kind.sizes.end()) continue;
      INFO(kind.name << " with " << size << " ranks");
      CHECK(kind.run(size, [&](void* comm) { return run(*static_cast<any_communicator*>(comm)); }) == "");
    }
}

// Rank 1 (or the one that is told) spoils its part; all ranks get an error that says this, and no file appears.
void refuses(const std::string& name, const std::function<void(rows&, any_communicator&)>& spoil,
             const std::vector<std::string>& texts, const rank_save_options& options = {}) {
  const scratch_folder folder(name);
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    spoil(mine, comm);
    rank_save_options now = options;
    now.call = within(30s);
    const save_report report = save(folder.path / "step", mine.state, comm, now);
    if (std::string wrong = must_say(report.problems, texts); !wrong.empty()) return wrong;
    if (!comm.all_gather({}, within(30s))) return "the communicator is not usable any more";
    return fs::is_empty(folder.path) ? "" : "something was written";
  });
}

}  // namespace

TEST_CASE("ranks that disagree on a tensor get the key, the ranks and both sides, before a file exists") {
  refuses("shape",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().shape[0] += 1;
          },
          {"w: ranks disagree on the shape of the whole tensor (ranks 0, 1)", "expected ["});
  refuses("dtype",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().type = mine.part().memory.type = dtype::float32;
          },
          {"w: ranks disagree on the dtype (ranks 0, 1): expected int32, found float32"});
  refuses("kind",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() != 1) return;
            mine.state.tensors.clear();
            mine.state.objects.push_back({{"w"}, {}, {true}});
          },
          {"w: is a tensor on one rank and an object on another (ranks 0, 1)"});
  refuses(
      "name",
      [](rows& mine, any_communicator& comm) { mine.tensor().where = comm.rank() == 1 ? path{"a.b"} : path{"a", "b"}; },
      {"a.b: two paths have this name (ranks 0, 1): expected a.b, found [\"a.b\"]"});
}

TEST_CASE("boxes that do not tile a tensor are refused naming key, ranks and boxes") {
  refuses("gap",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().parts.clear();
          },
          {"w: is held by no rank in [64:128, 0:32)"});
  refuses("overlap",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().where.offsets[0] -= 1;
          },
          {"w: two ranks hold boxes that are not equal and share cells in [63:64, 0:32) (ranks 0, 1)",
           "w: is held by no rank in [127:128, 0:32)"});
  refuses("twice",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.tensor().parts.push_back(mine.part());
          },
          {"w: the rank has this box twice in [64:128, 0:32) (rank 1)"});
  refuses("outside",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().where.offsets[0] = 1'000'000;
          },
          {"w: a part leaves the tensor in [1000000:1000064, 0:32) (rank 1)"});
}

TEST_CASE("memory that does not fit is refused naming key, box and rank") {
  refuses("memory",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().memory.sizes[1] = 31;
          },
          {"w: the memory does not fit its box in [64:128, 0:32) (rank 1): expected [64, 32], found [64, 31]"});
  refuses("none",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().memory.data = nullptr;
          },
          {"w: the part has no memory in [64:128, 0:32) (rank 1)"});
  refuses("device",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.part().memory.where = {device_type::cuda, 0};
          },
          {"w: the memory is not the host's in [64:128, 0:32) (rank 1): expected cpu, found cuda:0"});
}

TEST_CASE("objects that differ are refused naming both values, unless the lowest rank's is asked for") {
  const auto differ = [](rows& mine, any_communicator& comm) {
    mine.state.objects.push_back({{"step"}, {}, {std::int64_t{comm.rank() == 1 ? 4 : 3}}});
  };
  refuses("objects", differ,
          {"step: ranks hold different values of an object (ranks 0, 1): expected 3, found 4", "lowest_rank_objects"});
  refuses("opaque",
          [](rows& mine, any_communicator& comm) {
            if (comm.rank() == 1) mine.state.objects.push_back({{"x"}, {}, {opaque_object{"my.type", {}}}});
          },
          {"x: an opaque object's bytes are no archive of torch.save", "(rank 1)", "found my.type"});
  const scratch_folder folder("lowest");
  on_ranks({2}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    differ(mine, comm);
    const save_report report = save(folder.path / "step", mine.state, comm,
                                    {.saving = {.output = {.overwrite = true}}, .lowest_rank_objects = true});
    if (!report.ok()) return text_of(report.problems);
    mine.state.objects.front().leaves = {false};
    const rank_load_report loaded = load(folder.path / "step", mine.state, comm);
    if (!loaded.ok()) return text_of(loaded.problems);
    return mine.state.objects.front().leaves == std::vector<plain_value>{std::int64_t{3}} ? "" : "another value";
  });
}

TEST_CASE("ranks that save to different places, or with different options, are told so") {
  const scratch_folder folder("places");
  on_ranks({2, 3}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    const auto here = folder.path / (comm.rank() == 1 ? "b" : "a");
    if (std::string wrong = must_say(save(here, mine.state, comm).problems,
                                     {"ranks disagree on 1 of 2 checkpoint options", "(destination)", "/b on rank"});
        !wrong.empty())
      return wrong;
    const save_report report =
        save(folder.path / "a", mine.state, comm, {.saving = {.output = {.overwrite = comm.rank() == 1}}});
    if (std::string wrong = must_say(report.problems, {"(options)", "overwrite true"}); !wrong.empty()) return wrong;
    return fs::is_empty(folder.path) ? "" : "something was written";
  });
}

TEST_CASE("a destination that cannot be written is an error on every rank") {
  const scratch_folder folder("destination");
  {
    std::ofstream(folder.path / "file") << "mine";
  }
  on_ranks({1, 2, 3}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 1);
    const auto said = [&](const fs::path& to, const std::vector<std::string>& texts) {
      return must_say(save(to, mine.state, comm, {.saving = {.output = {.overwrite = true}}}).problems, texts);
    };
    if (std::string wrong = said(folder.path / "no" / "step", {"its parent folder does not exist", "(rank 0)"});
        !wrong.empty())
      return wrong;
    if (std::string wrong = said(folder.path / "file", {"is a file, and a folder is to be written"}); !wrong.empty())
      return wrong;
    return said(folder.path, {"the folder holds more than a checkpoint and is not replaced"});
  });
}

namespace {

constexpr save_phase phases[] = {save_phase::describe, save_phase::stage, save_phase::write, save_phase::finish,
                                 save_phase::commit};

// Saves `value`; then saves another one, which fails in `failing`; then the first is loaded. All on a sound
// communicator each time, as the failing save may poison its own.
void survives(const std::string& name, const std::vector<std::int32_t>& sizes,
              const std::function<std::string(any_communicator&, const fs::path&, rows&)>& failing) {
  const watchdog dog(300s);
  const scratch_folder folder(name);
  const fs::path checkpoint = folder.path / "step";
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t size : sizes) {
      if (std::find(kind.sizes.begin(), kind.sizes.end(), size) == kind.sizes.end()) continue;
      INFO(kind.name << " with " << size << " ranks");
      const auto run = [&](const std::function<std::string(any_communicator&)>& step) {
        return kind.run(size, [&](void* comm) { return step(*static_cast<any_communicator*>(comm)); });
      };
      REQUIRE(run([&](any_communicator& comm) {
                rows old(comm.rank(), comm.size(), 7);
                return text_of(save(checkpoint, old.state, comm, {.saving = {.output = {.overwrite = true}}}).problems);
              }) == "");
      REQUIRE(run([&](any_communicator& comm) {
                rows now(comm.rank(), comm.size(), 8);
                return failing(comm, checkpoint, now);
              }) == "");
      REQUIRE(run([&](any_communicator& comm) -> std::string {
                rows loaded(comm.rank(), comm.size(), 0);
                const rank_load_report report = load(checkpoint, loaded.state, comm);
                if (!report.ok()) return text_of(report.problems);
                for (const std::int32_t value : loaded.memory)
                  if (value != 7) return "the previous checkpoint has changed";
                return entries(folder.path) == 1 ? "" : "something was left beside the checkpoint";
              }) == "");
    }
}

}  // namespace

TEST_CASE("a rank that fails at any phase fails the save on every rank, and the previous checkpoint stays") {
  for (const save_phase phase : phases)
    for (const bool is_last : {false, true}) {
      if (phase == save_phase::commit && is_last) continue;  // only rank 0 commits
      for (const bool throws : {false, true}) {
        INFO("phase " << static_cast<int>(phase) << (is_last ? ", last rank" : ", rank 0")
                      << (throws ? ", throws" : ""));
        survives("phase", {1, 2, 4}, [&](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
          const std::int32_t victim = is_last ? comm.size() - 1 : 0;
          rank_save_options options{.saving = {.output = {.overwrite = true}}, .call = within(30s)};
          options.before = [&](save_phase now) -> result<void> {
            if (now != phase || comm.rank() != victim) return {};
            if (throws) throw std::runtime_error("the fault");
            return fail(errc::io, "the fault");
          };
          const save_report report = save(to, mine.state, comm, options);
          if (std::string wrong = must_say(report.problems, {"the fault", "(rank " + std::to_string(victim) + ")"});
              !wrong.empty())
            return wrong;
          return comm.all_gather({}, within(30s)) ? "" : "the communicator is not usable any more";
        });
      }
    }
}

TEST_CASE("a rank that stops taking part at any phase is noticed at the deadline by all others") {
  for (const save_phase phase : phases)
    for (const bool is_last : {false, true}) {
      if (phase == save_phase::commit && is_last) continue;
      INFO("phase " << static_cast<int>(phase) << (is_last ? ", last rank" : ", rank 0"));
      survives("lost", {2, 3}, [&](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
        const std::int32_t victim = is_last ? comm.size() - 1 : 0;
        const bool is_victim = comm.rank() == victim;
        rank_save_options options{.saving = {.output = {.overwrite = true}}, .call = within(400ms)};
        options.before = [&](save_phase now) -> result<void> {
          if (now != phase || !is_victim) return {};
          // As if it were gone: it answers nobody until all others have given up.
          const auto until = std::chrono::steady_clock::now() + 900ms;
          while (std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(10ms);
          return {};
        };
        const auto began = std::chrono::steady_clock::now();
        const save_report report = save(to, mine.state, comm, options);
        const auto took = std::chrono::steady_clock::now() - began;
        if (report.ok()) return "there was no error";
        if (!is_victim && took > 1400ms + 1s) return "it took too long";
        return {};
      });
    }
}

TEST_CASE("a save that is cancelled, or whose deadline is over, changes nothing") {
  survives("cancelled", {1, 2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    std::stop_source stop;
    stop.request_stop();
    rank_save_options options{.saving = {.output = {.overwrite = true}}, .call = within(30s)};
    if (comm.rank() == comm.size() - 1) options.saving.cancel = stop.get_token();
    const save_report report = save(to, mine.state, comm, options);
    return must_say(report.problems, {"the save was cancelled (rank " + std::to_string(comm.size() - 1) + ")"});
  });
  survives("cancelled-call", {1, 2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    std::stop_source stop;
    rank_save_options options{.saving = {.output = {.overwrite = true}}, .call = within(30s)};
    options.call.cancel = stop.get_token();
    options.before = [&](save_phase now) -> result<void> {
      if (now == save_phase::write && comm.rank() == 0) stop.request_stop();
      return {};
    };
    return must_say(save(to, mine.state, comm, options).problems, {"cancelled"});
  });
  survives("late", {1, 2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    const save_report report =
        save(to, mine.state, comm, {.saving = {.output = {.overwrite = true}}, .call = within(0ms)});
    return report.ok() ? "there was no error" : "";
  });
}

TEST_CASE("a file that cannot grow fails the save on every rank") {
  // On threads the limit is that of the process, so of every rank; over MPI it is the last one's only.
  survives("limit", {2, 4}, [](any_communicator& comm, const fs::path& to, rows& mine) -> std::string {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rank_save_options options{.saving = {.output = {.overwrite = true}}, .call = within(30s)};
    const bool is_last = comm.rank() == comm.size() - 1;
    if (is_last) {
      const rlimit small{4096, before.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    static_cast<void>(comm.all_gather({}, within(30s)));
    const save_report report = save(to, mine.state, comm, options);
    if (is_last) setrlimit(RLIMIT_FSIZE, &before);
    static_cast<void>(comm.all_gather({}, within(30s)));
    return must_say(report.problems, {"cannot write", "(rank "});
  });
}

TEST_CASE("an overwrite replaces the checkpoint of other ranks whole, and nothing of it stays") {
  const scratch_folder folder("replace");
  const fs::path checkpoint = folder.path / "step";
  for (const std::int32_t ranks : {4, 2, 3, 1})
    on_ranks({ranks}, [&](any_communicator& comm) -> std::string {
      rows mine(comm.rank(), comm.size(), ranks);
      const save_report report =
          save(checkpoint, mine.state, comm, {.saving = {.output = {.overwrite = true}}, .call = within(30s)});
      if (!report.ok()) return text_of(report.problems);
      static_cast<void>(comm.all_gather({}, within(30s)));
      const auto expected = static_cast<std::size_t>(comm.size()) + 2;  // .metadata and the checksums
      if (entries(checkpoint) != expected) return "the folder has " + std::to_string(entries(checkpoint)) + " files";
      return entries(folder.path) == 1 ? "" : "something was left beside the checkpoint";
    });
}

TEST_CASE("a load names the keys that are missing, surplus or of another kind, and the wanted shapes") {
  const scratch_folder folder("load");
  on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 5);
    mine.state.objects.push_back({{"step"}, {}, {std::int64_t{3}}});
    const save_report saved =
        save(checkpoint, mine.state, comm, {.saving = {.output = {.overwrite = true}}, .call = within(30s)});
    if (!saved.ok()) return text_of(saved.problems);
    const std::int32_t last = comm.size() - 1;
    const auto says = [&](const std::function<void(held_state&)>& change, const std::vector<std::string>& texts,
                          const rank_load_options& options = {}) {
      rows wanted(comm.rank(), comm.size(), 0);
      wanted.state.objects = mine.state.objects;
      if (comm.rank() == last) change(wanted.state);
      return must_say(load(checkpoint, wanted.state, comm, options).problems, texts);
    };
    std::string wrong = says([](held_state& s) { s.objects.push_back({{"lr"}, {}, {0.5}}); },
                             {"lr: the checkpoint has no such object (rank " + std::to_string(last) + ")"});
    if (!wrong.empty()) return wrong;
    wrong = says([](held_state& s) { s.tensors.push_back({{"v"}, {2}, dtype::int8, {}}); },
                 {"v: the checkpoint has no such tensor (rank " + std::to_string(last) + ")"});
    if (!wrong.empty()) return wrong;
    wrong = says(
        [](held_state& s) {
          s.objects.clear();
          s.tensors.push_back({{"step"}, {2}, dtype::int8, {}});
        },
        {"step: "});
    if (!wrong.empty()) return wrong;
    if (comm.size() == 1) {
      wrong =
          says([](held_state& s) { s.tensors.front().shape[0] += 1; },
               {"w: the wanted tensor has another shape than the stored one (rank 0): expected [64, 32], found [65"});
      if (!wrong.empty()) return wrong;
    }
    // Missing keys may be ignored, surplus ones refused.
    rows wanted(comm.rank(), comm.size(), 0);
    wanted.state.objects.push_back({{"lr"}, {}, {0.5}});
    const rank_load_report report = load(checkpoint, wanted.state, comm, {.missing = key_check::ignore});
    if (!report.ok()) return text_of(report.problems);
    if (report.missing != std::vector<std::string>{"lr"} || report.unexpected != std::vector<std::string>{"step"} ||
        report.loaded != std::vector<std::string>{"w"})
      return "the report names other keys";
    if (wanted.memory != mine.memory) return "the values differ";
    return must_say(
        load(checkpoint, wanted.state, comm, {.missing = key_check::ignore, .unexpected = key_check::strict}).problems,
        {"step: the checkpoint has it and no rank wants it"});
  });
}

TEST_CASE("a rank that cannot open the checkpoint, or opens another one, fails the load on every rank") {
  const scratch_folder folder("open");
  on_ranks({2, 3}, [&](any_communicator& comm) -> std::string {
    rows mine(comm.rank(), comm.size(), 5);
    for (const char* name : {"a", "b"}) {
      if (name[0] == 'b') mine.state.objects.push_back({{"step"}, {}, {true}});
      const save_report saved = save(folder.path / name, mine.state, comm, {.saving = {.output = {.overwrite = true}}});
      if (!saved.ok()) return text_of(saved.problems);
    }
    const auto from = [&](const char* name) {
      return load(folder.path / (comm.rank() == 1 ? name : "a"), mine.state, comm).problems;
    };
    if (std::string wrong = must_say(from("nowhere"), {"nowhere", "(rank 1)"}); !wrong.empty()) return wrong;
    return must_say(from("b"), {"ranks disagree", "(checkpoint)", "1 tensors and 1 objects"});
  });
}

TEST_CASE("a chunk that is damaged fails the load on every rank, naming the file") {
  const scratch_folder folder("damaged");
  on_ranks({2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 5);
    const save_report saved = save(checkpoint, mine.state, comm, {.saving = {.output = {.overwrite = true}}});
    if (!saved.ok()) return text_of(saved.problems);
    if (comm.rank() == 0) fs::resize_file(checkpoint / "__1_0.distcp", 100);
    static_cast<void>(comm.all_gather({}, within(30s)));
    return must_say(load(checkpoint, mine.state, comm).problems, {"__1_0.distcp"});
  });
}

TEST_CASE("a save in the background writes what was there when it was started") {
  const scratch_folder folder("background");
  on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / ("of-" + std::to_string(comm.size()));
    rows mine(comm.rank(), comm.size(), 5);
    {
      auto saving =
          start_save(checkpoint, mine.state, comm, {.saving = {.output = {.overwrite = true}}, .call = within(30s)});
      if (!saving) return to_string(saving.cause());
      std::fill(mine.memory.begin(), mine.memory.end(), 6);
      if (!saving->wait().ok()) return text_of(saving->wait().problems);
      if (!saving->done()) return "it is not done after wait";
    }
    const rank_load_report report = load(checkpoint, mine.state, comm, {.call = within(30s)});
    if (!report.ok()) return text_of(report.problems);
    for (const std::int32_t value : mine.memory)
      if (value != 5) return "another value";
    // A bad input is known at once, a fault later is in the report.
    rows bad(comm.rank(), comm.size(), 5);
    bad.tensor().parts.clear();
    const auto refused = start_save(checkpoint, bad.state, comm);
    if (refused || refused.cause().code != errc::gap) return "the gap was not refused";
    rank_save_options options{.saving = {.output = {.overwrite = true}}, .call = within(30s)};
    options.before = [&](save_phase now) -> result<void> {
      if (now == save_phase::write && comm.rank() == comm.size() - 1) return fail(errc::io, "the fault");
      return {};
    };
    auto failing = start_save(checkpoint, mine.state, comm, options);
    if (!failing) return to_string(failing.cause());
    return must_say(failing->wait().problems, {"the fault (rank " + std::to_string(comm.size() - 1) + ")"});
  });
}
