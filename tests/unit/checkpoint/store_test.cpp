// SPDX-License-Identifier: Apache-2.0
// Tests checkpoints under URLs: every format reads from a store what it reads from files, in a bounded number of
// requests, and the errors of a store reach the user.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <map>
#include <memory>
#include <scratch_folder.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <memory_store.hpp>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// Checkpoints of every format, below tests/data. Those of DeepSpeed are in archives, and have a test of their own.
constexpr auto samples = std::to_array<std::string_view>({
    "golden/single_rank/checkpoint",
    "golden/fsdp2_4/checkpoint",
    "golden/nested_objects/checkpoint",
    "golden/options_file_per_item/checkpoint",
    "golden/options_no_collectives/checkpoint",
    "golden/options_zstd/checkpoint",
    "golden/hf_sharded/checkpoint",
    "golden/hf_consolidated/checkpoint",
    "golden/corrupt/truncated_distcp/checkpoint",
    "golden/corrupt/missing_distcp/checkpoint",
    "golden/corrupt/path_traversal/checkpoint",
    "writers/quantized_hf/checkpoint",
    "writers/torchsnapshot/one",
    "writers/torchsnapshot/batched",
    "writers/torchsnapshot/ranks",
    "writers/torch_checkpointing/mesh_2x2/checkpoint",
    "writers/torch_checkpointing/one_rank/checkpoint",
    "writers/torch_checkpointing/safetensors_3/checkpoint",
    "writers/transformers/whole/checkpoint",
    "writers/transformers/sharded/checkpoint",
    "writers/torch_ranks/mesh_2x2/checkpoint",
    "writers/torch_ranks/sharded_2/checkpoint",
    "writers/torch_jit/script.pt",
    "writers/torch_export/program.pt2",
    "writers/wrappers/wrappers.pt",
    "gguf/blocks.gguf",
    "unusual/views.pt",
});
// Folders of several checkpoints.
constexpr auto parts =
    std::to_array<std::string_view>({"writers/trainers/pipeline/checkpoint", "writers/trainers/accelerate/checkpoint"});

