// SPDX-License-Identifier: Apache-2.0
// Subgroups of a communicator: along mesh dimensions, nested, many at a time.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
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

constexpr auto& on_ranks = fabric::on_ranks<any_communicator, 60>;

device_mesh mesh_of(std::initializer_list<std::int64_t> sizes, std::vector<std::string> names) {
  return device_mesh::make(std::span(sizes.begin(), sizes.size()), std::move(names)).value();
}

// The contents of all_gather when each member sends its rank in the whole, repeated rank + 1 times.
std::string ranks_in(any_communicator& group, std::int32_t whole_rank) {
  const std::vector<std::byte> mine(static_cast<std::size_t>(whole_rank) + 1, static_cast<std::byte>(whole_rank));
  const auto all = group.all_gather(mine, {});
  if (!all) return to_string(all.error());
  std::string text;
  for (const auto& part : *all) {
    if (part.size() != static_cast<std::size_t>(part.front()) + 1) return "a part of another length";
    text += std::to_string(static_cast<int>(part.front())) + " ";
  }
  return text;
}

// Gathers this rank's row of a tensor on all ranks of the group. Row r must be the number of the group's rank r in the
// whole.
std::string gather_rows(any_communicator& group, std::int32_t whole_rank, const std::vector<std::int32_t>& members) {
  const std::int64_t sizes[] = {group.size()};
  const device_mesh mesh = device_mesh::make(sizes).value();
  const extents shape{group.size(), 5};
  const distribution rows = distribute(layout::make(mesh, {placement::shard(0)}, shape).value()).value();
  const distribution all = distribute(layout::make(mesh, {placement::replicate()}, shape).value()).value();
  auto made = executor::make(plan({{rows, all, dtype::int32, dtype::int32}}).value(), group);
  if (!made) return to_string(made.error());
  std::vector<std::int32_t> mine(5, whole_rank), got(5 * static_cast<std::size_t>(group.size()));
  const const_tensor_binding from{{{reinterpret_cast<std::byte*>(mine.data()), dtype::int32, {}, {1, 5}, {5, 1}}}};
  const tensor_binding to{{{reinterpret_cast<std::byte*>(got.data()), dtype::int32, {}, shape, {5, 1}}}};
  if (auto done = made->run(std::span(&from, 1), std::span(&to, 1)); !done) return to_string(done.error());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != members[i / 5]) return "wrong row";
  return {};
}

}  // namespace

TEST_CASE("a subgroup along a mesh dimension has the ranks that share the other coordinates") {
  on_ranks({6}, [](any_communicator& comm) -> std::string {
    const device_mesh mesh = mesh_of({2, 3}, {"dp", "tp"});
    const std::int32_t me = comm.rank(), row = me / 3, column = me % 3;
    auto tp = subgroup(comm, mesh, "tp");
    if (!tp) return to_string(tp.error());
    auto dp = subgroup(comm, mesh, "dp");
    if (!dp) return to_string(dp.error());
    if (tp->size() != 3 || tp->rank() != column || dp->size() != 2 || dp->rank() != row) return "wrong numbers";
    const auto text = [](std::int32_t a, std::int32_t b) { return std::to_string(a) + " " + std::to_string(b) + " "; };
    if (ranks_in(*tp, me) != text(3 * row, 3 * row + 1) + std::to_string(3 * row + 2) + " ") return "wrong tp";
    if (ranks_in(*dp, me) != text(column, 3 + column)) return "wrong dp";
    if (tp->shares_memory() != comm.shares_memory()) return "memory is shared by the whole or not at all";
    std::string wrong = gather_rows(*tp, me, {3 * row, 3 * row + 1, 3 * row + 2});
    if (wrong.empty()) wrong = gather_rows(*dp, me, {column, 3 + column});
    return wrong;
  });
}

TEST_CASE("a subgroup of a subgroup is one of the whole, and a permuted group has its own order") {
  on_ranks({8}, [](any_communicator& comm) -> std::string {
    const device_mesh mesh = mesh_of({2, 4}, {"pp", "tp"});
    auto tp = subgroup(comm, mesh, "tp");
    if (!tp) return to_string(tp.error());
    const std::int32_t me = comm.rank(), first = me / 4 * 4;
    // The odd and the even ranks of each group, in reverse order.
    const std::int32_t odd = tp->rank() % 2;
    auto half = subgroup(*tp, rank_group::make({2 + odd, odd}).value());
    if (!half) return to_string(half.error());
    if (half->rank() != (tp->rank() < 2 ? 1 : 0)) return "wrong rank";
    if (half->target<subgroup_communicator>() == nullptr) return "no subgroup";
    if (half->target<subgroup_communicator>()->members().globals() !=
        std::vector<std::int32_t>{first + 2 + odd, first + odd})
      return "wrong members";
    return gather_rows(*half, me, {first + 2 + odd, first + odd});
  });
}

