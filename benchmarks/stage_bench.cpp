// SPDX-License-Identifier: Apache-2.0
// Times saving and loading an FSDP model of ranks that are threads: from its flat shards, through a state dict, and in
// the background with and without a pool; also plain files and copies of the same bytes.
//   shardmesh_stage_bench CASE FOLDER BYTES REPEAT DURABLE [RANKS]
//   CASE: save_in_place, save_state, plain_write, load_in_place, load_state, plain_read, start, start_pool, plain_copy
// Rank 0 prints {"bytes":n,"seconds":[..],"extra_bytes":n,"faults":n}: for each repetition the slowest rank's time; the
// largest resident memory in addition to the model; page faults of the last repetition.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rank_timing.hpp"
import shardmesh;
import shardmesh.fsdp;

namespace {
using namespace shardmesh;
using namespace rank_timing;
namespace fs = std::filesystem;

constexpr std::int64_t piece = std::int64_t{8} << 20;

// Units of 64 MiB, [4096, 4096] and a bias each, as in benchmarks/rank_bench.cpp.
struct sharded_model {
  sharded_model(std::int32_t rank, std::int32_t ranks, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes / (std::int64_t{64} << 20); ++i) {
      const std::vector<parameter_info> infos{{.fqn = "weight", .shape = {4096, 4096}, .strides = {}},
                                              {.fqn = "bias", .shape = {4096}, .strides = {}}};
      const auto flat = flat_parameter::make(infos, {}, {.group_size = ranks}).value();
      shards.push_back(host_tensor::make(dtype::float32, extents{flat.sharded_numel()}).value());
      std::memset(shards.back().bytes().data(), rank + 1, shards.back().bytes().size());
      model.units.push_back({std::to_string(i), flat, shard_group::world(ranks), {}});
      this->bytes += flat.unsharded_numel() * 4;
    }
    for (std::size_t i = 0; i < shards.size(); ++i) model.units[i].shard = view_of(shards[i]);
  }
  sharded_model(const sharded_model&) = delete;
  std::vector<host_tensor> shards;
  fsdp_model model;
  std::int64_t bytes = 0;  // of all ranks
};

struct bench_case {
  std::string name;
  fs::path folder;
  std::int64_t bytes = 0;
  int repeat = 0;
  bool durable = false;
};

struct bench_result {
  std::vector<double> seconds;
  std::int64_t bytes = 0, extra = 0, faults = 0;
};

void check(const auto& done) {
  if (!done) throw exception(done.error());
}
void check(bool good, const char* what) {
  if (!good) throw exception(fail_sys(errno, what, ""));
}

std::int64_t page_faults() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

// One way of a case, on one rank. The time excludes `begin` and `end`.
class rank_bench {
 public:
  rank_bench(const bench_case& c, any_communicator& comm, thread_communicator saver)
      : case_(c),
        comm_(comm),
        saver_(saver),
        mine_(comm.rank(), comm.size(), c.bytes),
        file_(c.folder / std::to_string(comm.rank())) {
    options_ = {.overwrite = true, .durable = c.durable, .threads = 1};
    if (c.name == "start_pool") options_.staging = staging_pool::make().value();
    if (c.name.starts_with("load")) in_place();
    if (c.name == "plain_read") plain_write();
    if (c.name == "plain_copy") {
      for (const host_tensor& shard : mine_.shards) {
        copies_.push_back(host_tensor::zeros(shard.type(), shard.sizes()).value());
      }
    }
  }

  std::int64_t bytes() const { return mine_.bytes; }

  void begin() {
    if (case_.name.starts_with("load") || case_.name == "plain_read" || comm_.rank() != 0) return;
    fs::remove_all(case_.folder);
    fs::create_directories(case_.folder);
  }
  void run() {
    if (case_.name == "save_in_place") return in_place();
    if (case_.name == "save_state")
      return check(save(step(), local_view(std::as_const(state()->state)).value(), comm_, options_));
    if (case_.name == "plain_write") return plain_write();
    if (case_.name == "load_in_place") {
      local_state wanted = local_view(mine_.model, comm_.rank()).value().to_load();
      return check(load(step(), wanted, comm_, {.threads = 1}));
    }
    if (case_.name == "load_state") {
      const auto made = state();
      local_state wanted = local_view(made->state).value();
      check(load(step(), wanted, comm_, {.threads = 1}));
      load_state_dict(mine_.model, made->state, comm_).value();
      return;
    }
    if (case_.name == "plain_read") return plain_read();
    if (case_.name.starts_with("start")) {
      saving_.emplace(
          start_save(step(), local_view(mine_.model, comm_.rank()).value().to_save().value(), saver_, options_)
              .value());
      return;
    }
    for (std::size_t i = 0; i < copies_.size(); ++i)
      std::memcpy(copies_[i].bytes().data(), mine_.shards[i].bytes().data(), copies_[i].bytes().size());
  }
  void end() {
    if (saving_) check(saving_->wait());
    saving_.reset();
  }

