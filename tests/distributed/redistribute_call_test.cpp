// SPDX-License-Identifier: Apache-2.0
// The function `redistribute`: many tensors, gather, broadcast, budgets, cached plans, and errors of one rank.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

layout on_mesh(const extents& mesh, std::vector<placement> placements, const extents& shape) {
  return layout::make(device_mesh::make(mesh).value(), std::move(placements), shape).value();
}

// A rank's local tensor: every element is its number in the whole tensor, or -1 if not filled.
host_tensor local_of(const distribution& d, owner_id rank, bool filled) {
  extents sizes = extents::filled(d.global_shape().rank(), 0);
  d.fragments_of(rank, [&](const fragment& f) {
    for (std::size_t i = 0; i < sizes.rank(); ++i) sizes[i] = std::max(sizes[i], f.local_offsets[i] + f.where.sizes[i]);
    return true;
  });
  host_tensor made = host_tensor::make(dtype::int32, sizes).value();
  auto* const values = reinterpret_cast<std::int32_t*>(made.bytes().data());
  std::fill_n(values, box::whole(sizes).volume(), -1);
  if (!filled) return made;
  const extents strides = contiguous_strides(sizes), global = contiguous_strides(d.global_shape());
  d.fragments_of(rank, [&](const fragment& f) {
    for (std::int64_t n = 0; n < f.where.volume(); ++n) {
      std::int64_t rest = n, to = 0, number = 0;
      for (std::size_t i = sizes.rank(); i-- > 0;) {
        const std::int64_t index = rest % f.where.sizes[i];
        rest /= f.where.sizes[i];
        to += (index + f.local_offsets[i]) * strides[i];
        number += (index + f.where.offsets[i]) * global[i];
      }
      values[to] = static_cast<std::int32_t>(number);
    }
    return true;
  });
  return made;
}

bool equal(host_tensor& a, host_tensor& b) {
  return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

}  // namespace

TEST_CASE("many tensors move in one call, from layouts to layouts, within a budget and with progress") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    for (const std::int64_t budget : {std::int64_t{0}, std::int64_t{8'000}, unlimited_memory}) {
      std::vector<host_tensor> from, to, wanted;
      std::vector<tensor_move> moves;
      from.reserve(20), to.reserve(20), wanted.reserve(20);
      for (std::int64_t i = 0; i < 20; ++i) {
        const extents shape{i % 5 * 7 + 1, 9, i % 3 + 1};
        const layout a = on_mesh({n}, {placement::shard(static_cast<std::int32_t>(i % 3))}, shape);
        const layout b =
            on_mesh({1, n}, {placement::replicate(), i % 4 == 0 ? placement::replicate() : placement::shard(1)}, shape);
        from.push_back(local_of(distribute(a).value(), comm.rank(), true));
        to.push_back(local_of(distribute(b).value(), comm.rank(), false));
        wanted.push_back(local_of(distribute(b).value(), comm.rank(), true));
        moves.push_back({"w" + std::to_string(i), side_of(a, from.back()).value(), side_of(b, to.back()).value()});
      }
      std::int64_t told = 0;
      const auto done =
          redistribute(moves, comm, {.memory_bytes = budget, .progress = [&](std::int64_t bytes) { told += bytes; }});
      if (!done) return to_string(done.error());
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < to.size(); ++i) {
        if (!equal(to[i], wanted[i])) return "w" + std::to_string(i) + " is wrong";
        bytes += static_cast<std::int64_t>(to[i].bytes().size());
      }
      if (told != bytes) return "progress told of " + std::to_string(told) + " bytes of " + std::to_string(bytes);
      if (budget > 0 && done->scratch_bytes > budget) return "more than the budget";
      if (n == 1 && done->sent_bytes + done->received_bytes != 0) return "sent to nobody";
    }
    return {};
  });
}

