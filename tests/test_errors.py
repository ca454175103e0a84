"""What a wrong name is answered with."""

import pytest

from sprl.data.given import check_classes
from sprl.errors import MANY, InputError, pick


def test_the_nearest_name_or_all_of_a_few():
    assert pick("fruit", "fig", ["fig", "plum"]) == "fig"
    with pytest.raises(InputError, match=r"^unknown fruit 'plumm'; did you mean 'plum'\?$"):
        pick("fruit", "plumm", ["fig", "plum"])
    with pytest.raises(InputError, match=r"^unknown fruit 'x'; choose from: fig, plum$"):
        pick("fruit", "x", ["fig", "plum"])
    with pytest.raises(InputError, match="did you mean 'tableA5'"):
        pick("table", "tablea5", ["table5", "tableA5"])
    with pytest.raises(InputError, match=f", k{MANY - 1}$"):
        pick("kind", "zebra", [f"k{i}" for i in range(MANY)])


def test_names_are_compared_only_while_that_is_quick(monkeypatch):
    monkeypatch.setattr("difflib.get_close_matches", None)  # which would be called
    options = [f"{'ab' * 500}{i}" for i in range(100)]
    with pytest.raises(InputError, match=r"choose from: .* and 95 more$"):
        pick("class", "ab" * 500 + "x", options)


def test_of_many_names_the_nearest_few_and_their_number():
    classes = [f"class number {i:04}" for i in range(999)] + ["zeppelin"]
    with pytest.raises(InputError, match=r"choose from: zeppelin, .*, .*, .*, .* and 995 more$") as told:
        pick("class", "zebra fish", classes)
    assert len(str(told.value)) < 300
    with pytest.raises(InputError, match=r"and 995 more; a new class cannot be brought in here, only with the data$"):
        check_classes("label in x.csv:", ["zeppelin", ""], classes, new="the data")
