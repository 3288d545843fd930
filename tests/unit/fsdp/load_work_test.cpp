// SPDX-License-Identifier: Apache-2.0
// Tests that loading does work in proportion to the number of entries. The quadratic work of an earlier version
// compared keys and allocated nothing. So the test compares CPU times of two sizes, at which a square would be far off.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

// The clock ticks for loading `count` buffers from a state dict with as many unexpected keys.
std::clock_t ticks_of(std::size_t count) {
  std::vector<float> values(count, -1.0F);
  fsdp_model model;
  state_dict<host_tensor> dict;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string key = "buffer." + std::to_string(100'000 + i);
    model.tensors.push_back({key, {reinterpret_cast<std::byte*>(&values[i]), dtype::float32, {}, {}, {}}});
    for (const std::string& name : {key, "nobody" + key}) {
      host_tensor tensor = host_tensor::make(dtype::float32, {}).value();
      *reinterpret_cast<float*>(tensor.bytes().data()) = static_cast<float>(i);
      REQUIRE(dict.set(path{name}, std::move(tensor)));
    }
  }
  std::clock_t ticks = 0;
  const auto ran = run_ranks(1, [&](any_communicator& comm) -> result<void> {
    const std::clock_t begin = std::clock();
    const auto loaded = load_state_dict(model, dict, comm, {.mode = load_mode::report});
    ticks = std::clock() - begin;
    if (!loaded) return loaded.error();
    CHECK(loaded->keys(load_status::loaded).size() == count);
    CHECK(loaded->keys(load_status::unexpected).size() == count);
    return {};
  });
  REQUIRE(ran);
  for (std::size_t i = 0; i < count; ++i)
    if (values[i] != static_cast<float>(i)) FAIL("buffer " << i << " has the value " << values[i]);
  return ticks;
}

}  // namespace

TEST_CASE("loading's work grows with the number of entries, not with its square") {
  const std::clock_t few = std::min({ticks_of(1000), ticks_of(1000), ticks_of(1000)}), many = ticks_of(20'000);
  INFO(few << " clock ticks for 1000 entries, " << many << " for 20000");
  CHECK(many < 100 * std::max<std::clock_t>(few, 1000));  // a factor of 20 is linear, 400 is quadratic
}
