# DistributedOptimizer, what brings ranks to one model, and batch normalization over all ranks.
import warnings

import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.usefixtures("world")


class OwnCompression:  # need not be a hvd.Compressor
    compress = staticmethod(lambda tensor: (tensor, None))
    decompress = staticmethod(lambda tensor, context: tensor)


def make_model(seed=7):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    ).double()


def batch_of(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(6, 4, generator=generator, dtype=torch.float64)


def loss_of(model, batch):
    return (model(batch) ** 2).mean()


def train_alone(make_optimizer, steps=4, passes=1, clip=None):
    """The result that all ranks together should come to: the mean of their gradients."""
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        for one in range(passes):
            losses = [
                loss_of(model, batch_of(rank, step * passes + one)) for rank in range(hvd.size())
            ]
            (sum(losses) / hvd.size()).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model


def train_together(make_optimizer, steps=4, passes=1, clip=None, **arguments):
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(model.parameters()),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=passes,
        **arguments,
    )
    for step in range(steps):
        optimizer.zero_grad()
        for one in range(passes):
            loss_of(model, batch_of(hvd.rank(), step * passes + one)).backward()
        if clip is None:
            optimizer.step()
        else:
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            with optimizer.skip_synchronize():
                optimizer.step()
    return model


def same_models(left, right, tolerance=1e-9):
    for one, other in zip(left.parameters(), right.parameters()):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equals_training_on_the_batches_of_all_ranks(name):
    same_models(train_together(OPTIMIZERS[name]), train_alone(OPTIMIZERS[name]))


@pytest.mark.parametrize("passes", [2, 3])
def test_backward_passes_add_up(passes):
    same_models(
        train_together(OPTIMIZERS["sgd"], passes=passes),
        train_alone(OPTIMIZERS["sgd"], passes=passes),
    )


def test_gradients_can_be_clipped_between():
    make = OPTIMIZERS["sgd"]
    same_models(train_together(make, clip=0.05), train_alone(make, clip=0.05))


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_groups_by_number(groups):
    make = OPTIMIZERS["sgd"]
    same_models(train_together(make, num_groups=groups), train_alone(make))
    same_models(train_together(make, groups=groups), train_alone(make))


def test_groups_by_parameters():
    model = make_model()
    weights = [one for one in model.parameters() if one.dim() == 2]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), groups=[weights]
    )
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, batch_of(hvd.rank(), step)).backward()
        optimizer.step()
    same_models(model, train_alone(OPTIMIZERS["sgd"]))


def test_predivision_and_compression():
    make = OPTIMIZERS["sgd"]
    alone = train_alone(make)
    same_models(train_together(make, gradient_predivide_factor=2.0), alone)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        same_models(train_together(make, compression=compression), alone, 2e-2)


def test_a_compressor_of_the_users_own():
    class Same(hvd.Compression.none):
        built_in = None

    same_models(train_together(OPTIMIZERS["sgd"], compression=Same), train_alone(OPTIMIZERS["sgd"]))


def test_process_sets(even_and_odd):
    together = train_together(OPTIMIZERS["sgd"], process_set=even_and_odd)
    for values in zip(*hvd.allgather_object([one.tolist() for one in together.parameters()])):
        for rank in even_and_odd.ranks:
            assert values[rank] == values[even_and_odd.ranks[0]]


