// SPDX-License-Identifier: Apache-2.0
// Processes as ranks (of one machine, or of another extension module), and tensors that move between them: the C++ half
// of shardmesh.redistribute. Python code lets the processes find each other. Moves with a mapping are in
// mapped_ranks, and saves in rank_saving.
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "foreign_ranks.hpp"
#include "interpreter.hpp"
#include "mapped_ranks.hpp"
#include "module.hpp"
#include "rank_saving.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.shared_memory;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

// Options for a call with a time limit in seconds; without a value there is no limit.
call_options within(const std::optional<double>& seconds) {
  call_options call;
  if (seconds) call.within = std::chrono::duration<double>(*seconds);
  return call;
}

// Called while a rank waits. If a signal handler raised (Ctrl-C), the exception stays set in this thread.
bool no_signal_came() {
  if (is_overtaken()) return false;
  const acquired held;
  return PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0;
}

// Raises the exception that a signal handler raised while a call waited, whether or not the call succeeded.
void raise_signal() {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
}

// Does short work in this thread, without the interpreter's lock.
template <std::invocable<> Work>
std::invoke_result_t<Work> unlocked(const Work& work) {
  const released unlocked;
  return work();
}

class ranks {
 public:
  explicit ranks(shared_memory_communicator comm) : shared_(comm), own_(std::move(comm)), comm_(*own_) {}
  // From another extension module.
  explicit ranks(const py::capsule& foreign)
      : comm_(*static_cast<any_communicator*>(foreign.get_pointer())), kept_(foreign) {}

  static std::unique_ptr<ranks> join(const py::str& token, std::int32_t rank, std::optional<double> seconds) {
    auto joined = unlocked([&, token = bytes_of(token)] {
      return shared_memory_communicator::join(token, rank, within(seconds), no_signal_came);
    });
    raise_signal();
    return std::make_unique<ranks>(value_of(std::move(joined)));
  }

  static std::unique_ptr<ranks> over(const py::capsule& foreign) {
    if (std::strcmp(foreign.name() != nullptr ? foreign.name() : "", foreign_ranks) != 0)
      raise(fail(errc::invalid_argument, "the value is not a communicator of this version of shardmesh"));
    return std::make_unique<ranks>(foreign);
  }

  std::int32_t rank() const { return comm_.rank(); }
  std::int32_t size() const { return comm_.size(); }
  // Whether new calls do not fail because of an earlier failure. Unknown for a foreign communicator: true.
  bool is_sound() const { return !shared_ || shared_->status().has_value(); }

  // Reports that this rank cannot do its part of the call (redistribute, save_mapped, or save) that the others are in,
  // or will be in. They get the error `why`, with this rank.
  void refuse(const py::object& why, const std::string& call_name) {
    error reason = from_python(why);
    if (std::ranges::find(reason.ranks, rank()) == reason.ranks.end()) reason.ranks.push_back(rank());
    std::stop_source stop;
    call_options call;
    call.cancel = stop.get_token();
    // The others get the error; this rank has its own already.
    static_cast<void>(in_call(stop, [&]() -> result<void> {
      if (call_name == "save") return refuse_save(comm_, reason, stop.get_token());
      auto told = executor::make(result<transfer_plan>(reason), comm_, {}, {}, call.named(call_name.c_str()));
      return told ? result<void>() : result<void>(std::move(told).error());
    }));
  }

  // Each move: (key, from, to, dtype, source memories, destination memories), distributions and memories of slots.
  // Returns (bytes sent, bytes received, rounds).
  py::tuple redistribute(const py::sequence& moves, std::optional<double> seconds, std::int64_t memory_bytes,
                         const py::object& report) {
    std::vector<tensor_move> all;
    all.reserve(moves.size());
    for (const py::handle move : moves) all.push_back(move_of(py::reinterpret_borrow<py::sequence>(move)));
    std::int64_t bytes = 0;
    std::stop_source stop;
    std::exception_ptr thrown;  // by `report`; it ends the call on all ranks
    const auto tell = [&](std::int64_t more) {
      bytes += more;
      const acquired held;
      try {
        if (!thrown && PyErr_Occurred() == nullptr) report(bytes);
      } catch (...) {
        thrown = std::current_exception();
        stop.request_stop();
      }
    };
    redistribute_options options;
    options.memory_bytes = memory_bytes;
    options.cache = &plans_;
    options.call = within(seconds);
    options.call.cancel = stop.get_token();
    if (!report.is_none()) options.progress = tell;
    const auto done = in_call(stop, [&] { return shardmesh::redistribute(all, comm_, options); }, thrown);
    if (!done) raise(done.error());
    return py::make_tuple(done->sent_bytes, done->received_bytes, done->rounds);
  }

