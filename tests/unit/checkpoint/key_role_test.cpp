// SPDX-License-Identifier: Apache-2.0
// Tests which keys belong to the model, to an optimizer, or to neither, in the key styles of many trainers.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <shardmesh/dtype.hpp>

#include <fstream>
#include <string>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;

namespace {

using keys = std::vector<std::string>;

// The keys of one trainer's checkpoint, by role.
struct sample {
  std::string trainer;
  keys model, optimizer, other;
};

const std::vector<sample> samples{
    {"Composer",
     {"state.model.transformer.wte.weight", "state.model.blocks.0.state.proj.weight", "state.model.norm.step"},
     {"state.optimizers.DecoupledAdamW.state.transformer.wte.weight.exp_avg",
      "state.optimizers.DecoupledAdamW.state.transformer.wte.weight.step",
      "state.optimizers.DecoupledAdamW.param_groups.0.lr"},
     {"state.rank_zero_seed", "state.timestamp.Timestamp.epoch", "state.schedulers.CosineAnnealing.base_lrs",
      "rng.0.cuda", "state.metadata.composer_env_info.composer_version", "state.run_name"}},
    {"ranks without collectives, listed as KEY@RANK",
     {"model.w.weight"},
     {"optim.state.w.weight.exp_avg@0", "optim.param_groups.0.lr@1"},
     {"rng@0", "rng@12", "lr_scheduler@0"}},
    {"an optimizer's own state dict whose parameters are called model.*",
     {},
     {"state.model.w.exp_avg", "state.model.w.step", "state.model.w.of_its_own", "param_groups.model.w.lr",
      "param_groups.0.params"},
     {}},
    {"an optimizer's own state dict with names of its own", {}, {"state.0.z", "state.0.n", "param_groups.0.lr"}, {}},
    {"Adagrad alone", {}, {"state.w.sum", "state.w.step"}, {}},
    {"torchtitan",
     {"model.layers.0.attention.wq.weight"},
     {"optimizer.state.layers.0.attention.wq.weight.exp_avg_sq",
      "optimizer.param_groups.layers.0.attention.wq.weight.lr"},
     {"lr_scheduler.last_epoch", "train_state.step", "dataloader.dp_rank_0"}},
    {"Lightning",
     {"state_dict.layer.weight"},
     {"optimizer_states.0.state.0.exp_avg", "optimizer_states.0.param_groups.0.lr"},
     {"lr_schedulers.0.last_epoch", "loops.fit_loop.state_dict", "callbacks.x", "global_step", "epoch"}},
    {"Lightning's ModelParallelStrategy",
     {"model.layer.weight"},
     {"optimizer_0.state.layer.weight.exp_avg", "optimizer_1.param_groups.layer.weight.lr"},
     {}},
    {"Megatron",
     {"embedding.word_embeddings.weight", "decoder.layers.self_attention.linear_qkv.weight"},
     {"optimizer.state.exp_avg.decoder.layers.self_attention.linear_qkv.weight",
      "optimizer.state.fp32_param.embedding.word_embeddings.weight", "optimizer/shard_0_1",
      "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg",
      "chained_0.optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1",
      "chained_12.optimizer.state.exp_avg.decoder.layers.w", "mimo.language.chained_0.optimizer.state.exp_avg.w"},
     {"rng_state/shard_0.0.0_1.1.1", "opt_param_scheduler/shard_0_1"}},
    {"DeepSpeed",
     {"module.lm_head.weight"},
     {"optimizer_state_dict.base_optimizer_state.0.exp_avg", "optimizer_state_dict.single_partition_of_fp32_groups.0"},
     {"lr_scheduler.x", "random_rng_state"}},
    {"torchtune, optimizer in backward", {"model.w"}, {"optimizer.layers.0.w.state.0.exp_avg"}, {"seed"}},
    {"names of one's own, known by their param_groups",
     {"net.state.weight", "adam_head.weight"},
     {"gen.adam.state.w.m", "gen.adam.param_groups.0.lr"},
     {}},
    {"a module's own buffers below a root called state",
     {"state.enc.w", "state.ema.decay", "state.ema.step", "state.vq.embed", "state.vq.exp_avg", "state.state.h.b",
      "state.clip.max_exp_avg_sq"},
     {},
     {"state.state.step"}},
    {"Composer, and a module that averages",
     {"state.model.enc.w", "state.model.vq.embed", "state.model.vq.exp_avg", "state.model.norm.square_avg"},
     {"state.optimizers.Adam.state.vq.embed.exp_avg", "state.optimizers.Adam.state.vq.embed.step"},
     {}},
    {"such a module, and an optimizer that nothing but its entries tells",
     {"train.state.model.enc.w", "train.state.model.vq.exp_avg"},
     {"train.adam.state.enc.w.exp_avg", "train.adam.state.enc.w.mine", "train.adam.state.vq.embed.exp_avg"},
     {}},
    {"modules called as optimizers are",
     {"net.weight", "optimizer.lstm.weight", "optimizer.lstm.bias", "opt.model.decoder.weight", "optimizers.0.w"},
     {},
     {}},
    {"one of them beside an optimizer",
     {"net.weight", "optimizer.lstm.weight"},
     {"opt.state.0.exp_avg", "opt.state.0.step", "opt.param_groups.0.lr", "opt.param_groups.0.mine"},
     {}},
    {"a model whose modules use an optimizer's words for all that they have",
     {"model.vq.state.code.exp_avg", "model.queue.state.keys.momentum_buffer", "model.env.state.step",
      "model.param_groups.betas", "model.param_groups.lr", "model.state.w.exp_avg"},
     {"optimizer.state.vq.state.code.exp_avg.exp_avg", "optimizer.param_groups.0.lr"},
     {}},
    {"bare weights of that kind beside an optimizer",
     {"vq.state.code.exp_avg", "vq.w"},
     {"optim.state.vq.w.exp_avg", "optim.param_groups.vq.w.foreach"},
     {}},
    {"a module called param_groups",
     {"model.param_groups.w", "model.param_groups.head.weight"},
     {"optim.param_groups.param_groups.w.lr", "optim.state.param_groups.w.exp_avg"},
     {}},
    {"bare weights with unlucky names",
     {"scaler.weight", "scheduler.w", "learner.optimizer.lstm.weight", "optimum.w", "opt_layer.w", ""},
     {},
     {}},
    {"a model with unlucky names",
     {"model.state.proj.weight", "model.state.proj.mu", "model.optimizer_head.weight", "model.scaler.w", "state",
      "state.w"},
     {},
     {}},
};

}  // namespace

