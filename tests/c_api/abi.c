/* SPDX-License-Identifier: Apache-2.0 */
/* The ABI of SHARDMESH_C_API_VERSION 1 on 64-bit systems: sizes of structs that are array elements, fields of the
 * other structs, and numbers. A failure here means that programs compiled earlier would break. Compiled with
 * -Wpadded: padding between fields would have no value to compare with 0. */
#include <shardmesh/c_api.h>

#include <stddef.h>

#define HOLDS(condition) _Static_assert(condition, #condition)
#define AT(type, field, offset) HOLDS(offsetof(type, field) == (offset))

HOLDS(SHARDMESH_C_API_VERSION == 1);
HOLDS(sizeof(void*) == 8);

/* Array elements and values: these never change. */
HOLDS(sizeof(shardmesh_text) == 16);
HOLDS(sizeof(shardmesh_box) == 264);
HOLDS(sizeof(shardmesh_tensor) == 32);
HOLDS(sizeof(shardmesh_const_tensor) == 32);
HOLDS(sizeof(shardmesh_load_request) == 56);
HOLDS(sizeof(shardmesh_save_part) == 48);
HOLDS(sizeof(shardmesh_save_tensor) == 48);
HOLDS(sizeof(shardmesh_placed_box) == 392);
HOLDS(sizeof(shardmesh_link) == 16);
HOLDS(sizeof(shardmesh_step) == 560);
HOLDS(sizeof(shardmesh_model_size) == 16);
AT(shardmesh_tensor, dtype, 24);
AT(shardmesh_load_request, to, 24);
AT(shardmesh_save_part, writer, 40);
AT(shardmesh_step, factor, 16);
AT(shardmesh_step, from_rank, 288);
AT(shardmesh_step, to_rank, 424);

/* These may grow at their end. */
HOLDS(sizeof(shardmesh_call) >= 32);
AT(shardmesh_call, timeout_milliseconds, 24);
HOLDS(sizeof(shardmesh_error_fields) >= 144);
AT(shardmesh_error_fields, ranks, 104);
AT(shardmesh_error_fields, system_error, 140);
HOLDS(sizeof(shardmesh_open_options) >= 96);
AT(shardmesh_open_options, only_keys, 16);
AT(shardmesh_open_options, all_parts, 44);
AT(shardmesh_open_options, rank, 48);
AT(shardmesh_open_options, keys_at_ranks, 56);
AT(shardmesh_open_options, map_inverse, 60);
AT(shardmesh_open_options, map, 64);
AT(shardmesh_open_options, size_count, 88);
AT(shardmesh_open_options, timeout_milliseconds, 96);
HOLDS(sizeof(shardmesh_checkpoint_summary) >= 72);
AT(shardmesh_checkpoint_summary, format, 64);
HOLDS(sizeof(shardmesh_tensor_entry) >= 208);
AT(shardmesh_tensor_entry, shape, 72);
AT(shardmesh_tensor_entry, requires_grad, 204);
HOLDS(sizeof(shardmesh_chunk_entry) >= 304);
AT(shardmesh_chunk_entry, length, 296);
HOLDS(sizeof(shardmesh_load_options) >= 32);
AT(shardmesh_load_options, allow_narrowing, 20);
AT(shardmesh_load_options, allow_shape_mismatch, 28);
HOLDS(sizeof(shardmesh_start_load_options) >= 48);
AT(shardmesh_start_load_options, check, 40);
AT(shardmesh_start_load_options, allow_shape_mismatch, 44);
HOLDS(sizeof(shardmesh_loading_progress) >= 24);
HOLDS(sizeof(shardmesh_map_options) >= 40);
AT(shardmesh_map_options, allow_unaligned, 32);
HOLDS(sizeof(shardmesh_mapped_view) >= 296);
AT(shardmesh_mapped_view, sizes, 32);
AT(shardmesh_mapped_view, dtype, 288);
HOLDS(sizeof(shardmesh_save_options) >= 40);
AT(shardmesh_save_options, threads, 36);
AT(shardmesh_save_options, previous, 40);
AT(shardmesh_save_options, map, 48);
AT(shardmesh_save_options, size_count, 72);
AT(shardmesh_save_options, map_inverse, 80);
HOLDS(sizeof(shardmesh_save_counts) >= 72);
AT(shardmesh_save_counts, note_count, 64);
AT(shardmesh_save_counts, referred_bytes, 72);
HOLDS(sizeof(shardmesh_selection) >= 96);
AT(shardmesh_selection, allow_unused, 84);
AT(shardmesh_selection, optimizer_follows, 88);
AT(shardmesh_selection, allow_narrowing, 92);
HOLDS(sizeof(shardmesh_convert_options) >= 80);
AT(shardmesh_convert_options, nest, 44);
AT(shardmesh_convert_options, item, 48);
AT(shardmesh_convert_options, like, 56);
AT(shardmesh_convert_options, payload, 72);
HOLDS(sizeof(shardmesh_reshard_options) >= 72);
AT(shardmesh_reshard_options, skip_unsupported, 68);
HOLDS(sizeof(shardmesh_verify_options) >= 48);
AT(shardmesh_verify_options, allow_globals, 32);
HOLDS(sizeof(shardmesh_verify_counts) >= 80);
AT(shardmesh_verify_counts, unread_tensors, 72);
HOLDS(sizeof(shardmesh_diff_options) >= 48);
HOLDS(sizeof(shardmesh_diff_counts) >= 48);
HOLDS(sizeof(shardmesh_difference) >= 208);
AT(shardmesh_difference, first_index, 72);
HOLDS(sizeof(shardmesh_plan_options) >= 32);
HOLDS(sizeof(shardmesh_plan_cost) >= 40);

HOLDS(SHARDMESH_DTYPE_BFLOAT16 == 11 && SHARDMESH_DTYPE_FLOAT32 == 12 && SHARDMESH_DTYPE_BITS4X2 == 31);
HOLDS(SHARDMESH_INTERNAL == -1 && SHARDMESH_MISSING_KEY == 13 && SHARDMESH_COMMUNICATION == 27);

int main(void) {
  return 0;
}