  py::tuple redistribute_mapped(const chosen_mapping& mapping, const py::sequence& from, const py::sequence& to,
                                const py::dict& given) {
    return move_mapped(comm_, plans_, mapping, from, to, given);
  }

  py::dict save(const py::sequence& tensors, const py::sequence& objects, const py::dict& given) {
    return save_by_ranks(comm_, tensors, objects, given);
  }

  py::dict save_mapped(const chosen_mapping& mapping, const py::sequence& tensors, const py::sequence& objects,
                       const py::dict& given) {
    return save_mapped_by_ranks(comm_, mapping, tensors, objects, given);
  }

 private:
  // A call of all ranks, which `stop` cancels. Our own communicators handle signals; while others wait, this thread
  // does.
  template <std::invocable<> Work>
  std::invoke_result_t<Work> in_call(std::stop_source& stop, const Work& work, const std::exception_ptr& thrown = {}) {
    auto done = own_ ? unlocked(work) : waited(py::none(), [&](watch& watching) {
      const std::stop_callback stops(watching.stop.get_token(), [&] { stop.request_stop(); });
      return work();
    });
    if (thrown) std::rethrow_exception(thrown);
    raise_signal();
    return done;
  }

  static tensor_move move_of(const py::sequence& given) {
    tensor_move made;
    made.key = bytes_of(given[0]);
    made.from.where = given[1].cast<const distribution&>();
    made.to.where = given[2].cast<const distribution&>();
    made.from.type = made.to.type = to_dtype(given[3]);
    for (const py::handle memory : given[4]) made.from.memory.slots.push_back(to_view(memory));
    for (const py::handle memory : given[5]) made.to.memory.slots.push_back(to_view(memory));
    return made;
  }

  std::optional<shared_memory_communicator> shared_;
  std::optional<any_communicator> own_;
  communicator_ref comm_;
  py::object kept_;  // owns the foreign communicator
  plan_cache plans_{256};
};

}  // namespace

void add_ranks(py::module_& native) {
  py::class_<shared_memory_group>(native, "SharedMemory")
      .def_static(
          "make", [](std::int32_t ranks) { return value_of(shared_memory_group::make(ranks)); }, py::arg("ranks"))
      .def_property_readonly("token", [](const shared_memory_group& group) { return text(group.token()); });
  py::class_<save_plan_cache>(native, "SavePlanCache")
      .def_static("make", &save_plan_cache::make)
      .def_property_readonly("reuses", &save_plan_cache::reuses);
  py::class_<ranks>(native, "Ranks")
      .def_static("join", &ranks::join, py::arg("token"), py::arg("rank"), py::arg("seconds"))
      .def_static("over", &ranks::over, py::arg("communicator"))
      .def_property_readonly("rank", &ranks::rank)
      .def_property_readonly("size", &ranks::size)
      .def_property_readonly("is_sound", &ranks::is_sound)
      .def("redistribute", &ranks::redistribute, py::arg("moves"), py::arg("seconds"), py::arg("memory_bytes"),
           py::arg("report"))
      .def("redistribute_mapped", &ranks::redistribute_mapped, py::arg("mapping"), py::arg("sources"),
           py::arg("targets"), py::arg("options"))
      .def("save", &ranks::save, py::arg("tensors"), py::arg("objects"), py::arg("options"))
      .def("save_mapped", &ranks::save_mapped, py::arg("mapping"), py::arg("tensors"), py::arg("objects"),
           py::arg("options"))
      .def("refuse", &ranks::refuse, py::arg("why"), py::arg("name") = "redistribute");
}

}  // namespace bindings
