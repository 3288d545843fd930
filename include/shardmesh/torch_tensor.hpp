// SPDX-License-Identifier: Apache-2.0
// An at::Tensor as a tensor of shardmesh: specialises `adapter<T>` without any `import`. Modules, process groups, and
// IValues of LibTorch are in room `torch`.
//
// An at::Tensor is a handle: its copies share elements, and so do copies of a `sharded_tensor<at::Tensor>` or a
// `state_dict<at::Tensor>`, as in Python. Tensors that are not plain memory (a lazy conjugation, sparse, meta, ...) are
// rejected with the reason; their bytes are never read.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DispatchKey.h>
#include <shardmesh/adapter.hpp>
#include <shardmesh/tensor_properties.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace shardmesh {

/// Converts between LibTorch's dtypes and ours; `undefined` if the other side has none. Only LibTorch has quantized and
/// 1- to 7-bit integers; only shardmesh has unpacked 4- and 6-bit floats.
constexpr dtype dtype_of_torch(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Bool:
      return dtype::boolean;
    case at::ScalarType::Byte:
      return dtype::uint8;
    case at::ScalarType::Char:
      return dtype::int8;
    case at::ScalarType::Short:
      return dtype::int16;
    case at::ScalarType::Int:
      return dtype::int32;
    case at::ScalarType::Long:
      return dtype::int64;
    case at::ScalarType::UInt16:
      return dtype::uint16;
    case at::ScalarType::UInt32:
      return dtype::uint32;
    case at::ScalarType::UInt64:
      return dtype::uint64;
    case at::ScalarType::Half:
      return dtype::float16;
    case at::ScalarType::BFloat16:
      return dtype::bfloat16;
    case at::ScalarType::Float:
      return dtype::float32;
    case at::ScalarType::Double:
      return dtype::float64;
    case at::ScalarType::ComplexHalf:
      return dtype::complex32;
    case at::ScalarType::ComplexFloat:
      return dtype::complex64;
    case at::ScalarType::ComplexDouble:
      return dtype::complex128;
    case at::ScalarType::Float8_e4m3fn:
      return dtype::float8_e4m3fn;
    case at::ScalarType::Float8_e5m2:
      return dtype::float8_e5m2;
    case at::ScalarType::Float8_e4m3fnuz:
      return dtype::float8_e4m3fnuz;
    case at::ScalarType::Float8_e5m2fnuz:
      return dtype::float8_e5m2fnuz;
    case at::ScalarType::Float8_e8m0fnu:
      return dtype::float8_e8m0fnu;
    case at::ScalarType::Float4_e2m1fn_x2:
      return dtype::float4_e2m1fn_x2;
    case at::ScalarType::Bits8:
      return dtype::bits8;
    case at::ScalarType::Bits16:
      return dtype::bits16;
    case at::ScalarType::Bits1x8:
      return dtype::bits1x8;
    case at::ScalarType::Bits2x4:
      return dtype::bits2x4;
    case at::ScalarType::Bits4x2:
      return dtype::bits4x2;
    default:
      return dtype::undefined;
  }
}
constexpr at::ScalarType torch_dtype_of(dtype type) {
  if (type == dtype::undefined) return at::ScalarType::Undefined;
  for (std::int8_t i = 0; i < static_cast<std::int8_t>(at::ScalarType::Undefined); ++i)
    if (dtype_of_torch(static_cast<at::ScalarType>(i)) == type) return static_cast<at::ScalarType>(i);
  return at::ScalarType::Undefined;
}

