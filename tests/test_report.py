"""The review page as a file: what is in it, and what can never be."""

import base64
import hashlib
import io
import json
import re
import time
from html.parser import HTMLParser

import numpy as np
import pytest
from pages import HOSTILE, page, table
from PIL import Image

from sprl import report
from sprl.report import thumbnail, write

CLASSES = ["ant", "bee", "cat", "dog"]


class Parts(HTMLParser):
    """Inline texts by element and id, and all start tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.inside = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = (tag, dict(attrs).get("id")) if tag in ("script", "style", "title") else None

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside] = self.texts.get(self.inside, "") + data


def written(folder, made):
    write(folder / "report.html", made)
    text = (folder / "report.html").read_bytes().decode()
    return text, Parts(text)


def suspects(parts):
    return json.loads(parts.texts["script", "suspects"])


def about(parts):
    return json.loads(parts.texts["script", "about"])


def png(size):
    return b"\x89PNG" + bytes(size)


def test_many_pictures_stay_within_the_budget(tmp_path):
    labels = table(50_000, CLASSES)
    began = time.perf_counter()
    text, parts = written(tmp_path, page(labels, CLASSES, picture=lambda at: png(2400)))
    assert time.perf_counter() - began < 5
    assert report.BUDGET - 5000 < len(text.encode()) <= report.BUDGET
    rows = suspects(parts)
    cutoff = labels["wrong_probability"].sort_values(ascending=False).iloc[len(rows)]
    assert 4000 < len(rows) < 5000
    assert min(row[4] for row in rows) >= round(cutoff, 4)
    assert about(parts)["total"] == 50_000
    assert about(parts)["flagged"] == labels["is_label_issue"].sum()


def test_without_pictures_the_number_is_bounded(tmp_path):
    _, parts = written(tmp_path, page(table(50_000, CLASSES, wrong=0.6), CLASSES))
    assert len(suspects(parts)) == report.MOST


def test_the_most_suspicious_come_first_and_the_faint_not_at_all(tmp_path):
    labels = table(2000, CLASSES)
    rows = suspects(written(tmp_path, page(labels, CLASSES))[1])
    assert {row[0] for row in rows} == set(labels.index[labels["wrong_probability"] >= 0.01])
    wrong = [row[4] for row in rows]
    assert wrong == sorted(wrong, reverse=True)
    for at, id, given, suggestion, chance, picture, features in rows[:50]:
        label = labels.loc[at]
        assert [id, CLASSES[given], CLASSES[suggestion]] == [label["id"], label["given_label"], label["predicted_label"]]
        assert chance == pytest.approx(label["wrong_probability"], abs=1e-4)
        assert picture is None
        assert features is None


def test_equal_chances_are_ordered_by_quality():
    labels = table(300, CLASSES).assign(wrong_probability=0.7, is_label_issue=True)
    assert report.ranked(labels).tolist() == labels["label_quality"].sort_values(kind="stable").index.tolist()


def test_where_all_labels_look_right_a_hundred_are_shown_all_the_same(tmp_path):
    labels = table(500, CLASSES, wrong=0).assign(wrong_probability=np.linspace(0, 0.005, 500), is_label_issue=False)
    assert [row[0] for row in suspects(written(tmp_path, page(labels, CLASSES))[1])] == list(range(499, 399, -1))


def test_flagged_labels_go_before_more_suspicious_ones_that_are_not(tmp_path, monkeypatch):
    labels = table(3000, CLASSES).assign(is_label_issue=lambda t: t["wrong_probability"].between(0.5, 0.99))
    monkeypatch.setattr(report, "MOST", int(labels["is_label_issue"].sum()))
    assert {row[0] for row in suspects(written(tmp_path, page(labels, CLASSES))[1])} == set(labels.index[labels["is_label_issue"]])


def test_a_suspect_too_large_is_left_out_alone(tmp_path):
    labels = table(300, CLASSES)
    first = int(labels["wrong_probability"].idxmax())
    rows = suspects(written(tmp_path, page(labels, CLASSES, picture=lambda at: png(10**6 if at == first else 100)))[1])
    assert len(rows) > 100
    assert first not in [row[0] for row in rows]


def test_hostile_names_are_text_and_nothing_else(tmp_path):
    labels = table(400, HOSTILE)
    labels["id"] = [f"{HOSTILE[i % len(HOSTILE)]}/{i}" for i in range(400)]
    features = [(name, name) for name in HOSTILE]
    made = page(labels, HOSTILE, title=HOSTILE[0] + HOSTILE[4], command=HOSTILE[0], features=lambda at: features)
    text, parts = written(tmp_path, made)
    plain = Parts(written(tmp_path, page(table(400, CLASSES), CLASSES))[0])
    assert [tag for tag, _ in parts.tags] == [tag for tag, _ in plain.tags]
    assert not re.search(r"onerror=alert\(1\)>|<!-- <script>|\0|\u202e|\u2028", text)
    assert set("<>&").isdisjoint(parts.texts["script", "suspects"] + parts.texts["script", "about"])
    assert about(parts)["classes"] == HOSTILE
    assert {row[1] for row in suspects(parts)} <= set(labels["id"])
    assert parts.texts["title", None].startswith(HOSTILE[0])


def test_the_policy_allows_this_script_this_style_and_nothing_from_elsewhere(tmp_path):
    text, parts = written(tmp_path, page(table(300, CLASSES), CLASSES))
    policy = next(attrs["content"] for tag, attrs in parts.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for rule, kind in (("script-src", "script"), ("style-src", "style")):
        inline = re.search(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL)[1]
        assert rules.pop(rule) == f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
    assert rules == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert not any("style" in attrs or any(name.startswith("on") for name in attrs) for _, attrs in parts.tags)


def test_it_names_no_address_and_builds_no_markup_from_text(tmp_path):
    text, parts = written(tmp_path, page(table(300, CLASSES), CLASSES))
    assert re.findall(r"https?:[^\"' ]*", text) == ["http://www.w3.org/2000/svg"]
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "XMLHttp",
        "@import",
        "url(",
    ):
        assert word not in text
    assert [attrs for _, attrs in parts.tags if "src" in attrs or "href" in attrs] == [{"rel": "icon", "href": "data:,"}]


def test_the_truth_stays_out(tmp_path):
    labels = table(300, CLASSES).assign(true_label="really a wombat")
    text, _ = written(tmp_path, page(labels, CLASSES))
    assert "wombat" not in text
    assert "true_label" not in text


def test_thresholds_count_all_labels(tmp_path):
    labels = table(3000, CLASSES)
    told = about(written(tmp_path, page(labels, CLASSES))[1])
    wrong = [round(p, 4) for p in labels["wrong_probability"]]
    for at in (0, 1, 50, 93, 100):
        above = [p for p in wrong if p >= at / 100]
        assert told["above"][at] == len(above)
        assert told["expected"][at] == pytest.approx(sum(above), abs=0.1)


def test_curves_leave_out_what_an_epoch_lacks(tmp_path):
    rows = [{"epoch": t, "loss": 1.0, "chosen": float("nan") if t == 2 else 0.25} for t in range(1, 1001)]
    told = about(written(tmp_path, page(table(300, CLASSES), CLASSES, rows=rows))[1])
    assert [name for name, _ in told["curves"]] == ["labels chosen"]
    assert len(told["epochs"]) == len(told["curves"][0][1]) <= report.POINTS
    assert set(told["curves"][0][1]) <= {25, None}
    assert about(written(tmp_path, page(table(300, CLASSES), CLASSES, rows=[]))[1])["curves"] == []


def test_what_no_browser_shows_is_no_picture(tmp_path):
    made = page(table(300, CLASSES), CLASSES, picture=lambda at: b"<svg/>" if at % 2 else None, features=lambda at: [("a", "b" * 999)] * 99)
    for *_, picture, features in suspects(written(tmp_path, made)[1]):
        assert picture is None
        assert len(features) == report.FEATURES
        assert {len(value) for _, value in features} == {report.LETTERS}


def test_pictures_travel_as_they_are(tmp_path):
    files = [png(3), b"\xff\xd8\xff jpeg", b"RIFFabcdWEBP"]
    rows = suspects(written(tmp_path, page(table(300, CLASSES), CLASSES, picture=lambda at: files[at % 3]))[1])
    for at, *_, uri, _ in rows:
        head, _, body = uri.partition(";base64,")
        assert head == "data:image/" + ("png", "jpeg", "webp")[at % 3]
        assert base64.b64decode(body) == files[at % 3]


@pytest.mark.parametrize(("shape", "times"), [((8, 8), 4), ((31, 5), 2), ((1, 1), 32), ((32, 32), 1), ((96, 40), 1)])
def test_thumbnails_up_to_96_pixels_are_exact(shape, times):
    pixels = np.random.default_rng(0).integers(0, 256, (3, *shape), dtype=np.uint8)
    for found, wanted in ((pixels, pixels.transpose(1, 2, 0)), (pixels[:1], pixels[0]), (pixels[0] / 255, pixels[0])):
        image = Image.open(io.BytesIO(thumbnail(found)))
        image = image.convert("L" if wanted.ndim == 2 else "RGB")
        assert np.array_equal(np.asarray(image), wanted.repeat(times, 0).repeat(times, 1))


def test_large_pictures_are_reduced():
    ramp = np.broadcast_to(np.linspace(0, 255, 600).astype(np.uint8), (3, 300, 600))
    image = Image.open(io.BytesIO(thumbnail(ramp)))
    assert image.size == (96, 48)
    assert np.abs(np.asarray(image.convert("L")).mean(0) - np.linspace(0, 255, 96)).max() < 8
    assert Image.open(io.BytesIO(thumbnail(np.zeros((1, 1, 5000), np.uint8)))).size == (96, 1)


def test_grey_values_out_of_bounds_are_clipped():
    pixels = np.full((40, 40), np.nan)
    pixels[0], pixels[1] = -1, 7
    assert np.asarray(Image.open(io.BytesIO(thumbnail(pixels))).convert("L"))[:3, 0].tolist() == [0, 255, 0]