fs::path data(std::string_view name) {
  return golden::folder().parent_path() / name;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Errors as lines that name files below "TOP". The times of files depend on the checkout.
std::vector<std::string> lines_of(std::span<const error> errors, const std::string& top) {
  std::vector<std::string> lines;
  for (const error& one : errors)
    if (one.message.find("is newer than") == std::string::npos) lines.push_back(replaced(to_string(one), top, "TOP"));
  return lines;
}

std::string place_text(const catalog& contents, const stored_range& place) {
  const std::string file = place.file < 0 ? "nowhere" : contents.files[static_cast<std::size_t>(place.file)];
  return file + ":" + std::to_string(place.offset) + ":" + std::to_string(place.length);
}

// Everything that `inspect` shows of a reader, and every byte of its entries.
std::vector<std::string> described(checkpoint_reader& reader, const std::string& top) {
  const catalog& contents = reader.contents();
  std::vector<std::string> lines{std::string(name(contents.format)), contents.version, contents.stem};
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  add(contents.files);
  add(lines_of(reader.warnings(), top));
  add(lines_of(reader.problems(), top));
  for (const std::string& note : reader.notes()) lines.push_back(replaced(note, top, "TOP"));
  for (const file_text& text : contents.texts) lines.push_back(text.key + "=" + text.value);
  for (const tensor_entry& tensor : contents.tensors) {
    lines.push_back(to_string(tensor) + " " + to_string(tensor.where));
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
      lines.push_back(to_string(contents.chunk_box(tensor, chunk)) + " " +
                      place_text(contents, contents.chunk_places[static_cast<std::size_t>(chunk)]));
    const auto loaded = load_tensor(reader, tensor.key);
    if (loaded)
      lines.emplace_back(reinterpret_cast<const char*>(loaded->bytes().data()), loaded->bytes().size());
    else
      add(lines_of(loaded.error().problems(), top));
  }
  for (std::size_t i = 0; i < contents.objects.size(); ++i) {
    lines.push_back(to_string(contents.objects[i]) + " " + to_string(contents.objects[i].where));
    const auto value = reader.read_object(i);
    if (value)
      lines.push_back(value->kind + " " + value->type + " " + value->json);
    else
      add(lines_of(value.error().problems(), top));
  }
  return lines;
}

std::vector<std::string> verified(checkpoint_reader& reader, const std::string& top) {
  const verify_report report = verify(reader).value();
  std::vector<std::string> lines = lines_of(report.problems, top);
  for (const std::string& warning : lines_of(report.warnings, top)) lines.push_back(warning);
  for (const named_global& one : report.globals.names)
    lines.push_back(one.file + " " + one.key + " " + one.name + " " + std::to_string(one.count));
  for (const std::int64_t count : {report.more_problems, report.chunks, report.objects, report.bytes,
                                   report.checked_bytes, report.unchecked_chunks, report.unchecked_objects})
    lines.push_back(std::to_string(count));
  return lines;
}

// Files and folders of a sample.
int count_names(const fs::path& sample) {
  if (!fs::is_directory(sample)) return 1;
  int names = 1;
  for (const auto& entry : fs::recursive_directory_iterator(sample)) names += entry.exists() ? 1 : 0;
  return names;
}

using opener = result<std::unique_ptr<checkpoint_reader>> (*)(const fs::path&, const open_options&);

void compare(const registered_store& store, std::string_view sample, opener open) {
  INFO(sample);
  const fs::path local = data(sample);
  const std::string name = "bucket/" + std::string(sample), url = store.url(name);
  store->add_files(name, local);
  const auto expected = open(local, {});
  store->take_counts();
  const auto found = open(url, {});
  const auto counts = store->take_counts();
  CHECK(counts.descriptions() <= 3 * count_names(local) + 10);
  REQUIRE(found.has_value() == expected.has_value());
  if (!found) {
    CHECK(lines_of(found.error().problems(), url) == lines_of(expected.error().problems(), local.string()));
    return;
  }
  CHECK((*found)->path().string() == url);
  CHECK(described(**found, url) == described(**expected, local.string()));
  CHECK(verified(**found, url) == verified(**expected, local.string()));
  const diff_report differences = diff(**found, **expected).value();
  const bool is_sound = (*expected)->problems().empty() && verify(**expected).value().ok();
  if (is_sound) {
    // Tensors whose values are not read (of some GGUF types) differ from themselves.
    const diff_report own = diff(*open(local, {}).value(), **expected).value();
    CHECK(differences.differences.size() == own.differences.size());
    CHECK(differences.problems.size() == own.problems.size());
  }
}

error refused(const result<std::unique_ptr<checkpoint_reader>>& opened) {
  REQUIRE(!opened);
  return opened.error();
}

}  // namespace

TEST_CASE("every format reads from a store what it reads from files") {
  const registered_store store("samples");
  for (const std::int64_t bytes_per_request : {0, 1 << 20}) {  // of a store without requests, and of one on a server
    store->bytes_per_request = bytes_per_request;
    for (const std::string_view sample : samples) compare(store, sample, &open_checkpoint);
  }
}

TEST_CASE("a folder of several checkpoints opens as one from a store, too") {
  const registered_store store("parts");
  for (const std::string_view sample : parts) compare(store, sample, &open_parts);
}

TEST_CASE("a folder of DeepSpeed is recognised and refused in a store as on a file system") {
  const registered_store store("deepspeed");
  const scratch_folder scratch;
  for (const char* const step : {"global_step10", "global_step20"}) {
    fs::create_directories(scratch.path / step);
    std::ofstream(scratch.path / step / "mp_rank_00_model_states.pt") << "no archive";
  }
  for (const char* const latest : {"global_step20", "global_step30", "../x"}) {
    INFO(latest);
    std::ofstream(scratch.path / "latest") << latest;
    store->add_files("run", scratch.path);
    const error expected = refused(open_checkpoint(scratch.path)), found = refused(open_checkpoint(store.url("run")));
    CHECK(lines_of(found.problems(), store.url("run")) == lines_of(expected.problems(), scratch.path.string()));
  }
}

