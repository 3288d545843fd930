/* SPDX-License-Identifier: Apache-2.0 */
/* Verifies one checkpoint, and compares two. */
#ifndef SHARDMESH_C_API_CHECKING_H
#define SHARDMESH_C_API_CHECKING_H

#include <shardmesh/c_api/call.h>
#include <shardmesh/c_api/checkpoint.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_verify_options {
  size_t struct_size;
  const shardmesh_call* call;
  size_t max_problems; /* problems to list; 0: 1000 */
  int32_t quick;       /* opens everything, compares no checksums */
  int32_t threads;     /* 0: all cores */
  /* Names that pickles may hold, as the report spells them ("module.name"). They are neither problems nor warnings. */
  const char* const* allow_globals;
  size_t allow_global_count;
} shardmesh_verify_options;

typedef struct shardmesh_verify_report shardmesh_verify_report;

typedef struct shardmesh_verify_counts {
  size_t struct_size;
  size_t problem_count;  /* listed */
  int64_t more_problems; /* not listed */
  int64_t chunks;
  int64_t objects;
  int64_t bytes;
  int64_t checked_bytes;    /* with a checksum that was compared */
  int64_t unchecked_chunks; /* chunks that hold bytes without a checksum */
  int64_t unchecked_objects;
  int64_t unread_tensors; /* tensors in the checkpoint that no entry names: neither checked nor converted */
} shardmesh_verify_counts;

/* Opens and compares everything in the checkpoint. SHARDMESH_OK means that the check could be done; the checkpoint
 * is whole if the report has no problem. Names in pickles that published scanners call dangerous are problems,
 * listed before all others; unknown names are warnings. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_verify(shardmesh_checkpoint* checkpoint,
                                                     const shardmesh_verify_options* options,
                                                     shardmesh_verify_report** report, shardmesh_error** error);
SHARDMESH_C_EXPORT shardmesh_status shardmesh_verify_report_describe(const shardmesh_verify_report* report,
                                                                     shardmesh_verify_counts* counts,
                                                                     shardmesh_error** error);
/* Lists that belong to the report; null if the list is empty, and for null. */
SHARDMESH_C_EXPORT const shardmesh_error* shardmesh_verify_report_problems(const shardmesh_verify_report* report);
SHARDMESH_C_EXPORT const shardmesh_error* shardmesh_verify_report_warnings(const shardmesh_verify_report* report);
SHARDMESH_C_EXPORT void shardmesh_verify_report_free(shardmesh_verify_report* report);

typedef struct shardmesh_diff_options {
  size_t struct_size;
  const shardmesh_call* call;
  double tolerance;     /* 0: bits, but NaN equals NaN and -0 equals 0; else |a-b| <= T + T*|b| */
  int64_t memory_bytes; /* for staging; 0: the library's default */
  int32_t layout;       /* also compares chunks */
  int32_t ignore_dtype; /* compares values across element types */
  int32_t threads;      /* 0: all cores */
  int32_t reserved;     /* 0 */
} shardmesh_diff_options;

typedef int32_t shardmesh_difference_kind;
enum {
  SHARDMESH_DIFFERENCE_ONLY_LEFT = 0,
  SHARDMESH_DIFFERENCE_ONLY_RIGHT = 1,
  SHARDMESH_DIFFERENCE_KIND = 2, /* a tensor on one side, an object on the other */
  SHARDMESH_DIFFERENCE_DTYPE = 3,
  SHARDMESH_DIFFERENCE_SHAPE = 4,
  SHARDMESH_DIFFERENCE_VALUES = 5,
  SHARDMESH_DIFFERENCE_OBJECT = 6,
  SHARDMESH_DIFFERENCE_LAYOUT = 7,
  SHARDMESH_DIFFERENCE_UNREADABLE = 8 /* one side could not be read */
};

/* One key that differs. */
typedef struct shardmesh_difference {
  size_t struct_size;
  shardmesh_text key;
  shardmesh_text text; /* the whole difference in one line, without the key */
  int64_t different;   /* elements that differ, for VALUES */
  int64_t elements;
  double largest; /* the largest |a-b|; infinite or NaN where the values are */
  int64_t rank;   /* rank of `first_index`, the index of the first element that differs */
  int64_t first_index[SHARDMESH_MAX_RANK];
  shardmesh_difference_kind kind;
  int32_t reserved;
} shardmesh_difference;

typedef struct shardmesh_diff_report shardmesh_diff_report;

typedef struct shardmesh_diff_counts {
  size_t struct_size;
  size_t difference_count;
  size_t problem_count;
  int64_t tensors; /* compared, like the next two */
  int64_t objects;
  int64_t bytes;
} shardmesh_diff_counts;

/* Compares every entry of both checkpoints. SHARDMESH_OK means that this could be done; the checkpoints are equal if
 * the report has no difference. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_diff(shardmesh_checkpoint* left, shardmesh_checkpoint* right,
                                                   const shardmesh_diff_options* options,
                                                   shardmesh_diff_report** report, shardmesh_error** error);
SHARDMESH_C_EXPORT shardmesh_status shardmesh_diff_report_describe(const shardmesh_diff_report* report,
                                                                   shardmesh_diff_counts* counts,
                                                                   shardmesh_error** error);
/* Differences are in the order of keys. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_diff_report_difference(const shardmesh_diff_report* report, size_t index,
                                                                     shardmesh_difference* difference,
                                                                     shardmesh_error** error);
/* Reasons why entries could not be read: a list that belongs to the report. */
SHARDMESH_C_EXPORT const shardmesh_error* shardmesh_diff_report_problems(const shardmesh_diff_report* report);
SHARDMESH_C_EXPORT void shardmesh_diff_report_free(shardmesh_diff_report* report);

SHARDMESH_C_END

#endif
