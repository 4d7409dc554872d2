"""One rank of a world whose ranks share 8 samples of a layer, by DistributedDataParallel; rank 0 prints the gradient."""

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from ketscale import Circuit, Layer
from ketscale.process import end

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank, ranks = distributed.get_rank(), distributed.get_world_size()
# Every rank draws other weights; DistributedDataParallel sends out those of rank 0.
torch.manual_seed(rank)
layer = Layer(Circuit(1).ry(0, "x0").ry(0, "w0"), dtype=torch.float64)
model = DistributedDataParallel(layer)
inputs = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
model(inputs[rank::ranks]).mean().backward()
assert layer.weight.grad is not None
if rank == 0:
    print("RESULT", ranks, layer.weight.item(), layer.weight.grad.item())
distributed.destroy_process_group()
end(0)
