# Training programs that are right in one process, written once for three ways of running them:
# alone, over DistributedDataParallel, and over hvd.DistributedOptimizer. A program gets a way,
# makes its modules and optimizers with it, and gives a function that makes step number i. All that
# lasts from step to step lies in these modules and optimizers, so that an elastic job can repeat
# a step.
import contextlib
import dataclasses
import functools

import torch
from torch.utils.checkpoint import checkpoint

import hvd.torch as hvd

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
STEPS = 6


class Way:
    """Runs the losses of all ranks in one process: their mean is what all ranks together have."""

    is_alone = True
    is_hvd = False

    def __init__(self, size):
        self.size = size
        self.modules = []
        self.optimizers = []

    def model(self, module, **arguments):
        self.modules.append(module)
        return module

    def optimizer(self, inner, named, **arguments):
        self.optimizers.append(inner)
        return inner

    def loss(self, of_rank):
        return sum(of_rank(rank) for rank in range(self.size)) / self.size

    def local(self, wrapped):
        """Within it a backward pass only adds up."""
        return contextlib.nullcontext()


class Hvd(Way):
    is_alone = False
    is_hvd = True

    def optimizer(self, inner, named, **arguments):
        made = hvd.DistributedOptimizer(inner, named, **arguments)
        self.optimizers.append(made)
        return made

    def loss(self, of_rank):
        return of_rank(hvd.rank())


class Ddp(Way):
    is_alone = False

    def model(self, module, **arguments):
        self.modules.append(module)
        if not any(one.requires_grad for one in module.parameters()):
            return module
        return torch.nn.parallel.DistributedDataParallel(module, **arguments)

    def loss(self, of_rank):
        return of_rank(hvd.rank())

    def local(self, wrapped):
        return wrapped.no_sync()


@dataclasses.dataclass
class Program:
    make: object
    ddp: bool = True  # whether DistributedDataParallel can run it
    exact: bool = True
    elastic: bool = True  # whether all that lasts lies in modules and optimizers
    least_torch: tuple = (1, 13)


PROGRAMS = {}


def program(**arguments):
    def note(make):
        PROGRAMS[make.__name__] = Program(make, **arguments)
        return make

    return note


def network(seed=7, dtype=torch.float64):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)]
    return torch.nn.Sequential(*layers).to(dtype)


