// SPDX-License-Identifier: Apache-2.0
// Not exported: the names of files and folders that are being written, ".NAME.shardmesh-tmp-HOST-PID-RANDOM", and of
// those that are being removed ("...-discarded-PID"). `presence` and `leftover` find out whether their owner lives.
module shardmesh.storage:temporary_name;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// The parts of a temporary name.
struct temporary_name {
  std::string stem;  // NAME, shortened when it is long
  std::string host;  // of the kernel that runs the owner; empty: a name from an older version
  std::int64_t process = 0;
};

// Returns eight digits that identify this boot of this machine, the same in all of its containers. Processes on one
// kernel see each other's locks.
const std::string& this_host();
// The host in the name of a file whose owner was refused a lock: no process can judge whether that owner lives.
inline constexpr std::string_view unseen_host = "ffffffff";

// Makes a new temporary name for `destination`. It is never longer than the folder allows, however long the
// destination's name is.
std::string make_temporary_name(const std::filesystem::path& destination, std::string_view host = this_host());
// Parses a temporary name; returns nothing when `name` is not one of ours.
std::optional<temporary_name> parse_temporary_name(const std::string& name);
// Returns the stem of every temporary name for `destination`.
std::string temporary_stem(const std::filesystem::path& destination);
// Returns the name of `temporary` while it is being removed. A process that looks for `temporary` does not find it.
std::filesystem::path discarded_name(const std::filesystem::path& temporary);
// Returns a name for the remains of `destination` that must be kept: no clean-up removes a file of this name.
std::string kept_name(const std::filesystem::path& destination);

}  // namespace shardmesh
