"""Wrong labels among texts, found from their embeddings. Run: python examples/text_embeddings.py

The texts come with Python: what its library says of its functions and classes, the label the module that says it. Their embeddings are
plain word statistics, so that nothing is downloaded. For real ones put in the place of `embed`:

    from sentence_transformers import SentenceTransformer
    x = SentenceTransformer("all-MiniLM-L6-v2").encode(texts)
"""

import ast
import sysconfig
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split

import sprl

MODULES = ("_pydecimal.py", "asyncio", "email", "importlib", "logging", "xml")


def read_texts() -> tuple[list[str], list[str]]:
    """Docstrings of at least twelve words, and the modules they stand in."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = {}  # some stand in two places
    for module in MODULES:
        files = sorted((library / module).rglob("*.py")) or [library / module]
        for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if len(text.split()) >= 12:
                    found.setdefault(text, Path(module).stem.removeprefix("_py"))
    return list(found), list(found.values())


def embed(texts: list[str]) -> np.ndarray:
    """[N, 50]"""
    words = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit_transform(texts)
    return TruncatedSVD(50, random_state=0).fit_transform(words)


def main() -> None:
    texts, modules = read_texts()
    names, numbers = np.unique(modules, return_inverse=True)
    x = embed(texts)
    train, test = train_test_split(np.arange(len(x)), test_size=0.25, stratify=numbers, random_state=0)
    y = sprl.corrupt(numbers[train], "symmetric:0.3", num_classes=len(names), seed=0)
    wrong = y != numbers[train]  # only to score what is found

    for name, method in (("cross-entropy", "standard"), ("SPRL", "sprl")):
        model = sprl.NoisyLabelClassifier(method, random_state=0, device="cpu").fit(x[train], names[y])
        print(f"test accuracy with {name}: {(model.predict(x[test]) == names[numbers[test]]).mean():.1%}")

    issues = model.label_issues()
    suspects = issues.nsmallest(20, "label_quality")
    for i, row in suspects.head(5).iterrows():
        print(f"  {row['given_label']}? rather {row['predicted_label']}: {' '.join(texts[train[i]].split())[:80]}")
    flagged = issues["is_label_issue"].to_numpy()
    print(f"really wrong among the 20 labels of lowest quality: {wrong[suspects.index].sum()}")
    print(f"flagged: {flagged.sum()} labels, with {flagged[wrong].sum()} of the {wrong.sum()} wrong ones")


if __name__ == "__main__":
    main()
