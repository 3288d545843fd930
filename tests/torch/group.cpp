// SPDX-License-Identifier: Apache-2.0
// Functions that ranks.py calls in each of its processes, over a process group that it made. A shared library with C
// functions, because gloo groups can be made only in Python. Each returns an empty text, or this rank's problem.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <forked_child.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kept.hpp"

import shardmesh.comm;
import shardmesh.conformance;
import shardmesh.torch;

using namespace shardmesh;

extern "C" {

const char* check_conformance(const char* group) {
  const conformance_report report = check_communicator([&]() -> result<any_communicator> {
    auto made = c10d_communicator::named(group);
    if (!made) return std::move(made).error();
    return any_communicator(*std::move(made));
  });
  return kept(report.ok() ? "" : to_string(report));
}

/// Exchanges one small message with the next rank and the previous rank, each with its own tag.
const char* exchange_tags(const char* group, int exchanges) {
  auto comm = c10d_communicator::named(group);
  if (!comm) return kept(to_string(comm.error()));
  const std::int32_t next = (comm->rank() + 1) % comm->size();
  const std::int32_t before = (comm->rank() + comm->size() - 1) % comm->size();
  for (int i = 0; i < exchanges; ++i) {
    const auto tag = static_cast<std::uint32_t>(i);
    std::uint32_t come = tag + 1;
    const outgoing send{next, std::as_bytes(std::span(&tag, 1))};
    const incoming receive{before, std::as_writable_bytes(std::span(&come, 1))};
    auto started = comm->start_exchange({&send, 1}, {&receive, 1}, {.tag = tag});
    if (!started) return kept(to_string(started.error()));
    if (auto done = started->wait(); !done) return kept(to_string(done.error()));
    if (come != tag) return kept("message " + std::to_string(tag) + " came as " + std::to_string(come));
  }
  return kept("");
}

/// Forks while a message is under way. The children use, destroy, and forget their copies, and end in every way. Then
/// the message arrives and the ranks gather.
const char* check_forks(const char* group) {
  std::optional<c10d_communicator> comm = c10d_communicator::named(group).value();
  const std::int32_t rank = comm->rank(), size = comm->size();
  const std::int32_t next = (rank + 1) % size, before = (rank + size - 1) % size;
  const std::vector<std::byte> sent(100'000, static_cast<std::byte>(rank));
  std::vector<std::byte> room(sent.size());
  const outgoing send{next, sent};
  const incoming receive{before, room};
  std::optional<pending> receiving = comm->start_exchange({}, {&receive, 1}, {}).value();
  if (!comm->all_gather({}, {})) return kept("the ranks do not meet");

  const std::string name = "rank " + std::to_string(rank);
  const auto is_refused = [&](const error& e) {
    return e.code == errc::invalid_argument && to_string(e) == "the communicator of " + name +
                                                                   " belongs to the process that forked this one (" +
                                                                   name + "); make the call in the parent";
  };
  const auto is_unsupported = [](const error& e) {
    return e.code == errc::unsupported &&
           to_string(e) ==
               "the c10d process groups belong to the process that forked this one; fork "
               "before the first communicator is made";
  };
  const int status = status_of_child([&] {
    if (!is_refused(comm->all_gather({}, {}).error())) return 1;
    if (!is_refused(comm->start_exchange({&send, 1}, {}, {}).error())) return 2;
    if (!receiving->done() || !is_refused(receiving->wait().error())) return 3;
    comm->abort(fail(errc::cancelled, "by the child"));
    if (!is_refused(comm->status().error())) return 4;
    if (!is_unsupported(c10d_communicator::named(group).error())) return 5;
    receiving.reset();
    comm.reset();
    return 0;
  });
  if (status != 0) return kept("the child that uses its copies ended with " + std::to_string(status));
  for (const bool is_exec : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      if (is_exec) ::execl("/bin/true", "true", nullptr);
      std::exit(is_exec ? 3 : 0);
    }
    if (const int ended = exit_status_of(child); ended != 0)
      return kept((is_exec ? "the child that execs ended with " : "the child that exits ended with ") +
                  std::to_string(ended));
  }

  if (!comm->all_gather({}, {})) return kept("the ranks do not meet after the forks");
  auto sending = comm->start_exchange({&send, 1}, {}, {}).value();
  if (auto done = receiving->wait(); !done) return kept(to_string(done.error()));
  if (auto done = sending.wait(); !done) return kept(to_string(done.error()));
  if (room != std::vector<std::byte>(sent.size(), static_cast<std::byte>(before))) return kept("the message differs");
  const auto all = comm->all_gather(std::as_bytes(std::span(name)), {});
  if (!all) return kept(to_string(all.error()));
  for (std::int32_t i = 0; i < size; ++i) {
    const auto& text = (*all)[static_cast<std::size_t>(i)];
    if (std::string(reinterpret_cast<const char*>(text.data()), text.size()) != "rank " + std::to_string(i))
      return kept("rank " + std::to_string(i) + " gathered something else");
  }
  return kept("");
}

/// A communicator that is destroyed with the program's static objects, while its threads run.
const char* keep_until_exit(const char* group) {
  static std::optional<c10d_communicator> comm;
  comm = c10d_communicator::named(group).value();
  return kept(comm->all_gather({}, {}) ? "" : "the ranks do not meet");
}

/// The error of `named` for a group that does not exist or has no CPU backend.
const char* error_of_group(const char* group) {
  const auto made = c10d_communicator::named(group);
  return kept(made ? "" : to_string(made.error()));
}
}
