// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.gguf;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;
import shardmesh.torch_file;
import :sidecar_metadata;
import :conversion_notes;
import :entry_check;
import :gguf_settings;
import :merge_tensors;
import :conversion_view;

namespace shardmesh {
namespace {

// Opaque tensors have archives of their own in DCP. Other formats have no place for these.
void refuse_archives(const checkpoint_reader& reader, const target& to, conversion& work) {
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    if (!work.tensors[i].archive) continue;
    const tensor_entry& stored = reader.contents().tensors[work.sources[i]];
    work.problems.push_back(
        fail(errc::unsupported, fmt::format("a {} cannot be written as {}", stored.opaque_kind, to.name))
            .with_key(stored.key)
            .with_file(reader.path().string())
            .with_values("", stored.opaque_type)
            .with_hint("pass skip_unsupported to leave it out"));
  }
}

// True for an entry that the format cannot hold. The writer refuses those that remain.
bool is_unsupported(const target& to, const output_tensor& tensor) {
  if (tensor.archive && !to.is_pickled) return true;
  return to.problem_of(tensor.key, tensor.type, tensor.bytes.from.global_shape()).has_value();
}

bool is_unsupported(const target& to, const output_object& object) {
  return to.is_pickled ? torch_file::problem_of_name(object.key).has_value()
                       : !safetensors::problems_of_names({&object, 1}).empty();
}

std::vector<error> refusals_of(const checkpoint_reader& reader, std::span<const resized_tensor> differences) {
  std::vector<error> problems;
  for (const resized_tensor& tensor : differences)
    problems.push_back(fail(errc::shape_mismatch, "the checkpoint given by like has another shape")
                           .with_key(tensor.key)
                           .with_file(reader.path().string())
                           .with_values(to_string(tensor.wanted), to_string(tensor.stored))
                           .with_hint("pass allow_shape_mismatch to cut it or fill it with zeros"));
  return problems;
}

// Splits a flat name at its dots. A longer path keeps its steps, which may be indices and integer keys.
void split_at_dots(path& where, std::string_view key) {
  if (where.size() > 1 || (where.size() == 1 && (where[0].is_index() || where[0].is_integer() || where[0].is_python())))
    return;
  where = {};
  for (std::size_t begin = 0;;) {
    const std::size_t dot = key.find('.', begin);
    where.push_back(std::string(key.substr(begin, dot - begin)));
    if (dot == std::string_view::npos) return;
    begin = dot + 1;
  }
}

// Paths that form no tree are a fault of the source, not of an argument. Errors that name a file are not changed.
void find_source_of(const checkpoint_reader& reader, error& problem) {
  if (!problem.file.empty()) return;
  if (problem.code == errc::invalid_argument) problem.code = errc::unsupported;
  if (problem.code == errc::unsupported || problem.code == errc::duplicate_key)
    problem.file = printable_url(reader.path().string());
}

// One call of `convert`, phase by phase. A phase that fails returns problems, and nothing is written.
class converter {
 public:
  converter(checkpoint_reader& given, const std::filesystem::path& destination, const convert_options& options)
      : given_(given), destination_(destination), options_(options), target_(target_of(options.format)), seen_(given) {}

  result<save_report> run() {
    using phase = std::vector<error> (converter::*)();
    for (const phase next : {&converter::check_arguments, &converter::open_view, &converter::match_shapes,
                             &converter::select, &converter::merge, &converter::leave_out, &converter::check_entries})
      if (auto problems = (this->*next)(); !problems.empty()) return fail_all(std::move(problems));
    return write();
  }

 private:
  using problems = std::vector<error>;
  static problems problem_of(error one) {
    problems made;
    made.push_back(std::move(one));
    return made;
  }

  problems check_arguments() {
    if (auto can = detail::check_can_write(destination_); !can) return problem_of(std::move(can).error());
    if (auto apart = check_disjoint(destination_, given_); !apart) return problem_of(std::move(apart).error());
    if (auto unused = unused_options(); !unused.empty()) return unused;
    if (!options_.like) return {};
    auto apart = check_disjoint(destination_, *options_.like);
    return apart ? problems() : problem_of(std::move(apart).error());
  }

