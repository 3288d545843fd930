// SPDX-License-Identifier: Apache-2.0
// Tests the command line's messages for wrong usage, and the --json documents when there is no result.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <refusal.hpp>
#include <run_tool.hpp>
#include <string>

using nlohmann::json;

namespace {

// Wrong usage has its own exit status.
std::string misuse(const std::string& arguments) {
  return refusal(arguments, 2);
}

}  // namespace

TEST_CASE("unknown commands and options are named in one line") {
  CHECK(says(misuse("no-such-command"), "unknown command 'no-such-command'"));
  CHECK(says(misuse("--frobnicate"), "unknown option '--frobnicate'"));
  CHECK(says(misuse("inspect --frobnicate"), "shardmesh inspect: unknown option '--frobnicate'"));
  CHECK(says(misuse("verify somewhere --frobnicate 3"), "unknown option '--frobnicate'"));
  CHECK(says(misuse("verify one two"), "unexpected argument 'two'"));
  CHECK(says(misuse(""), "a command is missing"));
  CHECK(says(misuse("diff only_one"), "B is required"));
  CHECK(says(misuse("$'no\\nlines\\e[1m'"), "unknown command"));
}

TEST_CASE("wrong usage shows a URL without its user and its query") {
  const std::string url = "https://me:secret@host/file?X-Amz-Signature=secret", quoted = "'" + url + "'";
  for (const std::string& arguments : {quoted, "verify one " + quoted, "run " + quoted + " list",
                                       "verify --threads " + quoted + " one", "verify one --nothing=" + quoted}) {
    INFO(arguments);
    const std::string text = misuse(arguments);
    CHECK(says(text, "https://host/file'"));
    CHECK(text.find("secret") == std::string::npos);
  }
}

TEST_CASE("values of options that make no sense are named in one plain line") {
  for (const std::string value : {"abc", "-1", "1.5", "99999999999999999999"}) {
    CHECK(says(misuse("inspect x --limit=" + value), "--limit"));
    CHECK(says(misuse("inspect x --limit=" + value), "'" + value + "' is not a whole number of at least 0"));
  }
  for (const std::string value : {"abc", "-1", "nan", "NaN", "-nan", "1e-3x", "inf", "1e999"})
    CHECK(says(misuse("diff x y --tolerance=" + value), "'" + value + "' is not a finite number of at least 0"));
  CHECK(says(misuse("inspect x --threads 99999"), "--threads"));
}

TEST_CASE("an empty value, as from an unset variable of the shell, does not mean that the option is not given") {
  for (const std::string command : {"convert a b --to dcp", "reshard a b --mesh 2", "diff a b", "map check a",
                                    "plan a --from-mesh 2 --from R --to-mesh 2 --to R"})
    CHECK(says(misuse(command + " --map ''"), "--map: '' is an empty value"));
  for (const std::string command : {"convert a b --to dcp --item", "reshard a b --mesh 2 --default",
                                    "reshard a b --place", "convert a b --strip-prefix", "inspect a --only",
                                    "run resume-plan a --default", "convert a b --dtype", "verify a --allow-globals"})
    CHECK(says(misuse(command + " ''"), "''"));
}

