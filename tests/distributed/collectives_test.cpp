// SPDX-License-Identifier: Apache-2.0
// The data collectives of communicators, and plans that use them.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <on_ranks.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

constexpr auto& on_all_sizes = fabric::on_all_sizes<any_communicator>;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
std::span<std::byte> room_in(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

std::int32_t value(std::int32_t rank, std::size_t i) {
  return static_cast<std::int32_t>((rank * 7 + static_cast<std::int32_t>(i) * 3) % 11) - 5;
}

std::vector<std::int32_t> values_of(std::int32_t rank, std::size_t count) {
  std::vector<std::int32_t> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(value(rank, i));
  return made;
}

std::string text_of(const result<void>& done) {
  return done ? std::string() : to_string(done.error());
}

// The expected combination of all ranks' values at i.
std::int32_t combined(reduce_op op, std::int32_t ranks, std::size_t i) {
  std::int32_t all = value(0, i);
  for (std::int32_t r = 1; r < ranks; ++r)
    all = op == reduce_op::max   ? std::max(all, value(r, i))
          : op == reduce_op::min ? std::min(all, value(r, i))
                                 : all + value(r, i);
  return all;
}

// Forwards collectives, which it counts, and messages to a communicator.
struct counted_collectives {
  any_communicator* inner = nullptr;
  int* calls = nullptr;
  std::int32_t rank() const { return inner->rank(); }
  std::int32_t size() const { return inner->size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    return inner->all_gather(bytes, o);
  }
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    return inner->start_exchange(s, r, o);
  }
  void abort(const error& e) { inner->abort(e); }
  result<pending> all_gather_into(std::span<const std::byte> s, std::span<std::byte> r, const call_options& o) {
    return ++*calls, inner->all_gather_into(s, r, o);
  }
  result<pending> all_to_all(std::span<const std::byte> s, std::span<std::byte> r, const call_options& o) {
    return ++*calls, inner->all_to_all(s, r, o);
  }
  result<pending> reduce_scatter(std::span<const std::byte> s, std::span<std::byte> r, dtype t, reduce_op op,
                                 const call_options& o) {
    return ++*calls, inner->reduce_scatter(s, r, t, op, o);
  }
  result<pending> all_reduce(std::span<const std::byte> s, std::span<std::byte> r, dtype t, reduce_op op,
                             const call_options& o) {
    return ++*calls, inner->all_reduce(s, r, t, op, o);
  }
  result<pending> broadcast(std::span<const std::byte> s, std::span<std::byte> r, std::int32_t root,
                            const call_options& o) {
    return ++*calls, inner->broadcast(s, r, root, o);
  }
};

// The same, but collectives act like a network's: messages match by order.
struct ordered_collectives : counted_collectives {
  bool is_ordered() const { return true; }
};

distribution on_all(std::int32_t ranks, const placement& p, const extents& shape) {
  const std::int64_t sizes[] = {ranks};
  return distribute(layout::make(device_mesh::make(sizes).value(), {p}, shape).value()).value();
}

}  // namespace

TEST_CASE("all_gather_into gives every rank the blocks of all, in rank order") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    for (const std::size_t count : {0, 1, 5, 1000}) {
      const auto mine = values_of(comm.rank(), count);
      std::vector<std::int32_t> all(count * static_cast<std::size_t>(comm.size()));
      auto begun = comm.all_gather_into(bytes_of(mine), room_in(all), {});
      if (std::string wrong = begun ? text_of(begun->wait()) : to_string(begun.error()); !wrong.empty()) return wrong;
      std::vector<std::int32_t> wanted;
      for (std::int32_t r = 0; r < comm.size(); ++r)
        for (const std::int32_t v : values_of(r, count)) wanted.push_back(v);
      if (all != wanted) return "other values";
    }
    return {};
  });
}

