// SPDX-License-Identifier: Apache-2.0
// Tests checkpoints that are shown under another convention: stacked experts, filler, repetitions, operations on
// values, ties, and the errors of a mapping that does not fit.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <safetensors_files.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;
using small_tensors::counted;
using small_tensors::tensors;

namespace {

constexpr std::string_view head = "left = 'a'\nright = 'b'\n";

std::string rules_text(std::string_view rest) {
  return std::string(head) + std::string(rest);
}

std::unique_ptr<checkpoint_reader> written(const scratch_folder& folder, tensors all) {
  small_tensors::write(folder / "a.safetensors", all);
  return open_checkpoint(folder / "a.safetensors").value();
}

result<std::unique_ptr<checkpoint_reader>> shown(const scratch_folder& folder, tensors all, std::string_view rest,
                                                 const model_sizes& sizes = {}) {
  auto inner = written(folder, std::move(all));
  auto bound = bind_mapping(parse_mapping(rules_text(rest)).value(), inner->contents(), sizes);
  if (!bound) return std::move(bound).error();
  return mapped(std::move(inner), *std::move(bound), {.check_sums = true});
}

error refusal(tensors all, std::string_view rest, const model_sizes& sizes = {}) {
  const scratch_folder folder;
  auto made = shown(folder, std::move(all), rest, sizes);
  REQUIRE_FALSE(made);
  return std::move(made).error();
}

}  // namespace

TEST_CASE("experts of a layer are stacked, and unstacked") {
  const scratch_folder folder;
  tensors all;
  for (int e = 0; e < 3; ++e)
    all["layers.0.experts." + std::to_string(e) + ".w"] = counted({2, 4}, static_cast<float>(e * 8));
  constexpr std::string_view rules =
      "[captures]\nlayer = 'layers'\nexpert = 'experts'\n"
      "[[rule]]\nleft = 'layers.{layer}.experts.{expert}.w'\nright = 'layers.{layer}.w'\nindex = 'w: o i -> s: expert "
      "i o'\n";
  const model_sizes sizes{{{"layers", 1}, {"experts", 3}}, {}};
  auto reader = shown(folder, all, rules, sizes).value();
  auto stacked = small_tensors::read_all(*reader);
  REQUIRE(stacked.size() == 1);
  const auto& made = stacked.at("layers.0.w");
  CHECK(made.shape == extents{3, 4, 2});
  for (std::size_t e = 0; e < 3; ++e)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t o = 0; o < 2; ++o)
        CHECK(made.values[(e * 4 + i) * 2 + o] == static_cast<float>(e * 8 + o * 4 + i));
  small_tensors::write(folder / "b.safetensors", stacked);
  auto inner = open_checkpoint(folder / "b.safetensors").value();
  auto bound = bind_mapping(parse_mapping(rules_text(rules)).value().inverse(), inner->contents(), sizes).value();
  CHECK(bound.tensors.size() == 3);
  const auto back = mapped(std::move(inner), std::move(bound)).value();
  CHECK(small_tensors::read_all(*back) == all);
}

TEST_CASE("one tensor is split into three") {
  const scratch_folder folder;
  const auto reader =
      shown(folder, {{"l.0.qkv", counted({8, 2})}},
            "[captures]\nlayer = 1\n[sizes]\nq = 2\nkv = 1\nd = 2\n[[rule]]\nleft.qkv = "
            "'l.{layer}.qkv'\nright.q = 'r.{layer}.q'\nright.k = 'r.{layer}.k'\nright.v = "
            "'r.{layer}.v'\nindex = 'qkv: [q:(q d) | k:(kv d) | v:(kv d)] h -> q: (q d) h, k: (kv d) h, v: "
            "(kv d) h'\n")
          .value();
  CHECK(small_tensors::read_all(*reader) ==
        tensors{{"r.0.q", counted({4, 2})}, {"r.0.k", counted({2, 2}, 8)}, {"r.0.v", counted({2, 2}, 12)}});
}

