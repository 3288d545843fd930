// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/algorithm/remove_if.hpp>
#include <range/v3/view/zip.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_checkpointing;
import shardmesh.torch_file;
import :entry_check;

namespace shardmesh {
namespace views = ranges::views;

std::int32_t writer_of_file(const catalog& stored, std::int32_t file) {
  if (file < 0) return 0;
  const std::string& name = stored.files[static_cast<std::size_t>(file)];
  return (stored.format == checkpoint_format::torch_checkpointing ? torch_checkpointing::rank_of_file(name)
                                                                  : rank_of_file(name))
      .value_or(0);
}

namespace {

class selecting {
 public:
  selecting(checkpoint_reader& reader, conversion& into) : reader_(reader), contents_(reader.contents()), into_(into) {}

  void add_tensor(std::size_t index, std::string key, dtype type) {
    const tensor_entry& stored = contents_.tensors[index];
    if (!stored.opaque_type.empty() && stored.chunk_count == 0) {
      // The tensor lies inside a .pt file or an object, so it has no archive of its own to copy.
      leave_out(fail(errc::unsupported, fmt::format("a {} cannot be written", stored.opaque_kind))
                    .with_key(stored.key)
                    .with_file(reader_.path().string())
                    .with_values("", stored.opaque_type));
      return;
    }
    if (!stored.opaque_type.empty() && stored.opaque_kind.empty() && !is_whole(index)) return;
    tiling found = check_tiling(contents_, stored);
    for (error& problem : found.problems)
      if (problem.code != errc::gap || !is_of_one_rank(reader_))
        into_.problems.push_back(std::move(problem).with_file(reader_.path().string()));
    if (!found.held) return;
    output_tensor made;
    made.where = key == stored.key ? stored.where : path{key};
    made.key = std::move(key);
    made.type = type;
    made.properties = stored.properties;
    made.bytes = {*found.held, {}, stored.type, type};
    if (!stored.opaque_type.empty() && !take_archive(stored, type, made)) return;
    for (std::int32_t chunk = stored.first_chunk; chunk < stored.first_chunk + stored.chunk_count; ++chunk) {
      const box where = contents_.chunk_box(stored, chunk);
      const std::int32_t file = contents_.chunk_places[static_cast<std::size_t>(chunk)].file;
      if (!where.is_empty()) made.chunks.push_back({where, writer_of(file)});
    }
    if (made.chunks.empty()) made.chunks.push_back({box::whole(stored.shape), 0});
    if (stored.key.ends_with("_flat_param"))
      into_.notes.push_back(fmt::format(
          "{} is an FSDP1 flat parameter: the names and shapes of its parameters are not in the file", stored.key));
    into_.tensors.push_back(std::move(made));
    into_.sources.push_back(index);
  }

  // `listed` replaces the object if it lists parameters that have new names.
  void add_object(std::size_t index, std::string key, std::optional<object_value> listed) {
    const object_entry& stored = contents_.objects[index];
    if (stored.hidden_tensors > 0) {
      leave_out(fail(errc::unsupported, fmt::format("an object with {} inside that cannot be written",
                                                    detail::counted(stored.hidden_tensors, "tensor")))
                    .with_key(stored.key)
                    .with_file(reader_.path().string()),
                stored.hidden_tensors, 1);
      return;
    }
    output_object made;
    made.where = key == stored.key ? stored.where : path{key};
    made.key = std::move(key);
    made.rank = writer_of(stored.place.file);
    made.archive = [&reader = reader_, index] { return reader.object_archive(index); };
    made.json = [&reader = reader_, index]() -> result<std::string> {
      SHARDMESH_TRY(const object_value value, reader.read_object(index));
      return object_document(value);
    };
    if (listed) {
      made.archive = [json = listed->json] { return torch_file::archive_from_json(json); };
      made.json = [text = object_document(*listed)]() -> result<std::string> { return text; };
    }
    into_.objects.push_back(std::move(made));
    into_.object_sources.push_back(index);
  }

 private:
  std::int32_t writer_of(std::int32_t file) const { return writer_of_file(contents_, file); }

