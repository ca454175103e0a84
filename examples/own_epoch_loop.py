"""The training loop as a generator: print, and stop, as you like. Run: python examples/own_epoch_loop.py"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

import sprl


def main() -> None:
    x, x_test, clean, y_test = map(torch.tensor, train_test_split(*load_digits(return_X_y=True), test_size=450, random_state=0))
    x, x_test = x.float() / 16, x_test.float() / 16
    y = torch.tensor(sprl.corrupt(clean.numpy(), "symmetric:0.5", num_classes=10, seed=0))
    x_checked, y_checked, x_test, y_test = x_test[:150], y_test[:150], x_test[150:], y_test[150:]  # a few checked labels say when to stop

    task = sprl.Task(x, y, num_classes=10, epochs=60, batch_size=32, seed=0)
    state = sprl.start(task, sprl.SPRL(T1=3), "mlp")  # T1="auto" searches for the warm-up's length, and steps back when it has found it

    def accuracy(x: Tensor, y: Tensor) -> float:
        return (sprl.predict(state.networks, x).argmax(1) == y).float().mean().item()

    for epoch in sprl.train(task, state):
        right = accuracy(x_checked, y_checked)
        print(f"epoch {epoch.t}: trained on {epoch.chosen.float().mean():.0%} of the labels, {right:.1%} of the checked ones right")
        if right >= 0.95:
            break  # `state` keeps all: another train(task, state) would go on from here

    suspects = sprl.label_issues(task, state).assign(wrong=(y != clean).numpy()).nsmallest(20, "label_quality")
    print(f"really wrong among the 20 labels of lowest quality: {suspects['wrong'].sum()}")
    print(f"stopped after epoch {state.t} of {task.epochs}")
    print(f"test accuracy with SPRL: {accuracy(x_test, y_test):.1%}")


if __name__ == "__main__":
    main()
