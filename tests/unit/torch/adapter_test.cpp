// SPDX-License-Identifier: Apache-2.0
// Tests an at::Tensor as a tensor: every dtype, every kind of strides, autograd, and refusals by name.
#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <c10/core/InferenceMode.h>
#include <shardmesh/torch_tensor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.sharding;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

static_assert(local_tensor<at::Tensor> && local_tensor<const at::Tensor> && allocatable_tensor<at::Tensor>);
static_assert(counts_writes<at::Tensor>);
static_assert(!local_tensor<at::Tensor*> && !local_tensor<at::TensorBase> && !local_tensor<c10::Scalar>);

namespace {

extents extents_of(at::IntArrayRef values) {
  return extents(std::span<const std::int64_t>(values.data(), values.size()));
}

// Compares the view with LibTorch's description of the tensor.
void check_view(at::Tensor tensor) {
  const tensor_view seen = view_of(tensor);
  CHECK(static_cast<void*>(seen.data) == tensor.data_ptr());
  CHECK(seen.type == dtype_of_torch(tensor.scalar_type()));
  CHECK(seen.where == device{});
  CHECK(seen.sizes == extents_of(tensor.sizes()));
  CHECK(seen.strides == extents_of(tensor.strides()));
  CHECK(static_cast<const void*>(view_of(std::as_const(tensor)).data) == tensor.const_data_ptr());
  CHECK(check_tensor(tensor));
}

struct refused {
  at::Tensor tensor;
  std::string name;
};

std::vector<refused> all_refused() {
  const at::Tensor plain = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  at::Tensor subclass = at::zeros({2});
  subclass.unsafeGetTensorImpl()->set_python_dispatch(true);
  return {{{}, "undefined"},
          {subclass, "subclass of Python"},
          {at::conj(complex), "lazy conjugation"},
          {at::_neg_view(plain), "lazy negation"},
          {at::_efficientzerotensor({2}, at::kFloat), "zeros without memory"},
          {plain.to_sparse(), "sparse"},
          {plain.to_sparse_csr(), "sparse"},
          {at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8), "quantized"},
          {plain.to_mkldnn(), "MKLDNN"},
          {at::empty({2, 3}, at::TensorOptions().device(at::kMeta)), "meta"},
          {at::_nested_tensor_from_tensor_list({plain, plain}), "nested"},
          {at::functionalization::impl::to_functional_tensor(plain), "functional"},
          {at::functorch::makeBatched(plain, 0, 1), "function transform"},
          {at::empty({2}, at::kUInt4), "dtype that shardmesh lacks"},
          {at::empty(std::vector<std::int64_t>(17, 1)), "more than 16 dimensions"}};
}

}  // namespace

TEST_CASE("every dtype of LibTorch goes through the adapter and back") {
  for (std::int8_t i = 0; i < static_cast<std::int8_t>(at::ScalarType::Undefined); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    INFO(c10::toString(type));
    const dtype ours = dtype_of_torch(type);
    if (type > at::ScalarType::Float4_e2m1fn_x2) {  // from a newer LibTorch than ours
      CHECK(ours == dtype::undefined);
      CHECK_FALSE(check_tensor(at::empty({2, 3}, type)));
      continue;
    }
    const bool is_named = !c10::isQIntType(type) && !c10::isBarebonesUnsignedType(type) && !(i >= 30 && i <= 43);
    REQUIRE((ours != dtype::undefined) == (is_named || (i >= 27 && i <= 29)));
    if (ours == dtype::undefined) continue;
    CHECK(torch_dtype_of(ours) == type);
    CHECK(item_bytes(ours) == static_cast<std::int64_t>(c10::elementSize(type)));
    const at::Tensor made = adapter<at::Tensor>::allocate(ours, {2, 3}, {});
    CHECK(made.scalar_type() == type);
    CHECK(made.is_contiguous());
    CHECK_FALSE(made.requires_grad());
    check_view(made);
  }
}

TEST_CASE("a dtype that LibTorch lacks cannot be allocated") {
  for (const dtype type : {dtype::float8_e4m3, dtype::float4_e2m1fn, dtype::float6_e2m3, dtype::float6_e3m2}) {
    CHECK(torch_dtype_of(type) == at::ScalarType::Undefined);
    CHECK_THROWS_WITH(adapter<at::Tensor>::allocate(type, {2}, {}), ContainsSubstring("LibTorch lacks this dtype"));
  }
}

TEST_CASE("strides are LibTorch's: transposed, sliced, expanded, of no dimension, empty") {
  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  check_view(whole);
  check_view(whole.t());
  check_view(whole.slice(0, 1, 4, 2).slice(1, 5, 6));
  check_view(at::ones({1, 6}).expand({4, 6}));
  check_view(at::scalar_tensor(3));
  check_view(at::empty({0, 6}));
  check_view(at::empty({4, 0}).t());
  check_view(at::empty({2, 3, 4, 5}, at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast)));
  CHECK(view_of(std::as_const(whole)).strides == extents{6, 1});
}

