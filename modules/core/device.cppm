// SPDX-License-Identifier: Apache-2.0
// The text of devices ("cpu", "cuda:0") and of remote devices ("rank:1/cuda:0", "worker0/cpu").
export module shardmesh.core:device;

import shardmesh.std;
import :headers;
import :result;

export namespace shardmesh {

std::string to_string(const device& d);
/// Parses a device. \errors errc::invalid_argument when `text` is not "type" or "type:index"
result<device> parse_device(std::string_view text);

std::string to_string(const remote_device& d);
/// Parses "rank:N/DEVICE", "WORKER/DEVICE", "DEVICE", "rank:N", or "WORKER"; the last two are on the CPU. Worker names
/// contain no colon. \errors errc::invalid_argument, naming the text, for any other form
result<remote_device> parse_remote_device(std::string_view text);

}  // namespace shardmesh