def batch(rank, step, columns=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(6, columns, generator=generator, dtype=torch.float64).to(dtype)


def square(outputs):
    return (outputs**2).mean()


def sgd(module, **arguments):
    return torch.optim.SGD(module.parameters(), **({"lr": 0.1} | arguments))


def one_network(way, make_optimizer, model_arguments=None, **arguments):
    module = network()
    wrapped = way.model(module, **(model_arguments or {}))
    return (
        module,
        wrapped,
        way.optimizer(make_optimizer(module), module.named_parameters(), **arguments),
    )


def usual(way, make_optimizer, **arguments):
    _, wrapped, optimizer = one_network(way, make_optimizer, **arguments)

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        optimizer.step()

    return step


@program()
def plain(way):
    return usual(way, sgd)


@program()
def momentum_and_decay(way):
    return usual(way, functools.partial(sgd, momentum=0.9, weight_decay=0.01, nesterov=True))


@program()
def adam(way):
    return usual(way, lambda module: torch.optim.AdamW(module.parameters(), lr=0.01))


@program()
def gradients_set_to_none(way):
    _, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad(set_to_none=i % 2 == 0)
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        optimizer.step()

    return step


@program()
def the_model_zeroes(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        optimizer.step()
        module.zero_grad(set_to_none=True)

    return step


@program()
def two_losses_one_after_the_other(way):
    _, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()
        for part in range(2):
            way.loss(lambda rank: square(wrapped(batch(rank, 10 * i + part)))).backward()
        optimizer.step()

    return step


@program(ddp=False)  # it reduces the first pass of a graph alone
def two_losses_of_one_graph(way):
    _, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()
        if way.is_alone:
            outputs = [wrapped(batch(rank, i)) for rank in range(way.size)]
        else:
            outputs = {hvd.rank(): wrapped(batch(hvd.rank(), i))}
        way.loss(lambda rank: square(outputs[rank])).backward(retain_graph=True)
        way.loss(lambda rank: outputs[rank].abs().mean()).backward()
        optimizer.step()

    return step


@program()
def passes_that_add_up(way):
    arguments = {"backward_passes_per_step": 3} if way.is_hvd else {}
    _, wrapped, optimizer = one_network(way, sgd, **arguments)

    def step(i):
        optimizer.zero_grad()
        for part in range(3):
            with way.local(wrapped) if part < 2 else contextlib.nullcontext():
                way.loss(lambda rank: square(wrapped(batch(rank, 10 * i + part)))).backward()
        optimizer.step()

    return step


def adversaries(way):
    generator, discriminator = network(1), network(2)
    torch.manual_seed(3)
    to_input = torch.nn.Linear(2, 4).double()
    generator = torch.nn.Sequential(generator, to_input)
    wrapped = way.model(generator), way.model(discriminator)
    optimizers = [
        way.optimizer(sgd(one), one.named_parameters(prefix=name))
        for name, one in (("g", generator), ("d", discriminator))
    ]
    return wrapped, optimizers


@program()
def gan_generator_first(way):
    (generator, discriminator), (of_generator, of_discriminator) = adversaries(way)

    def step(i):
        of_generator.zero_grad()
        way.loss(lambda rank: -discriminator(generator(batch(rank, i))).mean()).backward()
        of_generator.step()
        of_discriminator.zero_grad()

        def loss(rank):
            fake = discriminator(generator(batch(rank, i)).detach())
            return square(fake) - discriminator(batch(rank, i + 100)).mean()

        way.loss(loss).backward()
        of_discriminator.step()

    return step


@program()
def gan_in_the_order_of_torchs_example(way):
    (generator, discriminator), (of_generator, of_discriminator) = adversaries(way)

    def step(i):
        of_discriminator.zero_grad()
        way.loss(lambda rank: -discriminator(batch(rank, i + 100)).mean()).backward()
        way.loss(lambda rank: square(discriminator(generator(batch(rank, i)).detach()))).backward()
        of_discriminator.step()
        of_generator.zero_grad()
        way.loss(lambda rank: -discriminator(generator(batch(rank, i))).mean()).backward()
        of_generator.step()

    return step


@program()
def two_optimizers_of_two_models(way):
    modules = [network(1), network(2)]
    wrapped = [way.model(one) for one in modules]
    optimizers = [way.optimizer(sgd(one), one.named_parameters()) for one in modules]

    def step(i):
        for one in optimizers:
            one.zero_grad()
        way.loss(lambda rank: sum(square(one(batch(rank, i))) for one in wrapped)).backward()
        for one in reversed(optimizers):
            one.step()

    return step


@program()
def two_optimizers_of_one_parameter(way):
    module = network()
    wrapped = way.model(module)
    whole = way.optimizer(sgd(module), module.named_parameters(prefix="whole"))
    head = way.optimizer(torch.optim.SGD([module[2].bias], lr=0.3), [("head.bias", module[2].bias)])

    def step(i):
        module.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        (head if i % 3 == 0 else whole).step()

    return step


@program()
def checkpoints(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()

        def loss(rank):
            hidden = module[1](module[0](batch(rank, i)))
            return square(checkpoint(module[2], hidden, use_reentrant=False))

        if not way.is_alone and not way.is_hvd:
            way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        else:
            way.loss(loss).backward()
        optimizer.step()

    return step


class Twice(torch.nn.Module):
    """Its layer runs in two reentrant checkpoints, one after the other."""

    def __init__(self, depth=1):
        super().__init__()
        torch.manual_seed(4)
        self.layer = torch.nn.Linear(4, 4)
        self.depth = depth

    def once(self, inputs):
        if self.depth == 1:
            return self.layer(inputs)
        return checkpoint(self.layer, self.layer(inputs), use_reentrant=True)

    def forward(self, inputs):
        first = checkpoint(self.once, inputs, use_reentrant=True)
        return checkpoint(self.once, first, use_reentrant=True)


def reentrant(way, depth, behind):
    module = torch.nn.Sequential(
        *([torch.nn.Linear(4, 4)] if behind else []), Twice(depth)
    ).double()
    wrapped = way.model(module, static_graph=True)
    optimizer = way.optimizer(sgd(module), module.named_parameters())

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i).requires_grad_()))).backward()
        optimizer.step()

    return step