TEST_CASE("broadcast gives every rank the bytes of its root") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    for (const std::size_t count : {0, 1, 5, 1000})
      for (std::int32_t root = 0; root < comm.size(); ++root) {
        const auto wanted = values_of(root, count);
        std::vector<std::int32_t> got(count);
        const auto sent = comm.rank() == root ? bytes_of(wanted) : std::span<const std::byte>();
        auto begun = comm.broadcast(sent, room_in(got), root, {});
        if (std::string wrong = begun ? text_of(begun->wait()) : to_string(begun.error()); !wrong.empty()) return wrong;
        if (got != wanted) return "other values";
      }
    return {};
  });
}

TEST_CASE("all_to_all transposes the blocks") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const auto n = static_cast<std::size_t>(comm.size());
    for (const std::size_t count : {1, 7}) {
      const auto mine = values_of(comm.rank(), count * n);
      std::vector<std::int32_t> got(count * n), wanted;
      auto begun = comm.all_to_all(bytes_of(mine), room_in(got), {});
      if (std::string wrong = begun ? text_of(begun->wait()) : to_string(begun.error()); !wrong.empty()) return wrong;
      for (std::int32_t r = 0; r < comm.size(); ++r)
        for (std::size_t i = 0; i < count; ++i)
          wanted.push_back(value(r, static_cast<std::size_t>(comm.rank()) * count + i));
      if (got != wanted) return "other values";
    }
    return {};
  });
}

TEST_CASE("reduce_scatter and all_reduce combine the terms of all ranks, polled and waited for, in place too") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const auto n = static_cast<std::size_t>(comm.size());
    for (const reduce_op op : {reduce_op::sum, reduce_op::min, reduce_op::max})
      for (const std::size_t count : {0, 1, 3, 501}) {
        const auto blocks = values_of(comm.rank(), count * n);
        std::vector<std::int32_t> block(count);
        auto begun = comm.reduce_scatter(bytes_of(blocks), room_in(block), dtype::int32, op, {});
        if (!begun) return to_string(begun.error());
        while (count % 2 == 1 && !begun->done()) {
        }
        if (std::string wrong = text_of(begun->wait()); !wrong.empty()) return wrong;
        for (std::size_t i = 0; i < count; ++i)
          if (block[i] != combined(op, comm.size(), static_cast<std::size_t>(comm.rank()) * count + i))
            return "another value of reduce_scatter";
        auto all = values_of(comm.rank(), count);  // sometimes fewer elements than ranks
        begun = comm.all_reduce(bytes_of(all), room_in(all), dtype::int32, op, {});
        if (!begun) return to_string(begun.error());
        while (count % 2 == 0 && !begun->done()) {
        }
        if (std::string wrong = text_of(begun->wait()); !wrong.empty()) return wrong;
        for (std::size_t i = 0; i < count; ++i)
          if (all[i] != combined(op, comm.size(), i)) return "another value of all_reduce";
      }
    return {};
  });
}

TEST_CASE("an average of bfloat16 is made in float32 and rounded once", "[made_of_messages]") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    // 256 + 1 + 1 ...: in bfloat16 the ones would be lost. The mean is (256 + n - 1) / n.
    std::vector<std::uint16_t> mine(3, comm.rank() == 0 ? 0x4380 : 0x3f80), got(3);
    auto begun = comm.all_reduce(bytes_of(mine), room_in(got), dtype::bfloat16, reduce_op::avg, {});
    if (std::string wrong = begun ? text_of(begun->wait()) : to_string(begun.error()); !wrong.empty()) return wrong;
    const float mean = static_cast<float>(256 + comm.size() - 1) / static_cast<float>(comm.size());
    std::uint16_t wanted = 0;
    const tensor_view rounded{reinterpret_cast<std::byte*>(&wanted), dtype::bfloat16, {}, {}, {}};
    const const_tensor_view exact{reinterpret_cast<const std::byte*>(&mean), dtype::float32, {}, {}, {}};
    if (!copy(rounded, exact)) return "no cast";
    return got == std::vector<std::uint16_t>(3, wanted) ? "" : "another average";
  });
}

