// SPDX-License-Identifier: Apache-2.0
// launcher: the execution of batches on a device. There are four kinds of launchers: they use a library of kernels,
// kernels that NVRTC compiles, the host's kernels as host functions, or CUDA's own copies.
module shardmesh.cuda:launcher;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import :backend;
import :nvrtc;
import :runtime;

namespace shardmesh::cuda {

// A batch in its launcher's form.
class launchable : public prepared_batch {
 public:
  explicit launchable(device where, std::size_t items) : where_(where), items_(items) {}
  std::size_t items() const override { return items_; }
  inline device where() const { return where_; }
  // Enqueues the batch on a stream. Precondition: the device is the current one.
  virtual result<void> launch(const batch_bases& bases, stream_ref stream) = 0;

 private:
  device where_;
  std::size_t items_;
};

class launcher {
 public:
  virtual ~launcher() = default;
  virtual std::string_view name() const = 0;
  // Prepares a batch. Precondition: the device is the current one.
  virtual result<std::unique_ptr<launchable>> prepare(std::span<const batch_item> items, device where) = 0;
  // Returns, once, the first error of launched work that the device itself does not report.
  virtual std::optional<error> take_late_error() { return std::nullopt; }
};

// Loads the library of kernels. Errors and the meaning of the path: those of kernel_library::find. Null: there is none.
result<std::shared_ptr<launcher>> library_launcher(const runtime& cuda, const std::string& path);
std::shared_ptr<launcher> host_function_launcher(const runtime& cuda);
// Compiles the kernels when a batch first needs them. Precondition: `cuda` can load compiled kernels.
std::shared_ptr<launcher> compiled_launcher(const runtime& cuda, std::shared_ptr<const nvrtc> with);
// Refuses a batch of more than `most_calls` copies, which would be too slow to be useful.
std::shared_ptr<launcher> copy_launcher(const runtime& cuda, std::size_t most_calls = 65'536);

// Describes an item in errors: "copy of bfloat16 to float32 in 2 loops".
std::string describe(const batch_item& item);

}  // namespace shardmesh::cuda
