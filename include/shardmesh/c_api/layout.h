/* SPDX-License-Identifier: Apache-2.0 */
/* The boxes of a tensor that each rank of a mesh holds. */
#ifndef SHARDMESH_C_API_LAYOUT_H
#define SHARDMESH_C_API_LAYOUT_H

#include <shardmesh/c_api/error.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_layout shardmesh_layout;

/* A tensor of `shape` on `mesh` ("2,3" or "dp=2,tp=3"), with one of `placements` per mesh dimension: "S(0),R",
 * "SS(0,2)" (a strided shard), "SG(0,64:16:16)" (a shard of each segment; a rank's tensor is its part of the first
 * segment, then of the second, and so on), "P(sum)". `split_rule`: "torch_chunk", "balanced", "sizes:3,3,4",
 * "weights:1,2"; null: "torch_chunk". */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_make(const char* mesh, const char* placements,
                                                          const int64_t* shape, int32_t rank, const char* split_rule,
                                                          shardmesh_layout** layout, shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_layout_free(shardmesh_layout* layout);

/* The number of ranks of the mesh; ranks are 0 .. count - 1. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_rank_count(const shardmesh_layout* layout, int64_t* count,
                                                                shardmesh_error** error);
/* The sizes of a rank's local tensor: one for each dimension of the shape. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_local_shape(const shardmesh_layout* layout, int32_t rank,
                                                                 int64_t* sizes, shardmesh_error** error);

/* A box of the global tensor, and its offsets in the local one. */
typedef struct shardmesh_placed_box {
  shardmesh_box where;
  int64_t local_offsets[SHARDMESH_MAX_RANK];
} shardmesh_placed_box;

/* The boxes of a rank, row-major in local order. Writes the first `capacity` of them (`boxes` may be null if that is
 * 0), and their total number to `count`. A rank that holds nothing has none. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_boxes(const shardmesh_layout* layout, int32_t rank,
                                                           shardmesh_placed_box* boxes, size_t capacity, size_t* count,
                                                           shardmesh_error** error);

SHARDMESH_C_END

#endif
