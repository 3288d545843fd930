// SPDX-License-Identifier: Apache-2.0
// Not exported: the record of a run, ".shardmesh_run.json" in its folder: the time and metric of each save. PyTorch and
// other readers ignore it. Everything else about a step is in the step's own folder.
module shardmesh.run:run_record;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

inline constexpr std::string_view run_record_name = ".shardmesh_run.json";

struct run_record {
  struct entry {
    std::chrono::seconds saved{};  // since 1970
    std::optional<double> metric{};
  };
  std::map<std::int64_t, entry> steps;

  // Reads the record of a run; an empty one when there is none. errc::bad_format naming the file and the remedy;
  // errc::io.
  static result<run_record> read(const std::filesystem::path& run);
  // Replaces the record in one step. errc::io, errc::no_space.
  result<void> write(const std::filesystem::path& run, bool durable) const;
};

// Replaces a small text file in one step.
result<void> replace_text(const std::filesystem::path& file, std::string_view text, bool durable);

}  // namespace shardmesh
