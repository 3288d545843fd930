/* SPDX-License-Identifier: Apache-2.0 */
/* An opened checkpoint and its contents: tensors, their chunks, objects, and files. */
#ifndef SHARDMESH_C_API_CHECKPOINT_H
#define SHARDMESH_C_API_CHECKPOINT_H

#include <shardmesh/c_api/error.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_checkpoint shardmesh_checkpoint;

typedef int32_t shardmesh_format;
enum {                                     /* later versions may read more */
       SHARDMESH_FORMAT_DCP = 0,           /* a folder of torch.distributed.checkpoint */
       SHARDMESH_FORMAT_TORCH = 1,         /* a file of torch.save */
       SHARDMESH_FORMAT_SAFETENSORS = 2,   /* a safetensors file */
       SHARDMESH_FORMAT_HF = 3,            /* a Hugging Face folder of safetensors files */
       SHARDMESH_FORMAT_TORCH_FILES = 4,   /* torch.save files that form one checkpoint: parts of a model, ranks' */
       SHARDMESH_FORMAT_DEEPSPEED = 5,     /* a DeepSpeed folder: ZeRO 0 to 3 */
       SHARDMESH_FORMAT_TORCHSNAPSHOT = 6, /* a torchsnapshot folder */
       SHARDMESH_FORMAT_TORCH_CHECKPOINTING = 7, /* a folder of torch_checkpointing */
       SHARDMESH_FORMAT_PARTS = 8,               /* a folder of several checkpoints, seen as one */
       SHARDMESH_FORMAT_GGUF = 9,                /* a GGUF file */
       SHARDMESH_FORMAT_NPZ = 10,                /* an .npz archive or .npy file of NumPy, an MLX folder of them */
       SHARDMESH_FORMAT_NEMO = 11,               /* a .nemo file */
       SHARDMESH_FORMAT_DELTA = 12               /* a delta over its base; no function of C opens one */
};

/* A number of the model, a size of a mapping, or the range of one of its captures, and the value to use instead. */
typedef struct shardmesh_model_size {
  const char* name;
  int64_t value;
} shardmesh_model_size;

typedef struct shardmesh_open_options {
  size_t struct_size;
  int64_t limit_factor; /* raises the limits on what untrusted files may cost; 0: 1 */
  /* The only keys that the caller will use. The description of other keys in a DCP folder is skipped, so few of them
   * or none are listed. Formats that would gain nothing list every key. */
  const char* const* only_keys;
  size_t only_key_count;
  int64_t block_size; /* with `dequantize`: rows and columns of FP8 weights that share a scale; 0: 128 */
  int32_t dequantize; /* lists FP8 weights with block scales, and MXFP4, as the FLOAT32 values that they represent;
                         reading them compares the stored bytes with their checksums */
  int32_t all_parts;  /* shows everything in a folder as one checkpoint with keys "PART.KEY" */
  /* For folders whose ranks saved without collectives, where ranks may hold different values under one key: the rank
   * whose values are read. Null: none; reading such a key fails with SHARDMESH_DISAGREEMENT. */
  const int32_t* rank;
  int32_t keys_at_ranks; /* lists such a key as "KEY@RANK", once for each rank; not together with `rank` */
  int32_t map_inverse;   /* with the file of a `map`: applies the mapping from right to left */
  /* Shows the checkpoint under another naming convention: two names, such as "hf.llama:megatron.gpt" (conventions.h),
   * or the path of a TOML file. A text that ends in ".toml" or contains a slash is a path. Tensors are renamed, fused,
   * and split; a fused tensor is computed when it is read, and the stored bytes are compared with their checksums.
   * Opening fails if the mapping leaves out a tensor of the checkpoint, or needs one that it lacks. Null: the stored
   * names. Not together with `only_keys`. */
  const char* map;
  const char* config; /* with `map`: a JSON file with the model's sizes; null: config.json or params.json beside the
                         checkpoint, if there is one */
  const shardmesh_model_size* sizes; /* with `map`: replace those of `config` and of the mapping. A name that the
                                        mapping does not use, or that is here twice, is an error */
  size_t size_count;
  int64_t timeout_milliseconds; /* after which opening ends with SHARDMESH_DEADLINE_EXCEEDED, at most a second later if
                                   it waits for a server; 0: never */
} shardmesh_open_options;

