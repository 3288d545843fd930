// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <utility>
module shardmesh.cuda;

namespace shardmesh::cuda {

result<event> event::make(const runtime& cuda, device where) {
  SHARDMESH_TRY(where, cuda.resolve(where));
  const current_device at(cuda, where);
  SHARDMESH_TRY(at.outcome());
  event made;
  SHARDMESH_TRY(cuda.check(cuda.call().event_create_with_flags(&made.handle_, event_disable_timing),
                           "cudaEventCreateWithFlags", where));
  made.cuda_ = cuda;
  made.where_ = where;
  return made;
}

event::~event() {
  if (handle_ != nullptr) static_cast<void>(cuda_->call().event_destroy(handle_));
}

result<void> event::record(stream_ref stream) {
  const current_device at(*cuda_, where_);
  SHARDMESH_TRY(at.outcome());
  return cuda_->check(cuda_->call().event_record(handle_, stream.handle), "cudaEventRecord", where_);
}

result<bool> event::done() const {
  const int code = cuda_->call().event_query(handle_);
  if (code == error_not_ready) return static_cast<void>(cuda_->call().get_last_error()), false;
  SHARDMESH_TRY(cuda_->check(code, "work before an event (cudaEventQuery)", where_));
  return true;
}

result<void> event::wait() const {
  return cuda_->check(cuda_->call().event_synchronize(handle_), "work before an event (cudaEventSynchronize)", where_);
}

result<void> event::hold(stream_ref stream) const {
  const current_device at(*cuda_, where_);
  SHARDMESH_TRY(at.outcome());
  return cuda_->check(cuda_->call().stream_wait_event(stream.handle, handle_, 0), "cudaStreamWaitEvent", where_);
}

result<stream> stream::make(const runtime& cuda, device where) {
  SHARDMESH_TRY(where, cuda.resolve(where));
  const current_device at(cuda, where);
  SHARDMESH_TRY(at.outcome());
  stream made;
  SHARDMESH_TRY(cuda.check(cuda.call().stream_create_with_flags(&made.handle_, stream_non_blocking),
                           "cudaStreamCreateWithFlags", where));
  made.cuda_ = cuda;
  made.where_ = where;
  return made;
}

stream::~stream() {
  if (handle_ != nullptr) static_cast<void>(cuda_->call().stream_destroy(handle_));
}

result<void> stream::synchronize() const {
  return cuda_->check(cuda_->call().stream_synchronize(handle_), "work of a stream (cudaStreamSynchronize)", where_);
}

result<bool> stream::done() const {
  const int code = cuda_->call().stream_query(handle_);
  if (code == error_not_ready) return static_cast<void>(cuda_->call().get_last_error()), false;
  SHARDMESH_TRY(cuda_->check(code, "work of a stream (cudaStreamQuery)", where_));
  return true;
}

}  // namespace shardmesh::cuda