/// Converts between LibTorch's devices and ours. Types without a name in shardmesh are `other`.
inline device device_of_torch(c10::Device where) {
  constexpr auto type_of = [](c10::DeviceType type) {
    switch (type) {
      case c10::DeviceType::CPU:
        return device_type::cpu;
      case c10::DeviceType::CUDA:
        return device_type::cuda;
      case c10::DeviceType::HIP:
        return device_type::hip;
      case c10::DeviceType::XPU:
        return device_type::xpu;
      case c10::DeviceType::MPS:
        return device_type::mps;
      case c10::DeviceType::HPU:
        return device_type::hpu;
      case c10::DeviceType::Meta:
        return device_type::meta;
      default:
        return device_type::other;
    }
  };
  return {type_of(where.type()), where.index()};
}
/// Throws c10::Error for `other`.
inline c10::Device torch_device_of(device where) {
  const auto index = static_cast<c10::DeviceIndex>(where.index);
  switch (where.type) {
    case device_type::cpu:
      return {c10::DeviceType::CPU, index};
    case device_type::cuda:
      return {c10::DeviceType::CUDA, index};
    case device_type::hip:
      return {c10::DeviceType::HIP, index};
    case device_type::xpu:
      return {c10::DeviceType::XPU, index};
    case device_type::mps:
      return {c10::DeviceType::MPS, index};
    case device_type::hpu:
      return {c10::DeviceType::HPU, index};
    case device_type::meta:
      return {c10::DeviceType::Meta, index};
    case device_type::other:
      break;
  }
  TORCH_CHECK_VALUE(false, "shardmesh: LibTorch has no name for this type of device");
}

/// The reason why a tensor is not plain memory, with a hint; null if it is plain.
struct torch_tensor_problem {
  const char* what = nullptr;
  const char* hint = "";
};

/// Returns the first reason, the outermost wrapping first. Cost: a few loads; no operator is called.
inline torch_tensor_problem problem_of_torch(const at::Tensor& tensor) {
  if (!tensor.defined()) return {"an undefined tensor", "give it a value first"};
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::DispatchKeySet keys = impl.key_set();
  constexpr c10::DispatchKeySet of_transforms({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched,
                                               c10::DispatchKey::BatchedNestedTensor,
                                               c10::DispatchKey::FuncTorchGradWrapper});
  if (keys.has_any(of_transforms)) return {"a tensor inside a function transform (vmap, grad)", "unwrap it first"};
  if (keys.has(c10::DispatchKey::Functionalize)) return {"a functional tensor", "unwrap it first"};
  if (impl.is_python_dispatch())
    return {"a tensor subclass of Python",
            "give its local tensor (DTensor: to_local(), or the conversions of docs/torch.md)"};
  if (tensor.is_nested()) return {"a nested tensor", "unbind() it, or give its values()"};
  if (tensor.is_quantized()) return {"a quantized tensor", "give its int_repr(), or dequantize() it"};
  if (tensor.is_mkldnn()) return {"a tensor in MKLDNN's layout", "to_dense() makes it plain"};
  if (tensor.layout() != at::kStrided) return {"a sparse tensor", "to_dense() makes it plain, or give its parts"};
  if (tensor.is_meta()) return {"a meta tensor, which has no elements", "allocate it on a device"};
  if (tensor.is_conj()) return {"a tensor with a lazy conjugation", "resolve_conj() makes it plain"};
  if (tensor.is_neg()) return {"a tensor with a lazy negation", "resolve_neg() makes it plain"};
  if (tensor._is_zerotensor()) return {"a tensor of zeros without memory", "clone() makes it plain"};
  if (impl.has_symbolic_sizes_strides()) return {"a tensor of symbolic sizes", "give it numbers first"};
  if (!tensor.has_storage()) return {"a tensor without storage", "copy it into a plain one"};
  if (dtype_of_torch(tensor.scalar_type()) == dtype::undefined)
    return {"a tensor of a dtype that shardmesh lacks", "view() it as integers of whole bytes"};
  if (tensor.dim() > static_cast<std::int64_t>(max_rank))
    return {"a tensor of more than 16 dimensions", "flatten some"};
  return {};
}

