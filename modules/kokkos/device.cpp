// SPDX-License-Identifier: Apache-2.0
// The bodies of device.hpp, in one plain file for nvcc, hipcc, and compilers without a device. It includes no Kokkos
// header. Kokkos chooses the device, but does not launch: so addresses are kernel arguments, and any stream will do.
#include "device.hpp"

#if defined(__CUDACC__) || defined(__HIPCC__)
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/launch.cuh>
#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define SHARDMESH_GPU(name) hip##name
#define SHARDMESH_PINNED_ALLOCATE hipHostMalloc
#define SHARDMESH_PINNED_FREE hipHostFree
#else
#include <cuda_runtime.h>
#define SHARDMESH_GPU(name) cuda##name
#define SHARDMESH_PINNED_ALLOCATE cudaMallocHost
#define SHARDMESH_PINNED_FREE cudaFreeHost
#endif

#include <algorithm>
#include <tuple>
#include <vector>

namespace shardmesh::kokkos_engine {
namespace {

using namespace kernel_bodies;
using status = SHARDMESH_GPU(Error_t);
using stream_type = SHARDMESH_GPU(Stream_t);
using event_type = SHARDMESH_GPU(Event_t);

std::string text_of(status code, const char* action) {
  if (code == SHARDMESH_GPU(Success)) return {};
  (void)SHARDMESH_GPU(GetLastError)();  // clears it, or the next call would return it again
  return std::string(action) + ": " + SHARDMESH_GPU(GetErrorString)(code);
}
stream_type stream_of(void* stream) {
  return static_cast<stream_type>(stream);
}
event_type event_of(void* event) {
  return static_cast<event_type>(event);
}

// The numbers of slots that fit into a kernel's arguments on every device, and on devices from sm_70 on.
constexpr int few_slots = 240, many_slots = 2000;

}  // namespace

class device_batch {
 public:
  struct phase {
    tiled_phase there;  // pointers into device memory
    std::int64_t tiles = 0;
  };
  std::vector<phase> phases;
  std::size_t items = 0;
  std::uint32_t to_slots = 0, from_slots = 0;
  void* memory = nullptr;

  device_batch() = default;
  device_batch(const device_batch&) = delete;
  device_batch& operator=(const device_batch&) = delete;
  ~device_batch() {
    if (memory != nullptr) (void)SHARDMESH_GPU(Free)(memory);
  }

