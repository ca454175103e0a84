"""Driving a review page in a real browser. Importing this skips a test module where there is none."""

import csv
import io
import shutil

import numpy as np
import pytest
from pages import page, table

from sprl.cells import unguard
from sprl.report import thumbnail

sync_api = pytest.importorskip("playwright.sync_api", reason="skipped, they need Playwright: pip install --editable '.[dev]'")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("skipped, they need a browser: apt-get install chromium", allow_module_level=True)

CLASSES = ["ant", "bee", "cat", "dog"]
LABELS = table(240, CLASSES)
FLAGGED = LABELS[LABELS["is_label_issue"]].sort_values("wrong_probability", ascending=False)
CURRENT = "#gallery [aria-current]"


def picture(at):
    return thumbnail(np.random.default_rng(at).random((8, 8)))


MADE = page(LABELS, CLASSES, picture=picture)
NOTE = f"# sprl corrections, run={MADE.run_id}, labels={MADE.labels_hash}\nid,given_label,corrected_label,verdict\n"


def press(tab, keys):
    for key in keys.split():
        tab.keyboard.press(key)


def reload(tab):
    """As fast as a person can: Chromium takes a moment to hand what a page stored to the process that loads it next."""
    tab.wait_for_timeout(300)
    tab.reload()


def states(tab):
    return tab.locator("#gallery > li").evaluate_all("cards => cards.map(card => card.dataset.state)")


def shown(tab):
    """Of how many suspects the gallery consists."""
    return int(tab.locator("#gallery > li").first.get_attribute("aria-setsize")) if tab.locator("#gallery > li").count() else 0


def current(tab):
    return int(tab.locator(CURRENT).get_attribute("data-at"))


def export(tab):
    with tab.expect_download() as caught:
        tab.locator("#export").click()
    assert caught.value.suggested_filename == "corrections.csv"
    return caught.value.path().read_bytes().decode()


def records(text):
    return [[unguard(cell) for cell in row] for row in csv.reader(io.StringIO(text.split("\n", 1)[1], newline=""))]


def bring(tab, text):
    tab.locator("#file").set_input_files({"name": "corrections.csv", "mimeType": "text/csv", "buffer": text.encode()})


def expect(locator, text):
    sync_api.expect(locator).to_contain_text(text, timeout=3000)


def row(at, corrected, verdict):
    return f"{LABELS['id'][at]},{LABELS['given_label'][at]},{corrected},{verdict}\n"
