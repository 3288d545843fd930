// SPDX-License-Identifier: Apache-2.0
// Our side of ./dev bench: one case, timed N times in one process, as one line of JSON. benchmarks/bench.py runs it
// beside its peers. Also the plain side (plain_files).
//   shardmesh_bench load|load_cold|map|columns|columns_mapped|columns_at_once|columns_ranks|dequantize|convert_cached|
//                   plain_read|plain_write|plain_copy_cached|direct_read|memcpy PATH [--repeat N] [--threads N] [--ranks N]
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <plain_files.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

import shardmesh;

namespace {
namespace fs = std::filesystem;
using namespace shardmesh;
using namespace plain;

struct arguments {
  std::string what;
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

/// Destination memory, in one block as from a framework's allocator, and the requests that fill it.
struct wanted {
  host_tensor memory;
  std::vector<load_request> requests;
  std::int64_t bytes = 0;

  void add(const tensor_entry& tensor, const box& where) {
    requests.push_back({tensor.key, where, {nullptr, tensor.type, {}, where.sizes, contiguous_strides(where.sizes)}});
    bytes += size_bytes(tensor.type, where.volume()).value();
  }
  /// Allocates the memory; call it after the last `add`.
  void allocate() {
    constexpr std::int64_t alignment = 64;
    std::int64_t needed = 0;
    std::vector<std::int64_t> begins;
    for (const load_request& one : requests) {
      begins.push_back(needed);
      needed += size_bytes(one.to.type, box::whole(one.to.sizes).volume()).value() + alignment - 1;
      needed -= needed % alignment;
    }
    memory = need(host_tensor::make(dtype::uint8, {needed}));
    const std::span<std::byte> target = memory.bytes();
    std::memset(target.data(), 1, target.size());  // the pages exist before the clock runs
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].to.data = target.data() + begins[i];
  }
};

/// Requests every tensor, whole.
wanted whole_tensors(const checkpoint_reader& reader) {
  wanted made;
  for (const tensor_entry& tensor : reader.contents().tensors) made.add(tensor, box::whole(tensor.shape));
  made.allocate();
  return made;
}

/// Requests the part of every tensor that rank `rank` of `ranks` holds under S(1).
wanted columns(const checkpoint_reader& reader, std::int64_t rank, std::int64_t ranks) {
  wanted made;
  for (const tensor_entry& tensor : reader.contents().tensors) {
    if (tensor.shape.rank() < 2) continue;
    const std::int64_t size = (tensor.shape[1] + ranks - 1) / ranks;
    const std::int64_t begin = std::min(rank * size, tensor.shape[1]);
    box part = box::whole(tensor.shape);
    part.offsets[1] = begin;
    part.sizes[1] = std::min(size, tensor.shape[1] - begin);
    made.add(tensor, part);
  }
  made.allocate();
  return made;
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

void print(const arguments& given, std::int64_t bytes, const std::vector<double>& times) {
  std::string list;
  for (const double time : times) list += (list.empty() ? "" : ", ") + std::to_string(time);
  std::printf("{\"case\": \"%s\", \"bytes\": %lld, \"threads\": %d, \"seconds\": [%s]}\n", given.what.c_str(),
              static_cast<long long>(bytes), given.threads, list.c_str());
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
  if (words.size() != 2) stop("usage: shardmesh_bench CASE PATH [--repeat N] [--threads N] [--ranks N]");
  given.what = words[0];
  given.path = words[1];
  return given;
}

/// Loads FP8 blocks and MXFP4 as float32 into memory.
std::vector<double> time_dequantize(const arguments& given, std::int64_t& bytes) {
  const auto open = [&] { return need(dequantized(need(open_checkpoint(given.path)))); };
  const wanted all = whole_tensors(*open());
  bytes = all.bytes;
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] { need(load(*open(), all.requests, {.threads = given.threads})); }));
  return times;
}

/// Times a load in the library. The time includes opening the checkpoint, as for the peers.
std::vector<double> time_load(const arguments& given, std::int64_t& bytes) {
  const auto reader = need(open_checkpoint(given.path));
  std::vector<wanted> parts;
  if (given.what == "load" || given.what == "load_cold")
    parts.push_back(whole_tensors(*reader));
  else
    for (std::int64_t rank = 0; rank < given.ranks; ++rank) parts.push_back(columns(*reader, rank, given.ranks));
  for (const wanted& part : parts) bytes += part.bytes;
  std::vector<load_request> together;
  if (given.what == "columns_at_once")
    for (const wanted& part : parts) together.insert(together.end(), part.requests.begin(), part.requests.end());
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run) {
    if (given.what == "load_cold") evict(files_of(given.path));
    times.push_back(seconds_of([&] {
      if (!together.empty()) {  // one process holds all destination ranks: shared ranges are read once
        const auto opened = need(open_checkpoint(given.path));
        need(load(*opened, together, {.threads = given.threads}));
        return;
      }
      if (given.what == "columns_mapped") {  // one reader for all of them; it keeps its mappings
        const auto opened = need(open_checkpoint(given.path));
        for (const wanted& part : parts)
          need(load(*opened, part.requests, {.threads = given.threads, .reading = {.map_rows = true}}));
        return;
      }
      for (const wanted& part : parts) {  // every destination rank opens the checkpoint itself
        const auto opened = need(open_checkpoint(given.path));
        need(load(*opened, part.requests, {.threads = given.threads}));
      }
    }));
  }
  return times;
}

