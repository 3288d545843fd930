// SPDX-License-Identifier: Apache-2.0
// Tests that optimizer state is renamed and dropped with its parameter, in every spelling. Whole lists of keys are
// compared.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/dtype.hpp>

#include <optional>
#include <string>
#include <vector>

import shardmesh.checkpoint;

using namespace shardmesh;

namespace {

using keys = std::vector<std::string>;

struct rules {
  keys only = {}, skip = {}, rename = {};
  std::string strip_prefix = {};
  bool no_optimizer = false;
};

selection_options options_of(const rules& texts) {
  selection_options made{
      .no_optimizer = texts.no_optimizer, .strip_prefix = texts.strip_prefix, .optimizer_follows = true};
  for (const std::string& text : texts.only) made.only.push_back(key_pattern::compile(text).value());
  for (const std::string& text : texts.skip) made.skip.push_back(key_pattern::compile(text).value());
  for (const std::string& text : texts.rename) made.rename.push_back(parse_rename_rule(text).value());
  return made;
}

// Names that end with "()" are objects.
selection_result select(const rules& texts, const keys& names) {
  std::vector<selectable> made;
  for (const std::string& name : names) {
    const bool is_object = name.ends_with("()");
    made.push_back({std::string_view(name).substr(0, name.size() - (is_object ? 2 : 0)),
                    is_object ? dtype::undefined : dtype::float32, !is_object});
  }
  return select_keys(made, options_of(texts));
}

keys kept(const rules& texts, const keys& names) {
  const selection_result found = select(texts, names);
  for (const error& e : found.errors) UNSCOPED_INFO(to_string(e));
  CHECK(found.errors.empty());
  CHECK(found.kept.size() + found.excluded == names.size());
  keys made;
  for (const selected& one : found.kept) made.push_back(one.key);
  return made;
}

std::string only_error(const rules& texts, const keys& names) {
  const selection_result found = select(texts, names);
  REQUIRE(found.errors.size() == 1);
  CHECK(found.errors[0].code == errc::invalid_argument);
  return to_string(found.errors[0]);
}

const keys nested{"model.enc.weight",
                  "model.enc.bias",
                  "model.enc2.weight",
                  "optim.state.enc.weight.step",
                  "optim.state.enc.weight.exp_avg",
                  "optim.state.enc.bias.exp_avg",
                  "optim.state.enc2.weight.exp_avg",
                  "optim.param_groups.0.lr()",
                  "optim.param_groups.0.params()",
                  "epoch()"};

}  // namespace

TEST_CASE("state of a nested state dict follows a renamed parameter") {
  CHECK(kept({.rename = {R"(model\.enc\.(.*)=model.encoder.\1)"}}, nested) ==
        keys{"model.encoder.weight", "model.encoder.bias", "model.enc2.weight", "optim.state.encoder.weight.step",
             "optim.state.encoder.weight.exp_avg", "optim.state.encoder.bias.exp_avg",
             "optim.state.enc2.weight.exp_avg", "optim.param_groups.0.lr", "optim.param_groups.0.params", "epoch"});
}

TEST_CASE("state of a nested state dict is left out with its parameter") {
  CHECK(kept({.skip = {R"(model\.enc\..*)"}}, nested) == keys{"model.enc2.weight", "optim.state.enc2.weight.exp_avg",
                                                              "optim.param_groups.0.lr", "optim.param_groups.0.params",
                                                              "epoch"});
}

TEST_CASE("without the option each key is looked at alone") {
  selection_options alone = options_of({.rename = {R"(model\.enc\.(.*)=model.encoder.\1)"}});
  alone.optimizer_follows = false;
  const selectable given[] = {{"model.enc.weight"}, {"optim.state.enc.weight.exp_avg"}};
  const auto found = select_keys(given, alone);
  CHECK(found.kept.at(1).key == "optim.state.enc.weight.exp_avg");
  CHECK(found.notes.empty());
}

