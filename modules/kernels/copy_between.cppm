// SPDX-License-Identifier: Apache-2.0
// copy_between: `copy` for memory of any devices.
export module shardmesh.kernels:copy_between;

import shardmesh.std;
import shardmesh.core;
import :device_buffer;

export namespace shardmesh {

/// As `copy`, wherever the two are: on one device by its backend; across devices packed on the one (where
/// it is not contiguous), moved, and unpacked and converted on the other. With a stream in `call`, which is one of the
/// destination's device or else of the source's, the work is enqueued there and both memories live until the stream has
/// passed it; without, the destination is whole when it returns.
/// \errors those of `copy`; errc::unsupported naming the device that no backend reaches
result<void> copy_between(const tensor_view& to, const const_tensor_view& from, const call_options& call = {});

/// Elements where the host can look at them.
struct host_elements {
  const_tensor_view view;
  device_buffer memory;  // of a copy; empty when the view is the tensor's own memory
};
/// The view itself when it is the host's, else a row-major copy of it. \errors errc::no_memory, those of `copy_between`
result<host_elements> on_host(const const_tensor_view& view, const call_options& call = {});

}  // namespace shardmesh
