# The program of examples/allreduce_once.cpp, on torch.distributed.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
size = dist.get_world_size()
assert value.item() == size * (size + 1) / 2, value
dist.destroy_process_group()
