# The Trainer of Transformers, and a loop with Accelerate, whose workers are killed in the middle of
# epochs: the weights have the bits of the job that nobody disturbed, and each sample is drawn once.
# One process that starts hvdrun.
import json

import pytest
from whole_jobs import assert_drawn_once, output_of, program_of, sizes_of, that_resizes

pytest.importorskip("transformers")

# The samples are drawn as these programs say, and a kill comes in the middle of an epoch.
COMMON = """
import json, os, signal, sys
import torch
import {module} as hvd

EPOCHS, SAMPLES, BATCH = 2, 42, 4
kills = [int(step) for step in sys.argv[1:]]
hvd.init()
torch.manual_seed(5)


def maybe_kill(step):
    if step in kills and step not in state.killed:
        state.killed = [*state.killed, step]
        state.commit()
        if hvd.rank() == len(state.killed) % hvd.size():
            os.kill(os.getpid(), signal.SIGKILL)


def note(loss, own):
    # What is the same on all ranks: the losses of all, and their samples.
    losses, numbers = zip(*hvd.allgather_object((float(loss), own)))
    state.losses = [*state.losses, losses]
    state.seen = [*state.seen, numbers]


def report(model):
    if hvd.rank() == 0:
        bits = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
        said = [bits.hex(), hvd.generation(), state.seen, state.losses]
        print(json.dumps(said), flush=True)
"""

TRAINER = (
    COMMON.replace("{module}", "hvd.transformers")
    + """
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

# Its name changed in version 4.34.
cpu = "use_cpu" if "use_cpu" in TrainingArguments.__dataclass_fields__ else "no_cuda"
rows = torch.randint(0, 32, (SAMPLES, 8))
data = [{"input_ids": row, "labels": row, "number": index} for index, row in enumerate(rows)]
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2))
state = hvd.elastic.LoopState(model, killed=[], seen=[], losses=[])


class Kill(TrainerCallback):
    def on_step_begin(self, args, trainer_state, control, **kwargs):
        maybe_kill(trainer_state.global_step)


class Trainer(hvd.ElasticTrainer):
    def training_step(self, model, inputs, *rest):
        numbers = inputs.pop("number").tolist()
        loss = super().training_step(model, inputs, *rest)
        note(loss, numbers)
        return loss


@hvd.elastic.run
def train(state):
    arguments = TrainingArguments(
        "unused",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        warmup_steps=3,
        learning_rate=0.01,
        **{cpu: True},
        report_to=[],
        save_strategy="no",
        logging_steps=2,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_num_workers=1,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        state, model=model, args=arguments, train_dataset=data, callbacks=[Kill()]
    )
    trainer.train()
    return trainer.state


trained = train(state)
logged = [entry["step"] for entry in trained.log_history if "loss" in entry]
assert logged[-1] == trained.max_steps, logged
sizes = {len(one) for one in state.losses}  # worlds of another size count other steps
assert len(sizes) > 1 or logged == list(range(2, trained.max_steps + 1, 2)), logged
assert trained.epoch == EPOCHS and trained.global_step == trained.max_steps, trained
report(model)
"""
)

ACCELERATE = (
    COMMON.replace("{module}", "hvd.accelerate")
    + """
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
data = torch.utils.data.TensorDataset(torch.randn(SAMPLES, 4), torch.arange(SAMPLES))
sampler = hvd.elastic.LoopSampler(data)
state = hvd.elastic.LoopState(
    model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, step=0, killed=[], seen=[],
    losses=[],
)


@hvd.elastic.run
def train(state):
    accelerator = hvd.Accelerator()
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler, num_workers=1)
    parallel, stepper, loader = accelerator.prepare(model, optimizer, loader)
    while sampler.epoch < EPOCHS:
        for inputs, numbers in loader:
            state.begin_step(state.step)
            stepper.zero_grad()
            loss = (parallel(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
            accelerator.backward(loss)
            maybe_kill(state.step)
            stepper.step()
            scheduler.step()
            note(loss, numbers.tolist())
            sampler.record_batch(0, len(inputs))
            state.step += 1
        sampler.next_epoch()


train(state)
report(model)
"""
)


# Rank 1 is lost in the middle of the first epoch, and nobody comes in its place.
SHRINKS = "--min-np 1 --restarts 0"


def said(program, tmp_path, *kills, **options):
    output = output_of(program, tmp_path, *kills, **options)
    bits, generation, seen, losses = json.loads(output.splitlines()[-1])
    assert_drawn_once(seen, 42, 2)
    return bits, generation, losses


@pytest.mark.parametrize("program", [TRAINER, ACCELERATE], ids=["trainer", "accelerate"])
def test_a_loop_goes_on_in_the_middle_of_an_epoch(program, tmp_path):
    undisturbed, generation, losses = said(program, tmp_path)
    assert generation == 1
    killed, generation, losses_killed = said(program, tmp_path, 2, 8)
    assert generation >= 3
    assert losses_killed == losses
    assert killed == undisturbed


@pytest.mark.parametrize("program", [TRAINER, ACCELERATE], ids=["trainer", "accelerate"])
def test_a_world_of_another_size_draws_the_samples_that_are_left(program, tmp_path):
    _, generation, losses = said(program, tmp_path, 2, flags=SHRINKS)
    assert generation == 2
    # 16 samples by two ranks, 26 by one; 42 by one.
    assert [len(one) for one in losses] == [2] * 2 + [1] * 18


@pytest.mark.parametrize("program", [TRAINER, ACCELERATE], ids=["trainer", "accelerate"])
def test_a_world_that_shrinks_and_grows_draws_the_samples_that_are_left(program, tmp_path):
    _, generation, losses = said(that_resizes(program), tmp_path, 1, 3, flags="--min-np 1")
    assert generation == 3
    assert sizes_of(losses) == [2, 1, 2]


def test_the_program_of_the_page_runs_as_it_stands(tmp_path):
    assert "done 8" in output_of(program_of("docs/transformers.md"), tmp_path)
