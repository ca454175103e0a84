"""Recorder finds wrong labels under any loss, here cross-entropy with smoothed labels. Run: python examples/recorder.py"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sprl


def main() -> None:
    torch.manual_seed(0)
    x, x_test, clean, y_test = map(torch.tensor, train_test_split(*load_digits(return_X_y=True), test_size=450, random_state=0))
    x, x_test = x.float() / 16, x_test.float() / 16
    y = torch.tensor(sprl.corrupt(clean.numpy(), "symmetric:0.2", num_classes=10, seed=0))  # from here on `clean` only scores

    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(network.parameters())
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    recorder = sprl.Recorder(y, num_classes=10)
    for _ in range(20):
        for inputs, given, index in DataLoader(TensorDataset(x, y, torch.arange(len(x))), batch_size=128, shuffle=True):
            logits = network(inputs)
            recorder.update(logits, index)  # all that a loop needs
            optimizer.zero_grad()
            loss(logits, given).backward()
            optimizer.step()

    issues = recorder.label_issues().assign(true_label=clean.numpy())
    wrong = issues["given_label"] != issues["true_label"]
    suspects = issues.nsmallest(20, "label_quality")
    print(suspects.head(10).to_string(float_format="{:.3f}".format))
    print(f"test accuracy with smoothed labels: {(network(x_test).argmax(1) == y_test).float().mean():.1%}")
    print(f"really wrong among the 20 labels of lowest quality: {wrong[suspects.index].sum()}")
    print(f"flagged: {issues['is_label_issue'].sum()} labels, with {issues['is_label_issue'][wrong].sum()} of the {wrong.sum()} wrong ones")


if __name__ == "__main__":
    main()
