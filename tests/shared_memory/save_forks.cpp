// SPDX-License-Identifier: Apache-2.0
// Processes fork while they save, in each phase and from another thread. The child ends by exit, by _exit, or by
// becoming another program. Each child ends well, the checkpoint passes verify with every value, nothing is left beside
// it, and no file of the save is open in the other program. Prints one line per wrong answer.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <forked_child.hpp>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

import shardmesh;
import shardmesh.shared_memory;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr std::int32_t ranks = 3;
constexpr std::int64_t rows = 700, columns = 300;  // per rank

enum class ending { by_exit, by_quick_exit, by_exec };
constexpr std::array endings{ending::by_exit, ending::by_quick_exit, ending::by_exec};

// Objects of the parent's save, which `exit` in a child destroys.
struct rank_at_work {
  std::optional<any_communicator> comm;
  std::optional<save_in_progress> saving;
  std::vector<std::int32_t> memory;
};
std::vector<rank_at_work>& at_work() {
  static std::vector<rank_at_work> all(ranks);
  return all;
}

std::int32_t value_of(std::int64_t row, std::int64_t column) {
  return static_cast<std::int32_t>(row * 100'003 + column);
}

local_state local_view(std::int32_t rank, std::vector<std::int32_t>& memory) {
  memory.resize(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows * columns; ++i)
    memory[static_cast<std::size_t>(i)] = value_of(rank * rows + i / columns, i % columns);
  const tensor_view view{reinterpret_cast<std::byte*>(memory.data()), dtype::int32, {}, {rows, columns}, {columns, 1}};
  local_state held;
  held.tensors.push_back({{"w"}, {ranks * rows, columns}, dtype::int32, {{{{rank * rows, 0}, {rows, columns}}, view}}});
  return held;
}

/// Returns 0 if a forked child ends well in that way.
[[nodiscard]] int fork_and_end(ending how, const fs::path& folder) {
  const pid_t child = ::fork();
  if (child != 0) return exit_status_of(child);
  ::alarm(20);  // a hang is a failure
  if (how == ending::by_exit) std::exit(0);
  if (how == ending::by_exec) ::execl("/proc/self/exe", "save_forks", "look", folder.c_str(), nullptr);
  ::_exit(how == ending::by_quick_exit ? 0 : 3);
}

// The other program: returns 4 if a file below the folder is open here.
int look_for_open_files(std::string_view folder) {
  for (const auto& one : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(one.path(), ignored).string().starts_with(folder)) return 4;
  }
  return 0;
}

// Saves as one rank; returns a problem, or "". Forks in the save's own thread before each phase and, for background
// saves, also from this thread.
std::string save_as(rank_at_work& mine, const fs::path& folder, target_format format, bool in_background) {
  const local_state held = local_view(mine.comm->rank(), mine.memory);
  std::string wrong;
  const auto fork_all = [&](const std::string& where) {
    for (const ending how : endings)
      if (const int status = fork_and_end(how, folder); status != 0)
        wrong += "a child that was forked " + where + " ended with " + std::to_string(status) + " (way " +
                 std::to_string(static_cast<int>(how)) + "); ";
  };
  rank_save_options options{.format = format, .durable = false, .within = std::chrono::seconds(100)};
  options.before = [&](save_phase phase) -> result<void> {
    fork_all("before phase " + std::to_string(static_cast<int>(phase)));
    return {};
  };
  const fs::path destination = folder / (format == target_format::safetensors ? "step.safetensors" : "step");
  const auto add_problems = [&](const result<save_report>& done) {
    if (done) return;
    for (const error& problem : done.error().problems()) wrong += to_string(problem) + "; ";
  };
  if (in_background) {
    auto started = start_save(destination, held, *mine.comm, options);
    if (!started) return to_string(started.error());
    mine.saving = *std::move(started);
    std::string beside;
    while (!mine.saving->done())
      for (const ending how : endings)
        if (const int status = fork_and_end(how, folder); status != 0)
          beside += "a child beside the save ended with " + std::to_string(status) + "; ";
    add_problems(mine.saving->wait());
    mine.saving.reset();
    wrong += beside;
  } else {
    add_problems(save(destination, held, *mine.comm, options));
  }
  return wrong;
}

std::string look_at(const fs::path& folder) {
  if (std::distance(fs::directory_iterator(folder), fs::directory_iterator()) != 1) return "something lies beside it";
  auto reader = open_checkpoint(fs::directory_iterator(folder)->path());
  if (!reader) return to_string(reader.error());
  const auto checked = verify(**reader);
  if (!checked) return to_string(checked.error());
  if (!checked->ok()) return to_string(checked->problems.front());
  std::vector<std::int32_t> found(static_cast<std::size_t>(ranks * rows * columns));
  const tensor_view view{
      reinterpret_cast<std::byte*>(found.data()), dtype::int32, {}, {ranks * rows, columns}, {columns, 1}};
  local_state held;
  held.tensors.push_back({{"w"}, {ranks * rows, columns}, dtype::int32, {{{{0, 0}, {ranks * rows, columns}}, view}}});
  const thread_group alone(1);
  thread_communicator comm = alone.communicator(0);
  if (const auto loaded = load(fs::directory_iterator(folder)->path(), held, comm); !loaded)
    return to_string(loaded.error());
  for (std::int64_t i = 0; i < ranks * rows * columns; ++i)
    if (found[static_cast<std::size_t>(i)] != value_of(i / columns, i % columns))
      return "element " + std::to_string(i) + " differs";
  return {};
}

// Ranks are processes, or threads of this process. Returns whether all went well.
bool play(bool are_processes, target_format format, bool in_background) {
  const scratch_folder folder;
  std::string wrong;
  if (are_processes) {
    const auto group = shared_memory_group::make(ranks).value();
    std::vector<pid_t> children;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::alarm(120);
      rank_at_work& mine = at_work()[static_cast<std::size_t>(rank)];
      mine.comm.emplace(shared_memory_communicator::join(group.token(), rank).value());
      const std::string said = save_as(mine, folder.path, format, in_background);
      if (!said.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, said.c_str());
      std::_Exit(said.empty() ? 0 : 1);
    }
    for (const pid_t child : children)
      if (const int status = exit_status_of(child); status != 0)
        wrong += "a rank ended with " + std::to_string(status) + "; ";
  } else {
    const thread_group group(ranks);
    std::array<std::string, ranks> said;
    {
      std::vector<std::jthread> threads;
      for (std::int32_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
          rank_at_work& mine = at_work()[static_cast<std::size_t>(rank)];
          mine.comm.emplace(group.communicator(rank));
          said[static_cast<std::size_t>(rank)] = save_as(mine, folder.path, format, in_background);
        });
    }
    for (rank_at_work& one : at_work()) one.comm.reset();
    for (const std::string& one : said) wrong += one;
  }
  wrong += look_at(folder.path);
  if (wrong.empty()) return true;
  std::fprintf(stderr, "%s, format %d, %s: %s\n", are_processes ? "processes" : "threads", static_cast<int>(format),
               in_background ? "in the background" : "waited for", wrong.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "look") return look_for_open_files(argv[2]);
  int wrong = 0;
  for (const bool are_processes : {true, false})
    for (const target_format format : {target_format::dcp, target_format::safetensors, target_format::hf})
      for (const bool in_background : {false, true}) wrong += play(are_processes, format, in_background) ? 0 : 1;
  return wrong == 0 ? 0 : 1;
}
