// SPDX-License-Identifier: Apache-2.0
// Our side of the benchmarks `validate_*`: one way of checking the shards of a file (written by
// benchmarks/validate.py), timed N times in one process, as one line of JSON.
//   shardmesh_validate_bench cover|overlaps|flat|sort FILE [--repeat N] [--break]
// cover, overlaps: from a vector of metadata objects, one per shard; gathered into flat arrays only if they are wrong.
// flat: from flat arrays. sort: not a check, but std::sort of the shards' offsets, with which a sweep would have to
// begin.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.layout;

namespace {
using namespace shardmesh;

struct shard {
  extents offsets, sizes;
  owner_id rank = 0;
};

struct shard_list {
  extents shape;
  std::vector<shard> shards;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "shardmesh_validate_bench: %s\n", why.c_str());
  std::exit(1);
}

// 64-bit numbers: dimensions, number of shards, shape, then offsets and sizes of every shard.
shard_list read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::int64_t> numbers(bytes.size() / 8);
  std::copy_n(bytes.begin(), numbers.size() * 8, reinterpret_cast<char*>(numbers.data()));
  if (numbers.size() < 2) stop("cannot read " + path);
  const auto rank = static_cast<std::size_t>(numbers[0]), count = static_cast<std::size_t>(numbers[1]);
  if (numbers.size() != 2 + rank + 2 * rank * count) stop("not a list of shards: " + path);
  const std::int64_t* next = numbers.data() + 2;
  const auto take = [&] {
    const extents taken(std::span<const std::int64_t>(next, rank));
    next += rank;
    return taken;
  };
  shard_list list{take(), {}};
  for (std::size_t i = 0; i < count; ++i) {
    const extents offsets = take();
    list.shards.push_back({offsets, take(), static_cast<owner_id>(i)});
  }
  return list;
}

struct flat_arrays {
  std::vector<std::int64_t> offsets, sizes;
  std::vector<owner_id> owners;
};

flat_arrays flatten(const shard_list& list) {
  flat_arrays flat;
  flat.offsets.reserve(list.shards.size() * list.shape.rank());
  flat.sizes.reserve(flat.offsets.capacity());
  flat.owners.reserve(list.shards.size());
  for (const shard& s : list.shards) {
    flat.offsets.insert(flat.offsets.end(), s.offsets.begin(), s.offsets.end());
    flat.sizes.insert(flat.sizes.end(), s.sizes.begin(), s.sizes.end());
    flat.owners.push_back(s.rank);
  }
  return flat;
}

cover_report check(const extents& shape, const flat_arrays& flat) {
  return check_boxes(shape, flat.offsets, flat.sizes, flat.owners, 100, owner_space::ranks, equal_boxes::overlap);
}

struct sort_key {
  std::array<std::int64_t, 2> offsets;
  std::uint32_t index;
  friend auto operator<=>(const sort_key&, const sort_key&) = default;
};

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) stop("usage: shardmesh_validate_bench cover|overlaps|flat|sort FILE [--repeat N] [--break]");
  const std::string_view what = argv[1];
  shard_list list = read(argv[2]);
  int repeat = 5;
  bool breaks = false;
  for (int i = 3; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--break") breaks = true;
    if (option == "--repeat" && i + 1 < argc) repeat = std::atoi(argv[++i]);
  }
  if (breaks) list.shards[list.shards.size() / 2].sizes[0] -= 1;

  const flat_arrays flat = flatten(list);
  const std::size_t rank = list.shape.rank();
  const auto box_at = [&](std::size_t i) {
    return box_numbers{list.shards[i].offsets.data(), list.shards[i].sizes.data()};
  };
  cover_report report;
  std::vector<double> times;
  for (int run = 0; run < repeat; ++run) {
    if (what == "cover") {
      times.push_back(seconds_of([&] {
        report =
            is_partition(list.shape, list.shards.size(), box_at) ? cover_report{} : check(list.shape, flatten(list));
      }));
    } else if (what == "overlaps") {
      times.push_back(seconds_of([&] {
        if (tiles_a_box(rank, list.shards.size(), box_at)) return;
        const flat_arrays made = flatten(list);
        report = check_overlaps(rank, made.offsets, made.sizes, made.owners);
      }));
    } else if (what == "flat") {
      times.push_back(seconds_of([&] { report = check(list.shape, flat); }));
    } else if (what == "sort") {
      std::vector<sort_key> keys;
      for (std::uint32_t i = 0; i < list.shards.size(); ++i)
        keys.push_back({{list.shards[i].offsets[0], rank > 1 ? list.shards[i].offsets[1] : 0}, i});
      times.push_back(seconds_of([&] { std::sort(keys.begin(), keys.end()); }));
    } else {
      stop("unknown: " + std::string(what));
    }
  }
  if (report.ok() == breaks && what != "sort" && what != "overlaps") stop("the wrong answer");
  std::string text;
  for (const double t : times) text += (text.empty() ? "" : ", ") + std::to_string(t * 1e6);
  std::printf("{\"case\": \"%s\", \"shards\": %zu, \"microseconds\": [%s]}\n", argv[1], list.shards.size(),
              text.c_str());
}
