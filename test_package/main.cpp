// SPDX-License-Identifier: Apache-2.0
// A consumer of the installed package: uses something from every room that `import shardmesh;` brings.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

// Moves a 5 x 4 tensor from rows on two ranks to columns: the plan is known before a byte moves.
bool plans() {
  const device_mesh mesh = device_mesh::make(extents{2}).value();
  const extents shape{5, 4};
  const layout rows = layout::make(mesh, {placement::shard(0)}, shape).value();
  const layout columns = layout::make(mesh, {placement::shard(1)}, shape).value();
  const auto made = plan({{distribute(rows).value(), distribute(columns).value(), dtype::bfloat16, dtype::bfloat16}});
  if (!made || made->bytes_moved() != made->lower_bound()) return false;
  std::printf("%s: %lld bytes\n", to_string(dtype::bfloat16).c_str(),
              static_cast<long long>(made->bytes_total()));
  return made->bytes_total() == 40;
}

bool meets() {
  const auto met = run_ranks(2, [](any_communicator& comm) -> result<void> {
    const std::vector<std::byte> mine(static_cast<std::size_t>(comm.rank()) + 1);
    const auto all = comm.all_gather(mine, {});
    if (!all) return all.error();
    if (all->size() == 2 && all->back().size() == 2) return {};
    return fail(errc::communication, "rank 1 gave something else").with_rank(comm.rank());
  });
  return met.has_value();
}

bool keeps() {
  state_dict<host_tensor> dict;
  dict.set({"model", "bias"}, host_tensor::make(dtype::float32, {4}).value()).value();
  dict.set({"step"}, 3).value();
  return dict.size() == 2 && dict.find({"step"})->integer() && !dict.find({"model"});
}

bool flattens() {
  const auto flat = flat_parameter::make({{.fqn = "weight", .shape = {3, 5}, .strides = {}}}, {}, {.group_size = 2});
  return flat && flat->sharded_numel() == 8;
}

bool refuses() {
  const auto opened = open_checkpoint("there/is/no/such/checkpoint");
  return !opened && to_string(opened.error()).find("no/such/checkpoint") != std::string::npos;
}

}  // namespace

int main() {
  return plans() && meets() && keeps() && flattens() && refuses() ? 0 : 1;
}
