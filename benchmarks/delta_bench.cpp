// SPDX-License-Identifier: Apache-2.0
// Times deltas of bfloat16 weights of which 1 % changed, on one thread, with the fastest setting, beside memcpy of the
// same bytes.
//   shardmesh_delta_bench make|apply|memcpy FOLDER BYTES REPEAT
// Writes base.safetensors, next.safetensors, and their delta into FOLDER, unless they are there. Prints
// {"bytes":n,"seconds":[..],"delta_bytes":n}.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.delta;

namespace {
using namespace shardmesh;
namespace fs = std::filesystem;

constexpr std::int64_t changed_percent = 1;

struct arguments {
  std::string name;
  fs::path folder;
  std::int64_t bytes = 0;
  int repeat = 0;

  fs::path base() const { return folder / "base.safetensors"; }
  fs::path next() const { return folder / "next.safetensors"; }
  fs::path delta() const { return folder / "next.delta"; }
};

std::unique_ptr<checkpoint_reader> opened(const fs::path& path) {
  return open_checkpoint(path).value();
}

void write(const fs::path& file, const host_tensor& tensor) {
  const std::vector<save_tensor> tensors{
      {"weight", {}, tensor.sizes(), {{box::whole(tensor.sizes()), view_of(tensor)}}}};
  save(file, tensors, target_format::safetensors, {.overwrite = true, .durable = false}).value();
}

void make(const arguments& given) {
  const auto base = opened(given.base()), next = opened(given.next());
  save_delta(*base, *next, given.delta(),
             {.level = -7, .check_sums = false, .overwrite = true, .durable = false, .threads = 1})
      .value();
}

void write_samples(const arguments& given) {
  if (fs::exists(given.delta())) return;
  fs::create_directories(given.folder);
  host_tensor weight = host_tensor::make(dtype::bfloat16, {given.bytes / 2048, 1024}).value();
  std::mt19937_64 random(1);
  const std::span<std::byte> bytes = weight.bytes();
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  write(given.base(), weight);
  const std::size_t elements = bytes.size() / 2;
  for (std::size_t i = 0; i < elements * changed_percent / 100; ++i) {
    const std::size_t element = random() % elements;
    const auto value = static_cast<std::uint16_t>(random());
    std::memcpy(bytes.data() + 2 * element, &value, sizeof value);
  }
  write(given.next(), weight);
  make(given);
}

std::vector<double> timed(const arguments& given) {
  std::vector<std::byte> to(static_cast<std::size_t>(given.bytes), std::byte{1}), from(to.size(), std::byte{2});
  std::vector<double> seconds;
  for (int i = 0; i <= given.repeat; ++i) {  // the first is not counted
    const auto begin = std::chrono::steady_clock::now();
    if (given.name == "make") {
      make(given);
    } else if (given.name == "apply") {
      const auto reader = open_delta(opened(given.base()), given.delta()).value();
      const extents shape = reader->contents().tensors.front().shape;
      const tensor_view view{to.data(), dtype::bfloat16, {}, shape, contiguous_strides(shape)};
      load_into(*reader, "weight", view, {.threads = 1}).value();
    } else {
      std::memcpy(to.data(), from.data(), to.size());
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (i > 0) seconds.push_back(passed.count());
    from[static_cast<std::size_t>(i)] = to[to.size() / 2];  // the copies are used
  }
  return seconds;
}

int run(const arguments& given) {
  write_samples(given);
  std::string list;
  for (const double one : timed(given)) list += (list.empty() ? "" : ",") + std::to_string(one);
  std::printf("{\"bytes\":%lld,\"seconds\":[%s],\"delta_bytes\":%lld}\n", static_cast<long long>(given.bytes),
              list.c_str(), static_cast<long long>(fs::file_size(given.delta())));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: shardmesh_delta_bench make|apply|memcpy FOLDER BYTES REPEAT\n");
    return 2;
  }
  try {
    return run({argv[1], argv[2], std::atoll(argv[3]), std::atoi(argv[4])});
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "shardmesh_delta_bench: %s\n", problem.what());
    return 1;
  }
}
