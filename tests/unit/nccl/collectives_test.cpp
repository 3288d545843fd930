// SPDX-License-Identifier: Apache-2.0
// Compares NCCL's collectives on the double with plain loops.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dice.hpp>
#include <functional>
#include <gpu_double/on_double.hpp>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.test.gpu_ranks;

using namespace shardmesh;
using test::device_bytes;

namespace {

// Rank r's value at index i: small whole numbers, exact in every dtype and in every order.
template <class T>
T value(std::int32_t rank, std::size_t i) {
  return static_cast<T>((static_cast<std::size_t>(rank) * 5 + i * 3) % 11 + 1);
}
template <class T>
std::vector<T> values(std::int32_t rank, std::size_t count) {
  std::vector<T> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(value<T>(rank, i));
  return made;
}
template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
std::string finish(result<pending> started) {
  if (!started) return to_string(started.error());
  const auto done = started->wait();
  return done ? std::string() : to_string(done.error());
}

template <class T>
std::vector<T> combined(std::int32_t size, std::size_t count, reduce_op op) {
  std::vector<T> made = values<T>(0, count);
  for (std::int32_t r = 1; r < size; ++r)
    for (std::size_t i = 0; i < count; ++i) {
      const T v = value<T>(r, i);
      T& t = made[i];
      t = op == reduce_op::product ? static_cast<T>(t * v)
          : op == reduce_op::min   ? std::min(t, v)
          : op == reduce_op::max   ? std::max(t, v)
                                   : static_cast<T>(t + v);
    }
  if (op == reduce_op::avg)
    for (T& t : made) t = static_cast<T>(t / static_cast<T>(size));
  return made;
}

template <class T>
std::string reduces(nccl_communicator& comm, reduce_op op, std::size_t block) {
  const auto size = static_cast<std::size_t>(comm.size());
  const auto all = combined<T>(comm.size(), block * size, op);
  device_bytes mine(comm.memory(), bytes_of(values<T>(comm.rank(), block * size)));
  device_bytes sums(comm.memory(), block * size * sizeof(T)), part(comm.memory(), block * sizeof(T));
  const std::string what = std::string(to_string(op)) + " of " + std::string(name(dtype_of<T>));
  if (auto wrong = finish(comm.all_reduce(mine.there(), sums.there(), dtype_of<T>, op, {})); !wrong.empty())
    return wrong;
  if (sums.here() != bytes_of(all)) return "all_reduce: another " + what;
  if (auto wrong = finish(comm.reduce_scatter(mine.there(), part.there(), dtype_of<T>, op, {})); !wrong.empty())
    return wrong;
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(block * static_cast<std::size_t>(comm.rank()));
  if (part.here() != bytes_of(std::vector<T>(first, first + static_cast<std::ptrdiff_t>(block))))
    return "reduce_scatter: another " + what;
  if (auto wrong = finish(comm.all_reduce(mine.there(), mine.there(), dtype_of<T>, op, {})); !wrong.empty())
    return wrong;
  return mine.here() == bytes_of(all) ? "" : "all_reduce in place: another " + what;
}

}  // namespace

TEST_CASE("all_gather_into, all_to_all and broadcast put every block in its place") {
  const watchdog dog{std::chrono::seconds(120)};
  for (std::uint64_t seed = 1; seed <= random_seed::rounds(8); ++seed)
    for (const std::int32_t size : {1, 2, 4, 8}) {
      INFO("seed " << seed << ", " << size << " ranks");
      const on_double fresh(seed);
      CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, size, [&](nccl_communicator& comm, any_communicator&) -> std::string {
              const auto block = static_cast<std::size_t>(dice(seed).up_to(300)),
                         ranks = static_cast<std::size_t>(size);
              std::vector<std::uint8_t> gathered, turned;
              for (std::int32_t r = 0; r < size; ++r)
                for (std::size_t i = 0; i < block; ++i) {
                  gathered.push_back(value<std::uint8_t>(r, i));
                  turned.push_back(value<std::uint8_t>(r, static_cast<std::size_t>(comm.rank()) * block + i));
                }
              device_bytes mine(comm.memory(), bytes_of(values<std::uint8_t>(comm.rank(), block * ranks)));
              device_bytes all(comm.memory(), block * ranks), other(comm.memory(), block * ranks);
              std::string wrong = finish(comm.all_gather_into(mine.there().first(block), all.there(), {})) +
                                  finish(comm.all_to_all(mine.there(), other.there(), {}));
              if (all.here() != bytes_of(gathered)) wrong += "all_gather_into: other bytes";
              if (other.here() != bytes_of(turned)) wrong += "all_to_all: other bytes";
              const std::int32_t root = static_cast<std::int32_t>(seed) % size;
              device_bytes sent_to_all(comm.memory(), block * ranks);
              const auto sent = comm.rank() == root ? mine.there() : std::span<std::byte>();
              wrong += finish(comm.broadcast(sent, sent_to_all.there(), root, {}));
              if (sent_to_all.here() != bytes_of(values<std::uint8_t>(root, block * ranks)))
                wrong += "broadcast: other bytes";
              return wrong;
            }) == "");
    }
}

