/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways to use a checkpoint's values from C without waiting for all of them: a load in the background that
 * reports arriving keys, and a mapping of the file. Usage: load_from_c CHECKPOINT */
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

/* Called on a thread of the load, one key at a time. */
static int32_t arrived(void* user, shardmesh_text key) {
  size_t* count = user;
  ++*count;
  printf("arrived: %.*s\n", (int)key.size, key.bytes);
  return 0;
}

/* Allocates a float64 tensor of the entry's shape; release it with `free`. */
static double* memory_for(const shardmesh_tensor_entry* entry) {
  size_t numel = 1;
  for (int64_t d = 0; d < entry->rank; ++d) numel *= (size_t)entry->shape[d];
  double* made = malloc((numel > 0 ? numel : 1) * sizeof *made);
  if (made == NULL) exit(1);
  return made;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: load_from_c CHECKPOINT\n"), 2;
  shardmesh_error* error = NULL;
  shardmesh_checkpoint* checkpoint = NULL;
  check(shardmesh_checkpoint_open(argv[1], NULL, &checkpoint, &error), &error);

  /* Load the first two tensors in the background. */
  shardmesh_tensor_entry entries[2] = {{.struct_size = sizeof entries[0]}, {.struct_size = sizeof entries[0]}};
  shardmesh_load_request requests[2];
  for (size_t i = 0; i < 2; ++i) {
    check(shardmesh_checkpoint_tensor(checkpoint, i, &entries[i], &error), &error);
    requests[i] = (shardmesh_load_request){
        entries[i].key.bytes,
        entries[i].key.size,
        NULL,
        {memory_for(&entries[i]), entries[i].shape, NULL, SHARDMESH_DTYPE_FLOAT64, (int32_t)entries[i].rank}};
  }
  size_t count = 0;
  int64_t bytes = 0;
  shardmesh_loading* loading = NULL;
  shardmesh_start_load_options options = {.struct_size = sizeof options, .on_arrival = &arrived, .user = &count};
  check(shardmesh_start_load(checkpoint, requests, 2, &options, &loading, &error), &error);
  /* ... other work ... */
  check(shardmesh_loading_wait(loading, &bytes, &error), &error);
  shardmesh_loading_free(loading);
  printf("tensors: %zu, bytes: %lld\n", count, (long long)bytes);

  /* Map one chunk of the first tensor in place; it may begin anywhere in the file. The mapping outlives the
   * checkpoint. */
  shardmesh_chunk_entry chunk = {.struct_size = sizeof chunk};
  check(shardmesh_checkpoint_chunk(checkpoint, 0, 0, &chunk, &error), &error);
  shardmesh_map_options where = {.struct_size = sizeof where, .allow_unaligned = 1};
  where.offsets = chunk.where.offsets;
  where.sizes = chunk.where.sizes;
  where.rank = chunk.where.rank;
  shardmesh_mapped* mapped = NULL;
  check(shardmesh_map_tensor(checkpoint, entries[0].key.bytes, entries[0].key.size, &where, &mapped, &error), &error);
  shardmesh_checkpoint_close(checkpoint);
  shardmesh_mapped_view view = {.struct_size = sizeof view};
  check(shardmesh_mapped_describe(mapped, &view, &error), &error);
  check(shardmesh_mapped_check(mapped, &error), &error);
  printf("mapped: %s, bytes: %lld\n", shardmesh_dtype_name(view.dtype), (long long)view.byte_size);
  shardmesh_mapped_free(mapped);
  for (size_t i = 0; i < 2; ++i) free(requests[i].to.data);
  return 0;
}
