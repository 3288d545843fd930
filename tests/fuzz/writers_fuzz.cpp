// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: replaces a file of another writer's checkpoint by any bytes. The input is the number of a
// checkpoint in tests/data/writers, the number of a file in it, then the file. If the first number is 128 or more, a
// ZIP gets correct checksums, so that its contents are read as well. A checkpoint that opens is also converted.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <look_at.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.digest;

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_seed_bytes = 16'000;

struct sample {
  fs::path root;
  std::vector<fs::path> files;
};

std::string contents_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The checkpoints at or below a path: the topmost paths that open.
void find_samples(const fs::path& at, std::vector<sample>& found) {
  if (shardmesh::open_checkpoint(at)) {
    sample one{at, {}};
    if (!fs::is_directory(at)) one.files.push_back(at);
    if (fs::is_directory(at))
      for (const auto& entry : fs::recursive_directory_iterator(at))
        if (entry.is_regular_file()) one.files.push_back(entry.path());
    std::sort(one.files.begin(), one.files.end());
    if (!one.files.empty()) found.push_back(std::move(one));
    return;
  }
  if (!fs::is_directory(at)) return;
  std::vector<fs::path> inside;
  for (const auto& entry : fs::directory_iterator(at)) inside.push_back(entry.path());
  std::sort(inside.begin(), inside.end());
  for (const fs::path& path : inside) find_samples(path, found);
}

const fs::path& work() {
  static const fs::path folder = fs::temp_directory_path() / ("shardmesh-writers-fuzz-" + std::to_string(::getpid()));
  return folder;
}

const std::vector<sample>& samples() {
  static const std::vector<sample> all = [] {
    fs::remove_all(work());
    fs::create_directories(work());
    fs::copy(SHARDMESH_WRITERS, work() / "in", fs::copy_options::recursive);
    std::vector<sample> found;
    find_samples(work() / "in", found);
    return found;
  }();
  return all;
}

template <class T>
T at(std::string_view bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Writes the CRC-32 of every stored entry into the ZIP's central directory.
void repair_checksums(std::string& zip) {
  const auto entry = std::string_view("PK\1\2", 4);
  for (std::size_t from = zip.find(entry); from != std::string::npos; from = zip.find(entry, from + 4)) {
    const std::size_t local = at<std::uint32_t>(zip, from + 42), size = at<std::uint32_t>(zip, from + 20);
    const std::size_t begin = local + 30 + at<std::uint16_t>(zip, local + 26) + at<std::uint16_t>(zip, local + 28);
    if (from + 46 > zip.size() || begin > zip.size() || size > zip.size() - begin) continue;
    const std::uint32_t crc = shardmesh::crc32_of(std::as_bytes(std::span(zip).subspan(begin, size)));
    std::memcpy(zip.data() + from + 16, &crc, sizeof crc);
  }
}

}  // namespace

// Writes the unchanged samples into the corpus, whose folder is the last argument.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const fs::path corpus = (*argv)[*argc - 1];
  if (!fs::is_directory(corpus)) return 0;
  for (std::size_t s = 0; s < samples().size(); ++s)
    for (std::size_t f = 0; f < samples()[s].files.size(); ++f) {
      const std::string bytes = contents_of(samples()[s].files[f]);
      if (bytes.size() > most_seed_bytes || s > 127 || f > 255) continue;
      const std::string name = "sample_" + std::to_string(s) + "_" + std::to_string(f);
      write(corpus / name, std::string{static_cast<char>(s + 128), static_cast<char>(f)} + bytes);
    }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || samples().empty()) return 0;
  const sample& chosen = samples()[(data[0] & 127U) % samples().size()];
  const fs::path& file = chosen.files[data[1] % chosen.files.size()];
  const std::string before = contents_of(file);
  std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] >= 128 && bytes.starts_with("PK")) repair_checksums(bytes);
  write(file, bytes);
  fuzz::look_at(chosen.root);
  if (auto reader = shardmesh::open_checkpoint(chosen.root)) {
    const fs::path target = work() / "out.safetensors";
    static_cast<void>(shardmesh::convert(
        **reader, target, {.skip_unsupported = true, .overwrite = true, .durable = false, .threads = 1}));
  }
  write(file, before);
  return 0;
}
