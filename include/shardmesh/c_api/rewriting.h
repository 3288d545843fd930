/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites a checkpoint in another format or for another mesh. Rules are written as on the command line
 * (docs/commands.md). */
#ifndef SHARDMESH_C_API_REWRITING_H
#define SHARDMESH_C_API_REWRITING_H

#include <shardmesh/c_api/saving.h>

SHARDMESH_C_BEGIN

/* The keys that take part, and their new names and element types. Expressions are RE2's and match whole keys. */
typedef struct shardmesh_selection {
  size_t struct_size;
  const char* const* only; /* keeps keys that one of these matches; none: all */
  size_t only_count;
  const char* const* skip;
  size_t skip_count;
  const char* const* rename; /* "EXPRESSION=REPLACEMENT", in order */
  size_t rename_count;
  /* "DTYPE" or "EXPRESSION=DTYPE" casts tensors of DTYPE's kind (floating, integer, complex); "FROM:DTYPE" or
   * "EXPRESSION=FROM:DTYPE" casts those of the element type FROM. The first rule that casts a tensor applies. */
  const char* const* cast;
  size_t cast_count;
  const char* strip_prefix; /* null: none */
  int32_t no_optimizer;     /* drops optimizer state */
  int32_t allow_unused;     /* a rule may match nothing */
  /* skip, strip_prefix, and rename rules that match a parameter also apply to its optimizer state */
  int32_t optimizer_follows;
  /* Allows casts that lose integer values or change the kind of numbers; without it they fail with
   * SHARDMESH_NARROWING. Casts to a smaller floating type are always allowed, and a note of the report counts them. */
  int32_t allow_narrowing;
} shardmesh_selection;

typedef int32_t shardmesh_dedup;
enum {
  SHARDMESH_DEDUP_NONE = 0,
  SHARDMESH_DEDUP_TIED = 1, /* a stored tensor with several names is written once */
  SHARDMESH_DEDUP_EQUAL = 2 /* also tensors with equal bytes */
};

/* The files of a TORCH_CHECKPOINTING folder. */
typedef int32_t shardmesh_payload;
enum {
  SHARDMESH_PAYLOAD_TORCH = 0,
  SHARDMESH_PAYLOAD_SAFETENSORS = 1 /* for items that hold only tensors that safetensors supports */
};

typedef struct shardmesh_convert_options {
  size_t struct_size;
  const shardmesh_save_options* saving;
  const shardmesh_selection* selection;
  int64_t max_shard_bytes;      /* HF: the largest file; 0: Hugging Face's 5 GB */
  shardmesh_dedup dedup;        /* tensors written only once, under the first of their keys */
  int32_t skip_objects;         /* writes only the tensors */
  int32_t skip_unsupported;     /* leaves out entries that the destination cannot hold */
  int32_t nest;                 /* DCP, TORCH, TORCH_CHECKPOINTING from flat names: split at dots */
  const char* item;             /* TORCH_CHECKPOINTING: the item for all entries; null: the first name of each path */
  shardmesh_checkpoint* like;   /* each tensor must have its shape in this checkpoint; null: any shape */
  int32_t allow_shape_mismatch; /* with `like`: tensors are cut at the end, or filled with zeros */
  int32_t
      components; /* DCP, TORCH, TORCH_CHECKPOINTING: sparse, nested, quantized, and torchao tensors as components */
  shardmesh_payload payload; /* TORCH_CHECKPOINTING */
  int32_t reserved;          /* 0 */
} shardmesh_convert_options;

/* Writes the checkpoint at `path` in the format of `options->saving`. Every checksum of copied data is compared
 * before the destination appears. `report` may be null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_convert(shardmesh_checkpoint* checkpoint, const char* path,
                                                      const shardmesh_convert_options* options,
                                                      shardmesh_save_report** report, shardmesh_error** error);

typedef struct shardmesh_reshard_options {
  size_t struct_size;
  const shardmesh_save_options* saving; /* its format must be DCP */
  const shardmesh_selection* selection;
  const char* mesh;         /* "dp=2,tp=4"; null with `like` */
  const char* const* place; /* "EXPRESSION=S(0),R": the first that matches a key applies */
  size_t place_count;
  const char* default_placements; /* "R,R": for keys that no rule matches; null: R everywhere */
  shardmesh_checkpoint* like;     /* takes boxes and ranks from this checkpoint's tensors instead of a mesh */
  int32_t no_optimizer_follow;    /* optimizer state does not take its parameter's placements */
  int32_t skip_unsupported;       /* leaves out entries that cannot be cut or written */
} shardmesh_reshard_options;

/* Writes the checkpoint at `path` as DCP for another mesh, with one file for each rank. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_reshard(shardmesh_checkpoint* checkpoint, const char* path,
                                                      const shardmesh_reshard_options* options,
                                                      shardmesh_save_report** report, shardmesh_error** error);

SHARDMESH_C_END

#endif
