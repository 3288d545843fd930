// SPDX-License-Identifier: Apache-2.0
// Our side of the benchmarks mapping_*: one case, timed N times in one process, as one line of JSON.
//   shardmesh_mapping_bench convert|convert_same|load_fused|load_same|quantize FILE MAPPING
//                           [--repeat N] [--threads N] [--ranks N]
// `*_same` does the work without a mapping, and ignores MAPPING. A load is that of one rank: its rows of each matrix
// whose name contains "linear_qkv" or "linear_fc1". The loads print the bytes that they read ("read"), too.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <plain_files.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.mapping;

namespace {
namespace fs = std::filesystem;
using namespace shardmesh;
using plain::stop;

struct arguments {
  std::string what, mapping;
  fs::path path;
  int repeat = 5;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::int64_t ranks = 8;
};

template <class T>
T need(result<T> outcome) {
  if (!outcome) stop(to_string(outcome.error()));
  if constexpr (!std::is_void_v<T>) return *std::move(outcome);
}

arguments parse(int argc, char** argv) {
  arguments given;
  std::vector<std::string_view> words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool is_option = word == "--repeat" || word == "--threads" || word == "--ranks";
    if (!is_option) {
      words.push_back(word);
    } else if (i + 1 < argc) {
      const int value = std::max(1, std::atoi(argv[++i]));
      if (word == "--repeat") given.repeat = value;
      if (word == "--threads") given.threads = value;
      if (word == "--ranks") given.ranks = value;
    }
  }
  if (words.size() != 3)
    stop("usage: shardmesh_mapping_bench CASE FILE MAPPING [--repeat N] [--threads N] [--ranks N]");
  given.what = words[0];
  given.path = words[1];
  given.mapping = words[2];
  return given;
}

/// Opens the file, under the names of the mapping unless the case works without one.
std::unique_ptr<checkpoint_reader> opened(const arguments& given) {
  auto reader = need(open_checkpoint(given.path));
  if (given.what.ends_with("_same") || given.what == "quantize") return reader;
  const std::vector<mapping_rules> mappings = need(choose_mappings(given.mapping));
  const model_sizes sizes = need(read_model_sizes(given.path));
  return need(map_checkpoint(std::move(reader), mappings, sizes, {.check_sums = given.what == "convert"}));
}

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Returns the bytes that this process has read so far, with read and pread.
std::int64_t bytes_read_so_far() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value)
    if (name == "rchar:") return value;
  stop("/proc/self/io does not say what was read");
}

/// The bytes of a case, those that its last run read (0: not counted), and the seconds of each run.
struct measured {
  std::int64_t bytes = 0, read = 0;
  std::vector<double> seconds;
};

/// Converts to another file, with checksums, without an fsync.
measured time_convert(const arguments& given) {
  const bool quantizes = given.what == "quantize";
  const fs::path target = given.path.parent_path() / (quantizes ? "quantized.gguf" : "mapped.safetensors");
  convert_options how;
  how.overwrite = true;
  how.durable = false;
  how.threads = given.threads;
  if (quantizes) {
    how.format = target_format::gguf;
    how.quantize.push_back(need(parse_quantize_rule("Q8_0")));
  }
  measured made;
  for (int run = 0; run < given.repeat; ++run)
    made.seconds.push_back(seconds_of([&] { need(convert(*opened(given), target, how)); }));
  made.bytes = static_cast<std::int64_t>(fs::file_size(quantizes ? given.path : target));
  fs::remove(target);
  return made;
}

/// Loads the rows of rank 1 of each fused matrix, from opening on.
measured time_load(const arguments& given) {
  measured made;
  std::vector<load_request> requests;
  std::vector<host_tensor> memory;
  const auto first = opened(given);
  for (const tensor_entry& tensor : first->contents().tensors) {
    const bool is_fused =
        tensor.key.find("linear_qkv") != std::string::npos || tensor.key.find("linear_fc1") != std::string::npos;
    if (!is_fused || tensor.shape.rank() != 2) continue;
    const std::int64_t rows = tensor.shape[0] / given.ranks;
    const box where{{rows, 0}, {rows, tensor.shape[1]}};
    memory.push_back(need(host_tensor::make(tensor.type, where.sizes)));
    const std::span<std::byte> target = memory.back().bytes();
    std::memset(target.data(), 1, target.size());  // the pages exist before the clock runs
    requests.push_back({tensor.key, where, view_of(memory.back())});
    made.bytes += static_cast<std::int64_t>(target.size());
  }
  if (requests.empty()) stop("the file has no fused tensors");
  for (int run = 0; run < given.repeat; ++run) {
    const std::int64_t before = bytes_read_so_far();
    made.seconds.push_back(seconds_of([&] { need(load(*opened(given), requests, {.threads = given.threads})); }));
    made.read = bytes_read_so_far() - before;
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  const arguments given = parse(argc, argv);
  measured made;
  if (given.what == "convert" || given.what == "convert_same" || given.what == "quantize")
    made = time_convert(given);
  else if (given.what == "load_fused" || given.what == "load_same")
    made = time_load(given);
  else
    stop("unknown case " + given.what);
  std::string list;
  for (const double time : made.seconds) list += (list.empty() ? "" : ", ") + std::to_string(time);
  std::printf("{\"case\": \"%s\", \"bytes\": %lld, \"read\": %lld, \"threads\": %d, \"seconds\": [%s]}\n",
              given.what.c_str(), static_cast<long long>(made.bytes), static_cast<long long>(made.read), given.threads,
              list.c_str());
}