TEST_CASE("elements that are shared until written are read in place and copied when they may be written") {
  const at::Tensor first = at::arange(4, at::kFloat);
  at::Tensor second = at::_lazy_clone(first);
  CHECK(static_cast<const void*>(view_of(std::as_const(second)).data) == first.const_data_ptr());
  const tensor_view mine = view_of(second);
  reinterpret_cast<float*>(mine.data)[0] = 7;
  CHECK(first[0].item<float>() == 0);
  CHECK(second[0].item<float>() == 7);
}

TEST_CASE("what is no plain memory is refused by name, in check and in view") {
  for (refused& one : all_refused()) {
    INFO(one.name);
    const result<void> checked = check_tensor(one.tensor);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().code == errc::unsupported);
    CHECK_THAT(to_string(checked.error()), ContainsSubstring(one.name) && ContainsSubstring("is not plain memory"));
    CHECK_FALSE(checked.error().hint.empty());
    CHECK_THROWS_WITH(adapter<at::Tensor>::view(one.tensor), ContainsSubstring(one.name));
    CHECK_THROWS_WITH(view_of(std::as_const(one.tensor)), ContainsSubstring(one.name));
  }
}

TEST_CASE("a conjugated tensor is refused as a shard and as part of a dtensor, and resolved it is taken") {
  const at::Tensor lazy = at::conj(at::zeros({2, 2}, at::kComplexFloat));
  const shard_metadata place{.offsets = {0, 0}, .sizes = {2, 2}, .placement = {}};
  const auto refused = shard<at::Tensor>::make(lazy, place);
  REQUIRE_FALSE(refused);
  CHECK_THAT(to_string(refused.error()), ContainsSubstring("lazy conjugation") && ContainsSubstring("resolve_conj"));
  CHECK(shard<at::Tensor>::make(lazy.resolve_conj(), place));
  CHECK_FALSE(dtensor<at::Tensor>::make(layout(), 0, lazy));
}

TEST_CASE("autograd sees that a destination changed") {
  at::Tensor parameter = at::ones({3}).requires_grad_();
  const at::Tensor squared = (parameter * parameter).sum();
  const auto before = parameter._version();
  note_written(parameter);
  CHECK(parameter._version() == before + 1);
  CHECK_THROWS_WITH(squared.backward(), ContainsSubstring("modified by an inplace operation"));
}

TEST_CASE("a written view is seen through its base, and a base through its views") {
  at::Tensor base = at::zeros({4, 4}) * 1;
  at::Tensor view = base.slice(0, 1, 3);
  note_written(view);
  CHECK(base._version() == view._version());
  const auto before = base._version();
  note_written(base);
  CHECK(view._version() == before + 1);
}

TEST_CASE("inference tensors count no versions and are written all the same") {
  const c10::InferenceMode mode;
  at::Tensor tensor = at::zeros({3});
  note_written(tensor);
  CHECK(tensor.is_inference());
}

TEST_CASE("properties are the tensor's") {
  CHECK(properties_of(at::zeros({2, 2}, at::kHalf)) == tensor_properties{.type = dtype::float16});
  CHECK(properties_of(at::zeros({2}).requires_grad_()) == tensor_properties{.requires_grad = true});
  CHECK(properties_of(at::zeros({2, 3}).t()) == tensor_properties{.format = memory_format::preserve});
  const auto format_of = [](at::IntArrayRef sizes, at::MemoryFormat format) {
    return properties_of(at::empty(sizes, at::TensorOptions().memory_format(format))).format;
  };
  CHECK(format_of({2, 3, 4, 5}, at::MemoryFormat::ChannelsLast) == memory_format::channels_last);
  CHECK(format_of({2, 3, 4, 5, 6}, at::MemoryFormat::ChannelsLast3d) == memory_format::channels_last_3d);
  const at::Tensor csr = at::ones({2, 2}).to_sparse_csr();
  CHECK(adapter<at::Tensor>::properties(csr.to_sparse()).storage == tensor_storage::sparse_coo);
}

TEST_CASE("devices have the same names on both sides") {
  for (const device where :
       {device{}, device{device_type::cuda, 3}, device{device_type::meta, -1}, device{device_type::xpu, 0},
        device{device_type::hpu, 1}, device{device_type::mps, 0}, device{device_type::hip, 0}})
    CHECK(device_of_torch(torch_device_of(where)) == where);
  CHECK(device_of_torch(c10::Device(c10::DeviceType::XLA, 0)).type == device_type::other);
  CHECK_THROWS_WITH(torch_device_of({device_type::other, 0}), ContainsSubstring("no name for this type of device"));
}
