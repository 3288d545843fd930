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
#include <string_view>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

// Larger objects stay opaque. Shared references are expanded, so a hostile object could be huge.
constexpr std::size_t most_nodes = std::size_t{1} << 20, most_bytes = std::size_t{1} << 28;

template <class... Functions>
struct overloaded : Functions... {
  using Functions::operator()...;
};

bool is_archive(std::span<const std::byte> bytes) {
  return looks_like_zip(memory_source(bytes, "an object"));
}

void write_leaf(pickle::writer& out, const plain_value& leaf) {
  std::visit(
      overloaded{[&](std::monostate) { out.none(); }, [&](bool v) { out.boolean(v); },
                 [&](std::int64_t v) { out.integer(v); }, [&](double v) { out.floating(v); },
                 [&](const std::string& v) { out.text(v); }, [&](const std::vector<std::byte>& v) { out.bytes(v); },
                 [&](const opaque_object&) { out.none(); }},  // refused before
      leaf);
}

void begin(pickle::writer& out, node_kind kind) {
  if (kind == node_kind::mapping) return out.begin_dict();
  return kind == node_kind::tuple ? out.begin_tuple() : out.begin_list();
}

void end(pickle::writer& out, node_kind kind) {
  if (kind == node_kind::mapping) return out.end_dict();
  return kind == node_kind::tuple ? out.end_tuple() : out.end_list();
}

void write_key(pickle::writer& out, const path_key& key) {
  if (key.is_index()) return out.integer(key.index());
  out.text(key.name());
}

// Writes the tree from the root down. The object's leaves are in this order.
void write_container(pickle::writer& out, const local_state_object& object) {
  struct open_node {
    std::size_t node = 0;
    std::vector<std::size_t> children;
    std::size_t next = 0;
  };
  const tree_spec& form = object.form;
  std::size_t leaf = 0;
  std::vector<open_node> open;
  const auto enter = [&](std::size_t node) {
    const node_kind kind = form.nodes()[node].kind;
    if (kind == node_kind::leaf) return write_leaf(out, object.leaves[leaf++]);
    begin(out, kind);
    open.push_back({node, form.children(node), 0});
  };
  enter(form.nodes().size() - 1);
  while (!open.empty()) {
    open_node& now = open.back();
    const node_kind kind = form.nodes()[now.node].kind;
    if (now.next == now.children.size()) {
      end(out, kind);
      open.pop_back();
      continue;
    }
    const std::size_t child = now.children[now.next++];
    if (kind == node_kind::mapping) write_key(out, form.keys()[child]);
    enter(child);
  }
}

// Returns a value without children as a leaf; empty if forms have no such leaf.
std::optional<plain_value> leaf_of(const torch_file::item& item, const pickle::value& value) {
  switch (classify(item, value).kind) {
    case object_kind::none:
      return plain_value();
    case object_kind::boolean:
      return plain_value(*value.as_bool());
    case object_kind::integer:
      if (const auto number = value.as_int()) return plain_value(*number);
      return std::nullopt;
    case object_kind::floating:
      return plain_value(*value.as_float());
    case object_kind::str:
      return plain_value(std::string(*value.text()));
    case object_kind::bytes: {
      const std::string bytes = *bytes_of(value);
      const auto raw = std::as_bytes(std::span(bytes));
      return plain_value(std::vector<std::byte>(raw.begin(), raw.end()));
    }
    default:
      return std::nullopt;
  }
}

std::optional<node_kind> container_of(const torch_file::item& item, const pickle::value& value) {
  switch (classify(item, value).kind) {
    case object_kind::list:
      return node_kind::sequence;
    case object_kind::tuple:
      return node_kind::tuple;
    case object_kind::dict:
      return node_kind::mapping;
    default:
      return std::nullopt;
  }
}

std::optional<path_key> key_of(const pickle::value& key) {
  if (const auto text = key.text()) return path_key(*text);
  if (key.kind() == pickle::kind::integer)
    if (const auto number = key.as_int()) return path_key(*number);
  return std::nullopt;
}