TEST_CASE("a whole tensor is gathered to one rank and broadcast from one") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const extents shape{11, 6};
    const std::int32_t root = comm.size() / 2;
    const distribution rows = distribute(on_mesh({comm.size()}, {placement::shard(0)}, shape)).value();
    const distribution one = on_one_rank(shape, root).value(), all = on_every_rank(shape, comm.size()).value();
    host_tensor part = local_of(rows, comm.rank(), true), whole = local_of(one, comm.rank(), false);
    const bool is_root = comm.rank() == root;
    auto done = redistribute(side_of(rows, part), is_root ? side_of(one, whole) : side_of(one, dtype::int32), comm);
    if (!done) return to_string(done.error());
    if (done->received_bytes != (is_root ? 11 * 6 * 4 - static_cast<std::int64_t>(part.bytes().size()) : 0))
      return "received " + std::to_string(done->received_bytes);
    if (host_tensor wanted = local_of(one, comm.rank(), true); !equal(whole, wanted)) return "not gathered";
    host_tensor copy_of_all = local_of(all, comm.rank(), false), wanted = local_of(all, comm.rank(), true);
    done = redistribute(is_root ? side_of(one, whole) : side_of(one, dtype::int32), side_of(all, copy_of_all), comm);
    if (!done) return to_string(done.error());
    return equal(copy_of_all, wanted) ? "" : "not broadcast";
  });
}

TEST_CASE("a cached plan is found again, also by ranks that share the cache") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    plan_cache cache;
    const layout a = on_mesh({comm.size()}, {placement::shard(0)}, {8, 8});
    const layout b = on_mesh({comm.size()}, {placement::shard(1)}, {8, 8});
    host_tensor from = local_of(distribute(a).value(), comm.rank(), true);
    host_tensor to = local_of(distribute(b).value(), comm.rank(), false);
    for (int i = 0; i < 3; ++i) {
      const auto done = redistribute(side_of(a, from).value(), side_of(b, to).value(), comm, {.cache = &cache});
      if (!done) return to_string(done.error());
    }
    return cache.hits() == 2 && cache.misses() == 1 && cache.size() == 1 ? "" : "planned again";
  });
}

TEST_CASE("what one rank alone gets wrong is told to all, and the communicator stays usable") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const layout a = on_mesh({comm.size()}, {placement::shard(0)}, {8, 8});
    const layout b = on_mesh({comm.size()}, {placement::shard(1)}, {8, 8});
    host_tensor from = local_of(distribute(a).value(), comm.rank(), true);
    host_tensor to = local_of(distribute(b).value(), comm.rank(), false);
    const tensor_move good{"w", side_of(a, from).value(), side_of(b, to).value()};
    tensor_move mine = good;
    const std::int32_t last = comm.size() - 1;
    if (comm.rank() == last) mine.to.where = on_one_rank({3}, 0).value();  // another tensor
    const call_options soon{.within = std::chrono::seconds(20)};
    auto done = redistribute(std::span(&mine, 1), comm, {.call = soon});
    if (done || done.error().code != errc::shape_mismatch) return "no error of that kind";
    if (done.error().ranks != std::vector<std::int32_t>{last}) return "another rank: " + to_string(done.error());
    done = redistribute(std::span(&good, 1), comm, {.call = soon});
    return done ? "" : to_string(done.error());
  });
}

TEST_CASE("a mesh larger than the group is refused on every rank, naming key and rank") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const layout small = on_mesh({n}, {placement::replicate()}, {4});
    const layout large = on_mesh({n + 1}, {placement::replicate()}, {4});
    host_tensor from = local_of(distribute(small).value(), comm.rank(), true),
                to = local_of(distribute(small).value(), comm.rank(), false);
    const tensor_move move{"bias", side_of(small, from).value(), side_of(large, to).value()};
    const auto done = redistribute(std::span(&move, 1), comm);
    if (done) return "there was no error";
    const std::string text = to_string(done.error());
    const bool right = done.error().code == errc::invalid_argument && text.find("bias") != std::string::npos &&
                       text.find("rank " + std::to_string(n)) != std::string::npos;
    return right ? "" : text;
  });
}

TEST_CASE("a deadline that has passed ends the call on every rank") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const layout a = on_mesh({comm.size()}, {placement::shard(0)}, {8, 8});
    host_tensor from = local_of(distribute(a).value(), comm.rank(), true),
                to = local_of(distribute(a).value(), comm.rank(), false);
    const call_options now{.within = std::chrono::steady_clock::now()};
    const auto done = redistribute(side_of(a, from).value(), side_of(a, to).value(), comm, {.call = now});
    return !done && done.error().code == errc::deadline_exceeded ? "" : "no such error";
  });
}

