// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.gguf;
import :gguf_settings;

namespace shardmesh {
namespace {

// True for a tensor to which a rule without a pattern applies.
bool is_usually_quantized(const output_tensor& tensor, const gguf::type_traits& type) {
  const extents& shape = tensor.bytes.from.global_shape();
  if (type.is_plain()) return tensor.type == type.plain;
  return kind(tensor.type) == dtype_kind::floating && shape.rank() >= 2 &&
         shape[shape.rank() - 1] % type.block_elements == 0;
}

class type_choice {
 public:
  explicit type_choice(std::span<const quantize_rule> rules) : rules_(rules), is_used_(rules.size(), false) {}

  std::optional<gguf::tensor_type> type_of(const output_tensor& tensor) {
    for (std::size_t r = 0; r < rules_.size(); ++r) {
      const quantize_rule& rule = rules_[r];
      const gguf::type_traits& type = gguf::traits_of(rule.type);
      if (rule.what && !rule.what->matches(tensor.key)) continue;
      is_used_[r] = true;
      if (rule.what || is_usually_quantized(tensor, type)) return rule.type;
      if (!type.is_plain() && kind(tensor.type) == dtype_kind::floating && tensor.bytes.from.global_shape().rank() >= 2)
        ++uneven_;
      return std::nullopt;
    }
    return std::nullopt;
  }

  result<void> check_used() const {
    for (std::size_t r = 0; r < rules_.size(); ++r)
      if (rules_[r].what && !is_used_[r])
        return fail(errc::invalid_argument, fmt::format("quantize '{}' matches no key", to_string(rules_[r])));
    return {};
  }

  // The number of matrices that are not quantized, because their rows are not whole blocks.
  std::int64_t uneven() const { return uneven_; }

 private:
  std::span<const quantize_rule> rules_;
  std::vector<bool> is_used_;
  std::int64_t uneven_ = 0;
};

}  // namespace

result<gguf::file_options> gguf_settings(const checkpoint_reader& reader, conversion& work,
                                         std::span<const quantize_rule> rules) {
  gguf::file_options made;
  made.carried = &reader.contents();
  type_choice choice(rules);
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    made.types.push_back(choice.type_of(work.tensors[i]));
    made.blocks.push_back(gguf::blocks_of(reader, work.sources[i]));
  }
  SHARDMESH_TRY(choice.check_used());
  if (choice.uneven() > 0)
    work.notes.push_back(
        fmt::format("not quantized: {} whose rows are not whole blocks", detail::counted(choice.uneven(), "tensor")));
  return made;
}

}  // namespace shardmesh
