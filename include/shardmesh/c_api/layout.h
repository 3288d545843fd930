/* SPDX-License-Identifier: Apache-2.0 */
/* Which boxes of a tensor each rank of a mesh holds. */
#ifndef SHARDMESH_C_API_LAYOUT_H
#define SHARDMESH_C_API_LAYOUT_H

#include <shardmesh/c_api/error.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_layout shardmesh_layout;

/* A tensor of `shape` on `mesh` ("2,3" or "dp=2,tp=3"), with one of `placements` per mesh dimension: "S(0),R",
 * "SS(0,2)" (a strided shard), "P(sum)". `split_rule`: "torch_chunk", "balanced", "sizes:3,3,4", "weights:1,2"; null:
 * torch's. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_make(const char* mesh, const char* placements,
                                                          const int64_t* shape, int32_t rank, const char* split_rule,
                                                          shardmesh_layout** layout, shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_layout_free(shardmesh_layout* layout);

/* Number of ranks of the mesh, which are 0 .. count - 1. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_rank_count(const shardmesh_layout* layout, int64_t* count,
                                                                shardmesh_error** error);
/* Sizes of a rank's local tensor: as many as the shape has. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_local_shape(const shardmesh_layout* layout, int32_t rank,
                                                                 int64_t* sizes, shardmesh_error** error);

/* A box of the global tensor, and its offsets in the local one. */
typedef struct shardmesh_placed_box {
  shardmesh_box where;
  int64_t local_offsets[SHARDMESH_MAX_RANK];
} shardmesh_placed_box;

/* The boxes of a rank, row-major in local order: the first `capacity` of them (`boxes` may be null where it is 0), and
 * in `count` how many there are. A rank that holds nothing has none. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_layout_boxes(const shardmesh_layout* layout, int32_t rank,
                                                           shardmesh_placed_box* boxes, size_t capacity, size_t* count,
                                                           shardmesh_error** error);

SHARDMESH_C_END

#endif