TEST_CASE("experts are stacked in the opposite order by an expression in their names") {
  const scratch_folder folder;
  tensors all;
  for (int e = 0; e < 3; ++e)
    all["experts." + std::to_string(e) + ".weight"] = counted({1, 2}, static_cast<float>(e * 2));
  const auto reader = shown(folder, all,
                            "[sizes]\nn = 3\n[captures]\nexpert = 'n'\n[[rule]]\nleft = 'experts.{n - 1 - "
                            "expert}.weight'\nright = 'all'\nindex = 'one: f h -> all: expert f h'\n")
                          .value();
  CHECK(small_tensors::read_all(*reader).at("all").values == std::vector<float>{4, 5, 2, 3, 0, 1});
}

TEST_CASE("a padded vocabulary is filled with zeros, and cut on the way back") {
  const scratch_folder folder;
  constexpr std::string_view rules =
      "[sizes]\nv = 'vocabulary'\npad = '-v % 4'\n[[rule]]\nleft = 'e'\nright = 'p'\nindex = 'w: v h -> p: [w:v | "
      "_:pad] h'\n";
  const model_sizes sizes{{{"vocabulary", 5}}, {}};
  auto reader = shown(folder, {{"e", counted({5, 2}, 1)}}, rules, sizes).value();
  auto padded = small_tensors::read_all(*reader);
  CHECK(padded.at("p").values == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0});
  CHECK(std::any_of(reader->notes().begin(), reader->notes().end(),
                    [](const std::string& note) { return note.find("6 elements") != std::string::npos; }));
  small_tensors::write(folder / "b.safetensors", padded);
  auto inner = open_checkpoint(folder / "b.safetensors").value();
  auto bound = bind_mapping(parse_mapping(rules_text(rules)).value().inverse(), inner->contents(), sizes).value();
  CHECK(bound.dropped_elements == 6);
  const auto back = mapped(std::move(inner), std::move(bound)).value();
  CHECK(small_tensors::read_all(*back) == tensors{{"e", counted({5, 2}, 1)}});
}

TEST_CASE("repetitions must agree on the way back") {
  const scratch_folder folder;
  constexpr std::string_view rules =
      "[sizes]\nn = 2\n[[rule]]\nleft = 'k'\nright = 'r'\nindex = 'k: g d -> r: (g n*) d'\n";
  auto reader = shown(folder, {{"k", counted({2, 2}, 1)}}, rules).value();
  auto repeated = small_tensors::read_all(*reader);
  CHECK(repeated.at("r").values == std::vector<float>{1, 2, 1, 2, 3, 4, 3, 4});
  const auto back = [&](tensors all) {
    small_tensors::write(folder / "b.safetensors", all);
    auto inner = open_checkpoint(folder / "b.safetensors").value();
    auto bound = bind_mapping(parse_mapping(rules_text(rules)).value().inverse(), inner->contents(), {}).value();
    auto made = mapped(std::move(inner), std::move(bound)).value();
    auto read = load_tensor(*made, "k");
    std::filesystem::remove(folder / "b.safetensors");
    return read;
  };
  CHECK(back(repeated));
  repeated.at("r").values[3] = 7;
  const auto wrong = back(repeated);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == errc::disagreement);
  CHECK(wrong.error().key == "k");
}

TEST_CASE("operations on values are applied in order, and undone by the inverse") {
  const scratch_folder folder;
  constexpr std::string_view rules = "[[rule]]\nleft = 'w'\nright = 'v'\nvalues = ['x * 2', 'x + 1', '-x']\n";
  auto reader = shown(folder, {{"w", counted({3}, 1)}}, rules).value();
  auto made = small_tensors::read_all(*reader);
  CHECK(made.at("v").values == std::vector<float>{-3, -5, -7});
  small_tensors::write(folder / "b.safetensors", made);
  auto inner = open_checkpoint(folder / "b.safetensors").value();
  auto bound = bind_mapping(parse_mapping(rules_text(rules)).value().inverse(), inner->contents(), {}).value();
  const auto back = mapped(std::move(inner), std::move(bound)).value();
  CHECK(small_tensors::read_all(*back).at("w").values == std::vector<float>{1, 2, 3});
}

