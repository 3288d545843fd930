// SPDX-License-Identifier: Apache-2.0
// Not exported: the record of a run, ".shardmesh_run.json" in its folder: the time and metric of each save, and the
// steps that a resume found damaged. PyTorch and other readers ignore it. Everything else about a step is in its own
// folder.
module shardmesh.run:run_record;

import shardmesh.std;
import shardmesh.core;
import :step_names;

namespace shardmesh {

inline constexpr std::string_view run_record_name = ".shardmesh_run.json";

struct run_record {
  struct entry {
    std::chrono::seconds saved{};  // since 1970
    std::optional<double> metric{};
    bool is_damaged = false;  // a resume found so, though the step passes the cheap check
  };
  std::map<std::int64_t, entry> steps;

  // Reads the record of a run; an empty one when there is none. errc::bad_format naming the file and the remedy;
  // errc::io.
  static result<run_record> read(const std::filesystem::path& run);
  // Replaces the record in one step. errc::io, errc::no_space.
  result<void> write(const std::filesystem::path& run, bool durable) const;
};

// Makes the record name these steps, and no others, as damaged. errc::bad_format, errc::io, errc::no_space.
result<void> record_damage(const std::filesystem::path& run, step_names names, const std::set<std::int64_t>& damaged);

// Replaces a small text file in one step.
result<void> replace_text(const std::filesystem::path& file, std::string_view text, bool durable);

}  // namespace shardmesh
