"""SPRLLoss in a LightningModule, stopped halfway and resumed from a checkpoint. Run: python examples/lightning_module.py"""

import logging
import tempfile
import warnings
from functools import partial

import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import sprl

EPOCHS = 60


class Classifier(lightning.LightningModule):
    def __init__(self, loss: sprl.SPRLLoss) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.loss = loss  # a submodule, so that what it remembers of each sample travels in the checkpoint

    def training_step(self, batch: list[Tensor]) -> Tensor:
        x, index = batch
        return self.loss(self.network(x), index)

    def on_train_epoch_end(self) -> None:
        self.loss.end_epoch()  # Lightning writes an epoch's checkpoint after this hook, so none misses it

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # tips, and which devices there are
    warnings.filterwarnings("ignore", module="lightning")  # old PyTorch names in its own code
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = partial(lightning.Trainer, accelerator="cpu", **quiet)
    lightning.seed_everything(0, verbose=False)

    x, x_test, clean, y_test = map(torch.tensor, train_test_split(*load_digits(return_X_y=True), test_size=450, random_state=0))
    y = torch.tensor(sprl.corrupt(clean.numpy(), "symmetric:0.5", num_classes=10, seed=0))  # from here on `clean` only scores
    loader = DataLoader(TensorDataset(x.float() / 16, torch.arange(len(x))), batch_size=32, shuffle=True)  # small data

    plain = Classifier(sprl.SPRLLoss(y, 10, EPOCHS + 1, T1=EPOCHS))  # a warm-up to the end is plain cross-entropy
    trainer(max_epochs=EPOCHS).fit(plain, loader)

    with tempfile.TemporaryDirectory() as folder:
        first = trainer(max_epochs=EPOCHS // 2)
        first.fit(Classifier(sprl.SPRLLoss(y, 10, EPOCHS)), loader)
        first.save_checkpoint(f"{folder}/half.ckpt")
        robust = Classifier(sprl.SPRLLoss(y, 10, EPOCHS))
        trainer(max_epochs=EPOCHS).fit(robust, loader, ckpt_path=f"{folder}/half.ckpt")

    print(f"epochs that the loss remembers: {robust.loss.clock.t - 1}")
    for name, model in (("cross-entropy", plain), ("SPRLLoss", robust)):
        right = model.network(x_test.float() / 16).argmax(1) == y_test
        print(f"test accuracy with {name}: {right.float().mean():.1%}")
    suspects = robust.loss.label_issues().assign(wrong=(y != clean).numpy()).nsmallest(20, "label_quality")
    print(f"really wrong among the 20 labels of lowest quality: {suspects['wrong'].sum()}")


if __name__ == "__main__":
    main()
