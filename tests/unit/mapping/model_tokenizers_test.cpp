// SPDX-License-Identifier: Apache-2.0
// Tests the tokenizers that a mapping to llama.cpp's names takes from a Hugging Face folder: byte-level BPE of
// tokenizer.json, pieces of tokenizer.model, special tokens, and chat templates; and what is said about wrong files.
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_folder.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;

namespace {

using values = std::map<std::string, std::string>;

constexpr std::string_view llama_config = R"({"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 6})";

// A tokenizer.json; `model` has further members of its model, and `others` further members around it.
std::string byte_tokenizer(std::string_view model = "", std::string_view others = "") {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])" + std::string(model) +
         R"(}, "added_tokens": [{"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "x▁y"}])" +
         std::string(others) + "}";
}

// A step of a pre-tokenizer with this expression, as JSON, followed by the bytes of GPT-2.
std::string split_by(std::string_view expression) {
  std::string spelled;
  for (const char c : expression) spelled += c == '\\' ? std::string("\\\\") : std::string(1, c);
  return R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": ")" +
         spelled + R"("}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})";
}

// Fields of Protocol Buffers: a number, bytes, and a float32.
std::string varint(std::uint64_t number) {
  std::string made;
  for (; number >= 128; number >>= 7) made += static_cast<char>((number & 127) | 128);
  return made + static_cast<char>(number);
}
std::string field(std::uint64_t name, std::string_view bytes) {
  return varint(name << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string piece(std::string_view text, float score, std::uint64_t type) {
  std::string number;
  for (int shift = 0; shift < 32; shift += 8)
    number += static_cast<char>((std::bit_cast<std::uint32_t>(score) >> shift) & 255);
  return field(1, field(1, text) + varint(2 << 3 | 5) + number + varint(3 << 3) + varint(type));
}

// The mapped values of a folder with this tokenizer.json.
values of_tokenizer(model_folder& model, const std::string& tokenizer) {
  model.write("config.json", llama_config);
  model.write("tokenizer.json", tokenizer);
  return model.map("gguf.llama");
}

}  // namespace

TEST_CASE("the tokens of byte-level BPE are those of the embedding's rows, each with its type") {
  model_folder model;
  const values made = of_tokenizer(model, byte_tokenizer());
  CHECK(made.at("tokenizer.ggml.model") == "\"gpt2\"");
  CHECK(made.at("tokenizer.ggml.tokens") == R"(["a","b","ab","<s>","x y","[PAD5]"])");
  CHECK(made.at("tokenizer.ggml.token_type") == "[1,1,1,3,4,5]");
  CHECK(made.at("tokenizer.ggml.merges") == R"(["a b"])");
  CHECK_FALSE(made.contains("tokenizer.ggml.scores"));
}

TEST_CASE("spaces inside the tokens of a merge become the character of GPT-2") {
  model_folder model;
  const std::string text =
      R"({"model": {"vocab": {"a": 0}, "merges": [["a b", "c"], ["d", "e"]]}, "added_tokens": []})";
  CHECK(of_tokenizer(model, text).at("tokenizer.ggml.merges") ==
        "[\"a\xC4\xA0"
        "b c\",\"d e\"]");
}

TEST_CASE("the expressions of a pre-tokenizer have llama.cpp's name, and unknown ones are named as missing") {
  model_folder model;
  const auto name = [&](const std::string& tokenizer) {
    const values made = of_tokenizer(model, tokenizer);
    const auto found = made.find("tokenizer.ggml.pre");
    return found == made.end() ? std::string() : found->second;
  };
  constexpr std::string_view llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                                      R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  CHECK(name(byte_tokenizer(R"(, "ignore_merges": true)", split_by(llama3))) == "\"llama-bpe\"");
  CHECK(name(byte_tokenizer("", split_by(llama3))) == "\"dbrx\"");
  constexpr std::string_view qwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                                     R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  CHECK(name(byte_tokenizer("", split_by(qwen2))) == "\"qwen2\"");
  CHECK(name(byte_tokenizer("", R"(, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false})")) ==
        "\"gpt-2\"");
  CHECK(name(byte_tokenizer("", R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "add_prefix_space": false}]})")) ==
        "\"smollm\"");
  CHECK_FALSE(model.notes("tokenizer.ggml.pre"));
  for (const std::string& unknown : {split_by("[a-z]+"), std::string()}) {
    CHECK(name(byte_tokenizer("", unknown)).empty());
    CHECK(model.notes("tokenizer.ggml.pre is missing"));
    CHECK(model.notes("gguf-new-metadata --pre-tokenizer"));
  }
}

