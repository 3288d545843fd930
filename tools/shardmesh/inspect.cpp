// SPDX-License-Identifier: Apache-2.0
// shardmesh inspect: what is in a checkpoint?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/iota.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "report.hpp"
#include "selection_options.hpp"

import shardmesh;
import shardmesh.catalog;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string path;
  bool json = false, map = false;
  std::int64_t limit = -1;
  selection_arguments selection;
};

// Text of any length without holding it: handed on as it grows, and at its end by `flush`.
class out_buffer {
 public:
  template <class... Values>
  void print(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    if (text_.size() > 1 << 20) flush();
  }

  void flush() { tool::print(std::exchange(text_, {})); }

 private:
  std::string text_;
};

// The entries to show, by index: tensors, then objects.
struct shown_entries {
  std::vector<std::size_t> tensors, objects;
};

result<shown_entries> choose(const catalog& contents, const arguments& given) {
  shown_entries shown;
  if (given.selection.only.empty()) {
    const auto all_of = [](const auto& entries) {
      return ranges::views::iota(std::size_t{0}, entries.size()) | ranges::to<std::vector>();
    };
    return shown_entries{all_of(contents.tensors), all_of(contents.objects)};
  }
  const auto rules = given.selection.compile();
  if (!rules) return rules.error();
  std::vector<selectable> candidates;
  for (const tensor_entry& tensor : contents.tensors) candidates.push_back({tensor.key, tensor.type, true});
  for (const object_entry& object : contents.objects) candidates.push_back({object.key, dtype::undefined, false});
  const selection_result chosen = select_keys(candidates, *rules);
  if (!chosen.errors.empty()) return chosen.errors.front();
  for (const selected& one : chosen.kept)
    if (one.index < contents.tensors.size())
      shown.tensors.push_back(one.index);
    else
      shown.objects.push_back(one.index - contents.tensors.size());
  return shown;
}

// An object behind something that we do not decode (an unknown transform) is shown as opaque: it is there all the same.
result<object_value> shown_object(checkpoint_reader& reader, std::size_t index) {
  auto value = reader.read_object(index);
  if (value || value.error().code != errc::unsupported) return value;
  print_warning(value.error());
  return object_value{"opaque", value.error().found, "null"};
}

void print_json_tensor(out_buffer& out, const catalog& contents, const tensor_entry& tensor) {
  out.print(R"({}:{{"dtype":"{}","shape":[{}],"chunks":[)", json_quoted(tensor.key), name(tensor.type),
            fmt::join(tensor.shape.begin(), tensor.shape.end(), ","));
  for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
    const std::int32_t chunk = tensor.first_chunk + i;
    const stored_range& place = contents.chunk_places[static_cast<std::size_t>(chunk)];
    out.print("{}{{{}", i == 0 ? "" : ",", box_members(contents.chunk_box(tensor, chunk)));
    if (place.file >= 0)
      out.print(R"(,"file":{},"offset":{},"length":{}}})",
                json_quoted(contents.files[static_cast<std::size_t>(place.file)]), place.offset, place.length);
    else
      out.print(R"(,"file":null,"offset":null,"length":null}})");
  }
  out.print("]}}");
}

// The tensors inside an object, by the keys that they get where it is taken apart.
void print_tensors_inside(out_buffer& out, const std::vector<tensor_entry>& tensors) {
  if (tensors.empty()) return;
  std::string_view separator = R"(,"tensors":{)";
  for (const tensor_entry& tensor : tensors) {
    out.print(R"({}{}:{{"dtype":"{}","shape":[{}]}})", separator, json_quoted(tensor.key), name(tensor.type),
              fmt::join(tensor.shape.begin(), tensor.shape.end(), ","));
    separator = ",";
  }
  out.print("}}");
}

// A list of what is wrong ends a document, where there is something.
void end_json(out_buffer& out, std::vector<error> problems, const global_report& globals) {
  problems.insert(problems.end(), globals.problems.begin(), globals.problems.end());
  out.print(R"(,"globals":[{}])", to_json(globals));
  if (!problems.empty()) out.print(R"(,"ok":false,"problems":[{}])", to_json(problems));
  out.print("}}\n");
  out.flush();
}