def test_unused_parameters_keep_nobody_waiting():
    used = torch.nn.Linear(3, 1)
    sometimes = torch.nn.Linear(3, 1)
    never = torch.nn.Parameter(torch.ones(3))
    with torch.no_grad():
        sometimes.weight.zero_()
    named = [("used.w", used.weight), ("used.b", used.bias), ("some.w", sometimes.weight)]
    named += [("some.b", sometimes.bias), ("never", never)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([one for _, one in named], lr=1.0), named_parameters=named
    )
    for _ in range(3):
        optimizer.zero_grad()
        loss = used(torch.ones(1, 3)).sum()
        if hvd.rank() == 0:
            loss = loss + sometimes(torch.ones(1, 3)).sum()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(
        sometimes.weight.detach(), torch.full((1, 3), -3.0 / hvd.size()), rtol=1e-6, atol=1e-6
    )
    assert torch.equal(never.detach(), torch.ones(3))


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_sparse_gradients(sparse_as_dense):
    def make(sparse):
        torch.manual_seed(3)
        return torch.nn.Embedding(10, 4, sparse=sparse).double()

    together, alone = make(True), make(False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(together.parameters(), lr=0.5),
        together.named_parameters(),
        sparse_as_dense=sparse_as_dense,
    )
    other = torch.optim.SGD(alone.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        together(torch.tensor([hvd.rank() % 10, step, 0])).sum().backward()
        optimizer.step()
        other.zero_grad()
        parts = [alone(torch.tensor([r % 10, step, 0])).sum() for r in range(hvd.size())]
        (sum(parts) / hvd.size()).backward()
        other.step()
    same_models(together, alone)


@pytest.mark.parametrize("compression", [hvd.Compression.none, "own"])
def test_gradients_that_were_made_dense_are_sparse_in_the_step(compression):
    layer = torch.nn.Embedding(10, 4, sparse=True).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(layer.parameters()),  # refuses dense gradients
        sparse_as_dense=True,
        compression=OwnCompression if compression == "own" else compression,
    )
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.tensor([hvd.rank(), 5])).sum().backward()
        optimizer.step()
    rows = layer.weight.grad.coalesce().indices()[0].tolist()
    assert rows == sorted({*range(hvd.size()), 5})
    optimizer.zero_grad(set_to_none=True)
    if hvd.rank() == 0:  # the others have no gradient at all
        layer(torch.tensor([7])).sum().backward()
    optimizer.step()
    assert layer.weight.grad.coalesce().indices()[0].tolist() == [7]


def test_a_closure_sees_the_gradients_of_all_ranks():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )

    for step in range(4):

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, batch_of(hvd.rank(), step))
            loss.backward()
            return loss

        assert optimizer.step(closure) > 0
    same_models(model, train_alone(OPTIMIZERS["sgd"]))


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_closure_without_synchronization_keeps_the_gradients(rounds):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum)
    for _ in range(rounds):
        optimizer.zero_grad()
        loss = parameter.sum()
        loss.backward()
        optimizer.synchronize()
        assert parameter.grad.item() == hvd.size()
        parameter.grad.fill_(0.5)
        with optimizer.skip_synchronize():
            optimizer.step(lambda: loss)
    assert parameter.item() == -0.5 * rounds


@pytest.mark.parametrize("passes", [2, 3])
def test_passes_of_sparse_gradients_add_up_from_the_first_step_on(passes):
    layer = torch.nn.Embedding(4, 1, sparse=True)
    torch.nn.init.zeros_(layer.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=1.0), backward_passes_per_step=passes
    )
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(passes):
            layer(torch.tensor([1])).sum().backward()
        optimizer.step()
        assert layer.weight[1].item() == pytest.approx(-passes * (step + 1))


def own_compression(parameters):
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), compression=OwnCompression)


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1)),
        lambda parameters: hvd.DistributedOptimizer(
            torch.optim.SGD(parameters, lr=0.1), op=hvd.Adasum
        ),
        own_compression,
    ],
    ids=["plain", "adasum", "own compression"],
)
def test_a_rank_without_batches_in_the_first_epoch_takes_part_in_the_second(make):
    model = torch.nn.Linear(4, 2)
    optimizer = make(model.parameters())
    for epoch in range(3):
        for _ in range(0 if epoch == 0 and hvd.rank() == 0 else 2):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        hvd.join()


def test_gradients_that_are_made_anew_in_each_step():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model, batch_of(hvd.rank(), step)).backward()
        optimizer.step()
    same_models(model, train_alone(OPTIMIZERS["sgd"]))


