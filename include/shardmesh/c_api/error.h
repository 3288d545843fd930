/* SPDX-License-Identifier: Apache-2.0 */
/* Failures: a status, and an error with every known detail. */
#ifndef SHARDMESH_C_API_ERROR_H
#define SHARDMESH_C_API_ERROR_H

#include <shardmesh/c_api/values.h>

SHARDMESH_C_BEGIN

typedef int32_t shardmesh_status;
enum {
  SHARDMESH_INTERNAL = -1, /* a defect of shardmesh: please report it */
  SHARDMESH_OK = 0,
  SHARDMESH_INVALID_ARGUMENT = 1,   /* a value is not valid */
  SHARDMESH_OVERFLOW = 2,           /* sizes do not fit in 64 bits */
  SHARDMESH_RANK_TOO_LARGE = 3,     /* more than SHARDMESH_MAX_RANK dimensions */
  SHARDMESH_SHAPE_MISMATCH = 4,     /* sizes that must be equal differ */
  SHARDMESH_DTYPE_MISMATCH = 5,     /* element types that must be equal differ */
  SHARDMESH_OUT_OF_BOUNDS = 6,      /* a box or byte range exceeds its container */
  SHARDMESH_OVERLAP = 7,            /* two different boxes share elements */
  SHARDMESH_GAP = 8,                /* an element has no holder */
  SHARDMESH_MIXED_PARTIAL = 9,      /* reductions that cannot be combined */
  SHARDMESH_UNALIGNED = 10,         /* a type of less than a byte is cut inside a byte */
  SHARDMESH_NARROWING = 11,         /* a cast that loses values was not allowed */
  SHARDMESH_NO_MEMORY = 12,         /* the memory, or its budget, is too small */
  SHARDMESH_MISSING_KEY = 13,       /* a named tensor does not exist */
  SHARDMESH_DUPLICATE_KEY = 14,     /* two entries have the same name */
  SHARDMESH_BAD_FORMAT = 15,        /* a file is not what it claims to be */
  SHARDMESH_BAD_PICKLE = 16,        /* a pickle is malformed or beyond the limits */
  SHARDMESH_UNSUPPORTED = 17,       /* well-formed, but of a kind that shardmesh does not read or write */
  SHARDMESH_CHECKSUM_MISMATCH = 18, /* bytes differ from their checksum */
  SHARDMESH_INCOMPLETE_SAVE = 19,   /* an interrupted save */
  SHARDMESH_UNSAFE_PATH = 20,       /* a path that leads out of the checkpoint's folder */
  SHARDMESH_DESTINATION_EXISTS = 21,
  SHARDMESH_IO = 22,       /* the operating system or a server refused an operation, or a file changed */
  SHARDMESH_NO_SPACE = 23, /* the disk is full */
  SHARDMESH_CANCELLED = 24,
  SHARDMESH_DEADLINE_EXCEEDED = 25,
  SHARDMESH_DISAGREEMENT = 26,
  SHARDMESH_COMMUNICATION = 27
};

/* The status's name, such as "missing_key"; "unknown" for a number that is not a status. */
SHARDMESH_C_EXPORT const char* shardmesh_status_name(shardmesh_status status);

typedef struct shardmesh_error shardmesh_error;

/* The parts of an error; unknown ones are empty. */
typedef struct shardmesh_error_fields {
  size_t struct_size;
  shardmesh_text message; /* the failure, without the parts below */
  shardmesh_text key;     /* of the tensor or object */
  shardmesh_text path;    /* of the file */
  shardmesh_text expected;
  shardmesh_text found;
  shardmesh_text hint;
  const int32_t* ranks;
  size_t rank_count;
  const shardmesh_box* boxes;
  size_t box_count;
  shardmesh_status status;
  int32_t system_error; /* errno of the failure; 0 if there is none */
} shardmesh_error_fields;

/* SHARDMESH_OK for null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_error_status(const shardmesh_error* error);
/* The whole error on one line, with control bytes escaped; "" for null. */
SHARDMESH_C_EXPORT const char* shardmesh_error_text(const shardmesh_error* error);
/* Fills `fields`, whose struct_size must be set. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_error_describe(const shardmesh_error* error,
                                                             shardmesh_error_fields* fields);
/* The next of several problems, which belongs to this error; null after the last. */
SHARDMESH_C_EXPORT const shardmesh_error* shardmesh_error_next(const shardmesh_error* error);
/* Frees an error that a call returned, and all that follow it. Not for errors that belong to a handle. */
SHARDMESH_C_EXPORT void shardmesh_error_free(shardmesh_error* error);

SHARDMESH_C_END

#endif