// What the files' writers attached to them, key by key: the different values with the files that say so.
using texts_by_key = std::map<std::string_view, std::vector<const file_text*>>;
texts_by_key different_texts(const catalog& contents) {
  texts_by_key texts;
  for (const file_text& text : contents.texts) {
    auto& values = texts[text.key];
    if (std::none_of(values.begin(), values.end(), [&](const file_text* known) { return known->value == text.value; }))
      values.push_back(&text);
  }
  return texts;
}

std::string_view file_of(const catalog& contents, const file_text& text) {
  return text.file < 0 ? std::string_view{} : contents.files[static_cast<std::size_t>(text.file)];
}

// One line a key; long values are cut.
void print_texts(out_buffer& out, const catalog& contents) {
  constexpr std::size_t most_keys = 20, longest = 100;
  std::size_t printed = 0;
  const texts_by_key texts = different_texts(contents);
  for (const auto& [key, values] : texts) {
    if (printed++ == most_keys) {
      out.print("  metadata    ... and {} more keys\n", texts.size() - most_keys);
      return;
    }
    const std::string& value = values.front()->value;
    out.print(
        "  metadata    {}: {}{}{}\n", escaped(key), escaped(std::string_view(value).substr(0, longest)),
        value.size() > longest ? fmt::format("... ({})", human_bytes(static_cast<std::int64_t>(value.size()))) : "",
        values.size() > 1 ? fmt::format(" (and {} other values)", values.size() - 1) : "");
  }
}

// {KEY:VALUE}; where files differ {KEY:{FILE:VALUE}}, the first file of each value.
void print_json_texts(out_buffer& out, const catalog& contents) {
  out.print(R"(,"metadata":{{)");
  std::string_view separator;
  for (const auto& [key, values] : different_texts(contents)) {
    out.print("{}{}:", separator, json_quoted(key));
    separator = ",";
    if (values.size() == 1) {
      out.print("{}", json_quoted(values.front()->value));
      continue;
    }
    std::string_view inner = "{";
    for (const file_text* text : values) {
      out.print("{}{}:{}", inner, json_quoted(file_of(contents, *text)), json_quoted(text->value));
      inner = ",";
    }
    out.print("}}");
  }
  out.print("}}");
}

int print_json(checkpoint_reader& reader, const shown_entries& shown, const global_report& globals) {
  const catalog& contents = reader.contents();
  // Objects are read first: a document that was begun must be whole.
  std::map<std::size_t, object_value> values;
  std::vector<error> problems(reader.problems().begin(), reader.problems().end());
  int status = done;
  for (const std::size_t i : shown.objects) {
    auto value = shown_object(reader, i);
    if (value) {
      values[i] = std::move(*value);
    } else if (problems.empty() || problems.back() != value.error()) {  // a limit that was met is said once
      status = std::max(status, report(value.error()));
      problems.push_back(value.error());
    }
  }
  out_buffer out;
  out.print(R"({{"format":"{}","version":{},"tensors":{{)", name(contents.format),
            contents.version.empty() ? "null" : json_quoted(contents.version));
  std::string_view separator;
  std::vector<const tensor_entry*> opaque;
  for (const std::size_t i : shown.tensors) {
    const tensor_entry& tensor = contents.tensors[i];
    if (!tensor.opaque_type.empty()) {
      opaque.push_back(&tensor);
      continue;
    }
    out.print("{}", separator);
    print_json_tensor(out, contents, tensor);
    separator = ",";
  }
  out.print(R"(}},"objects":{{)");
  separator = "";
  for (const auto& [i, value] : values) {
    out.print(R"({}{}:{{"kind":{},"type":{},"value":{})", separator, json_quoted(contents.objects[i].key),
              json_quoted(value.kind), json_quoted(value.type), value.json);
    print_tensors_inside(out, value.tensors);
    out.print("}}");
    separator = ",";
  }
  for (const tensor_entry* tensor : opaque) {
    out.print(R"({}{}:{{"kind":"opaque-tensor","type":{},"value":null,"representation":{}}})", separator,
              json_quoted(tensor->key), json_quoted(tensor->opaque_type), json_quoted(tensor->opaque_kind));
    separator = ",";
  }
  out.print("}}");
  print_json_texts(out, contents);
  end_json(out, problems, globals);
  return status;
}

