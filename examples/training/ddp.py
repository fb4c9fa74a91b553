"""Data-parallel training by torch on two nodes with two processes each: on brokers of this machine, without Kubernetes.

pip install '.[kubeflow]' torch
python examples/training/ddp.py
"""

from kubeflow.trainer import CustomTrainer

from headrace.kubeflow import HeadraceBackendConfig, TrainerClient


def train(steps: int = 20) -> None:
    """Fit a line to points, of which each process has its own part."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    points = torch.randn(64 * size, 8)[rank::size]
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(points) - points.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    if rank == 0:
        print(f"{size} processes, loss {total.item() / size:.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    client = TrainerClient(HeadraceBackendConfig())
    name = client.train(trainer=CustomTrainer(func=train, num_nodes=2, resources_per_node={"cpu": 2}))
    for line in client.get_job_logs(name, follow=True):
        print(line)
    client.wait_for_job_status(name)
    client.delete_job(name)
