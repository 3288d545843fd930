// SPDX-License-Identifier: Apache-2.0
// Turns the events of the pickle machine into names for people.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :trace;

namespace shardmesh::pickle {
namespace {

constexpr std::size_t longest_name = 300;  // longer names are cut, because they come from the file
constexpr std::string_view torch_magic_number = "119547037146038801333356";  // starts files of PyTorch before 1.6
constexpr std::size_t most_names = 10'000;                                   // in one run of bytes

std::string cut(std::string text) {
  if (text.size() > longest_name) text.resize(longest_name), text += "...";
  return text;
}

std::string text_of_global(const value& global) {
  const auto [module_name, name] = python3_name(global);
  if (module_name.empty() || name.empty()) return "<a name that is not text>";
  return cut(fmt::format("{}.{}", module_name.substr(0, longest_name), name.substr(0, longest_name)));
}

bool is_getattr(const pickle::value& value) {
  if (value.kind() != kind::global) return false;
  const auto [module_name, name] = python3_name(value);
  return module_name == "builtins" && name == "getattr";
}

// Returns a value as source text: "builtins.getattr(os, 'system')". Depth is bounded, because the file decides the
// nesting.
std::string expression(const pickle::value& value, int depth = 0) {
  if (depth > 6) return "...";
  switch (value.kind()) {
    case kind::global:
      return text_of_global(value);
    case kind::text:
      return cut(fmt::format("'{}'", value.text()->substr(0, 60)));
    case kind::record: {
      std::string text = expression(value.callable(), depth + 1) + "(";
      const items args = value.args().items();
      for (std::size_t i = 0; i < std::min<std::size_t>(args.size(), 3); ++i)
        text += (i > 0 ? ", " : "") + expression(args[i], depth + 1);
      return cut(text + (args.size() > 3 ? ", ...)" : ")"));
    }
    default:
      return std::string(name(value.kind()));
  }
}

// Matches getattr(_MEM_FORMAT_ENCODING, "TORCH_CONTIGUOUS_FORMAT"): Python 3.11 and later pickle enum members this way.
bool is_enum_member(const value& call) {
  const items args = call.args().items();
  if (!is_getattr(call.callable()) || args.size() != 2 || args[0].kind() != kind::global || !args[1].text())
    return false;
  const auto [module_name, type] = python3_name(args[0]);
  const std::string_view member = *args[1].text();
  const bool is_plain = !member.empty() && std::all_of(member.begin(), member.end(),
                                                       [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
  return is_plain && !member.starts_with('_') && type.ends_with("MEM_FORMAT_ENCODING") &&
         is_harmless_global(module_name, type);
}

enum class risk : std::uint8_t { harmless, unknown, dangerous };

// Returns true when getattr takes part in making a value.
bool involves_getattr(const value& value, int depth = 0) {
  if (is_getattr(value) || depth > 6) return true;
  if (value.kind() == kind::tuple || value.kind() == kind::list) {
    const items parts = value.items();
    for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 16); ++i)
      if (involves_getattr(parts[i], depth + 1)) return true;
    return false;
  }
  return value.kind() == kind::record &&
         (involves_getattr(value.callable(), depth + 1) || involves_getattr(value.args(), depth + 1));
}

// Returns the risk of getattr(CLASS, "name"), where CLASS may be such a call itself. Protocols below 4 write nested
// classes this way, and Python 3.11 and later write enum members this way. Such a call is as risky as the name
// CLASS.name. Any other attribute name or object is the start of a chain and is dangerous.
risk risk_of_getattr(const value& call) {
  constexpr int most_levels = 16;
  constexpr std::size_t most_name = 512;  // many calls may have one long text as their argument
  value owner = call;
  std::string path;
  for (int level = 0; level < most_levels && owner.kind() == kind::record && is_getattr(owner.callable()); ++level) {
    const items args = owner.args().items();
    if (args.size() != 2 || !args[1].text()) return risk::dangerous;
    const std::string_view member = *args[1].text();
    if (member.empty() || member.size() > most_name || member.starts_with('_') || member.find('.') != member.npos)
      return risk::dangerous;
    path.insert(0, fmt::format(".{}", member));
    owner = args[0];
  }
  if (owner.kind() != kind::global) return risk::dangerous;
  const auto [module_name, type] = python3_name(owner);
  return is_dangerous_global(module_name, fmt::format("{}{}", type, path)) ? risk::dangerous : risk::unknown;
}

// Returns the risk of a call. A result of getattr may be called only when it looks like a class: its name begins with a
// capital.
risk risk_of_call(const value& call) {
  if (is_enum_member(call)) return risk::harmless;
  const value callable = call.callable();
  if (is_getattr(callable)) return risk_of_getattr(call);
  const items args = call.args().items();
  for (std::size_t i = 0; i < std::min<std::size_t>(args.size(), 16); ++i)
    if (is_getattr(args[i])) return risk::dangerous;
  if (!involves_getattr(callable)) return risk::unknown;
  if (callable.kind() != kind::record || !is_getattr(callable.callable())) return risk::dangerous;
  const std::string_view member = argument_of(callable, 1).text().value_or("");
  return !member.empty() && member[0] >= 'A' && member[0] <= 'Z' ? risk_of_getattr(callable) : risk::dangerous;
}

// Matches the persistent id of a storage in torch.save: ("storage", class, key, location, count).
bool is_storage_id(const value& reference) {
  const value id = reference.persistent_id();
  return id.kind() == kind::tuple && id.size() >= 5 && id.items()[0].text() == "storage" &&
         id.items()[1].kind() == kind::global && id.items()[2].text();
}

used_names names_in(std::span<const std::byte> bytes, int depth, const trace* first = nullptr);

class naming {
 public:
  // `depth` counts the pickles that enclose this one.
  explicit naming(int depth) : depth_(depth) {}