// The tensor's chunks with the ranks that wrote them as owners, where the files' names say so; else the files' numbers.
result<distribution> held_by_ranks(const catalog& contents, const tensor_entry& tensor) {
  auto held = contents.distribution_of(tensor);
  std::vector<owner_id> ranks;
  for (const std::string& file : contents.files) {
    const auto rank = rank_of_file(file);
    if (!rank) return held;
    ranks.push_back(*rank);
  }
  ranks.push_back(ranks.empty() ? 0 : *std::max_element(ranks.begin(), ranks.end()) + 1);  // chunks without a place
  return held ? rename_owners(*held, ranks) : held;
}

void print_summary(out_buffer& out, const checkpoint_reader& reader, const shown_entries& shown) {
  const catalog& contents = reader.contents();
  std::map<std::string_view, std::pair<std::int64_t, std::int64_t>> by_dtype;  // bytes, tensors
  std::map<std::string, std::int64_t> top_level;
  std::int64_t chunks = 0, parameters = 0, optimizer = 0, other = 0, bytes = 0;
  key_roles roles;
  for (const tensor_entry& tensor : contents.tensors) roles.add(tensor.key);
  for (const object_entry& object : contents.objects) roles.add(object.key);
  // Floating tensors of the model are its parameters and buffers; counters, packed weights and a trainer's state are
  // not.
  const auto count_of = [&](key_role role, dtype type) -> std::int64_t& {
    if (role == key_role::optimizer) return optimizer;
    const bool is_number = kind(type) == dtype_kind::floating || kind(type) == dtype_kind::complex;
    return role == key_role::model && is_number ? parameters : other;
  };
  for (const std::size_t i : shown.tensors) {
    const tensor_entry& tensor = contents.tensors[i];
    chunks += tensor.chunk_count;
    const std::int64_t numel = checked_volume(tensor.shape).value_or(0);
    const std::int64_t size = size_bytes(tensor.type, numel).value_or(0);
    auto& [dtype_bytes, count] = by_dtype[name(tensor.type)];
    dtype_bytes += size;
    ++count;
    bytes += size;
    count_of(roles.role_of(tensor.key), tensor.type) += numel;
    ++top_level[tensor.key.substr(0, tensor.key.find('.'))];
  }
  for (const std::size_t i : shown.objects)
    ++top_level[contents.objects[i].key.substr(0, contents.objects[i].key.find('.'))];
  std::set<std::int32_t> ranks;
  for (const std::string& file : contents.files)
    if (const auto rank = rank_of_file(file)) ranks.insert(*rank);
  out.print("{}: {}{}{}, {} tensors in {} chunks, {} objects, {} files\n", escaped(reader.path().string()),
            name(contents.format), contents.version.empty() ? "" : " ", escaped(contents.version), shown.tensors.size(),
            chunks, shown.objects.size(), contents.files.size());
  std::vector<std::string> beside;
  if (optimizer > 0) beside.push_back(fmt::format("{} numbers of optimizer state", optimizer));
  if (other > 0) beside.push_back(fmt::format("{} other numbers", other));
  out.print("  parameters  {}{}\n", parameters,
            beside.empty() ? std::string() : fmt::format(" (and {})", fmt::join(beside, ", ")));
  std::vector<std::string> dtypes;
  for (const auto& [type, total] : by_dtype)
    dtypes.push_back(fmt::format("{} {} in {}", type, human_bytes(total.first), total.second));
  out.print("  bytes       {}{}{}\n", human_bytes(bytes), dtypes.empty() ? "" : ": ", fmt::join(dtypes, ", "));
  if (!ranks.empty()) out.print("  ranks       {} ({} to {})\n", ranks.size(), *ranks.begin(), *ranks.rbegin());
  std::vector<std::string> keys;
  for (const auto& [key, count] : top_level) {
    if (keys.size() == 20) {
      keys.push_back(fmt::format("... and {} more", top_level.size() - 20));
      break;
    }
    keys.push_back(fmt::format("{} ({})", escaped(key), count));
  }
  out.print("  keys        {}\n", fmt::join(keys, ", "));
  print_texts(out, contents);
}

// An object's value; the type alone of what is opaque and has none that we know.
std::string shown_text(const object_value& value) {
  const bool is_type_alone = value.json == R"({"$other":)" + json_quoted(value.type) + "}" || value.json == "null";
  return value.kind.starts_with("opaque") && is_type_alone ? escaped(value.type) : object_text(value.json);
}