def test_two_optimizers_over_one_loss():
    models = [make_model(1), make_model(2)]
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(one.parameters(), lr=0.1), one.named_parameters())
        for one in models
    ]
    for step in range(3):
        for one in optimizers:
            one.zero_grad()
        sum(loss_of(one, batch_of(hvd.rank(), step)) for one in models).backward()
        for one in reversed(optimizers):
            one.step()
    for model in models:
        values = hvd.allgather_object([one.tolist() for one in model.parameters()])
        assert all(one == values[0] for one in values)


@pytest.mark.parametrize("arguments", [{}, {"compression": OwnCompression}, {"op": hvd.Adasum}])
def test_ranks_have_made_and_kept_different_numbers_of_optimizers(arguments):
    if "op" in arguments and hvd.size() & (hvd.size() - 1):
        pytest.skip("needs a power of two")

    def make():
        model = make_model()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, hvd.DistributedOptimizer(inner, model.named_parameters(), **arguments)

    kept = [make() for _ in range(hvd.rank())]
    for fold in range(3):
        model, optimizer = make()
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, batch_of(hvd.rank() + fold, step)).backward()
            optimizer.step()
        values = hvd.allgather_object([one.tolist() for one in model.parameters()])
        assert all(one == values[0] for one in values)
        if hvd.rank() == fold:
            kept.append((model, optimizer))


@pytest.mark.parametrize("arguments", [{}, {"compression": OwnCompression}])
def test_optimizers_that_are_alike_are_in_flight_at_once(arguments):
    models = [make_model(), make_model()]
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(one.parameters(), lr=0.1), one.named_parameters(), **arguments
        )
        for one in models
    ]
    for step in range(4):
        for one in optimizers:
            one.zero_grad()
        for model in models:
            loss_of(model, batch_of(hvd.rank(), step)).backward()
        # The names are those of the first step, whatever the order is later.
        for one in optimizers if step == 0 else reversed(optimizers):
            one.step()
    for model in models:
        same_models(model, train_alone(OPTIMIZERS["sgd"]))


def test_adasum_steps():
    if hvd.size() & (hvd.size() - 1):
        pytest.skip("needs a power of two")
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum
    )
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch_of(0, step)).backward()
        optimizer.step()
    alone = make_model()
    other = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(2):
        other.zero_grad()
        loss_of(alone, batch_of(0, step)).backward()
        other.step()
    same_models(model, alone, 1e-6)  # equal steps count once
    with pytest.raises(AssertionError):
        with optimizer.skip_synchronize():
            pass


def test_it_stays_an_optimizer_of_its_class():
    model = make_model()
    inner = torch.optim.Adam(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    assert isinstance(optimizer, torch.optim.Adam)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    loss_of(model, batch_of(hvd.rank(), 0)).backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    optimizer.load_state_dict(optimizer.state_dict())
    assert inner.param_groups[0]["lr"] == pytest.approx(0.05)


def test_parameters_may_be_added_later():
    first, second = make_model(1), make_model(2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(first.parameters(), lr=0.1), first.named_parameters()
    )
    for step in range(4):
        if step == 2:
            optimizer.add_param_group({"params": list(second.parameters()), "lr": 0.2})
        optimizer.zero_grad()
        batch = batch_of(hvd.rank(), step)
        loss = loss_of(first, batch)
        if step >= 2:
            loss = loss + loss_of(second, batch)
        loss.backward()
        optimizer.step()
    for model in (first, second):
        values = hvd.allgather_object([one.tolist() for one in model.parameters()])
        assert all(one == values[0] for one in values)


# --- misuse -------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [hvd.Compression.none, OwnCompression])
@pytest.mark.parametrize("frozen_layers", [(0,), (0, 2)])
def test_parameters_may_be_unfrozen_later(compression, frozen_layers):
    def trained(ranks, wrap):
        model = make_model()
        layers = [model[index] for index in frozen_layers]
        for layer in layers:
            layer.requires_grad_(False)
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        for step in range(5):
            if step >= 2:
                for layer in layers:
                    layer.requires_grad_(True)
            optimizer.zero_grad()
            losses = [loss_of(model, batch_of(rank, step)) for rank in ranks]
            loss = sum(losses) / len(losses)
            if loss.requires_grad:
                loss.backward()
            optimizer.step()
        return model

    def distributed(model, optimizer):
        return hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), compression=compression
        )

    alone = trained(range(hvd.size()), lambda _, optimizer: optimizer)
    together = trained([hvd.rank()], distributed)
    for one, other in zip(alone.parameters(), together.parameters()):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_an_optimizer_is_distributed_once(op):
    inner = torch.optim.SGD(make_model().parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, op=op)
    with pytest.raises(ValueError, match="already a DistributedOptimizer"):
        hvd.DistributedOptimizer(optimizer)