TEST_CASE("collectives refuse sizes and reductions that cannot be, naming the rank, and stay usable",
          "[made_of_messages]") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const auto must_fail = [&](const result<pending>& got, errc code, const std::string& part) -> std::string {
      if (got.has_value()) return "there was no error";
      const std::string text = to_string(got.error());
      const bool right = got.error().code == code && text.find(part) != std::string::npos &&
                         got.error().ranks == std::vector<std::int32_t>{comm.rank()};
      return right ? "" : text;
    };
    std::vector<std::int32_t> a(8 * static_cast<std::size_t>(comm.size())), b(a.size() + 1);
    std::string wrong =
        must_fail(comm.all_gather_into(bytes_of(a), room_in(b), {}), errc::invalid_argument, "all_gather_into");
    if (wrong.empty())
      wrong = must_fail(comm.all_to_all(bytes_of(a), room_in(b), {}), errc::invalid_argument, "all_to_all");
    if (wrong.empty())
      wrong = must_fail(comm.all_reduce(bytes_of(a), room_in(b), dtype::int32, reduce_op::sum, {}),
                        errc::invalid_argument, "all_reduce");
    if (wrong.empty())
      wrong = must_fail(comm.all_reduce(bytes_of(a), room_in(a), dtype::int32, reduce_op::avg, {}), errc::unsupported,
                        "avg of int32 is not defined");
    if (wrong.empty())
      wrong = must_fail(comm.reduce_scatter(bytes_of(a), room_in(a).first(32), dtype::float32, reduce_op::none, {}),
                        errc::unsupported, "none of float32");
    if (wrong.empty())
      wrong = must_fail(comm.broadcast(bytes_of(a), room_in(a), comm.size(), {}), errc::invalid_argument,
                        "the root of a broadcast is not in the group");
    if (wrong.empty())
      wrong = must_fail(comm.broadcast(bytes_of(a), room_in(b), comm.rank(), {}), errc::invalid_argument, "broadcast");
    if (!wrong.empty()) return wrong;
    auto begun = comm.all_reduce(bytes_of(a), room_in(a), dtype::int32, reduce_op::sum, {});
    return begun ? text_of(begun->wait()) : to_string(begun.error());
  });
}

