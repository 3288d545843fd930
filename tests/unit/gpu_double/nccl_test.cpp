// SPDX-License-Identifier: Apache-2.0
// Tests communicators of the double, whose ranks are threads. Correct programs give correct bytes for every seed.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

using namespace gpu_double;

TEST_CASE("every rank knows who it is, whether it waits for the others or asks") {
  for (const bool blocking : {true, false})
    for (const int ranks : {1, 2, 4, 8}) {
      const on_double here(static_cast<std::uint64_t>(ranks));
      nccl_on_ranks(ranks, blocking, [&](rank_on_double& at) {
        int count = 0;
        int rank = -1;
        int device = -1;
        at.ok(ncclCommCount(at.comm, &count), "count");
        at.ok(ncclCommUserRank(at.comm, &rank), "rank");
        at.ok(ncclCommCuDevice(at.comm, &device), "device");
        at.check(count == ranks && rank == at.rank && device == at.rank, "who it is");
      });
    }
}

TEST_CASE("messages of a group arrive, of any size, to itself too, in the order of the calls") {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const on_double here(seed);
    const int ranks = 1 + static_cast<int>(seed % 5);
    nccl_on_ranks(ranks, seed % 2 == 0, [&](rank_on_double& at) {
      const auto many = [&](int from, int to) { return static_cast<std::size_t>((from * 7 + to * 3) % 5) * 10; };
      std::vector<device_bytes> out;
      std::vector<device_bytes> in;
      for (int peer = 0; peer < ranks; ++peer) {
        out.emplace_back(at, many(at.rank, peer), static_cast<unsigned char>(at.rank * 16 + peer));
        in.emplace_back(at, many(peer, at.rank), static_cast<unsigned char>(0xEE));
      }
      at.ok(ncclGroupStart(), "start");
      for (int peer = 0; peer < ranks; ++peer) {
        at.ok(ncclSend(out[peer].data(), many(at.rank, peer), nccl_uint8, peer, at.comm, at.stream), "send");
        at.ok(ncclRecv(in[peer].data(), many(peer, at.rank), nccl_uint8, peer, at.comm, at.stream), "receive");
      }
      at.ready(ncclGroupEnd(), "end");
      for (int peer = 0; peer < ranks; ++peer)
        at.check(in[peer].read(at) ==
                     std::vector<unsigned char>(many(peer, at.rank), static_cast<unsigned char>(peer * 16 + at.rank)),
                 "what came from " + std::to_string(peer));
    });
  }
}

TEST_CASE("collectives give what they are defined to give") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const on_double here(seed);
    const int ranks = 1 + static_cast<int>(seed % 4);
    nccl_on_ranks(ranks, seed % 2 == 0, [&](rank_on_double& at) {
      const auto n = static_cast<std::size_t>(ranks);
      device_values<std::int32_t> from(at, n * 2, [&](std::size_t i) { return at.rank * 100 + static_cast<int>(i); });
      device_values<std::int32_t> to(at, n * 2 * n, [](std::size_t) { return -1; });
      const auto value = [](int rank, std::size_t i) { return rank * 100 + static_cast<int>(i); };
      std::vector<std::int32_t> wanted;

      at.ready(ncclAllGather(from.data(), to.data(), n * 2, nccl_int32, at.comm, at.stream), "all_gather");
      for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < n * 2; ++i) wanted.push_back(value(r, i));
      at.check(to.read(at) == wanted, "all_gather");

      at.ready(ncclReduceScatter(from.data(), to.data(), 2, nccl_int32, nccl_sum, at.comm, at.stream),
               "reduce_scatter");
      for (std::size_t i = 0; i < 2; ++i) {
        wanted[i] = 0;
        for (int r = 0; r < ranks; ++r) wanted[i] += value(r, static_cast<std::size_t>(at.rank) * 2 + i);
      }
      at.check(to.read(at) == wanted, "reduce_scatter");

      at.ready(ncclAllReduce(from.data(), to.data(), n * 2, nccl_int32, nccl_max, at.comm, at.stream), "all_reduce");
      for (std::size_t i = 0; i < n * 2; ++i) wanted[i] = value(ranks - 1, i);
      at.check(to.read(at) == wanted, "all_reduce max");

      at.ready(ncclAllReduce(from.data(), to.data(), n * 2, nccl_int32, nccl_avg, at.comm, at.stream), "all_reduce");
      for (std::size_t i = 0; i < n * 2; ++i) {
        int sum = 0;
        for (int r = 0; r < ranks; ++r) sum += value(r, i);
        wanted[i] = sum / ranks;
      }
      at.check(to.read(at) == wanted, "all_reduce avg");

      at.ready(ncclAlltoAll(from.data(), to.data(), 2, nccl_int32, at.comm, at.stream), "all_to_all");
      for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < 2; ++i)
          wanted[static_cast<std::size_t>(r) * 2 + i] = value(r, static_cast<std::size_t>(at.rank) * 2 + i);
      at.check(to.read(at) == wanted, "all_to_all");

      const int root = ranks - 1;
      at.ready(ncclBroadcast(from.data(), to.data(), 2, nccl_int32, root, at.comm, at.stream), "broadcast");
      for (std::size_t i = 0; i < 2; ++i) wanted[i] = value(root, i);
      at.check(to.read(at) == wanted, "broadcast");

      at.ready(ncclReduce(from.data(), to.data(), 2, nccl_int32, nccl_prod, 0, at.comm, at.stream), "reduce");
      if (at.rank == 0)
        for (std::size_t i = 0; i < 2; ++i) {
          wanted[i] = 1;
          for (int r = 0; r < ranks; ++r) wanted[i] *= value(r, i);
        }
      at.check(to.read(at) == wanted, "reduce prod");
    });
  }
}