TEST_CASE("flattened state and param_groups follow, objects as well as tensors") {
  CHECK(kept({.rename = {"model.a.w=model.b.v"}},
             {"model.a.w", "model.a.b", "optim.state.a.w.exp_avg", "optim.state.a.b.exp_avg",
              "optim.param_groups.a.w.lr()", "optim.param_groups.a.w.betas()", "optim.param_groups.a.b.lr()"}) ==
        keys{"model.b.v", "model.a.b", "optim.state.b.v.exp_avg", "optim.state.a.b.exp_avg",
             "optim.param_groups.b.v.lr", "optim.param_groups.b.v.betas", "optim.param_groups.a.b.lr"});
}

TEST_CASE("state at the top beside bare weights follows") {
  CHECK(kept({.rename = {R"(layers\.(.*)=blocks.\1)"}},
             {"layers.0.w", "state.layers.0.w.exp_avg", "param_groups.layers.0.w.lr()"}) ==
        keys{"blocks.0.w", "state.blocks.0.w.exp_avg", "param_groups.blocks.0.w.lr"});
}

TEST_CASE("Megatron's and DeepSpeed's state follows") {
  const keys names{"decoder.qkv.weight",
                   "decoder.norm.weight",
                   "optimizer.state.exp_avg.decoder.qkv.weight",
                   "optimizer.state.fp32_param.decoder.qkv.weight",
                   "optimizer.state.exp_avg.decoder.norm.weight",
                   "chained_0.optimizer.state.exp_avg.decoder.qkv.weight",
                   "optimizer.distributed.dp_group_idx_0.bucket_idx_0.exp_avg",
                   "optimizer.optimizer.param_groups.0.lr()"};
  CHECK(kept({.rename = {R"(decoder\.qkv\.(.*)=decoder.attention.\1)"}}, names) ==
        keys{"decoder.attention.weight", "decoder.norm.weight", "optimizer.state.exp_avg.decoder.attention.weight",
             "optimizer.state.fp32_param.decoder.attention.weight", "optimizer.state.exp_avg.decoder.norm.weight",
             "chained_0.optimizer.state.exp_avg.decoder.attention.weight",
             "optimizer.distributed.dp_group_idx_0.bucket_idx_0.exp_avg", "optimizer.optimizer.param_groups.0.lr"});
  CHECK(kept({.skip = {R"(.*norm.*)", "decoder.qkv.weight"}}, names) ==
        keys{"optimizer.distributed.dp_group_idx_0.bucket_idx_0.exp_avg", "optimizer.optimizer.param_groups.0.lr"});
}

TEST_CASE("Composer's state follows") {
  CHECK(kept({.rename = {"state.model.w=state.model.v"}},
             {"state.model.w", "state.model.b", "state.optimizers.AdamW.state.w.exp_avg",
              "state.optimizers.AdamW.state.b.exp_avg", "state.rank_zero_seed()"}) ==
        keys{"state.model.v", "state.model.b", "state.optimizers.AdamW.state.v.exp_avg",
             "state.optimizers.AdamW.state.b.exp_avg", "state.rank_zero_seed"});
}

TEST_CASE("the longest parameter is meant, and names that writers use themselves are names") {
  const keys names{"model.a",
                   "model.a.b",
                   "model.state",
                   "model.exp_avg",
                   "model.p.exp_avg",
                   "model.state.w",
                   "model.w",
                   "optim.state.a.exp_avg",
                   "optim.state.a.b.exp_avg",
                   "optim.state.state.exp_avg",
                   "optim.state.exp_avg.exp_avg",
                   "optim.state.exp_avg.step",
                   "optim.state.p.exp_avg.exp_avg",
                   "optim.state.state.w.exp_avg",
                   "optim.state.w.exp_avg",
                   "optim.state..exp_avg"};
  const auto renamed = [&](const std::string& parameter) {
    keys changed;
    const keys made = kept({.rename = {R"(model\.()" + parameter + R"()=model.new.\1)"}}, names);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (made[i] != names[i]) changed.push_back(made[i]);
    return changed;
  };
  CHECK(renamed("a") == keys{"model.new.a", "optim.state.new.a.exp_avg"});
  CHECK(renamed("a.b") == keys{"model.new.a.b", "optim.state.new.a.b.exp_avg"});
  CHECK(renamed("state") == keys{"model.new.state", "optim.state.new.state.exp_avg"});
  CHECK(renamed("exp_avg") ==
        keys{"model.new.exp_avg", "optim.state.new.exp_avg.exp_avg", "optim.state.new.exp_avg.step"});
  CHECK(renamed("p.exp_avg") == keys{"model.new.p.exp_avg", "optim.state.new.p.exp_avg.exp_avg"});
  CHECK(renamed("state.w") == keys{"model.new.state.w", "optim.state.new.state.w.exp_avg"});
  CHECK(renamed("w") == keys{"model.new.w", "optim.state.new.w.exp_avg"});
}

