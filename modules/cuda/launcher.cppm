// SPDX-License-Identifier: Apache-2.0
// launcher: who carries out batches on a device. Three kinds: a library of kernels, the host's kernels as host
// functions, and CUDA's own copies.
module shardmesh.cuda:launcher;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import :backend;
import :runtime;

namespace shardmesh::cuda {

// A batch as its launcher keeps it.
class launchable : public prepared_batch {
 public:
  explicit launchable(device where, std::size_t items) : where_(where), items_(items) {}
  std::size_t items() const override { return items_; }
  inline device where() const { return where_; }
  // The device is the current one.
  virtual result<void> launch(const batch_bases& bases, stream_ref stream) = 0;

 private:
  device where_;
  std::size_t items_;
};

class launcher {
 public:
  virtual ~launcher() = default;
  virtual std::string_view name() const = 0;
  // The device is the current one.
  virtual result<std::unique_ptr<launchable>> prepare(std::span<const batch_item> items, device where) = 0;
  // The first error of launched work that the device does not know of; once.
  virtual std::optional<error> take_late_error() { return std::nullopt; }
};

// errc::unsupported: the library cannot be loaded, or is of another version. Null: none is there and none was named.
result<std::shared_ptr<launcher>> library_launcher(const runtime& cuda, const std::string& path);
std::shared_ptr<launcher> host_function_launcher(const runtime& cuda);
std::shared_ptr<launcher> copy_launcher(const runtime& cuda);

// "bfloat16 -> float32", for errors.
std::string describe(const batch_item& item);

}  // namespace shardmesh::cuda
