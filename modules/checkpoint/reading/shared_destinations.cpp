// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>
#include <strided_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh::detail {
namespace {

const tensor_view& filled_by(const load_request& request) {
  return request.copied_to ? *request.copied_to : request.to;
}

strided_memory bytes_of(const tensor_view& view) {
  return memory_of(view, bits(view.type));
}

// True when both views have the same elements at the same addresses.
bool is_same_memory(const tensor_view& a, const tensor_view& b) {
  if (a.data != b.data || a.type != b.type || a.where != b.where || a.sizes != b.sizes) return false;
  for (std::size_t d = 0; d < a.sizes.rank(); ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

// True when both are parts of one strided tensor in which each element has an address of its own. They then overlap in
// memory exactly where their boxes overlap in the tensor.
bool are_parts_of_one(const load_request& a, const load_request& b) {
  const tensor_view &x = filled_by(a), &y = filled_by(b);
  if (x.type != y.type || x.where != y.where || bits(x.type) % 8 != 0) return false;
  std::int64_t distance = 0;     // between the first elements
  std::vector<byte_step> whole;  // the dimensions of the union; steps in elements
  for (std::size_t d = 0; d < x.sizes.rank(); ++d) {
    const std::int64_t apart = b.where.offsets[d] - a.where.offsets[d];
    if (x.sizes[d] == 1 && y.sizes[d] == 1) {
      if (apart != 0) return false;
      continue;
    }
    if (x.sizes[d] > 1 && y.sizes[d] > 1 && x.strides[d] != y.strides[d]) return false;
    const std::int64_t stride = x.sizes[d] > 1 ? x.strides[d] : y.strides[d];
    const std::int64_t first = std::min(a.where.offsets[d], b.where.offsets[d]);
    whole.push_back({stride < 0 ? -stride : stride, std::max(a.where.end(d), b.where.end(d)) - first - 1});
    distance += apart * stride;
  }
  if (y.data - x.data != distance * item_bytes(x.type)) return false;
  std::ranges::sort(whole, {}, &byte_step::bytes);
  std::int64_t reach = 0;
  for (const byte_step& step : whole) {
    if (step.bytes <= reach) return false;
    reach += step.bytes * step.most;
  }
  return true;
}

error overlap_of(const load_request& earlier, const load_request& later) {
  return fail(errc::overlap, earlier.key == later.key
                                 ? "two of its boxes fill the same memory with different elements"
                                 : fmt::format("fills a part of the memory that {} fills", escaped(earlier.key)))
      .with_key(later.key)
      .with_box(earlier.where)
      .with_box(later.where)
      .with_hint("give each request memory of its own");
}

struct occupied {
  strided_memory memory;
  byte_range where;  // its address range
  std::size_t request = 0;
};

// The requests with elements, sorted by address.
std::vector<occupied> occupied_by(std::span<const load_request> requests) {
  std::vector<occupied> all;
  all.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    strided_memory memory = bytes_of(filled_by(requests[i]));
    const byte_range where = memory.hull();
    if (where.end > where.begin) all.push_back({std::move(memory), where, i});
  }
  std::ranges::sort(all, [](const occupied& a, const occupied& b) {
    return a.where.begin != b.where.begin ? a.where.begin < b.where.begin : a.request < b.request;
  });
  return all;
}

std::vector<shared_destination> listed(const std::map<std::size_t, std::size_t>& earlier_of) {
  std::vector<shared_destination> all;
  for (const auto& [later, earlier] : earlier_of) all.push_back({earlier, later});
  return all;
}

// The elements in row-major order: the view's own memory if it is contiguous on the host, otherwise a copy.
result<std::span<const std::byte>> row_major(const tensor_view& view, host_tensor& copy) {
  const auto size = static_cast<std::size_t>(size_bytes(view.type, numel(view)).value_or(0));
  if (check_host_memory(view) && is_contiguous(view)) return std::span<const std::byte>(view.data, size);
  SHARDMESH_TRY(copy, host_tensor::make(view.type, view.sizes));
  SHARDMESH_TRY(copy_between(adapter<host_tensor>::view(copy), view));
  return std::span<const std::byte>(copy.bytes());
}

}  // namespace

result<shared_destinations> find_shared_destinations(std::span<const load_request> requests) {
  std::map<std::size_t, std::size_t> repeated, tied;  // later request -> earlier request
  const std::vector<occupied> all = occupied_by(requests);
  std::vector<const occupied*> open;  // requests whose memory reaches beyond the start of `one`
  for (const occupied& one : all) {
    std::erase_if(open, [&](const occupied* other) { return other->where.end <= one.where.begin; });
    bool is_known = false;  // has the same memory as another request
    for (const occupied* const other : open) {
      const auto [first, second] = std::minmax(one.request, other->request);
      const load_request &earlier = requests[first], &later = requests[second];
      const tensor_view &x = filled_by(earlier), &y = filled_by(later);
      if (x.where != y.where || !share_a_byte(one.memory, other->memory).value_or(false)) continue;
      const bool is_same = is_same_memory(x, y), is_one_key = earlier.key == later.key;
      if (is_same && (!is_one_key || earlier.where == later.where)) {
        std::size_t& found = (is_one_key ? repeated : tied).try_emplace(second, first).first->second;
        found = std::min(found, first);
        is_known = true;
      } else if (!is_one_key || !are_parts_of_one(earlier, later)) {
        return overlap_of(earlier, later);
      }
    }
    if (!is_known) open.push_back(&one);  // anything that overlaps it also overlaps the other one
  }
  for (const auto& [later, earlier] : repeated) tied.erase(later);
  return shared_destinations{listed(repeated), listed(tied)};
}

result<tied_destinations> tied_destinations::make(std::vector<shared_destination> tied,
                                                  std::span<load_request> requests) {
  tied_destinations made;
  for (const shared_destination& one : tied) {
    load_request& later = requests[one.later];
    if (!is_same_memory(later.to, requests[one.earlier].to)) continue;  // each already has a staging buffer
    auto buffer = host_tensor::make(later.to.type, later.to.sizes);
    if (!buffer) return std::move(buffer).error().with_key(later.key);
    made.buffers_.push_back(*std::move(buffer));
    later.to = adapter<host_tensor>::view(made.buffers_.back());
  }
  made.pending_ = std::move(tied);
  return made;
}

result<void> tied_destinations::compare(std::span<const load_request> requests,
                                        function_ref<bool(std::size_t request)> is_filled) {
  std::vector<shared_destination> left;
  for (const shared_destination& one : pending_) {
    if (!is_filled(one.earlier) || !is_filled(one.later)) {
      left.push_back(one);
      continue;
    }
    const load_request &earlier = requests[one.earlier], &later = requests[one.later];
    host_tensor of_earlier, of_later;
    SHARDMESH_TRY(const auto x, row_major(earlier.to, of_earlier));
    SHARDMESH_TRY(const auto y, row_major(later.to, of_later));
    if (std::memcmp(x.data(), y.data(), x.size()) != 0)
      return fail(errc::disagreement,
                  fmt::format("fills the memory that {} fills, with other values", escaped(earlier.key)))
          .with_key(later.key)
          .with_box(later.where)
          .with_hint("load tied tensors from a checkpoint in which they are equal, or into tensors of their own");
  }
  pending_ = std::move(left);
  return {};
}

}  // namespace shardmesh::detail
