// SPDX-License-Identifier: Apache-2.0
#include "streams.hpp"

#include "memory.hpp"

namespace gpu_double {

std::string stream::name() const {
  return (legacy ? "the null stream" : "stream " + std::to_string(number)) + " of device " + std::to_string(device);
}

devices& devices_of_the_double() {
  static devices* const made = new devices;
  return *made;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

int& last_error() {
  thread_local int error = 0;
  return error;
}

int returned(int error) {
  if (error != cuda_success && error != cuda_not_ready) last_error() = error;
  return error;
}

void devices::reset() {
  count = 8;
  streams_.clear();
  events_.clear();
}

stream* devices::make_stream(int device, unsigned flags) {
  auto made = std::make_unique<stream>();
  made->number = engine::the().new_stream_number();
  made->device = device;
  made->flags = flags;
  streams_.push_back(std::move(made));
  return streams_.back().get();
}

event* devices::make_event(int device, unsigned flags) {
  auto made = std::make_unique<event>();
  made->number = events_.size();
  made->device = device;
  made->flags = flags;
  events_.push_back(std::move(made));
  return events_.back().get();
}

stream& devices::legacy(int device) {
  for (const auto& each : streams_)
    if (each->legacy && each->device == device) return *each;
  stream* made = make_stream(device, 0);
  made->legacy = true;
  return *made;
}

stream* devices::find_stream(void* handle, const char* function) {
  if (handle == nullptr || handle == reinterpret_cast<void*>(1)) return &legacy(current_device());
  for (const auto& each : streams_)
    if (each.get() == handle && !each->legacy) {
      if (!each->destroyed) return each.get();
      engine::the().problem(std::string(function) + " on " + each->name() + ", which was destroyed");
      return nullptr;
    }
  engine::the().problem(std::string(function) + " on what is no stream");
  return nullptr;
}

event* devices::find_event(void* handle, const char* function) {
  for (const auto& each : events_)
    if (each.get() == handle) {
      if (!each->destroyed) return each.get();
      engine::the().problem(std::string(function) + " with event " + std::to_string(each->number) +
                            ", which was destroyed");
      return nullptr;
    }
  engine::the().problem(std::string(function) + " with what is no event");
  return nullptr;
}

void devices::append(stream& to, const operation_ref& op, std::vector<operation_ref> after) {
  after.push_back(to.last);
  if (to.legacy) {
    for (const auto& other : streams_)
      if (other->device == to.device && !other->destroyed && (other->flags & stream_non_blocking) == 0)
        after.push_back(other->last);
  } else if ((to.flags & stream_non_blocking) == 0) {
    for (const auto& other : streams_)
      if (other->legacy && other->device == to.device) after.push_back(other->last);
  }
  op->stream = to.number;
  to.last = op;
  engine::the().enqueue(op, after);
}

int refused(const call& here) {
  if (engine::current_host_function()) {
    engine::the().problem(std::string(here.function()) + " was called by a host function");
    return cuda_not_permitted;
  }
  if (const auto code = here.failed_at_once()) return *code;
  if (devices_of_the_double().count == 0) return cuda_no_device;
  return engine::the().device_error(current_device());
}

operation_ref new_operation(const call& here, const stream& on, std::string what) {
  auto op = std::make_shared<operation>();
  op->what = std::string(here.function()) + (what.empty() ? "" : " of ") + what + " on " + on.name();
  op->device = on.device;
  op->hangs = here.is(double_hang);
  return op;
}

}  // namespace gpu_double
