// SPDX-License-Identifier: Apache-2.0
// Spelling of devices: "cpu", "cuda:0", and of remote devices: "rank:1/cuda:0", "worker0/cpu".
export module shardmesh.core:device;

import shardmesh.std;
import :extents;
import :result;

export namespace shardmesh {

std::string to_string(const device& d);
/// errc::invalid_argument when `text` is not "type" or "type:index".
result<device> parse_device(std::string_view text);

/// A device of some process: by rank, by worker name, or neither (a device of this process).
/// Source: torch.distributed.remote_device.
struct remote_device {
  std::optional<std::int32_t> rank;
  std::string worker;  // empty: none
  device where;
  friend auto operator<=>(const remote_device&, const remote_device&) = default;
};

std::string to_string(const remote_device& d);
/// errc::invalid_argument, with the text, when it is none of "rank:N/DEVICE", "WORKER/DEVICE", "DEVICE", "rank:N",
/// "WORKER" (the last two are on the CPU). Names of workers have no colon.
result<remote_device> parse_remote_device(std::string_view text);

}  // namespace shardmesh
