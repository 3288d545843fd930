// SPDX-License-Identifier: Apache-2.0
// Streams and events of the double: who they are, and which operation is the last of each. Not here: the calls
// (cudart_streams.cpp), what runs when (engine.hpp).
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
  bool legacy = false;  // the null stream: ordered with all that do not say otherwise
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

/// All that a process has of CUDA besides memory.
class devices {
 public:
  int count = 8;

  void reset();
  stream* make_stream(int device, unsigned flags);
  event* make_event(int device, unsigned flags);
  /// The stream of a handle: null is the legacy stream of the device that is current. No stream: the handle is bad.
  stream* find_stream(void* handle, const char* function);
  event* find_event(void* handle, const char* function);
  const std::vector<std::unique_ptr<stream>>& streams() const { return streams_; }
  const std::vector<std::unique_ptr<event>>& events() const { return events_; }

  /// Appends to a stream, with the order that the legacy stream asks for.
  void append(stream& to, const operation_ref& op, std::vector<operation_ref> also_after = {});

 private:
  stream& legacy(int device);

  std::vector<std::unique_ptr<stream>> streams_;  // destroyed ones too: their handles stay bad
  std::vector<std::unique_ptr<event>> events_;
};

devices& devices_of_the_double();

/// The device that is current in this thread.
int& current_device();

/// What a call returns: remembers an error for cudaGetLastError of this thread.
int returned(int error);
int& last_error();

/// Errors that precede every call: a planted one, no device at all, a device that has failed, a call from within a host
/// function. 0: go on.
int refused(const call& here);

/// An operation that a call appends to a stream, with the fault that was planted for the call.
operation_ref new_operation(const call& here, const stream& on, std::string what);

}  // namespace gpu_double
