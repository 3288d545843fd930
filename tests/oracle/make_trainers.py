# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/trainers: folders of several checkpoints, as accelerate and transformers' Trainer write
them, and as pipelines arrange them.

Needs: pip install accelerate==1.15.0 transformers==4.57.6, and torch. Usage: make_trainers.py FOLDER
Each case is CASE/checkpoint and CASE/expected.json: {PART.KEY: {"dtype", "shape", "sha256"}} of the model and the
optimizer in memory.
"""
import json
import shutil
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sys.path.insert(0, str(Path(__file__).parent))
from writer_answers import described  # noqa: E402


def answers(model, optimizer):
    """Tensors of a model and of an optimizer's state, under the names of PyTorch's state dicts."""
    made = {f"model.{key}": described(value) for key, value in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        made |= {f"optimizer.state.{number}.{key}": described(value) for key, value in state.items()
                 if torch.is_tensor(value)}
    return made


class Linear(torch.nn.Linear):
    def forward(self, x, labels):
        return {"loss": ((super().forward(x) - labels) ** 2).mean()}


def accelerate(folder):
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.register_for_checkpointing(torch.nn.BatchNorm1d(2))
    accelerator.backward(model(torch.ones(4, 3)).sum())
    optimizer.step()
    accelerator.save_state(str(folder / "checkpoint"))
    return answers(model, optimizer)


def trainer(folder):
    rows = [{"x": torch.ones(3), "labels": torch.zeros(2)}] * 4
    arguments = TrainingArguments(str(folder / "out"), max_steps=2, save_steps=2, use_cpu=True, report_to=[],
                                  save_safetensors=False, disable_tqdm=True)
    run = Trainer(Linear(3, 2), arguments, train_dataset=rows)
    run.train()
    shutil.move(folder / "out/checkpoint-2", folder / "checkpoint")
    shutil.rmtree(folder / "out")
    (folder / "checkpoint/rng_state.pth").unlink()  # as large as everything else, and the same as accelerate's
    return answers(run.model, run.optimizer)


def pipeline(folder):
    """A pipeline as diffusers saves it: one folder per model, of safetensors and of torch.save files."""
    config = LlamaConfig(vocab_size=3, hidden_size=2, intermediate_size=2, num_hidden_layers=1, num_attention_heads=1)
    models = {name: LlamaForCausalLM(config) for name in ("text_encoder", "text_encoder_2")}
    for name, model in models.items():
        model.save_pretrained(folder / "checkpoint" / name, safe_serialization=name == "text_encoder")
        (folder / "checkpoint" / name / "generation_config.json").unlink()
    (folder / "checkpoint/model_index.json").write_text('{"_class_name": "StableDiffusionXLPipeline"}\n')
    return {f"{name}.{key}": described(value) for name, model in models.items()
            for key, value in model.state_dict().items()}


def main():
    for case in (accelerate, trainer, pipeline):
        folder = Path(sys.argv[1]) / case.__name__
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.manual_seed(7)
        (folder / "expected.json").write_text(json.dumps(case(folder), indent=1) + "\n")


main()
