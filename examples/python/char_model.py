"""A model of the characters of a text, trained by all workers of an elastic job.

    hvdrun -np 2 --min-np 1 python3 char_model.py --steps 200 TEXT...

It predicts each character from those before it. Workers may come, go and die: the model, the
optimizer and the place in the text survive, and no step is lost. At the end every worker has the
same model, and rank 0 says what a character costs, in bits, and writes some text of its own.
"""

import argparse
import math

import torch

import hvd.torch as hvd

CONTEXT = 16  # characters from which the next one is predicted
BATCH = 64


class CharModel(torch.nn.Module):
    def __init__(self, characters: int, width: int = 96) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, 16)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16 * CONTEXT, width),
            torch.nn.GELU(),
            torch.nn.Linear(width, characters),
        )

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(context).flatten(1))


def write(model: CharModel, text: torch.Tensor, characters: list[str], count: int) -> str:
    context = text[:CONTEXT].clone()
    written = []
    for _ in range(count):
        chances = model(context.unsqueeze(0)).softmax(1)[0]
        chosen = torch.multinomial(chances, 1)
        written.append(characters[int(chosen)])
        context = torch.cat([context[1:], chosen])
    return "".join(written)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("texts", nargs="+")
    arguments = parser.parse_args()
    text = "".join(open(path, encoding="utf-8").read() for path in arguments.texts)
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    data = torch.tensor([numbers[character] for character in text])

    hvd.init()
    torch.manual_seed(1)
    model = CharModel(len(characters))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(len(data) - CONTEXT))
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, step=0)

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> float:
        loss = torch.zeros(())
        while state.step < arguments.steps:
            loader = torch.utils.data.DataLoader(range(len(data)), BATCH, sampler=state.sampler)
            for batch in loader:
                context = data[batch.unsqueeze(1) + torch.arange(CONTEXT)]
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(context), data[batch + CONTEXT])
                loss.backward()
                optimizer.step()
                state.step += 1
                state.sampler.record_batch(0, len(batch))
                state.commit()
                if state.step == arguments.steps:
                    break
            else:
                state.sampler.set_epoch(state.sampler.epoch + 1)
        return float(hvd.allreduce(loss.detach()))

    loss = train(state)
    if hvd.rank() == 0:
        print(f"step {state.step}: {loss / math.log(2):.2f} bits for each character")
        print(write(model, data, characters, 200))


if __name__ == "__main__":
    main()
