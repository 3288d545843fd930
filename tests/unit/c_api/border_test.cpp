// SPDX-License-Identifier: Apache-2.0
// Tests misuse at the C interface: null pointers, structs of other versions, wrong handles, negative and absurd
// numbers.
#include <array>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <golden.hpp>
#include <limits>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.core;

using namespace c_answers;

namespace {

std::string golden_path() {
  return (golden::folder() / "fsdp2_tp_2x2/checkpoint").string();
}

// Calls `call`, frees its error, and returns "STATUS: text".
template <class Call>
std::string told(Call&& call) {
  shardmesh_error* error = nullptr;
  const shardmesh_status status = call(&error);
  std::string made = std::string(shardmesh_status_name(status)) + ": " + shardmesh_error_text(error);
  CHECK(shardmesh_error_status(error) == status);
  shardmesh_error_free(error);
  return made;
}

std::string is_null(const char* argument) {
  return std::string("invalid_argument: the argument ") + argument + " is null";
}

}  // namespace

TEST_CASE("the versions are those of the header") {
  CHECK(shardmesh_c_api_version() == SHARDMESH_C_API_VERSION);
  CHECK(std::string(shardmesh_library_version()) == "0.1.0");
}

TEST_CASE("a null handle, path or result is an error that names the argument") {
  const c::checkpoint from = c::checkpoint::open(golden_path());
  shardmesh_checkpoint* made = nullptr;
  shardmesh_verify_report* verified = nullptr;
  shardmesh_diff_report* compared = nullptr;
  shardmesh_layout* layout = nullptr;
  shardmesh_plan* plan = nullptr;
  std::size_t count = 0;
  shardmesh_text text{};
  using e = shardmesh_error**;
  CHECK(told([&](e x) { return shardmesh_checkpoint_open(nullptr, nullptr, &made, x); }) == is_null("path"));
  CHECK(told([&](e x) { return shardmesh_checkpoint_open("x", nullptr, nullptr, x); }) == is_null("for the result"));
  CHECK(told([&](e x) { return shardmesh_checkpoint_describe(nullptr, nullptr, x); }) == is_null("checkpoint"));
  CHECK(told([&](e x) { return shardmesh_checkpoint_describe(from.c(), nullptr, x); }) == is_null("summary"));
  CHECK(told([&](e x) { return shardmesh_checkpoint_tensor(from.c(), 0, nullptr, x); }) == is_null("entry"));
  CHECK(told([&](e x) { return shardmesh_checkpoint_chunk(from.c(), 0, 0, nullptr, x); }) == is_null("entry"));
  CHECK(told([&](e x) { return shardmesh_checkpoint_file(from.c(), 0, nullptr, x); }) == is_null("name"));
  CHECK(told([&](e x) { return shardmesh_checkpoint_find_tensor(from.c(), nullptr, 0, &count, x); }) == is_null("key"));
  CHECK(told([&](e x) { return shardmesh_load(from.c(), nullptr, 1, nullptr, nullptr, x); }) == is_null("requests"));
  CHECK(told([&](e x) { return shardmesh_load_object(nullptr, 0, &text, x); }) == is_null("checkpoint"));
  CHECK(told([&](e x) { return shardmesh_save(nullptr, nullptr, 0, nullptr, nullptr, x); }) == is_null("path"));
  CHECK(told([&](e x) { return shardmesh_save("x", nullptr, 1, nullptr, nullptr, x); }) == is_null("tensors"));
  CHECK(told([&](e x) { return shardmesh_convert(from.c(), nullptr, nullptr, nullptr, x); }) == is_null("path"));
  CHECK(told([&](e x) { return shardmesh_reshard(nullptr, "x", nullptr, nullptr, x); }) == is_null("checkpoint"));
  CHECK(told([&](e x) { return shardmesh_verify(nullptr, nullptr, &verified, x); }) == is_null("checkpoint"));
  CHECK(told([&](e x) { return shardmesh_diff(from.c(), nullptr, nullptr, &compared, x); }) == is_null("right"));
  CHECK(told([&](e x) { return shardmesh_layout_make("2", "S(0)", nullptr, 1, nullptr, &layout, x); }) ==
        is_null("shape"));
  CHECK(told([&](e x) { return shardmesh_plan_make(nullptr, nullptr, nullptr, &plan, x); }) == is_null("from"));
  CHECK(shardmesh_error_describe(nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_dtype_parse(nullptr) == SHARDMESH_DTYPE_UNDEFINED);
  for (const void* handle : {static_cast<void*>(made), static_cast<void*>(verified), static_cast<void*>(compared),
                             static_cast<void*>(layout), static_cast<void*>(plan)})
    CHECK(handle == nullptr);
}

TEST_CASE("nothing happens when null is given back or asked for its list") {
  shardmesh_checkpoint_close(nullptr);
  shardmesh_save_report_free(nullptr);
  shardmesh_verify_report_free(nullptr);
  shardmesh_diff_report_free(nullptr);
  shardmesh_layout_free(nullptr);
  shardmesh_plan_free(nullptr);
  shardmesh_error_free(nullptr);
  shardmesh_text_free({nullptr, 0});
  CHECK(shardmesh_checkpoint_warnings(nullptr) == nullptr);
  CHECK(shardmesh_verify_report_problems(nullptr) == nullptr);
  CHECK(shardmesh_diff_report_problems(nullptr) == nullptr);
  CHECK(shardmesh_error_next(nullptr) == nullptr);
  CHECK(std::string(shardmesh_error_text(nullptr)).empty());
  CHECK(shardmesh_error_status(nullptr) == SHARDMESH_OK);
}

TEST_CASE("a handle of another kind is refused") {
  const c::checkpoint from = c::checkpoint::open(golden_path());
  std::int64_t count = 0;
  CHECK(told([&](shardmesh_error** x) {
          return shardmesh_layout_rank_count(reinterpret_cast<const shardmesh_layout*>(from.c()), &count, x);
        }) == "invalid_argument: the argument layout is not a valid handle of this kind");
}

TEST_CASE("options of a newer header are taken as long as what is new is 0") {
  struct newer {
    shardmesh_open_options known;
    std::int64_t added;
  } options{};
  options.known.struct_size = sizeof options;
  shardmesh_checkpoint* made = nullptr;
  REQUIRE(shardmesh_checkpoint_open(golden_path().c_str(), &options.known, &made, nullptr) == SHARDMESH_OK);
  shardmesh_checkpoint_close(made);
  options.added = 1;
  CHECK(told([&](shardmesh_error** x) {
          return shardmesh_checkpoint_open(golden_path().c_str(), &options.known, &made, x);
        }) == "invalid_argument: the argument options sets a field that this version of the library does not know");
  CHECK(made == nullptr);
  options.known.struct_size = 0;
  CHECK(told([&](shardmesh_error** x) {
          return shardmesh_checkpoint_open(golden_path().c_str(), &options.known, &made, x);
        }) == "invalid_argument: the argument options has no struct_size, or one that is too small");
}

TEST_CASE("a description of the first header is filled as far as it goes, and a smaller one is refused") {
  shardmesh_checkpoint* made = nullptr;
  REQUIRE(shardmesh_checkpoint_open(golden_path().c_str(), nullptr, &made, nullptr) == SHARDMESH_OK);
  shardmesh_verify_report* report = nullptr;
  REQUIRE(shardmesh_verify(made, nullptr, &report, nullptr) == SHARDMESH_OK);
  shardmesh_verify_counts counts{};
  counts.struct_size = 72;
  counts.unread_tensors = -7;  // behind the end of the struct that such a program knows
  REQUIRE(shardmesh_verify_report_describe(report, &counts, nullptr) == SHARDMESH_OK);
  CHECK(counts.struct_size == 72);
  CHECK(counts.chunks > 0);
  CHECK(counts.unread_tensors == -7);
  counts.struct_size = 64;
  CHECK(told([&](shardmesh_error** x) { return shardmesh_verify_report_describe(report, &counts, x); }) ==
        "invalid_argument: the argument counts has no struct_size, or one that is too small");
  shardmesh_verify_report_free(report);
  shardmesh_checkpoint_close(made);
}

TEST_CASE("options of the first header are taken as they were, and smaller ones are not") {
  shardmesh_open_options options{};
  options.struct_size = 16;
  options.all_parts = 1;  // behind the end of the struct that such a program knows
  shardmesh_checkpoint* made = nullptr;
  REQUIRE(shardmesh_checkpoint_open(golden_path().c_str(), &options, &made, nullptr) == SHARDMESH_OK);
  shardmesh_checkpoint_summary summary{};
  summary.struct_size = sizeof summary;
  REQUIRE(shardmesh_checkpoint_describe(made, &summary, nullptr) == SHARDMESH_OK);
  CHECK(summary.format == SHARDMESH_FORMAT_DCP);
  const c_answers::scratch_folder scratch;
  shardmesh_save_options saving{};
  saving.struct_size = sizeof saving;
  saving.format = SHARDMESH_FORMAT_TORCH_CHECKPOINTING;
  shardmesh_convert_options convert{};
  convert.struct_size = 48;
  convert.saving = &saving;
  shardmesh_selection selection{};
  selection.struct_size = 88;
  selection.optimizer_follows = 2;  // behind the end as well, so ignored
  convert.selection = &selection;
  convert.item = "not looked at";
  CHECK(shardmesh_convert(made, (scratch / "out").c_str(), &convert, nullptr, nullptr) == SHARDMESH_OK);
  CHECK_FALSE(std::filesystem::exists(scratch.path / "out" / "not looked at_0.pt"));
  for (convert.struct_size = 0; convert.struct_size < 48; convert.struct_size += 8)
    CHECK(shardmesh_convert(made, (scratch / "more").c_str(), &convert, nullptr, nullptr) ==
          SHARDMESH_INVALID_ARGUMENT);
  convert.struct_size = 48;
  for (selection.struct_size = 0; selection.struct_size < 88; selection.struct_size += 8)
    CHECK(shardmesh_convert(made, (scratch / "more").c_str(), &convert, nullptr, nullptr) ==
          SHARDMESH_INVALID_ARGUMENT);
  shardmesh_load_options loading{};
  loading.struct_size = 24;
  loading.allow_shape_mismatch = 1;  // behind the end of the struct that such a program knows
  float one[6] = {};
  const std::int64_t offsets[] = {0, 0}, sizes[] = {1, 6}, strides[] = {6, 1};
  const shardmesh_load_request wanted{"w", 0, offsets, {one, sizes, strides, SHARDMESH_DTYPE_FLOAT32, 2}};
  c::save(scratch / "w", {{"w", c::view(static_cast<const float*>(one), {1, 5})}});
  shardmesh_checkpoint* narrow = nullptr;
  REQUIRE(shardmesh_checkpoint_open((scratch / "w").c_str(), nullptr, &narrow, nullptr) == SHARDMESH_OK);
  CHECK(shardmesh_load(narrow, &wanted, 1, &loading, nullptr, nullptr) == SHARDMESH_SHAPE_MISMATCH);
  loading.struct_size = 16;
  CHECK(shardmesh_load(narrow, &wanted, 1, &loading, nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  loading.struct_size = sizeof loading;
  CHECK(shardmesh_load(narrow, &wanted, 1, &loading, nullptr, nullptr) == SHARDMESH_OK);
  shardmesh_checkpoint_close(narrow);
  shardmesh_checkpoint_close(made);
}

TEST_CASE("a reserved field that is set is refused: a later version may have given it a meaning") {
  const c_answers::scratch_folder scratch;
  const c::checkpoint from = c::checkpoint::open(golden_path());
  const std::string says = " sets a field that this version of the library does not know";
  const auto with = [](auto options) {
    options.struct_size = sizeof options;
    options.reserved = 1;
    return options;
  };
  const auto mapping = with(shardmesh_map_options{});
  shardmesh_mapped* mapped = nullptr;
  CHECK(told([&](shardmesh_error** x) { return shardmesh_map_tensor(from.c(), "w", 0, &mapping, &mapped, x); }) ==
        "invalid_argument: the argument options" + says);
  const auto converting = with(shardmesh_convert_options{});
  CHECK(told([&](shardmesh_error** x) {
          return shardmesh_convert(from.c(), (scratch / "x").c_str(), &converting, nullptr, x);
        }) == "invalid_argument: the argument options" + says);
  const auto comparing = with(shardmesh_diff_options{});
  shardmesh_diff_report* differences = nullptr;
  CHECK(told([&](shardmesh_error** x) { return shardmesh_diff(from.c(), from.c(), &comparing, &differences, x); }) ==
        "invalid_argument: the argument options" + says);
  const float one = 1;
  const std::int64_t size = 1;
  const shardmesh_save_part part{nullptr, {&one, &size, &size, SHARDMESH_DTYPE_FLOAT32, 1}, 0, 1};
  const shardmesh_save_tensor tensor{"w", 0, &size, 1, &part, 1};
  CHECK(told([&](shardmesh_error** x) {
          return shardmesh_save((scratch / "x").c_str(), &tensor, 1, nullptr, nullptr, x);
        }) == "invalid_argument: w: the argument part of a tensor" + says);
  CHECK(std::filesystem::is_empty(scratch.path));
}

TEST_CASE("a description of a newer header is filled, and what is new is 0") {
  struct newer {
    shardmesh_checkpoint_summary known;
    std::int64_t added;
  } summary{};
  summary.known.struct_size = sizeof summary;
  summary.added = 5;
  const c::checkpoint from = c::checkpoint::open(golden_path());
  REQUIRE(shardmesh_checkpoint_describe(from.c(), &summary.known, nullptr) == SHARDMESH_OK);
  CHECK(summary.known.struct_size == sizeof summary);
  CHECK(summary.known.tensor_count == from.tensors().size());
  CHECK(summary.added == 0);
}

TEST_CASE("numbers that make no sense are errors that name key and number") {
  const c::checkpoint from = c::checkpoint::open(golden_path());
  const std::string key = from.tensor_at(0).key;
  std::vector<float> memory(4);
  const std::int64_t sizes[] = {2, -2};
  shardmesh_load_request request{key.c_str(), 0, nullptr, {memory.data(), sizes, nullptr, SHARDMESH_DTYPE_FLOAT32, 2}};
  const auto load = [&](shardmesh_error** x) { return shardmesh_load(from.c(), &request, 1, nullptr, nullptr, x); };
  CHECK(told(load) == "invalid_argument: " + key +
                          ": the argument sizes of a tensor has a negative number: expected at least 0, found -2 in "
                          "dimension 1");
  request.to.rank = -1;
  CHECK(told(load) ==
        "invalid_argument: " + key + ": the argument sizes of a tensor has a negative number of dimensions");
  request.to.rank = 17;
  CHECK(told(load) == "rank_too_large: " + key + ": too many dimensions: expected at most 16, found 17");
  request.to.rank = 1;
  request.to.dtype = 99;
  CHECK(told(load) == "invalid_argument: " + key + ": no element type has this number: expected 1 to 31, found 99");
  request.to.dtype = SHARDMESH_DTYPE_FLOAT32;
  request.to.data = nullptr;
  CHECK(told(load) == "invalid_argument: " + key + ": the argument data of a tensor is null");
  const std::int64_t huge[] = {std::int64_t{1} << 62, 4};
  request.to = {memory.data(), huge, nullptr, SHARDMESH_DTYPE_FLOAT32, 2};
  CHECK(told(load).rfind("overflow: " + key, 0) == 0);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(), least = -most - 1;
  const std::int64_t two[] = {2, 2};
  for (const auto& strides :
       {std::array{most, most}, {least, std::int64_t{1}}, {most / 4, most / 4}, {most / 4 + 1, least / 2}}) {
    request.to = {memory.data(), two, strides.data(), SHARDMESH_DTYPE_FLOAT32, 2};
    CHECK(told(load).rfind("overflow: " + key + ": the strides of a tensor do not fit", 0) == 0);
  }
  shardmesh_load_options options{};
  options.struct_size = sizeof options;
  options.threads = -1;
  CHECK(told([&](shardmesh_error** x) { return shardmesh_load(from.c(), nullptr, 0, &options, nullptr, x); }) ==
        "invalid_argument: the argument threads is negative");
  shardmesh_save_options saving{};
  saving.struct_size = sizeof saving;
  saving.format = 4;
  CHECK(told([&](shardmesh_error** x) { return shardmesh_save("x", nullptr, 0, &saving, nullptr, x); }) ==
        "invalid_argument: no format that can be written has this number: expected DCP, TORCH, SAFETENSORS, HF, "
        "TORCH_CHECKPOINTING, GGUF, or NPZ, found 4");
  shardmesh_text text{};
  CHECK(told([&](shardmesh_error** x) {
          return shardmesh_checkpoint_file(from.c(), 1000000, &text, x);
        }).rfind("out_of_bounds: there is no such file: expected a number below", 0) == 0);
}

TEST_CASE("every status and element type has the library's name") {
  CHECK(std::string(shardmesh_status_name(SHARDMESH_INTERNAL)) == "internal");
  for (int code = 0; code <= static_cast<int>(shardmesh::errc::communication); ++code)
    CHECK(std::string(shardmesh_status_name(code)) != "unknown");
  CHECK(std::string(shardmesh_status_name(28)) == "unknown");
  CHECK(std::string(shardmesh_status_name(SHARDMESH_DUPLICATE_KEY)) == "duplicate_key");
  for (const shardmesh::dtype type : shardmesh::all_dtypes()) {
    const auto number = static_cast<shardmesh_dtype>(type);
    CHECK(std::string(shardmesh_dtype_name(number)) == shardmesh::name(type));
    CHECK(shardmesh_dtype_bits(number) == shardmesh::bits(type));
    CHECK(shardmesh_dtype_parse(shardmesh_dtype_name(number)) == number);
  }
  CHECK(std::string(shardmesh_dtype_name(-1)) == "undefined");
  CHECK(std::string(shardmesh_dtype_name(32)) == "undefined");
  CHECK(shardmesh_dtype_parse("half") == SHARDMESH_DTYPE_FLOAT16);
  CHECK(shardmesh_dtype_parse("float33") == SHARDMESH_DTYPE_UNDEFINED);
}