 private:
  fs::path step() const { return case_.folder / "step"; }

  void in_place() {
    check(save(step(), local_view(mine_.model, comm_.rank()).value().to_save().value(), comm_, options_));
  }
  std::unique_ptr<saved_state<host_tensor>> state() {
    return std::make_unique<saved_state<host_tensor>>(sharded_state_dict<host_tensor>(mine_.model, comm_).value());
  }
  void plain_write() {
    const int file = open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    check(file >= 0, "open");
    std::int64_t at = 0;
    for (const host_tensor& shard : mine_.shards)
      for (std::span<const std::byte> rest = shard.bytes(); !rest.empty();) {
        const auto length = std::min(rest.size(), static_cast<std::size_t>(piece));
        check(pwrite(file, rest.data(), length, at) == static_cast<ssize_t>(length), "pwrite");
        at += static_cast<std::int64_t>(length);
        rest = rest.subspan(length);
      }
    check(!case_.durable || fsync(file) == 0, "fsync");
    close(file);
  }
  void plain_read() {
    const int file = open(file_.c_str(), O_RDONLY);
    check(file >= 0, "open");
    std::int64_t at = 0;
    for (host_tensor& shard : mine_.shards)
      for (std::span<std::byte> rest = shard.bytes(); !rest.empty();) {
        const auto length = std::min(rest.size(), static_cast<std::size_t>(piece));
        check(pread(file, rest.data(), length, at) == static_cast<ssize_t>(length), "pread");
        at += static_cast<std::int64_t>(length);
        rest = rest.subspan(length);
      }
    close(file);
  }

  const bench_case& case_;
  any_communicator& comm_;
  any_communicator saver_;  // for saves that continue while the ranks meet
  sharded_model mine_;
  fs::path file_;
  rank_save_options options_;
  std::vector<host_tensor> copies_;
  std::optional<save_in_progress> saving_;
};

result<void> measure(any_communicator& comm, const thread_group& savers, const bench_case& c, bench_result& found) {
  if (comm.rank() == 0) fs::create_directories(c.folder);
  meet(comm);
  rank_bench work(c, comm, savers.communicator(comm.rank()));
  meet(comm);
  if (comm.rank() == 0) forget_peak();
  meet(comm);
  const std::int64_t before = resident("VmRSS:");
  for (int i = -1; i < c.repeat; ++i) {  // the first one is not counted
    work.begin();
    meet(comm);
    const std::int64_t faults = page_faults();
    const double seconds = timed(comm, [&] { work.run(); });
    if (comm.rank() == 0 && i >= 0) {
      found.seconds.push_back(seconds);
      found.faults = page_faults() - faults;
    }
    work.end();
  }
  meet(comm);
  if (comm.rank() == 0) {
    found.extra = resident("VmHWM:") - before;
    found.bytes = work.bytes();
  }
  return {};
}

}  // namespace

int main(int count, char** words) {
  if (count < 6) return 2;
  const bench_case c{words[1], words[2], std::atoll(words[3]), std::atoi(words[4]),
                     std::string_view(words[5]) == "durable"};
  bench_result found;
  const std::int32_t ranks = count > 6 ? std::atoi(words[6]) : 2;
  const thread_group savers(ranks);
  const auto done = run_ranks(ranks, [&](any_communicator& comm) { return measure(comm, savers, c, found); });
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
  std::printf("{\"bytes\":%lld,\"seconds\":[", static_cast<long long>(found.bytes));
  for (std::size_t i = 0; i < found.seconds.size(); ++i) std::printf("%s%.9f", i ? "," : "", found.seconds[i]);
  std::printf("],\"extra_bytes\":%lld,\"faults\":%lld}\n", static_cast<long long>(found.extra),
              static_cast<long long>(found.faults));
  return 0;
}
