// SPDX-License-Identifier: Apache-2.0
// `run resume-plan`: which files of a step each rank of a mesh needs. The plan of a move between two meshes is in
// checkpoint_plan.hpp.
#pragma once
#include <string>
#include <vector>

#include "checkpoint_plan.hpp"

import shardmesh;
import shardmesh.run;

namespace tool {

struct common_options;

/// The options of the action.
struct resume_plan_arguments {
  std::string mesh, defaults, svg;
  std::vector<std::string> places;
  bool json = false, force = false;
};

/// Parses the mesh that resumes, and the placements on it.
shardmesh::result<placed_mesh> parse_resuming_mesh(const resume_plan_arguments& given);

/// Plans the load of the newest good step on a mesh, and prints the plan. No tensor is read. Returns the exit status.
/// Precondition: there is such a step.
int print_resume_plan(const shardmesh::latest_step& found, const placed_mesh& to, const resume_plan_arguments& given,
                      const common_options& common);

}  // namespace tool
