/* SPDX-License-Identifier: Apache-2.0 */
#include <shardmesh/c_api.h>
#include <stdio.h>

int main(void) {
  const int64_t shape[] = {10, 7};
  int64_t local[2];
  shardmesh_layout* layout = NULL;
  if (shardmesh_layout_make("4", "S(0)", shape, 2, NULL, &layout, NULL) != SHARDMESH_OK) return 1;
  if (shardmesh_layout_local_shape(layout, 3, local, NULL) != SHARDMESH_OK) return 1;
  printf("rank 3 of 4 holds %d x %d\n", (int)local[0], (int)local[1]);
  shardmesh_layout_free(layout);
  return 0;
}