TEST_CASE("messages of a subgroup, of another one and of the whole never meet", "[any_order]") {
  on_ranks({2, 4}, [](any_communicator& comm) -> std::string {
    std::vector<std::int32_t> backwards;
    for (std::int32_t r = comm.size(); r-- > 0;) backwards.push_back(r);
    auto one = subgroup(comm, rank_group::make(backwards).value());
    if (!one) return to_string(one.error());
    auto two = subgroup(comm, rank_group::world(comm.size()));
    if (!two) return to_string(two.error());
    auto nested = subgroup(*one, rank_group::world(comm.size()));
    if (!nested) return to_string(nested.error());
    // All use the same tag and start in different orders.
    std::vector<any_communicator*> all{&comm, &*one, &*two, &*nested};
    std::vector<std::int32_t> sent{10, 11, 12, 13}, got(4, 0);
    std::vector<pending> flying(4);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::size_t g = (k + static_cast<std::size_t>(comm.rank())) % all.size();
      const std::int32_t n = all[g]->size(), r = all[g]->rank();
      const outgoing send{(r + 1) % n, std::as_bytes(std::span(&sent[g], 1))};
      const incoming receive{(r + n - 1) % n, std::as_writable_bytes(std::span(&got[g], 1))};
      auto started = all[g]->start_exchange(std::span(&send, 1), std::span(&receive, 1), {});
      if (!started) return to_string(started.error());
      flying[g] = *std::move(started);
    }
    for (pending& p : flying)
      if (auto done = p.wait(); !done) return to_string(done.error());
    return got == sent ? "" : "messages met";
  });
}

TEST_CASE("a receive of a long-lived subgroup takes no message of the thousand that come and go meanwhile",
          "[any_order]") {
  on_ranks({2}, [](any_communicator& comm) -> std::string {
    const auto in_time = [] { return call_options{.within = std::chrono::seconds(30)}; };
    const bool sends = comm.rank() == 0;
    const std::int32_t peer = 1 - comm.rank();
    // Sends one number from rank 0 to rank 1.
    const auto move = [&](any_communicator& group, std::int32_t& number) {
      const outgoing out{peer, std::as_bytes(std::span(&number, 1))};
      const incoming in{peer, std::as_writable_bytes(std::span(&number, 1))};
      return sends ? group.start_exchange(std::span(&out, 1), {}, in_time())
                   : group.start_exchange({}, std::span(&in, 1), in_time());
    };
    auto kept = subgroup(comm, rank_group::world(2));
    if (!kept) return to_string(kept.error());
    std::int32_t last = sends ? -7 : 0;
    pending waiting;
    if (!sends) {
      auto started = move(*kept, last);
      if (!started) return to_string(started.error());
      waiting = *std::move(started);
    }
    for (std::int32_t i = 0; i < 1100; ++i) {
      auto one = subgroup(comm, rank_group::world(2), in_time());
      if (!one) return to_string(one.error());
      std::int32_t number = sends ? i : -1;
      auto started = move(*one, number);
      if (!started) return to_string(started.error());
      if (auto done = started->wait(); !done) return to_string(done.error());
      if (number != i) return "subgroup " + std::to_string(i) + " got " + std::to_string(number);
    }
    if (sends) {
      auto started = move(*kept, last);
      if (!started) return to_string(started.error());
      waiting = *std::move(started);
    }
    if (auto done = waiting.wait(); !done) return to_string(done.error());
    return last == -7 ? "" : "the long-lived subgroup got " + std::to_string(last);
  });
}

TEST_CASE("ranks may make different numbers of subgroups with others") {
  on_ranks({3, 4}, [](any_communicator& comm) -> std::string {
    // First, ranks 0 and 1 make three groups of their own.
    if (comm.rank() < 2)
      for (int i = 0; i < 3; ++i)
        if (auto pair = subgroup(comm, rank_group::world(2)); !pair || ranks_in(*pair, comm.rank()) != "0 1 ")
          return "wrong pair";
    auto all = subgroup(comm, rank_group::world(comm.size()));
    if (!all) return to_string(all.error());
    std::vector<std::int32_t> everyone = rank_group::world(comm.size()).globals();
    return gather_rows(*all, comm.rank(), everyone);
  });
}

TEST_CASE("a subgroup without this rank, of ranks that do not exist or along no dimension is refused by name") {
  on_ranks({2}, [](any_communicator& comm) -> std::string {
    const auto says = [](const result<any_communicator>& made, const std::string& text) {
      if (made) return std::string("there was no error");
      const std::string found = to_string(made.error());
      if (made.error().code != errc::invalid_argument) return found;
      return found.find(text) != std::string::npos ? std::string() : found;
    };
    const std::string me = std::to_string(comm.rank());
    std::string wrong = says(subgroup(comm, rank_group::make({1 - comm.rank()}).value()),
                             "rank " + me + " is not a member of the subgroup");
    if (wrong.empty())
      wrong = says(subgroup(comm, rank_group::make({comm.rank(), 7}).value()), "has a rank that is not in the group");
    const device_mesh mesh = mesh_of({1, 2}, {"dp", "tp"});
    if (wrong.empty()) wrong = says(subgroup(comm, mesh, "pp"), "mesh dp=1,tp=2 has no dimension 'pp'");
    const std::int64_t sizes[] = {1};
    const device_mesh other = device_mesh::make(sizes, {"x"}, {9}).value();
    if (wrong.empty()) wrong = says(subgroup(comm, other, "x"), "rank " + me + " is not in mesh");
    return wrong;
  });
}

TEST_CASE("what poisons a subgroup poisons the whole") {
  on_ranks({3}, [](any_communicator& comm) -> std::string {
    if (comm.rank() == 2) {
      const auto all = comm.all_gather({}, {});
      return !all && all.error().key == "w" ? "" : "no error";
    }
    auto pair = subgroup(comm, rank_group::world(2));
    if (!pair) return pair.error().key == "w" ? "" : to_string(pair.error());
    if (comm.rank() == 0) pair->abort(fail(errc::io, "no luck").with_key("w"));
    const auto all = pair->all_gather({}, {});
    return !all && all.error().key == "w" ? "" : "no error";
  });
}