TEST_CASE("reduce_scatter and all_reduce combine what all ranks have, also in place") {
  const watchdog dog{std::chrono::seconds(120)};
  for (const std::int32_t size : {1, 2, 4}) {
    INFO(size << " ranks");
    const on_double fresh(static_cast<std::uint64_t>(size));
    CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, size, [&](nccl_communicator& comm, any_communicator&) -> std::string {
            std::string wrong;
            for (const reduce_op op : {reduce_op::sum, reduce_op::product, reduce_op::min, reduce_op::max}) {
              wrong += reduces<float>(comm, op, 17) + reduces<double>(comm, op, 5) +
                       reduces<std::int32_t>(comm, op, 33) + reduces<std::int64_t>(comm, op, 9) +
                       reduces<std::uint8_t>(comm, op, 40) + reduces<std::int8_t>(comm, op, 3) +
                       reduces<std::uint32_t>(comm, op, 1) + reduces<std::uint64_t>(comm, op, 2);
            }
            return wrong + reduces<float>(comm, reduce_op::avg, 8) + reduces<double>(comm, reduce_op::avg, 8);
          }) == "");
  }
}

TEST_CASE("sums of complex numbers are sums of their parts") {
  const on_double fresh;
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 2, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          device_bytes mine(comm.memory(), bytes_of(values<float>(comm.rank(), 6)));  // three complex numbers
          std::string wrong = finish(comm.all_reduce(mine.there(), mine.there(), dtype::complex64, reduce_op::sum, {}));
          return wrong + (mine.here() == bytes_of(combined<float>(2, 6, reduce_op::sum)) ? "" : "another sum");
        }) == "");
}

TEST_CASE("what NCCL cannot combine is refused with dtype and operation, and what does not fit with the sizes") {
  const on_double fresh;
  for (const dtype type : all_dtypes())
    for (const reduce_op op : {reduce_op::band, reduce_op::bor, reduce_op::bxor}) CHECK(!nccl_reduces(type, op));
  for (const dtype type : {dtype::boolean, dtype::int16, dtype::uint16, dtype::float8_e4m3fn, dtype::float8_e5m2})
    CHECK(!nccl_reduces(type, reduce_op::sum));
  CHECK(!nccl_reduces(dtype::int32, reduce_op::avg));
  CHECK(!nccl_reduces(dtype::complex64, reduce_op::max));
  CHECK(nccl_reduces(dtype::bfloat16, reduce_op::avg));
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 2, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          device_bytes mine(comm.memory(), 24), other(comm.memory(), 24);
          const auto refused = [&](const result<pending>& started, errc code, const std::string& text) -> std::string {
            if (started) return "nothing was refused";
            const std::string said = to_string(started.error());
            const bool is_so = started.error().code == code && said.find(text) != std::string::npos &&
                               started.error().ranks == std::vector{comm.rank()};
            return is_so ? "" : "another error: " + said + "\n";
          };
          const auto m = mine.there();
          const auto o = other.there();
          return refused(comm.all_reduce(m, o, dtype::int64, reduce_op::avg, {}), errc::unsupported,
                         "avg of int64 is not defined") +
                 refused(comm.reduce_scatter(m, o.first(12), dtype::float8_e5m2, reduce_op::sum, {}), errc::unsupported,
                         "sum of float8_e5m2 is not defined") +
                 refused(comm.all_reduce(m, o.first(20), dtype::int32, reduce_op::sum, {}), errc::invalid_argument,
                         "expected 24 bytes, found 20 bytes") +
                 refused(comm.all_reduce(m.first(7), o.first(7), dtype::int32, reduce_op::sum, {}),
                         errc::invalid_argument, "a multiple of 4 bytes") +
                 refused(comm.all_gather_into(m, o, {}), errc::invalid_argument, "expected 48 bytes") +
                 refused(comm.all_to_all(m.first(7), o.first(7), {}), errc::invalid_argument, "equal blocks") +
                 (comm.broadcast(m, m, 2, {}).error().ranks == std::vector{2} ? "" : "another rank is named");
        }) == "");
}