TEST_CASE("special tokens are found by their texts, and then by the ids of the configuration") {
  model_folder model;
  model.write("tokenizer_config.json",
              R"({"bos_token": {"content": "<s>"}, "eos_token": "gone", "add_bos_token": true, "pad_token": null})");
  model.write("config.json", R"({"model_type": "llama", "eos_token_id": 2, "pad_token_id": 9})");
  model.write("tokenizer.json", byte_tokenizer());
  const values made = model.map("gguf.llama");
  CHECK(made.at("tokenizer.ggml.bos_token_id") == "3");
  CHECK(made.at("tokenizer.ggml.eos_token_id") == "2");
  CHECK(made.at("tokenizer.ggml.add_bos_token") == "true");
  CHECK_FALSE(made.contains("tokenizer.ggml.padding_token_id"));
  CHECK(model.notes("tokenizer.ggml.padding_token_id (no token has the id 9)"));
}

TEST_CASE("the template around a text says which special tokens are added") {
  model_folder model;
  model.write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  const values made = of_tokenizer(model, byte_tokenizer("", R"(, "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}},
                 {"Sequence": {"id": "B"}}]})"));
  CHECK(made.at("tokenizer.ggml.add_bos_token") == "true");
  CHECK(made.at("tokenizer.ggml.add_sep_token") == "false");
  CHECK_FALSE(made.contains("tokenizer.ggml.add_eos_token"));
}

TEST_CASE("a chat template is that of tokenizer_config.json, or of a file of its own") {
  model_folder model;
  model.write("chat_template.jinja", "{{ of_file }}");
  CHECK(of_tokenizer(model, byte_tokenizer()).at("tokenizer.chat_template") == "\"{{ of_file }}\"");
  model.write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "{{ usual }}"},
                                                             {"name": "tool use", "template": "{{ tools }}"}]})");
  const values made = of_tokenizer(model, byte_tokenizer());
  CHECK(made.at("tokenizer.chat_template") == "\"{{ usual }}\"");
  CHECK(made.at("tokenizer.chat_template.tool_use") == "\"{{ tools }}\"");
  CHECK(made.at("tokenizer.chat_templates") == R"(["tool_use"])");
}

TEST_CASE("the pieces of a tokenizer.model keep their scores, and added tokens replace them") {
  model_folder model;
  model.write("config.json", llama_config);
  model.write("tokenizer.model", piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("<0x0A>", 0, 6) +
                                     piece("▁a", -1.5F, 1) + field(2, "a setting of the training"));
  model.write("tokenizer_config.json", R"({"add_prefix_space": false,
                                           "added_tokens_decoder": {"4": {"content": "<|end|>", "special": false}}})");
  const values made = model.map("gguf.llama");
  CHECK(made.at("tokenizer.ggml.model") == "\"llama\"");
  CHECK(made.at("tokenizer.ggml.pre") == "\"default\"");
  CHECK(made.at("tokenizer.ggml.tokens") == "[\"<unk>\",\"<s>\",\"<0x0A>\",\"▁a\",\"<|end|>\",\"[PAD5]\"]");
  CHECK(made.at("tokenizer.ggml.token_type") == "[2,3,6,1,3,5]");
  CHECK(made.at("tokenizer.ggml.scores").find("\"-0x1.8000000000000p+0\"") != std::string::npos);
  CHECK(made.at("tokenizer.ggml.add_space_prefix") == "false");
}

