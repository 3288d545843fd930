// SPDX-License-Identifier: Apache-2.0
// The plain side of the benchmarks: moves the same bytes with system calls alone, which no checkpoint library can beat.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace plain {
namespace fs = std::filesystem;

[[noreturn]] inline void stop(const std::string& why) {
  std::fprintf(stderr, "shardmesh_bench: %s\n", why.c_str());
  std::exit(1);
}

struct plain_file {
  int fd = -1;
  std::vector<std::byte> bytes;
};

inline std::vector<plain_file> files_of(const fs::path& path) {
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
inline void in_pieces(std::vector<plain_file>& files, int threads,
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

inline void plain_read(std::vector<plain_file>& files, int threads) {
  in_pieces(files, threads, [](plain_file& file, std::size_t at, std::size_t length) {
    for (std::size_t done = 0; done < length;) {
      const ssize_t got = ::pread(file.fd, file.bytes.data() + at + done, length - done, static_cast<off_t>(at + done));
      if (got <= 0) stop("short read");
      done += static_cast<std::size_t>(got);
    }
  });
}

/// Writes the same bytes into one new file each, durably.
inline void plain_write(std::vector<plain_file>& files, const fs::path& folder, int threads) {
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

/// Reads and writes the files, piece by piece, without an fsync: the cost of a copy in the cache.
inline void plain_copy(std::vector<plain_file>& files, const fs::path& folder, int threads) {
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

/// Removes the files from the system's cache, as after a start of the machine.
inline void evict(const std::vector<plain_file>& files) {
  for (const plain_file& file : files)
    if (::fsync(file.fd) != 0 || ::posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED) != 0) stop("cannot evict a file");
}

/// Reads past the cache (O_DIRECT), with `depth` outstanding reads of 1 MiB at any time.
inline void direct_read(const fs::path& path, int depth) {
  constexpr std::size_t piece = std::size_t{1} << 20, page = 4096;
  struct opened {
    int fd = -1;
    std::size_t pieces = 0;
  };
  std::vector<opened> files;
  const auto add = [&](const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) stop("cannot open " + file.string() + " past the cache");
    files.push_back({fd, (fs::file_size(file) + piece - 1) / piece});
  };
  if (!fs::is_directory(path)) add(path);
  if (fs::is_directory(path))
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.is_regular_file()) add(entry.path());
  std::atomic<std::size_t> next = 0;
  {
    std::vector<std::jthread> readers;
    for (int t = 0; t < depth; ++t)
      readers.emplace_back([&] {
        const std::unique_ptr<void, decltype(&std::free)> room(std::aligned_alloc(page, piece), &std::free);
        for (;;) {
          std::size_t number = next++;
          const auto file = std::find_if(files.begin(), files.end(), [&](const opened& one) {
            if (number < one.pieces) return true;
            number -= one.pieces;
            return false;
          });
          if (file == files.end()) return;
          if (::pread(file->fd, room.get(), piece, static_cast<off_t>(number * piece)) <= 0) stop("short read");
        }
      });
  }
  for (const opened& file : files) ::close(file.fd);
}

/// Copies from memory to memory, on `threads` threads.
inline void copy_memory(std::vector<plain_file>& files, std::vector<std::vector<std::byte>>& to, int threads) {
  in_pieces(files, threads, [&](plain_file& file, std::size_t at, std::size_t length) {
    std::memcpy(to[static_cast<std::size_t>(&file - files.data())].data() + at, file.bytes.data() + at, length);
  });
}

}  // namespace plain
