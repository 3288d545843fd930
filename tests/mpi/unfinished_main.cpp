// SPDX-License-Identifier: Apache-2.0
// Two ranks of mpirun. One sends a message that the other acknowledges, but MPI claims that the send is incomplete.
// When the communicator ends meanwhile, the memory that MPI sends from must stay. This program sits between the library
// and MPI, like a profiler, and observes what is freed.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.mpi;

namespace {

constexpr int large = 10000;  // records are smaller

struct sends {
  std::mutex lock;
  struct one {
    MPI_Request request;
    const void* bytes;
  };
  std::vector<one> open;  // MPI uses their memory
  int freed = 0;          // how many of these were freed
};
sends& held() {
  static auto* const all = new sends;
  return *all;
}
std::atomic<bool> is_watched = false;

}  // namespace

extern "C" {

int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const int done = PMPI_Isend(bytes, count, type, to, tag, comm, request);
  if (count < large) return done;
  const std::scoped_lock guard(held().lock);
  held().open.push_back({*request, bytes});
  return done;
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  {
    const std::scoped_lock guard(held().lock);
    for (const auto& one : held().open)
      if (one.request == *request && *request != MPI_REQUEST_NULL) {
        *flag = 0;
        int ignored = 0;  // MPI continues its work all the same
        return PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &ignored, MPI_STATUS_IGNORE);
      }
  }
  return PMPI_Test(request, flag, status);
}

}  // extern "C"

void operator delete[](void* memory) noexcept {
  if (is_watched) {
    sends& all = held();
    const std::scoped_lock guard(all.lock);
    for (const auto& one : all.open) all.freed += one.bytes == memory ? 1 : 0;
  }
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  operator delete[](memory);
}
void* operator new[](std::size_t size) {
  if (void* const made = std::malloc(size)) return made;
  throw std::bad_alloc();
}

int main() {
  using namespace shardmesh;
  auto keeper = mpi_communicator::world();  // keeps MPI initialised
  if (!keeper || keeper->size() != 2) return 2;
  result<void> done;
  {
    auto comm = mpi_communicator::from_handle(MPI_Comm_c2f(MPI_COMM_WORLD), {.read_peer_memory = false});
    if (!comm) return 2;
    std::vector<std::byte> bytes(200'000, std::byte{7});
    const call_options options{.within = std::chrono::seconds(20)};
    const outgoing out{1, bytes};
    const incoming in{0, bytes};
    is_watched = true;
    auto started =
        comm->rank() == 0 ? comm->start_exchange({&out, 1}, {}, options) : comm->start_exchange({}, {&in, 1}, options);
    done = started ? started->wait() : result<void>(started.error());
  }
  is_watched = false;
  const int freed = held().freed;
  const std::size_t sent = held().open.size();
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  if (freed != 0) std::fprintf(stderr, "rank %d freed %d pieces of memory that MPI held\n", keeper->rank(), freed);
  if (keeper->rank() == 0 && sent == 0) std::fprintf(stderr, "nothing was sent through MPI\n");
  for (auto& one : held().open) PMPI_Wait(&one.request, MPI_STATUS_IGNORE);
  const bool is_good = done && freed == 0 && (keeper->rank() == 1 || sent > 0);
  static_cast<void>(keeper->all_gather({}, {.within = std::chrono::seconds(20)}));
  return is_good ? 0 : 1;
}