// Reads the form and leaves of nested containers; false when a value has no place in a form.
bool read_container(const torch_file::item& item, const pickle::value& root, local_state_object& object) {
  struct open_node {
    pickle::value value;
    node_kind kind;
    std::size_t next = 0;
  };
  tree_builder builder;
  std::vector<open_node> open;
  std::size_t nodes = 0, bytes = 0;
  const auto enter = [&](const pickle::value& value) {
    if (++nodes > most_nodes) return false;
    if (const auto kind = container_of(item, value)) {
      builder.begin(*kind);
      open.push_back({value, *kind});
      return true;
    }
    auto leaf = leaf_of(item, value);
    if (!leaf) return false;
    if (const auto* const text = std::get_if<std::string>(&*leaf)) bytes += text->size();
    if (const auto* const raw = std::get_if<std::vector<std::byte>>(&*leaf)) bytes += raw->size();
    if (bytes > most_bytes) return false;
    builder.leaf();
    object.leaves.push_back(*std::move(leaf));
    return true;
  };
  if (!enter(root)) return false;
  while (!open.empty()) {
    open_node& now = open.back();
    const std::size_t i = now.next++;
    if (now.kind == node_kind::mapping ? i == now.value.pairs().size() : i == now.value.items().size()) {
      builder.end();
      open.pop_back();
      continue;
    }
    if (now.kind != node_kind::mapping) {
      if (!enter(now.value.items()[i])) return false;
      continue;
    }
    const pickle::pair entry = now.value.pairs()[i];
    auto key = key_of(entry.key);
    if (!key) return false;
    builder.key(*std::move(key));
    if (!enter(entry.value)) return false;
  }
  auto form = builder.finish();
  if (!form) return false;
  object.form = *std::move(form);
  return true;
}

}  // namespace

result<std::vector<std::byte>> archive_of_object(const local_state_object& object) {
  const bool is_container = !object.form.nodes().empty();
  if (object.leaves.size() != (is_container ? object.form.leaves() : 1))
    return fail(errc::invalid_argument, "the leaves of an object do not match its structure")
        .with_values(detail::counted(is_container ? object.form.leaves() : 1, "leaf", "leaves"),
                     fmt::format("{}", object.leaves.size()));
  if (!is_container)
    if (const auto* const opaque = std::get_if<opaque_object>(&object.leaves.front())) {
      if (is_archive(opaque->bytes)) return opaque->bytes;
      return fail(errc::unsupported,
                  "an opaque object's bytes are not an archive of torch.save, so they cannot be stored")
          .with_values("", opaque->type_name);
    }
  for (const plain_value& leaf : object.leaves)
    if (const auto* const opaque = std::get_if<opaque_object>(&leaf))
      return fail(errc::unsupported, "an opaque object lies inside a container, which cannot be stored")
          .with_values("", opaque->type_name);
  pickle::writer out(2);
  if (is_container)
    write_container(out, object);
  else
    write_leaf(out, object.leaves.front());
  return object_archive(std::move(out).finish());
}

result<local_state_object> object_of_archive(std::span<const std::byte> archive) {
  const memory_source source(archive, "an object");
  SHARDMESH_TRY(const torch_file::item item, item::open(source));
  const pickle::value root = item.root();
  local_state_object object;
  if (auto leaf = leaf_of(item, root)) {
    object.leaves.push_back(*std::move(leaf));
    return object;
  }
  if (container_of(item, root) && read_container(item, root, object)) return object;
  object = {};
  object.leaves.push_back(opaque_object{classify(item, root).type, {archive.begin(), archive.end()}});
  return object;
}

std::string summary_of(const local_state_object& object) {
  if (!object.form.nodes().empty() || object.leaves.size() != 1)
    return fmt::format("a container of {}", detail::counted(object.leaves.size(), "value"));
  return std::visit(
      overloaded{[](std::monostate) { return std::string("None"); },
                 [](bool v) { return std::string(v ? "True" : "False"); },
                 [](std::int64_t v) { return fmt::format("{}", v); }, [](double v) { return fmt::format("{}", v); },
                 [](const std::string& v) { return fmt::format("'{}'", v.substr(0, 40)); },
                 [](const std::vector<std::byte>& v) { return detail::counted(v.size(), "byte"); },
                 [](const opaque_object& v) { return v.type_name; }},
      object.leaves.front());
}

}  // namespace shardmesh::torch_file
