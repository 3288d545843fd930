/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the second row of a matrix of a checkpoint, as float64. Usage: read_tensor CHECKPOINT KEY */
#include <shardmesh/c_api.h>

#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the error's text unless the call succeeded. */
static void check(shardmesh_status status, shardmesh_error** error) {
  if (status == SHARDMESH_OK) return;
  fprintf(stderr, "%s: %s\n", shardmesh_status_name(status), shardmesh_error_text(*error));
  shardmesh_error_free(*error);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: read_tensor CHECKPOINT KEY\n"), 2;
  shardmesh_error* error = NULL;
  shardmesh_checkpoint* checkpoint = NULL;
  check(shardmesh_checkpoint_open(argv[1], NULL, &checkpoint, &error), &error);
  size_t index = 0;
  check(shardmesh_checkpoint_find_tensor(checkpoint, argv[2], 0, &index, &error), &error);
  shardmesh_tensor_entry entry = {.struct_size = sizeof entry};
  check(shardmesh_checkpoint_tensor(checkpoint, index, &entry, &error), &error);
  if (entry.rank != 2) return fprintf(stderr, "%s is no matrix\n", argv[2]), 1;

  const int64_t offsets[] = {1, 0};
  const int64_t sizes[] = {1, entry.shape[1]};
  double* row = malloc((size_t)sizes[1] * sizeof *row);
  if (row == NULL) return 1;
  const shardmesh_load_request request = {argv[2], 0, offsets, {row, sizes, NULL, SHARDMESH_DTYPE_FLOAT64, 2}};
  check(shardmesh_load(checkpoint, &request, 1, NULL, NULL, &error), &error); /* reads this row only */
  printf("%s[1]: the first of %d is %g\n", argv[2], (int)sizes[1], row[0]);
  free(row);
  shardmesh_checkpoint_close(checkpoint);
  return 0;
}
