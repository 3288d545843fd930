// SPDX-License-Identifier: Apache-2.0
// Our side of ./dev bench: one case, timed N times in one process, as one line of JSON. benchmarks/bench.py runs it
// beside its peers. Also the plain side: the same bytes read with pread or written with pwrite, which no checkpoint
// library can beat.
//   shardmesh_bench load|map|columns|columns_at_once|dequantize|convert_cached|plain_read|plain_write|plain_copy_cached PATH
//                   [--repeat N] [--threads N] [--ranks N]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

import shardmesh;

namespace {
namespace fs = std::filesystem;
using namespace shardmesh;

struct arguments {
  std::string what;
  fs::path path;
  int repeat = 5;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::int64_t ranks = 8;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "shardmesh_bench: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
T need(result<T> outcome) {
  if (!outcome) stop(to_string(outcome.error()));
  if constexpr (!std::is_void_v<T>) return *std::move(outcome);
}

/// Destination memory and the requests that fill it.
struct wanted {
  std::vector<host_tensor> memory;
  std::vector<load_request> requests;
  std::int64_t bytes = 0;

  void add(const tensor_entry& tensor, const box& where) {
    memory.push_back(need(host_tensor::make(tensor.type, where.sizes)));
    const std::span<std::byte> target = memory.back().bytes();
    std::memset(target.data(), 1, target.size());  // pages are there before the clock runs
    bytes += static_cast<std::int64_t>(target.size());
    requests.push_back({tensor.key, where, adapter<host_tensor>::view(memory.back())});
  }
};

/// Every tensor, whole.
wanted whole_tensors(const checkpoint_reader& reader) {
  wanted made;
  for (const tensor_entry& tensor : reader.contents().tensors) made.add(tensor, box::whole(tensor.shape));
  return made;
}

/// What rank `rank` of `ranks` holds of every tensor under S(1).
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
  return made;
}

struct plain_file {
  int fd = -1;
  std::vector<std::byte> bytes;
};

std::vector<plain_file> files_of(const fs::path& path) {
  std::vector<plain_file> files;
  const auto add = [&](const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) stop("cannot open " + file.string());
    files.push_back({fd, std::vector<std::byte>(fs::file_size(file), std::byte{1})});
  };
  if (!fs::is_directory(path)) return add(path), std::move(files);
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) add(entry.path());
  return files;
}

/// Calls `act(file, offset, length)` for pieces of all files, on `threads` threads.
void in_pieces(std::vector<plain_file>& files, int threads,
               const std::function<void(plain_file&, std::size_t, std::size_t)>& act) {
  constexpr std::size_t piece = std::size_t{8} << 20;
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      std::size_t number = 0;
      for (plain_file& file : files)
        for (std::size_t at = 0; at < file.bytes.size(); at += piece, ++number)
          if (number % static_cast<std::size_t>(threads) == static_cast<std::size_t>(t))
            act(file, at, std::min(piece, file.bytes.size() - at));
    });
}

void plain_read(std::vector<plain_file>& files, int threads) {
  in_pieces(files, threads, [](plain_file& file, std::size_t at, std::size_t length) {
    for (std::size_t done = 0; done < length;) {
      const ssize_t got = ::pread(file.fd, file.bytes.data() + at + done, length - done, static_cast<off_t>(at + done));
      if (got <= 0) stop("short read");
      done += static_cast<std::size_t>(got);
    }
  });
}

/// The same bytes into one new file each, made durable.
void plain_write(std::vector<plain_file>& files, const fs::path& folder, int threads) {
  std::vector<plain_file> targets;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const int fd = ::open((folder / std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) stop("cannot create in " + folder.string());
    targets.push_back({fd, {}});
    std::swap(targets.back().bytes, files[i].bytes);
  }
  in_pieces(targets, threads, [](plain_file& file, std::size_t at, std::size_t length) {
    for (std::size_t done = 0; done < length;) {
      const ssize_t put =
          ::pwrite(file.fd, file.bytes.data() + at + done, length - done, static_cast<off_t>(at + done));
      if (put <= 0) stop("short write");
      done += static_cast<std::size_t>(put);
    }
  });
  for (std::size_t i = 0; i < files.size(); ++i) {
    ::fsync(targets[i].fd);
    ::close(targets[i].fd);
    std::swap(targets[i].bytes, files[i].bytes);
  }
}