  // Options that the format does not use: the caller expects something that would not happen.
  problems unused_options() const {
    problems found;
    const auto refuse = [&](bool is_used, std::string_view options, std::string_view formats) {
      if (!is_used)
        found.push_back(fail(errc::invalid_argument, fmt::format("{} only to {}", options, formats))
                            .with_file(destination_.string())
                            .with_values("", std::string(target_.name))
                            .with_hint("leave it out"));
    };
    refuse(target_.has_items || (options_.item.empty() && options_.payload == payload_kind::torch),
           "item and payload apply", "torch-checkpointing");
    refuse(target_.has_block_types || options_.quantize.empty(), "quantize applies", "gguf");
    refuse(target_.format == target_format::hf || options_.max_shard_bytes == convert_options().max_shard_bytes,
           "max_shard_bytes applies", "hf");
    refuse(target_.is_pickled || !options_.nest, "nest applies", "dcp, pt, and torch-checkpointing");
    return found;
  }

  // Opens the source in a form that the destination can hold.
  problems open_view() {
    if (auto done = seen_.take_apart(target_.is_pickled, options_.components); !done)
      return problem_of(std::move(done).error());
    reader_ = &seen_.last();
    return {};
  }

  // Gives tensors the shapes that they have in `like`.
  problems match_shapes() {
    if (!options_.like) return {};
    std::vector<resized_tensor> differences = shape_differences(*reader_, options_.selection, *options_.like);
    // The sizes of a wrapping tensor's components follow from its values.
    std::erase_if(differences, [&](const resized_tensor& tensor) { return seen_.is_component(tensor.key); });
    if (differences.empty()) return {};
    if (!options_.allow_shape_mismatch) return refusals_of(*reader_, differences);
    reader_->identify_opaque_tensors();  // only plain tensors can be resized
    auto made = resize_tensors(*reader_, differences);
    if (!made) return problem_of(std::move(made).error());
    resized_ = *std::move(made);
    reader_ = resized_.get();
    for (const resized_tensor& tensor : differences) resized_notes_.push_back(to_string(tensor));
    return {};
  }

  // Chooses the entries to write, with their names and dtypes.
  problems select() {
    work_ = select_for_output(*reader_, options_.selection);
    work_.notes.insert(work_.notes.end(), resized_notes_.begin(), resized_notes_.end());
    if (is_dcp()) leave_to_side_files(*reader_, work_);
    find_disputed(*reader_, work_, !options_.skip_objects);
    if (target_.is_pickled && !options_.skip_objects) find_unpicklable(*reader_, work_);
    if (auto lost = find_lost_tensors(*reader_, work_, options_.skip_unsupported))
      work_.problems.push_back(*std::move(lost));
    settle_unsupported(work_, options_.skip_unsupported, skipped_);
    left_out_ = unsupported_entries(reader_->contents(), work_);
    if (options_.skip_objects) std::erase_if(left_out_, [](const whole_entry& entry) { return !entry.is_tensor; });
    if (!target_.is_pickled && !options_.skip_unsupported) refuse_archives(*reader_, target_, work_);
    return std::move(work_.problems);
  }

  // Merges tensors, so that each is written once, under the first of its keys.
  problems merge() {
    auto record = recorded_sums::open(*reader_);
    if (!record) return problem_of(std::move(record).error());
    record_ = *std::move(record);
    source_.emplace(chunk_source::checking(*reader_, record_));
    const auto merged = merge_tensors(*reader_, work_, options_.dedup, *source_, options_.threads);
    return merged ? problems() : problem_of(merged.error());
  }

  // Drops entries that the format cannot hold, and decides the names of the remaining ones.
  problems leave_out() {
    if (target_.is_nested) {
      if (auto note = note_of_dead_ends(*reader_, work_)) work_.notes.push_back(*std::move(note));
      if (auto note = options_.nest ? std::nullopt : note_of_flat_names(reader_->contents(), work_))
        work_.notes.push_back(*std::move(note));
    }
    if (target_.is_pickled && options_.nest) {
      for (output_tensor& tensor : work_.tensors) split_at_dots(tensor.where, tensor.key);
      for (output_object& object : work_.objects) split_at_dots(object.where, object.key);
    }
    if (options_.skip_unsupported) drop_unsupported();
    for (std::string& note : seen_.notes_of_components(work_)) work_.notes.push_back(std::move(note));
    if (auto note = seen_.note_of_lost_ways_back(work_)) work_.notes.push_back(*std::move(note));
    if (options_.skip_objects) skipped_.skipped_objects += drop_objects(work_, [](const auto&) { return true; });
    return target_.is_pickled ? find_path_conflicts(work_.tensors, work_.objects) : problems();
  }

