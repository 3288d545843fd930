// SPDX-License-Identifier: Apache-2.0
// Batches without kernels: copies without conversion, as calls of cudaMemcpyAsync and cudaMemcpy2DAsync.
module;
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.cuda;

import :launcher;

namespace shardmesh::cuda {
namespace {

// A copy of rows of `width` bytes; one row is a plain copy.
struct call {
  std::uint32_t to_slot = 0, from_slot = 0;
  std::int64_t to = 0, from = 0;
  std::size_t width = 0, rows = 1, to_pitch = 0, from_pitch = 0;
};

error refusal(const batch_item& item, device where, std::string_view why) {
  return fail(errc::unsupported, "without the library of CUDA kernels, " + std::string(why) + " on " + to_string(where))
      .with_values("copies of a few runs of bytes", describe(item))
      .with_hint(
          "install NVRTC of CUDA 12.8 or newer, or name its library in SHARDMESH_NVRTC; or install the component "
          "cuda_kernels (CMake: SHARDMESH_WITH_CUDA_KERNELS=ON), or name its library in SHARDMESH_CUDA_KERNELS; "
          "in C++, cuda_options::nvrtc and cuda_options::kernels name them as well");
}

// Appends the calls of an item's loops from `depth` on.
result<void> append(const batch_item& item, int depth, call at, std::int64_t max_pitch, std::size_t most_calls,
                    device where, std::vector<call>& calls) {
  const auto is_row = [&](const batch_loop& loop) {
    const auto width = static_cast<std::int64_t>(at.width);
    return loop.to >= width && loop.from >= width && loop.to <= max_pitch && loop.from <= max_pitch;
  };
  const int left = item.rank - depth;
  if (left == 1 && is_row(item.loops[depth])) {
    const batch_loop& loop = item.loops[depth];
    at.rows = static_cast<std::size_t>(loop.size);
    at.to_pitch = static_cast<std::size_t>(loop.to);
    at.from_pitch = static_cast<std::size_t>(loop.from);
  } else if (left > 0) {
    const batch_loop& loop = item.loops[depth];
    for (std::int64_t i = 0; i < loop.size; ++i) {
      call next = at;
      next.to += i * loop.to;
      next.from += i * loop.from;
      SHARDMESH_TRY(append(item, depth + 1, next, max_pitch, most_calls, where, calls));
    }
    return {};
  }
  if (calls.size() == most_calls) return refusal(item, where, "this would take too many copies");
  calls.push_back(at);
  return {};
}

class copies final : public launchable {
 public:
  copies(const runtime& cuda, device where, std::size_t items, std::vector<call> calls)
      : launchable(where, items), cuda_(cuda), calls_(std::move(calls)) {}
  result<void> launch(const batch_bases& bases, stream_ref stream) override {
    const functions& f = cuda_.call();
    for (const call& c : calls_) {
      std::byte* const to = bases.to[c.to_slot] + c.to;
      const std::byte* const from = bases.from[c.from_slot] + c.from;
      if (to == from) continue;  // a copy onto itself
      const int code = c.rows == 1 ? f.memcpy_async(to, from, c.width, copy_default, stream.handle)
                                   : f.memcpy_2d_async(to, c.to_pitch, from, c.from_pitch, c.width, c.rows,
                                                       copy_default, stream.handle);
      SHARDMESH_TRY(cuda_.check(code, c.rows == 1 ? "cudaMemcpyAsync" : "cudaMemcpy2DAsync", where()));
    }
    return {};
  }

 private:
  runtime cuda_;
  std::vector<call> calls_;
};

class by_copies final : public launcher {
 public:
  by_copies(const runtime& cuda, std::size_t most_calls) : cuda_(cuda), most_calls_(most_calls) {}
  std::string_view name() const override { return "cuda (copies only)"; }
  result<std::unique_ptr<launchable>> prepare(std::span<const batch_item> items, device where) override {
    int max_pitch = 0;
    SHARDMESH_TRY(cuda_.check(cuda_.call().device_get_attribute(&max_pitch, attribute_max_pitch, where.index),
                              "cudaDeviceGetAttribute", where));
    // A stream copies in order, so sorting by phase is enough.
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(items[i].phase, i); });
    std::vector<call> calls;
    for (const std::size_t i : order) {
      const batch_item& item = items[i];
      if (item.op != batch_op::copy) return refusal(item, where, "nothing can be computed");
      if (item.to_type != item.from_type) return refusal(item, where, "no dtype can be converted");
      call first{item.to_slot, item.from_slot, item.to_offset, item.from_offset,
                 static_cast<std::size_t>(item_bytes(item.to_type))};
      batch_item rest = item;
      if (rest.rank > 0 && rest.loops[rest.rank - 1].to == item_bytes(item.to_type) &&
          rest.loops[rest.rank - 1].from == item_bytes(item.to_type))
        first.width *= static_cast<std::size_t>(rest.loops[--rest.rank].size);
      SHARDMESH_TRY(append(rest, 0, first, max_pitch, most_calls_, where, calls));
    }
    return std::unique_ptr<launchable>(std::make_unique<copies>(cuda_, where, items.size(), std::move(calls)));
  }

 private:
  runtime cuda_;
  std::size_t most_calls_;
};

}  // namespace

std::string describe(const batch_item& item) {
  constexpr std::string_view names[] = {"copy", "accumulate", "fill", "scale", "divide"};
  std::string text(names[static_cast<std::size_t>(item.op)]);
  if (item.op == batch_op::accumulate || item.op == batch_op::fill)
    text += " (" + std::string(to_string(item.reduction)) + ")";
  text += " of " + to_string(item.from_type == dtype::undefined ? item.to_type : item.from_type);
  if (item.from_type != dtype::undefined && item.from_type != item.to_type) text += " to " + to_string(item.to_type);
  return text + " in " + std::to_string(item.rank) + (item.rank == 1 ? " loop" : " loops");
}

std::shared_ptr<launcher> copy_launcher(const runtime& cuda, std::size_t most_calls) {
  return std::make_shared<by_copies>(cuda, most_calls);
}

}  // namespace shardmesh::cuda