TEST_CASE("a checkpoint is described in a few requests, and a load asks no question") {
  const registered_store store("counted");
  store->add_files("run", data("golden/fsdp2_4/checkpoint"));
  const auto opened = open_checkpoint(store.url("run")).value();
  auto counts = store->take_counts();
  CHECK(counts.looks == 1);
  CHECK(counts.lists == 1);
  CHECK(counts.opens == 1);
  CHECK(counts.reads <= 2);
  for (const tensor_entry& tensor : opened->contents().tensors) CHECK(load_tensor(*opened, tensor.key));
  counts = store->take_counts();
  CHECK(counts.looks + counts.lists == 0);
  CHECK(counts.opens <= static_cast<int>(opened->contents().files.size()));
  for (const tensor_entry& tensor : opened->contents().tensors) CHECK(load_tensor(*opened, tensor.key));
  CHECK(store->take_counts().descriptions() == 0);
}

TEST_CASE("verify opens each file a bounded number of times, not once for each chunk") {
  const registered_store store("verified");
  const scratch_folder scratch;
  {
    const auto source = open_checkpoint(data("golden/options_file_per_item/checkpoint")).value();
    REQUIRE(convert(*source, scratch / "one", {.format = target_format::dcp}));
  }
  store->add_files("run", scratch / "one");
  const auto opened = open_checkpoint(store.url("run")).value();
  store->take_counts();
  CHECK(verify(*opened).value().ok());
  CHECK(store->take_counts().descriptions() <= 3 * count_names(scratch / "one") + 10);
}

TEST_CASE("a checkpoint in a store is converted and resharded to a local folder") {
  const registered_store store("converted");
  for (const char* const sample : {"golden/fsdp2_4/checkpoint", "writers/transformers/sharded/checkpoint"}) {
    INFO(sample);
    const scratch_folder scratch;
    store->add_files(sample, data(sample));
    const auto opened = open_checkpoint(store.url(sample)).value(), local = open_checkpoint(data(sample)).value();
    REQUIRE(convert(*opened, scratch / "copy", {.format = target_format::dcp}));
    CHECK(diff(*open_checkpoint(scratch / "copy").value(), *local).value().differences.empty());
    if (opened->contents().format != checkpoint_format::dcp) continue;
    REQUIRE(reshard(*opened, scratch / "cut", {.like = local.get()}));
    CHECK(diff(*open_checkpoint(scratch / "cut").value(), *local).value().differences.empty());
  }
}

TEST_CASE("a save, a conversion, and a reshard to a store that only reads send it no request") {
  const registered_store store("only-reads");
  store->add_files("source", data("golden/single_rank/checkpoint"));
  const auto local = open_checkpoint(data("golden/single_rank/checkpoint")).value();
  const auto remote = open_checkpoint(store.url("source")).value();
  store->take_counts();
  std::array<std::byte, 8> values{};
  const tensor_view view{values.data(), dtype::uint8, {}, {8}, {1}};
  const save_tensor tensor{"w", {}, {8}, {{{{0}, {8}}, view, 0}}};
  const std::string url = store.url("bucket/copy");
  std::vector<result<save_report>> refusals;
  for (const target& format : targets()) {
    refusals.push_back(save(url, {&tensor, 1}, format.format));
    refusals.push_back(save(url, {&tensor, 1}, format.format, {.overwrite = true}));
    refusals.push_back(convert(*local, url, {.format = format.format}));
    refusals.push_back(convert(*remote, url, {.format = format.format}));
  }
  refusals.push_back(reshard(*local, url, {.like = local.get()}));
  refusals.push_back(reshard(*remote, url, {.like = local.get()}));
  for (const result<save_report>& refusal : refusals) {
    REQUIRE(!refusal);
    CHECK(refusal.error().code == errc::unsupported);
    CHECK(refusal.error().file == url);
    CHECK(refusal.error().message == "the store of only-reads:// only reads");
    CHECK(refusal.error().hint == "write to a local path, and upload the result");
  }
  CHECK(store->take_counts() == memory_store::counts{});
}

