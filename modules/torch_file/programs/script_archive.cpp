// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :checked_archive;
import :object_parts;
import :script_archive;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t most_levels = 64;

// The attribute names in a class's text. Archives before PyTorch 1.5 do not list buffers: every tensor counts as one.
struct module_class {
  std::set<std::string, std::less<>> parameters;
  std::optional<std::set<std::string, std::less<>>> buffers;
};

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Returns the strings of a list such as `["weight", "bias", ]`.
std::set<std::string, std::less<>> names_in(std::string_view list) {
  std::set<std::string, std::less<>> names;
  for (std::size_t begin; (begin = list.find('"')) != std::string_view::npos;) {
    std::string name;
    std::size_t end = begin + 1;
    for (; end < list.size() && list[end] != '"'; ++end) {
      if (list[end] == '\\' && end + 1 < list.size()) ++end;
      name += list[end];
    }
    names.insert(std::move(name));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

// Returns the module classes in one text, by name.
std::map<std::string, module_class, std::less<>> classes_in(std::string_view text) {
  std::map<std::string, module_class, std::less<>> classes;
  module_class* now = nullptr;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (take_prefix(line, "class ")) {
      const std::size_t name = line.find('(');
      const bool is_module = name != std::string_view::npos && line.substr(name) == "(Module):";
      now = is_module ? &classes[std::string(line.substr(0, name))] : nullptr;
    } else if (now != nullptr && take_prefix(line, "  __parameters__ = ")) {
      now->parameters = names_in(line);
    } else if (now != nullptr && take_prefix(line, "  __buffers__ = ")) {
      now->buffers = names_in(line);
    }
  }
  return classes;
}

class script_walker {
 public:
  script_walker(const byte_source& source, const torch_file::item& item, read_budget& budget)
      : source_(source), item_(item), budget_(budget), most_entries_(most_entries(item, {})) {}

  result<taken_apart> run() {
    SHARDMESH_TRY(directory_, zip_directory::read(source_));  // `item` opened and checked it
    prefix_ = archive_prefix(directory_);
    SHARDMESH_TRY(const module_class* root, class_of(item_.root()));
    if (root == nullptr)
      return fail(errc::unsupported, fmt::format("the root of a TorchScript archive is not a module but a {}",
                                                 escaped(classify(item_, item_.root()).type)))
          .with_hint("torch.save(torch.jit.load(FILE).state_dict(), ...)");
    SHARDMESH_TRY(enter(item_.root(), *root));
    add_notes();
    return std::move(made_);
  }

 private:
  // Returns the class of a module; null for other values.
  result<const module_class*> class_of(const pickle::value& value) {
    const pickle::value type = value.callable();
    if (value.kind() != pickle::kind::record || !type.global_module().starts_with("__torch__")) return nullptr;
    std::string file(type.global_module());
    std::replace(file.begin(), file.end(), '.', '/');
    file = prefix_ + "code/" + file + ".py";
    auto known = texts_.find(file);
    if (known == texts_.end()) {
      SHARDMESH_TRY(auto classes, read_classes(file));
      known = texts_.emplace(file, std::move(classes)).first;
    }
    const auto found = known->second.find(type.global_name());
    return found == known->second.end() ? nullptr : &found->second;
  }

  result<std::map<std::string, module_class, std::less<>>> read_classes(const std::string& file) {
    const zip_record* record = directory_.find(file);
    if (record == nullptr)
      return fail(errc::bad_format,
                  fmt::format("the archive has no code \"{}\", which names the weights", escaped(file)));
    const std::int64_t limit = budget_.limits().description_bytes;
    SHARDMESH_TRY(budget_.decode(file, record->compressed_bytes, record->size_bytes));
    SHARDMESH_TRY(const auto bytes, read_record(source_, *record, limit));
    budget_.add_description(record->compressed_bytes);
    return classes_in({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  result<void> enter(const pickle::value& module, const module_class& type) {
    if (open_.size() == most_levels || std::find(open_.begin(), open_.end(), module.identity()) != open_.end())
      return fail(errc::unsupported,
                  fmt::format("its modules are nested deeper than {} levels, or contain themselves", most_levels));
    if (module.state().kind() != pickle::kind::dict) {
      if (type.parameters.empty() && (!type.buffers || type.buffers->empty())) return ++own_states_, result<void>{};
      return fail(errc::unsupported,
                  "a module keeps its weights in a state of its own (__getstate__), which only its code understands")
          .with_key(dotted(path_))
          .with_hint("load it in Python and torch.save its state_dict()");
    }
    open_.push_back(module.identity());
    const auto is_weight = [&](const pickle::pair& pair) {
      return pair.key.text() && (item_.tensor_of(pair.value) || item_.is_opaque_tensor(pair.value));
    };
    const auto is_parameter = [&](const pickle::pair& pair) { return type.parameters.contains(*pair.key.text()); };
    const auto is_buffer = [&](const pickle::pair& pair) {
      return !is_parameter(pair) && (!type.buffers || type.buffers->contains(*pair.key.text()));
    };
    const pickle::pairs pairs = module.state().pairs();
    // A module in several places is entered in each, so this bounds the total.
    if ((steps_ += pairs.size() + 1) > 16 * most_entries_)
      return fail(errc::unsupported, fmt::format("its modules have more than {} attributes", 16 * most_entries_));
    for (const pickle::pair pair : pairs)
      if (is_weight(pair) && is_parameter(pair)) SHARDMESH_TRY(add(pair));
    for (const pickle::pair pair : pairs)
      if (is_weight(pair) && is_buffer(pair)) SHARDMESH_TRY(add(pair));
    for (const pickle::pair pair : pairs) {
      SHARDMESH_TRY(const module_class* below, class_of(pair.value));
      if (below != nullptr && pair.key.text()) {
        path_.push_back(*pair.key.text());
        SHARDMESH_TRY(enter(pair.value, *below));
        path_.pop_back();
      } else if (is_weight(pair)) {
        if (is_parameter(pair) || is_buffer(pair)) continue;
        path_.push_back(*pair.key.text());
        add_unread(dotted(path_));
        path_.pop_back();
      } else if (pair.key.text() != "training" && !pair.value.is_none()) {
        ++attributes_;
      }
    }
    open_.pop_back();
    return {};
  }

  result<void> add(const pickle::pair& weight) {
    path_.push_back(*weight.key.text());
    std::string name = dotted(path_);
    flat_entry entry{{name}, name, weight.value, item_.tensor_of(weight.value), 0};
    path_.pop_back();
    SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(2 * entry.fqn.size() + sizeof(entry))));
    if (made_.entries.size() == most_entries_)
      return fail(errc::unsupported, fmt::format("it has more than {} entries", most_entries_));
    if (!names_.insert(entry.fqn).second)
      return fail(errc::duplicate_key, "two weights of the module have the same name").with_key(entry.fqn);
    made_.entries.push_back(std::move(entry));
    return {};
  }

  // Keeps as many names as a note shows.
  void add_unread(std::string name) {
    if (unread_.size() < 11)
      unread_.push_back(std::move(name));
    else
      ++more_unread_;
  }

  // Returns the names of the storages behind constants.pkl, which the code calls CONSTANTS.c0 and so on.
  std::vector<std::string> names_of_constants() const {
    std::vector<std::string> names;
    const std::string folder = prefix_ + "constants/";
    for (const zip_record& record : directory_.records())
      if (record.name.starts_with(folder)) names.push_back(record.name.substr(prefix_.size()));
    return names;
  }

  void add_notes() {
    std::string rest;
    const auto say = [&](std::size_t count, std::string_view one, std::string_view many = {}) {
      if (count > 0) rest += (rest.empty() ? "" : ", ") + detail::counted(count, one, many);
    };
    say(unread_.size() + more_unread_, "tensor that is neither a parameter nor a buffer",
        "tensors that are neither parameters nor buffers");
    if (!unread_.empty())
      rest += fmt::format(" ({}{})", name_list(unread_),
                          more_unread_ > 0 ? fmt::format(" and {} more", more_unread_) : std::string());
    const std::vector<std::string> constants = names_of_constants();
    say(constants.size(), "constant tensor");
    if (!constants.empty())
      rest += fmt::format(" ({}), among which a frozen module has its weights", name_list(constants));
    made_.unread_tensors = static_cast<std::int64_t>(unread_.size() + more_unread_ + constants.size());
    say(attributes_, "other attribute of modules", "other attributes of modules");
    say(own_states_, "module with a state of its own", "modules with a state of their own");
    const std::vector<std::string> extra = extra_files(directory_);
    say(extra.size(), "extra file");
    if (!extra.empty()) rest += fmt::format(" ({})", name_list(extra));
    made_.notes.push_back("it is a TorchScript archive: its weights are read, its code and constants are not" +
                          (rest.empty() ? std::string() : fmt::format("; not kept: {}", rest)));
  }

  const byte_source& source_;
  const torch_file::item& item_;
  read_budget& budget_;
  std::size_t most_entries_;
  zip_directory directory_;
  std::string prefix_;
  std::map<std::string, std::map<std::string, module_class, std::less<>>> texts_;  // by file
  path path_;
  std::vector<std::uint64_t> open_;  // the modules around the current one
  std::set<std::string> names_;
  std::size_t steps_ = 0, more_unread_ = 0, attributes_ = 0, own_states_ = 0;
  std::vector<std::string> unread_;  // the first tensors that are neither parameters nor buffers
  taken_apart made_;
};

}  // namespace

result<taken_apart> script_weights(const byte_source& source, const torch_file::item& item, read_budget& budget) {
  return script_walker(source, item, budget).run();
}

}  // namespace shardmesh::torch_file
