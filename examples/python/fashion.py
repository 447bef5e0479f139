"""Recognizes clothes on small photographs: an elastic job on the data set Fashion-MNIST.

    hvdrun -np 2 --min-np 1 python3 fashion.py --images 6000 --epochs 3

Every image is seen once in an epoch, whichever workers come, go and die. After each epoch all
workers together say how many of the images that were kept aside they recognize. Debian's package
dataset-fashion-mnist has the images; --data names another folder with the same files.
"""

import argparse
import gzip
import pathlib

import torch

import hvd.torch as hvd

try:
    from tqdm import tqdm
except ImportError:  # no bar of progress then

    def tqdm(batches, *_, **__):
        return batches


BATCH = 50


def read(file: pathlib.Path, header: int, shape: tuple[int, ...]) -> torch.Tensor:
    with gzip.open(file) as stream:
        content = bytearray(stream.read()[header:])
    return torch.frombuffer(content, dtype=torch.uint8).reshape(-1, *shape)


def images_and_classes(folder: pathlib.Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    images = read(folder / f"{name}-images-idx3-ubyte.gz", 16, (1, 28, 28))
    return images.float() / 255, read(folder / f"{name}-labels-idx1-ubyte.gz", 8, ()).long()


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2),
        hvd.SyncBatchNorm(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, 10),
    )


def accuracy(model: torch.nn.Module, images: torch.Tensor, classes: torch.Tensor) -> float:
    """Each worker looks at its share."""
    mine = slice(hvd.rank(), None, hvd.size())
    model.eval()
    with torch.no_grad():
        right = (model(images[mine]).argmax(1) == classes[mine]).sum()
    model.train()
    return float(hvd.allreduce(right, op=hvd.Sum, name="right")) / len(classes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    images, classes = images_and_classes(arguments.data, "train")
    kept_aside = images_and_classes(arguments.data, "t10k")

    hvd.init()
    torch.manual_seed(1)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(arguments.images))
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=1)

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.epoch <= arguments.epochs:
            batches = torch.utils.data.BatchSampler(sampler, BATCH, drop_last=False)
            for batch in tqdm(batches, f"epoch {state.epoch}", disable=hvd.rank() != 0 or None):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images[batch]), classes[batch]).backward()
                optimizer.step()
                sampler.record_batch(0, len(batch))
                state.commit()
            share = accuracy(model, *kept_aside)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}: {100 * share:.1f} % are recognized", flush=True)
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    train(state)


if __name__ == "__main__":
    main()
