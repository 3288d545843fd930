/* SPDX-License-Identifier: Apache-2.0 */
/* Examines a checkpoint from an untrusted source. Runs nothing in it. Usage: untrusted CHECKPOINT */
#include <shardmesh/c_api.h>

#include <stdio.h>

static int print_all(const char* kind, const shardmesh_error* first) {
  int count = 0;
  for (; first != NULL; first = shardmesh_error_next(first), ++count)
    printf("%s: %s\n", kind, shardmesh_error_text(first));
  return count;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: untrusted CHECKPOINT\n"), 2;
  shardmesh_error* error = NULL;
  shardmesh_checkpoint* checkpoint = NULL;
  shardmesh_verify_report* report = NULL;
  shardmesh_status status = shardmesh_checkpoint_open(argv[1], NULL, &checkpoint, &error);
  if (status == SHARDMESH_OK) status = shardmesh_verify(checkpoint, NULL, &report, &error);
  if (status != SHARDMESH_OK) {
    fprintf(stderr, "%s\n", shardmesh_error_text(error));
    shardmesh_error_free(error);
    shardmesh_checkpoint_close(checkpoint);
    return 1;
  }
  int found = print_all("problem", shardmesh_verify_report_problems(report)); /* damage, dangerous names */
  found += print_all("warning", shardmesh_verify_report_warnings(report));    /* unknown names */
  puts(found == 0 ? "nothing found" : "do not load this with Python");
  shardmesh_verify_report_free(report);
  shardmesh_checkpoint_close(checkpoint);
  return found == 0 ? 0 : 1;
}
