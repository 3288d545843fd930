// SPDX-License-Identifier: Apache-2.0
// NCCL as module nccl uses it, without the module: thread ranks, nonblocking communicators, groups of messages,
// collectives, a split, an abort. Both libraries are loaded at run time; any libraries with their C ABI will do.
//   nccl_ranks LIBCUDART LIBNCCL RANKS RANKS_PER_DEVICE
// Exits with 0 if all bytes are right, with 77 and the reason if it cannot run here, and with 1 on errors.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define GPU_DOUBLE_TYPES_ONLY
#include "gpu_double/cuda_abi.h"
#include "gpu_double/nccl_abi.h"

using namespace gpu_double;

namespace {

struct functions {
#define CUDA_DOUBLE_FUNCTION(result, name, parameters) result(*name) parameters = nullptr;
#include "gpu_double/cuda_functions.inc"
#undef CUDA_DOUBLE_FUNCTION
#define NCCL_DOUBLE_FUNCTION(result, name, parameters) result(*name) parameters = nullptr;
#include "gpu_double/nccl_functions.inc"
#undef NCCL_DOUBLE_FUNCTION
};
functions api;

[[noreturn]] void not_here(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  std::exit(77);
}

void load(const char* cudart, const char* nccl) {
  void* const cuda_library = dlopen(cudart, RTLD_NOW | RTLD_LOCAL);
  if (!cuda_library) not_here(std::string("libcudart was not found: ") + dlerror());
  void* const nccl_library = dlopen(nccl, RTLD_NOW | RTLD_LOCAL);
  if (!nccl_library) not_here(std::string("libnccl was not found: ") + dlerror());
#define CUDA_DOUBLE_FUNCTION(result, name, parameters) \
  api.name = reinterpret_cast<result(*) parameters>(dlsym(cuda_library, #name));
#include "gpu_double/cuda_functions.inc"
#define NCCL_DOUBLE_FUNCTION(result, name, parameters) \
  api.name = reinterpret_cast<result(*) parameters>(dlsym(nccl_library, #name));
#include "gpu_double/nccl_functions.inc"
}

std::mutex print_lock;
bool wrong = false;

struct rank_state {
  int rank = 0, ranks = 1;
  void* comm = nullptr;
  void* stream = nullptr;

  void fail(const std::string& what) const {
    const std::lock_guard<std::mutex> guard(print_lock);
    std::printf("WRONG rank %d of %d: %s\n", rank, ranks, what.c_str());
    wrong = true;
  }
  void check(bool good, const std::string& what) const {
    if (!good) fail(what);
  }
  void cuda(int error, const char* what) const {
    if (error != 0) fail(std::string(what) + ": " + api.cudaGetErrorString(error));
  }
  int state() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    int found = nccl_in_progress;
    while (found == nccl_in_progress && std::chrono::steady_clock::now() < end)
      if (const int asked = api.ncclCommGetAsyncError(comm, &found); asked != 0) return asked;
    return found;
  }
  bool nccl(int result, const char* what) const {
    if (result == nccl_in_progress) result = state();
    if (result != 0)
      fail(std::string(what) + ": " + api.ncclGetErrorString(result) + "; " + api.ncclGetLastError(comm));
    return result == 0;
  }
};

// Freed when all ranks are done. cudaFree waits for the whole device, and so for other ranks' work on it, which may
// wait for this rank.
std::vector<void*> freed_at_the_end;

enum class memory_of { stream, device };

// Values on the device: `value(i)` at the start, read back through the stream.
template <class T>
class values {
 public:
  values(const rank_state& at, std::size_t count, const std::function<T(std::size_t)>& value,
         memory_of memory = memory_of::stream)
      : at_(at), host_(count), from_(memory) {
    for (std::size_t i = 0; i < count; ++i) host_[i] = value(i);
    if (from_ == memory_of::stream)
      at.cuda(api.cudaMallocAsync(&memory_, count * sizeof(T), at.stream), "cudaMallocAsync");
    else
      at.cuda(api.cudaMalloc(&memory_, count * sizeof(T)), "cudaMalloc");
    at.cuda(api.cudaMemcpyAsync(memory_, host_.data(), count * sizeof(T), host_to_device, at.stream), "copy");
    at.cuda(api.cudaStreamSynchronize(at.stream), "synchronize");
  }
  values(values&& other) noexcept
      : at_(other.at_), host_(std::move(other.host_)), from_(other.from_), memory_(other.memory_) {
    other.memory_ = nullptr;
  }
  ~values() {
    if (!memory_) return;
    if (from_ == memory_of::stream) {
      at_.cuda(api.cudaFreeAsync(memory_, at_.stream), "cudaFreeAsync");
    } else {
      const std::lock_guard<std::mutex> guard(print_lock);
      freed_at_the_end.push_back(memory_);
    }
  }
  T* data() const { return static_cast<T*>(memory_); }
  std::vector<T> read() const {
    std::vector<T> seen(host_.size());
    at_.cuda(api.cudaMemcpyAsync(seen.data(), memory_, seen.size() * sizeof(T), device_to_host, at_.stream), "copy");
    at_.cuda(api.cudaStreamSynchronize(at_.stream), "synchronize");
    return seen;
  }

 private:
  const rank_state& at_;
  std::vector<T> host_;
  memory_of from_;
  void* memory_ = nullptr;
};

// Messages whose sizes differ from pair to pair, from nothing to megabytes.
void exchange(const rank_state& at) {
  const auto count = [&](int from, int to) {
    constexpr std::size_t sizes[] = {0, 1, 1000, 65536, 3000001};
    return sizes[static_cast<std::size_t>(from * 3 + to) % 5];
  };
  const auto value = [](int from, int to, std::size_t i) {
    return static_cast<unsigned char>(static_cast<std::size_t>(from * 31 + to * 7) + i * 13);
  };
  std::vector<values<unsigned char>> out, in;
  for (int peer = 0; peer < at.ranks; ++peer) {
    out.emplace_back(at, count(at.rank, peer) + 1, [&](std::size_t i) { return value(at.rank, peer, i); });
    in.emplace_back(at, count(peer, at.rank) + 1, [](std::size_t) { return 0xEE; });
  }
  at.nccl(api.ncclGroupStart(), "ncclGroupStart");
  for (int peer = 0; peer < at.ranks; ++peer) {
    if (count(at.rank, peer) > 0)
      api.ncclSend(out[static_cast<std::size_t>(peer)].data(), count(at.rank, peer), nccl_uint8, peer, at.comm,
                   at.stream);
    if (count(peer, at.rank) > 0)
      api.ncclRecv(in[static_cast<std::size_t>(peer)].data(), count(peer, at.rank), nccl_uint8, peer, at.comm,
                   at.stream);
  }
  if (!at.nccl(api.ncclGroupEnd(), "ncclGroupEnd")) return;
  for (int peer = 0; peer < at.ranks; ++peer) {
    std::vector<unsigned char> wanted(count(peer, at.rank) + 1, 0xEE);
    for (std::size_t i = 0; i + 1 < wanted.size(); ++i) wanted[i] = value(peer, at.rank, i);
    at.check(in[static_cast<std::size_t>(peer)].read() == wanted, "what came from " + std::to_string(peer));
  }
}

void collectives(const rank_state& at) {
  const auto n = static_cast<std::size_t>(at.ranks);
  const std::size_t each = 1000;
  const auto value = [](int rank, std::size_t i) { return static_cast<int>(i % 97) + rank * 1000; };
  const values<int> from(at, each * n, [&](std::size_t i) { return value(at.rank, i); });
  const auto answer = [&](std::size_t count) { return values<int>(at, count, [](std::size_t) { return -1; }); };
  const auto expect = [&](const values<int>& got, const std::function<int(std::size_t)>& wanted, const char* what) {
    const std::vector<int> seen = got.read();
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (seen[i] != wanted(i)) return at.fail(std::string(what) + ": element " + std::to_string(i));
  };
  const auto sum = [&](std::size_t i) {
    int total = 0;
    for (int r = 0; r < at.ranks; ++r) total += value(r, i);
    return total;
  };
  {
    const values<int> to = answer(each * n);
    if (at.nccl(api.ncclAllGather(from.data(), to.data(), each, nccl_int32, at.comm, at.stream), "ncclAllGather"))
      expect(to, [&](std::size_t i) { return value(static_cast<int>(i / each), i % each); }, "ncclAllGather");
  }
  {
    const values<int> to = answer(each);
    if (at.nccl(api.ncclReduceScatter(from.data(), to.data(), each, nccl_int32, nccl_sum, at.comm, at.stream),
                "ncclReduceScatter"))
      expect(to, [&](std::size_t i) { return sum(static_cast<std::size_t>(at.rank) * each + i); }, "ncclReduceScatter");
  }
  {
    const values<int> to = answer(each);
    if (at.nccl(api.ncclAllReduce(from.data(), to.data(), each, nccl_int32, nccl_sum, at.comm, at.stream),
                "ncclAllReduce"))
      expect(to, sum, "ncclAllReduce");
  }
  {
    const values<int> to = answer(each);
    const int root = at.ranks - 1;
    if (at.nccl(api.ncclBroadcast(from.data(), to.data(), each, nccl_int32, root, at.comm, at.stream), "ncclBroadcast"))
      expect(to, [&](std::size_t i) { return value(root, i); }, "ncclBroadcast");
  }
  if (api.ncclAlltoAll) {
    const values<int> to = answer(each * n);
    if (at.nccl(api.ncclAlltoAll(from.data(), to.data(), each, nccl_int32, at.comm, at.stream), "ncclAlltoAll"))
      expect(
          to,
          [&](std::size_t i) {
            return value(static_cast<int>(i / each), static_cast<std::size_t>(at.rank) * each + i % each);
          },
          "ncclAlltoAll");
  }
}

// One communicator for each parity of ranks, with registered memory.
void split(const rank_state& at) {
  rank_state sub = at;
  if (!at.nccl(api.ncclCommSplit(at.comm, at.rank % 2, at.rank, &sub.comm, nullptr), "ncclCommSplit")) return;
  if (!sub.nccl(nccl_in_progress, "the split communicator")) return;
  const values<int> memory(at, 100, [&](std::size_t) { return at.rank; }, memory_of::device);
  void* registration = nullptr;
  sub.nccl(api.ncclCommRegister(sub.comm, memory.data(), 400, &registration), "ncclCommRegister");
  int wanted = 0;
  for (int r = at.rank % 2; r < at.ranks; r += 2) wanted += r;
  if (sub.nccl(api.ncclAllReduce(memory.data(), memory.data(), 100, nccl_int32, nccl_sum, sub.comm, at.stream), "sum"))
    at.check(memory.read() == std::vector<int>(100, wanted), "the sum within a split");
  sub.nccl(api.ncclCommDeregister(sub.comm, registration), "ncclCommDeregister");
  sub.nccl(api.ncclCommDestroy(sub.comm), "ncclCommDestroy");
}

// The last rank does not take part; an abort frees the others.
void abort(const rank_state& at) {
  const values<int> memory(at, 100, [](std::size_t) { return 1; });
  if (at.rank < at.ranks - 1) {
    const int started = api.ncclAllReduce(memory.data(), memory.data(), 100, nccl_int32, nccl_sum, at.comm, at.stream);
    at.check(started == nccl_success || started == nccl_in_progress, "ncclAllReduce without the last rank");
    for (int i = 0; i < 100; ++i) {
      int state = 0;
      api.ncclCommGetAsyncError(at.comm, &state);
      at.check(api.cudaStreamQuery(at.stream) == cuda_not_ready || state == nccl_in_progress,
               "done without the last rank");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  at.nccl(api.ncclCommAbort(at.comm), "ncclCommAbort");
  at.cuda(api.cudaStreamSynchronize(at.stream), "synchronize after the abort");
}

bool start(rank_state& at, const nccl_unique_id& id, int device) {
  at.cuda(api.cudaSetDevice(device), "cudaSetDevice");
  at.cuda(api.cudaStreamCreateWithFlags(&at.stream, stream_non_blocking), "stream");
  nccl_config config{sizeof(nccl_config), nccl_config_magic, 22700,          0,
                     nccl_undefined,      nccl_undefined,    nccl_undefined, nullptr,
                     nccl_undefined,      nccl_undefined,    nullptr,        nccl_undefined,
                     nccl_undefined,      nccl_undefined,    nccl_undefined};
  return at.nccl(api.ncclCommInitRankConfig(&at.comm, at.ranks, id, at.rank, &config), "ncclCommInitRankConfig");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  const int ranks = std::atoi(arguments[3]);
  const int per_device = std::atoi(arguments[4]);
  load(arguments[1], arguments[2]);
  int devices = 0;
  if (const int error = api.cudaGetDeviceCount(&devices); error != 0 || devices == 0)
    not_here(std::string("there is no GPU: ") + api.cudaGetErrorString(error));
  if (devices * per_device < ranks)
    not_here(std::to_string(ranks) + " ranks need more than " + std::to_string(devices) + " devices");
  int version = 0;
  api.ncclGetVersion(&version);
  nccl_unique_id id{};
  if (const int error = api.ncclGetUniqueId(&id); error != 0) not_here(api.ncclGetErrorString(error));

  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      rank_state at;
      at.rank = rank;
      at.ranks = ranks;
      if (!start(at, id, rank / per_device)) return;
      exchange(at);
      collectives(at);
      split(at);
      if (ranks > 1)
        abort(at);
      else
        at.nccl(api.ncclCommDestroy(at.comm), "ncclCommDestroy");
      at.cuda(api.cudaStreamDestroy(at.stream), "end of the stream");
    });
  for (std::thread& each : threads) each.join();
  for (void* each : freed_at_the_end) api.cudaFree(each);
  std::printf("NCCL %d: %d ranks, %d on a device: %s\n", version, ranks, per_device,
              wrong ? "WRONG" : "all bytes are right");
  return wrong ? 1 : 0;
}