TEST_CASE("a destination that is the source, or lies in it, is refused for URLs, too") {
  const registered_store store("apart");
  store->claims_to_write = true;
  store->add_files("run", data("golden/single_rank/checkpoint"));
  const auto opened = open_checkpoint(store.url("run")).value();
  for (const char* const destination : {"run", "run/", "run/copy"}) {
    INFO(destination);
    const auto written = convert(*opened, store.url(destination), {.format = target_format::dcp});
    REQUIRE(!written);
    CHECK(written.error().code == errc::invalid_argument);
  }
}

TEST_CASE("a tensor in a store is not mapped, and the error names the remedy") {
  const registered_store store("mapped");
  store->add_files("run", data("golden/single_rank/checkpoint"));
  const auto opened = open_checkpoint(store.url("run")).value();
  tensor_map mapped(*opened);
  const auto one = mapped.tensor(opened->contents().tensors.front().key);
  REQUIRE(!one);
  CHECK(one.error().code == errc::unsupported);
  CHECK(one.error().file == store.url("run"));
  CHECK(one.error().hint == "load it");
}

TEST_CASE("a URL that cannot be opened is one error with its cause") {
  const registered_store store("causes");
  store->add_files("bucket/run", data("golden/single_rank/checkpoint"));
  const error scheme = refused(open_checkpoint("nowhere://bucket/run"));
  CHECK(scheme.code == errc::unsupported);
  CHECK(scheme.found == "nowhere");
  for (const char* const name : {"bucket/nothing", "nothing/run", "bucket/run/nothing"}) {
    const error missing = refused(open_checkpoint(store.url(name)));
    CHECK(missing.code == errc::io);
    CHECK(missing.message == "does not exist");
    CHECK(missing.file == store.url(name));
  }
  for (const char* const name : {"bucket/run", "bucket/run/.metadata"}) {
    INFO(name);
    store->denied = {name};
    const error denied = refused(open_checkpoint(store.url("bucket/run")));
    CHECK(denied.message == "access is denied");
    CHECK(denied.file == store.url(name));
    store->denied.clear();
    store->failing = {name};
    const error failed = refused(open_checkpoint(store.url("bucket/run")));
    CHECK(failed.message == "the server failed");
    CHECK(failed.file == store.url(name));
    store->failing.clear();
  }
}

TEST_CASE("a file that the store fails to read is not taken for a file without tensors") {
  const registered_store store("unread");
  store->add_files("run", data("writers/transformers/whole/checkpoint"));
  store->add("run/notes", "these may be tensors");
  CHECK(open_parts(store.url("run")));
  store->failing = {"run/notes"};
  const error failed = refused(open_parts(store.url("run")));
  CHECK(failed.message == "the server failed");
  CHECK(failed.file == store.url("run/notes"));
}

TEST_CASE("an object that is replaced or removed during a load is an error that names it") {
  const registered_store store("replaced");
  store->add_files("run", data("golden/single_rank/checkpoint"));
  const auto opened = open_checkpoint(store.url("run")).value();
  const std::string key = opened->contents().tensors.front().key;
  // A small chunk that was read stays in memory, so another one is loaded first.
  CHECK(load_tensor(*opened, opened->contents().tensors.back().key));
  store->add("run/__0_0.distcp", "other bytes");
  const auto loaded = load_tensor(*opened, key);
  REQUIRE(!loaded);
  CHECK(loaded.error().code == errc::io);
  CHECK(loaded.error().key == key);
  CHECK(loaded.error().file == store.url("run/__0_0.distcp"));
  store->erase("run/__0_0.distcp");
  CHECK(!load_tensor(*opened, key));
  const auto again = open_checkpoint(store.url("run")).value();
  const auto missing = load_tensor(*again, key);
  REQUIRE(!missing);
  CHECK(missing.error().code == errc::bad_format);
  CHECK(missing.error().file == store.url("run/__0_0.distcp"));
}

