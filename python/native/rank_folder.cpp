// SPDX-License-Identifier: Apache-2.0
// A DCP folder for which several processes each write their own file, and that one of them puts in place: the C++ half
// of shardmesh.dcp.StorageWriter. Python exchanges the results between the processes.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
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
import shardmesh.core;
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

  // Writes this rank's file. Returns the places of the objects, then of the tensors, as (file, offset, length), and in
  // the same order the checksums, as (file, offset, length, digits). archives: bytes each. tensors: (key, memory,
  // place) each; the place is (offsets, shape of the whole tensor), or None. With `previous` in the options, tensors
  // that this checkpoint holds are not written, and their places are there.
  py::tuple write(std::int32_t rank, const py::sequence& archives, const py::sequence& tensors, const py::dict& given) {
    check_open();
    std::vector<std::string_view> objects;
    for (const py::handle archive : archives) objects.push_back(py::reinterpret_borrow<py::bytes>(archive));
    view_source source;
    std::vector<output_tensor> chunks;
    for (const py::handle tensor : tensors) {
      const auto one = py::reinterpret_borrow<py::sequence>(tensor);
      chunks.push_back(chunk_of(bytes_of(one[0]), rank, to_view(one[1]), one[2], source));
    }
    const plain_saving saving(given);
    const std::string previous = bytes_of(given["previous"]), destination = bytes_of(given["destination"]);
    dcp::referred_items referred;
    std::optional<dcp::rank_files> files;
    check(waited(given["report"], [&](watch& watching) -> result<void> {
      const save_options options = saving.with(watching);
      const detail::call_scope limits(options.call().named("save"));
      if (auto goes_on = detail::check_current_call(); !goes_on)
        return std::move(goes_on).error().with_file(destination);
      if (!previous.empty()) {
        auto found = unchanged_items(previous, destination, chunks, source, options);
        if (!found) return std::move(found).error();
        referred = *std::move(found);
      }
      files.emplace(*output_, rank, after(objects.size(), referred));
      return write_items(*files, rank, objects, chunks, source, referred, options);
    }));
    py::list places, sums;
    std::size_t written = 0;
    for (std::size_t i = 0; i < files->places().size(); ++i) {
      const dcp::item_place& at = files->places()[i];
      places.append(py::make_tuple(text(at.file), at.offset, at.length));
      const auto item = referred.find(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(objects.size()));
      const std::string& digits = item == referred.end() ? files->ranges()[written++].digits : item->second.digits;
      sums.append(py::make_tuple(text(at.file), at.offset, at.length, text(digits)));
    }
    return py::make_tuple(places, sums);
  }

  // Adds the metadata and the record of checksums, and puts the folder in place. Returns notes for the user.
  py::list commit(const py::bytes& metadata, const py::sequence& sums) {
    check_open();
    std::vector<checksum_range> ranges;
    std::set<std::pair<std::string, std::int64_t>> known;  // several chunks may refer to one item
    for (const py::handle sum : sums) {
      const auto one = py::reinterpret_borrow<py::sequence>(sum);
      checksum_range range{bytes_of(one[0]), one[1].cast<std::int64_t>(), one[2].cast<std::int64_t>(),
                           bytes_of(one[3])};
      if (!parse_sibling_file(range.file) || known.emplace(range.file, range.offset).second)
        ranges.push_back(std::move(range));
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
  static output_tensor chunk_of(std::string key, std::int32_t rank, const tensor_view& view, const py::handle& place,
                                view_source& source) {
    output_tensor made;
    made.key = std::move(key);
    made.type = view.type;
    box where = box::whole(view.sizes);
    extents shape = view.sizes;
    if (!place.is_none()) {
      const auto given = py::reinterpret_borrow<py::sequence>(place);
      where.offsets = to_extents(given[0]);
      shape = to_extents(given[1]);
    }
    made.chunks.push_back({where, rank});
    distribution_builder parts(shape, owner_space::items);
    parts.add(0, static_cast<std::int32_t>(source.views.size()), where.offsets, where.sizes);
    made.bytes.from = value_of(parts.finish());
    made.bytes.from_type = made.bytes.to_type = view.type;
    source.views.push_back(view);
    return made;
  }

  // Returns the items of the previous checkpoint that hold these chunks, by the chunk's number.
  result<dcp::referred_items> unchanged_items(const std::string& previous, const std::string& destination,
                                              std::span<const output_tensor> chunks, view_source& source,
                                              const save_options& options) {
    auto opened = dcp::previous_checkpoint::open(previous, destination);
    if (!opened) return std::move(opened).error();
    previous_ = *std::move(opened);
    item_run_options run = run_options_of(options);
    run.progress = {};  // which the write reports
    auto unchanged = previous_->find_unchanged(chunks, source, std::nullopt, run);
    if (!unchanged) return std::move(unchanged).error();
    return previous_->items_of(chunks, *unchanged);
  }

  // Numbers chunks as `rank_files` does when `objects` places precede them.
  static dcp::referred_items after(std::size_t objects, const dcp::referred_items& referred) {
    dcp::referred_items made;
    for (const auto& [number, item] : referred) made.emplace(number + static_cast<std::int64_t>(objects), item);
    return made;
  }

  result<void> write_items(dcp::rank_files& files, std::int32_t rank, std::span<const std::string_view> objects,
                           std::span<output_tensor> chunks, view_source& source, const dcp::referred_items& referred,
                           const save_options& options) {
    for (const std::string_view archive : objects) {
      if (auto goes_on = detail::check_current_call(); !goes_on) return goes_on;
      auto at = files.place(rank, static_cast<std::int64_t>(archive.size()));
      if (!at) return std::move(at).error();
      if (auto done = files.write_archive(rank, *at, std::as_bytes(std::span(archive))); !done) return done;
      files.places().push_back(*std::move(at));
    }
    for (output_tensor& chunk : chunks)
      if (auto placed = files.place_tensor(chunk); !placed) return std::move(placed).error().with_key(chunk.key);
    if (auto room = output_->reserve(dcp::data_bytes_of(chunks, referred)); !room) return room;
    if (auto done = files.write_tensors(chunks, source, run_options_of(options)); !done) return done;
    if (auto done = output_->prepare(); !done) return done;
    if (!commits_) output_->release();
    return {};
  }

  result<void> finish(std::span<const std::byte> metadata, std::vector<checksum_range> ranges) {
    if (previous_)
      if (auto done = previous_->check_unchanged(referred_of(ranges)); !done) return done;
    if (auto done = write_file(".metadata", metadata); !done) return done;
    ranges.push_back({".metadata", 0, static_cast<std::int64_t>(metadata.size()), to_hex(xxh3(metadata))});
    const std::string record = format_checksums(ranges);
    if (auto done = write_file(checksum_file_name, std::as_bytes(std::span(record))); !done) return done;
    return output_->commit();
  }

  // The items of earlier checkpoints to which any rank refers.
  static dcp::referred_items referred_of(std::span<const checksum_range> ranges) {
    dcp::referred_items made;
    for (const checksum_range& range : ranges)
      if (parse_sibling_file(range.file))
        made.emplace(std::ssize(made), dcp::referred_item{{range.file, range.offset, range.length}, range.digits});
    return made;
  }

  result<void> write_file(std::string_view name, std::span<const std::byte> bytes) {
    auto file = output_->add_file(name);
    if (!file) return std::move(file).error();
    return output_->write(*file, 0, bytes);
  }

  std::optional<staged_output> output_;  // empty once discarded
  std::optional<dcp::previous_checkpoint> previous_;
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
