// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :architectures;
import :hf_folder;
import :hf_tokenizer;
import :hyper_parameters;
import :model_value;
import :model_values;
import :tokenizer_values;

namespace shardmesh::llama_cpp {
namespace {

// The converter writes these tensors as float32, and llama.cpp computes with no other type: tensors of one dimension,
// norms, biases, and the weights of routers.
bool needs_float32(const tensor_entry& tensor) {
  return tensor.shape.rank() <= 1 || tensor.key.ends_with("_norm.weight") || !tensor.key.ends_with(".weight") ||
         tensor.key.find(".ffn_gate_inp") != std::string::npos;
}

// True for an error of the file system or of a store. Any other error is about the content of a file.
bool is_failure(const error& problem) {
  return problem.code == errc::io || problem.code == errc::communication || problem.code == errc::no_memory ||
         problem.code == errc::cancelled || problem.code == errc::deadline_exceeded;
}

class values_builder {
 public:
  values_builder(const catalog& mapped, std::string_view convention, const model_sizes& sizes)
      : mapped_(mapped), convention_(convention), sizes_(sizes), folder_(sizes.config_file) {}

  result<model_values> build() && {
    note_types();
    auto config = folder_.read_json(folder_.config_name());
    if (!config) {
      SHARDMESH_TRY(noted(std::move(config).error(), "the hyper-parameters"));
      return std::move(made_);
    }
    const std::string type = *config ? model_type_of(**config) : std::string();
    const model_architecture* const model = find_architecture(convention_, type);
    if (model == nullptr) {
      note_unknown(type);
      return std::move(made_);
    }
    const named_sizes numbers = numbers_of(sizes_);
    SHARDMESH_TRY(add_parameters(**config, *model, numbers));
    SHARDMESH_TRY(add_tokenizer(*model, numbers));
    made_.notes.push_back(fmt::format("{} of llama.cpp from {}",
                                      detail::counted(made_.values.size() + made_.tensors.size(), "value"),
                                      name_list(files_)));
    return std::move(made_);
  }

 private:
  void note_types() {
    std::vector<std::string> keys;
    for (const tensor_entry& tensor : mapped_.tensors)
      if (needs_float32(tensor) && tensor.type != dtype::float32) keys.push_back(escaped(tensor.key));
    if (keys.empty()) return;
    made_.notes.push_back(fmt::format(
        "{} not stored as float32, the only type in which llama.cpp reads {}: {}; pass --dtype float32 "
        "together with --quantize, or --dtype '.*(_norm|_inp|sinks).*|.*bias=float32'",
        detail::counted(keys.size(), "tensor is", "tensors are"), keys.size() == 1 ? "it" : "them", name_list(keys)));
  }

  void note_unknown(const std::string& type) {
    const std::string types = model_types_of(convention_);
    std::string why = fmt::format("'model_type' is '{}'", escaped(type.substr(0, 80)));
    if (type.empty()) why = "there is no 'model_type'";
    made_.notes.push_back(fmt::format("no hyper-parameters and no tokenizer for llama.cpp: {}: {}, and {}",
                                      folder_.path_of(folder_.config_name()), why,
                                      types.empty()
                                          ? fmt::format("the convention {} has no known model", escaped(convention_))
                                          : fmt::format("the convention {} is for {}", convention_, types)));
  }

  result<void> add_parameters(const std::string& config, const model_architecture& model, const named_sizes& numbers) {
    files_.push_back(folder_.config_name());
    hyper_parameters read = read_hyper_parameters(config, model, numbers);
    made_.values = std::move(read.values);
    made_.tensors = std::move(read.tensors);
    made_.values.push_back(text_value("general.type", "model"));
    if (std::string name = folder_.model_name(); !name.empty() && is_utf8(name))
      made_.values.push_back(text_value("general.name", name));
    if (!read.missing.empty())
      made_.notes.push_back(fmt::format(
          "missing for llama.cpp: {}: {} has no valid numbers for them; correct it, or name another with --config",
          name_list(read.missing), folder_.path_of(folder_.config_name())));
    if (!read.rotation.empty())
      made_.notes.push_back(fmt::format("the rotation of positions is not carried whole: {}: {}",
                                        folder_.path_of(folder_.config_name()), name_list(read.rotation)));
    check_vocabulary_size(numbers);
    auto sampling = read_sampling(folder_);
    if (!sampling) return noted(std::move(sampling).error(), "general.sampling");
    if (!sampling->empty()) files_.emplace_back("generation_config.json");
    for (model_value& one : *sampling) made_.values.push_back(std::move(one));
    return {};
  }

  result<void> add_tokenizer(const model_architecture& model, const named_sizes& numbers) {
    const auto rows = embedding_rows();
    if (rows && *rows > most_tokens) {
      made_.notes.push_back(
          fmt::format("the tokenizer is missing: token_embd.weight has more than {} rows", most_tokens));
      return {};
    }
    auto read = read_tokenizer_values(folder_, model, numbers, rows);
    if (!read) return noted(std::move(read).error(), "the tokenizer");
    for (model_value& one : read->values) made_.values.push_back(std::move(one));
    for (std::string& one : read->notes) made_.notes.push_back(std::move(one));
    for (std::string& one : read->files) files_.push_back(std::move(one));
    return {};
  }

  // Turns a defect of a file into a note.
  result<void> noted(error problem, std::string_view what) {
    if (is_failure(problem)) return problem;
    made_.notes.push_back(fmt::format("{} is missing: {}", what, to_string(problem)));
    return {};
  }

  std::optional<std::int64_t> embedding_rows() const {
    for (const tensor_entry& tensor : mapped_.tensors)
      if (tensor.key == "token_embd.weight" && tensor.shape.rank() == 2) return tensor.shape[0];
    return std::nullopt;
  }

  void check_vocabulary_size(const named_sizes& numbers) {
    const auto stated = numbers.find("vocab_size");
    const auto rows = embedding_rows();
    if (stated != numbers.end() && rows && *rows != stated->second)
      made_.notes.push_back(fmt::format("{}: 'vocab_size' is {}, and token_embd.weight has {} rows",
                                        folder_.path_of(folder_.config_name()), stated->second, *rows));
  }

  const catalog& mapped_;
  std::string convention_;
  const model_sizes& sizes_;
  hf_folder folder_;
  std::vector<std::string> files_;
  model_values made_;
};

}  // namespace

result<model_values> read_model_values(const catalog& mapped, std::string_view convention, const model_sizes& sizes) {
  if (sizes.config_file.empty()) {
    model_values made;
    const bool has_values = std::any_of(mapped.objects.begin(), mapped.objects.end(), [](const object_entry& object) {
      return object.key == "general.architecture";
    });
    if (!has_values)
      made.notes.emplace_back(
          "no hyper-parameters and no tokenizer for llama.cpp: no config.json is beside the checkpoint; name one in "
          "the model's folder with --config");
    return made;
  }
  return values_builder(mapped, convention, sizes).build();
}

}  // namespace shardmesh::llama_cpp
