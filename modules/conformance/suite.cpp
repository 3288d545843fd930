// SPDX-License-Identifier: Apache-2.0
// The list of checks, and the code that runs them.
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.conformance;

import :trial;

namespace shardmesh {
namespace {

constexpr std::array checks = {
    conformance_check{"ranks are numbered from 0, and all_gather is in their order", false, check_ranks},
    conformance_check{"all_gather gives every rank the bytes of all, of any length", false, check_gather_lengths},
    conformance_check{"all_gathers in a row do not mix", false, check_many_gathers},
    conformance_check{"an exchange without messages is done at once", false, check_no_messages},
    conformance_check{"messages of any size arrive whole, and nothing else is written", false, check_sizes},
    conformance_check{"messages of one pair and tag arrive in call order", false, check_call_order},
    conformance_check{"exchanges of different tags do not mix, in whatever order they are started", false, check_tags},
    conformance_check{"an all_gather and an exchange of the same tag do not mix", false, check_gather_beside_exchange},
    conformance_check{"an exchange involves the named peers only", false, check_few_ranks},
    conformance_check{"an exchange that is only polled makes progress", false, check_polling},
    conformance_check{"a pending that is dropped has been waited for", false, check_dropping},
    conformance_check{"a large message arrives whole", false, check_large_message},
    conformance_check{"messages to oneself, to nobody, twice to one peer and empty ones are refused by name", false,
                      check_refusals},
    conformance_check{"all_gather_into gives every rank the blocks of all", false, check_all_gather_into},
    conformance_check{"all_to_all transposes the blocks", false, check_all_to_all},
    conformance_check{"broadcast gives every rank the root's bytes", false, check_broadcast},
    conformance_check{"reduce_scatter and all_reduce combine what all ranks have", false, check_reductions},
    conformance_check{"lent memory is read in place", false, check_lending},
    conformance_check{"a rank that does not come to an all_gather is named at the deadline", true,
                      check_gather_deadline},
    conformance_check{"a deadline of an exchange fails every rank, and late messages touch no memory", true,
                      check_exchange_deadline},
    conformance_check{"a deadline that has passed fails at once", true, check_past_deadline},
    conformance_check{"an abort ends an all_gather on every rank, with its reason", true, check_abort_of_gather},
    conformance_check{"an abort ends an exchange on every rank, with its reason", true, check_abort_of_exchange},
    conformance_check{"a cancelled wait ends on every rank", true, check_cancelling},
    conformance_check{"sizes that differ on the two sides are an error", true, check_different_sizes},
};

std::vector<std::byte> encode(const std::vector<conformance_problem>& problems) {
  detail::wire_writer out;
  out.number(static_cast<std::int64_t>(problems.size()));
  for (const conformance_problem& p : problems)
    for (const std::string* text : {&p.check, &p.expected, &p.found}) out.text(*text);
  return std::move(out).take();
}

bool decode(std::span<const std::byte> bytes, std::int32_t rank, std::vector<conformance_problem>& problems) {
  detail::wire_reader in(bytes);
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) {
    conformance_problem p{in.text(), rank, in.text(), in.text()};
    problems.push_back(std::move(p));
  }
  return in.finished();
}

// Gathers the problems of all ranks on every rank.
std::vector<conformance_problem> gathered(std::vector<conformance_problem> mine, communicator_ref comm,
                                          const conformance_options& options) {
  trial t("the problems of all ranks can be gathered", comm, options);
  const auto all = comm.all_gather(encode(mine), t.patient());
  std::vector<conformance_problem> found;
  if (t.succeeds(all ? result<void>{} : result<void>(all.error()), "all_gather"))
    for (std::size_t rank = 0; rank < all->size(); ++rank)
      t.expect(decode((*all)[rank], static_cast<std::int32_t>(rank), found), "a list of problems", "other bytes");
  else
    found = std::move(mine);
  for (conformance_problem& p : std::move(t).found()) found.push_back(std::move(p));
  return found;
}

}  // namespace

std::string to_string(const conformance_problem& problem) {
  return fmt::format("rank {}: {}: expected {}, found {}", problem.rank, problem.check, problem.expected,
                     problem.found);
}

std::string to_string(const conformance_report& report) {
  if (report.ok()) return fmt::format("all {} checks passed", report.checks.size());
  std::string text = fmt::format("{} in {}", detail::counted(report.problems.size(), "problem"),
                                 detail::counted(report.checks.size(), "check"));
  for (const conformance_problem& p : report.problems) text += "\n" + to_string(p);
  return text;
}

result<void> conformance_report::outcome() const {
  if (ok()) return {};
  const conformance_problem& first = problems.front();
  return fail(errc::communication,
              fmt::format("{} (the first of {})", first.check, detail::counted(problems.size(), "problem")))
      .with_rank(first.rank)
      .with_values(first.expected, first.found);
}

std::span<const conformance_check> conformance_checks() {
  return checks;
}

std::vector<conformance_problem> run_check(const conformance_check& check, communicator_ref comm,
                                           const conformance_options& options) {
  trial t(check.name, comm, options);
  try {
    // Checks of failures measure time, so ranks begin them together.
    if (check.poisons) t.meet("at the beginning");
    check.run(t);
  } catch (const std::exception& e) {
    t.expect(false, "errors as results", fmt::format("an exception: {}", e.what()));
  }
  return std::move(t).found();
}

conformance_report check_communicator(function_ref<result<any_communicator>()> make,
                                      const conformance_options& options) {
  conformance_report report;
  std::vector<any_communicator> groups;  // kept to the end: peers may still need a rank that is done early
  const auto open = [&](std::string_view check) -> any_communicator* {
    auto made = make();
    if (made) return &groups.emplace_back(*std::move(made));
    report.problems.push_back({std::string(check), 0, "a new group", to_string(made.error())});
    return nullptr;
  };
  groups.reserve(checks.size() + 1);
  for (const conformance_check& check : checks) {
    any_communicator* const comm = open(check.name);
    if (comm == nullptr) return report;
    report.checks.emplace_back(check.name);
    for (conformance_problem& p : run_check(check, *comm, options)) report.problems.push_back(std::move(p));
  }
  if (any_communicator* const comm = open("gathering the problems of all ranks"))
    report.problems = gathered(std::move(report.problems), *comm, options);
  return report;
}

}  // namespace shardmesh