  void add(std::string text, risk how = risk::unknown) {
    if (names.size() >= most_names) {
      text = "<more names than are listed>";
      how = std::max(how, risk::unknown);
    }
    const auto [known, is_new] = index_.try_emplace(text, names.size());
    if (is_new) names.push_back({std::move(text), how == risk::harmless, 0});
    used_name& name = names[known->second];
    name.harmless &= how == risk::harmless;
    name.dangerous |= how == risk::dangerous;
    ++name.count;
  }

  void add(const pickle::trace& trace) {
    // The risk of getattr is the highest risk of the noted calls. A getattr without calls may be part of a chain.
    const auto highest_risk = [&] {
      risk highest = risk::harmless;
      std::size_t calls = 0;
      for (const pickle::event& event : trace.events)
        if (event.kind == event::what::call) highest = std::max(highest, risk_of_call(event.value)), ++calls;
      return calls == 0 || trace.is_cut ? risk::dangerous : highest;
    };
    for (const pickle::event& event : trace.events) switch (event.kind) {
        case event::what::global: {
          const auto [module_name, name] = python3_name(event.value);
          add(text_of_global(event.value), is_getattr(event.value)  ? highest_risk()
                                           : is_loader(event.value) ? risk_of_loads(trace)
                                                                    : risk_of_global(module_name, name));
          break;
        }
        case event::what::load:
          break;  // reported with the loader's name
        case event::what::call:
          if (const risk how = risk_of_call(event.value); how != risk::harmless)
            add("<call of " + expression(event.value) + ">", how);
          break;
        case event::what::persistent:
          if (!is_storage_id(event.value)) add("<persistent id that is not a storage>");
          break;
        case event::what::extension:
          add(fmt::format("<extension {}>", event.value.extension_code()));
          break;
        case event::what::changed:
          if (event.value.kind() == kind::global || event.value.kind() == kind::persistent)
            add("<change of " + expression(event.value) + ">", risk::dangerous);
          break;
      }
  }

