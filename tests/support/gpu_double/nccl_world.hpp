// SPDX-License-Identifier: Apache-2.0
// Communicators of the double. Ranks are threads (or one thread has several) that meet by unique id. Work of a
// communicator is matched by order: the nth collectives of all ranks are one collective, and the nth send to a rank
// matches its nth receive. Arithmetic is in nccl_collectives.cpp; calls are in nccl_communicators.cpp and
// nccl_calls.cpp.
#pragma once
#include "call.hpp"
#include "nccl_abi.h"
#include "streams.hpp"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpu_double {

enum class part_kind { send, receive, all_gather, reduce_scatter, all_reduce, reduce, broadcast, all_to_all };

struct launch;
struct communicator;

/// One call within a group.
struct part {
  part_kind kind = part_kind::send;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;  // as in the call
  int type = nccl_uint8;
  int reduction = nccl_sum;
  int peer = 0;           // or root
  std::size_t index = 0;  // of a collective: its number in the communicator
  launch* in = nullptr;
  bool matched = false;
  std::vector<unsigned char> result = {};  // written to `to` when the launch finishes
};

/// A group's work for one communicator: one kernel. It begins when its streams reach it, and ends when all of its parts
/// are matched.
struct launch {
  communicator* comm = nullptr;
  std::vector<part> parts;
  std::vector<stream*> streams;
  std::size_t unmatched = 0;
  operation_ref op;
  fault planted;
  bool begun = false;
  bool abandoned = false;
};
using launch_ref = std::shared_ptr<launch>;

struct split_request {
  communicator* made = nullptr;
  int color = 0;
  int key = 0;
  bool asked = false;
};

/// The ranks of one unique id, or of one colour of a split.
struct clique {
  std::size_t number = 0;
  std::vector<communicator*> members;  // by rank; null: not here yet
  std::map<std::size_t, std::vector<part*>> collectives;
  std::map<std::pair<int, int>, std::pair<std::deque<part*>, std::deque<part*>>>
      messages;  // (from, to): sends, receives
  std::map<std::size_t, std::vector<split_request>> splits;
  int failed = 0;
  bool mismatched = false;
  bool deadlock_said = false;

  bool complete() const;
};

struct communicator {
  std::shared_ptr<clique> in;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool destroyed = false;
  bool aborted = false;
  bool finalizing = false;
  bool lost = false;
  int error = 0;
  std::string last_error;
  unsigned polls_left = 0;            // queries that still return "in progress"
  communicator* splitting = nullptr;  // an incomplete split of this one
  std::vector<launch_ref> deferred;   // not enqueued yet
  std::vector<launch_ref> launches;   // unfinished
  operation_ref last;
  std::size_t collectives = 0;
  std::size_t splits = 0;
  std::map<void*, std::size_t> registered;

  std::string name() const;
  int ranks() const { return static_cast<int>(in->members.size()); }
};

/// The communicator of a handle; reports a problem and returns null if there is none, or no longer.
communicator* find_communicator(void* handle, const char* function);
/// The rank of a handle, for planted faults; -1 for an invalid one. Takes the engine's lock.
int rank_of(void* handle);
/// The text that ncclGetLastError returns for a handle. Takes the engine's lock.
std::string last_error_of(void* handle);
communicator* new_communicator();
std::shared_ptr<clique> new_clique(int ranks);
/// The answer to a query about its state: success, in progress, or its error.
int state_of(const communicator& comm);
/// Enqueues a launch on its streams.
void begin(const launch_ref& what);
/// Ends all work of a communicator, as an abort does.
void abandon(communicator& comm);
void lose(communicator& comm, int code);
std::size_t size_of_type(int type);
std::string describe(const part& what);

/// Matching of parts; see nccl_matching.cpp.
void post(launch& what);
void withdraw(launch& what);
/// Computes the results of a collective once every rank has posted its part.
void carry_out(const std::vector<part*>& parts);

void reset_communicators();
std::vector<std::string> communicator_leaks();
void release_hanging_launches();

}  // namespace gpu_double
