// SPDX-License-Identifier: Apache-2.0
// Subgroups and their tags. A tag has 12 bits for users, 10 for the number of an executor, and 10 for the number of a
// subgroup of the whole group. Numbers are reused once no object holds them (object_numbers).
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.comm;

import shardmesh.kernels;

namespace shardmesh {
namespace {

constexpr std::uint32_t group_shift = 22;
constexpr std::uint32_t control_tag = (1U << group_shift) - 1;  // all_gather's; its executor number is 1023
constexpr std::uint32_t tag_limit = 1023U << 12;                // the first tag of number 1023, which no executor has

std::vector<std::byte> bytes_of(std::uint64_t number) {
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

tensor_view bytes_at(std::byte* data, device where, std::size_t count) {
  return {data, dtype::uint8, where, {static_cast<std::int64_t>(count)}, {1}};
}
const_tensor_view bytes_at(const std::byte* data, device where, std::size_t count) {
  return {data, dtype::uint8, where, {static_cast<std::int64_t>(count)}, {1}};
}

std::uint64_t number_of(std::span<const std::byte> bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  return number;
}

}  // namespace

call_options subgroup_communicator::inside(const call_options& options) const {
  call_options made = options;
  made.tag = options.tag | number_.value() << group_shift;
  return made;
}

result<void> subgroup_communicator::check_tag(const call_options& options) const {
  if (options.tag < tag_limit) return {};
  return fail(errc::invalid_argument, "the tag is too large for a subgroup")
      .with_rank(members_.global(rank_))
      .with_values(fmt::format("below {}", tag_limit), fmt::format("{}", options.tag));
}

template <class Message>
result<void> subgroup_communicator::translate(std::span<const Message> messages,
                                              std::vector<Message>& translated) const {
  translated.assign(messages.begin(), messages.end());
  for (Message& m : translated) {
    if (m.peer < 0 || m.peer >= size())
      return fail(errc::invalid_argument, fmt::format("rank {} names rank {}, but its subgroup has {}", rank_, m.peer,
                                                      detail::counted(size(), "rank")))
          .with_rank(m.peer);
    m.peer = members_.global(m.peer);
  }
  return {};
}

result<pending> subgroup_communicator::start_exchange(std::span<const outgoing> sends,
                                                      std::span<const incoming> receives, const call_options& options) {
  SHARDMESH_TRY(check_tag(options));
  return exchange(sends, receives, options);
}

result<pending> subgroup_communicator::exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                const call_options& options) {
  SHARDMESH_TRY(translate(sends, sends_));
  SHARDMESH_TRY(translate(receives, receives_));
  return whole_.start_exchange(sends_, receives_, inside(options));
}

result<lending> subgroup_communicator::start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                                     const call_options& options) {
  SHARDMESH_TRY(check_tag(options));
  SHARDMESH_TRY(translate(lends, lends_));
  SHARDMESH_TRY(translate(borrows, borrows_));
  return whole_.start_lending(lends_, borrows_, inside(options));
}

