// SPDX-License-Identifier: Apache-2.0
// Streams and events of the double: their identities, and the last operation of each. The calls are in
// cudart_streams.cpp; engine.hpp decides what runs when.
#pragma once
#include "call.hpp"
#include "cuda_abi.h"
#include "engine.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpu_double {

struct stream {
  std::size_t number = 0;
  int device = 0;
  unsigned flags = 0;
  bool legacy = false;  // the null stream: ordered with all streams that do not opt out
  bool destroyed = false;
  operation_ref last;

  std::string name() const;
};

struct event {
  std::size_t number = 0;
  int device = 0;
  unsigned flags = 0;
  bool destroyed = false;
  operation_ref last;  // null: never recorded
};

/// A process's CUDA state, except memory.
class devices {
 public:
  int count = 8;

  void reset();
  stream* make_stream(int device, unsigned flags);
  event* make_event(int device, unsigned flags);
  /// The stream of a handle; a null handle is the legacy stream of the current device. Returns null for an invalid
  /// handle.
  stream* find_stream(void* handle, const char* function);
  event* find_event(void* handle, const char* function);
  const std::vector<std::unique_ptr<stream>>& streams() const { return streams_; }
  const std::vector<std::unique_ptr<event>>& events() const { return events_; }

  /// Appends to a stream, in the order that the legacy stream requires.
  void append(stream& to, const operation_ref& op, std::vector<operation_ref> also_after = {});

 private:
  stream& legacy(int device);

  std::vector<std::unique_ptr<stream>> streams_;  // including destroyed ones: their handles stay invalid
  std::vector<std::unique_ptr<event>> events_;
};

devices& devices_of_the_double();

/// This thread's current device.
int& current_device();

/// Returns a call's result, and stores an error for cudaGetLastError of this thread.
int returned(int error);
int& last_error();

/// Errors that precede every call: a planted one, no device at all, a failed device, a call from within a host
/// function. 0: no error.
int refused(const call& here);

/// An operation that a call appends to a stream, with the call's planted fault.
operation_ref new_operation(const call& here, const stream& on, std::string what);

}  // namespace gpu_double
