/* SPDX-License-Identifier: Apache-2.0 */
/* Who sends what to whom when a tensor moves from one layout to another, before a byte moves. */
#ifndef SHARDMESH_C_API_PLAN_H
#define SHARDMESH_C_API_PLAN_H

#include <shardmesh/c_api/layout.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_plan shardmesh_plan;

typedef struct shardmesh_plan_options {
  size_t struct_size;
  int64_t memory_bytes; /* of messages and staging at a time, on a rank; 0: the library's default */
  shardmesh_dtype from; /* element types of the two sides; UNDEFINED: float32, and the same */
  shardmesh_dtype to;
  int32_t allow_narrowing; /* casts that lose values */
  int32_t reserved;        /* 0 */
} shardmesh_plan_options;

/* Ranks of both meshes number the same processes. The layouts may be given back before the plan is. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_plan_make(const shardmesh_layout* from, const shardmesh_layout* to,
                                                        const shardmesh_plan_options* options, shardmesh_plan** plan,
                                                        shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_plan_free(shardmesh_plan* plan);

typedef struct shardmesh_plan_cost {
  size_t struct_size;
  int64_t bytes_total; /* of all copies, those within one rank too */
  int64_t bytes_moved; /* between different ranks */
  int64_t lower_bound; /* the least that any plan moves */
  int64_t peak_bytes;  /* of messages and staging, on the rank that needs most */
} shardmesh_plan_cost;

SHARDMESH_C_EXPORT shardmesh_status shardmesh_plan_describe(const shardmesh_plan* plan, shardmesh_plan_cost* cost,
                                                            shardmesh_error** error);

/* What travels from one rank to another. */
typedef struct shardmesh_link {
  int32_t from;
  int32_t to;
  int64_t bytes;
} shardmesh_link;

/* The links over which something travels, by `from`, then `to`: the first `capacity`, and in `count` how many. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_plan_links(const shardmesh_plan* plan, shardmesh_link* links,
                                                         size_t capacity, size_t* count, shardmesh_error** error);

typedef int32_t shardmesh_step_kind;
enum {
  SHARDMESH_STEP_COPY = 0,
  SHARDMESH_STEP_ACCUMULATE = 1, /* to = to (reduction) from */
  SHARDMESH_STEP_SCALE = 2,      /* to = to * factor */
  SHARDMESH_STEP_DIVIDE = 3,     /* to = to / factor */
  SHARDMESH_STEP_FILL = 4        /* to = the identity of the reduction */
};

typedef int32_t shardmesh_step_side;
enum {
  SHARDMESH_SIDE_SOURCE = 0,      /* the rank's local tensor of the source layout */
  SHARDMESH_SIDE_DESTINATION = 1, /* ... of the destination layout */
  SHARDMESH_SIDE_STAGING = 2      /* a row-major buffer as large as the step's box */
};

/* One piece of work. Where the two ranks differ, the piece travels. Steps of a table are run from first to last; those
 * of a later phase use what an earlier one brought. */
typedef struct shardmesh_step {
  shardmesh_step_kind kind;
  int32_t phase;       /* 0 gather, 1 average, 2 deliver, 3 repeat, 4 finish */
  int32_t reduction;   /* of ACCUMULATE and FILL: 0 none, 1 sum, 2 avg, 3 product, 4 min, 5 max, 6 and, 7 or, 8 xor */
  int32_t term;        /* which term of the source it carries */
  int64_t factor;      /* of SCALE and DIVIDE */
  shardmesh_box where; /* of the global tensor */
  int32_t from_rank;
  shardmesh_step_side from_side;
  int64_t from_offsets[SHARDMESH_MAX_RANK]; /* of the first element, in the side's own indices */
  int32_t to_rank;
  shardmesh_step_side to_side;
  int64_t to_offsets[SHARDMESH_MAX_RANK];
} shardmesh_step;

/* What one rank does, sends and receives: `capacity` of its steps from `first` on, and in `count` how many there are in
 * all. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_plan_steps(const shardmesh_plan* plan, int32_t rank, size_t first,
                                                         shardmesh_step* steps, size_t capacity, size_t* count,
                                                         shardmesh_error** error);

SHARDMESH_C_END

#endif