result<std::vector<std::vector<std::byte>>> subgroup_communicator::all_gather(std::span<const std::byte> bytes,
                                                                              const call_options& options) {
  call_options control = options;
  control.tag = control_tag;
  const auto count = static_cast<std::size_t>(size());
  std::vector<std::vector<std::byte>> all(count);
  // Exchanges bytes between all members: sends `mine`, and fills the other members' parts, which already have their
  // final sizes. Where messages must be in device memory, both go through buffers there.
  const device where = memory();
  const auto swap = [&](std::span<const std::byte> mine) -> result<void> {
    std::vector<device_buffer> there;
    const auto staged = [&](std::span<const std::byte> here) -> result<std::byte*> {
      SHARDMESH_TRY(const auto backend, backend_for(where));
      SHARDMESH_TRY(there.emplace_back(), backend->allocate(static_cast<std::int64_t>(here.size()), where, {}));
      SHARDMESH_TRY(
          copy_between(bytes_at(there.back().data(), where, here.size()), bytes_at(here.data(), {}, here.size())));
      return there.back().data();
    };
    const bool is_far = where.type != device_type::cpu;
    if (is_far && !mine.empty()) {
      SHARDMESH_TRY(const std::byte* const sent, staged(mine));
      mine = {sent, mine.size()};
    }
    std::vector<outgoing> sends;
    std::vector<incoming> receives;
    for (std::int32_t peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      if (!mine.empty()) sends.push_back({peer, mine});
      auto& room = all[static_cast<std::size_t>(peer)];
      if (room.empty()) continue;
      std::span<std::byte> landing(room);
      if (is_far) {
        SHARDMESH_TRY(std::byte* const far, staged(room));
        landing = {far, room.size()};
      }
      receives.push_back({peer, landing});
    }
    SHARDMESH_TRY(pending started, exchange(sends, receives, control));
    SHARDMESH_TRY(started.wait());
    for (const incoming& one : receives)
      if (auto& room = all[static_cast<std::size_t>(one.peer)]; is_far)
        SHARDMESH_TRY(copy_between(bytes_at(room.data(), {}, room.size()),
                                   bytes_at(static_cast<const std::byte*>(one.bytes.data()), where, room.size())));
    return {};
  };
  for (auto& part : all) part.resize(sizeof(std::uint64_t));
  const std::vector<std::byte> length = bytes_of(bytes.size());
  SHARDMESH_TRY(swap(length));
  for (auto& part : all) part.resize(static_cast<std::size_t>(number_of(part)));
  all[static_cast<std::size_t>(rank_)].assign(bytes.begin(), bytes.end());
  SHARDMESH_TRY(swap(bytes));
  return all;
}

result<any_communicator> subgroup(communicator_ref comm, const rank_group& members, const call_options& given) {
  const call_options call = given.named("subgroup");
  const auto mine = members.group_rank(comm.rank());
  if (!mine)
    return fail(errc::invalid_argument,
                fmt::format("rank {} is not a member of the subgroup {}", comm.rank(), to_string(members)))
        .with_rank(comm.rank());
  // A subgroup of a subgroup also refers to the whole group, because only that group's numbers are unique between any
  // two ranks.
  communicator_ref whole = comm;
  std::vector<std::int32_t> ranks = members.globals();
  for (std::int32_t& rank : ranks) {
    if (rank >= comm.size())
      return fail(errc::invalid_argument, fmt::format("the subgroup {} has a rank that is not in the group of {}",
                                                      to_string(members), detail::counted(comm.size(), "rank")))
          .with_rank(rank);
    if (const auto* inner = comm.target<subgroup_communicator>()) {
      rank = inner->members().global(rank);
      whole = inner->whole();
    }
  }
  SHARDMESH_TRY(rank_group of_whole, rank_group::make(std::move(ranks)));
  subgroup_communicator made(whole, of_whole, *mine);
  // Members may also belong to different other subgroups, so they choose a number that none of them holds. Until then
  // the new subgroup uses number 0, which no finished one has. Subgroups under construction may share it, because any
  // two ranks make their common subgroups one after the other.
  object_numbers numbers = whole.numbers();
  SHARDMESH_TRY(const auto offered, made.all_gather(numbers.offer(numbered_object::subgroup), call));
  const std::vector<std::span<const std::byte>> offers(offered.begin(), offered.end());
  SHARDMESH_TRY(const std::uint32_t number, numbers.choose(numbered_object::subgroup, offers));
  made.number_ = numbers.hold(numbered_object::subgroup, number);
  return any_communicator(std::move(made));
}

result<any_communicator> subgroup(communicator_ref comm, const device_mesh& mesh, std::string_view dimension,
                                  const call_options& call) {
  const auto along = mesh.dimension(dimension);
  if (!along)
    return fail(errc::invalid_argument, fmt::format("mesh {} has no dimension '{}'", to_string(mesh), dimension))
        .with_rank(comm.rank());
  auto coordinate = mesh.coordinate_of(comm.rank());
  if (!coordinate)
    return fail(errc::invalid_argument, fmt::format("rank {} is not in mesh {}", comm.rank(), to_string(mesh)))
        .with_rank(comm.rank());
  std::vector<std::int32_t> ranks;
  for (std::int64_t i = 0; i < mesh.sizes()[*along]; ++i) {
    (*coordinate)[*along] = i;
    ranks.push_back(mesh.rank_at(*coordinate));
  }
  SHARDMESH_TRY(const rank_group members, rank_group::make(std::move(ranks)));
  return subgroup(comm, members, call);
}

}  // namespace shardmesh
