// SPDX-License-Identifier: Apache-2.0
// The distributed suite over NCCL, on the double. Ranks are threads with a simulated GPU each, whose work runs late and
// in any legal order. The suite's tensors are in host memory, so every run mirrors them on devices. Tests that pass
// bytes to a communicator directly run with SHARDMESH_FABRIC=staged, which copies messages to the device and back. With
// SHARDMESH_FABRIC=threads, messages take the way over the host instead of NCCL. SHARDMESH_FABRIC_SIZES=1,2 limits the
// numbers of ranks. tests/gpu/kit runs this program on a GPU.
#include <gpu_double/gpu_double.h>

#include <cstdint>
#include <cstdlib>
#include <fabric.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
import shardmesh.comm;
import shardmesh.test.gpu_ranks;
import shardmesh.test.thread_fabric;

using namespace shardmesh;

namespace fabric {
namespace {

bool is_route(std::string_view name) {
  const char* const asked = std::getenv("SHARDMESH_FABRIC");
  return asked != nullptr && asked == name;
}

std::vector<std::int32_t> sizes() {
  const char* const asked = std::getenv("SHARDMESH_FABRIC_SIZES");
  if (asked == nullptr || *asked == '\0') return {1, 2, 4, 8};
  std::vector<std::int32_t> numbers;
  std::istringstream text(asked);
  for (std::string number; std::getline(text, number, ',');) numbers.push_back(std::stoi(number));
  return numbers;
}

// The double's problems, except messages of two sizes, which the conformance suite sends on purpose.
std::string problems_seen() {
  std::istringstream lines(double_problem_text());
  std::string all;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("messages of different sizes")) all += line + "\n";
  return all;
}

std::string run_on_double(std::int32_t size, const rank_body& body) {
  double_reset(seed());
  std::string wrong;
  if (is_route("threads")) {
    wrong = test::on_hosted_gpus(SHARDMESH_GPU_DOUBLE, size, [&](test::hosted_communicator hosted) {
      any_communicator comm(hosted);
      return body(&comm);
    });
  } else {
    wrong = test::on_gpus(SHARDMESH_GPU_DOUBLE, size, [&](nccl_communicator& nccl, any_communicator&) {
      any_communicator comm =
          is_route("staged") ? any_communicator(test::staged_communicator(nccl)) : any_communicator(nccl);
      return body(&comm);
    });
  }
  if (const std::string seen = problems_seen(); wrong.empty() && !seen.empty()) wrong = "the double saw: " + seen;
  return wrong;
}

}  // namespace

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{{is_route("threads")  ? "threads through devices"
                                        : is_route("staged") ? "NCCL, staged"
                                                             : "NCCL",
                                        sizes(), run_on_double, true}};
  return kinds;
}

std::uint64_t seed() {
  return test::seed_of_run();
}

int rounds(int normal) {
  // The double makes threads take turns: a tenth of the rounds, or the normal number in long runs.
  return test::runs_are_long() ? normal : normal / 10;
}

}  // namespace fabric
