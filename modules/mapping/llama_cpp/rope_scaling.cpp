// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <mapping/llama_cpp/json_members.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :architectures;
import :model_value;
import :rope_scaling;

namespace shardmesh::llama_cpp {
namespace {

using detail::member_of, detail::number_member, detail::text_member;
using json = nlohmann::json;

constexpr double pi = 3.14159265358979323846;
// Real heads have at most 512 elements.
constexpr std::int64_t most_dimensions = 65536;

bool fits_float32(double number) {
  return std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max());  // false for NaN
}

class rope_reader {
 public:
  rope_reader(const json& config, const model_architecture& model, const named_sizes& numbers)
      : config_(config), model_(model), numbers_(numbers) {
    for (const char* const name : {"rope_parameters", "rope_scaling"})
      if (const json* const found = anywhere(name); found != nullptr && found->is_object()) {
        all_ = found;
        break;
      }
    // Transformers 5 has parameters for each kind of layer.
    const json* const full = all_ == nullptr ? nullptr : member_of(*all_, "full_attention");
    global_ = full != nullptr && full->is_object() ? full : all_;
  }

  rope_values read() && {
    add_fraction("rope.freq_base", theta());
    if (model_.rope == rope_form::phi3) {
      add_phi3();
      return std::move(made_);
    }
    add_fraction("rope.freq_base_swa", local_theta());
    add_scaling();
    if (model_.rope == rope_form::deepseek)
      if (const auto all = number("mscale_all_dim")) add_fraction("rope.scaling.yarn_log_multiplier", 0.1 * *all);
    return std::move(made_);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", model_.name, name); }

  // A member of the configuration: of "text_config", or else around it.
  const json* anywhere(std::string_view name) const {
    if (const json* const text = member_of(config_, "text_config"))
      if (const json* const found = member_of(*text, name); found != nullptr && !found->is_null()) return found;
    const json* const found = member_of(config_, name);
    return found != nullptr && !found->is_null() ? found : nullptr;
  }

  // A number of the parameters of the rotation.
  std::optional<double> number(std::string_view name) const {
    return global_ == nullptr ? std::nullopt : number_member(*global_, name);
  }

  std::optional<double> number_anywhere(std::string_view name) const {
    if (const auto own = number(name)) return own;
    const json* const found = anywhere(name);
    return found != nullptr && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
  }

  std::optional<std::int64_t> size(std::string_view name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

  std::optional<double> theta() const {
    for (const char* const name : {"rope_theta", "global_rope_theta", "rope_global_theta"})
      if (const auto found = number_anywhere(name)) return found;
    return std::nullopt;
  }

  std::optional<double> local_theta() const {
    if (const json* const sliding = all_ == nullptr ? nullptr : member_of(*all_, "sliding_attention"))
      return number_member(*sliding, "rope_theta");
    for (const char* const name : {"rope_local_base_freq", "local_rope_theta"})
      if (const json* const found = anywhere(name); found != nullptr && found->is_number()) return found->get<double>();
    return std::nullopt;
  }

  std::string scaling_type() const {
    if (global_ == nullptr) return {};
    for (const char* const name : {"rope_type", "type"})
      if (const std::string* const found = text_member(*global_, name)) return *found;
    return {};
  }

  void add_fraction(std::string_view name, const std::optional<double>& value) {
    if (!value) return;
    if (fits_float32(*value))
      made_.values.push_back(fraction_value(key(name), *value));
    else
      made_.missing.push_back(fmt::format("{}, whose number does not fit into float32", key(name)));
  }

  // A context length, which may be spelled as 8192.0.
  void add_context(const std::optional<double>& length) {
    if (!length) return;
    if (*length >= 1 && *length <= 4294967295.0 && *length == std::floor(*length))
      made_.values.push_back(
          integer_value(key("rope.scaling.original_context_length"), static_cast<std::int64_t>(*length)));
    else
      made_.missing.push_back("original_max_position_embeddings, which is no length");
  }

  void add_scaling() {
    const std::string type = scaling_type();
    const auto factor = number("factor");
    if (type.empty() || type == "default") return;
    if (type == "llama3" && model_.rope == rope_form::llama) return add_llama3();
    if ((type != "linear" && type != "yarn") || !factor) {
      made_.missing.push_back(fmt::format("the scaling '{}' of positions", type.substr(0, 80)));
      return;
    }
    made_.values.push_back(text_value(key("rope.scaling.type"), type));
    add_fraction("rope.scaling.factor", factor);
    if (type == "linear") return;
    add_context(number_anywhere("original_max_position_embeddings"));
    add_fraction("rope.scaling.yarn_ext_factor", number("extrapolation_factor"));
    const auto attention = number("attention_factor");
    add_fraction("rope.scaling.yarn_attn_factor", attention ? attention : number("attn_factor"));
    add_fraction("rope.scaling.yarn_beta_fast", number("beta_fast"));
    add_fraction("rope.scaling.yarn_beta_slow", number("beta_slow"));
  }

  // The number of elements of a head that are rotated; 0 if it is not known.
  std::int64_t head_size() const {
    if (const auto stated = size("head_dim")) return *stated;
    const auto hidden = size("hidden_size"), heads = size("num_attention_heads");
    return hidden && heads && *heads > 0 ? *hidden / *heads : 0;
  }

  // Llama 3.1 divides each frequency by a factor: that of low frequencies, 1 for high ones, or one between the two.
  void add_llama3() {
    const double base = theta().value_or(10000.0), factor = number("factor").value_or(8.0);
    const double low = number("low_freq_factor").value_or(1.0), high = number("high_freq_factor").value_or(4.0);
    const double context = number_anywhere("original_max_position_embeddings").value_or(8192.0);
    const std::int64_t dimensions = head_size();
    if (dimensions < 2 || dimensions > most_dimensions) return refuse_factors("rope_freqs.weight");
    model_tensor tensor{"rope_freqs.weight", {}};
    for (std::int64_t i = 0; i < dimensions; i += 2) {
      const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(dimensions));
      const double wavelength = 2 * pi / frequency;
      double divisor = 1;
      if (wavelength > context / low) {
        divisor = factor;
      } else if (wavelength >= context / high) {
        const double smooth = (context / wavelength - low) / (high - low);
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      if (!fits_float32(divisor) || divisor <= 0) return refuse_factors("rope_freqs.weight");
      tensor.elements.push_back(static_cast<float>(divisor));
    }
    made_.tensors.push_back(std::move(tensor));
  }

  void refuse_factors(std::string_view tensor) {
    made_.missing.push_back(fmt::format("{}, whose factors cannot be computed from these numbers", tensor));
  }

  void add_phi3() {
    const double partial = number_anywhere("partial_rotary_factor").value_or(1.0);
    const auto hidden = size("hidden_size"), heads = size("num_attention_heads");
    const bool is_sound = partial > 0 && partial <= 1 && hidden && heads && *heads > 0 && *hidden >= *heads &&
                          *hidden / *heads <= most_dimensions && *hidden <= (std::int64_t{1} << 32);
    const std::int64_t rotated =
        is_sound ? static_cast<std::int64_t>(partial * static_cast<double>(*hidden)) / *heads : 0;
    if (is_sound)
      made_.values.push_back(integer_value(key("rope.dimension_count"), rotated));
    else
      made_.missing.push_back(key("rope.dimension_count"));
    const double original = number_anywhere("original_max_position_embeddings").value_or(4096.0);  // Phi3Config
    add_context(original);
    const json* const factors = global_ == nullptr ? nullptr : member_of(*global_, "long_factor");
    if (factors == nullptr || factors->is_null()) return;
    const std::string type = scaling_type();
    const auto most = size("max_position_embeddings");
    const double scale = most ? static_cast<double>(*most) / original : 0;
    if (type != "su" && type != "longrope" && type != "yarn") return refuse_factors("rope_factors_long.weight");
    const double attention = scale <= 1       ? 1.0
                             : type == "yarn" ? 0.1 * std::log(scale) + 1.0
                                              : std::sqrt(1 + std::log(scale) / std::log(original));
    add_fraction("rope.scaling.attn_factor", attention);
    add_factors("long_factor", "rope_factors_long.weight", rotated / 2);
    add_factors("short_factor", "rope_factors_short.weight", rotated / 2);
  }

  void add_factors(std::string_view name, std::string_view tensor_key, std::int64_t count) {
    const json* const list = member_of(*global_, name);
    if (list == nullptr || !list->is_array() || static_cast<std::int64_t>(list->size()) != count)
      return refuse_factors(tensor_key);
    model_tensor tensor{std::string(tensor_key), {}};
    for (const json& one : *list) {
      if (!one.is_number() || !fits_float32(one.get<double>())) return refuse_factors(tensor_key);
      tensor.elements.push_back(static_cast<float>(one.get<double>()));
    }
    made_.tensors.push_back(std::move(tensor));
  }

  const json& config_;
  const model_architecture& model_;
  const named_sizes& numbers_;
  const json* all_ = nullptr;     // all parameters of the rotation
  const json* global_ = nullptr;  // those of layers with full attention
  rope_values made_;
};

}  // namespace

rope_values read_rope(const std::string& config, const model_architecture& model, const named_sizes& numbers) {
  if (model.rope == rope_form::none) return {};
  const json parsed = json::parse(config, nullptr, false);
  return rope_reader(parsed, model, numbers).read();
}

}  // namespace shardmesh::llama_cpp