  // A tensor's damaged archive may hold anything, so the damage is a problem, not an unsupported kind.
  bool is_whole(std::size_t tensor) {
    const whole_entry entry{true, tensor};
    check_outcome outcome = reader_.check_whole({&entry, 1}, {.quick = true, .threads = 1});
    for (error& problem : outcome.problems) into_.problems.push_back(std::move(problem));
    return outcome.problems.empty();
  }

  void leave_out(error why, std::int64_t tensors = 1, std::int64_t objects = 0) {
    into_.unsupported.push_back(std::move(why).with_hint("pass skip_unsupported to leave it out"));
    into_.unsupported_tensors += tensors;
    into_.unsupported_objects += objects;
  }

  // Copies an unsharded tensor of an unknown representation verbatim. Anything else would invent bytes.
  bool take_archive(const tensor_entry& stored, dtype type, output_tensor& made) {
    if (stored.type == dtype::undefined && stored.properties.foreign_dtype.empty()) {
      into_.problems.push_back(fail(errc::unsupported, "a tensor without a dtype of PyTorch cannot be written")
                                   .with_key(stored.key)
                                   .with_file(reader_.path().string())
                                   .with_values("", stored.opaque_type));
      return false;
    }
    const bool whole =
        stored.chunk_count == 1 && contents_.chunk_box(stored, stored.first_chunk) == box::whole(stored.shape);
    if (!whole || type != stored.type) {
      error why = fail(errc::unsupported, whole ? fmt::format("a {} cannot be cast", stored.opaque_kind)
                                                : fmt::format("a sharded {} cannot be resharded", stored.opaque_kind))
                      .with_key(stored.key)
                      .with_file(reader_.path().string())
                      .with_values("", stored.opaque_type);
      if (whole)
        into_.problems.push_back(std::move(why));
      else
        leave_out(std::move(why));
      return false;
    }
    made.archive = [&reader = reader_, &stored] { return reader.chunk_archive(stored, stored.first_chunk); };
    return true;
  }

  checkpoint_reader& reader_;
  const catalog& contents_;
  conversion& into_;
};

}  // namespace

conversion select_for_output(checkpoint_reader& reader, const selection_options& options) {
  conversion made;
  reader.identify_opaque_tensors();
  made.problems = reader.problems();
  made.notes = reader.notes();
  for (const error& warning : reader.warnings()) made.notes.push_back(to_string(warning));
  const catalog& contents = reader.contents();
  std::vector<selectable> candidates;
  for (const tensor_entry& tensor : contents.tensors) candidates.push_back({tensor.key, tensor.type, true});
  for (const object_entry& object : contents.objects) candidates.push_back({object.key, dtype::undefined, false});
  selection_result chosen = select_keys(candidates, options);
  made.excluded = static_cast<std::int64_t>(chosen.excluded);
  for (error& problem : chosen.errors) made.problems.push_back(std::move(problem));
  for (std::string& note : chosen.notes) made.notes.push_back(std::move(note));
  selecting select(reader, made);
  for (selected& one : chosen.kept) {
    if (one.index < contents.tensors.size()) {
      select.add_tensor(one.index, std::move(one.key), one.type);
      continue;
    }
    const std::size_t object = one.index - contents.tensors.size();
    auto listed = renamed_parameter_list(reader, object, chosen.lists, one.index);
    if (!listed)
      made.problems.push_back(std::move(listed).error());
    else
      select.add_object(object, std::move(one.key), *std::move(listed));
  }
  return made;
}

namespace {

// Drops the entries for which `drop` holds, and the same positions of `sources`.
template <class Entry, class Drop>
std::int64_t drop_with_sources(std::vector<Entry>& entries, std::vector<std::size_t>& sources, const Drop& drop) {
  const auto both = views::zip(entries, sources);
  const auto kept = ranges::remove_if(both, drop, [](const auto& one) -> const Entry& { return std::get<0>(one); });
  const auto dropped = both.end() - kept;
  entries.erase(entries.end() - dropped, entries.end());
  sources.erase(sources.end() - dropped, sources.end());
  return dropped;
}

}  // namespace

std::int64_t drop_tensors(conversion& work, function_ref<bool(const output_tensor& tensor)> drop) {
  return drop_with_sources(work.tensors, work.sources, drop);
}

std::int64_t drop_objects(conversion& work, function_ref<bool(const output_object& object)> drop) {
  return drop_with_sources(work.objects, work.object_sources, drop);
}

}  // namespace shardmesh
