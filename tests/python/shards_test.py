# Shards: hvd.ShardReducer, hvd.ShardSampler, and DistributedOptimizer(shards=...), on as many ranks
# as there are. shards_jobs_test.py has whole jobs.
import numpy as np
import pytest
import torch

import hvd.torch
from hvd import ShardRandom, ShardReducer, ShardSampler, shards_of

pytestmark = pytest.mark.usefixtures("world")
COUNTS = [1, 2, 5, 16]


def gradient_of(shard, step, size=1003):
    """Numbers of all magnitudes: any other order of additions gives another sum."""
    random = ShardRandom(7, shard, step)
    scale = (1 << random.integers(size) % 24).astype(np.float32)
    return (random.uniform(size) - np.float32(0.5)) * scale


def tree_sum(values):
    """As one process adds them up: split at the largest power of two that is less than all."""
    if len(values) == 1:
        return values[0]
    left = 1 << (len(values) - 1).bit_length() - 1
    return tree_sum(values[:left]) + tree_sum(values[left:])


# --- shards, their random numbers and samples ---------------------------------------------------


def test_each_shard_is_that_of_one_rank():
    for shards in COUNTS:
        told = hvd.allgather_object(list(shards_of(shards)))
        assert sorted(shard for own in told for shard in own) == list(range(shards))
        assert list(shards_of(shards, hvd.rank(), hvd.size())) == told[hvd.rank()]
    with pytest.raises(ValueError, match="from 1 to"):
        shards_of(0)


def test_random_numbers_are_those_of_philox():
    # The known answers of Random123, "philox4x32 10".
    expected = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert ShardRandom(0, 0, 0).integers(4).tolist() == expected
    random = ShardRandom(0, 0, 0)
    assert random.integers(1).tolist() + random.integers(3).tolist() == expected
    assert ShardRandom(0, 0, 0).uniform(1).tolist() == [(0x6627E8D5 >> 8) / 2**24]
    assert ShardRandom(0, 0, 0).seed() == (0xE169C58D << 32 | 0x6627E8D5) >> 1
    torch.manual_seed(ShardRandom(2**64 - 1, 15, 2**64 - 1).seed())


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_sampler_shares_out_each_sample_once(shuffle):
    sampler = ShardSampler(range(103), 4, 5, shuffle=shuffle, seed=3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen, steps = [], 0
        from_the_begin = iter(sampler)
        while not sampler.is_done():
            own = [sampler.batch(shard) for shard in shards_of(5)]
            assert own == [next(from_the_begin) for _ in own]
            # Those of a loop that begins here, and of a sampler that was there before.
            rest = list(sampler)
            assert rest[: len(own)] == own and len(rest) == len(sampler)
            again = ShardSampler(range(103), 4, 5, shuffle=shuffle, seed=3)
            again.load_state_dict(sampler.state_dict())
            batches = [again.batch(shard) for shard in range(5)]
            assert own == [batches[shard] for shard in shards_of(5)]
            seen += [sample for batch in batches for sample in batch]
            sampler.record_step()
            steps += 1
        # The last step has three samples for five shards, of which two come twice.
        assert (steps, len(seen)) == (6, 105) and set(seen) == set(range(103))
        assert (seen[:103] == list(range(103))) != shuffle
        assert list(sampler) == [] and sampler.batch(0) == []
    with pytest.raises(ValueError, match="no shard 5"):
        sampler.batch(5)
    with pytest.raises(TypeError, match="record_step"):
        sampler.record_batch(0, 4)


# --- arrays -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", COUNTS)
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
@pytest.mark.parametrize("deterministic", [False, True])
def test_arrays_become_those_of_all_shards(shards, op, deterministic):
    weight, bias = np.zeros((17, 59), np.float32), np.zeros(1, np.float64)
    arrays = {"weight": weight, "bias": bias}
    reducer = ShardReducer(arrays, shards, op=op, deterministic=deterministic)
    for step in range(2):
        for shard in reducer.shards():
            weight[:] = gradient_of(shard, step).reshape(17, 59)
            bias[:] = shard
        expected = tree_sum([gradient_of(shard, step) for shard in range(shards)])
        divisor = shards if op == hvd.Average else 1
        expected = (expected / np.float32(divisor)).reshape(17, 59)
        if deterministic:
            np.testing.assert_array_equal(weight, expected)
        else:
            np.testing.assert_allclose(weight, expected, rtol=1e-3, atol=1)
        np.testing.assert_allclose(bias, shards * (shards - 1) / 2 / divisor)


def test_a_loop_that_was_left_does_not_count():
    array = np.zeros(3, np.float32)
    for deterministic in (False, True):
        reducer = ShardReducer({"a": array}, 6, deterministic=deterministic)
        for _ in reducer.shards():
            array[:] = 1e9
            break
        for _ in reducer.shards():
            array[:] = 2
        assert array.tolist() == [2, 2, 2]
        assert list(reducer.shards()) == list(shards_of(6))


def test_mistakes_with_arrays_are_refused():
    array = np.zeros(3, np.float32)
    for deterministic in (False, True):
        with pytest.raises(ValueError, match="from 1 to"):
            ShardReducer({"a": array}, 0, deterministic=deterministic)
        with pytest.raises(ValueError, match="Average or Sum"):
            ShardReducer({"a": array}, 2, op=hvd.Max, deterministic=deterministic)
        with pytest.raises(TypeError, match="array"):
            ShardReducer({"a": [1, 2]}, 2, deterministic=deterministic)


# --- optimizers of PyTorch ----------------------------------------------------------------------


def make_model():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))


