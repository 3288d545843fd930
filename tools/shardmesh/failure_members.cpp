// SPDX-License-Identifier: Apache-2.0
#include "failure_members.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tool {
namespace {

// Members of one command with the same empty value, which is JSON. The names are separated by spaces.
struct empty_members {
  std::string_view command, value, names;
};

constexpr empty_members members[] = {
    {"inspect", "null", "format version"},
    {"inspect", "{}", "tensors objects files metadata"},
    {"inspect", "[]", "globals"},
    {"verify", "[]", "warnings notes dangerous_globals globals"},
    {"verify", "0",
     "chunks objects bytes checked_bytes unchecked_chunks unchecked_objects unread_tensors unknown_globals"},
    {"diff", "\"\"", "left right"},
    {"diff", "null", "equal"},
    {"diff", "0", "differing_keys more_differences tensors objects bytes"},
    {"diff", "{}", "kinds"},
    {"diff", "[]", "differences unread_tensors notes"},
    {"convert", "0", "tensors bytes objects files skipped_tensors skipped_objects excluded"},
    {"convert", "null", "objects_file"},
    {"convert", "[]", "notes"},
    {"reshard", "0", "tensors bytes objects files skipped_tensors skipped_objects excluded ranks"},
    {"reshard", "null", "objects_file"},
    {"reshard", "[]", "notes"},
    {"layout", "[]", "shape mesh mesh_names placements ranks"},
    {"layout", "\"\"", "dtype"},
    {"layout", "null", "bytes"},
    {"plan", "[]", "shape links copies"},
    {"plan", "\"\"", "dtype"},
    {"plan", "{}", "from to peak_bytes"},
    {"plan", "0", "bytes_total bytes_moved lower_bound"},
    {"plan CKPT", "\"\"", "checkpoint map"},
    {"plan CKPT", "{}", "from to"},
    {"plan CKPT", "0", "tensors_before tensors_after moves bytes_total bytes_moved lower_bound"},
    {"plan CKPT", "[]", "notes warnings ranks links"},
    {"clean", "false", "dry_run"},
    {"clean", "[]", "removed kept"},
    {"map", "\"\"", "key dtype from to rule index"},
    {"map", "[]", "shape values sources boxes"},
    {"map", "0", "more_boxes"},
    {"run", "[]", "steps copied_from notes"},
    {"run", "false", "dry_run"},
    {"run", "0", "removed_steps removed_leftovers removed_bytes copied_bytes"},
    {"run resume-plan", "null", "step"},
    {"run resume-plan", "\"\"", "path"},
    {"run resume-plan", "{}", "to"},
    {"run resume-plan", "0", "tensors stored_bytes bytes_total lower_bound"},
    {"run resume-plan", "[]", "skipped files ranks links notes warnings"},
    {"delta", "[]", "notes"},
    {"delta", "0", "tensors bytes objects unchanged changed added removed delta_bytes skipped_tensors skipped_objects"},
    {"check-shards", "[]", "size"},
    {"check-shards", "0", "shards"},
    {"check-shards", "1", "total"},
    {"check-shards", "true", "total_is_exact"},
    {"devices", "[]", "gpus"},
    {"devices", "null", "problem"},
    {"devices", "{}", "libraries kernel_cache"},
    {"devices", "\"none\"", "kernels"},
};

}  // namespace

void write_empty_members(json_writer& out, std::string_view command) {
  for (const empty_members& one : members) {
    if (one.command != command) continue;
    for (std::string_view rest = one.names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      out.key(rest.substr(0, end)).raw(one.value);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
}

}  // namespace tool