TEST_CASE("operations on values leave filler zero") {
  const scratch_folder folder;
  constexpr std::string_view rules =
      "[sizes]\npad = 2\n[[rule]]\nleft = 'w'\nright = 'p'\nindex = 'w: v -> p: [_:pad | w:v]'\nvalues = ['x + 1']\n";
  auto reader = shown(folder, {{"w", counted({3}, 1)}}, rules).value();
  CHECK(small_tensors::read_all(*reader).at("p").values == std::vector<float>{0, 0, 2, 3, 4});
  CHECK(small_tensors::read(*reader, "p", {{1}, {2}}).values == std::vector<float>{0, 2});
}

TEST_CASE("operations that turn a finite value into NaN or infinity are refused with the element's place") {
  const auto refused = [](tensors all, std::string_view values, std::string_view index = "") {
    const scratch_folder folder;
    std::string rules = "[sizes]\npad = 2\n[[rule]]\nleft = 'w'\nright = 'v'\nvalues = [" + std::string(values) + "]\n";
    if (!index.empty()) rules += "index = '" + std::string(index) + "'\n";
    auto reader = shown(folder, std::move(all), rules).value();
    auto read = load_tensor(*reader, "v");
    return read ? error{} : std::move(read).error();
  };
  const error zero = refused({{"w", counted({2, 3}, -2)}}, "'log(x)'");  // -2 is the first element
  CHECK(zero.code == errc::invalid_argument);
  CHECK(zero.key == "v");
  CHECK(zero.boxes == std::vector<box>{{{0, 0}, {1, 1}}});
  const error transposed = refused({{"w", counted({2, 3}, -2)}}, "'x + 2', 'log(x)'", "w: a b -> v: b a");
  CHECK(transposed.boxes == std::vector<box>{{{0, 0}, {1, 1}}});
  CHECK(transposed.found == "-2 becomes -inf");
  // Finite in float64, but not in float32.
  const error large = refused({{"w", counted({2, 2}, 0)}}, "'x * 2e38'");
  CHECK(large.boxes == std::vector<box>{{{1, 0}, {1, 1}}});
  CHECK(large.found == "2 becomes inf");
  // Values that are not finite before, and filler, are no reason to refuse.
  CHECK(refused({{"w", small_tensors::tensor{{2}, {HUGE_VALF, NAN}}}}, "'log(x)'").code == errc::ok);
  CHECK(refused({{"w", counted({3}, 1)}}, "'log(x)'", "w: n -> p: [_:pad | w:n]").code == errc::ok);
}

TEST_CASE("a note names tensors whose operations on values are rounded to a short dtype") {
  const auto notes_of = [](dtype type, std::string_view values) {
    const scratch_folder folder;
    alignas(8) const std::array<std::byte, 8> zeros{};  // two elements
    const const_tensor_view memory{zeros.data(), type, {}, {2}, {1}};
    std::vector<save_tensor> saved;
    for (const char* const key : {"v", "w"}) {
      save_tensor made{key, {}, {2}, {}};
      made.parts.push_back({box::whole({2}), memory, 0});
      saved.push_back(std::move(made));
    }
    save(folder / "a.safetensors", saved, target_format::safetensors, save_options{.durable = false}).value();
    auto inner = open_checkpoint(folder / "a.safetensors").value();
    const std::string rules =
        rules_text("[[rule]]\nleft = 'v'\nright = 'x'\nvalues = [" + std::string(values) + "]\n[rename]\n'w' = 'y'\n");
    bound_mapping bound = bind_mapping(parse_mapping(rules).value(), inner->contents(), {}).value();
    const auto reader = mapped(std::move(inner), std::move(bound)).value();
    return reader->notes();
  };
  const std::string note =
      "the operations on values of 1 tensor are rounded to bfloat16, the first of them x; a cast to float32 before the "
      "mapping keeps more digits";
  const auto has = [&](const std::vector<std::string>& notes) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  CHECK(has(notes_of(dtype::bfloat16, "'x + 1'")));
  CHECK_FALSE(has(notes_of(dtype::bfloat16, "'-x'")));
  CHECK_FALSE(has(notes_of(dtype::float32, "'x + 1'")));
}

