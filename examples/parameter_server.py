"""Training across processes: one parameter server, two trainers, handwritten digits.

    torchrun --nproc-per-node 3 examples/parameter_server.py

The convolutional body of the model lives on the parameter server (rank 0) and nowhere else. Each trainer (ranks 1 and
2) has a classifier of its own and half of the training images. In each step both trainers send a batch through the
server's body, one distributed backward pass gives the gradients of all three processes, and a distributed optimizer
steps them.
"""

import argparse
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

from gradwire import autograd, rpc
from gradwire.optim import DistributedOptimizer

SERVER, TRAINERS = "server", ("trainer0", "trainer1")


class Body(nn.Module):
    """The server's part: images of 1 x 8 x 8 to 64 features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def parameter_rrefs(module_rref: rpc.RRef) -> list[rpc.RRef]:
    """References to the parameters of a module; runs on the module's owner."""
    return [rpc.RRef(parameter) for parameter in module_rref.local_value().parameters()]


def parameter_copies(module_rref: rpc.RRef) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module_rref.local_value().parameters()]


def reset_parameters(module_rref: rpc.RRef) -> None:
    for layer in module_rref.local_value().layers:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()


def module_parameter_shapes() -> list[tuple[int, ...]]:
    """The shapes of all parameters that live in this process."""
    return [tuple(thing.shape) for thing in gc.get_objects() if isinstance(thing, nn.Parameter)]


class Digits:
    """The 1,797 images that ship inside scikit-learn; every fifth is held out."""

    def __init__(self) -> None:
        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(data.target)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        held_out = order[: len(order) // 5]
        training = order[len(order) // 5 :]
        self.held_out = (images[held_out], labels[held_out])
        self.shards = [(images[training[i::2]], labels[training[i::2]]) for i in range(2)]


class Trainer:
    """A trainer's part: features to digits, for its own shard."""

    def __init__(self, index: int, body: rpc.RRef) -> None:
        torch.manual_seed(index)
        self.body = body
        self.head = nn.Linear(64, 10)
        digits = Digits()
        self.images, self.labels = digits.shards[index]
        self.held_out_images, self.held_out_labels = digits.held_out

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        features = self.body.rpc_sync().forward(self.images[batch])
        return nn.functional.cross_entropy(self.head(features), self.labels[batch])

    def held_out_logits(self) -> torch.Tensor:
        with torch.no_grad():
            return self.head(self.body.rpc_sync().forward(self.held_out_images)).log_softmax(1)

    def size(self) -> int:
        return len(self.labels)


class Training:
    """Drives all three processes from trainer0."""

    def __init__(self, learning_rate: float = 2e-3, batch_size: int = 64) -> None:
        self.body = rpc.remote(SERVER, Body)
        self.trainers = [rpc.remote(name, Trainer, args=(index, self.body)) for index, name in enumerate(TRAINERS)]
        self.batch_size = batch_size
        parameters = rpc.rpc_sync(SERVER, parameter_rrefs, args=(self.body,))
        for name, trainer in zip(TRAINERS, self.trainers, strict=True):
            parameters += rpc.rpc_sync(name, head_rrefs, args=(trainer,))
        self.optimizer = DistributedOptimizer(torch.optim.Adam, parameters, lr=learning_rate)

    def steps_per_epoch(self) -> int:
        return min(trainer.rpc_sync().size() for trainer in self.trainers) // self.batch_size

    def epoch(self) -> Iterator[float]:
        """One pass over both shards; the mean loss of each step."""
        orders = [torch.randperm(trainer.rpc_sync().size()) for trainer in self.trainers]
        for step in range(self.steps_per_epoch()):
            part = slice(step * self.batch_size, (step + 1) * self.batch_size)
            with autograd.context() as context_id:
                pairs = zip(self.trainers, orders, strict=True)
                futures = [trainer.rpc_async().loss(order[part]) for trainer, order in pairs]
                losses = [future.wait() for future in futures]
                autograd.backward(context_id, losses)
                self.optimizer.step(context_id)
            yield sum(loss.item() for loss in losses) / len(losses)

    def accuracy(self) -> float:
        """On the held-out images, by both trainers' classifiers together."""
        logits = sum(trainer.rpc_sync().held_out_logits() for trainer in self.trainers)
        labels = Digits().held_out[1]
        return (logits.argmax(1) == labels).float().mean().item()


def head_rrefs(trainer_rref: rpc.RRef) -> list[rpc.RRef]:
    return [rpc.RRef(parameter) for parameter in trainer_rref.local_value().head.parameters()]


def draw(losses: list[float], accuracies: list[float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    left.plot(losses)
    left.set(title="training loss", xlabel="step", ylabel="cross entropy")
    right.plot(range(1, len(accuracies) + 1), accuracies, marker="o")
    right.set(title="held-out accuracy", xlabel="epoch", ylim=(0, 1))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def train(epochs: int, output: Path) -> float:
    training = Training()
    losses: list[float] = []
    accuracies: list[float] = []
    samples = 2 * training.batch_size
    with tqdm(total=epochs * training.steps_per_epoch(), unit="step") as bar:
        for _ in range(epochs):
            for loss in training.epoch():
                losses.append(loss)
                rate = bar.format_dict["rate"] or 0
                bar.set_postfix_str(f"loss {loss:.3f}, {rate * samples:.0f} samples/s", refresh=False)
                bar.update()
            accuracies.append(training.accuracy())
    draw(losses, accuracies, output / "parameter_server.png")
    return accuracies[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path("build/demo"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    started = time.time()
    rpc.init_rpc((SERVER, *TRAINERS)[rank], rank=rank, world_size=3)
    accuracy = train(args.epochs, args.output) if rank == 1 else None
    rpc.shutdown()
    if accuracy is not None:
        print(f"trained in {time.time() - started:.1f} s; curves in {args.output / 'parameter_server.png'}")
        print(f"accuracy: {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