/// Read and written again, piece by piece, without an fsync: what a copy in the cache costs.
void plain_copy(std::vector<plain_file>& files, const fs::path& folder, int threads) {
  std::vector<int> targets;
  for (std::size_t i = 0; i < files.size(); ++i) {
    targets.push_back(::open((folder / std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (targets.back() < 0) stop("cannot create in " + folder.string());
  }
  in_pieces(files, threads, [&](plain_file& file, std::size_t at, std::size_t length) {
    std::byte* memory = file.bytes.data() + at;
    if (::pread(file.fd, memory, length, static_cast<off_t>(at)) != static_cast<ssize_t>(length)) stop("short read");
    const int to = targets[static_cast<std::size_t>(&file - files.data())];
    if (::pwrite(to, memory, length, static_cast<off_t>(at)) != static_cast<ssize_t>(length)) stop("short write");
  });
  for (const int target : targets) ::close(target);
}

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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

/// FP8 blocks and MXFP4 into float32 in memory.
std::vector<double> time_dequantize(const arguments& given, std::int64_t& bytes) {
  const auto open = [&] { return need(dequantized(need(open_checkpoint(given.path)))); };
  const wanted all = whole_tensors(*open());
  bytes = all.bytes;
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] { need(load(*open(), all.requests, {.threads = given.threads})); }));
  return times;
}

/// A load in the library: opening the checkpoint is part of what is timed, as it is for the peers.
std::vector<double> time_load(const arguments& given, std::int64_t& bytes) {
  const auto reader = need(open_checkpoint(given.path));
  std::vector<wanted> parts;
  if (given.what == "load")
    parts.push_back(whole_tensors(*reader));
  else
    for (std::int64_t rank = 0; rank < given.ranks; ++rank) parts.push_back(columns(*reader, rank, given.ranks));
  for (const wanted& part : parts) bytes += part.bytes;
  std::vector<load_request> together;
  if (given.what == "columns_at_once")
    for (const wanted& part : parts) together.insert(together.end(), part.requests.begin(), part.requests.end());
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] {
      if (!together.empty()) {  // one process holds all destination ranks: shared ranges are read once
        const auto opened = need(open_checkpoint(given.path));
        need(load(*opened, together, {.threads = given.threads}));
        return;
      }
      for (const wanted& part : parts) {  // every destination rank opens the checkpoint for itself
        const auto opened = need(open_checkpoint(given.path));
        need(load(*opened, part.requests, {.threads = given.threads}));
      }
    }));
  return times;
}

/// Every tensor mapped, as views that are ready to be read; opening is inside.
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

/// A conversion to another safetensors file, with checksums, without an fsync.
std::vector<double> time_convert(const arguments& given, std::int64_t& bytes) {
  bytes = static_cast<std::int64_t>(fs::file_size(given.path));
  const fs::path target = given.path.parent_path() / "converted.safetensors";
  convert_options how;
  how.saving.output = {.overwrite = true, .durable = false};
  how.saving.threads = given.threads;
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] {
      const auto reader = need(open_checkpoint(given.path));
      const save_report report = convert(*reader, target, how);
      if (!report.ok()) stop(to_string(report.problems.front()));
    }));
  fs::remove(target);
  return times;
}

std::vector<double> time_plain(const arguments& given, std::int64_t& bytes) {
  auto files = files_of(given.path);
  for (const plain_file& file : files) bytes += static_cast<std::int64_t>(file.bytes.size());
  const fs::path target = given.path.parent_path() / "plain_write";
  if (given.what != "plain_read") fs::create_directories(target);
  std::vector<double> times;
  for (int run = 0; run < given.repeat; ++run)
    times.push_back(seconds_of([&] {
      if (given.what == "plain_read")
        plain_read(files, given.threads);
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
  if (given.what == "load" || given.what == "columns" || given.what == "columns_at_once")
    times = time_load(given, bytes);
  else if (given.what == "map")
    times = time_map(given, bytes);
  else if (given.what == "dequantize")
    times = time_dequantize(given, bytes);
  else if (given.what == "convert_cached")
    times = time_convert(given, bytes);
  else if (given.what == "plain_read" || given.what == "plain_write" || given.what == "plain_copy_cached")
    times = time_plain(given, bytes);
  else
    stop("unknown case " + given.what);
  print(given, bytes, times);
}
