// SPDX-License-Identifier: Apache-2.0
// A DCP folder for which several processes each write their own file, and that one of them puts in place: the C++ half
// of shardmesh.dcp.StorageWriter. Python exchanges the results between the processes.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "module.hpp"
#include "saving_options.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.dcp;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

class rank_folder {
 public:
  // For the process that makes the folder and will put it in place.
  static std::unique_ptr<rank_folder> make(const py::str& destination, bool overwrite) {
    const output_options options = replacing_checkpoints({.overwrite = overwrite}).output();
    return std::make_unique<rank_folder>(value_of(staged_output::directory(bytes_of(destination), options)), true);
  }
  // For another process that sees the folder.
  static std::unique_ptr<rank_folder> join(const py::str& folder) {
    return std::make_unique<rank_folder>(value_of(staged_output::join(bytes_of(folder))), false);
  }
  rank_folder(staged_output output, bool commits) : output_(std::move(output)), commits_(commits) {
    if (commits_) open_folders().push_back(this);
  }
  rank_folder(const rank_folder&) = delete;
  rank_folder& operator=(const rank_folder&) = delete;
  ~rank_folder() {
    std::erase(open_folders(), this);
    if (!is_of_this_process() && output_) output_->release();  // the parent still uses it
  }
  // The folders that are not committed. Python's lock guards the list. It is never destroyed, because Python's objects
  // may live longer.
  static std::vector<rank_folder*>& open_folders() {
    static auto* const folders = new std::vector<rank_folder*>;
    return *folders;
  }
  void discard() {
    if (is_of_this_process()) output_.reset();
  }

  py::str folder() const {
    check_open();
    return text(output_->folder().native());
  }

  // Writes this rank's file. Returns the places of the objects, then of the tensors, as (file, offset, length), and the
  // checksums, as (file, offset, length, digits). archives: bytes each. tensors: (key, memory) each.
  py::tuple write(std::int32_t rank, const py::sequence& archives, const py::sequence& tensors, const py::dict& given) {
    check_open();
    std::vector<std::string_view> objects;
    for (const py::handle archive : archives) objects.push_back(py::reinterpret_borrow<py::bytes>(archive));
    view_source source;
    std::vector<output_tensor> chunks;
    for (const py::handle tensor : tensors) {
      const auto pair = py::reinterpret_borrow<py::sequence>(tensor);
      chunks.push_back(chunk_of(bytes_of(pair[0]), rank, to_view(pair[1]), source));
    }
    const plain_saving saving(given);
    dcp::rank_files files(*output_, rank);
    check(waited(given["report"], [&](watch& watching) {
      return write_items(files, rank, objects, chunks, source, saving.with(watching));
    }));
    py::list places, sums;
    for (const dcp::item_place& at : files.places()) places.append(py::make_tuple(text(at.file), at.offset, at.length));
    for (const checksum_range& range : files.ranges())
      sums.append(py::make_tuple(text(range.file), range.offset, range.length, text(range.digits)));
    return py::make_tuple(places, sums);
  }

  // Adds the metadata and the record of checksums, and puts the folder in place. Returns notes for the user.
  py::list commit(const py::bytes& metadata, const py::sequence& sums) {
    check_open();
    std::vector<checksum_range> ranges;
    for (const py::handle sum : sums) {
      const auto one = py::reinterpret_borrow<py::sequence>(sum);
      ranges.push_back({bytes_of(one[0]), one[1].cast<std::int64_t>(), one[2].cast<std::int64_t>(), bytes_of(one[3])});
    }
    const std::string_view pickle = metadata;
    check(waited(py::none(), [&](watch&) { return finish(std::as_bytes(std::span(pickle)), std::move(ranges)); }));
    py::list notes;
    for (const std::string& note : output_->notes()) notes.append(text(note));
    return notes;
  }

 private:
  bool is_of_this_process() const { return process_ == ::getpid(); }
  void check_open() const {
    if (!output_) raise(fail(errc::cancelled, "the save was discarded because the program ends"));
  }
  static output_tensor chunk_of(std::string key, std::int32_t rank, const tensor_view& view, view_source& source) {
    output_tensor made;
    made.key = std::move(key);
    made.type = view.type;
    made.chunks.push_back({box::whole(view.sizes), rank});
    distribution_builder parts(view.sizes, owner_space::items);
    parts.add(0, static_cast<std::int32_t>(source.views.size()), extents::filled(view.sizes.rank(), 0), view.sizes);
    made.bytes.from = value_of(parts.finish());
    made.bytes.from_type = made.bytes.to_type = view.type;
    source.views.push_back(view);
    return made;
  }

  result<void> write_items(dcp::rank_files& files, std::int32_t rank, std::span<const std::string_view> objects,
                           std::span<output_tensor> chunks, view_source& source, const save_options& options) {
    for (const std::string_view archive : objects) {
      auto at = files.place(rank, static_cast<std::int64_t>(archive.size()));
      if (!at) return std::move(at).error();
      if (auto done = files.write_archive(rank, *at, std::as_bytes(std::span(archive))); !done) return done;
      files.places().push_back(*std::move(at));
    }
    for (output_tensor& chunk : chunks)
      if (auto placed = files.place_tensor(chunk); !placed) return std::move(placed).error().with_key(chunk.key);
    if (auto room = output_->reserve(dcp::data_bytes_of(chunks)); !room) return room;
    if (auto done = files.write_tensors(chunks, source, run_options_of(options)); !done) return done;
    if (auto done = output_->prepare(); !done) return done;
    if (!commits_) output_->release();
    return {};
  }

  result<void> finish(std::span<const std::byte> metadata, std::vector<checksum_range> ranges) {
    if (auto done = write_file(".metadata", metadata); !done) return done;
    ranges.push_back({".metadata", 0, static_cast<std::int64_t>(metadata.size()), to_hex(xxh3(metadata))});
    const std::string record = format_checksums(ranges);
    if (auto done = write_file(checksum_file_name, std::as_bytes(std::span(record))); !done) return done;
    return output_->commit();
  }

  result<void> write_file(std::string_view name, std::span<const std::byte> bytes) {
    auto file = output_->add_file(name);
    if (!file) return std::move(file).error();
    return output_->write(*file, 0, bytes);
  }

  std::optional<staged_output> output_;  // empty once discarded
  bool commits_;
  pid_t process_ = ::getpid();
};

}  // namespace

void discard_rank_folders() {
  const auto folders = rank_folder::open_folders();
  for (rank_folder* folder : folders) folder->discard();
}

void add_rank_folder(py::module_& native) {
  py::class_<rank_folder>(native, "RankFolder")
      .def_static("make", &rank_folder::make, py::arg("destination"), py::arg("overwrite"))
      .def_static("join", &rank_folder::join, py::arg("folder"))
      .def_property_readonly("folder", &rank_folder::folder)
      .def("write", &rank_folder::write, py::arg("rank"), py::arg("archives"), py::arg("tensors"), py::arg("options"))
      .def("commit", &rank_folder::commit, py::arg("metadata"), py::arg("sums"));
}

}  // namespace bindings
