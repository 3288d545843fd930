// SPDX-License-Identifier: Apache-2.0
module;
#include <process_token.hpp>

#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :session;

namespace shardmesh::mpi {
namespace {

// How long a session that has seen a failure waits for the other ranks before it leaves MPI unfinalised.
constexpr std::chrono::milliseconds farewell_time{500};

const char* level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

// Token of the process that owns MPI; 0: no session was opened yet.
std::atomic<std::uint64_t> owner = 0;

error too_low(int level) {
  return fail(errc::unsupported, "the thread level of MPI is too low")
      .with_values("MPI_THREAD_MULTIPLE", level_name(level))
      .with_hint("call MPI_Init_thread(.., MPI_THREAD_MULTIPLE, ..), or let mpi_communicator::world initialise MPI");
}

}  // namespace

result<void> check(int code, std::string_view action) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return fail(errc::communication, fmt::format("{}: {}", action,
                                               length > 0 ? std::string(text, static_cast<std::size_t>(length))
                                                          : fmt::format("MPI error {}", code)));
}

result<void> called(function_ref<int()> call, std::string_view action) {
  const auto thrown = [&](const char* text) {
    return fail(errc::communication, fmt::format("{}: an error handler of MPI threw", action)).with_values("", text);
  };
  int code = MPI_SUCCESS;
  try {
    code = call();
  } catch (const std::exception& e) {
    return thrown(e.what());
  } catch (...) {
    return thrown("");
  }
  return check(code, action);
}

bool succeeds(function_ref<int()> call) noexcept {
  try {
    return call() == MPI_SUCCESS;
  } catch (...) {
    return false;
  }
}

bool is_forked() {
  const std::uint64_t known = owner.load(std::memory_order_relaxed);
  return known != 0 && known != detail::process_token();
}

bool is_up() {
  int finalised = 0;
  return !is_forked() && succeeds([&] { return MPI_Finalized(&finalised); }) && finalised == 0;
}

result<std::shared_ptr<session>> session::open(bool may_initialise) {
  static std::mutex lock;
  static std::weak_ptr<session> current;
  if (is_forked())  // checked before the lock, which a fork may have copied while it was locked
    return fail(errc::unsupported, "MPI was initialised by the process that forked this one")
        .with_hint("start ranks with mpirun, or fork before the first communicator is made");
  const std::lock_guard locked(lock);
  int initialised = 0, level = MPI_THREAD_SINGLE;
  if (!is_up())
    return fail(errc::unsupported, "MPI was finalised and cannot be started again in this process")
        .with_hint("keep one mpi_communicator until the end of the program");
  if (auto running = current.lock()) return running;
  SHARDMESH_TRY(called([&] { return MPI_Initialized(&initialised); }, "cannot query whether MPI is initialised"));
  if (initialised == 0 && !may_initialise)
    return fail(errc::unsupported, "MPI is not initialised, so it has no communicator to use")
        .with_hint("call MPI_Init_thread first, or use mpi_communicator::world");
  std::shared_ptr<session> opened(new session);
  if (initialised == 0) SHARDMESH_TRY(opened->initialise());
  SHARDMESH_TRY(called([&] { return MPI_Query_thread(&level); }, "cannot query MPI's thread level"));
  if (level < MPI_THREAD_MULTIPLE) return too_low(level);
  current = opened;
  owner = detail::process_token();
  return opened;
}

result<void> session::initialise() {
  int provided = MPI_THREAD_SINGLE;
  SHARDMESH_TRY(called([&] { return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided); },
                       "cannot initialise MPI"));
  finalises_ = true;
  SHARDMESH_TRY(called([&] { return MPI_Comm_dup(MPI_COMM_WORLD, &farewell_); }, "cannot duplicate MPI_COMM_WORLD"));
  return called([&] { return MPI_Comm_set_errhandler(farewell_, MPI_ERRORS_RETURN); },
                "cannot set an MPI error handler");
}

// MPI_Finalize waits for every rank, even for dead ones. So the ranks meet in a barrier first; after a failure, for a
// limited time.
session::~session() {
  if (!finalises_ || !is_up()) return;
  if (farewell_ != MPI_COMM_NULL) {
    const auto last = std::chrono::steady_clock::now() + farewell_time;
    MPI_Request meeting = MPI_REQUEST_NULL;
    if (!succeeds([&] { return MPI_Ibarrier(farewell_, &meeting); })) return;
    for (int met = 0; met == 0;) {
      if (!succeeds([&] { return MPI_Test(&meeting, &met, MPI_STATUS_IGNORE); })) return;
      if (met == 0 && doubted_ && std::chrono::steady_clock::now() > last) return;
      if (met == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    static_cast<void>(succeeds([&] { return MPI_Comm_free(&farewell_); }));
  }
  static_cast<void>(succeeds([] { return MPI_Finalize(); }));
}

}  // namespace shardmesh::mpi
