// SPDX-License-Identifier: Apache-2.0
// Tests what the commands print in a good and in a bad case: numbers with their nouns, suggestions, and written files.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <string>
#include <utility>
#include <vector>

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string data = SHARDMESH_TEST_DATA;

// A tensor of a safetensors file, which is written as {KEY: {dtype, shape, bytes}}.
struct stored {
  std::string key, dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
void write_safetensors(const fs::path& path, const std::vector<stored>& tensors) {
  json header = json::object();
  std::string body;
  for (const stored& one : tensors) {
    header[one.key] = {
        {"dtype", one.dtype}, {"shape", one.shape}, {"data_offsets", {body.size(), body.size() + one.bytes.size()}}};
    body += one.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::uint64_t size = text.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << text << body;
}

template <class Number>
std::string bytes_of(std::initializer_list<Number> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(Number)};
}

}  // namespace

TEST_CASE("numbers are followed by the right form of their noun, and zero counts are left out") {
  const scratch_folder folder;
  const fs::path one = folder / "one.safetensors", two = folder / "two.safetensors";
  write_safetensors(one, {{"w", "U8", {3}, "abc"}});
  write_safetensors(two, {{"v", "U8", {1}, "a"}, {"w", "U8", {3}, "abX"}});
  const std::string a = one.string(), b = two.string(), to = (folder / "to").string();
  CHECK(run_tool("diff " + a + " " + a).out == "equal: 1 tensor (3 bytes)\n");
  CHECK(run_tool("diff " + a + " " + b).out == "2 keys differ: 1 only-right, 1 values; compared 1 tensor (3 bytes)\n");
  CHECK(run_tool("verify " + a).out ==
        a + ": ok: 1 chunk, 3 bytes; checksums compared over 0 bytes; 1 of 1 chunk has no checksum\n");
  CHECK(run_tool("verify " + b).out ==
        b + ": ok: 2 chunks, 4 bytes; checksums compared over 0 bytes; 2 of 2 chunks have no checksum\n");
  CHECK(run_tool("convert " + a + " " + to + " --to dcp").out == to + ": wrote 1 tensor (3 bytes) in 1 file\n");
  CHECK(run_tool("convert " + b + " " + to + " --to dcp --skip v --force").out ==
        to + ": wrote 1 tensor (3 bytes) in 1 file; excluded 1 entry\n");
  CHECK(run_tool("inspect " + to).out.starts_with(to + ": dcp 1.0.0, 1 tensor in 1 chunk, 1 file\n"));
  CHECK(run_tool("inspect " + to).out.find("\n  ranks       1 (0)\n") != std::string::npos);
  CHECK(run_tool("reshard " + b + " " + to + " --mesh 2 --default 'S(0)' --dry-run").out ==
        "__0_0.distcp  2 chunks, 3 bytes\n__1_0.distcp  1 chunk, 1 byte\n"
        "dry run: 2 tensors (4 bytes) for 2 ranks, nothing written\n");
}

TEST_CASE("convert names the file of objects that it writes beside safetensors") {
  const scratch_folder folder;
  const std::string source = data + "/golden/fsdp2_tp_2x2/checkpoint";
  const json contents = json::parse(run_tool("inspect " + source + " --json").out);
  const auto tensors = std::to_string(contents["tensors"].size()), objects = std::to_string(contents["objects"].size());
  REQUIRE(contents["objects"].size() > 1);
  const fs::path file = folder / "model.safetensors", hf = folder / "hf";
  const fs::path beside = folder / "model.objects.json";
  const auto run = run_tool("convert " + source + " " + file.string());
  CHECK(run.out.starts_with(file.string() + ": wrote " + tensors + " tensors ("));
  CHECK(run.out.ends_with(") in 1 file and " + objects + " objects in " + beside.string() + "\n"));
  CHECK(fs::exists(beside));
  const auto folded = run_tool("convert " + source + " " + hf.string() + " --to hf");
  CHECK(folded.out.ends_with(" objects in " + (hf / "objects.json").string() + "\n"));
  CHECK(fs::exists(hf / "objects.json"));
  const json told = json::parse(run_tool("convert " + source + " " + file.string() + " --force --json").out);
  CHECK(told["objects_file"] == beside.string());
  const auto without = run_tool("convert " + source + " " + file.string() + " --force --skip-objects");
  CHECK(without.out.ends_with(" in 1 file; skipped " + objects + " objects\n"));
  CHECK(json::parse(
            run_tool("convert " + source + " " + file.string() + " --force --skip-objects --json").out)["objects_file"]
            .is_null());
}