TEST_CASE("rules that would lose elements or leave a tensor are refused") {
  const auto code_of = [](tensors all, std::string_view rest, const model_sizes& sizes = {}) {
    return refusal(std::move(all), rest, sizes).code;
  };
  // A repetition of size 0 has no element of the other side.
  constexpr std::string_view repeated = "[[rule]]\nleft = 'r'\nright = 'k'\nindex = 'r: (g n*) h -> k: g h'\n";
  CHECK(code_of({{"r", counted({0, 4})}}, repeated, {{}, {{"n", 0}, {"g", 2}}}) == errc::invalid_argument);
  // More dimensions than a tensor can have, by captures of a name.
  std::string captures = "[captures]\n", name;
  for (int i = 0; i < 20; ++i) {
    captures += "c" + std::to_string(i) + " = 1\n";
    name += (i > 0 ? "+c" : "c") + std::to_string(i);
  }
  CHECK(code_of({{"x.0", counted({2})}}, captures + "[[rule]]\nleft = 'x.{" + name +
                                             "}'\nright = 'y'\nindex = 'x: h -> y: h'\n") == errc::rank_too_large);
  CHECK(code_of({{"x", counted({2})}}, captures + "[[rule]]\nleft = 'x'\nright = 'y.{" + name +
                                           "}'\nindex = 'x: h -> y: h'\n") == errc::rank_too_large);
  // Tensors that would be stacked over no values of a capture; a neighbour of the rule is not blamed for them.
  const error none = refusal({{"x", counted({2})}},
                             "[captures]\nn = 0\n[[rule]]\nleft.a = 'l.{n}'\nleft.x = 'x'\nright = 'y'\n"
                             "index = 'a: d, x: d -> y: [a:(n d) | x:d]'\n");
  CHECK(none.code == errc::invalid_argument);
  CHECK(none.message.find("'a' is no tensor, because a capture of its name has no values") != std::string::npos);
  // A capture of both names is no size, and a condition has values of such captures only.
  CHECK(code_of({{"x.0", counted({4})}, {"x.1", counted({4})}},
                "[captures]\nn = 2\n[[rule]]\nleft = 'x.{n}'\nright = 'y.{n}'\nindex = 'x: h -> y: [x:h | _:n]'\n") ==
        errc::invalid_argument);
  CHECK(code_of({{"x.0", counted({4})}},
                "[captures]\nn = 1\n[[rule]]\nleft = 'x.{n}'\nright = 'y'\nindex = 'x: h -> y: n h'\nif = 'n < 1'\n") ==
        errc::invalid_argument);
  CHECK(code_of({{"x.0", counted({4})}}, "[sizes]\nn = 7\n[captures]\nn = 1\n[rename]\n'x.{n}' = 'y.{n}'\n") ==
        errc::invalid_argument);
}

TEST_CASE("tied tensors must be equal") {
  constexpr std::string_view rules =
      "[rename]\n'e' = 'embedding'\n[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'e'\n";
  const scratch_folder folder;
  const auto equal = shown(folder, {{"e", counted({3, 2})}, {"head", counted({3, 2})}}, rules).value();
  CHECK(equal->finish_checks());
  CHECK(equal->contents().tensors.size() == 1);
  std::filesystem::remove(folder / "a.safetensors");
  const auto other = shown(folder, {{"e", counted({3, 2})}, {"head", counted({3, 2}, 1)}}, rules).value();
  const auto done = other->finish_checks();
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::disagreement);
  CHECK(done.error().key == "head");
}

