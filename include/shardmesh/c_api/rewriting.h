/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint into another format, or onto another mesh. Rules are the texts of the command line (docs/commands.md).
 */
#ifndef SHARDMESH_C_API_REWRITING_H
#define SHARDMESH_C_API_REWRITING_H

#include <shardmesh/c_api/saving.h>

SHARDMESH_C_BEGIN

/* Which keys take part, under which names and element types. Expressions are RE2's and match whole keys. */
typedef struct shardmesh_selection {
  size_t struct_size;
  const char* const* only; /* keep what one of these matches; none: everything */
  size_t only_count;
  const char* const* skip;
  size_t skip_count;
  const char* const* rename; /* "EXPRESSION=REPLACEMENT", in order */
  size_t rename_count;
  /* "DTYPE" or "EXPRESSION=DTYPE" for tensors of DTYPE's kind (floating, integer, complex); "FROM:DTYPE" or
   * "EXPRESSION=FROM:DTYPE" for those of the element type FROM; the first that casts a tensor */
  const char* const* cast;
  size_t cast_count;
  const char* strip_prefix; /* null: none */
  int32_t no_optimizer;     /* drops optimizer state */
  int32_t allow_unused;     /* a rule that matches nothing is no error */
  /* skip, strip_prefix and rename of a parameter are also of its optimizer state */
  int32_t optimizer_follows;
  /* casts that lose values of integers or that change the kind of numbers; else SHARDMESH_NARROWING. Casts to a smaller
   * floating type are always made, and a note of the report counts them. */
  int32_t allow_narrowing;
} shardmesh_selection;

typedef int32_t shardmesh_dedup;
enum {
  SHARDMESH_DEDUP_NONE = 0,
  SHARDMESH_DEDUP_TIED = 1, /* one stored tensor under several names is written once */
  SHARDMESH_DEDUP_EQUAL = 2 /* beside those, tensors of equal bytes */
};

typedef struct shardmesh_convert_options {
  size_t struct_size;
  const shardmesh_save_options* saving;
  const shardmesh_selection* selection;
  int64_t max_shard_bytes;  /* of HF: of a file; 0: Hugging Face's 5 GB */
  shardmesh_dedup dedup;    /* which tensors are written once, under the first of their keys */
  int32_t skip_objects;     /* of SAFETENSORS and HF */
  int32_t skip_unsupported; /* leaves out what the destination cannot hold */
  int32_t nest;             /* DCP, TORCH, TORCH_CHECKPOINTING from flat names: split at dots */
  const char* item;         /* TORCH_CHECKPOINTING: all goes below it; null: the first name of a path is its item */
  shardmesh_checkpoint* shapes_like; /* tensors must have the shapes of those of its keys; null: no matter which */
  int32_t allow_shape_mismatch;      /* with `shapes_like`: they are cut at the end, or filled with zeros */
  int32_t
      components; /* DCP, TORCH, TORCH_CHECKPOINTING: sparse, nested, quantized tensors and torchao's as components */
  int32_t safetensors_files; /* TORCH_CHECKPOINTING: of items of nothing but tensors that safetensors can hold */
  int32_t reserved;          /* 0 */
} shardmesh_convert_options;

/* Writes the checkpoint at `path` in the format of `options->saving`. Every checksum of what is copied is compared
 * before the destination appears. `report` may be null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_convert(shardmesh_checkpoint* checkpoint, const char* path,
                                                      const shardmesh_convert_options* options,
                                                      shardmesh_save_report** report, shardmesh_error** error);

typedef struct shardmesh_reshard_options {
  size_t struct_size;
  const shardmesh_save_options* saving; /* its format is DCP */
  const shardmesh_selection* selection;
  const char* mesh;         /* "dp=2,tp=4"; null with `like` */
  const char* const* place; /* "EXPRESSION=S(0),R": the first that matches a key */
  size_t place_count;
  const char* default_placements; /* "R,R" of keys that no rule matches; null: R everywhere */
  shardmesh_checkpoint* like;     /* boxes and ranks of another checkpoint's tensors, instead of a mesh */
  int32_t no_optimizer_follow;    /* optimizer state does not take its parameter's placements */
  int32_t skip_unsupported;       /* leaves out what cannot be cut or written */
} shardmesh_reshard_options;

/* Writes the checkpoint at `path` as DCP for another mesh: each rank's bytes in a file of its own. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_reshard(shardmesh_checkpoint* checkpoint, const char* path,
                                                      const shardmesh_reshard_options* options,
                                                      shardmesh_save_report** report, shardmesh_error** error);

SHARDMESH_C_END

#endif
