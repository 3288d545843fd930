// SPDX-License-Identifier: Apache-2.0
// Three ranks of mpirun. This program sits between the library and MPI, like a profiler, and makes calls of rank 1
// fail: they return an error code, or throw, as a program's error handler may. Every rank has the same error, which
// names the peer, the call, and the tag. No rank hangs, and the next communicator works.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.mpi;

using namespace shardmesh;

namespace {

enum class mpi_call { none, send, receive, test, duplicate };
struct fault {
  mpi_call what = mpi_call::none;
  int nth = 0;  // number of the call, from 1
  bool throws = false;
};
fault planted;
std::atomic<int> calls = 0;

constexpr const char* thrown = "said by a handler of the program";

// Returns MPI_SUCCESS if the call must go to MPI.
int failed(mpi_call what) {
  if (planted.what != what || ++calls != planted.nth) return MPI_SUCCESS;
  if (planted.throws) throw std::runtime_error(thrown);
  return MPI_ERR_OTHER;
}

}  // namespace

extern "C" {

int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const int code = failed(mpi_call::send);
  return code != MPI_SUCCESS ? code : PMPI_Isend(bytes, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* bytes, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  const int code = failed(mpi_call::receive);
  return code != MPI_SUCCESS ? code : PMPI_Irecv(bytes, count, type, from, tag, comm, request);
}
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const int code = failed(mpi_call::test);
  return code != MPI_SUCCESS ? code : PMPI_Test(request, flag, status);
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  const int code = failed(mpi_call::duplicate);
  return code != MPI_SUCCESS ? code : PMPI_Comm_dup(comm, made);
}

}  // extern "C"

namespace {

call_options in_time(std::uint32_t tag) {
  return {.within = std::chrono::seconds(20), .tag = tag, .name = "save"};
}

std::vector<std::byte> message(std::int32_t from, std::size_t size) {
  std::vector<std::byte> made(size);
  for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from));
  return made;
}

result<void> all_calls(mpi_communicator& comm) {
  const std::int32_t next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
  for (const std::size_t size : {std::size_t{100}, std::size_t{40'000}}) {  // in a record, and in its own message
    const auto mine = message(comm.rank(), size);
    std::vector<std::byte> room(size);
    const outgoing send{next, mine};
    const incoming receive{before, room};
    auto started = comm.start_exchange({&send, 1}, {&receive, 1}, in_time(5));
    if (!started) return started.error();
    if (auto done = started->wait(); !done) return done;
    if (room != message(before, size)) return fail(errc::bad_format, "the bytes are not those that were sent");
    auto all = comm.all_gather(mine, in_time(6));
    if (!all) return all.error();
    for (std::int32_t rank = 0; rank < comm.size(); ++rank)
      if ((*all)[static_cast<std::size_t>(rank)] != message(rank, size))
        return fail(errc::bad_format, "the gathered bytes are not those that were given");
  }
  return {};
}

std::string code_text() {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  MPI_Error_string(MPI_ERR_OTHER, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

// All possible error texts for a failed call of rank 1.
std::set<std::string> sayings(const fault& now) {
  std::set<std::string> all;
  const std::string end = now.throws ? std::string(": an error handler of MPI threw") : ": " + code_text();
  const std::string found = now.throws ? std::string(": found ") + thrown : std::string();
  for (const char* part : {"cannot receive a control record", "cannot receive control records"})
    all.insert(std::string("rank 1 cannot receive from other ranks: ") + part + end + " (rank 1)" + found);
  for (const char* peer : {"0", "2"})
    for (const char* verb : {"cannot send to", "cannot receive from"})
      for (const char* call : {"an exchange of save (tag 5)", "an all_gather of save (tag 6)"})
        for (const char* part : {"cannot send a control record", "cannot send a part of a message",
                                 "cannot receive a part of a message", "cannot move a part of a message"})
          all.insert(std::string("rank 1 ") + verb + " rank " + peer + " in " + call + ": " + part + end + " (rank " +
                     peer + ")" + found);
  return all;
}

// Gathers each rank's text on every rank.
std::vector<std::string> tell_all(mpi_communicator& keeper, const std::string& mine) {
  const auto all = keeper.all_gather(std::as_bytes(std::span(mine)), in_time(0)).value();
  std::vector<std::string> texts;
  for (const auto& text : all) texts.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  return texts;
}

// Plays one communicator with that fault on rank 1. Returns the number of ranks with an error, or -1 if something is
// wrong.
int play(mpi_communicator& keeper, const fault& now, bool is_staged) {
  std::string mine;
  {
    auto comm = mpi_communicator::from_handle(MPI_Comm_c2f(MPI_COMM_WORLD),
                                              {.read_peer_memory = !is_staged, .chunk_bytes = 4096});
    if (!comm) return std::fprintf(stderr, "%s\n", to_string(comm.error()).c_str()), -1;
    calls = 0;
    if (keeper.rank() == 1) planted = now;
    if (const auto done = all_calls(*comm); !done) {
      mine = to_string(done.error());
      if (done.error().code != errc::communication) mine += " (another code)";
    }
    planted = {};
  }
  const std::vector<std::string> all = tell_all(keeper, mine);
  std::set<std::string> different(all.begin(), all.end());
  different.erase("");  // that rank had finished before the fault
  const bool is_good = different.size() <= 1 && (different.empty() || sayings(now).contains(*different.begin()));
  if (!is_good && keeper.rank() == 0)
    for (const std::string& text : all)
      std::fprintf(stderr, "call %d of kind %d%s%s: %s\n", now.nth, static_cast<int>(now.what),
                   now.throws ? ", thrown" : "", is_staged ? ", staged" : "", text.empty() ? "no error" : text.c_str());
  return is_good
             ? static_cast<int>(std::count_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); }))
             : -1;
}

// Opening a communicator fails if MPI cannot duplicate one. All ranks fail, because duplicating is collective.
bool refuses_to_open(bool throws) {
  calls = 0;
  planted = {mpi_call::duplicate, 1, throws};
  const auto made = mpi_communicator::from_handle(MPI_Comm_c2f(MPI_COMM_WORLD));
  planted = {};
  const std::string expected = "cannot duplicate an MPI communicator: " +
                               (throws ? std::string("an error handler of MPI threw: found ") + thrown : code_text());
  if (!made && to_string(made.error()) == expected) return true;
  std::fprintf(stderr, "%s, not: %s\n", made ? "it opened" : to_string(made.error()).c_str(), expected.c_str());
  return false;
}

}  // namespace

int main() {
  ::alarm(250);                             // a hang is a failure
  auto keeper = mpi_communicator::world();  // keeps MPI initialised
  if (!keeper || keeper->size() != 3) return 2;
  int wrong = 0;
  for (const bool throws : {false, true}) wrong += refuses_to_open(throws) ? 0 : 1;
  for (const bool is_staged : {false, true}) {
    wrong += play(*keeper, {}, is_staged) == 0 ? 0 : 1;
    for (const mpi_call what : {mpi_call::send, mpi_call::receive, mpi_call::test})
      for (const bool throws : {false, true}) {
        int failures = 0;
        for (const int nth : {1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 30}) {
          const int failed_ranks = play(*keeper, {what, nth, throws}, is_staged);
          wrong += failed_ranks < 0 ? 1 : 0;
          failures += failed_ranks > 0 ? 1 : 0;
        }
        if (failures == 0) std::fprintf(stderr, "no call of kind %d failed\n", static_cast<int>(what)), ++wrong;
      }
  }
  static_cast<void>(tell_all(*keeper, {}));
  return wrong == 0 ? 0 : 1;
}
