// SPDX-License-Identifier: Apache-2.0
// Copies between the memory of any two devices, as `copy` does on the host.
export module shardmesh.kernels:copy_between;

import shardmesh.std;
import shardmesh.core;
import :device_buffer;

export namespace shardmesh {

/// Copies as `copy` does, on and between any devices. On one device, its backend copies. Across devices, elements are
/// packed on the source's device (unless contiguous), moved, and then unpacked and converted on the destination's.
/// A stream in `call` belongs to the destination's device, or to the source's if the destination is on the host. The
/// work is enqueued on it, and both memories must live until the stream has finished it. Without a stream, the
/// destination is complete on return.
/// \errors those of `copy`; errc::unsupported naming the device that no backend reaches
result<void> copy_between(const tensor_view& to, const const_tensor_view& from, const call_options& call = {});

/// Elements in memory that the host can read.
struct host_elements {
  const_tensor_view view;
  device_buffer memory;  // of a copy; empty if the view is the tensor's own memory
};
/// Returns the view itself if it is in host memory, else a row-major copy of it. \errors errc::no_memory, those of
/// `copy_between`
result<host_elements> on_host(const const_tensor_view& view, const call_options& call = {});

}  // namespace shardmesh
