// SPDX-License-Identifier: Apache-2.0
// Opens a checkpoint, and describes its contents.
#include "checkpoint.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conventions.hpp"
#include "values.hpp"
#include "watching.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;

namespace c_api {
using namespace shardmesh;

static_assert(SHARDMESH_FORMAT_DCP == static_cast<int>(checkpoint_format::dcp));
static_assert(SHARDMESH_FORMAT_TORCH == static_cast<int>(checkpoint_format::torch_file));
static_assert(SHARDMESH_FORMAT_SAFETENSORS == static_cast<int>(checkpoint_format::safetensors));
static_assert(SHARDMESH_FORMAT_HF == static_cast<int>(checkpoint_format::hf));
static_assert(SHARDMESH_FORMAT_TORCH_FILES == static_cast<int>(checkpoint_format::torch_files));
static_assert(SHARDMESH_FORMAT_DEEPSPEED == static_cast<int>(checkpoint_format::deepspeed));
static_assert(SHARDMESH_FORMAT_TORCHSNAPSHOT == static_cast<int>(checkpoint_format::torchsnapshot));
static_assert(SHARDMESH_FORMAT_TORCH_CHECKPOINTING == static_cast<int>(checkpoint_format::torch_checkpointing));
static_assert(SHARDMESH_FORMAT_PARTS == static_cast<int>(checkpoint_format::parts));
static_assert(SHARDMESH_FORMAT_GGUF == static_cast<int>(checkpoint_format::gguf));
static_assert(SHARDMESH_FORMAT_NPZ == static_cast<int>(checkpoint_format::npz));
static_assert(SHARDMESH_FORMAT_NEMO == static_cast<int>(checkpoint_format::nemo));
static_assert(SHARDMESH_FORMAT_DELTA == static_cast<int>(checkpoint_format::delta));

namespace {

const checkpoint_reader& reader_of(const shardmesh_checkpoint* handle) {
  return *opened(handle, "checkpoint").reader;
}

const tensor_entry& tensor_of(const catalog& contents, std::size_t index) {
  check_index(index, contents.tensors.size(), "tensor");
  return contents.tensors[index];
}

shardmesh_tensor_entry described(const tensor_entry& tensor) {
  shardmesh_tensor_entry made{};
  made.key = to_c(tensor.key);
  made.opaque_type = to_c(tensor.opaque_type);
  made.foreign_dtype = to_c(tensor.properties.foreign_dtype);
  made.chunk_count = static_cast<std::size_t>(tensor.chunk_count);
  made.rank = static_cast<std::int64_t>(tensor.shape.rank());
  copy_to(made.shape, tensor.shape);
  made.dtype = static_cast<shardmesh_dtype>(tensor.type);
  made.requires_grad = tensor.properties.requires_grad ? 1 : 0;
  return made;
}

shardmesh_chunk_entry described(const catalog& contents, const tensor_entry& tensor, std::int32_t chunk) {
  static const std::string nowhere;
  const stored_range& place = contents.chunk_places[static_cast<std::size_t>(chunk)];
  shardmesh_chunk_entry made{};
  made.where = to_c(contents.chunk_box(tensor, chunk));
  made.file = to_c(place.file < 0 ? nowhere : contents.files[static_cast<std::size_t>(place.file)]);
  made.offset = place.offset;
  made.length = place.length;
  return made;
}

template <class Entry>
void find(const checkpoint_reader& reader, const std::vector<Entry>& entries, const Entry* found, std::string_view key,
          entry_kind wanted, std::size_t* index) {
  std::size_t& to = needed(index, "index");
  if (found == nullptr) refuse(no_such_entry(reader, key, wanted));
  to = static_cast<std::size_t>(found - entries.data());
}

std::unique_ptr<checkpoint_reader> open_reader(const std::filesystem::path& path,
                                               const shardmesh_open_options& wanted) {
  if (wanted.limit_factor < 0) refuse_argument("limit_factor", "is negative");
  open_options how;
  if (wanted.limit_factor > 0) how.limits = how.limits.times(wanted.limit_factor);
  if (wanted.only_key_count > 0 && wanted.only_keys == nullptr) refuse_null("only_keys");
  for (std::size_t i = 0; i < wanted.only_key_count; ++i)
    how.only_keys.emplace_back(to_text(wanted.only_keys[i], "only_keys"));
  if (wanted.rank != nullptr) {
    if (*wanted.rank < 0) refuse_argument("rank", "is negative");
    if (wanted.keys_at_ranks != 0) refuse_argument("rank", "is set, and so is keys_at_ranks: set one of them");
    how.rank = *wanted.rank;
  }
  how.keys_at_ranks = wanted.keys_at_ranks != 0;
  auto reader = value_of(wanted.all_parts != 0 ? open_parts(path, how) : open_checkpoint(path, how));
  if (wanted.dequantize != 0) {
    // `shardmesh_convert` promises that checksums are compared.
    dequantize_options numbers{.check_sums = true};
    if (wanted.block_size != 0) numbers.block_size = wanted.block_size;
    reader = value_of(dequantized(std::move(reader), numbers));
  }
  return apply_map(std::move(reader), path, wanted);
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_checkpoint_open(const char* path, const shardmesh_open_options* options,
                                           shardmesh_checkpoint** checkpoint, shardmesh_error** error) {
  return guarded(error, checkpoint, [&] {
    const shardmesh_open_options wanted = given(options, "options", offsetof(shardmesh_open_options, only_keys));
    auto made = std::make_unique<shardmesh_checkpoint>();
    const shardmesh::detail::call_scope limits(
        {.within = deadline_after(wanted.timeout_milliseconds), .name = "opening"});
    made->reader = open_reader(to_text(path, "path"), wanted);
    made->reader->identify_opaque_tensors();
    if (auto checked = shardmesh::detail::check_current_call(); !checked)
      refuse(std::move(checked).error().with_file(path));
    made->tensors = std::make_unique<shardmesh::tensor_map>(*made->reader);
    made->unaligned_tensors =
        std::make_unique<shardmesh::tensor_map>(*made->reader, shardmesh::map_options{.allow_unaligned = true});
    made->warnings = list_of(made->reader->warnings());
    made->problems = list_of(made->reader->problems());
    return made;
  });
}

void shardmesh_checkpoint_close(shardmesh_checkpoint* checkpoint) {
  delete checkpoint;
}

shardmesh_status shardmesh_checkpoint_describe(const shardmesh_checkpoint* checkpoint,
                                               shardmesh_checkpoint_summary* summary, shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::checkpoint_reader& reader = reader_of(checkpoint);
    const shardmesh::catalog& contents = reader.contents();
    shardmesh_checkpoint_summary made{};
    made.version = to_c(contents.version);
    made.tensor_count = contents.tensors.size();
    made.object_count = contents.objects.size();
    made.file_count = contents.files.size();
    made.note_count = reader.notes().size();
    made.tensor_bytes = contents.tensor_bytes();
    made.format = static_cast<shardmesh_format>(contents.format);
    give(summary, made, "summary");
  });
}

shardmesh_status shardmesh_checkpoint_tensor(const shardmesh_checkpoint* checkpoint, size_t index,
                                             shardmesh_tensor_entry* entry, shardmesh_error** error) {
  return guarded(error, [&] { give(entry, described(tensor_of(reader_of(checkpoint).contents(), index)), "entry"); });
}

shardmesh_status shardmesh_checkpoint_chunk(const shardmesh_checkpoint* checkpoint, size_t index, size_t chunk,
                                            shardmesh_chunk_entry* entry, shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::catalog& contents = reader_of(checkpoint).contents();
    const shardmesh::tensor_entry& tensor = tensor_of(contents, index);
    check_index(chunk, static_cast<std::size_t>(tensor.chunk_count), "chunk");
    give(entry, described(contents, tensor, tensor.first_chunk + static_cast<std::int32_t>(chunk)), "entry");
  });
}

