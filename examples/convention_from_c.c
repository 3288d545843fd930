/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a checkpoint under another program's names from C, and lists the mappings that the library contains.
 * Usage: convention_from_c CHECKPOINT MAPPING (hf.llama:megatron.gpt, or a TOML file) */
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

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: convention_from_c CHECKPOINT MAPPING\n"), 2;
  shardmesh_error* error = NULL;
  shardmesh_checkpoint* checkpoint = NULL;
  shardmesh_open_options options = {.struct_size = sizeof options, .map = argv[2]};
  check(shardmesh_checkpoint_open(argv[1], &options, &checkpoint, &error), &error);

  shardmesh_checkpoint_summary summary = {.struct_size = sizeof summary};
  check(shardmesh_checkpoint_describe(checkpoint, &summary, &error), &error);
  for (size_t i = 0; i < summary.tensor_count; ++i) {
    shardmesh_tensor_entry entry = {.struct_size = sizeof entry};
    check(shardmesh_checkpoint_tensor(checkpoint, i, &entry, &error), &error);
    printf("%.*s: %s", (int)entry.key.size, entry.key.bytes, shardmesh_dtype_name(entry.dtype));
    for (int64_t d = 0; d < entry.rank; ++d) printf("%s%lld", d == 0 ? " " : " x ", (long long)entry.shape[d]);
    printf("\n");
  }
  shardmesh_checkpoint_close(checkpoint);

  size_t count = 0;
  check(shardmesh_mapping_count(&count, &error), &error);
  for (size_t i = 0; i < count; ++i) {
    shardmesh_text name;
    check(shardmesh_mapping_name(i, &name, &error), &error);
    printf("known: %.*s\n", (int)name.size, name.bytes);
  }
  return 0;
}
