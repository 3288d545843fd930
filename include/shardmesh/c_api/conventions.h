/* SPDX-License-Identifier: Apache-2.0 */
/* The mappings between naming conventions that the library contains, for `map` of `shardmesh_open_options`. */
#ifndef SHARDMESH_C_API_CONVENTIONS_H
#define SHARDMESH_C_API_CONVENTIONS_H

#include <shardmesh/c_api/error.h>

SHARDMESH_C_BEGIN

/* The number of mappings. Each works in both directions, and `map` applies several if they lead from one convention to
 * the other. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_mapping_count(size_t* count, shardmesh_error** error);
/* The name of a mapping, such as "hf.llama:megatron.gpt". Mappings are sorted by their conventions.
 * SHARDMESH_OUT_OF_BOUNDS beyond the last. The text is valid until the program ends. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_mapping_name(size_t index, shardmesh_text* name, shardmesh_error** error);
/* The TOML text of a mapping: to read it, or to change a copy and pass its path as `map`. The conventions in `name` may
 * be in either order. The text is valid until the program ends. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_mapping_text(const char* name, shardmesh_text* toml,
                                                           shardmesh_error** error);

SHARDMESH_C_END

#endif