/// Times destination ranks that are threads: they load together, and read for each other. Prints how often each byte
/// was read.
std::vector<double> time_ranks(const arguments& given, std::int64_t& bytes) {
  const auto reader = need(open_checkpoint(given.path));
  std::vector<wanted> parts;
  std::vector<local_state> states;
  for (std::int64_t rank = 0; rank < given.ranks; ++rank) {
    parts.push_back(columns(*reader, rank, given.ranks));
    bytes += parts.back().bytes;
    states.emplace_back();
    for (const load_request& one : parts.back().requests) {
      const tensor_entry& tensor = *reader->contents().find(one.key);
      const path where = tensor.where.empty() ? path{tensor.key} : tensor.where;
      states.back().tensors.push_back({where, tensor.shape, tensor.type, {{one.where, one.to}}});
    }
  }
  std::vector<double> times;
  const std::int64_t before = bytes_read_so_far();
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] {
      need(run_ranks(static_cast<std::int32_t>(given.ranks), [&](any_communicator& comm) -> result<void> {
        const auto loaded = load(given.path, states[static_cast<std::size_t>(comm.rank())], comm, {.threads = 1});
        return loaded ? result<void>() : loaded.error();
      }));
    }));
  std::fprintf(stderr, "%.4f bytes were read for each that is wanted\n",
               static_cast<double>(bytes_read_so_far() - before) / given.repeat / static_cast<double>(bytes));
  return times;
}

/// Maps every tensor, as views that are ready to read; the time includes opening.
std::vector<double> time_map(const arguments& given, std::int64_t& bytes) {
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run) {
    std::vector<mapped_tensor> mapped;
    times.push_back(seconds_of([&] {
      const auto opened = need(open_checkpoint(given.path));
      tensor_map map(*opened);
      for (const tensor_entry& tensor : opened->contents().tensors) mapped.push_back(need(map.tensor(tensor.key)));
    }));
    bytes = 0;
    for (const mapped_tensor& tensor : mapped)
      bytes += size_bytes(tensor.view().type, box::whole(tensor.view().sizes).volume()).value_or(0);
  }
  return times;
}

/// Converts to another safetensors file, a folder without its optimizer; with checksums, without an fsync.
std::vector<double> time_convert(const arguments& given, std::int64_t& bytes) {
  const fs::path target = given.path.parent_path() / "converted.safetensors";
  convert_options how;
  how.selection.no_optimizer = fs::is_directory(given.path);
  how.overwrite = true;
  how.durable = false;
  how.threads = given.threads;
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] {
      const auto reader = need(open_checkpoint(given.path));
      need(convert(*reader, target, how));
    }));
  bytes = static_cast<std::int64_t>(fs::file_size(target));
  fs::remove(target);
  return times;
}

std::vector<double> time_plain(const arguments& given, std::int64_t& bytes) {
  auto files = files_of(given.path);
  for (const plain_file& file : files) bytes += static_cast<std::int64_t>(file.bytes.size());
  const fs::path target = given.path.parent_path() / "plain_write";
  if (given.what == "plain_write" || given.what == "plain_copy_cached") fs::create_directories(target);
  std::vector<std::vector<std::byte>> copies;
  if (given.what == "memcpy")
    for (const plain_file& file : files) copies.emplace_back(file.bytes.size(), std::byte{1});
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] {
      if (given.what == "plain_read")
        plain_read(files, given.threads);
      else if (given.what == "direct_read")
        direct_read(given.path, 32);
      else if (given.what == "memcpy")
        copy_memory(files, copies, given.threads);
      else if (given.what == "plain_copy_cached")
        plain_copy(files, target, given.threads);
      else
        plain_write(files, target, given.threads);
    }));
  std::error_code ignored;
  fs::remove_all(target, ignored);
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const arguments given = parse(argc, argv);
  std::int64_t bytes = 0;
  std::vector<double> times;
  if (given.what.starts_with("load") || given.what == "columns" || given.what == "columns_mapped" ||
      given.what == "columns_at_once")
    times = time_load(given, bytes);
  else if (given.what == "columns_ranks")
    times = time_ranks(given, bytes);
  else if (given.what == "map")
    times = time_map(given, bytes);
  else if (given.what == "dequantize")
    times = time_dequantize(given, bytes);
  else if (given.what == "convert_cached")
    times = time_convert(given, bytes);
  else if (given.what == "plain_read" || given.what == "plain_write" || given.what == "plain_copy_cached" ||
           given.what == "direct_read" || given.what == "memcpy")
    times = time_plain(given, bytes);
  else
    stop("unknown case " + given.what);
  print(given, bytes, times);
}