def test_wrong_names():
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    named = list(model.named_parameters())
    with pytest.raises(ValueError, match="not named"):
        hvd.DistributedOptimizer(inner, named_parameters=named[:-1])
    with pytest.raises(ValueError, match="must be unique"):
        hvd.DistributedOptimizer(inner, named_parameters=[("same", one) for _, one in named])
    with pytest.raises(ValueError, match="sequence of tuples"):
        hvd.DistributedOptimizer(inner, named_parameters=model.parameters())
    with pytest.raises(ValueError):
        hvd.DistributedOptimizer(inner, op=hvd.Max)
    with pytest.raises(ValueError, match="predivide"):
        hvd.DistributedOptimizer(inner, op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="groups"):
        hvd.DistributedOptimizer(inner, groups=-1)


def test_a_synchronization_that_was_not_needed_is_named():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    loss_of(model, batch_of(hvd.rank(), 0)).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(one.message) for one in caught)


# --- one model on all ranks ---------------------------------------------------------------------


def test_broadcast_parameters():
    for root in range(hvd.size()):
        for parameters in ("state_dict", "named_parameters"):
            model = make_model(seed=hvd.rank())
            hvd.broadcast_parameters(getattr(model, parameters)(), root_rank=root)
            same_models(model, make_model(seed=root), 0)
    with pytest.raises(ValueError):
        hvd.broadcast_parameters(3, root_rank=0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_broadcast_optimizer_state(name):
    model = make_model()
    optimizer = OPTIMIZERS[name](model.parameters())
    if hvd.rank() == 0:  # the others have no state at all
        loss_of(model, batch_of(0, 0)).backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.25
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.25
    # From here on all ranks go the same way.
    optimizer.zero_grad()
    loss_of(model, batch_of(0, 1)).backward()
    optimizer.step()
    states = hvd.allgather_object([one.tolist() for one in model.parameters()])
    assert all(one == states[0] for one in states)


def test_a_scheduler_of_the_inner_optimizer_keeps_its_hold():
    inner = torch.optim.SGD(make_model().parameters(), lr=0.1 * (1 + hvd.rank()), momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(inner)
    hvd.broadcast_optimizer_state(optimizer, 0, model=None)
    assert optimizer.param_groups[0]["lr"] == 0.1
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that of a scheduler before the first step
        scheduler.step()
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_backward_passes_before_a_loaded_state_do_not_count():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    saved = optimizer.state_dict()
    for _ in range(2):  # with and without a reducer
        loss_of(model, batch_of(hvd.rank(), 1)).backward()
        optimizer.load_state_dict(saved)
        optimizer.zero_grad()
        loss_of(model, batch_of(hvd.rank(), 2)).backward()
        optimizer.step()
    weights = hvd.allgather(model[0].weight.detach().unsqueeze(0))
    assert all(torch.equal(one, weights[0]) for one in weights)


def test_an_optimizer_that_loads_in_place_keeps_what_it_has():
    class InPlace(torch.optim.SGD):
        def load_state_dict(self, state_dict):
            self.param_groups[0]["lr"] = state_dict["param_groups"][0]["lr"]

    model = make_model()
    optimizer = hvd.DistributedOptimizer(InPlace(model.parameters(), lr=0.1))
    optimizer.load_state_dict({"param_groups": [{"lr": 0.5}]})
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["params"] == list(model.parameters())


def test_parameters_have_names_that_programs_of_horovod_read():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    assert optimizer._parameter_names == {one: name for name, one in model.named_parameters()}


def test_adasum_takes_no_process_sets(even_and_odd):
    optimizer = torch.optim.SGD(make_model().parameters(), lr=0.1)
    with pytest.raises(NotImplementedError, match="process sets"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, process_set=even_and_odd)
    made = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, compression=hvd.Compression.fp16)
    made.set_backward_passes_per_step(2)


def test_lbfgs_cannot_be_broadcast():
    optimizer = torch.optim.LBFGS(make_model().parameters())
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)