TEST_CASE("rules and destinations are refused in the words of the command line, in text and in JSON") {
  const scratch_folder folder;
  const std::string source = SHARDMESH_TEST_DATA "/golden/single_rank/checkpoint", to = (folder / "to").string();
  const std::string other = SHARDMESH_TEST_DATA "/golden/dtensor_shard0_4/checkpoint";
  const auto line = [&](const std::string& arguments, int status, const std::string& text,
                        const std::string& code = "invalid_argument") {
    INFO(arguments);
    const std::string expected = text + " [" + code + "]";
    const auto run = run_tool(arguments);
    CHECK(run.status == status);
    CHECK(run.err == expected + "\n");
    const auto document = json::parse(run_tool(arguments + " --json").out);
    CHECK(document["problems"][0]["text"] == expected);
    CHECK(document["problems"][0]["code"] == code);
  };
  const std::string convert = "convert " + source + " " + to + " --to dcp ",
                    lets = " matches no key; pass --allow-unused to ignore this";
  line(convert + "--only 'no(thing)'", 2, "--only 'no(thing)'" + lets);
  line(convert + "--skip 'a|b'", 2, "--skip 'a|b'" + lets);
  line(convert + "--strip-prefix pre.", 2, "--strip-prefix 'pre.'" + lets);
  line(convert + "--rename 'q+=r'", 2, "--rename 'q+=r'" + lets);
  line(convert + "--dtype 'z+=half'", 2, "--dtype 'z+=half'" + lets);
  line(convert + "--only 'a('", 2, "--only 'a(': missing ): a(");
  line(convert + "--rename abc", 2, "--rename 'abc' is not RE=REPLACEMENT");
  line(convert + "--dtype ':float32'", 2, "--dtype ':float32': the name of a dtype is missing");
  const auto unused = [&](const std::string& option, const std::string& name, const std::string& options,
                          const std::string& formats) {
    line("convert " + source + " " + to + name + " " + option, 2,
         to + name + ": " + options + " only to " + formats + ": found " + name.substr(1) + "; leave it out");
  };
  unused("--max-shard-size 1MB", ".safetensors", "--max-shard-size applies", "hf");
  unused("--max-shard-size 1MB", ".pt", "--max-shard-size applies", "hf");
  unused("--nest", ".npz", "--nest applies", "dcp, pt, and torch-checkpointing");
  unused("--item a", ".gguf", "--item and --payload apply", "torch-checkpointing");
  unused("--quantize Q8_0", ".pt", "--quantize applies", "gguf");
  CHECK(run_tool("convert " + source + " -- -x --to dcp").err ==
        "shardmesh convert: unexpected argument '--to'; put options before -- (see 'shardmesh convert --help') "
        "[invalid_argument]\n");
  line(convert + "--dtype floaty", 2, "--dtype 'floaty': no dtype is called floaty; did you mean float32?");
  line("reshard " + source + " " + to + " --mesh 2 --place 'q+=R'", 2,
       "rule 'q+' matches no tensor; patterns match whole keys; pass --allow-unused to ignore this");
  line("reshard " + source + " " + to + " --mesh 2 --place '(=R'", 2, "'(' is not a regular expression: missing ): (");
  REQUIRE(run_tool(convert).status == 0);
  line(convert, 2, to + ": exists already; pass --force to replace it", "destination_exists");
  const auto like = run_tool("reshard " + source + " " + (folder / "like").string() + " --like " + other);
  CHECK(like.status == 1);
  CHECK(like.err.find(": the checkpoint given by --like has no such tensor") != std::string::npos);
}

TEST_CASE("with --json, one valid document even when there is nothing to open") {
  const scratch_folder folder;
  const std::string nothing = (folder / "nothing").string();
  for (const std::string& command : {"inspect " + nothing, "verify " + nothing, "diff " + nothing + " " + nothing,
                                     "inspect " + (folder / "").string(), "verify " + (folder / "").string()}) {
    INFO(command);
    const auto run = run_tool(command + " --json");
    CHECK(run.status != 0);
    CHECK(run.error_lines() == 1);
    const json document = json::parse(run.out);
    REQUIRE(document["problems"].size() == 1);
    CHECK(run.err == document["problems"][0]["text"].get<std::string>() + "\n");
    const auto plain = run_tool(command);
    CHECK(plain.status == run.status);
    CHECK(plain.err == run.err);
    CHECK(plain.out.empty());
  }
}

TEST_CASE("with --json, wrong usage is one valid document as well, and the line on stderr is its text") {
  for (const std::string command : {"--json",
                                    "no-such-command --json x",
                                    "inspect --json",
                                    "inspect x --json --frobnicate",
                                    "inspect --json x y",
                                    "inspect x --json --limit=abc",
                                    "verify --json",
                                    "diff a --json",
                                    "diff a b --json --tolerance=nan",
                                    "convert --json a",
                                    "convert --json a b --to nothing",
                                    "convert --json a b --memory lots",
                                    "reshard --json a b",
                                    "reshard --json a b --mesh x",
                                    "reshard --json a b --mesh 2 --place 'w=Q'",
                                    "layout --json",
                                    "layout --json --shape x --mesh 2 --place R",
                                    "layout --json --shape 4 --mesh 2 --place 'S(3)'",
                                    "plan --json --shape 4 --from-mesh 2 --from R --to-mesh 2 --to R --dtype no",
                                    "check-shards --json",
                                    "inspect --json x --threads 99999"}) {
    INFO(command);
    const auto run = run_tool(command);
    CHECK(run.status == 2);
    CHECK(run.error_lines() == 1);
    const json document = json::parse(run.out);
    CHECK(document["ok"] == false);
    REQUIRE(document["problems"].size() == 1);
    CHECK(run.err == document["problems"][0]["text"].get<std::string>() + "\n");
  }
}

