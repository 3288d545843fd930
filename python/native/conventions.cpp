// SPDX-License-Identifier: Apache-2.0
// The mappings between naming conventions: their names and texts, and a checkpoint that one shows.
#include <shardmesh/try.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conventions.hpp"
#include "errors.hpp"
#include "interpreter.hpp"
#include "module.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.mapping;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

named_sizes to_sizes(const py::handle& numbers) {
  named_sizes made;
  for (const auto& [name, number] : py::reinterpret_borrow<py::dict>(numbers))
    made[bytes_of(name)] = number.cast<std::int64_t>();
  return made;
}

py::list mapping_names() {
  py::list made;
  for (const shipped_convention& one : shipped_conventions()) made.append(text(one.left + ":" + one.right));
  return made;
}

py::str mapping_text(const py::str& name) {
  return text(value_of(shipped_mapping_text(bytes_of(name))));
}

}  // namespace

mapping_choice::mapping_choice(const py::dict& given) {
  if (given["map"].is_none()) return;
  map_ = bytes_of(given["map"]);
  is_inverse_ = given["map_inverse"].cast<bool>();
  const py::object config = given["config"];
  if (py::isinstance<py::dict>(config))
    config_ = to_sizes(config);
  else if (!config.is_none())
    config_file_ = bytes_of(config);
  sizes_ = to_sizes(given["sizes"]);
}

result<std::vector<mapping_rules>> mapping_choice::mappings() const {
  return choose_mappings(*map_, is_inverse_);
}

result<model_sizes> mapping_choice::sizes(const std::string& source) const {
  model_sizes made;
  if (config_) {
    made.config = *config_;
  } else if (!source.empty() || !config_file_.empty()) {
    SHARDMESH_TRY(made, read_model_sizes(source, config_file_));
  }
  made.given = sizes_;
  return made;
}

result<std::unique_ptr<checkpoint_reader>> mapping_choice::apply(std::unique_ptr<checkpoint_reader> reader,
                                                                 const std::string& source, bool check_sums) const {
  SHARDMESH_TRY(const std::vector<mapping_rules> chosen, mappings());
  SHARDMESH_TRY(const model_sizes of_model, sizes(source));
  return map_checkpoint(std::move(reader), chosen, of_model, {.check_sums = check_sums});
}

chosen_mapping chosen_mapping::make(const py::dict& given) {
  const mapping_choice choice(given);
  if (!choice.is_given()) return {};
  const auto made = [&]() -> result<chosen_mapping> {
    const released unlocked;
    SHARDMESH_TRY(std::vector<mapping_rules> chosen, choice.mappings());
    SHARDMESH_TRY(model_sizes of_model, choice.sizes(""));
    SHARDMESH_TRY(check_given_sizes(chosen, of_model));
    return chosen_mapping{std::move(chosen), std::move(of_model)};
  }();
  return value_of(made);
}

void add_conventions(py::module_& native) {
  py::class_<chosen_mapping>(native, "ChosenMapping").def_static("make", &chosen_mapping::make, py::arg("options"));
  native.def("mappings", &mapping_names);
  native.def("mapping_text", &mapping_text, py::arg("name"));
}

}  // namespace bindings