  // Drops the entries that the format cannot hold. A note names them.
  void drop_unsupported() {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < work_.tensors.size(); ++i) {
      if (!is_unsupported(target_, work_.tensors[i])) continue;
      left_out_.push_back({true, work_.sources[i]});
      keys.push_back(work_.tensors[i].key);
    }
    for (std::size_t i = 0; i < work_.objects.size(); ++i) {
      if (!is_unsupported(target_, work_.objects[i])) continue;
      left_out_.push_back({false, work_.object_sources[i]});
      keys.push_back(work_.objects[i].key);
    }
    if (keys.empty()) return;
    work_.notes.push_back(fmt::format("left out, because {} cannot hold them: {}", target_.name, name_list(keys)));
    skipped_.skipped_tensors +=
        drop_tensors(work_, [&](const output_tensor& tensor) { return is_unsupported(target_, tensor); });
    skipped_.skipped_objects +=
        drop_objects(work_, [&](const output_object& object) { return is_unsupported(target_, object); });
  }

  // Refuses to copy anything that `verify` refuses.
  problems check_entries() {
    problems found = check_before_copying(*reader_, work_, left_out_, record_.get(), options_.threads);
    if (found.empty() && is_dcp()) found = check_side_entries(*reader_, options_.threads);
    if (!found.empty()) return found;
    if (is_dcp()) make_objects_of_layouts(work_);
    auto beside = carried_to(target_, *reader_, work_, work_.notes);
    if (!beside) return problem_of(std::move(beside).error());
    settings_ = *std::move(beside);
    if (!target_.has_block_types) return {};
    auto blocks = gguf_settings(*reader_, work_, options_.quantize);
    if (!blocks) return problem_of(std::move(blocks).error().with_file(destination_.string()));
    settings_.gguf_file = *std::move(blocks);
    return {};
  }

  result<save_report> write() {
    settings_.files.max_shard_bytes = options_.max_shard_bytes;
    settings_.items = {.files = options_.payload == payload_kind::safetensors
                                    ? torch_checkpointing::payload::safetensors
                                    : torch_checkpointing::payload::torch,
                       .item = options_.item};
    const save_options saving = replacing_checkpoints(with_last_check(options_.saving(), *reader_, *source_));
    auto report = target_.write(destination_, std::move(work_.tensors), work_.objects, *source_, settings_, saving);
    if (!report) {
      error why = std::move(report).error();
      if (!target_.is_nested) return why;
      find_source_of(*reader_, why);
      for (error& other : why.others) find_source_of(*reader_, other);
      return why;
    }
    report->skipped_tensors = skipped_.skipped_tensors;
    report->skipped_objects = skipped_.skipped_objects;
    report->excluded = work_.excluded;
    report->notes.insert(report->notes.begin(), work_.notes.begin(), work_.notes.end());
    return report;
  }

  bool is_dcp() const { return target_.format == target_format::dcp; }

  checkpoint_reader& given_;
  const std::filesystem::path& destination_;
  const convert_options& options_;
  const target& target_;
  conversion_view seen_;
  std::unique_ptr<checkpoint_reader> resized_;
  std::vector<std::string> resized_notes_;
  checkpoint_reader* reader_ = nullptr;  // the source, after `open_view` and `match_shapes`
  conversion work_;
  std::vector<whole_entry> left_out_;  // as unsupported; they are checked nevertheless
  save_report skipped_;                // only its counts of skipped entries
  std::shared_ptr<const recorded_sums> record_;
  std::optional<chunk_source> source_;
  target_settings settings_;
};

}  // namespace

result<save_report> convert(checkpoint_reader& given, const std::filesystem::path& destination,
                            const convert_options& options) {
  const detail::call_scope limits(options.saving().call().named("conversion"));
  const places::remembered_answers answers;  // the source may lie under a URL
  return converter(given, destination, options).run();
}

}  // namespace shardmesh