@program()
def reentrant_checkpoints_of_one_layer(way):
    return reentrant(way, 1, behind=False)


@program(ddp=False)
def reentrant_checkpoints_within_others(way):
    return reentrant(way, 2, behind=False)


@program()
def reentrant_checkpoints_behind_a_layer(way):
    return reentrant(way, 1, behind=True)


@program()
def a_layer_is_frozen_later(way):
    make = functools.partial(sgd, momentum=0.9, weight_decay=0.01)
    module, wrapped, optimizer = one_network(way, make, {"find_unused_parameters": True})

    def step(i):
        module[0].requires_grad_(i < 3)
        optimizer.zero_grad(set_to_none=True)
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        if i >= 3:
            assert module[0].weight.grad is None
        optimizer.step()

    return step


@program(ddp=False)  # it takes the parameters that ask for gradients when it is made
def a_layer_is_unfrozen_later(way):
    module, wrapped, optimizer = one_network(way, functools.partial(sgd, momentum=0.9))

    def step(i):
        module[0].requires_grad_(i >= 3)
        optimizer.zero_grad(set_to_none=True)
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        optimizer.step()

    return step


@program()
def a_part_is_frozen_from_the_start(way):
    module = network()
    module[0].requires_grad_(False)
    wrapped = way.model(module)
    trained = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
    optimizer = way.optimizer(torch.optim.SGD([one for _, one in trained], lr=0.1), trained)

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        optimizer.step()

    return step


