"""Trains with Lightning, Accelerate or the Trainer of Transformers, and prints the weights.

framework_program.py lightning|uneven|accelerate|trainer BACKEND DIRECTORY

uneven: Lightning in a job of four workers, three on one host and one on another. All are on this
one, and the last is told what hvdrun tells it there.
"""

import os
import sys

import torch
import torch.distributed as dist

import hvd.torch  # noqa: F401  (registers the backend)

kind, backend, directory = sys.argv[1:]
torch.manual_seed(0)
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)
data = torch.utils.data.TensorDataset(inputs, targets)


def loss_of(model, batch):
    return (model(batch[0]) - batch[1]).pow(2).mean()


def with_lightning(devices=2, strategy=None, plugins=None):
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Linear(8, 1)

        def training_step(self, batch, _):
            seen.append(len(batch[0]))
            return loss_of(self.model, batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    seen = []
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        max_epochs=2,
        strategy=(strategy or DDPStrategy)(process_group_backend=backend),
        plugins=plugins,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))
    assert sum(seen) == 2 * len(data) // dist.get_world_size(), seen
    return module


def with_uneven_lightning():
    from lightning.fabric.plugins.environments import TorchElasticEnvironment
    from lightning.pytorch.strategies import DDPStrategy

    class Environment(TorchElasticEnvironment):
        def validate_settings(self, num_devices, num_nodes):
            pass  # the workers of this host are not those of each host

    class Strategy(DDPStrategy):
        @property
        def distributed_sampler_kwargs(self):
            return {"num_replicas": self.world_size, "rank": self.global_rank}

    if os.environ["RANK"] == "3":
        os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", GROUP_RANK="1")
    else:
        os.environ["LOCAL_WORLD_SIZE"] = "3"
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    return with_lightning(devices, Strategy, [Environment()])


def with_accelerate():
    from accelerate import Accelerator

    dist.init_process_group(backend)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(loss_of(model, batch))
        optimizer.step()
    return model


def with_trainer():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    dist.init_process_group(backend)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    texts = torch.randint(0, 64, (32, 16))
    arguments = TrainingArguments(
        output_dir=directory,
        max_steps=4,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    rows = [{"input_ids": row, "labels": row} for row in texts]
    Trainer(model=model, args=arguments, train_dataset=rows).train()
    return model


programs = {
    "lightning": with_lightning,
    "uneven": with_uneven_lightning,
    "accelerate": with_accelerate,
    "trainer": with_trainer,
}
model = programs[kind]()
assert dist.get_backend() == backend, dist.get_backend()
assert dist.get_world_size() == (4 if kind == "uneven" else 2)
total = sum(parameter.double().abs().sum() for parameter in model.parameters())
print("weights", f"{float(total):.6f}")
dist.destroy_process_group()