TEST_CASE("a tensor larger than the budget is cut, the same bytes move, and the memory taken is what was predicted") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    if (n == 1) return {};
    constexpr std::int64_t budget = 64 << 10;
    const extents shape{512, 512};  // 1 MiB
    const distribution rows = distribute(on_mesh({n}, {placement::shard(0)}, shape)).value();
    const distribution columns = distribute(on_mesh({n}, {placement::shard(1)}, shape)).value();
    for (const bool budgeted : {false, true}) {
      auto made = executor::make(
          plan({{rows, columns, dtype::int32, dtype::int32}}, {.memory_bytes = budgeted ? budget : unlimited_memory}),
          comm, {"w"}, {.in_place = false});
      if (!made) return to_string(made.error());
      host_tensor from = local_of(rows, comm.rank(), true), wanted = local_of(columns, comm.rank(), true);
      // Every second element, so that nothing can be received directly into the tensor.
      const extents sizes = adapter<host_tensor>::view(wanted).sizes;
      host_tensor room = host_tensor::make(dtype::int32, {sizes[0], sizes[1], 2}).value();
      tensor_view sparse = adapter<host_tensor>::view(room);
      sparse.sizes = sizes;
      sparse.strides = {2 * sizes[1], 2};
      const const_tensor_binding a{{view_of(from)}};
      const tensor_binding b{{sparse}};
      if (auto done = made->run(std::span(&a, 1), std::span(&b, 1)); !done) return to_string(done.error());
      host_tensor got = local_of(columns, comm.rank(), false);
      if (!copy(adapter<host_tensor>::view(got), sparse) || !equal(got, wanted)) return "wrong values";
      if ((made->rounds() > 1) != budgeted) return std::to_string(made->rounds()) + " rounds";
      // Mirrors on a device are dense: data that arrives there is not packed.
      const bool packs_all = comm.memory().type == device_type::cpu;
      if (packs_all ? made->scratch_bytes() != made->peak_bytes() : made->scratch_bytes() > made->peak_bytes())
        return std::to_string(made->scratch_bytes()) + " instead of " + std::to_string(made->peak_bytes());
      if (budgeted && made->scratch_bytes() > budget) return "more than the budget";
      if (budgeted && made->peak_bytes() > made->plan().for_owner(comm.rank()).peak_bytes())
        return "predicted too little";
    }
    return {};
  });
}

TEST_CASE("a budget that nothing can keep is refused on every rank, with the rank and both numbers") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    if (n == 1) return {};
    const distribution rows = distribute(on_mesh({n}, {placement::shard(0)}, {2 * n})).value();
    const auto made = executor::make(
        plan({{rows, on_every_rank({2 * n}, n).value(), dtype::int32, dtype::int32}}, {.memory_bytes = 3}), comm, {},
        {.in_place = false});
    if (made) return "there was no error";
    const std::string text = to_string(made.error());
    const bool right = made.error().code == errc::no_memory && text.find("at most 3 bytes") != std::string::npos &&
                       text.find("rank 0") != std::string::npos;
    return right ? "" : text;
  });
}

TEST_CASE("ranks may wait for overlapping runs in any order", "[any_order]") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    // Two rounds of messages each, and several batches: no run finishes without every rank's help.
    const extents shape{16 * n, 64};
    const distribution terms = distribute(on_mesh({n}, {placement::partial(reduce_op::max)}, shape)).value();
    const distribution all = on_every_rank(shape, n).value();
    for (const bool in_place : {true, false}) {
      std::vector<executor> runners;
      std::vector<host_tensor> to;
      host_tensor from = local_of(terms, comm.rank(), true), wanted = local_of(all, comm.rank(), true);
      for (int i = 0; i < 3; ++i) {
        auto made = executor::make(plan({{terms, all, dtype::int32, dtype::int32}}, {.memory_bytes = 64 << 10}), comm,
                                   {}, {.in_place = in_place});
        if (!made) return to_string(made.error());
        runners.push_back(*std::move(made));
        to.push_back(local_of(all, comm.rank(), false));
      }
      const const_tensor_binding source{{view_of(from)}};
      const call_options soon{.within = std::chrono::seconds(30)};
      std::vector<pending> runs;
      for (std::size_t i = 0; i < 3; ++i) {
        const tensor_binding target{{adapter<host_tensor>::view(to[i])}};
        auto started = runners[i].start(std::span(&source, 1), std::span(&target, 1), soon);
        if (!started) return to_string(started.error());
        runs.push_back(*std::move(started));
      }
      for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t mine = (i + static_cast<std::size_t>(comm.rank())) % 3;
        if (auto done = runs[mine].wait(); !done) return to_string(done.error());
        if (!equal(to[mine], wanted)) return "wrong values";
      }
    }
    return {};
  });
}
