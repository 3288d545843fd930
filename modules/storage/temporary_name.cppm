// SPDX-License-Identifier: Apache-2.0
// Not exported: the names of things that are being written, ".NAME.shardmesh-tmp-HOST-PID-RANDOM", and of those that
// are being taken away ("...-discarded-PID"). Not here: whether their owner lives (presence, leftover).
module shardmesh.storage:temporary_name;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// What a temporary name says.
struct temporary_name {
  std::string stem;  // NAME, shortened where it is long
  std::string host;  // of the kernel that runs the owner; empty: a name that older versions gave
  std::int64_t process = 0;
};

// Eight digits: this boot of this machine, the same in all of its containers. Locks of one kernel see each other.
const std::string& this_host();
// The host in the name of a thing whose owner was refused a lock: whether it lives cannot be judged from anywhere.
inline constexpr std::string_view unseen_host = "ffffffff";

// A new name for what will be `destination`. Never longer than its folder allows, whatever the destination's length.
std::string make_temporary_name(const std::filesystem::path& destination, std::string_view host = this_host());
// Nothing when `name` is not one of ours.
std::optional<temporary_name> parse_temporary_name(const std::string& name);
// The stem of every temporary name that is given for `destination`.
std::string temporary_stem(const std::filesystem::path& destination);
// The name of `temporary` while it is taken away: never found by whoever looks for `temporary`.
std::filesystem::path discarded_name(const std::filesystem::path& temporary);
// A name for what is left of `destination` and must be kept: not one that is ever cleaned.
std::string kept_name(const std::filesystem::path& destination);

}  // namespace shardmesh
