"""SPRLLoss in Hugging Face's Trainer, against cross-entropy. Run: python examples/hugging_face_trainer.py"""

import tempfile
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

import sprl

EPOCHS = 60


class SPRLTrainer(Trainer):
    """A Trainer whose batches have a column `index`: each sample's position in the labels that the loss holds."""

    loss: sprl.SPRLLoss  # beside the model, whose safetensors could not hold it: to resume, save its state_dict() too

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        return self.loss(model(inputs["x"]), inputs["index"])


class EndEpoch(TrainerCallback):
    def __init__(self, loss: sprl.SPRLLoss) -> None:
        self.loss = loss

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self.loss.end_epoch()


def train(x: Tensor, loss: sprl.SPRLLoss) -> nn.Module:
    torch.manual_seed(0)  # the same first weights whatever the loss; the Trainer seeds the batches
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    rows = [{"x": row, "index": i} for i, row in enumerate(x)]
    plan = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "lr_scheduler_type": "constant"}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "dataloader_pin_memory": False}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, remove_unused_columns=False, **plan, **quiet)  # no model takes `index`: it looks unused
        trainer = SPRLTrainer(network, arguments, train_dataset=rows, callbacks=[EndEpoch(loss)])
        trainer.loss = loss
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return network


def main() -> None:
    x, x_test, clean, y_test = map(torch.tensor, train_test_split(*load_digits(return_X_y=True), test_size=450, random_state=0))
    x, x_test = x.float() / 16, x_test.float() / 16
    y = torch.tensor(sprl.corrupt(clean.numpy(), "symmetric:0.5", num_classes=10, seed=0))  # from here on `clean` only scores

    plain = train(x, sprl.SPRLLoss(y, 10, EPOCHS + 1, T1=EPOCHS))  # a warm-up to the end is plain cross-entropy
    loss = sprl.SPRLLoss(y, 10, EPOCHS)
    robust = train(x, loss)

    for name, network in (("cross-entropy", plain), ("SPRLLoss", robust)):
        print(f"test accuracy with {name}: {(network.eval()(x_test).argmax(1) == y_test).float().mean():.1%}")
    suspects = loss.label_issues().assign(wrong=(y != clean).numpy()).nsmallest(20, "label_quality")
    print(f"really wrong among the 20 labels of lowest quality: {suspects['wrong'].sum()}")


if __name__ == "__main__":
    main()