TEST_CASE("tied tensors of a sub-byte dtype are compared") {
  constexpr std::string_view rules =
      "[rename]\n'e' = 'embedding'\n[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'e'\n";
  const scratch_folder folder;
  // The bytes of the file are 0 to 255 again and again: tensors of 768 bytes are equal, those of 6 bytes differ.
  const auto finished = [&](const std::string& shape, int bytes) {
    const std::string file = (folder / "a.safetensors").string();
    const std::string entry = "{\"dtype\":\"F6_E2M3\",\"shape\":" + shape + ",\"data_offsets\":[";
    const std::string middle = std::to_string(bytes);
    const std::string json =
        "{\"e\":" + entry + "0," + middle + "]},\"head\":" + entry + middle + "," + std::to_string(2 * bytes) + "]}}";
    std::ofstream(file, std::ios::binary) << safetensors_files::bytes(json, 2 * static_cast<std::size_t>(bytes));
    auto inner = open_checkpoint(file).value();
    auto bound = bind_mapping(parse_mapping(rules_text(rules)).value(), inner->contents(), {});
    REQUIRE(bound);
    return mapped(std::move(inner), *std::move(bound), {.check_sums = true}).value()->finish_checks();
  };
  CHECK(finished("[4,256]", 768));
  const auto done = finished("[2,4]", 6);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::disagreement);
  CHECK(done.error().key == "head");
}

TEST_CASE("tied tensors without plain elements are compared by their content") {
  const std::filesystem::path data = SHARDMESH_TEST_DATA;
  auto inner = open_checkpoint(data / "unusual" / "dcp").value();
  const std::string rules = rules_text(
      "[rename]\n'w' = 'v'\n'empty' = 'none'\n'qc' = 'p'\n[[tie]]\nside = 'left'\nname = 'q'\nsame_as = 'qc'\n");
  auto bound = bind_mapping(parse_mapping(rules).value(), inner->contents(), {});
  REQUIRE(bound);
  const auto reader = mapped(std::move(inner), *std::move(bound), {.check_sums = true}).value();
  const auto done = reader->finish_checks();  // one is qint8, and the other quint8
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::disagreement);
  CHECK(done.error().key == "q");
  CHECK(done.error().message == "the mapping ties this tensor to qc, and their values differ");
}

TEST_CASE("tensors that are tied to each other are not left out") {
  const error e = refusal({{"e", counted({3})}, {"head", counted({3})}},
                          "[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'e'\n[[tie]]\nside = 'left'\nname = "
                          "'e'\nsame_as = 'head'\n");
  CHECK(e.code == errc::missing_key);
  CHECK(e.problem_count() == 2);
  CHECK(e.message.find("no rule uses") != std::string::npos);
}