TEST_CASE("a parameter that is called like Megatron's state is told apart by all entries") {
  CHECK(kept({.rename = {"exp_avg=moment", "w=v"}},
             {"exp_avg", "w", "optimizer.state.exp_avg.exp_avg", "optimizer.state.fp32_param.exp_avg",
              "optimizer.state.exp_avg.w", "optimizer.state.fp32_param.w"}) ==
        keys{"moment", "v", "optimizer.state.exp_avg.moment", "optimizer.state.fp32_param.moment",
             "optimizer.state.exp_avg.v", "optimizer.state.fp32_param.v"});
}

TEST_CASE("parameters that are numbers stand for none") {
  const keys names{"model.0", "model.1", "optim.state.0.exp_avg", "optim.param_groups.0.lr()"};
  CHECK(kept({.rename = {R"(model\.(\d)=model.p\1)"}}, names) ==
        keys{"model.p0", "model.p1", "optim.state.0.exp_avg", "optim.param_groups.0.lr"});
}

TEST_CASE("a prefix that is removed from the model leaves the optimizer's own names") {
  const keys names{"model.w", "model.b", "optim.state.w.exp_avg"}, wanted{"w", "b", "optim.state.w.exp_avg"};
  CHECK(kept({.strip_prefix = "model."}, names) == wanted);
  CHECK(kept({.rename = {R"(model\.(.*)=\1)"}}, names) == wanted);
  CHECK(kept({.rename = {"w=v"}, .strip_prefix = "model."}, names) == keys{"v", "b", "optim.state.v.exp_avg"});
  CHECK(kept({.rename = {"model.w=net.w", "model.b=net.b"}}, names) == keys{"net.w", "net.b", "optim.state.w.exp_avg"});
}

TEST_CASE("a prefix that the optimizer's names have is removed from them, too") {
  CHECK(kept({.strip_prefix = "module."}, {"module.w", "optim.state.module.w.exp_avg"}) ==
        keys{"w", "optim.state.w.exp_avg"});
  CHECK(kept({.strip_prefix = "module.a."}, {"module.a.w", "module.b", "optim.state.a.w.step", "optim.state.b.step"}) ==
        keys{"w", "module.b", "optim.state.w.step", "optim.state.b.step"});
  CHECK(kept({.rename = {"model.w=model.v"}, .strip_prefix = "train."},
             {"train.model.w", "train.optim.state.w.exp_avg"}) == keys{"model.v", "optim.state.v.exp_avg"});
}

TEST_CASE("state that a rename matches itself does not follow") {
  CHECK(kept({.rename = {"(.*)enc(.*)=\\1encoder\\2"}}, {"model.enc.w", "optim.state.enc.w.exp_avg"}) ==
        keys{"model.encoder.w", "optim.state.encoder.w.exp_avg"});
  CHECK(kept({.rename = {"model.w=model.v", "optim.state.w.exp_avg=kept"}},
             {"model.w", "optim.state.w.exp_avg", "optim.state.w.step"}) ==
        keys{"model.v", "kept", "optim.state.v.step"});
}

TEST_CASE("only does not concern state, and a rule that renames nothing but state is used") {
  CHECK(kept({.only = {"optim.*"}, .rename = {"model.w=model.v"}}, {"model.w", "optim.state.w.exp_avg"}) ==
        keys{"optim.state.v.exp_avg"});
  CHECK(kept({.only = {"model.*"}, .rename = {"model.w=model.v"}}, {"model.w", "optim.state.w.exp_avg"}) ==
        keys{"model.v"});
  CHECK(kept({.rename = {"model.w=model.v"}, .no_optimizer = true}, {"model.w", "optim.state.w.exp_avg"}) ==
        keys{"model.v"});
}