class Heads(torch.nn.Module):
    """Which head is used depends on the rank and the step. The last one never is."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.body = torch.nn.Linear(4, 4)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(4, 2) for _ in range(3))

    def forward(self, inputs, which):
        return self.heads[which](self.body(inputs))


@program()
def ranks_use_different_parameters(way):
    module = Heads().double()
    wrapped = way.model(module, find_unused_parameters=True)
    make = functools.partial(sgd, momentum=0.9, weight_decay=0.01)
    optimizer = way.optimizer(make(module), module.named_parameters())

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        way.loss(lambda rank: square(wrapped(batch(rank, i), (rank + i) % 2))).backward()
        assert module.heads[2].weight.grad is None
        optimizer.step()

    return step


@program(ddp=False)  # each rank would minimise its own loss
def lbfgs(way):
    module = torch.nn.Linear(4, 1).double()
    torch.manual_seed(6)
    torch.nn.init.normal_(module.weight)
    torch.nn.init.zeros_(module.bias)
    wrapped = way.model(module)
    inner = torch.optim.LBFGS(module.parameters(), line_search_fn="strong_wolfe", max_iter=5)
    optimizer = way.optimizer(inner, module.named_parameters())

    def step(i):
        def closure():
            optimizer.zero_grad()
            loss = way.loss(lambda rank: ((wrapped(batch(rank, 0)) - rank) ** 2).mean())
            loss.backward()
            return loss

        optimizer.step(closure)

    return step


@program()
def a_closure(way):
    _, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        def closure():
            optimizer.zero_grad()
            loss = way.loss(lambda rank: square(wrapped(batch(rank, i))))
            loss.backward()
            return loss

        optimizer.step(closure)

    return step


@program(least_torch=(2, 3), exact=False, elastic=False)  # the scale
def a_gradient_scaler(way):
    module = network(dtype=torch.float32)
    wrapped = way.model(module)
    optimizer = way.optimizer(sgd(module), module.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    def step(i):
        optimizer.zero_grad()

        def loss(rank):
            factor = float("inf") if i == 3 and rank == way.size - 1 else 1.0
            return square(wrapped(batch(rank, i, dtype=torch.float32))) * factor

        scaler.scale(way.loss(loss)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()

    return step


@program()
def clipped_gradients(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.05)
        optimizer.step()

    return step


@program()
def clipped_gradients_in_horovods_way(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        if way.is_hvd:
            optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.05)
        with optimizer.skip_synchronize() if way.is_hvd else contextlib.nullcontext():
            optimizer.step()

    return step


@program()
def gradients_are_changed_by_hand(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        for parameter in module.parameters():
            parameter.grad.add_(parameter.detach(), alpha=0.1).sign_()
        optimizer.step()

    return step


@program(ddp=False)  # it knows nothing of what autograd.grad() gives
def gradients_that_the_program_makes(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        loss = way.loss(lambda rank: square(wrapped(batch(rank, i))))
        parameters = list(module.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
            parameter.grad = gradient
        optimizer.step()

    return step


@program(ddp=False)
def gradients_that_are_copied_in_place(way):
    module, masters = network(), network()
    way.model(module)
    way.model(masters)
    optimizer = way.optimizer(sgd(masters), masters.named_parameters())

    def step(i):
        module.load_state_dict(masters.state_dict())
        module.zero_grad()
        way.loss(lambda rank: square(module(batch(rank, i)))).backward()
        for own, master in zip(module.parameters(), masters.parameters()):
            if master.grad is None:
                master.grad = torch.empty_like(master)
            master.grad.data.copy_(own.grad.data)
        optimizer.step()

    return step


@program(least_torch=(2, 1), ddp=False)  # its average of clipped gradients is another one
def hooks_of_the_program_change_gradients(way):
    module, wrapped, optimizer = one_network(way, functools.partial(sgd, momentum=0.9))

    def halve(parameter):
        parameter.grad.mul_(0.5)

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(halve)

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        optimizer.step()

    return step


@program()
def a_gradient_penalty(way):
    _, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()

        def loss(rank):
            inputs = batch(rank, i).requires_grad_()
            outputs = wrapped(inputs).mean()
            (slope,) = torch.autograd.grad(outputs, inputs, create_graph=True)
            return outputs + (slope.norm() - 1) ** 2

        way.loss(loss).backward()
        optimizer.step()

    return step


@program(ddp=False)
def gradients_of_weights_between_passes(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        loss = way.loss(lambda rank: wrapped(batch(rank, i + 50)).mean())
        torch.autograd.grad(loss, list(module.parameters()))  # looked at, and not used
        optimizer.step()

    return step


@program()
def tied_weights(way):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    torch.manual_seed(8)
    torch.nn.init.normal_(module[0].weight)
    for one in (module[0].bias, module[2].bias):
        torch.nn.init.zeros_(one)
    module = module.double()
    module[2].weight = module[0].weight
    wrapped = way.model(module)
    optimizer = way.optimizer(sgd(module), module.named_parameters())

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        optimizer.step()

    return step


@program(ddp=False, elastic=False)  # models of a state keep their memory
def the_type_changes(way):
    module, wrapped, optimizer = one_network(way, sgd)

    def step(i):
        dtype = torch.float32 if i < 3 else torch.float64
        optimizer.zero_grad(set_to_none=True)
        module.to(dtype)
        way.loss(lambda rank: square(wrapped(batch(rank, i, dtype=dtype)))).backward()
        optimizer.step()

    return step


@program(ddp=False, elastic=False)  # a newcomer's has another size
def a_parameter_grows(way):
    weight = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
    holder = torch.nn.ParameterList([weight])
    way.model(holder)
    optimizer = way.optimizer(torch.optim.SGD([weight], lr=0.1), [("weight", weight)])

    def step(i):
        optimizer.zero_grad(set_to_none=True)
        if len(weight) < 5 + i:
            weight.data = torch.cat([weight.data, torch.ones(5 + i - len(weight)).double()])
        way.loss(lambda rank: ((weight * (rank + 1)) ** 2).sum() / 10).backward()
        optimizer.step()

    return step


@program()
def a_batch_is_left_out(way):
    module, wrapped, optimizer = one_network(way, functools.partial(sgd, momentum=0.9))

    def step(i):
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        if i == 2:
            module.zero_grad(set_to_none=True)
            return
        if i == 3:
            optimizer.zero_grad()
            return
        if i == 4:
            for parameter in module.parameters():
                parameter.grad = None
            return
        optimizer.step()
        optimizer.zero_grad()

    return step


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, fails):
        ctx.fails = fails
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.fails:
            raise MemoryError("in the middle of a backward pass")
        return gradient, None


@program(ddp=False)  # it cannot go on after it
def a_backward_pass_fails_and_is_repeated(way):
    module, _, optimizer = one_network(way, sgd)

    def step(i):
        for fails in (i in (2, 3), False):
            optimizer.zero_grad(set_to_none=i % 2 == 0)

            def loss(rank):
                hidden = Fails.apply(module[0](batch(rank, i)), fails)
                return square(module[2](module[1](hidden)))

            try:
                way.loss(loss).backward()
            except MemoryError:
                continue
            break
        optimizer.step()

    return step


@program(ddp=False)
def a_pass_fails_behind_a_checkpoint(way):
    torch.manual_seed(12)
    module = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]).double()
    way.model(module)
    optimizer = way.optimizer(sgd(module), module.named_parameters())
    kept = []  # as a traceback, or a list of losses, keeps them

    def step(i):
        for fails in (i == 2, False):
            optimizer.zero_grad(set_to_none=True)

            def loss(rank):
                hidden = Fails.apply(module[0](batch(rank, i)), fails)
                return square(checkpoint(module[1], hidden, use_reentrant=True))

            kept.append(way.loss(loss))
            try:
                kept[-1].backward()
            except MemoryError:
                continue
            break
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.05)
        optimizer.step()

    return step


@program()
def a_graph_that_grows_over_steps(way):
    module = torch.nn.RNN(4, 4)
    torch.manual_seed(9)
    for one in module.parameters():
        torch.nn.init.normal_(one, std=0.5)
    module = module.double()
    wrapped = way.model(module)
    optimizer = way.optimizer(sgd(module), module.named_parameters())

    def step(i):
        ranks = range(way.size) if way.is_alone else [hvd.rank()]
        hidden = {rank: torch.zeros(1, 6, 4, dtype=torch.float64) for rank in ranks}
        for part in range(3):  # truncated backpropagation through time
            optimizer.zero_grad()

            def loss(rank):
                inputs = batch(rank, 10 * i + part).unsqueeze(0)
                outputs, after = wrapped(inputs, hidden[rank])
                hidden[rank] = after.detach()
                return square(outputs)

            way.loss(loss).backward()
            optimizer.step()

    return step


@program()
def a_step_is_skipped_on_all_ranks(way):
    _, wrapped, optimizer = one_network(way, functools.partial(sgd, momentum=0.9))

    def step(i):
        optimizer.zero_grad()
        way.loss(lambda rank: square(wrapped(batch(rank, i)))).backward()
        if i % 3 != 1:
            optimizer.step()

    return step


@program(ddp=False)  # its reducer wants dense gradients on this path
def rows_of_a_table(way):
    torch.manual_seed(10)
    module = torch.nn.Embedding(10, 4, sparse=True).double()
    wrapped = way.model(module)
    other = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    way.model(torch.nn.ParameterList([other]))
    named = [("table", module.weight), ("other", other)]
    optimizer = way.optimizer(torch.optim.SGD([one for _, one in named], lr=0.5), named)

    def step(i):
        optimizer.zero_grad(set_to_none=i % 2 == 1)

        def loss(rank):
            rows = wrapped(torch.tensor([rank % 10, i, 0]))
            return square(other * (0 if i == 2 else rows) + (0 if (rank + i) % 2 else other))

        way.loss(loss).backward()
        optimizer.step()

    return step


@program(exact=False)
def images(way):
    torch.manual_seed(11)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    module = module.to(memory_format=torch.channels_last)
    wrapped = way.model(module)
    optimizer = way.optimizer(sgd(module), module.named_parameters())

    def step(i):
        optimizer.zero_grad()

        def loss(rank):
            inputs = batch(rank, i, 3 * 8 * 8, torch.float32).view(6, 3, 8, 8)
            return square(wrapped(inputs.contiguous(memory_format=torch.channels_last)))

        way.loss(loss).backward()
        optimizer.step()

    return step


def weights_of(way):
    return [one.detach().clone() for module in way.modules for one in module.parameters()]