TEST_CASE("a mapping that does not fit a checkpoint names every problem") {
  constexpr std::string_view fuse =
      "[captures]\nexpert = 2\n[sizes]\nh = 3\n[[rule]]\nname = 'fuse'\nleft = 'e.{expert}.w'\nright = 's'\nindex = "
      "'w: h -> s: expert h'\n";
  SECTION("a missing expert") {
    const error e = refusal({{"e.0.w", counted({3})}}, fuse);
    CHECK(e.code == errc::missing_key);
    CHECK(e.key == "e.1.w");
    CHECK(e.message.find("fuse") != std::string::npos);
  }
  SECTION("a tensor that no rule uses, with the nearest name") {
    const error e = refusal({{"e.0.w", counted({3})}, {"e.1.w", counted({3})}, {"e.2.w", counted({3})}}, fuse);
    CHECK(e.key == "e.2.w");
    CHECK(e.hint.find("e.{expert}.w") != std::string::npos);
  }
  SECTION("another shape than the sizes give") {
    const error e = refusal({{"e.0.w", counted({4})}, {"e.1.w", counted({4})}}, fuse);
    CHECK(e.code == errc::shape_mismatch);
    CHECK(e.expected == "[2, 3]");
    CHECK(e.found == "[2, 4]");
  }
  SECTION("another shape, with the sizes and the numbers that they come from") {
    const std::string_view rules =
        "[sizes]\nn = 'heads'\nd = 'head_dim ?? h / n'\nh = 'hidden ?? 1'\n[[rule]]\nname = 'q'\nleft = 'q'\nright = "
        "'p'\nindex = 'q: (n d) h -> p: (d n) h'\n";
    const error e = refusal({{"q", counted({12, 6})}}, rules,
                            {{{"heads", 3}, {"head_dim", 4}, {"hidden", 8}, {"vocabulary", 5}}, {}});
    CHECK(e.code == errc::shape_mismatch);
    CHECK(e.key == "q");
    CHECK(e.expected == "[12, 8]");
    CHECK(e.found == "[12, 6]");
    CHECK(e.hint ==
          "correct one of the sizes, or the rule: n = 3, d = 4, h = 8, from heads = 3, head_dim = 4, hidden = 8 of the "
          "configuration");
    const error given = refusal({{"q", counted({12, 6})}}, rules, {{{"heads", 3}, {"head_dim", 4}}, {{"h", 8}}});
    CHECK(given.hint ==
          "correct one of the sizes, or the rule: n = 3, d = 4, h = 8, from heads = 3, head_dim = 4 of the "
          "configuration and h = 8 as given");
    const error only_given = refusal({{"q", counted({12, 6})}}, rules, {{}, {{"n", 3}, {"d", 4}, {"h", 8}}});
    CHECK(only_given.hint ==
          "correct one of the sizes, or the rule: n = 3, d = 4, h = 8, with n = 3, d = 4, h = 8 as given");
  }
  SECTION("a dimension that its known factors do not divide, with their origins") {
    const error e = refusal({{"q", counted({10})}},
                            "[sizes]\nn = 'heads'\n[[rule]]\nleft = 'q'\nright = 'p'\nindex = 'q: (n m) -> p: (m n)'\n",
                            {{{"heads", 3}}, {}});
    CHECK(e.code == errc::shape_mismatch);
    CHECK(e.hint == "correct one of the sizes, or the rule: n = 3, from heads = 3 of the configuration");
  }
  SECTION("another shape of the second tensor") {
    const error e = refusal({{"q", counted({4})}, {"k", counted({3})}},
                            "[sizes]\nn = 2\n[[rule]]\nleft.q = 'q'\nleft.k = 'k'\nright = 'qk'\nindex = "
                            "'q: (n m), k: (n m) -> qk: [q:(n m) | k:(n m)]'\n",
                            {{{"m", 2}}, {}});
    CHECK(e.code == errc::shape_mismatch);
    CHECK(e.key == "k");
  }
  SECTION("more names than a checkpoint can have") {
    const error e = refusal({{"a", counted({1})}},
                            "[captures]\nc = 1099511627776\nd = 1099511627776\n[rename]\n'x.{c}.{d}' = 'y.{c}.{d}'\n");
    CHECK(e.code == errc::overflow);
    CHECK(e.found == "c = 1099511627776, d = 1099511627776");
  }
  SECTION("stacked tensors of several shapes") {
    CHECK(refusal({{"e.0.w", counted({3})}, {"e.1.w", counted({4})}}, fuse).code == errc::shape_mismatch);
  }
  SECTION("a tensor that two rules use") {
    const error e = refusal({{"a", counted({3})}}, "[rename]\n'a' = 'b'\n[[rule]]\nleft = 'a'\nright = 'c'\n");
    CHECK(e.code == errc::duplicate_key);
    CHECK(e.key == "a");
  }
  SECTION("a tensor that two rules make") {
    const error e = refusal({{"a", counted({3})}, {"b", counted({3})}},
                            "[[rule]]\nleft = 'a'\nright = 'c'\n[[rule]]\nleft = 'b'\nright = 'c'\n");
    CHECK(e.code == errc::duplicate_key);
    CHECK(e.key == "c");
  }
  SECTION("an unknown size, with the reason") {
    const error e = refusal({{"e.0.w", counted({3})}},
                            "[captures]\nexpert = 'num_experts'\n[[rule]]\nleft = 'e.{expert}.w'\nright = 's'\nindex = "
                            "'w: h -> s: expert h'\n");
    CHECK(e.code == errc::missing_key);
    CHECK(e.message.find("num_experts") != std::string::npos);
  }
  SECTION("a size that does not divide") {
    const error e =
        refusal({{"w", counted({4})}},
                "[sizes]\nd = '10 / 4'\n[[rule]]\nleft = 'w'\nright = 'v'\nindex = 'w: (d x) -> v: (x d)'\n");
    CHECK(e.code == errc::invalid_argument);
    CHECK(e.message.find("'d'") != std::string::npos);
  }
  SECTION("every problem is kept") {
    CHECK(refusal({{"x", counted({1})}, {"y", counted({1})}}, fuse).problem_count() == 4);  // two missing, two unused
  }
}