  template <int Slots>
  void launch(std::byte* const* to, const std::byte* const* from, stream_type stream) const {
    slot_addresses<Slots> slots;
    std::copy(to, to + to_slots, slots.at);
    for (std::uint32_t i = 0; i < from_slots; ++i) slots.at[to_slots + i] = const_cast<std::byte*>(from[i]);
    slots.sources = to_slots;
    for (const phase& p : phases) launch_phase(p.there, p.tiles, slots, stream);
  }
};

void device_batch_deleter::operator()(device_batch* batch) const noexcept {
  delete batch;
}

const char* device_space() {
#if defined(__HIPCC__)
  return "HIP";
#else
  return "CUDA";
#endif
}

std::string missing_device() {
  int devices = 0;
  if (auto wrong = text_of(SHARDMESH_GPU(GetDeviceCount)(&devices), "no device"); !wrong.empty()) return wrong;
  return devices > 0 ? std::string() : "there is no device";
}

std::string allocate_on_device(std::int64_t bytes, void* stream, void*& memory) {
  return text_of(SHARDMESH_GPU(MallocAsync)(&memory, static_cast<std::size_t>(bytes), stream_of(stream)), "allocation");
}
void free_on_device(void* memory, void* stream) {
  (void)SHARDMESH_GPU(FreeAsync)(memory, stream_of(stream));
}
std::string allocate_pinned(std::int64_t bytes, void*& memory) {
  return text_of(SHARDMESH_PINNED_ALLOCATE(&memory, static_cast<std::size_t>(bytes)), "allocation of pinned memory");
}
void free_pinned(void* memory) {
  (void)SHARDMESH_PINNED_FREE(memory);
}
std::string copy_on_device(void* to, const void* from, std::int64_t bytes, void* stream) {
  return text_of(SHARDMESH_GPU(MemcpyAsync)(to, from, static_cast<std::size_t>(bytes), SHARDMESH_GPU(MemcpyDefault),
                                            stream_of(stream)),
                 "copy");
}

std::string prepare_on_device(const batch_item* items, std::size_t count, device_batch_pointer& made) {
  made.reset(new device_batch);
  const tile_tables tables = cut_all(items, count, device_tiles);
  made->items = count;
  for (const tile_item& item : tables.items) {
    made->to_slots = std::max(made->to_slots, item.to_slot + 1);
    if (reads(item.op)) made->from_slots = std::max(made->from_slots, item.from_slot + 1);
  }
  if (made->to_slots + made->from_slots > many_slots)
    return "a batch has " + std::to_string(made->to_slots + made->from_slots) + " slots, but a launch takes at most " +
           std::to_string(many_slots);
  if (count == 0) return {};
  const std::size_t item_bytes = tables.items.size() * sizeof(tile_item);
  const std::size_t number_bytes = tables.first_tile.size() * sizeof(std::int64_t);
  if (auto wrong = text_of(SHARDMESH_GPU(Malloc)(&made->memory, item_bytes + number_bytes), "allocation of tables");
      !wrong.empty())
    return wrong;
  auto* const items_there = static_cast<tile_item*>(made->memory);
  auto* const numbers_there = reinterpret_cast<std::int64_t*>(items_there + tables.items.size());
  for (const auto& [there, here, bytes] :
       {std::tuple<void*, const void*, std::size_t>{items_there, tables.items.data(), item_bytes},
        std::tuple<void*, const void*, std::size_t>{numbers_there, tables.first_tile.data(), number_bytes}})
    if (auto wrong = text_of(SHARDMESH_GPU(Memcpy)(there, here, bytes, SHARDMESH_GPU(MemcpyHostToDevice)), "upload");
        !wrong.empty())
      return wrong;
  for (std::size_t p = 0; p < tables.phase_count(); ++p) {
    const tiled_phase here = tables.phase(p);
    made->phases.push_back(
        {{items_there + tables.phases[p], numbers_there + tables.phases[p], here.count}, here.tiles()});
  }
  return {};
}

std::size_t items_of(const device_batch& batch) {
  return batch.items;
}

std::string run_on_device(const device_batch& batch, std::byte* const* to, const std::byte* const* from, void* stream) {
  if (batch.to_slots + batch.from_slots <= few_slots)
    batch.launch<few_slots>(to, from, stream_of(stream));
  else
    batch.launch<many_slots>(to, from, stream_of(stream));
  return text_of(SHARDMESH_GPU(GetLastError)(), "launch");
}

std::string record_on_device(void* stream, void*& event) {
  event_type made{};
  if (auto wrong = text_of(SHARDMESH_GPU(EventCreateWithFlags)(&made, SHARDMESH_GPU(EventDisableTiming)), "event");
      !wrong.empty())
    return wrong;
  event = made;
  return text_of(SHARDMESH_GPU(EventRecord)(made, stream_of(stream)), "event");
}
std::string is_done_on_device(void* event, bool& done) {
  const status code = SHARDMESH_GPU(EventQuery)(event_of(event));
  done = code == SHARDMESH_GPU(Success);
  return code == SHARDMESH_GPU(ErrorNotReady) ? std::string() : text_of(code, "earlier work");
}
std::string wait_on_device(void* event) {
  return text_of(SHARDMESH_GPU(EventSynchronize)(event_of(event)), "earlier work");
}
std::string hold_on_device(void* event, void* stream) {
  return text_of(SHARDMESH_GPU(StreamWaitEvent)(stream_of(stream), event_of(event), 0), "event");
}
void destroy_on_device(void* event) {
  (void)SHARDMESH_GPU(EventDestroy)(event_of(event));
}

}  // namespace shardmesh::kokkos_engine

#else  // no device

namespace shardmesh::kokkos_engine {
namespace {
const char* const none = "this Kokkos was built without a device";
}
class device_batch {};
void device_batch_deleter::operator()(device_batch* batch) const noexcept {
  delete batch;
}
const char* device_space() {
  return nullptr;
}
std::string missing_device() {
  return {};
}
std::string allocate_on_device(std::int64_t, void*, void*&) {
  return none;
}
void free_on_device(void*, void*) {}
std::string allocate_pinned(std::int64_t, void*&) {
  return none;
}
void free_pinned(void*) {}
std::string copy_on_device(void*, const void*, std::int64_t, void*) {
  return none;
}
std::string prepare_on_device(const batch_item*, std::size_t, device_batch_pointer&) {
  return none;
}
std::size_t items_of(const device_batch&) {
  return 0;
}
std::string run_on_device(const device_batch&, std::byte* const*, const std::byte* const*, void*) {
  return none;
}
std::string record_on_device(void*, void*&) {
  return none;
}
std::string is_done_on_device(void*, bool&) {
  return none;
}
std::string wait_on_device(void*) {
  return none;
}
std::string hold_on_device(void*, void*) {
  return none;
}
void destroy_on_device(void*) {}
}  // namespace shardmesh::kokkos_engine

#endif