TEST_CASE("a split makes a communicator for each colour, in the order of keys; no colour, none") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const on_double here(seed);
    nccl_on_ranks(5, seed % 2 == 0, [&](rank_on_double& at) {
      void* sub = nullptr;
      nccl_config config = nccl_config_of(at.blocking);
      // Rank 4 stays out; even and odd ranks split, with the highest first.
      const int color = at.rank == 4 ? nccl_no_color : at.rank % 2;
      at.ready(ncclCommSplit(at.comm, color, -at.rank, &sub, &config), "split");
      at.check((sub == nullptr) == (at.rank == 4), "who is in");
      if (!sub) return;
      rank_on_double within = at;
      within.comm = sub;
      within.ready(nccl_in_progress, "the split communicator");
      int rank = -1;
      int count = 0;
      at.ok(ncclCommUserRank(sub, &rank), "rank");
      at.ok(ncclCommCount(sub, &count), "count");
      at.check(count == 2 && rank == (at.rank >= 2 ? 0 : 1), "rank within");
      device_values<int> memory(at, 1, [&](std::size_t) { return at.rank; });
      within.ready(ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, sub, at.stream), "all_reduce");
      at.check(memory.read(at) == std::vector<int>{at.rank % 2 == 0 ? 2 : 4}, "sum of the colour");
      at.ok(ncclCommDestroy(sub), "destroy");
    });
  }
}

TEST_CASE("sums of every type, rounded as the type is") {
  const on_double here;
  nccl_on_ranks(2, true, [&](rank_on_double& at) {
    const auto sum = [&]<class T>(int type, std::vector<T> of_rank_0, std::vector<T> of_rank_1, std::vector<T> wanted) {
      const std::vector<T>& mine = at.rank == 0 ? of_rank_0 : of_rank_1;
      device_values<T> memory(at, mine.size(), [&](std::size_t i) { return mine[i]; });
      at.ok(ncclAllReduce(memory.data(), memory.data(), mine.size(), type, nccl_sum, at.comm, at.stream), "all_reduce");
      at.check(memory.read(at) == wanted, "type " + std::to_string(type));
    };
    sum(nccl_int8, std::vector<std::int8_t>{100, -3}, {100, 1}, {-56, -2});
    sum(nccl_uint8, std::vector<std::uint8_t>{200, 3}, {100, 1}, {44, 4});
    sum(nccl_uint32, std::vector<std::uint32_t>{4000000000U}, {5}, {4000000005U});
    sum(nccl_int64, std::vector<std::int64_t>{1LL << 40}, {1}, {(1LL << 40) + 1});
    sum(nccl_uint64, std::vector<std::uint64_t>{~0ULL}, {2}, {1});
    sum(nccl_float32, std::vector<float>{1.5F}, {2}, {3.5F});
    sum(nccl_float64, std::vector<double>{1e300}, {1}, {1e300});
    sum(nccl_float16, std::vector<std::uint16_t>{0x3C00, 0x7BFF}, {0x4000, 0x7BFF}, {0x4200, 0x7C00});  // 1+2; overflow
    // 256+1: ties to even.
    sum(nccl_bfloat16, std::vector<std::uint16_t>{0x3F80, 0x4380}, {0x4000, 0x3F80}, {0x4040, 0x4380});
  });
}

TEST_CASE("finalizing waits for what was enqueued, and a finalized communicator starts nothing") {
  for (const bool blocking : {true, false}) {
    const on_double here;
    nccl_on_ranks(2, blocking, [&](rank_on_double& at) {
      device_values<int> memory(at, 1, [](std::size_t) { return 1; });
      at.ready(ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream), "all_reduce");
      at.ready(ncclCommFinalize(at.comm), "finalize");
      const int again = ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream);
      at.check(again == nccl_invalid_usage, "a collective behind it");
      at.check(memory.read(at) == std::vector<int>{2}, "sum");
    });
  }
}

TEST_CASE("registrations are of device memory, and are leaks until they are given back") {
  double_reset(1);
  nccl_on_ranks(1, true, [&](rank_on_double& at) {
    device_bytes memory(at, 64, 0);
    void* handle = nullptr;
    at.ok(ncclCommRegister(at.comm, memory.data(), 64, &handle), "register");
    at.check(std::string(double_leak_text()).find("a registration of 64 bytes with rank 0") != std::string::npos,
             "leak");
    at.ok(ncclCommDeregister(at.comm, handle), "deregister");
    at.check(ncclCommDeregister(at.comm, handle) == nccl_invalid_argument, "twice");
    int plain = 0;
    at.check(ncclCommRegister(at.comm, &plain, 4, &handle) == nccl_invalid_argument, "host memory");
  });
  CHECK(double_problems() == 2);
  CHECK(double_leaks() == 0);
}