TEST_CASE("a load from a checkpoint that was replaced after it was opened fails, and another one succeeds") {
  const registered_store store("overwritten");
  const auto files = data("golden/dtensor_shard0_4/checkpoint");
  store->add_files("run", files);
  const auto opened = open_checkpoint(store.url("run")).value();
  store->add_files("run", files);  // every object has another version now
  const auto loaded = load_tensor(*opened, "even");
  REQUIRE(!loaded);
  CHECK(loaded.error().code == errc::io);
  CHECK(loaded.error().key == "even");
  CHECK(loaded.error().message == "the object has changed since the checkpoint was opened");
  CHECK(loaded.error().hint == "open the checkpoint again");
  const auto again = open_checkpoint(store.url("run")).value();
  CHECK(load_tensor(*again, "even"));
}

TEST_CASE("a folder opens from a server that lists none, by its description") {
  const registered_store store("unlisted");
  store->can_list = store->knows_folders = false;
  for (const char* const sample : {"golden/fsdp2_4/checkpoint", "writers/quantized_hf/checkpoint"}) {
    INFO(sample);
    const std::string url = store.url(std::string("host/") + sample);
    store->add_files(std::string("host/") + sample, data(sample));
    const auto found = open_checkpoint(url), expected = open_checkpoint(data(sample));
    REQUIRE(found);
    CHECK(described(**found, url) == described(**expected, data(sample).string()));
    CHECK(verify(**found).value().ok() == verify(**expected).value().ok());
  }
}

TEST_CASE("the query of a URL reaches the store, and no name or message") {
  const registered_store store("signed");
  store->add_files("host/weights.safetensors",
                   data("writers/quantized_hf/checkpoint") / "model-00001-of-00002.safetensors");
  store->add_files("host/weights.pt", data("unusual/views.pt"));
  store->query = "signature=s3cr3t/with/slashes";
  for (const char* const name : {"weights.safetensors", "weights.pt"}) {
    INFO(name);
    const std::string url = store.url(std::string("host/") + name);
    const auto opened = open_checkpoint(url + "?" + store->query).value();
    CHECK(opened->contents().files == std::vector<std::string>{name});
    for (const std::string& line : described(*opened, "none")) CHECK(line.find("s3cr3t") == std::string::npos);
    for (const std::string& line : verified(*opened, "none")) CHECK(line.find("s3cr3t") == std::string::npos);
    store->erase(std::string("host/") + name);
    const error gone = refused(open_checkpoint(url + "?" + store->query));
    CHECK(gone.file == url);
    CHECK(to_string(gone).find("s3cr3t") == std::string::npos);
  }
  store->add_files("host/run", data("golden/single_rank/checkpoint"));
  const error alone = refused(open_checkpoint(store.url("host/run/.metadata?") + store->query));
  CHECK(alone.code == errc::unsupported);
  CHECK(alone.file == store.url("host/run/.metadata"));
}

TEST_CASE("a file of a local checkpoint whose name is a URL is not fetched") {
  const registered_store store("fetched");
  store->add("evil/x", "content");
  file_pool pool;
  folder_files local("", {store.url("evil/x")}, pool);
  CHECK(!local.open(0));
  folder_files remote(store.url("bucket/run"), {store.url("evil/x"), "../../evil/x", "/evil/x"}, pool);
  for (const std::int32_t file : {0, 1, 2}) {
    const auto opened = remote.open(file);
    REQUIRE(!opened);
    CHECK(opened.error().code == errc::unsafe_path);
  }
  CHECK(store->take_counts().opens == 0);
}