template <>
struct adapter<at::Tensor> {
  /// Throws c10::Error where `check` returns an error, so that a tensor that is not plain memory is never read as if it
  /// were. A copy-on-write tensor gets its own elements, because the view may be written.
  static tensor_view view(at::Tensor& tensor) {
    return view_at<tensor_view>(tensor, [&] { return static_cast<std::byte*>(tensor.mutable_data_ptr()); });
  }
  static const_tensor_view view(const at::Tensor& tensor) {
    return view_at<const_tensor_view>(tensor, [&] { return static_cast<const std::byte*>(tensor.const_data_ptr()); });
  }

  /// Returns a contiguous, uninitialised tensor that requires no gradient. Throws whatever at::empty throws.
  static at::Tensor allocate(dtype type, const extents& sizes, device where) {
    const at::ScalarType element = torch_dtype_of(type);
    TORCH_CHECK_VALUE(element != at::ScalarType::Undefined, "shardmesh: LibTorch lacks this dtype");
    return at::empty(at::IntArrayRef(sizes.data(), sizes.size()),
                     at::TensorOptions().dtype(element).device(torch_device_of(where)));
  }

  /// errc::unsupported with the reason of `problem_of_torch`. The return type is result<void>. This header cannot name
  /// it, because a module owns it; `decltype` takes it from `check_host_memory` of `shardmesh.core`.
  template <class Device = device>
  static auto check(const at::Tensor& tensor) -> decltype(check_host_memory(std::declval<Device>())) {
    using result_type = decltype(check_host_memory(std::declval<Device>()));
    const torch_tensor_problem problem = problem_of_torch(tensor);
    if (problem.what == nullptr) return {};
    typename result_type::error_type why;
    why.code = decltype(why.code)::unsupported;
    why.message = problem.what;  // not in `found`, where callers describe the tensor
    why.message += " is not plain memory";
    why.hint = problem.hint;
    return result_type(std::move(why));
  }

  /// Notifies autograd that the elements changed, as after an in-place operation under `no_grad`. All views of one base
  /// share the version counter. Inference tensors have none.
  static void written(at::Tensor& tensor) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }

  /// `format` describes the strides: `preserve` if they match none of the named formats.
  static tensor_properties properties(const at::Tensor& tensor) {
    tensor_properties made{.type = dtype_of_torch(tensor.scalar_type())};
    made.requires_grad = tensor.requires_grad();
    made.format = tensor.is_contiguous()                                   ? memory_format::contiguous
                  : tensor.is_contiguous(at::MemoryFormat::ChannelsLast)   ? memory_format::channels_last
                  : tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d) ? memory_format::channels_last_3d
                                                                           : memory_format::preserve;
    made.pin_memory = tensor.is_cpu() && tensor.is_pinned();
    switch (tensor.layout()) {
      case at::kSparse:
        made.storage = tensor_storage::sparse_coo;
        break;
      case at::kSparseCsr:
        made.storage = tensor_storage::sparse_csr;
        break;
      case at::kSparseCsc:
        made.storage = tensor_storage::sparse_csc;
        break;
      case at::kSparseBsr:
        made.storage = tensor_storage::sparse_bsr;
        break;
      case at::kSparseBsc:
        made.storage = tensor_storage::sparse_bsc;
        break;
      case at::kMkldnn:
        made.storage = tensor_storage::mkldnn;
        break;
      case at::kJagged:
        made.storage = tensor_storage::jagged;
        break;
      default:
        break;
    }
    return made;
  }

 private:
  template <class View, class Data>
  static View view_at(const at::Tensor& tensor, Data data) {
    const torch_tensor_problem problem = problem_of_torch(tensor);
    TORCH_CHECK_VALUE(problem.what == nullptr, "shardmesh: ", problem.what, " is not plain memory; ", problem.hint);
    const auto span_of = [](at::IntArrayRef values) {
      return std::span<const std::int64_t>(values.data(), values.size());
    };
    return {data(), dtype_of_torch(tensor.scalar_type()), device_of_torch(tensor.device()),
            extents(span_of(tensor.sizes())), extents(span_of(tensor.strides()))};
  }
};

}  // namespace shardmesh