TEST_CASE("commands, options and dtypes that are misspelled are answered with the near ones") {
  for (const auto& [call, line] : std::vector<std::pair<std::string, std::string>>{
           {"inspekt x", "shardmesh: unknown command 'inspekt'; did you mean inspect? (see 'shardmesh --help')"},
           {"inspekt --help", "shardmesh: unknown command 'inspekt'; did you mean inspect? (see 'shardmesh --help')"},
           {"check_shards x",
            "shardmesh: unknown command 'check_shards'; did you mean check-shards? (see 'shardmesh --help')"},
           {"inspect x --maps",
            "shardmesh inspect: unknown option '--maps'; did you mean --map? (see 'shardmesh inspect --help')"},
           {"convert a b --dtpe=half",
            "shardmesh convert: unknown option '--dtpe=half'; did you mean --dtype? (see 'shardmesh convert --help')"},
           {"verify x --treads 3",
            "shardmesh verify: unknown option '--treads'; did you mean --threads? (see 'shardmesh verify --help')"},
           {"verify x --frobnicate", "shardmesh verify: unknown option '--frobnicate' (see 'shardmesh verify --help')"},
           {"plan --shape 4 --from-mesh 2 --from R --to-mesh 2 --to R --dtype bf16",
            "'bf16' is not a dtype; did you mean bfloat16?"},
           {"convert " + data + "/golden/single_rank/checkpoint nowhere --to dcp --dtype bf16",
            "--dtype 'bf16': no dtype is called bf16; did you mean bfloat16?"},
           {"diff " + data + "/golden/single_rank/checkpoint " + data +
                "/golden/single_rank/checkpoint --dtype 'w=fp16'",
            "--dtype 'w=fp16': no dtype is called fp16; did you mean float16?"}}) {
    INFO(call);
    const auto run = run_tool(call);
    CHECK(run.status == 2);
    CHECK(run.err == line + " [invalid_argument]\n");
  }
}

TEST_CASE("clean of what is not there is an error, and of what is there is none") {
  const scratch_folder folder;
  const std::string none = (folder / "none").string();
  for (const std::string more : {"", " --dry-run"}) {
    const auto run = run_tool("clean " + none + more);
    CHECK(run.status == 3);
    CHECK(run.out.empty());
    CHECK(run.err == none + ": neither this path nor a leftover of it exists: No such file or directory [io]\n");
  }
  const json told = json::parse(run_tool("clean " + none + " --json").out);
  CHECK(told["ok"] == false);
  CHECK(told["problems"].size() == 1);
  CHECK(told["more_problems"] == 0);
  CHECK(run_tool("clean " + (folder / "").string()).status == 0);
  fs::create_symlink("nowhere", folder / "lost");
  CHECK(run_tool("clean " + (folder / "lost").string()).status == 0);
}

TEST_CASE("tensors without a dtype of ours count as the bytes that are stored of them") {
  const std::string source = data + "/unusual/dcp";
  const json contents = json::parse(run_tool("inspect " + source + " --json").out);
  std::int64_t opaque = 0, plain = 0;
  for (const auto& [key, object] : contents["objects"].items())
    if (object["kind"] == "opaque-tensor") {
      CHECK(object["bytes"].get<std::int64_t>() > 16);  // 16 elements in an archive
      opaque += object["bytes"].get<std::int64_t>();
    }
  for (const auto& [key, tensor] : contents["tensors"].items()) plain += tensor["bytes"].get<std::int64_t>();
  CHECK(plain == 24);
  const json compared = json::parse(run_tool("diff " + source + " " + source + " --json").out);
  CHECK(compared["bytes"] == opaque + plain);
  CHECK(json::parse(run_tool("verify " + source + " --json").out)["bytes"] == opaque + plain);
  const auto text = run_tool("inspect " + source).out;
  CHECK(text.find("float32 24 bytes in 2, other representations ") != std::string::npos);
}

TEST_CASE("reshard onto a mesh names what it replicates because nothing places it") {
  const scratch_folder folder;
  const fs::path file = folder / "two.safetensors";
  write_safetensors(file, {{"v", "U8", {2}, "ab"}, {"w", "U8", {2}, "cd"}});
  const std::string call = "reshard " + file.string() + " " + (folder / "to").string() + " --mesh dp=2 --force";
  CHECK(run_tool(call).err == "note: 2 tensors match no placement rule and are replicated on all 2 ranks: v, w\n");
  CHECK(run_tool(call + " --dry-run").err ==
        "note: 2 tensors match no placement rule and are replicated on all 2 ranks: v, w\n");
  CHECK(run_tool(call + " --place 'w=S(0)'").err ==
        "note: 1 tensor matches no placement rule and is replicated on all 2 ranks: v\n");
  CHECK(run_tool(call + " --default R").err.empty());
  CHECK(run_tool(call + " --place '.*=S(0)'").err.empty());
  const json told = json::parse(run_tool(call + " --json").out);
  CHECK(told["notes"] == json{"2 tensors match no placement rule and are replicated on all 2 ranks: v, w"});
}

