/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a move from one layout to another: every message between ranks, computed before a byte moves. */
#ifndef SHARDMESH_C_API_PLAN_H
#define SHARDMESH_C_API_PLAN_H

#include <shardmesh/c_api/layout.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_plan shardmesh_plan;

typedef struct shardmesh_plan_options {
  size_t struct_size;
  int64_t memory_bytes; /* for messages and staging on a rank at any time; 0: the library's default */
  shardmesh_dtype from; /* element types of the two sides; UNDEFINED: `from` is float32, `to` equals `from` */
  shardmesh_dtype to;
  int32_t allow_narrowing; /* allows casts that lose values */
  int32_t reserved;        /* 0 */
} shardmesh_plan_options;

/* Both meshes number the same processes. The layouts may be freed before the plan. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_plan_make(const shardmesh_layout* from, const shardmesh_layout* to,
                                                        const shardmesh_plan_options* options, shardmesh_plan** plan,
                                                        shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_plan_free(shardmesh_plan* plan);

typedef struct shardmesh_plan_cost {
  size_t struct_size;
  int64_t bytes_total; /* of all copies, including those within one rank */
  int64_t bytes_moved; /* between different ranks */
  int64_t lower_bound; /* the least that any plan must move */
  int64_t peak_bytes;  /* for messages and staging, on the rank that needs most */
} shardmesh_plan_cost;

/* Fills `cost`, whose struct_size must be set. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_plan_describe(const shardmesh_plan* plan, shardmesh_plan_cost* cost,
                                                            shardmesh_error** error);

/* The bytes that travel from one rank to another. */
typedef struct shardmesh_link {
  int32_t from;
  int32_t to;
  int64_t bytes;
} shardmesh_link;

/* The links with traffic, ordered by `from`, then `to`. Writes the first `capacity`, and their number to `count`. */
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

/* One piece of work. If the two ranks differ, the piece travels. A rank runs its steps from first to last; steps of
 * a later phase use the results of earlier ones. */
typedef struct shardmesh_step {
  shardmesh_step_kind kind;
  int32_t phase;       /* 0 gather, 1 average, 2 deliver, 3 repeat, 4 finish */
  int32_t reduction;   /* of ACCUMULATE and FILL: 0 none, 1 sum, 2 avg, 3 product, 4 min, 5 max, 6 and, 7 or, 8 xor */
  int32_t term;        /* the term of the source that it carries */
  int64_t factor;      /* for SCALE and DIVIDE */
  shardmesh_box where; /* of the global tensor */
  int32_t from_rank;
  shardmesh_step_side from_side;
  int64_t from_offsets[SHARDMESH_MAX_RANK]; /* of the first element, in the side's own indices */
  int32_t to_rank;
  shardmesh_step_side to_side;
  int64_t to_offsets[SHARDMESH_MAX_RANK];
} shardmesh_step;

/* One rank's steps: everything it does, sends, and receives. Writes at most `capacity` of them from `first` on, and
 * their total number to `count`. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_plan_steps(const shardmesh_plan* plan, int32_t rank, size_t first,
                                                         shardmesh_step* steps, size_t capacity, size_t* count,
                                                         shardmesh_error** error);

SHARDMESH_C_END

#endif