TEST_CASE("the option --json=VALUE asks for a document wherever it sets the flag") {
  for (const char* const value : {"true", "1", "yes", "TRUE", "on"}) {
    INFO(value);
    const auto run = run_tool("map show a key --map no:where --json=" + std::string(value));
    CHECK(run.status == 2);
    REQUIRE(json::accept(run.out));
    const json document = json::parse(run.out);
    CHECK(document["ok"] == false);
    CHECK(document["problems"][0]["code"] == "invalid_argument");
    for (const char* const name :
         {"key", "dtype", "shape", "from", "to", "rule", "index", "values", "sources", "boxes", "more_boxes"})
      CHECK(document.contains(name));
  }
  for (const char* const value : {"false", "0", "no"})
    CHECK(run_tool("map show a key --map no:where --json=" + std::string(value)).out.empty());
}

TEST_CASE("commands that open checkpoints take --cache, and refuse it where they open none") {
  const scratch_folder folder;
  const std::string source = SHARDMESH_TEST_DATA "/golden/single_rank/checkpoint", cache = (folder / "cache").string();
  const std::string sides = " --from-mesh 2 --from R --to-mesh 2 --to R --cache " + cache;
  for (const std::string& call :
       {"inspect " + source + " --cache " + cache, "plan " + source + sides,
        "delta make " + source + " " + source + " " + (folder / "a.delta").string() + " --cache " + cache}) {
    INFO(call);
    std::filesystem::remove_all(cache);
    CHECK(run_tool(call).status == 0);
    CHECK(std::filesystem::is_directory(cache));
  }
  const auto refuses = [](const std::string& call, const std::string& text) {
    const auto run = run_tool(call);
    CHECK(run.status == 2);
    CHECK(run.err == text + "; leave it out [invalid_argument]\n");
  };
  refuses("plan --shape 4" + sides, "--cache is for the plan of a checkpoint");
  refuses("map list --cache " + cache, "--cache is an option of 'map check' and 'map show' only");
}

TEST_CASE("map refuses each option that the action does not use, and names it") {
  for (const std::string action : {"list", "print hf.llama:megatron.gpt"}) {
    for (const std::string option : {"--map x", "--map x --inverse", "--map x --config c.json", "--map x --size n=1"}) {
      INFO(action << " " << option);
      const auto run = run_tool("map " + action + " " + option);
      CHECK(run.status == 2);
      CHECK(run.out.empty());
      CHECK(run.err == "--map is an option of 'map check' and 'map show' only; leave it out [invalid_argument]\n");
    }
  }
  for (const std::string action : {"list", "print hf.llama:megatron.gpt", "check a --map x:y"})
    for (const std::string option : {"--json", "--svg a.svg", "--html a.html", "--force"}) {
      INFO(action << " " << option);
      const auto run = run_tool("map " + action + " " + option);
      CHECK(run.status == 2);
      CHECK(run.err ==
            option.substr(0, option.find(' ')) + " is an option of 'map show' only; leave it out [invalid_argument]\n");
    }
}

TEST_CASE("inspect --json of a damaged checkpoint names the problem in the document") {
  const scratch_folder folder;
  const auto file = folder / "model.safetensors";
  std::ofstream(file) << "no header";
  const auto run = run_tool("inspect " + file.string() + " --json");
  CHECK(run.status == 1);
  CHECK(run.error_lines() == 1);
  CHECK(json::parse(run.out)["problems"].size() == 1);
  CHECK(json::parse(run.out)["more_problems"] == 0);
  CHECK(json::parse(run.out)["ok"] == false);
  CHECK(json::parse(run.out)["tensors"].empty());
}

TEST_CASE("a picture that cannot be written is an error with its name, and nothing is left") {
  const scratch_folder folder;
  const auto picture = folder / "no" / "picture.svg";
  const std::string call = "layout --shape 4 --mesh 2 --place 'S(0)' --svg ";
  const auto run = run_tool(call + picture.string() + " --json");
  CHECK(run.status == 3);
  CHECK(run.err == picture.string() + ": cannot write: No such file or directory [io]\n");
  CHECK(json::parse(run.out)["problems"][0]["file"] == picture.string());
  const auto full = run_tool(call + "/dev/full");
  CHECK(full.status == 3);
  CHECK(full.err == "/dev/full: cannot write: No space left on device [no_space]\n");
  CHECK(run_tool(call + (folder / "picture.svg").string()).status == 0);
  CHECK(read_text(folder / "picture.svg").starts_with("<svg"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder / ""), {}) == 1);
}
