// SPDX-License-Identifier: Apache-2.0
// libnccl's queries (version, properties of a communicator, error texts), registrations, and memory.
#include "memory.hpp"
#include "nccl_world.hpp"

using namespace gpu_double;

int ncclGetVersion(int* version) {
  call here("ncclGetVersion", -1);
  if (const auto code = here.failed_at_once()) return *code;
  *version = nccl_version;
  return nccl_success;
}

namespace {

// A query that NCCL answers once the communicator is complete.
int ask(const char* function, void* handle, int* answer, int (*of)(const communicator&)) {
  call here(function, rank_of(handle));
  const communicator* comm = find_communicator(handle, function);
  if (!comm || !answer) return nccl_invalid_argument;
  if (const auto code = here.failed_at_once()) return *code;
  if (const int state = state_of(*comm); state != nccl_success)
    return state == nccl_in_progress ? static_cast<int>(nccl_invalid_argument) : state;
  *answer = of(*comm);
  return nccl_success;
}

}  // namespace

int ncclCommCount(void* handle, int* count) {
  return ask("ncclCommCount", handle, count, [](const communicator& comm) { return comm.ranks(); });
}

int ncclCommCuDevice(void* handle, int* device) {
  return ask("ncclCommCuDevice", handle, device, [](const communicator& comm) { return comm.device; });
}

int ncclCommUserRank(void* handle, int* rank) {
  return ask("ncclCommUserRank", handle, rank, [](const communicator& comm) { return comm.rank; });
}

int ncclCommRegister(void* handle, void* memory, std::size_t bytes, void** registration) {
  call here("ncclCommRegister", rank_of(handle));
  communicator* comm = find_communicator(handle, "ncclCommRegister");
  if (!comm || !registration) return nccl_invalid_argument;
  if (const auto code = here.failed_at_once()) return *code;
  const allocation* in = memory_of_the_double().find(memory);
  if (!in || !in->holds(reinterpret_cast<std::uintptr_t>(memory), bytes) || in->given_back) {
    engine::the().problem("ncclCommRegister of bytes that are not in one piece of device memory");
    return nccl_invalid_argument;
  }
  *registration = reinterpret_cast<void*>(in->begin + comm->registered.size() + 1);
  while (comm->registered.contains(*registration)) *registration = static_cast<char*>(*registration) + 1;
  comm->registered[*registration] = bytes;
  return nccl_success;
}

int ncclCommDeregister(void* handle, void* registration) {
  call here("ncclCommDeregister", rank_of(handle));
  communicator* comm = find_communicator(handle, "ncclCommDeregister");
  if (!comm) return nccl_invalid_argument;
  if (const auto code = here.failed_at_once()) return *code;
  if (comm->registered.erase(registration) == 1) return nccl_success;
  engine::the().problem("ncclCommDeregister of what is not registered with " + comm->name());
  return nccl_invalid_argument;
}

int ncclMemAlloc(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes) == cuda_success ? nccl_success : nccl_unhandled_cuda_error;
}

int ncclMemFree(void* memory) {
  return cudaFree(memory) == cuda_success ? nccl_success : nccl_unhandled_cuda_error;
}

const char* ncclGetErrorString(int error) {
  switch (error) {
    case 0:
      return "no error";
    case 1:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case 2:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case 3:
      return "internal error - please report this issue to the NCCL developers";
    case 4:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case 5:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case 6:
      return "remote process exited or there was a network error";
    case 7:
      return "NCCL operation in progress";
    case 8:
      return "timeout";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(void* handle) {
  thread_local std::string text;
  text = last_error_of(handle);
  return text.c_str();
}