TEST_CASE(
    "a plan that is an all_reduce or a reduce_scatter uses the communicator's, unless sums must be reproducible") {
  on_all_sizes([](any_communicator& world) -> std::string {
    const std::int32_t n = world.size();
    const std::int32_t me = world.rank();
    for (const std::int64_t columns : {3, 300})
      for (const bool deterministic : {true, false})
        for (const bool scatters : {true, false})
          for (const bool strided : {true, false})
            for (const std::int64_t budget : {0, 4'000}) {
              int calls = 0;
              any_communicator comm(counted_collectives{&world, &calls});
              const extents shape{2 * n, columns};
              const distribution from = on_all(n, placement::partial(reduce_op::sum), shape);
              const distribution to = on_all(n, scatters ? placement::shard(0) : placement::replicate(), shape);
              auto made = executor::make(plan({{from, to, dtype::int32, dtype::int32}},
                                              {.memory_bytes = budget, .deterministic = deterministic}),
                                         comm, {"w"});
              if (!made) return to_string(made.error());
              const std::int64_t rows = scatters ? 2 : 2 * n, gap = strided ? 2 : 1;
              const auto count = static_cast<std::size_t>(2 * n * columns);
              std::vector<std::int32_t> mine(count * static_cast<std::size_t>(gap)),
                  got(static_cast<std::size_t>(rows * columns * gap), -99);
              for (std::size_t i = 0; i < count; ++i) mine[i * static_cast<std::size_t>(gap)] = value(me, i);
              const auto view = [&](std::vector<std::int32_t>& of, std::int64_t r) {
                return tensor_view{
                    reinterpret_cast<std::byte*>(of.data()), dtype::int32, {}, {r, columns}, {columns * gap, gap}};
              };
              const const_tensor_binding a{{view(mine, 2 * n)}};
              const tensor_binding b{{view(got, rows)}};
              for (int run = 0; run < 2; ++run)
                if (auto done = made->run(std::span(&a, 1), std::span(&b, 1)); !done) return to_string(done.error());
              if (made->scratch_bytes() > made->peak_bytes()) return "took more than predicted";
              if ((calls > 0) != (!deterministic && n > 1)) return std::to_string(calls) + " collectives";
              const std::int64_t first = scatters ? me * rows * columns : 0;
              for (std::int64_t i = 0; i < rows * columns; ++i)
                if (got[static_cast<std::size_t>(i * gap)] !=
                    combined(reduce_op::sum, n, static_cast<std::size_t>(first + i)))
                  return "another value";
              for (std::size_t i = 1; i < got.size(); i += 2)
                if (strided && got[i] != -99) return "a byte beside the tensor changed";
            }
    return {};
  });
}

TEST_CASE("a plan that is an all_gather or a broadcast uses an ordered communicator's, and no other's") {
  on_all_sizes([](any_communicator& world) -> std::string {
    const std::int32_t n = world.size(), me = world.rank();
    for (const std::int64_t columns : {3, 300})
      for (const bool gathers : {true, false})
        for (const bool ordered : {true, false})
          for (const bool strided : {true, false})
            for (const std::int64_t budget : {0, 4'000}) {
              int calls = 0;
              any_communicator plain(counted_collectives{&world, &calls});
              any_communicator network(ordered_collectives{{&world, &calls}});
              const extents shape{2 * n, columns};
              const std::int32_t root = n / 2;
              const distribution from =
                  gathers ? on_all(n, placement::shard(0), shape) : on_one_rank(shape, root).value();
              const distribution to = on_all(n, placement::replicate(), shape);
              auto made = executor::make(plan({{from, to, dtype::int32, dtype::int32}}, {.memory_bytes = budget}),
                                         ordered ? network : plain, {"w"});
              if (!made) return to_string(made.error());
              const std::int64_t gap = strided ? 2 : 1, held = gathers ? 2 : me == root ? 2 * n : 0;
              const std::int64_t first = gathers ? 2 * columns * me : 0;
              std::vector<std::int32_t> mine(static_cast<std::size_t>(held * columns * gap)),
                  got(static_cast<std::size_t>(2 * n * columns * gap), -99);
              for (std::int64_t i = 0; i < held * columns; ++i)
                mine[static_cast<std::size_t>(i * gap)] = static_cast<std::int32_t>(first + i);
              const auto view = [&](std::vector<std::int32_t>& of, std::int64_t r) {
                return tensor_view{
                    reinterpret_cast<std::byte*>(of.data()), dtype::int32, {}, {r, columns}, {columns * gap, gap}};
              };
              const_tensor_binding a;
              if (held > 0) a.slots.push_back(view(mine, held));
              const tensor_binding b{{view(got, 2 * n)}};
              for (int run = 0; run < 2; ++run)
                if (auto done = made->run(std::span(&a, 1), std::span(&b, 1)); !done) return to_string(done.error());
              if (made->scratch_bytes() > made->peak_bytes()) return "took more than predicted";
              if ((calls > 0) != (ordered && n > 1)) return std::to_string(calls) + " collectives";
              for (std::int64_t i = 0; i < 2 * n * columns; ++i)
                if (got[static_cast<std::size_t>(i * gap)] != i) return "another value";
              for (std::size_t i = 1; i < got.size(); i += 2)
                if (strided && got[i] != -99) return "a byte beside the tensor changed";
            }
    return {};
  });
}