shardmesh_status shardmesh_checkpoint_object(const shardmesh_checkpoint* checkpoint, size_t index, shardmesh_text* key,
                                             shardmesh_error** error) {
  return guarded(error, [&] {
    const auto& objects = reader_of(checkpoint).contents().objects;
    check_index(index, objects.size(), "object");
    needed(key, "key") = to_c(objects[index].key);
  });
}

shardmesh_status shardmesh_checkpoint_file(const shardmesh_checkpoint* checkpoint, size_t index, shardmesh_text* name,
                                           shardmesh_error** error) {
  return guarded(error, [&] {
    const auto& files = reader_of(checkpoint).contents().files;
    check_index(index, files.size(), "file");
    needed(name, "name") = to_c(files[index]);
  });
}

shardmesh_status shardmesh_checkpoint_note(const shardmesh_checkpoint* checkpoint, size_t index, shardmesh_text* note,
                                           shardmesh_error** error) {
  return guarded(error, [&] {
    const auto& notes = reader_of(checkpoint).notes();
    check_index(index, notes.size(), "note");
    needed(note, "note") = to_c(notes[index]);
  });
}

shardmesh_status shardmesh_checkpoint_find_tensor(const shardmesh_checkpoint* checkpoint, const char* key,
                                                  size_t key_size, size_t* index, shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::checkpoint_reader& reader = reader_of(checkpoint);
    const std::string_view wanted = to_key(key, key_size);
    find(reader, reader.contents().tensors, reader.contents().find(wanted), wanted, shardmesh::entry_kind::tensor,
         index);
  });
}

shardmesh_status shardmesh_checkpoint_find_object(const shardmesh_checkpoint* checkpoint, const char* key,
                                                  size_t key_size, size_t* index, shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::checkpoint_reader& reader = reader_of(checkpoint);
    const std::string_view wanted = to_key(key, key_size);
    find(reader, reader.contents().objects, reader.contents().find_object(wanted), wanted,
         shardmesh::entry_kind::object, index);
  });
}

const shardmesh_error* shardmesh_checkpoint_warnings(const shardmesh_checkpoint* checkpoint) {
  return checkpoint == nullptr ? nullptr : checkpoint->warnings.get();
}

const shardmesh_error* shardmesh_checkpoint_problems(const shardmesh_checkpoint* checkpoint) {
  return checkpoint == nullptr ? nullptr : checkpoint->problems.get();
}

}  // extern "C"
