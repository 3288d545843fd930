/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints from C: lists one, loads a row, and saves a new one. Usage: checkpoint_from_c CHECKPOINT NEW */
#include <shardmesh/c_api.h>

#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the error's text unless the call succeeded. Takes the error's address: C may evaluate
 * `error` itself before the call beside it has set it. */
static void check(shardmesh_status status, shardmesh_error** error) {
  if (status == SHARDMESH_OK) return;
  fprintf(stderr, "%s: %s\n", shardmesh_status_name(status), shardmesh_error_text(*error));
  shardmesh_error_free(*error);
  exit(1);
}

/* Prints every tensor; returns the index of the first float32 matrix. */
static size_t list_tensors(const shardmesh_checkpoint* checkpoint) {
  shardmesh_error* error = NULL;
  shardmesh_checkpoint_summary summary = {.struct_size = sizeof summary};
  check(shardmesh_checkpoint_describe(checkpoint, &summary, &error), &error);
  size_t matrix = summary.tensor_count;
  for (size_t i = 0; i < summary.tensor_count; ++i) {
    shardmesh_tensor_entry entry = {.struct_size = sizeof entry};
    check(shardmesh_checkpoint_tensor(checkpoint, i, &entry, &error), &error);
    printf("%s: %s, dimensions: %d, chunks: %zu\n", entry.key.bytes, shardmesh_dtype_name(entry.dtype), (int)entry.rank,
           entry.chunk_count);
    if (matrix == summary.tensor_count && entry.rank == 2 && entry.dtype == SHARDMESH_DTYPE_FLOAT32) matrix = i;
  }
  return matrix;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: checkpoint_from_c CHECKPOINT NEW\n"), 2;
  shardmesh_error* error = NULL;
  shardmesh_checkpoint* checkpoint = NULL;
  check(shardmesh_checkpoint_open(argv[1], NULL, &checkpoint, &error), &error);
  const size_t matrix = list_tensors(checkpoint);
  shardmesh_tensor_entry entry = {.struct_size = sizeof entry};
  check(shardmesh_checkpoint_tensor(checkpoint, matrix, &entry, &error), &error);

  /* The second row, as float64: only its bytes are read. */
  const int64_t offsets[] = {1, 0};
  const int64_t sizes[] = {1, entry.shape[1]};
  double* row = malloc((size_t)sizes[1] * sizeof *row);
  if (row == NULL) return 1;
  const shardmesh_load_request request = {
      entry.key.bytes, entry.key.size, offsets, {row, sizes, NULL, SHARDMESH_DTYPE_FLOAT64, 2}};
  check(shardmesh_load(checkpoint, &request, 1, NULL, NULL, &error), &error);
  printf("%s[1][0] = %g\n", entry.key.bytes, row[0]);

  /* The row as a new checkpoint, which torch.distributed.checkpoint can load. */
  const shardmesh_save_part part = {NULL, {row, sizes, NULL, SHARDMESH_DTYPE_FLOAT64, 2}, 0, 0};
  const shardmesh_save_tensor tensor = {"row", 0, sizes, 2, &part, 1};
  shardmesh_save_options options = {.struct_size = sizeof options};
  options.overwrite = 1;
  check(shardmesh_save(argv[2], &tensor, 1, &options, NULL, &error), &error);

  free(row);
  shardmesh_checkpoint_close(checkpoint);
  check(shardmesh_checkpoint_open(argv[2], NULL, &checkpoint, &error), &error);
  list_tensors(checkpoint);
  shardmesh_checkpoint_close(checkpoint);
  return 0;
}
