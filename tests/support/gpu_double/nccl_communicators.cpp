// SPDX-License-Identifier: Apache-2.0
// libnccl's calls that make communicators, report their progress, and end them.
#include "memory.hpp"
#include "nccl_world.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace gpu_double;

namespace gpu_double {
namespace {

struct world {
  std::vector<std::unique_ptr<communicator>> communicators;  // including ended ones: their handles stay invalid
  std::map<std::string, std::shared_ptr<clique>> by_id;
  std::size_t ids = 0;
  std::size_t cliques = 0;
};

world& all() {
  static world* const made = new world;
  return *made;
}

// Even when all ranks are present, they may be unable to form a communicator.
int found_wrong(const clique& in) {
  const char* const shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (shared && std::string_view(shared) == "1") return 0;
  for (const communicator* a : in.members)
    for (const communicator* b : in.members)
      if (a->rank < b->rank && a->device == b->device) return nccl_invalid_usage;
  return 0;
}

void join(communicator& comm, const std::shared_ptr<clique>& in, int rank) {
  comm.in = in;
  comm.rank = rank;
  comm.polls_left = static_cast<unsigned>(engine::the().draw(4));
  in->members[static_cast<std::size_t>(rank)] = &comm;
  if (in->complete()) in->failed = found_wrong(*in);
  engine::the().changed();
}

// Validates a configuration, and reads whether calls block.
bool read_config(const char* function, const nccl_config* config, bool& blocking) {
  if (!config) return true;
  const bool whole = config->size >= offsetof(nccl_config, cga_cluster_size) && config->magic == nccl_config_magic;
  const bool known = config->blocking == nccl_undefined || config->blocking == 0 || config->blocking == 1;
  if (!whole || !known) {
    engine::the().problem(std::string(function) + " with a configuration that was not initialised");
    return false;
  }
  if (config->blocking != nccl_undefined) blocking = config->blocking == 1;
  return true;
}

// A blocking communicator waits for the other ranks; a nonblocking one returns "in progress".
int wait_or_not(call& here, communicator& comm) {
  if (!comm.blocking) return nccl_in_progress;
  engine::the().wait_until(
      here.lock(), [&] { return comm.in->complete() || comm.error != 0 || comm.aborted || comm.in->failed != 0; });
  comm.polls_left = 0;
  return comm.in->failed != 0 ? comm.in->failed : comm.error;
}

int init(const char* function, void** made, int ranks, const nccl_unique_id& id, int rank, const nccl_config* config) {
  call here(function, rank);
  if (made) *made = nullptr;
  if (const auto code = here.failed_at_once()) return *code;
  if (devices_of_the_double().count == 0) return nccl_unhandled_cuda_error;
  bool blocking = true;
  if (!made || ranks < 1 || rank < 0 || rank >= ranks || !read_config(function, config, blocking))
    return nccl_invalid_argument;
  const std::string key(id.internal, sizeof id.internal);
  const auto known = all().by_id.find(key);
  if (known == all().by_id.end()) {
    engine::the().problem(std::string(function) + " with an id that nobody made");
    return nccl_invalid_argument;
  }
  std::shared_ptr<clique>& in = known->second;
  if (!in) in = new_clique(ranks);
  if (in->members.size() != static_cast<std::size_t>(ranks) || in->members[static_cast<std::size_t>(rank)]) {
    engine::the().problem(std::string(function) + " as rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                          " where there are " + std::to_string(in->members.size()) + " ranks, or twice");
    return nccl_invalid_usage;
  }
  communicator* comm = new_communicator();
  comm->device = current_device();
  comm->blocking = blocking;
  *made = comm;
  if (here.is(double_lose_rank) || here.is(double_hang)) {  // the other ranks wait
    comm->in = in;
    comm->rank = rank;
    comm->lost = here.is(double_lose_rank);
    comm->polls_left = ~0U;
    if (comm->lost) lose(*comm, here.planted().code);
    if (comm->lost) return nccl_system_error;
    if (comm->blocking) engine::the().wait_until(here.lock(), [&] { return comm->aborted; });
    return nccl_in_progress;
  }
  join(*comm, in, rank);
  if (here.is(double_fail_later)) comm->error = here.planted().code;
  return wait_or_not(here, *comm);
}

// Forms the new communicators once every rank has given its colour and key.
void divide(std::vector<split_request>& requests) {
  std::map<int, std::vector<split_request*>> colors;
  for (split_request& each : requests)
    if (each.made) colors[each.color].push_back(&each);
  for (auto& [color, asked] : colors) {
    std::ranges::sort(asked, {}, [](const split_request* each) { return std::pair(each->key, each); });
    const std::shared_ptr<clique> in = new_clique(static_cast<int>(asked.size()));
    for (std::size_t rank = 0; rank < asked.size(); ++rank) join(*asked[rank]->made, in, static_cast<int>(rank));
  }
}

}  // namespace

bool clique::complete() const {
  return std::ranges::find(members, nullptr) == members.end();
}

std::string communicator::name() const {
  return "rank " + std::to_string(rank) + " of communicator " + (in ? std::to_string(in->number) : "(splitting)");
}

std::shared_ptr<clique> new_clique(int ranks) {
  auto made = std::make_shared<clique>();
  made->number = ++all().cliques;
  made->members.resize(static_cast<std::size_t>(ranks));
  return made;
}

communicator* new_communicator() {
  all().communicators.push_back(std::make_unique<communicator>());
  return all().communicators.back().get();
}

communicator* find_communicator(void* handle, const char* function) {
  for (const auto& each : all().communicators)
    if (each.get() == handle) {
      if (!each->destroyed) return each.get();
      engine::the().problem(std::string(function) + " with " + each->name() + ", which was destroyed");
      return nullptr;
    }
  engine::the().problem(std::string(function) + " with what is no communicator");
  return nullptr;
}

int rank_of(void* handle) {
  const engine_lock held = engine::the().lock();
  for (const auto& each : all().communicators)
    if (each.get() == handle) return each->rank;
  return -1;
}

std::string last_error_of(void* handle) {
  const engine_lock held = engine::the().lock();
  for (const auto& each : all().communicators)
    if (each.get() == handle) return each->last_error;
  return {};
}

int state_of(const communicator& comm) {
  if (comm.polls_left > 0) return nccl_in_progress;
  if (comm.error != 0) return comm.error;
  if (!comm.in || !comm.in->complete()) return nccl_in_progress;
  if (comm.in->failed != 0) return comm.in->failed;
  if (!comm.deferred.empty()) return nccl_in_progress;
  if (comm.splitting && (!comm.splitting->in || !comm.splitting->in->complete())) return nccl_in_progress;
  if (comm.finalizing && comm.last && !comm.last->done()) return nccl_in_progress;
  return nccl_success;
}

void reset_communicators() {
  for (const auto& each : all().communicators) {
    each->launches.clear();
    each->deferred.clear();
    each->in = nullptr;
  }
  all() = {};
}

std::vector<std::string> communicator_leaks() {
  std::vector<std::string> found;
  for (const auto& each : all().communicators) {
    if (!each->destroyed) found.push_back(each->name());
    for (const auto& [handle, bytes] : each->registered)
      found.push_back("a registration of " + std::to_string(bytes) + " bytes with " + each->name());
  }
  return found;
}

void release_hanging_launches() {
  for (const auto& each : all().communicators)
    for (const launch_ref& one : std::vector<launch_ref>(each->launches))
      if (one->planted.action == double_hang) {
        one->planted = {};
        if (one->begun && !one->abandoned) post(*one);
      }
}

}  // namespace gpu_double

int ncclGetUniqueId(nccl_unique_id* id) {
  call here("ncclGetUniqueId", -1);
  if (const auto code = here.failed_at_once()) return *code;
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text =
      "id of the double " + std::to_string(++all().ids) + " " + std::to_string(engine::the().draw(~0ULL));
  std::memcpy(id->internal, text.data(), text.size());
  all().by_id[std::string(id->internal, sizeof id->internal)] = nullptr;
  return nccl_success;
}

int ncclCommInitRank(void** comm, int ranks, nccl_unique_id id, int rank) {
  return init("ncclCommInitRank", comm, ranks, id, rank, nullptr);
}

int ncclCommInitRankConfig(void** comm, int ranks, nccl_unique_id id, int rank, nccl_config* config) {
  return init("ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

int ncclCommSplit(void* handle, int color, int key, void** made, nccl_config* config) {
  call here("ncclCommSplit", rank_of(handle));
  communicator* comm = find_communicator(handle, "ncclCommSplit");
  if (!comm || !made || (color < 0 && color != nccl_no_color)) return nccl_invalid_argument;
  *made = nullptr;
  if (const auto code = here.failed_at_once()) return *code;
  if (const int state = state_of(*comm); state != nccl_success)
    return state == nccl_in_progress ? static_cast<int>(nccl_invalid_argument) : state;
  bool blocking = comm->blocking;
  if (!read_config("ncclCommSplit", config, blocking)) return nccl_invalid_argument;
  const std::size_t index = comm->splits++;
  if (here.is(double_hang) || here.is(double_lose_rank)) {
    if (here.is(double_lose_rank)) lose(*comm, here.planted().code);
    return here.is(double_lose_rank) ? nccl_system_error : nccl_in_progress;
  }
  communicator* sub = nullptr;
  if (color != nccl_no_color) {
    sub = new_communicator();
    sub->device = comm->device;
    sub->blocking = blocking;
    sub->rank = -1;
    *made = sub;
    comm->splitting = sub;
  }
  const std::shared_ptr<clique> in = comm->in;
  std::vector<split_request>& requests = in->splits[index];
  requests.resize(in->members.size());
  requests[static_cast<std::size_t>(comm->rank)] = {sub, color, key, true};
  if (std::ranges::all_of(requests, &split_request::asked)) divide(requests);
  engine::the().changed();
  if (!sub) return nccl_success;
  if (!blocking) return nccl_in_progress;
  engine::the().wait_until(here.lock(),
                           [&] { return (sub->in && sub->in->complete()) || comm->aborted || sub->aborted; });
  sub->polls_left = 0;
  return sub->in ? sub->in->failed : static_cast<int>(nccl_internal_error);
}

int ncclCommFinalize(void* handle) {
  call here("ncclCommFinalize", rank_of(handle));
  communicator* comm = find_communicator(handle, "ncclCommFinalize");
  if (!comm) return nccl_invalid_argument;
  if (const auto code = here.failed_at_once()) return *code;
  if (comm->finalizing) return nccl_invalid_argument;
  if (const int state = state_of(*comm); state != nccl_success)
    return state == nccl_in_progress ? static_cast<int>(nccl_invalid_argument) : state;
  comm->finalizing = true;
  if (!comm->blocking) return nccl_in_progress;
  engine::the().wait(here.lock(), comm->last);
  return comm->error;
}

int ncclCommDestroy(void* handle) {
  call here("ncclCommDestroy", rank_of(handle));
  communicator* comm = find_communicator(handle, "ncclCommDestroy");
  if (!comm) return nccl_invalid_argument;
  if (const auto code = here.failed_at_once()) return *code;
  if (comm->blocking && comm->error == 0) engine::the().wait(here.lock(), comm->last);
  comm->destroyed = true;
  return nccl_success;
}

int ncclCommAbort(void* handle) {
  call here("ncclCommAbort", rank_of(handle));
  communicator* comm = find_communicator(handle, "ncclCommAbort");
  if (!comm) return nccl_invalid_argument;
  if (const auto code = here.failed_at_once()) return *code;
  abandon(*comm);
  comm->destroyed = true;
  comm->registered.clear();
  return nccl_success;
}

int ncclCommGetAsyncError(void* handle, int* error) {
  call here("ncclCommGetAsyncError", rank_of(handle));
  communicator* comm = find_communicator(handle, "ncclCommGetAsyncError");
  if (!comm || !error) return nccl_invalid_argument;
  if (const auto code = here.failed_at_once()) return *code;
  if (comm->polls_left > 0 && comm->polls_left != ~0U) --comm->polls_left;
  if (!comm->deferred.empty() && engine::the().chance(50)) engine::the().run_deferred(comm);
  if (comm->finalizing && comm->last) engine::the().poll(comm->last);
  *error = state_of(*comm);
  return nccl_success;
}
