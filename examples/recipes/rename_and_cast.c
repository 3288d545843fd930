/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a model as bfloat16 safetensors under shorter names, without optimizer state.
 * Usage: rename_and_cast CHECKPOINT NEW.safetensors */
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
  if (argc != 3) return fprintf(stderr, "usage: rename_and_cast CHECKPOINT NEW.safetensors\n"), 2;
  shardmesh_error* error = NULL;
  shardmesh_checkpoint* checkpoint = NULL;
  check(shardmesh_checkpoint_open(argv[1], NULL, &checkpoint, &error), &error);

  const char* const rename[] = {"model\\.(.*)=\\1"};
  const char* const cast[] = {"bfloat16"};
  shardmesh_selection selection = {.struct_size = sizeof selection};
  selection.no_optimizer = 1;
  selection.rename = rename;
  selection.rename_count = 1;
  selection.cast = cast;
  selection.cast_count = 1;
  shardmesh_save_options saving = {.struct_size = sizeof saving};
  saving.format = SHARDMESH_FORMAT_SAFETENSORS;
  shardmesh_convert_options options = {.struct_size = sizeof options};
  options.selection = &selection;
  options.saving = &saving;
  shardmesh_save_report* report = NULL;
  check(shardmesh_convert(checkpoint, argv[2], &options, &report, &error), &error);

  shardmesh_save_counts counts = {.struct_size = sizeof counts};
  check(shardmesh_save_report_describe(report, &counts, &error), &error);
  printf("tensors: %d\n", (int)counts.tensors);
  shardmesh_save_report_free(report);
  shardmesh_checkpoint_close(checkpoint);
  return 0;
}
