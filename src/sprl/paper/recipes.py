"""All recipes by name. To add one: write its function, add it here; or make it an entry point of `sprl.recipes` in a package of yours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from sprl.errors import ensure
from sprl.paper import figure_recipes as figures
from sprl.paper import table_recipes as tables
from sprl.paper.cell import Cell
from sprl.paper.recipe import Recipe
from sprl.registry import Registry

CODE = "The released code's reading of SPRL with T1 and gamma_d of tables A3 and A4, and the released ResNet18, for all methods."
READ = "The released code's reading of SPRL."


def is_resnet(cell: Cell) -> bool:
    return cell.network == "resnet18"


def is_half(cell: Cell) -> bool:
    return is_resnet(cell) and cell.rate == 0.5


def is_mnist(cell: Cell) -> bool:
    return cell.dataset == "MNIST"


def is_swept(cell: Cell, field: str, values: tuple[float, ...], of: str = "MNIST") -> bool:
    return cell.dataset == of and cell.rate == 0.5 and cell.config.fields[field] in values


def curves(number: str, dataset: str) -> Recipe:
    about = f"{CODE} The paper draws seven methods; here are all eight of table II, whose runs these are."
    return Recipe(
        f"fig{number}", f"Figure {number}: {dataset} by epoch", about, make_panels=partial(figures.curves_of, dataset), few=is_half
    )


OURS = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "table1",
            "Table I: clean labels",
            f"{CODE} None are stated for this table: those of symmetric 0.2.",
            tables.table1,
            few=is_resnet,
        ),
        Recipe(
            "table2",
            "Table II: symmetric and pair noise",
            f"{CODE} sprl-published, where it was run: the paper's own reading, and its own ResNet18.",
            tables.table2,
            few=is_half,
        ),
        Recipe(
            "table3",
            "Table III: networks that gave labels",
            "Standard, 200 epochs on 400 or 100 right labels a class.",
            tables.table3,
            few=is_resnet,
        ),
        Recipe("table4", "Table IV: labels given by a network", CODE, tables.table4, few=is_resnet),
        Recipe(
            "table5",
            "Table V: Food101 and Clothing1M",
            f"{READ} T1 and gamma_d are not stated: 20 and 10 for ResNet18, 40 and 5 for ConvNet, at 32 x 32. Nor is the rate that "
            "Co-teaching was told: 0.2 and 0.38.",
            tables.table5,
            few=is_resnet,
        ),
        Recipe(
            "tableA5",
            "Table A5: no augmentation",
            f"{CODE} None are stated for this table: those of table A3.",
            tables.table_a5,
            few=is_half,
        ),
        Recipe(
            "defaults",
            "CIFAR-10, nothing told about the noise",
            "The package's own defaults, T1 = auto, beside the paper's tuned numbers.",
            tables.defaults,
            few=lambda cell: cell.rate is not None,
        ),
        Recipe(
            "fig4",
            "Figure 4: the loss under resistance alone",
            "1,000 rows, 100 epochs of Eq. 4, then 200 of Eq. 7; the released ResNet18.",
            make_panels=figures.figure4,
        ),
        Recipe(
            "fig5",
            "Figure 5: probability of the true class",
            f"{READ} The rate of pair noise is not stated: 0.45. CL is the curriculum alone (Eq. 5).",
            make_panels=figures.figure5,
        ),
        Recipe(
            "fig6",
            "Figure 6: gamma_d on MNIST",
            f"ConvNet, T1 15. {READ}",
            make_panels=partial(figures.gammas, "MNIST"),
            few=partial(is_swept, field="gamma_d", values=(0, 10, 300)),
        ),
        Recipe(
            "fig7",
            "Figure 7: gamma_d on CIFAR-100",
            f"ConvNet, T1 40. {READ}",
            make_panels=partial(figures.gammas, "CIFAR-100"),
            few=partial(is_swept, field="gamma_d", values=(0, 5, 50), of="CIFAR-100"),
        ),
        Recipe(
            "fig8",
            "Figure 8: the number of subsets K",
            "ConvNet, T1 and gamma_d of table A3. The paper's reading: the released code knows no K.",
            make_panels=figures.figure8,
            few=partial(is_swept, field="K", values=(50, 10, 2)),
        ),
        Recipe(
            "fig9",
            "Figure 9: the warm-up T1",
            f"ConvNet, gamma_d 300 and 5. {READ}",
            make_panels=figures.figure9,
            few=partial(is_swept, field="T1", values=(20, 60, 100)),
        ),
        Recipe(
            "fig10",
            "Figure 10: the loss by noise rate",
            f"ConvNet, the runs of table II. {READ}",
            make_panels=figures.figure10,
            few=is_mnist,
        ),
        Recipe(
            "fig11",
            "Figure 11: resistance, distillation, label smoothing",
            f"Eq. 7, 15 and 16 within SPRL, ResNet18, T1 20, gamma_d 10. {READ} Eq. 15 has the gradient of Eq. 7: they are "
            "two runs here that come out equal.",
            make_panels=figures.figure11,
            few=is_resnet,
        ),
        curves("A1", "MNIST"),
        curves("A2", "CIFAR-10"),
        curves("A3", "CIFAR-100"),
        curves("A4", "Mini-ImageNet"),
        Recipe(
            "figA5",
            "Figure A5: labels given by a network, by epoch",
            CODE,
            make_panels=figures.curves_of_table4,
            few=is_resnet,
        ),
        Recipe(
            "figA6",
            "Figure A6: Food101 and Clothing1M by epoch",
            "The runs of table V.",
            make_panels=figures.curves_of_table5,
            few=is_resnet,
        ),
        Recipe(
            "figA7",
            "Figure A7: right labels among the likelier half",
            "Standard; likelier by the predictions of that epoch.",
            make_panels=figures.figure_a7,
        ),
        Recipe("figA8", "Figure A8: right labels among the chosen", "Co-teaching.", make_panels=figures.figure_a8),
        Recipe(
            "authors",
            "SPRL on CIFAR beside its authors' own curves",
            f"{CODE} The grey curves are those that the authors published with their code.",
            make_panels=figures.over_authors,
            few=is_half,
        ),
    )
}


def adopted(name: str, found: Any) -> Recipe:
    """Of another package."""
    ensure(isinstance(found, Recipe), "it is no Recipe")
    return replace(found, name=name)


RECIPES = Registry("recipe", "sprl.recipes", OURS, adopted)