TEST_CASE("rules apply where their condition and their optional tensors say so") {
  const scratch_folder folder;
  constexpr std::string_view rules =
      "[captures]\nlayer = 3\n"
      "[[rule]]\nleft = 'l.{layer}.dense'\nright = 'r.{layer}.dense'\nif = 'layer < first'\n"
      "[[rule]]\nleft = 'l.{layer}.moe'\nright = 'r.{layer + 10}.moe'\nif = 'layer >= first'\n"
      "[[rule]]\nleft = 'l.{layer}.bias'\nright = 'r.{layer}.bias'\noptional = true\n"
      "[[ignore]]\nside = 'left'\nname = 'l.{layer}.cache'\nreason = 'not a weight'\n";
  const model_sizes sizes{{{"first", 1}}, {}};
  const auto reader = shown(folder,
                            {{"l.0.dense", counted({1})},
                             {"l.1.moe", counted({2})},
                             {"l.2.moe", counted({3})},
                             {"l.1.bias", counted({4})},
                             {"l.2.cache", counted({5})}},
                            rules, sizes)
                          .value();
  std::vector<std::string> keys;
  for (const tensor_entry& entry : reader->contents().tensors) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"r.0.dense", "r.1.bias", "r.11.moe", "r.12.moe"});
  CHECK(std::any_of(reader->notes().begin(), reader->notes().end(), [](const std::string& note) {
    return note.find("l.2.cache") != std::string::npos && note.find("not a weight") != std::string::npos;
  }));
}

TEST_CASE("an optional rule has all of its tensors, or none") {
  constexpr std::string_view rules =
      "[captures]\nlayer = 2\n[sizes]\nn = 2\n[[rule]]\nname = 'qk bias'\nleft.q = 'l.{layer}.q'\nleft.k = "
      "'l.{layer}.k'\nright = 'l.{layer}.qk'\nindex = 'q: n, k: n -> qk: [q:n | k:n]'\noptional = true\n";
  const scratch_folder folder;
  const auto reader = shown(folder, {{"l.1.q", counted({2})}, {"l.1.k", counted({2}, 2)}}, rules).value();
  CHECK(small_tensors::read_all(*reader) == tensors{{"l.1.qk", counted({4})}});
  const error e = refusal({{"l.0.k", counted({2})}, {"l.1.q", counted({2})}, {"l.1.k", counted({2})}}, rules);
  CHECK(e.code == errc::missing_key);
  CHECK(e.problem_count() == 1);
  CHECK(e.key == "l.0.q");
  CHECK(e.message.starts_with("the rule 'qk bias' (line "));
  CHECK(e.message.ends_with(" is optional, and the checkpoint has only some of its tensors"));
  CHECK(e.expected == "all 2 tensors, or none");
  CHECK(e.found == "l.0.k, without l.0.q");
}

TEST_CASE("a tensor that is only filler of a rule is named in a note") {
  const scratch_folder folder;
  constexpr std::string_view rules =
      "[sizes]\nn = 2\nm = 3\n[[rule]]\nname = 'cut'\nleft.w = 'w'\nleft.x = 'x'\nright = 'v'\nindex = 'w: n, x: [_:m] "
      "-> v: n'\n";
  const auto reader = shown(folder, {{"w", counted({2}, 1)}, {"x", counted({3})}}, rules).value();
  CHECK(small_tensors::read_all(*reader) == tensors{{"v", counted({2}, 1)}});
  CHECK(std::any_of(reader->notes().begin(), reader->notes().end(), [](const std::string& note) {
    return note.starts_with("x is not used: the rule 'cut' (line ") && note.ends_with(" has it as filler only");
  }));
}
