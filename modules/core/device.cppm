// SPDX-License-Identifier: Apache-2.0
// Spelling of devices: "cpu", "cuda:0", and of remote devices: "rank:1/cuda:0", "worker0/cpu".
export module shardmesh.core:device;

import shardmesh.std;
import :headers;
import :result;

export namespace shardmesh {

std::string to_string(const device& d);
/// errc::invalid_argument when `text` is not "type" or "type:index".
result<device> parse_device(std::string_view text);

std::string to_string(const remote_device& d);
/// errc::invalid_argument, with the text, when it is none of "rank:N/DEVICE", "WORKER/DEVICE", "DEVICE", "rank:N",
/// "WORKER" (the last two are on the CPU). Names of workers have no colon.
result<remote_device> parse_remote_device(std::string_view text);

}  // namespace shardmesh
