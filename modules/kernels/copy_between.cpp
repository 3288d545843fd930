// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
module shardmesh.kernels;

import :loops;

namespace shardmesh {
namespace {

// Copies on one device.
result<void> copy_on(kernel_backend& backend, const tensor_view& to, const const_tensor_view& from, stream_ref stream) {
  batch_builder work;
  SHARDMESH_TRY(work.copy(place(0, to.data, to), place(0, from.data, from)));
  if (work.empty()) return {};
  SHARDMESH_TRY(const auto batch, backend.prepare(work.items(), to.where));
  const std::array<std::byte*, 1> targets{to.data};
  const std::array<const std::byte*, 1> sources{from.data};
  return backend.run(*batch, {targets, sources}, stream);
}

result<void> wait_for(kernel_backend& backend, device where, stream_ref stream) {
  SHARDMESH_TRY(const auto event, backend.record(where, stream));
  return event->wait();
}

}  // namespace

result<void> copy_between(const tensor_view& to, const const_tensor_view& from, const call_options& call) {
  if (to.where.type == device_type::cpu && from.where.type == device_type::cpu) return copy(to, from);
  SHARDMESH_TRY(check_shapes(to.sizes, from.sizes));
  if (!is_convertible(from.type, to.type))
    return fail(errc::unsupported,
                "no conversion from " + std::string(name(from.type)) + " to " + std::string(name(to.type)));
  SHARDMESH_TRY(const auto writer, backend_for(to.where));
  SHARDMESH_TRY(const auto reader, backend_for(from.where));
  if (numel(to) == 0) return {};
  if (to.where == from.where) {
    SHARDMESH_TRY(copy_on(*writer, to, from, call.stream));
    return call.stream.handle != nullptr ? result<void>() : wait_for(*writer, to.where, {});
  }

  // Elements travel in the source's dtype, contiguous: packed at the source, unpacked and converted at the destination.
  // The stream belongs to one device.
  const bool to_device = to.where.type != device_type::cpu;
  kernel_backend& mover = to_device ? *writer : *reader;
  const stream_ref writing = to_device ? call.stream : stream_ref{}, reading = to_device ? stream_ref{} : call.stream;
  const std::int64_t size_bytes = numel(from) * bits(from.type) / 8;
  const extents row_major = contiguous_strides(from.sizes);
  device_buffer packed, arrived;
  const std::byte* sent = from.data;
  std::byte* landing = to.data;
  if (!is_contiguous(from)) {
    SHARDMESH_TRY(packed, from.where.type == device_type::cpu ? mover.allocate_staging(size_bytes, to.where)
                                                              : reader->allocate(size_bytes, from.where, reading));
    SHARDMESH_TRY(copy_on(*reader, {packed.data(), from.type, from.where, from.sizes, row_major}, from, reading));
    sent = packed.data();
  }
  const bool lands_elsewhere = to.type != from.type || !is_contiguous(to);
  if (lands_elsewhere) {
    SHARDMESH_TRY(arrived, to_device ? writer->allocate(size_bytes, to.where, writing)
                                     : mover.allocate_staging(size_bytes, from.where));
    landing = arrived.data();
  }
  if (to_device && from.where.type != device_type::cpu) SHARDMESH_TRY(wait_for(*reader, from.where, reading));
  SHARDMESH_TRY(mover.copy_across(landing, to.where, sent, from.where, size_bytes, call.stream));
  if (lands_elsewhere) {
    if (!to_device) SHARDMESH_TRY(wait_for(mover, from.where, call.stream));  // the host unpacks
    SHARDMESH_TRY(copy_on(*writer, to, {landing, from.type, to.where, from.sizes, row_major}, writing));
  }
  // Host memory that was used on the way is freed only when nothing reads it any more.
  const bool keeps_staging = packed.data() != nullptr && packed.where().type == device_type::cpu;
  const bool may_go_on = call.stream.handle != nullptr && !keeps_staging;
  return may_go_on ? result<void>() : wait_for(mover, to_device ? to.where : from.where, call.stream);
}

result<host_elements> on_host(const const_tensor_view& view, const call_options& call) {
  if (view.where.type == device_type::cpu) return host_elements{view, {}};
  SHARDMESH_TRY(const auto backend, backend_for(view.where));
  SHARDMESH_TRY(device_buffer memory, backend->allocate_staging((numel(view) * bits(view.type) + 7) / 8, view.where));
  const tensor_view copied{memory.data(), view.type, {}, view.sizes, contiguous_strides(view.sizes)};
  call_options at_once = call;  // the host reads it on return
  at_once.stream = {};
  SHARDMESH_TRY(copy_between(copied, view, at_once));
  return host_elements{copied, std::move(memory)};
}

}  // namespace shardmesh
