// SPDX-License-Identifier: Apache-2.0
// A consumer of the installed package: values of core, a distribution of layout, an error's text, thread ranks, a state
// dict, and its own module.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <variant>
#include <vector>

import consumer.trainer;
import shardmesh;

int main() {
  using namespace shardmesh;
  // A 5 x 4 tensor split by rows over two ranks: 3 and 2 rows.
  const extents shape{5, 4};
  const std::vector<fragment> rows = {
      {.where = {{0, 0}, {3, 4}}, .owner = 0, .local_offsets = {0, 0}},
      {.where = {{3, 0}, {2, 4}}, .owner = 1, .local_offsets = {0, 0}},
  };
  auto cut = distribution::from_fragments(shape, rows, owner_space::ranks);
  if (!cut) {
    std::fprintf(stderr, "%s\n", to_string(cut.error()).c_str());
    return 1;
  }
  std::int64_t held = 0;
  for (owner_id owner = 0; owner < cut->owners(); ++owner)
    cut->fragments_of(owner, [&](const fragment& f) {
      std::printf("rank %d holds %s\n", owner, to_string(f.where).c_str());
      held += f.where.volume();
      return true;
    });

  // A block of rows that leaves the tensor is an error that names its box.
  const std::vector<fragment> beyond = {{.where = {{4, 0}, {2, 4}}, .local_offsets = {0, 0}}};
  const auto refused = distribution::from_fragments(shape, beyond, owner_space::ranks);
  const bool named = !refused && to_string(refused.error()).find("[4:6, 0:4)") != std::string::npos;

  // Two ranks exchange as many bytes as their number plus one.
  const auto met = run_ranks(2, [](any_communicator& comm) -> result<void> {
    const std::vector<std::byte> mine(static_cast<std::size_t>(comm.rank()) + 1);
    const auto all = comm.all_gather(mine, {});
    if (!all) return all.error();
    if (all->size() == 2 && all->back().size() == 2) return {};
    return fail(errc::communication, "rank 1 gave something else").with_rank(comm.rank());
  });

  state_dict<host_tensor> dict;
  dict.set({"model", "bias"}, host_tensor::make(dtype::float32, {4}).value()).value();
  dict.set({"step"}, 3).value();
  const bool kept = met && dict.size() == 2 && dict.find({"step"})->integer() && !dict.find({"model"});

  const consumer::trainer mine({{"rate", "low"}, {"steps", std::int64_t{3}}}, {2, 2});
  std::string settings;
  mine.each_setting([&](const std::string& key) { settings += key + " "; });
  const bool trains = mine == consumer::trainer(mine) && mine.state().size() == 1 && settings == "rate steps ";

  const auto bytes = size_bytes(dtype::bfloat16, held);
  std::printf("%s: %lld bytes\n", to_string(dtype::bfloat16).c_str(),
              static_cast<long long>(bytes.value_or(-1)));
  return held == 20 && bytes.value_or(-1) == 40 && named && kept && trains ? 0 : 1;
}