def loss_of(model, shard, step):
    torch.manual_seed(ShardRandom(5, shard, step).seed())
    inputs = torch.from_numpy(ShardRandom(6, shard, step).uniform(24)).reshape(4, 6)
    return (model(inputs) ** 2).mean()


def sharded(model, shards, deterministic, **arguments):
    return hvd.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
        model.named_parameters(),
        shards=shards,
        deterministic=deterministic,
        named_buffers=model.named_buffers(),
        **arguments,
    )


def state_of(model):
    return [one.clone() for one in model.state_dict().values()]


def train_alone(shards, steps):
    """One process with all shards, and the running means of each."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        begin = [one.clone() for one in model.buffers()]
        after = []
        for shard in range(shards):
            for one, old in zip(model.buffers(), begin):
                one.copy_(old)
            (loss_of(model, shard, step) / shards).backward()
            after.append([one.clone() for one in model.buffers()])
        for one, *values in zip(model.buffers(), *after):
            one.copy_(torch.stack(values).double().mean(0))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
    return state_of(model)


@pytest.mark.parametrize("shards", COUNTS)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_an_optimizer_steps_with_the_gradients_of_all_shards(shards, deterministic, op):
    model = make_model()
    optimizer = sharded(model, shards, deterministic, op=op)
    for step in range(3):
        for shard in optimizer.shards():
            loss = loss_of(model, shard, step)
            (loss if op == hvd.Average else loss / shards).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
    own = state_of(model)
    for one, expected in zip(own, train_alone(shards, 3)):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-6)
    for others in hvd.allgather_object(own):
        assert all(torch.equal(one, other) for one, other in zip(own, others))


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_parameter_has_a_gradient_if_one_shard_has_it(deterministic):
    named = [(name, torch.nn.Parameter(torch.ones(3))) for name in ("all", "one", "none")]
    parameters = [one for _, one in named]
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    optimizer = hvd.torch.DistributedOptimizer(
        torch.optim.SGD([*parameters, frozen], lr=1.0),
        [*named, ("frozen", frozen)],
        shards=4,
        deterministic=deterministic,
    )
    for own in (2, 3):
        for shard in optimizer.shards():
            loss = parameters[0].sum()
            if shard == own:
                loss = loss + 8 * parameters[1].sum()
            loss.backward()
        gradients = [None if one.grad is None else one.grad.tolist() for one in parameters]
        assert gradients == [[1] * 3, [2] * 3, None] and frozen.grad is None
        optimizer.step()
    assert [one[0].item() for one in parameters] == [-1, -3, 1]
    frozen.requires_grad_(True)
    for _ in optimizer.shards():
        (frozen.sum() + parameters[0].sum()).backward()
    assert frozen.grad.tolist() == [1] * 3


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_shard_may_have_several_backward_passes(deterministic):
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.torch.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0),
        backward_passes_per_step=2,
        shards=5,
        deterministic=deterministic,
    )
    for step in range(2):
        for shard in optimizer.shards():
            (shard * weight).sum().backward()
            (step * weight).sum().backward()
        assert weight.grad.tolist() == [2 + step] * 3
        optimizer.step()


def test_passes_that_were_not_announced_are_an_error():
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.torch.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), shards=hvd.size())
    with pytest.raises(RuntimeError, match="more backward passes than 1"):
        for _ in optimizer.shards():
            weight.sum().backward()
            weight.sum().backward()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_loop_of_an_optimizer_that_was_left_does_not_count(deterministic):
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.torch.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), shards=2 * hvd.size(), deterministic=deterministic
    )
    for _ in optimizer.shards():
        (100 * weight).sum().backward()
        break
    with pytest.raises(RuntimeError, match="before its end"):
        optimizer.step()
    weight.grad = torch.ones(3)  # nor does what was there before the loop
    for _ in optimizer.shards():
        weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == [-1] * 3


@pytest.mark.parametrize("deterministic", [False, True])
def test_rows_of_shards_add_up(deterministic):
    table = torch.nn.Embedding(4, 2, sparse=True)
    with torch.no_grad():
        table.weight.zero_()
    optimizer = hvd.torch.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=1.0),
        table.named_parameters(),
        shards=4,
        deterministic=deterministic,
    )
    for shard in optimizer.shards():
        table(torch.tensor([shard, 0])).sum().backward()
    optimizer.step()
    assert table.weight[:, 0].tolist() == [-1.25, -0.25, -0.25, -0.25]


def test_what_an_optimizer_with_shards_cannot_do_is_refused():
    def make(**arguments):
        weight = torch.nn.Parameter(torch.zeros(3))
        hvd.torch.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), **arguments)

    for match, arguments in (
        ("with shards", {"deterministic": True}),
        ("with shards", {"named_buffers": []}),
        ("from 1 to", {"shards": -1}),
        ("Adasum", {"shards": 2, "op": hvd.Adasum}),
        (
            "neither compression",
            {"shards": 2, "deterministic": True, "compression": hvd.Compression.fp16},
        ),
        (
            "neither compression",
            {"shards": 2, "deterministic": True, "gradient_predivide_factor": 2.0},
        ),
    ):
        with pytest.raises(ValueError, match=match):
            make(**arguments)


@pytest.mark.parametrize("deterministic", [False, True])
def test_within_no_sync_shards_are_reduced_behind_ddp(deterministic):
    model = make_model()
    alone = train_alone(5, 3)
    torch.distributed.init_process_group("hvd")
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
        optimizer = sharded(model, 5, deterministic)
        for step in range(3):
            with parallel.no_sync():
                for shard in optimizer.shards():
                    loss_of(parallel, shard, step).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
    finally:
        torch.distributed.destroy_process_group()
    for one, expected in zip(state_of(model), alone):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-6)
