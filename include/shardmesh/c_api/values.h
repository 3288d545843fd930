/* SPDX-License-Identifier: Apache-2.0 */
/* Small values: texts, element types, boxes, and the memory of tensors. */
#ifndef SHARDMESH_C_API_VALUES_H
#define SHARDMESH_C_API_VALUES_H

#include <shardmesh/c_api/export.h>

SHARDMESH_C_BEGIN

/* The SHARDMESH_C_API_VERSION of the library. */
SHARDMESH_C_EXPORT int32_t shardmesh_c_api_version(void);
/* The version of shardmesh: "0.1.0". */
SHARDMESH_C_EXPORT const char* shardmesh_library_version(void);

/* The largest number of dimensions of a tensor. */
#define SHARDMESH_MAX_RANK 16

/* Bytes, followed by a 0. */
typedef struct shardmesh_text {
  const char* bytes;
  size_t size;
} shardmesh_text;

/* Element types, with PyTorch's names. FLOAT4_E2M1FN and the FLOAT6 types take 4 and 6 bits per element. */
typedef int32_t shardmesh_dtype;
enum {
  SHARDMESH_DTYPE_UNDEFINED = 0,
  SHARDMESH_DTYPE_BOOL = 1,
  SHARDMESH_DTYPE_UINT8 = 2,
  SHARDMESH_DTYPE_INT8 = 3,
  SHARDMESH_DTYPE_INT16 = 4,
  SHARDMESH_DTYPE_INT32 = 5,
  SHARDMESH_DTYPE_INT64 = 6,
  SHARDMESH_DTYPE_UINT16 = 7,
  SHARDMESH_DTYPE_UINT32 = 8,
  SHARDMESH_DTYPE_UINT64 = 9,
  SHARDMESH_DTYPE_FLOAT16 = 10,
  SHARDMESH_DTYPE_BFLOAT16 = 11,
  SHARDMESH_DTYPE_FLOAT32 = 12,
  SHARDMESH_DTYPE_FLOAT64 = 13,
  SHARDMESH_DTYPE_COMPLEX32 = 14,
  SHARDMESH_DTYPE_COMPLEX64 = 15,
  SHARDMESH_DTYPE_COMPLEX128 = 16,
  SHARDMESH_DTYPE_FLOAT8_E4M3FN = 17,
  SHARDMESH_DTYPE_FLOAT8_E5M2 = 18,
  SHARDMESH_DTYPE_FLOAT8_E4M3FNUZ = 19,
  SHARDMESH_DTYPE_FLOAT8_E5M2FNUZ = 20,
  SHARDMESH_DTYPE_FLOAT8_E8M0FNU = 21,
  SHARDMESH_DTYPE_FLOAT8_E4M3 = 22,
  SHARDMESH_DTYPE_FLOAT4_E2M1FN_X2 = 23,
  SHARDMESH_DTYPE_FLOAT4_E2M1FN = 24,
  SHARDMESH_DTYPE_FLOAT6_E2M3 = 25,
  SHARDMESH_DTYPE_FLOAT6_E3M2 = 26,
  SHARDMESH_DTYPE_BITS8 = 27,
  SHARDMESH_DTYPE_BITS16 = 28,
  SHARDMESH_DTYPE_BITS1X8 = 29,
  SHARDMESH_DTYPE_BITS2X4 = 30,
  SHARDMESH_DTYPE_BITS4X2 = 31
};

/* PyTorch's name, such as "float32"; "undefined" for UNDEFINED and for a number that is not an element type. */
SHARDMESH_C_EXPORT const char* shardmesh_dtype_name(shardmesh_dtype dtype);
/* Bits per element: 4, 6, or a multiple of 8; 0 if the name is "undefined". */
SHARDMESH_C_EXPORT int32_t shardmesh_dtype_bits(shardmesh_dtype dtype);
/* The element type of that name, which may be one of PyTorch's aliases (half, long); UNDEFINED if there is none, and
 * for null. */
SHARDMESH_C_EXPORT shardmesh_dtype shardmesh_dtype_parse(const char* name);

/* The indices i with offsets[d] <= i[d] < offsets[d] + sizes[d] in `rank` dimensions; entries beyond `rank` are 0. */
typedef struct shardmesh_box {
  int64_t rank;
  int64_t offsets[SHARDMESH_MAX_RANK];
  int64_t sizes[SHARDMESH_MAX_RANK];
} shardmesh_box;

/* Writable host memory of a tensor. `data` is the element with index 0 in every dimension. `sizes` and `strides`
 * have `rank` entries; strides may be 0 or negative, and null means row-major. */
typedef struct shardmesh_tensor {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  shardmesh_dtype dtype;
  int32_t rank;
} shardmesh_tensor;

/* The same for read-only memory. */
typedef struct shardmesh_const_tensor {
  const void* data;
  const int64_t* sizes;
  const int64_t* strides;
  shardmesh_dtype dtype;
  int32_t rank;
} shardmesh_const_tensor;

SHARDMESH_C_END

#endif
