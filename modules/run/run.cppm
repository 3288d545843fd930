// SPDX-License-Identifier: Apache-2.0
// The primary interface of room run: a training run is a folder of steps, and each step is a checkpoint.
//
// `checkpoint_run` saves steps, deletes those that no rule keeps, and resumes from the newest good step. The other
// partitions answer questions about the folder of a run, also while another process writes it: its steps, whether they
// are good, and what `prune_run` would delete. Checkpoints themselves are in the rooms below.
export module shardmesh.run;

export import shardmesh.collective_checkpoint;

export import :checkpoint_run;
export import :flatten;
export import :keep_rules;
export import :latest_step;
export import :prune;
export import :rank_objects;
export import :run_step;
export import :run_writer;
export import :step_check;
export import :step_names;
export import :termination_signal;
