// SPDX-License-Identifier: Apache-2.0
// Opening of what torch.save wrote: finds the pickle and the storages, and decodes every tensor's rebuild record.
// Nothing is trusted: a storage's declared size must be its record's, a tensor must lie within its storage.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :foreign_file;
import :pickled_storage;
import :storage_reference;
import :wrapper_table;

namespace shardmesh::torch_file {
namespace {

/// Non-negative integers of a tuple, list or torch.Size.
result<extents> integers_of(pickle::value value, std::string_view what) {
  if (value.is_record_of("torch", "Size") && value.args().size() == 1) value = value.args().items()[0];
  if (value.kind() != pickle::kind::tuple && value.kind() != pickle::kind::list)
    return fail(errc::bad_format, fmt::format("a tensor's {} are a {}, not a tuple", what, name(value.kind())));
  if (value.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("a tensor has {} dimensions", value.size()))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", value.size()));
  extents numbers;
  for (const pickle::value item : value.items()) {
    const auto number = item.as_int();
    if (!number || *number < 0)
      return fail(errc::bad_format, fmt::format("a tensor's {} have a negative or odd entry {}", what,
                                                item.decimal(40).value_or(std::string(name(item.kind())))));
    numbers.push_back(*number);
  }
  return numbers;
}

/// Elements of storage that a view needs: one past the last it touches; 0 when it is empty. Nothing on overflow.
std::optional<std::int64_t> reach(const torch_file::tensor& tensor) {
  std::int64_t last = tensor.storage_offset;
  for (std::size_t d = 0; d < tensor.sizes.rank(); ++d) {
    if (tensor.sizes[d] == 0) return 0;
    const auto step = checked_multiply(tensor.sizes[d] - 1, tensor.strides[d]);
    const auto sum = step ? checked_add(last, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  return checked_add(last, 1);
}

bool is_rebuild(const pickle::value& callable, std::string_view function) {
  return callable.is_global("torch._utils", function);
}
bool is_any_rebuild(const pickle::value& callable) {
  return callable.kind() == pickle::kind::global && callable.global_name().starts_with("_rebuild_") &&
         (callable.global_module() == "torch._utils" || callable.global_module() == "torch._tensor");
}

}  // namespace

/// Builds one torch_file::item; lives only while it is opened.
class item_reader {
 public:
  item_reader(const byte_source& source, const item_options& options)
      : source_(source), options_(options), budget_(options.budget != nullptr ? *options.budget : own_budget_) {}
  result<item> open();

 private:
  result<item> open_zip();
  result<void> check_records() const;
  result<void> charge_inflated(const zip_record& record);
  result<item> open_stream();
  result<item> open_legacy(std::span<const std::byte> start, bool is_whole);
  result<void> collect(torch_file::item& item);
  result<void> collect_tensor(torch_file::item& item, const pickle::value& record);
  void collect_quantized(torch_file::item& item, const pickle::value& args, tensor integers);
  result<bool> collect_array(torch_file::item& item, const pickle::value& record);
  result<bool> read_tensor(torch_file::item& item, const pickle::value& callable, const pickle::value& args,
                           tensor& out);
  result<std::size_t> storage_of(torch_file::item& item, const pickle::value& reference, bool is_quantized = false);
  result<std::size_t> pickled_storage_of(torch_file::item& item, const pickle::value& reference);
  std::size_t add_pickled(torch_file::item& item, torch_file::storage storage, std::int64_t begin);
  result<void> locate(torch_file::storage& storage);
  result<void> locate_legacy(torch_file::item& item, const pickle::value& keys, std::int64_t at);
  result<void> check_bytes_text(const pickle::value& record);
  error bad(std::string message) const { return fail(errc::bad_format, std::move(message)).with_file(source_.name()); }

  const byte_source& source_;
  item_options options_;
  read_budget own_budget_;
  read_budget& budget_;
  zip_directory directory_;
  std::string prefix_;                  // "archive/"
  bool is_legacy_ = false;              // storages are located later, all of them
  std::span<const std::byte> pickled_;  // a bare pickle: the whole file
  std::unordered_map<std::string, std::size_t> by_key_;
  std::unordered_set<const char*> checked_texts_;
};

result<item> item_reader::open() {
  if (looks_like_zip(source_)) return open_zip();
  return open_stream();
}

// One data.pkl, and local headers that agree with the directory (those of storages are looked at when they are used):
// whatever reads the archive must see the same pickle.
result<void> item_reader::check_records() const {
  const zip_record* found = nullptr;
  for (const zip_record& record : directory_.records()) {
    const std::string_view base = std::string_view(record.name).substr(record.name.rfind('/') + 1);
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; };
    const bool is_pickle = std::ranges::equal(base, std::string_view("data.pkl"), {}, lower);
    if (is_pickle && found != nullptr)
      return bad(
          fmt::format("the archive has two pickles, \"{}\" and \"{}\"", escaped(found->name), escaped(record.name)));
    if (is_pickle) found = &record;
    if (!std::string_view(record.name).starts_with(prefix_ + "data/")) SHARDMESH_CHECK(data_offset(source_, record));
  }
  return {};
}

result<void> item_reader::charge_inflated(const zip_record& record) {
  const std::string place = fmt::format("{}:{}:{}", source_.name(), record.name, record.crc32);
  auto done = budget_.decode(place, record.compressed_bytes, record.size_bytes);
  if (done) return done;
  return std::move(done).error().with_file(source_.name());
}

result<item> item_reader::open_zip() {
  SHARDMESH_TRY(directory_, zip_directory::read(source_));
  if (directory_.records().empty()) return bad("the archive has no records");
  // Every record lies in one folder; PyTorch takes its name from the first record.
  const std::string& first = directory_.records().front().name;
  prefix_ = first.substr(0, first.find('/') + 1);
  SHARDMESH_CHECK(check_records());
  const zip_record* data = directory_.find(prefix_ + "data.pkl");
  if (data == nullptr) return not_torch_archive(directory_, prefix_ + "data.pkl").with_file(source_.name());
  const bool is_script = directory_.find(prefix_ + "constants.pkl") != nullptr;
  if (is_script && !options_.is_file)
    return fail(errc::unsupported, "an item is a TorchScript archive").with_file(source_.name());
  if (data->method == 8) SHARDMESH_CHECK(charge_inflated(*data));
  SHARDMESH_TRY(auto bytes, read_record(source_, *data, options_.pickle_limit_bytes));
  budget_.add_description(static_cast<std::int64_t>(bytes.size()));
  SHARDMESH_TRY(auto graph, pickle::graph::parse(std::move(bytes)));
  torch_file::item item(std::move(graph));
  item.is_script_ = is_script;
  if (const zip_record* order = directory_.find(prefix_ + "byteorder")) {
    SHARDMESH_TRY(const auto text, read_record(source_, *order, 64));
    const std::string_view word(reinterpret_cast<const char*>(text.data()), text.size());
    if (word != "little" && word != "big") return bad("the byte order is \"" + escaped(word) + "\"");
    item.byte_order_ = word == "big" ? std::endian::big : std::endian::little;
  }
  SHARDMESH_CHECK(collect(item));
  return item;
}

// A stream of pickles: torch.save before 1.6, or a bare pickle. Where the pickles end is known only by parsing them,
// and bulk data may follow, so ever longer beginnings are tried.
result<item> item_reader::open_stream() {
  // Streams hold no tensor data inside their pickles, so the longest that is tried is shorter than a record may be.
  const std::int64_t size = source_.size_bytes(), most = std::min(size, options_.pickle_limit_bytes / 4);
  std::array<std::byte, 32> beginning{};
  if (size == 0) return bad("it is empty");
  const auto first =
      std::span(beginning).first(static_cast<std::size_t>(std::min<std::int64_t>(size, beginning.size())));
  SHARDMESH_CHECK(source_.read(0, first));
  if (auto foreign = foreign_beginning(first)) return std::move(*foreign).with_file(source_.name());
  const bool has_protocol = first[0] == std::byte{0x80};
  for (std::int64_t window = 1 << 16;; window *= 8) {
    const std::int64_t length = std::min(window, most);
    std::vector<std::byte> start(static_cast<std::size_t>(length));
    SHARDMESH_CHECK(source_.read(0, start));
    auto graph = pickle::graph::parse(std::span<const std::byte>(start));
    if (graph && graph->root().decimal() == "119547037146038801333356") return open_legacy(start, length == size);
    if (graph) budget_.add_description(length);
    if (graph && graph->consumed_bytes() == static_cast<std::size_t>(size)) {
      pickled_ = start;  // which stays where it is: the graph takes it over
      SHARDMESH_TRY(auto owning, pickle::graph::parse(std::move(start)));
      torch_file::item item(std::move(owning));
      item.format_ = item_format::pickle;
      SHARDMESH_CHECK(collect(item));
      return item;
    }
    if (graph || !has_protocol) return bad("it is neither an archive of torch.save nor a pickle");
    const bool is_cut = graph.error().found == pickle::cut_short;
    if (is_cut && length == most && most < size)
      return beyond_limit("the pickle is too long", most).with_file(source_.name());
    // More bytes only help one that was cut.
    if (!is_cut || length == most) return std::move(graph).error().with_file(source_.name());
  }
}

result<item> item_reader::open_legacy(std::span<const std::byte> start, bool is_whole) {
  std::vector<std::byte> larger;
  for (;;) {
    // magic number, protocol version, system information, object, storage keys
    std::size_t at = 0;
    std::array<std::size_t, 6> begins{};
    std::optional<error> problem;
    bool is_little = true;
    for (int i = 0; i < 5 && !problem; ++i) {
      begins[static_cast<std::size_t>(i)] = at;
      auto part = pickle::graph::parse(start.subspan(at));
      if (!part) {
        problem = std::move(part).error();
        break;
      }
      if (i == 1 && part->root().as_int() != 1001)
        return fail(errc::unsupported, "unknown version of PyTorch's old format").with_file(source_.name());
      if (i == 2) is_little = part->root().find("little_endian").as_bool().value_or(true);
      at += part->consumed_bytes();
    }
    begins[5] = at;
    if (problem) {
      const std::int64_t most = std::min(source_.size_bytes(), options_.pickle_limit_bytes / 4);
      if (problem->found != pickle::cut_short || is_whole || static_cast<std::int64_t>(start.size()) >= most)
        return std::move(*problem).with_file(source_.name());
      std::vector<std::byte> next(
          static_cast<std::size_t>(std::min(static_cast<std::int64_t>(start.size()) * 8, most)));
      SHARDMESH_CHECK(source_.read(0, next));
      larger = std::move(next);
      start = larger;
      continue;
    }
    const auto copy = [&start](std::size_t begin, std::size_t end) {
      return std::vector<std::byte>(start.begin() + static_cast<std::ptrdiff_t>(begin),
                                    start.begin() + static_cast<std::ptrdiff_t>(end));
    };
    budget_.add_description(static_cast<std::int64_t>(at));
    SHARDMESH_TRY(auto graph, pickle::graph::parse(copy(begins[3], begins[4])));
    SHARDMESH_TRY(auto keys, pickle::graph::parse(copy(begins[4], begins[5])));
    torch_file::item item(std::move(graph));
    item.format_ = item_format::legacy_stream;
    item.byte_order_ = is_little ? std::endian::little : std::endian::big;
    is_legacy_ = true;
    SHARDMESH_CHECK(collect(item));
    SHARDMESH_CHECK(locate_legacy(item, keys.root(), static_cast<std::int64_t>(at)));
    return item;
  }
}

// The storages follow in the order of the keys: a count of elements, then the bytes.
result<void> item_reader::locate_legacy(torch_file::item& item, const pickle::value& keys, std::int64_t at) {
  std::size_t located = 0;
  for (const pickle::value key : keys.items()) {
    const auto found = by_key_.find(std::string(key.text().value_or("")));
    if (found == by_key_.end()) return bad("a storage of PyTorch's old format belongs to no tensor that we know");
    torch_file::storage& storage = item.storages_[found->second];
    std::array<std::byte, 8> count_bytes;
    SHARDMESH_CHECK(source_.read(at, count_bytes));
    if (item.byte_order_ == std::endian::big) std::reverse(count_bytes.begin(), count_bytes.end());
    const auto count = std::bit_cast<std::int64_t>(count_bytes);
    const auto bytes = size_bytes(storage.type == dtype::undefined ? dtype::uint8 : storage.type, count);
    if (count < 0 || !bytes || *bytes != storage.size_bytes || *bytes > source_.size_bytes() - at - 8)
      return bad(fmt::format("storage \"{}\" does not have its declared size", escaped(storage.key)));
    storage.offset = at + 8;
    storage.stored_bytes = *bytes;
    at += 8 + *bytes;
    ++located;
  }
  if (located != item.storages_.size()) return bad("a storage of PyTorch's old format is missing");
  return {};
}

// Protocol 2 spells bytes as text: _codecs.encode(text, "latin1"). Text that is none fails in Python; here it would be
// read to its end, and found to be none, wherever it is referred to.
result<void> item_reader::check_bytes_text(const pickle::value& record) {
  if (!record.is_record_of("_codecs", "encode") || record.args().size() < 2) return {};
  const auto text = record.args().items()[0].text(), encoding = record.args().items()[1].text();
  if (!text || text->size() < 256 || !encoding || !encoding->starts_with("latin")) return {};
  if (!checked_texts_.insert(text->data()).second || bytes_of(record)) return {};  // many may refer to one text
  return fail(errc::bad_pickle,
              fmt::format("bytes are spelled as text of {} bytes that Latin-1 does not have", text->size()))
      .with_file(source_.name());
}

// Visits every value once. A rebuild record becomes a tensor and is not entered; others are.
result<void> item_reader::collect(torch_file::item& item) {
  std::unordered_set<std::uint64_t> seen;
  std::vector<pickle::value> pending{item.root()};
  const auto add = [&](const pickle::items& items) {
    for (const pickle::value part : items) pending.push_back(part);
  };
  while (!pending.empty()) {
    const pickle::value value = pending.back();
    pending.pop_back();
    switch (value.kind()) {
      case pickle::kind::list:
      case pickle::kind::tuple:
      case pickle::kind::set:
      case pickle::kind::frozenset:
        if (seen.insert(value.identity()).second) add(value.items());
        break;
      case pickle::kind::dict:
        if (!seen.insert(value.identity()).second) break;
        for (const pickle::pair pair : value.pairs()) pending.push_back(pair.key), pending.push_back(pair.value);
        break;
      case pickle::kind::persistent:
        if (is_legacy_ && value.persistent_id().size() >= 5) SHARDMESH_CHECK(storage_of(item, value));
        break;
      case pickle::kind::record: {
        if (!seen.insert(value.identity()).second) break;
        SHARDMESH_CHECK(check_bytes_text(value));
        if (options_.is_file && !pickled_.empty()) {
          SHARDMESH_TRY(const bool is_array, collect_array(item, value));
          if (is_array) break;
        }
        if (is_any_rebuild(value.callable())) {
          SHARDMESH_CHECK(collect_tensor(item, value));
          if (item.tensor_of(value)) break;
        }
        add(value.args().items());
        for (const pickle::value part : {value.state(), value.appended(), value.assigned(), value.keyword_args()})
          if (part) pending.push_back(part);
        break;
      }
      default:
        break;
    }
  }
  return {};
}

result<void> item_reader::collect_tensor(torch_file::item& item, const pickle::value& record) {
  SHARDMESH_CHECK(budget_.build(sizeof(tensor)));
  torch_file::tensor tensor;
  tensor.python_type = "torch.Tensor";
  pickle::value callable = record.callable(), args = record.args();
  std::optional<bool> requires_grad;
  if ((is_rebuild(callable, "_rebuild_parameter") || is_rebuild(callable, "_rebuild_parameter_with_state")) &&
      args.size() >= 2) {
    requires_grad = args.items()[1].as_bool();
    const pickle::value data = args.items()[0];
    callable = data.callable(), args = data.args();
    tensor.python_type = "torch.nn.parameter.Parameter";
  } else if (callable.is_global("torch._tensor", "_rebuild_from_type_v2") && args.size() == 4 &&
             (args.items()[1].is_global("torch", "Tensor") || args.items()[1].is_global("torch._tensor", "Tensor"))) {
    // A plain tensor with attributes of its own.
    callable = args.items()[0];
    args = args.items()[2];
  }
  if (is_rebuild(callable, "_rebuild_qtensor")) {
    collect_quantized(item, args, std::move(tensor));
    return {};
  }
  auto is_exposed = read_tensor(item, callable, args, tensor);
  if (!is_exposed) return std::move(is_exposed).error().with_file(source_.name());
  if (!*is_exposed) return {};
  if (requires_grad) tensor.requires_grad = *requires_grad;
  item.tensor_of_.emplace(record.identity(), item.tensors_.size());
  item.tensors_.push_back(std::move(tensor));
  return {};
}

// The integers of a quantized tensor, by its arguments: (storage, offset, sizes, strides, ...). What cannot be read is
// none: nobody needs it but who takes such tensors apart.
void item_reader::collect_quantized(torch_file::item& item, const pickle::value& args, tensor integers) {
  const pickle::items given = args.items();
  if (given.size() < 7 || item.tensor_of_.contains(args.identity())) return;
  const pickle::items id = given[0].persistent_id().items();
  const quantized_dtype* const known = id.size() > 1 ? find_quantized_storage(id[1].global_name()) : nullptr;
  const auto offset = given[1].as_int();
  auto sizes = integers_of(given[2], "sizes"), strides = integers_of(given[3], "strides");
  if (known == nullptr || !offset || *offset < 0 || !sizes || !strides || sizes->rank() != strides->rank()) return;
  auto storage = storage_of(item, given[0], true);
  if (!storage) return;
  integers.type = known->stored;
  integers.sizes = *sizes;
  integers.strides = *strides;
  integers.storage = *storage;
  integers.storage_offset = *offset;
  const auto count = checked_volume(*sizes), needed = reach(integers);
  const auto bytes = needed ? checked_multiply(*needed, item_bytes(integers.type)) : std::nullopt;
  if (!count || !size_bytes(integers.type, *count) || !bytes || *bytes > item.storages_[*storage].size_bytes) return;
  item.tensor_of_.emplace(args.identity(), item.tensors_.size());
  item.tensors_.push_back(std::move(integers));
}

/// False when it is a tensor of a kind that we do not expose.
result<bool> item_reader::read_tensor(torch_file::item& item, const pickle::value& callable, const pickle::value& args,
                                      tensor& out) {
  const bool v3 = is_rebuild(callable, "_rebuild_tensor_v3");
  const bool v2 = is_rebuild(callable, "_rebuild_tensor_v2");
  if (!v3 && !v2 && !is_rebuild(callable, "_rebuild_tensor")) return false;
  const pickle::items given = args.items();
  const std::size_t least = v3 ? 7 : v2 ? 6 : 4;
  if (given.size() < least || given.size() > least + (v2 || v3 ? 1 : 0))
    return fail(errc::bad_format, fmt::format("a tensor is rebuilt from {} arguments", given.size()))
        .with_values(fmt::format("{}", least), fmt::format("{}", given.size()));
  std::optional<dtype> argument_type;
  if (v3) {
    argument_type = parse_dtype(given[6].global_name());
    if (given[6].global_module() != "torch" || !argument_type) return false;
  }
  SHARDMESH_TRY(out.storage, storage_of(item, given[0]));
  const torch_file::storage& storage = item.storages_[out.storage];
  out.type = v3 ? *argument_type : storage.type == dtype::undefined ? dtype::uint8 : storage.type;
  const auto offset = given[1].as_int();
  if (!offset || *offset < 0) return fail(errc::bad_format, "a tensor's storage offset is negative or not a number");
  out.storage_offset = *offset;
  SHARDMESH_TRY(out.sizes, integers_of(given[2], "sizes"));
  SHARDMESH_TRY(out.strides, integers_of(given[3], "strides"));
  if (out.sizes.rank() != out.strides.rank())
    return fail(errc::bad_format, "a tensor's sizes and strides differ in number");
  if (v2 || v3) out.requires_grad = given[4].as_bool().value_or(false);
  if (given.size() > least) {
    pickle::value bits = given[least];
    // As TorchScript writes dicts: with their type.
    if (bits.is_record_of("torch.jit._pickle", "restore_type_tag") && !bits.args().items().empty())
      bits = bits.args().items()[0];
    if (bits.kind() != pickle::kind::dict && !bits.is_none())
      return fail(errc::bad_format, "a tensor's metadata (conj, neg) is no dict");
    out.conj = bits.find("conj").as_bool().value_or(false);
    out.neg = bits.find("neg").as_bool().value_or(false);
  }
  const auto count = checked_volume(out.sizes);
  if (!count || !size_bytes(out.type, *count))
    return fail(errc::overflow, "a tensor's size does not fit: " + to_string(out.sizes));
  const auto needed = reach(out);
  const auto needed_bytes = needed ? checked_multiply(*needed, item_bytes(out.type)) : std::nullopt;
  if (!needed_bytes || *needed_bytes > storage.size_bytes)
    return fail(errc::out_of_bounds,
                fmt::format("a tensor of sizes {}, strides {} and offset {} leaves its storage \"{}\"",
                            to_string(out.sizes), to_string(out.strides), out.storage_offset, escaped(storage.key)))
        .with_values(fmt::format("at most {} bytes", storage.size_bytes),
                     needed_bytes ? fmt::format("{}", *needed_bytes) : "more than 2^63");
  return true;
}

/// The storage that a value refers to, made when it is new.
result<std::size_t> item_reader::storage_of(torch_file::item& item, const pickle::value& reference, bool is_quantized) {
  if (reference.is_record_of("torch.storage", "_load_from_bytes")) return pickled_storage_of(item, reference);
  SHARDMESH_TRY(torch_file::storage storage, declared_storage(reference, is_legacy_ || is_quantized));
  if (const auto known = by_key_.find(storage.key); known != by_key_.end()) {
    const torch_file::storage& before = item.storages_[known->second];
    if (before.type != storage.type || before.size_bytes != storage.size_bytes)
      return fail(errc::bad_format, fmt::format("storage \"{}\" is declared twice, differently", escaped(storage.key)));
    return known->second;
  }
  if (!is_legacy_) SHARDMESH_CHECK(locate(storage));
  by_key_.emplace(storage.key, item.storages_.size());
  item.storages_.push_back(std::move(storage));
  return item.storages_.size() - 1;
}

// A storage that pickle.dump wrote: a stream of torch.save as bytes inside the pickle. It lies in the file as it is.
result<std::size_t> item_reader::pickled_storage_of(torch_file::item& item, const pickle::value& reference) {
  if (pickled_.empty()) return tensors_of_bare_pickle();
  SHARDMESH_TRY(const pickled_storage found, find_pickled_storage(reference, pickled_));
  if (found.order != item.byte_order_ && !item.storages_.empty()) return bad("its storages have two byte orders");
  item.byte_order_ = found.order;
  const std::string key = fmt::format("at byte {}", found.begin);
  if (const auto known = by_key_.find(key); known != by_key_.end()) return known->second;
  SHARDMESH_TRY(torch_file::storage storage, declared_storage(found.reference(), false));
  const auto counted = size_bytes(storage.type == dtype::undefined ? dtype::uint8 : storage.type, found.count);
  if (storage.size_bytes != found.length || found.count < 0 || counted != found.length)
    return bad(fmt::format("the storage {} does not have its declared size", key))
        .with_values(fmt::format("{} bytes", storage.size_bytes), fmt::format("{} bytes", found.length));
  storage.key = key;
  return add_pickled(item, std::move(storage), found.begin);
}

std::size_t item_reader::add_pickled(torch_file::item& item, torch_file::storage storage, std::int64_t begin) {
  storage.offset = begin;
  storage.stored_bytes = storage.size_bytes;
  by_key_.emplace(storage.key, item.storages_.size());
  item.storages_.push_back(std::move(storage));
  return item.storages_.size() - 1;
}

// False for what is no array of plain numbers: that stays an object.
result<bool> item_reader::collect_array(torch_file::item& item, const pickle::value& record) {
  const auto array = find_pickled_array(record, pickled_);
  if (!array || (item.byte_order_ != std::endian::little)) return false;
  SHARDMESH_CHECK(budget_.build(sizeof(tensor)));
  torch_file::storage storage;
  storage.key = fmt::format("at byte {}", array->begin);
  storage.size_bytes = array->length;
  torch_file::tensor tensor;
  tensor.type = array->type;
  tensor.sizes = array->sizes;
  tensor.strides = array->strides;
  tensor.storage = add_pickled(item, std::move(storage), array->begin);
  tensor.python_type = "numpy.ndarray";
  item.tensor_of_.emplace(record.identity(), item.tensors_.size());
  item.tensors_.push_back(std::move(tensor));
  return true;
}

result<void> item_reader::locate(torch_file::storage& storage) {
  const zip_record* record = directory_.find(prefix_ + "data/" + storage.key);
  if (record == nullptr && storage.size_bytes == 0) return {};
  if (record == nullptr) return bad(fmt::format("the archive has no data of storage \"{}\"", escaped(storage.key)));
  if (record->size_bytes != storage.size_bytes)
    return bad(fmt::format("storage \"{}\" does not have its declared size", escaped(storage.key)))
        .with_values(fmt::format("{} bytes", storage.size_bytes), fmt::format("{} bytes", record->size_bytes));
  if (record->method != 0 && record->method != 8)
    return fail(errc::unsupported, fmt::format("ZIP compression method {} is not supported", record->method));
  SHARDMESH_TRY(storage.offset, data_offset(source_, *record));
  storage.stored_bytes = record->compressed_bytes;
  storage.method = record->method;
  storage.crc32 = record->crc32;
  return {};
}

result<item> item::open(const byte_source& source, const item_options& options) {
  SHARDMESH_TRY(const auto windows, windowed_source::open(source));
  auto item = item_reader(windows, options).open();
  if (!item) {
    error problem = std::move(item).error();
    return problem.file.empty() ? std::move(problem).with_file(source.name()) : problem;
  }
  return item;
}

std::optional<std::size_t> item::tensor_of(const pickle::value& value) const {
  if (value.kind() != pickle::kind::record) return std::nullopt;
  const auto found = tensor_of_.find(value.identity());
  return found == tensor_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::size_t> item::quantized_integers(const pickle::value& value) const {
  const bool is_parameter = is_rebuild(value.callable(), "_rebuild_parameter");
  const auto found = tensor_of_.find((is_parameter ? argument_of(value, 0) : value).args().identity());
  return found == tensor_of_.end() ? std::nullopt : std::optional(found->second);
}

bool item::is_opaque_tensor(const pickle::value& value) const {
  return is_any_rebuild(value.callable()) && !tensor_of(value);
}

}  // namespace shardmesh::torch_file