/* Opens `path` in any supported format and reads only its description. The path is UTF-8, or the system's bytes. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_open(const char* path, const shardmesh_open_options* options,
                                                              shardmesh_checkpoint** checkpoint,
                                                              shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_checkpoint_close(shardmesh_checkpoint* checkpoint);

typedef struct shardmesh_checkpoint_summary {
  size_t struct_size;
  shardmesh_text version; /* of the format, if the files state it */
  size_t tensor_count;
  size_t object_count;
  size_t file_count;
  size_t note_count;
  int64_t tensor_bytes; /* of all whole tensors */
  shardmesh_format format;
  int32_t reserved;
} shardmesh_checkpoint_summary;

/* Fills `summary`, whose struct_size must be set. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_describe(const shardmesh_checkpoint* checkpoint,
                                                                  shardmesh_checkpoint_summary* summary,
                                                                  shardmesh_error** error);

typedef struct shardmesh_tensor_entry {
  size_t struct_size;
  shardmesh_text key;
  shardmesh_text opaque_type;   /* Python's name of a representation that is only copied; else empty */
  shardmesh_text foreign_dtype; /* PyTorch's name of an element type that shardmesh lacks; else empty */
  size_t chunk_count;
  int64_t rank;
  int64_t shape[SHARDMESH_MAX_RANK]; /* entries beyond `rank` are 0 */
  shardmesh_dtype dtype;
  int32_t requires_grad;
} shardmesh_tensor_entry;

/* The location of a chunk's elements: a byte range of a file. A compressed range is shorter than the elements. */
typedef struct shardmesh_chunk_entry {
  size_t struct_size;
  shardmesh_box where;
  shardmesh_text file; /* relative to the checkpoint; empty if unknown */
  int64_t offset;
  int64_t length;
} shardmesh_chunk_entry;

/* Tensors are numbered from 0 in the order of the files; SHARDMESH_OUT_OF_BOUNDS beyond the last. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_tensor(const shardmesh_checkpoint* checkpoint, size_t index,
                                                                shardmesh_tensor_entry* entry, shardmesh_error** error);
/* The `chunk`th chunk of the `index`th tensor. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_chunk(const shardmesh_checkpoint* checkpoint, size_t index,
                                                               size_t chunk, shardmesh_chunk_entry* entry,
                                                               shardmesh_error** error);
/* The key of an object: an entry that is not a tensor. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_object(const shardmesh_checkpoint* checkpoint, size_t index,
                                                                shardmesh_text* key, shardmesh_error** error);
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_file(const shardmesh_checkpoint* checkpoint, size_t index,
                                                              shardmesh_text* name, shardmesh_error** error);
/* A remark for users about entries that are not stored as they are listed. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_note(const shardmesh_checkpoint* checkpoint, size_t index,
                                                              shardmesh_text* note, shardmesh_error** error);

/* The index of the entry with this key. SHARDMESH_MISSING_KEY suggests the nearest key in its hint. `key_size` 0:
 * the key ends at its first 0. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_find_tensor(const shardmesh_checkpoint* checkpoint,
                                                                     const char* key, size_t key_size, size_t* index,
                                                                     shardmesh_error** error);
SHARDMESH_C_EXPORT shardmesh_status shardmesh_checkpoint_find_object(const shardmesh_checkpoint* checkpoint,
                                                                     const char* key, size_t key_size, size_t* index,
                                                                     shardmesh_error** error);

/* Oddities and damage beside the readable entries: the first of a list that belongs to the checkpoint. Null if there
 * is none, and for null. */
SHARDMESH_C_EXPORT const shardmesh_error* shardmesh_checkpoint_warnings(const shardmesh_checkpoint* checkpoint);
SHARDMESH_C_EXPORT const shardmesh_error* shardmesh_checkpoint_problems(const shardmesh_checkpoint* checkpoint);

SHARDMESH_C_END

#endif