int print_list(checkpoint_reader& reader, const shown_entries& shown, const arguments& given,
               const global_report& globals) {
  const catalog& contents = reader.contents();
  out_buffer out;
  print_summary(out, reader, shown);
  out.print("{}", globals_text(globals));
  const std::size_t all = shown.tensors.size() + shown.objects.size();
  const std::size_t limit = given.limit < 0 ? all : static_cast<std::size_t>(given.limit);
  std::size_t widest = 0, printed = 0;
  for (const std::size_t i : shown.tensors)
    widest = std::max(widest, std::min<std::size_t>(contents.tensors[i].key.size(), 60));
  int status = done;
  std::optional<error> said;  // a limit that was met is said once
  for (const std::size_t i : shown.tensors) {
    if (printed++ >= limit) break;
    const tensor_entry& tensor = contents.tensors[i];
    out.print("{:<{}}  {:<14} {:<18} {} chunk{}{}\n", escaped(tensor.key), widest, name(tensor.type),
              to_string(tensor.shape), tensor.chunk_count, tensor.chunk_count == 1 ? "" : "s",
              tensor.opaque_type.empty()
                  ? ""
                  : fmt::format("  opaque-tensor {}: {}", escaped(tensor.opaque_type), escaped(tensor.opaque_kind)));
    if (!given.map) continue;
    const auto held = held_by_ranks(contents, tensor);
    if (!held)
      status = std::max(status, report(held.error()));
    else
      out.print("{}", draw_layout(*held, {}));
  }
  for (const std::size_t i : shown.objects) {
    if (printed++ >= limit) break;
    auto value = shown_object(reader, i);
    if (!value) {
      if (said != value.error()) status = std::max(status, report(value.error()));
      said = value.error();
      continue;
    }
    const std::int64_t hidden = contents.objects[i].hidden_tensors;
    out.print("{:<{}}  {:<14} {}{}{}\n", escaped(contents.objects[i].key), widest, escaped(value->kind),
              shown_text(*value),
              value->tensors.empty() ? "" : fmt::format("  ({} tensors inside)", value->tensors.size()),
              hidden == 0 ? "" : fmt::format("  ({} tensors inside that have no name)", hidden));
  }
  if (limit < all) out.print("... and {} more\n", all - limit);
  out.flush();
  return status;
}

int report_nothing(const error& cause, bool json, const global_report& globals) {
  if (json) {
    out_buffer out;
    out.print(R"({{"format":null,"version":null,"tensors":{{}},"objects":{{}})");
    end_json(out, {cause}, globals);
    out.flush();
  } else {
    print(globals_text(globals));
  }
  return report(cause);
}

int run(const arguments& given, const common_options& common) {
  works_on(given.path);
  const read_limits limits = read_limits{}.times(common.limit_factor);
  auto reader = open_checkpoint(given.path, {.limits = limits});
  // Also of what cannot be read: Python runs a damaged pickle up to its defect.
  const global_report globals =
      find_globals(given.path, reader ? reader->get() : nullptr, {.threads = common.threads, .limits = limits});
  if (!reader) return report_nothing(reader.error(), given.json, globals);
  const auto shown = choose((*reader)->contents(), given);
  if (!shown) return report_nothing(shown.error(), given.json, globals);
  int status = given.json ? print_json(**reader, *shown, globals) : print_list(**reader, *shown, given, globals);
  for (const error& e : globals.problems) status = std::max(status, report(e));
  for (const error& e : (*reader)->problems()) status = std::max(status, report(e));
  for (const error& e : (*reader)->warnings()) print_warning(e);
  print_notes((*reader)->notes());
  return status;
}

}  // namespace

void add_inspect(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("inspect",
                         "Show what is in a checkpoint: a summary, what its pickles name beside plain data, and the\n"
                         "list of tensors and objects. Nothing in it is run: safe for what was downloaded");
  command->add_option("PATH", given->path, "A DCP folder, .pt file, safetensors file or Hugging Face folder")
      ->required();
  command->add_flag("--json", given->json, "Print one JSON document");
  command->add_option("--only", given->selection.only, "Show only keys that match RE (RE2, whole key; repeatable)")
      ->type_name("RE")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--limit", given->limit, "List at most N entries")->type_name("N")->check(whole_number());
  command->add_flag("--map", given->map, "Draw who holds what, tensor by tensor");
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
