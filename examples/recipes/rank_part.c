/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the part of a float32 tensor that one rank of a mesh of 3 holds. Usage: rank_part CHECKPOINT KEY RANK */
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
  if (argc != 4) return fprintf(stderr, "usage: rank_part CHECKPOINT KEY RANK\n"), 2;
  shardmesh_error* error = NULL;
  shardmesh_checkpoint* checkpoint = NULL;
  check(shardmesh_checkpoint_open(argv[1], NULL, &checkpoint, &error), &error);
  size_t index = 0;
  check(shardmesh_checkpoint_find_tensor(checkpoint, argv[2], 0, &index, &error), &error);
  shardmesh_tensor_entry entry = {.struct_size = sizeof entry};
  check(shardmesh_checkpoint_tensor(checkpoint, index, &entry, &error), &error);

  /* Rows over the three ranks: a rank has one box, or none. */
  shardmesh_layout* layout = NULL;
  check(shardmesh_layout_make("3", "S(0)", entry.shape, (int32_t)entry.rank, NULL, &layout, &error), &error);
  shardmesh_placed_box mine = {.where = {.rank = 0}};
  size_t boxes = 0;
  check(shardmesh_layout_boxes(layout, atoi(argv[3]), &mine, 1, &boxes, &error), &error);
  shardmesh_layout_free(layout);

  size_t numel = boxes;
  for (int64_t d = 0; boxes > 0 && d < mine.where.rank; ++d) numel *= (size_t)mine.where.sizes[d];
  float* part = malloc((numel > 0 ? numel : 1) * sizeof *part);
  if (part == NULL) return 1;
  const shardmesh_load_request request = {
      argv[2], 0, mine.where.offsets, {part, mine.where.sizes, NULL, SHARDMESH_DTYPE_FLOAT32, (int32_t)entry.rank}};
  check(shardmesh_load(checkpoint, &request, boxes, NULL, NULL, &error), &error); /* reads this part only */
  printf("rank %s holds %d of %d rows\n", argv[3], boxes > 0 ? (int)mine.where.sizes[0] : 0, (int)entry.shape[0]);
  free(part);
  shardmesh_checkpoint_close(checkpoint);
  return 0;
}
