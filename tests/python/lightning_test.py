# Lightning's Trainer whose workers are killed in the middle of epochs: the weights have the bits of
# the job that nobody disturbed, and each sample is drawn once. One process that starts hvdrun.
import json

import pytest
from whole_jobs import assert_drawn_once, output_of, program_of, sizes_of, that_resizes

pytest.importorskip("lightning")

PROGRAM = """
import json, os, signal, sys, warnings
import lightning.pytorch as pl
import torch
import hvd.lightning as hvd

EPOCHS, SAMPLES, BATCH = 2, 42, 4
kills = [int(step) for step in sys.argv[1:]]
warnings.filterwarnings("ignore")
hvd.init()
torch.manual_seed(5)
data = torch.utils.data.TensorDataset(torch.randn(SAMPLES, 4), torch.arange(SAMPLES))


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
        self.model = torch.nn.Sequential(*layers)

    def loss_of(self, inputs):
        return (self.model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()

    def training_step(self, batch, index):
        if self.global_step in kills and self.global_step not in state.killed:
            state.killed = [*state.killed, self.global_step]
            state.commit()
            if hvd.rank() == len(state.killed) % hvd.size():
                os.kill(os.getpid(), signal.SIGKILL)
        loss = self.loss_of(batch[0])
        seen = hvd.allgather_object((float(loss), batch[1].tolist()))
        state.seen = [*state.seen, seen]
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss_of(batch[0]), sync_dist=True)

    def on_validation_epoch_end(self):
        state.validated = [*state.validated, float(self.trainer.callback_metrics["val_loss"])]

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


module = Module()
sampler = hvd.elastic.LoopSampler(data)
state = hvd.elastic.LoopState(module, sampler=sampler, killed=[], seen=[], validated=[])


@hvd.elastic.run
def train(state):
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        strategy=hvd.ElasticStrategy(state),
        callbacks=[hvd.CommitCallback(state)],
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler, num_workers=1)
    check = torch.utils.data.DataLoader(data, BATCH)
    trainer.fit(module, loader, check, ckpt_path=hvd.checkpoint_of(state))
    return trainer.global_step, trainer.current_epoch, trainer.world_size


assert train(state) == (len(state.seen), EPOCHS, hvd.size())
assert len(state.validated) == EPOCHS, state.validated
if hvd.rank() == 0:
    bits = b"".join(one.detach().numpy().tobytes() for one in module.parameters())
    said = [bits.hex(), hvd.generation(), state.seen, state.validated]
    print(json.dumps(said), flush=True)
"""


def said(tmp_path, *kills, program=PROGRAM, **options):
    output = output_of(program, tmp_path, *kills, **options)
    bits, generation, seen, validated = json.loads(output.splitlines()[-1])
    assert_drawn_once([[batch for _, batch in ranks] for ranks in seen], 42, 2)
    return bits, generation, seen, validated


def test_fit_goes_on_in_the_middle_of_an_epoch(tmp_path):
    undisturbed, generation, *curves = said(tmp_path)
    assert generation == 1
    # In the middle of the first epoch, and where the second one begins.
    killed, generation, *curves_killed = said(tmp_path, 2, 6)
    assert generation >= 3
    assert curves_killed == curves
    assert killed == undisturbed


def test_a_world_of_another_size_draws_the_samples_that_are_left(tmp_path):
    _, generation, seen, _ = said(tmp_path, 2, flags="--min-np 1 --restarts 0")
    assert generation == 2
    # 16 samples by two ranks, 26 by one; 42 by one.
    assert [len(ranks) for ranks in seen] == [2] * 2 + [1] * 18


def test_a_world_that_shrinks_and_grows_draws_the_samples_that_are_left(tmp_path):
    program = that_resizes(PROGRAM)
    _, generation, seen, _ = said(tmp_path, 1, 3, program=program, flags="--min-np 1")
    assert generation == 3
    assert sizes_of(seen) == [2, 1, 2]


def test_the_program_of_the_page_runs_as_it_stands(tmp_path):
    assert "done 8" in output_of(program_of("docs/lightning.md"), tmp_path)