TEST_CASE("a --dtype rule keeps integers, and what a cast cannot hold is refused or counted") {
  const scratch_folder folder;
  const fs::path file = folder / "model.safetensors";
  const std::string step = bytes_of<std::int64_t>({16777217});
  write_safetensors(file, {{"mask", "BOOL", {2}, std::string("\0\1", 2)},
                           {"packed", "U8", {2}, "\xff\x01"},
                           {"step", "I64", {1}, step},
                           {"w", "F32", {2}, bytes_of<float>({1e6F, 0.5F})}});
  const std::string to = (folder / "to.safetensors").string(),
                    call = "convert " + file.string() + " " + to + " --force";
  const auto dtypes = [&] {
    std::string text;
    const json contents = json::parse(run_tool("inspect " + to + " --json").out);
    for (const auto& [key, tensor] : contents["tensors"].items())
      text += key + " " + tensor["dtype"].get<std::string>() + " ";
    return text;
  };
  const auto half = run_tool(call + " --dtype '.*=float16'");
  CHECK(half.status == 0);
  CHECK(dtypes() == "mask bool packed uint8 step int64 w float16 ");
  CHECK(half.err ==
        "note: 1 tensor is cast from float32 to float16, which does not hold every value of float32: w; numbers beyond "
        "65504 become infinity and are not counted\n"
        "note: the cast '.*=float16' leaves 3 tensors as they are: bool (1), uint8 (1), int64 (1); "
        "'.*=uint8:float16' casts uint8\n");
  CHECK(run_tool("diff " + file.string() + " " + to + " --skip w").status == 0);
  const auto named = run_tool(call + " --dtype 'step=int64:float32'");
  CHECK(named.status == 2);
  CHECK(named.err ==
        "step: casting int64 to float32 loses values; pass --allow-narrowing to cast it anyway [narrowing]\n");
  CHECK(run_tool(call + " --dtype 'step=float32'").err ==
        "--dtype 'step=float32' casts nothing: no tensor that it matches is floating: found int64 (1); "
        "'step=int64:float32' casts int64; pass --allow-unused to ignore this [invalid_argument]\n");
  CHECK(
      run_tool(call + " --dtype '.*=float16' --dtype 'w=float64'").err ==
      "--dtype 'w=float64' casts nothing: an earlier rule casts each tensor that it would cast: '.*=float16' casts w; "
      "give it before '.*=float16', or pass --allow-unused to ignore this [invalid_argument]\n");
  const auto allowed = run_tool(call + " --dtype 'step=int64:float32' --allow-narrowing");
  CHECK(allowed.status == 0);
  CHECK(allowed.err ==
        "note: 1 tensor is cast from int64 to float32, which does not hold every value of int64: step\n");
  CHECK(dtypes() == "mask bool packed uint8 step float32 w float32 ");
  CHECK(run_tool(call + " --dtype 'packed=uint8:int64'").err.empty());
}

TEST_CASE("the note about dequantized tensors counts those of the checkpoint, and says so") {
  const scratch_folder folder;
  const fs::path file = folder / "fp8.safetensors";
  const std::string scale = bytes_of<float>({2.0F});
  write_safetensors(file, {{"a.weight", "F8_E4M3", {1, 1}, "\x38"},
                           {"a.weight_scale_inv", "F32", {1, 1}, scale},
                           {"b.weight", "F8_E4M3", {1, 1}, "\x38"},
                           {"b.weight_scale_inv", "F32", {1, 1}, scale}});
  const auto run = run_tool("convert " + file.string() + " " + (folder / "a.safetensors").string() +
                            " --dequantize --only 'a\\.weight'");
  CHECK(run.status == 0);
  CHECK(run.out.ends_with(": wrote 1 tensor (4 bytes) in 1 file; excluded 1 entry\n"));
  CHECK(run.err ==
        "note: the checkpoint has 2 tensors of FP8 blocks, read as float32; a quantization_config in a config.json is "
        "not changed\n");
}