TEST_CASE("pieces beyond the rows of the embedding are counted") {
  model_folder model(2);
  model.write("config.json", llama_config);
  model.write("tokenizer.model", piece("a", 0, 1) + piece("b", 0, 1) + piece("c", 0, 1) + piece("d", 0, 1));
  CHECK(model.map("gguf.llama").at("tokenizer.ggml.tokens") == R"(["a","b"])");
  CHECK(model.notes("2 tokens of the tokenizer not used: the embedding has 2 rows"));
}

TEST_CASE("BPE that falls back to bytes has the negative ranks of its merges as scores") {
  model_folder model;
  const values made = of_tokenizer(model, byte_tokenizer(R"(, "byte_fallback": true)"));
  CHECK(made.at("tokenizer.ggml.model") == "\"llama\"");
  CHECK(made.at("tokenizer.ggml.token_type") == "[1,1,1,3,4,5]");
  CHECK(made.at("tokenizer.ggml.scores")
            .starts_with(
                R"([{"$float":"-0x1.0000000000000p+0"},{"$float":"-0x1.0000000000000p+0"},{"$float":"0x0.0p+0"})"));
  model.write("config.json", R"({"model_type": "gpt_oss", "num_hidden_layers": 1})");
  CHECK_FALSE(model.map("gguf.gpt-oss").contains("tokenizer.ggml.model"));
  CHECK(model.notes("the architecture gpt-oss has no such tokenizer"));
}

TEST_CASE("a wrong tokenizer is left out, and a note names the file and the token") {
  model_folder model;
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[", "the tokenizer is not a JSON object"},
      {std::string(100, '['), "tokenizer.json"},
      {R"({"model": {"type": "Unigram"}})", "the tokenizer is of another kind: expected BPE, found Unigram"},
      {R"({"model": {"vocab": {"a": 0, "b": 0}, "merges": []}})", "b: two tokens have the same id"},
      {R"({"model": {"vocab": {"a": -1}, "merges": []}})", "a: a token has no valid id"},
      {R"({"model": {"vocab": {"a": 99999999}, "merges": []}})", "a: a token has no valid id"},
      {R"({"model": {"vocab": {"a": 6}, "merges": []}})", "a: a token has no row in the embedding"},
      {R"({"model": {"vocab": {"a": 0}, "merges": ["ab"]}})", "a merge does not have two tokens"},
      {R"({"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": [{"id": 0, "content": "b"}]})",
       "b: an added token has the id of another token"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    const values made = of_tokenizer(model, text);
    CHECK(made.contains("llama.block_count"));
    CHECK_FALSE(made.contains("tokenizer.ggml.tokens"));
    CHECK(model.notes("the tokenizer is missing: "));
    CHECK(model.notes("tokenizer.json"));
    CHECK(model.notes(message));
  }
}

TEST_CASE("a damaged tokenizer.model is left out, and a note says so") {
  model_folder model;
  model.write("config.json", llama_config);
  const std::string whole = piece("abc", 0, 1);
  for (const std::string& text : {std::string(), whole.substr(0, whole.size() - 1), std::string("\x0B"),
                                  std::string(11, '\xFF'), piece("a", 0, 7), piece("\xFF", 0, 1)}) {
    model.write("tokenizer.model", text);
    CHECK_FALSE(model.map("gguf.llama").contains("tokenizer.ggml.tokens"));
    CHECK(model.notes("the file is not a model of SentencePiece"));
  }
}

TEST_CASE("a folder without a tokenizer is named, with the way to save one") {
  model_folder model;
  model.write("config.json", llama_config);
  CHECK_FALSE(model.map("gguf.llama").contains("tokenizer.ggml.model"));
  CHECK(model.notes("the folder has no tokenizer"));
  CHECK(model.notes("save_pretrained"));
}

TEST_CASE("links that lead out of the folder are not followed") {
  model_folder model;
  const scratch_folder elsewhere;
  std::ofstream(elsewhere / "secret") << "a secret";
  std::filesystem::create_symlink(elsewhere / "secret", model.folder / "chat_template.jinja");
  const values made = of_tokenizer(model, byte_tokenizer());
  CHECK_FALSE(made.contains("tokenizer.chat_template"));
  CHECK(model.notes("a link that leads out of the folder"));
}
