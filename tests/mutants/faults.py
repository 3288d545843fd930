# SPDX-License-Identifier: Apache-2.0
"""One-line faults that a test must notice: (room and file, original text, replacement, the suites that should
notice). The original text occurs once in its file. It is an expression, or a statement that ends in ';' and declares
nothing; so both can be in one build, and a number selects (run.py). A suite is a test program of the build."""

NOTHING = "static_cast<void>(0);"
OPTIONAL_ROOMS = ("remote",)  # a build without their libraries skips their faults

FAULTS = [
    # core
    ("core/box.cpp", "b.offsets[d] < 0 || b.sizes[d] < 0", "b.offsets[d] < 0", ["unit_core"]),
    ("core/box.cpp", "inner.end(d) > outer.end(d)", "inner.end(d) > outer.end(d) + 1", ["unit_core"]),
    ("core/text.cpp", "lead >= 0xC2 && lead <= 0xDF", "lead >= 0xC0 && lead <= 0xDF", ["unit_core"]),
    ("core/text.cpp", "size_bytes < 1024", "size_bytes <= 1024", ["unit_core"]),
    ("core/device.cpp", "owner.empty() || owner.find(':') != std::string_view::npos", "owner.empty()", ["unit_core"]),
    ("core/parallel.cpp", "!first || why.at < first->at", "!first", ["unit_core", "unit_transfer"]),
    # digest, storage
    ("digest/digest128.cpp", "hex.size() != 32", "hex.size() < 32", ["unit_digest"]),
    ("storage/zip/zip_entry.cpp", "record.method == 0 && size != compressed", "false", ["unit_torch_file"]),
    ("storage/zip/zip.cpp", "std::ranges::any_of(directory.records_, is_alike)", "false", ["unit_torch_file"]),
    ("storage/zip/local_headers.cpp", "u16(header, 8) != record.method", "false", ["unit_torch_file"]),
    ("storage/checksum.cpp", "to_hex(xxh3(bytes_of(body))) != text.substr(body.size(), 32)", "false",
     ["unit_checkpoint", "unit_copies"]),
    ("storage/destination/leftover.cpp", "SHARDMESH_TRY(make_name_durable(path, path));", NOTHING, ["unit_storage"]),
    ("storage/destination/staging_place.cpp",
     "joined && durable && is_directory && !sync_folder(doomed.parent_path(), {})", "false", ["unit_storage"]),
    # pickle
    ("pickle/machine.cpp", "stack_.size() > floor()", "stack_.size() >= floor()", ["unit_pickle"]),
    ("pickle/machine.cpp", "number > 5", "number > 6", ["unit_pickle"]),
    ("pickle/writer.cpp", "value >= 0 && value <= 0xffff", "value >= 0 && value <= 0x1ffff", ["unit_pickle"]),
    ("pickle/write_value.cpp", "parsed.kind() == kind::tuple && parsed.size() == 0", "false", ["unit_pickle"]),
    # tree
    ("tree/key_policy.cpp", "is_mapping && policy == key_policy::torch_dcp", "is_mapping", ["unit_tree"]),
    ("tree/key_policy.cpp", "indices > 0 && count > 0", "false", ["unit_tree"]),
    ("tree/unflatten.cpp", "count == 0 || (holes > 0 && max_holes_ == 0)", "count == 0", ["unit_tree"]),
    ("tree/path.cpp", "c == '\"' || c == '\\\\'", "c == '\"'", ["unit_tree"]),
    # layout
    ("layout/mesh.cpp", "twice != table->positions.end()", "false", ["unit_layout"]),
    ("layout/mesh.cpp", "position < 0 || position >= size_", "position < 0 || position > size_", ["unit_layout"]),
    ("layout/split_rule.cpp", "rule.ends_.back() == 0", "false", ["unit_layout"]),
    ("layout/placement.cpp", "!factor || *factor < 1", "!factor || *factor < 0", ["unit_layout"]),
    ("layout/algebra.cpp", "a.reduction() != b.reduction() || a.divisor() != b.divisor()", "a.reduction() != b.reduction()",
     ["unit_layout"]),
    ("layout/algebra.cpp", "replaced->where.sizes != inner.global_shape()", "false", ["unit_layout"]),
    ("layout/algebra.cpp", "load[all[a].owner] < load[all[b].owner]", "load[all[a].owner] > load[all[b].owner]", ["unit_layout"]),
    ("layout/cover_proof.cpp", "whole.is_empty() || sum.equals(whole.offsets.data(), whole.sizes.data())", "true", ["unit_layout"]),
    ("layout/flat_range.cpp", "strides[d] != expected", "false", ["unit_layout"]),
    # kernels
    ("kernels/copy.cpp", "allow_narrowing || widens(from, to)", "true", ["unit_kernels"]),
    ("kernels/host_backend.cpp", "items[a].phase < items[b].phase", "items[a].phase > items[b].phase", ["unit_kernels"]),
    ("kernels/reduce.cpp", "b < a || b != b ? b : a", "b < a ? b : a", ["unit_kernels"]),
    ("kernels/compare.cpp", "a == b || (std::isnan(a) && std::isnan(b))", "a == b", ["unit_kernels"]),
    # comm
    ("comm/exchange_checks.cpp", "m.peer < 0 || m.peer >= size", "m.peer < 0 || m.peer > size", ["unit_comm"]),
    ("comm/exchange_checks.cpp", "twice == peers.end()", "true", ["unit_comm"]),
    ("comm/wire.cpp", "ok_ && value >= least && value <= most", "ok_ && value >= least", ["unit_comm"]),
    ("comm/wire.cpp", "shift == 63 && next > 1", "false", ["unit_comm"]),
    ("comm/call_guard.cpp", "ended == errc::ok", "true", ["unit_comm"]),
    ("comm/object_numbers.cpp", "live[1 + (next + tried) % count]", "false", ["unit_comm", "unit_transfer"]),
    ("comm/thread_group.cpp", "state_->desk(rank).left = true;", NOTHING, ["unit_comm"]),
    ("comm/agreement/agreement.cpp", "in.number() != ballot_mark", "in.number() == 0", ["unit_comm"]),
    # transfer
    ("transfer/planning/plan_cache.cpp", "++state_->hits;", NOTHING, ["unit_transfer"]),
    ("transfer/planning/plan_cache.cpp", "numbers.push_back(static_cast<std::int64_t>(t.to_type));", NOTHING, ["unit_transfer"]),
    ("transfer/items/run_to_items.cpp", "missing != 0", "missing > 0", ["unit_transfer"]),
    ("transfer/items/run_to_items.cpp", "options.memory_bytes < least_run_bytes", "false", ["unit_transfer"]),
    ("transfer/running/route.cpp", "std::max(packed(batch.gather), packed(batch.deliver))", "packed(batch.gather)",
     ["unit_transfer", "distributed"]),
    ("transfer/running/route.cpp", "numbers[d] - s.where.offsets[d]", "s.where.offsets[d] - numbers[d]",
     ["unit_transfer", "distributed"]),
    # sharding, state, fsdp
    ("sharding/checks.cpp", "rank == destination_rank && !destination", "false", ["unit_sharding"]),
    ("sharding/checks.cpp", "count_ > max_rank", "count_ > max_rank + 1", ["unit_sharding"]),
    ("sharding/recalculate.cpp", "d != cut && shard.sizes[d] != first.sizes[d]", "false", ["unit_sharding"]),
    ("sharding/build.cpp", "shard_.where && *shard_.where != placed->where", "false", ["unit_sharding"]),
    ("state/difference.cpp", "a == b || (std::isnan(a) && std::isnan(b))", "a == b", ["unit_state"]),
    ("state/nest_check.cpp", "listed < local.size()", "false", ["unit_state"]),
    ("fsdp/shard_group.cpp", "positions[rank] < -1 ||", "false ||", ["unit_fsdp"]),
    ("fsdp/load_choice.cpp", "!is_unknown && notes[*first].types[i] != notes[r].types[i]", "false", ["unit_fsdp"]),
    # checkpoint_core and formats
    ("checkpoint_core/chunk_cache.cpp", "offset > whole->size_bytes() || length > whole->size_bytes() - offset",
     "offset > whole->size_bytes()", ["unit_checkpoint_core"]),
    ("checkpoint_core/nearest_key.cpp", "found <= limit", "found < limit", ["unit_checkpoint_core"]),
    ("checkpoint_core/recorded_sums.cpp", "found->first != wanted", "false", ["unit_checkpoint", "unit_copies"]),
    ("dcp/metadata/held_entries.cpp", "a.tensor->type == b.tensor->type", "true", ["unit_dcp"]),
    ("safetensors/entry_check.cpp", "end - begin != *bit_count / 8", "false", ["unit_safetensors"]),
    ("gguf/header.cpp", "*end > file_bytes_", "*end > file_bytes_ + 1", ["unit_gguf"]),
    ("gguf/header.cpp", "tensor.begin < before.end", "false", ["unit_gguf"]),
    ("npz/array_header.cpp", "order == '>' && item_bytes(known.type) > 1", "order == '>'", ["unit_npz"]),
    ("npz/stored_array.cpp", "end <= array.size_bytes", "end <= array.size_bytes + 1", ["unit_npz"]),
    ("npz/reader.cpp", "rest > 0", "false", ["unit_npz"]),
    ("storage/tar.cpp", "size > source_.size_bytes() - at_", "size > source_.size_bytes() - at_ + 1", ["unit_storage"]),
    ("storage/tar.cpp", "step == \"..\"", "false", ["unit_storage"]),
    ("nemo/reader.cpp", "!suspects.empty()", "false", ["unit_nemo"]),
    ("torchsnapshot/manifest.cpp", "*rank >= made_.world_size", "false", ["unit_torchsnapshot"]),
    ("torch_checkpointing/folder_plan.cpp", "rank < max_ranks", "rank <= max_ranks", ["unit_torch_checkpointing"]),
    # delta, run, replicas
    ("delta/file_header.cpp", "found != recorded", "false", ["unit_delta"]),
    ("delta/parse_description.cpp", "made.properties.strides->rank() != made.shape.rank()", "false", ["unit_delta"]),
    ("run/step_names.cpp", "folder_name(step, names) != folder", "false", ["unit_run"]),
    ("run/keep_rules.cpp", "steps[i].saved >= *rules.since", "steps[i].saved > *rules.since", ["unit_run"]),
    ("run/latest_step.cpp", "damaged.contains(steps.back().step)", "false", ["unit_run"]),
    ("run/prune.cpp", "needed.contains(one.step.path.filename().string())", "false", ["unit_run"]),
    ("replicas/kept_match.cpp", "kept.shape != head.shape", "false", ["unit_replicas"]),
    ("replicas/copy_placement.cpp", "made.members.size() >= static_cast<std::size_t>(copies)", "true", ["unit_replicas"]),
    # stores
    ("storage/stores/block_folder.cpp", "head == head_of(key, out)", "true", ["unit_storage"]),
    ("remote/http_store.cpp", "!leads_up_encoded(url)", "true", ["unit_remote"]),
    ("remote/settings/s3_address.cpp", "bucket.find('.') == std::string_view::npos", "true", ["unit_remote"]),
    ("remote/signing/sigv4.cpp", "valid > longest", "false", ["unit_remote"]),
    # mapping, simulation
    ("mapping/size_expression.cpp", "a % b != 0", "false", ["unit_mapping"]),
    ("mapping/llama_cpp/pre_tokenizer.cpp", "known.ignores_merges && !ignores_merges", "false", ["unit_mapping"]),
    ("mapping/llama_cpp/special_tokens.cpp", "*id >= 0 && *id < token_count", "true", ["unit_mapping"]),
    ("mapping/llama_cpp/hf_folder.cpp", "places::is_symlink(file, code)", "false", ["unit_mapping"]),
    ("mapping/llama_cpp/hf_tokenizer.cpp", "!is_new || differs", "false", ["unit_mapping"]),
    ("mapping/llama_cpp/rope_scaling.cpp", "wavelength > context / low", "false", ["unit_mapping"]),
    ("mapping/index_rule.cpp", "++terms > most_terms", "false", ["unit_mapping"]),
    ("simulation/network_model.cpp", "*product % bytes_per_second != 0 ? 1 : 0", "0", ["unit_simulation"]),
    ("simulation/engine.cpp", "++waiting > most_named", "++waiting > most_named + 1", ["unit_simulation"]),
]

# Faults that no suite notices yet, by their original text. Every run names them. If a test notices one, remove it from
# the list, or the run fails. Never add one to make a run pass: write the test.
NOT_NOTICED_YET = set()