# --- batch normalization ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_normalization_sees_all_batches(shape, affine, momentum):
    def batch(rank):
        generator = torch.Generator().manual_seed(rank)
        return torch.randn(2 + rank, *shape, generator=generator, dtype=torch.float64)

    ours = hvd.SyncBatchNorm(5, momentum=momentum, affine=affine).double()
    whole = torch.nn.BatchNorm1d(5, momentum=momentum, affine=affine).double()
    whole._check_input_dim = lambda given: None
    for _ in range(2):
        mine = batch(hvd.rank()).requires_grad_()
        everything = torch.cat([batch(rank) for rank in range(hvd.size())]).requires_grad_()
        begin = sum(2 + rank for rank in range(hvd.rank()))
        end = begin + 2 + hvd.rank()
        output, wanted = ours(mine), whole(everything)
        torch.testing.assert_close(output, wanted[begin:end])
        (output**3).sum().backward()
        (wanted**3).sum().backward()
        torch.testing.assert_close(mine.grad, everything.grad[begin:end])
    torch.testing.assert_close(ours.running_mean, whole.running_mean)
    torch.testing.assert_close(ours.running_var, whole.running_var)
    assert int(ours.num_batches_tracked) == 2
    if affine:
        torch.testing.assert_close(hvd.allreduce(ours.weight.grad, op=hvd.Sum), whole.weight.grad)
        torch.testing.assert_close(hvd.allreduce(ours.bias.grad, op=hvd.Sum), whole.bias.grad)
    ours.eval(), whole.eval()
    torch.testing.assert_close(ours(batch(0)), whole(batch(0)))


def test_batch_normalization_needs_channels():
    with pytest.raises(ValueError, match="2D"):
        hvd.SyncBatchNorm(3)(torch.ones(3))


# --- the sampler --------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("length", [0, 1, 30, 31])
def test_the_sampler_shares_out_the_remaining_samples(shuffle, length):
    data = list(range(length))
    sampler = hvd.elastic.ElasticSampler(data, shuffle=shuffle, seed=5)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen = hvd.allgather_object(list(sampler))
        assert {one for part in seen for one in part} == set(data)
        assert len({len(part) for part in seen}) == 1 and len(seen[0]) == len(sampler)
        sampler.record_batch(0, 2)
        sampler.load_state_dict(sampler.state_dict())
        left = hvd.allgather_object(list(sampler))
        flat = [one for part in left for one in part]
        assert len(set(flat)) == max(0, length - 2 * hvd.size())


def test_the_sampler_feeds_a_data_loader():
    data = torch.arange(24)
    sampler = hvd.elastic.ElasticSampler(data, shuffle=False)
    loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler, num_workers=2)
    mine = [int(one) for batch in loader for one in batch]
    assert sorted({one for part in hvd.allgather_object(mine) for one in part}) == list(range(24))