TEST_CASE("keys of trainers are told apart by the structure of all of them") {
  for (const sample& one : samples) {
    key_roles roles;
    for (const keys* group : {&one.model, &one.optimizer, &one.other})
      for (const std::string& key : *group) roles.add(key);
    INFO(one.trainer);
    const auto check = [&](const keys& group, key_role expected) {
      for (const std::string& key : group) {
        INFO(key);
        CHECK(roles.role_of(key) == expected);
      }
    };
    check(one.model, key_role::model);
    check(one.optimizer, key_role::optimizer);
    check(one.other, key_role::other);
  }
}

TEST_CASE("no-optimizer keeps the model and what belongs to neither, whatever the trainer") {
  for (const sample& one : samples) {
    std::vector<selectable> given;
    keys expected = one.model;
    expected.insert(expected.end(), one.other.begin(), one.other.end());
    for (const keys* group : {&one.model, &one.other, &one.optimizer})
      for (const std::string& key : *group) given.push_back({key, dtype::float32, true});
    const selection_result found = select_keys(given, {.no_optimizer = true});
    keys kept;
    for (const selected& s : found.kept) kept.push_back(s.key);
    INFO(one.trainer);
    CHECK(kept == expected);
    CHECK(found.excluded == one.optimizer.size());
  }
}

TEST_CASE("one key alone is optimizer state when its components say so") {
  for (const char* key : {"optimizer.state.w.exp_avg", "state.w.step", "trainer.optimizer.state.w.x",
                          "adam.state.w.exp_avg", "adam.param_groups.0.lr", "optim", "state.optimizers.A.state.w.b"})
    CHECK(is_optimizer_key(key));
  for (const char* key : {"model.state.proj.weight", "optimum.w", "state", "state.w", "model.optimizer_head.weight",
                          "w", "state.model.w", "model.state.x.mu", "..", ".", "optimizer.lstm.weight", "opt.w",
                          "state.optimizers.A.b", "model.state.w.exp_avg"})
    CHECK_FALSE(is_optimizer_key(key));
}

TEST_CASE("optimizer keys are those of PyTorch's checkpoints") {
  std::size_t optimizer = 0;
  for (const std::string name : {"fsdp2_4", "fsdp2_tp_2x2", "fsdp1_sharded_4", "hsdp_2x2", "options_threads"}) {
    std::ifstream in(SHARDMESH_TEST_DATA "/golden/" + name + "/expected.json");
    const auto expected = nlohmann::json::parse(in);
    for (const char* group : {"tensors", "objects"})
      for (const auto& [key, value] : expected.at(group).items()) {
        INFO(name << " " << key);
        CHECK(is_optimizer_key(key) == (key.starts_with("optim.") || key.starts_with("opt.")));
        optimizer += is_optimizer_key(key) ? 1 : 0;
      }
  }
  CHECK(optimizer > 50);
}
