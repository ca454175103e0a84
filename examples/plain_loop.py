"""SPRLLoss in a plain PyTorch loop, against cross-entropy. Run: python examples/plain_loop.py"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import sprl

EPOCHS = 60


def train(x: Tensor, loss: Callable[[Tensor, Tensor], Tensor], end_epoch: Callable[[], None] = lambda: None) -> nn.Module:
    torch.manual_seed(0)  # the same first weights and batches whatever the loss
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(network.parameters())
    # A batch must say which samples it holds: SPRL remembers what the network thought of each.
    # Small batches for small data: 128 leaves 11 steps an epoch, and a point of accuracy behind.
    loader = DataLoader(TensorDataset(x, torch.arange(len(x))), batch_size=32, shuffle=True)
    for _ in range(EPOCHS):
        for inputs, index in loader:
            optimizer.zero_grad()
            loss(network(inputs), index).backward()
            optimizer.step()
        end_epoch()
    return network


@torch.no_grad()
def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    return (network.eval()(x).argmax(1) == y).float().mean().item()


def main() -> None:
    x, x_test, clean, y_test = map(torch.tensor, train_test_split(*load_digits(return_X_y=True), test_size=450, random_state=0))
    x, x_test = x.float() / 16, x_test.float() / 16
    y = torch.tensor(sprl.corrupt(clean.numpy(), "symmetric:0.5", num_classes=10, seed=0))  # from here on `clean` only scores

    plain = train(x, lambda logits, index: F.cross_entropy(logits, y[index]))
    loss = sprl.SPRLLoss(y, num_classes=10, epochs=EPOCHS)
    robust = train(x, loss, loss.end_epoch)

    print(f"wrong training labels: {(y != clean).float().mean():.1%}")
    print(f"test accuracy with cross-entropy: {accuracy(plain, x_test, y_test):.1%}")
    print(f"test accuracy with SPRLLoss: {accuracy(robust, x_test, y_test):.1%}")
    suspects = loss.label_issues().assign(wrong=(y != clean).numpy()).nsmallest(20, "label_quality")
    print(f"really wrong among the 20 labels of lowest quality: {suspects['wrong'].sum()}")


if __name__ == "__main__":
    main()