TEST_CASE("how many entries followed is said in one line") {
  CHECK(select({.skip = {"model.enc.bias"}, .rename = {"model.enc.weight=model.w"}}, nested).notes ==
        keys{"3 entries of optimizer state follow the parameters: 2 renamed, 1 left out"});
  CHECK(select({.skip = {"model.enc.bias"}}, nested).notes ==
        keys{"1 entry of optimizer state follows the parameters: 0 renamed, 1 left out"});
  CHECK(select({.skip = {"epoch"}}, nested).notes.empty());
}

TEST_CASE("that nothing follows is said where the state is numbered") {
  const keys numbered{"model.w", "optim.state.0.exp_avg", "optim.state.1.exp_avg", "optim.param_groups.0.params()"};
  const keys said{"no optimizer state follows the parameters: optim.state.0.exp_avg does not name its parameter"};
  CHECK(select({.rename = {"model.w=model.v"}}, numbered).notes == said);
  CHECK(select({.skip = {"model.w"}}, numbered).notes == said);
  CHECK(select({.rename = {"optim.state.0.exp_avg=kept"}}, numbered).notes.empty());
  CHECK(select({.rename = {"a=b"}}, {"a", "model.w", "optim.state.w.exp_avg", "optim.state.0.step"}).notes.empty());
  CHECK(select({.rename = {"model.w=model.v"}}, {"model.w", "model.b"}).notes.empty());
}

TEST_CASE("state that meets another entry is an error that names both") {
  CHECK(only_error({.rename = {"model.w=model.v"}}, {"model.w", "optim.state.w.step", "optim.state.v.step"}) ==
        "optim.state.v.step: optim.state.w.step and optim.state.v.step would both be called optim.state.v.step");
}

TEST_CASE("state whose parameter's new name is not known is an error, which a rule of its own mends") {
  const keys names{"model.w", "optim.state.w.step"};
  CHECK(only_error({.rename = {"model.w=net.v"}}, names) ==
        "optim.state.w.step: its parameter model.w becomes net.v, in which the parameter's name cannot be found; "
        "rename or skip it with a rule of its own");
  CHECK(kept({.rename = {"model.w=net.v", "optim.state.w.(.*)=optim.state.v.\\1"}}, names) ==
        keys{"net.v", "optim.state.v.step"});
}

TEST_CASE("state that could be of two parameters is an error where they part") {
  const keys names{"left.w", "right.w", "optim.state.w.step"};
  CHECK(only_error({.rename = {"left.w=left.v"}}, names) ==
        "optim.state.w.step: left.w and right.w could be its parameter; rename or skip it with a rule of its own");
  CHECK(kept({.rename = {"(left|right).w=\\1.v"}}, names) == keys{"left.v", "right.v", "optim.state.v.step"});
  CHECK(kept({.skip = {".*t.w"}}, names).empty());
  CHECK(kept({.rename = {"model.w=model.v"}}, {"ema.w", "model.w", "optim.state.w.step"}) ==
        keys{"ema.w", "model.v", "optim.state.v.step"});
  CHECK(kept({.rename = {"a.model.w=a.model.v"}},
             {"a.model.w", "b.model.w", "a.optim.state.w.exp_avg", "b.optim.state.w.exp_avg"}) ==
        keys{"a.model.v", "b.model.w", "a.optim.state.v.exp_avg", "b.optim.state.w.exp_avg"});
}

TEST_CASE("names in an optimizer's lists of parameters follow") {
  const selection_result found = select({.skip = {"model.enc.bias"}, .rename = {"model.enc.weight=model.w"}}, nested);
  CHECK(found.lists.concerns(8));
  CHECK_FALSE(found.lists.concerns(7));
  CHECK(found.lists.renamed(8, "enc.weight") == "w");
  CHECK(found.lists.renamed(8, "enc.bias") == std::nullopt);
  CHECK(found.lists.renamed(8, "enc2.weight") == "enc2.weight");
  CHECK(found.lists.renamed(8, "unknown") == "unknown");
  CHECK_FALSE(select({.rename = {"other=o"}}, {"optim.param_groups.0.params()", "w", "other"}).lists.concerns(0));
}