  std::vector<used_name> names;

 private:
  // torch.storage._load_from_bytes: pickle.dump writes a tensor's storage as a torch.save stream inside the pickle.
  static bool is_loader(const value& global) {
    const auto [module_name, name] = python3_name(global);
    return module_name == "torch.storage" && name == "_load_from_bytes";
  }

  // Returns the risk of the loader, and lists the names in the nested pickles. If they hold only harmless names, the
  // loader is unknown, as its name alone is. A nested pickle that cannot be scanned, or a loader without visible calls,
  // may do anything.
  risk risk_of_loads(const pickle::trace& trace) {
    bool is_plain = false;
    std::set<std::uint64_t> met;  // nested pickles that were already scanned
    for (const pickle::event& event : trace.events) {
      if (event.kind != event::what::load || !is_loader(event.value.callable())) continue;
      const value content = argument_of(event.value, 0);
      if (!content) return risk::dangerous;
      if (!met.insert(content.identity()).second) continue;
      is_plain = true;
      if (depth_ > 1) return risk::dangerous;
      const std::optional<std::string> spelled = content.bytes() ? std::nullopt : bytes_of(content);
      if (!content.bytes() && !spelled) return risk::dangerous;
      const used_names inside = names_in(spelled ? std::as_bytes(std::span(*spelled)) : *content.bytes(), depth_ + 1);
      for (const used_name& name : inside.names) {
        add(name.text, name.dangerous ? risk::dangerous : name.harmless ? risk::harmless : risk::unknown);
        if (!name.harmless) return risk::dangerous;
      }
    }
    return is_plain && !trace.is_cut ? risk::unknown : risk::dangerous;
  }

  // A name that is not text was probably hidden on purpose.
  static risk risk_of_global(std::string_view module_name, std::string_view name) {
    if (module_name.empty() || name.empty() || is_dangerous_global(module_name, name)) return risk::dangerous;
    return is_harmless_global(module_name, name) ? risk::harmless : risk::unknown;
  }

  int depth_;
  std::map<std::string, std::size_t> index_;
};

// `first` is the trace of the first pickle when it was already made.
used_names names_in(std::span<const std::byte> bytes, int depth, const trace* first) {
  naming found(depth);
  used_names made;
  bool is_legacy = false;
  std::size_t at = 0;
  for (int pickles = 0; at < bytes.size(); ++pickles) {
    if (is_legacy && pickles == 5) break;
    pickle::trace made_here;
    if (first == nullptr || pickles > 0) made_here = trace_of(bytes.subspan(at));
    const pickle::trace& trace = first == nullptr || pickles > 0 ? made_here : *first;
    if (pickles > 0 && !is_legacy && trace.problem && trace.events.empty()) {
      found.add("<bytes after the end>");
      break;
    }
    if (pickles > 0 && !is_legacy) found.add("<another pickle after the end>");
    found.add(trace);
    if (trace.problem) {
      found.add(fmt::format("<unreadable from byte {}>", at + trace.ended_at));
      made.is_cut = trace.problem->found == cut_short;
      break;
    }
    is_legacy |= pickles == 0 && value(trace.arena.get(), trace.arena->root).decimal() == torch_magic_number;
    at += std::max<std::size_t>(trace.ended_at, 1);
    if (pickles == 1000) {
      found.add("<more pickles than are examined>");
      break;
    }
  }
  made.names = std::move(found.names);
  return made;
}

}  // namespace

used_names names_in(std::span<const std::byte> bytes) {
  return names_in(bytes, 0);
}

result<named_graph> named_graph::parse(std::vector<std::byte> bytes) {
  SHARDMESH_TRY(trace first, strict_trace_of(std::move(bytes)));
  used_names names = names_in(first.arena->input, 0, &first);
  return named_graph{pickle::graph(std::move(first.arena)), std::move(names)};
}

}  // namespace shardmesh::pickle
