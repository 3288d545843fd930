// SPDX-License-Identifier: Apache-2.0
// The agreement along a tree gives every rank the notes or the error that an all_gather gives it, over every
// communicator with messages in host memory. The others agree with all_gathers alone.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <fabric.hpp>
#include <on_ranks.hpp>
#include <random_ballots.hpp>
#include <string>
#include <vector>
import shardmesh.comm;

using namespace shardmesh;

namespace {

constexpr auto& on_all_sizes = fabric::on_all_sizes<any_communicator>;

std::string text_of(const result<agreement_notes>& got) {
  return got ? "agreed" : to_string(got.error());
}

// Agrees in both ways. Returns "" if the results are equal.
std::string difference_on(any_communicator& comm, const random_ballots& ballots) {
  const random_ballot& mine = ballots.of_rank[static_cast<std::size_t>(comm.rank())];
  std::vector<agreement_record> records;
  for (const auto& [key, text] : mine.records) records.push_back({key, text});
  const digest128 digest = digest_of(records, ballots.ordered);
  const error trouble = fail(errc::io, "no luck").with_key("of rank " + std::to_string(comm.rank()));
  const agree_options options{
      .what = "tensors",
      .ordered = ballots.ordered,
      .note = mine.note,
      .problem = mine.has_problem ? &trouble : nullptr,
      .combine = ballots.combines != mine.combines_otherwise ? note_combiner(combine_sorted) : note_combiner()};
  call_options call;
  call.within = std::chrono::seconds(60);
  call.name = mine.call;
  const auto list = [&] { return records; };
  const auto gathered = detail::agree_by_gather(comm, digest, list, options, call);
  const auto told = detail::has_host_messages(comm) ? detail::agree_along_tree(comm, digest, list, options, call)
                                                    : agree(comm, digest, list, options, call);
  const bool is_equal =
      gathered.has_value() == told.has_value() && (gathered ? *gathered == *told : gathered.error() == told.error());
  return is_equal ? "" : text_of(gathered) + " is not " + text_of(told);
}

}  // namespace

TEST_CASE("the agreement along a tree gives every rank what an all_gather gives it") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    for (int round = 0; round < fabric::rounds(20); ++round) {
      dice die(fabric::seed() + static_cast<std::uint64_t>(round));
      const random_ballots ballots(die, comm.size());
      if (const std::string wrong = difference_on(comm, ballots); !wrong.empty())
        return "SHARDMESH_SEED=" + std::to_string(fabric::seed()) + ", round " + std::to_string(round) + ": " + wrong;
    }
    return {};
  });
}
