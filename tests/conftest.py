"""Small data that trains in a moment."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from PIL import Image

from sprl.noise import corrupt
from sprl.report import write
from sprl.run import Run
from sprl.state import Task

torch.set_num_threads(1)


def write_shots(folder, count):
    """Bright pictures of day/ and dark ones of night/."""
    for i in range(count):
        path = folder / ("day", "night")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9), 200 + i if i % 2 == 0 else i).save(path)


def clusters(n: int = 400, num_classes: int = 4, features: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Well separated clouds of points, one a class."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(num_classes, features))
    y = np.arange(n) % num_classes
    return (centres[y] + rng.normal(size=(n, features))).astype(np.float32), y


@pytest.fixture
def points() -> tuple[np.ndarray, np.ndarray]:
    return clusters()


@pytest.fixture
def task() -> Task:
    """Clusters, a third of the labels wrong, 12 epochs, a last batch that is not full."""
    x, clean = clusters(403)
    y = corrupt(clean, "symmetric:0.33", 4, seed=0)
    return Task(torch.from_numpy(x), torch.from_numpy(y), num_classes=4, epochs=12, batch_size=32, lr=1e-2)


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """Points with test rows, in a file."""
    x, y = clusters()
    path = tmp_path_factory.mktemp("pets") / "pets.npz"
    np.savez(path, x=x[:300], y=y[:300], x_test=x[300:], y_test=y[300:])
    return path


@pytest.fixture
def trained(monkeypatch):
    """The methods and numbers of rows that are trained from now on."""
    seen, train = [], Run.train

    def noting(run, pause):
        seen.append((run.config.method, len(run.data.y)))
        return train(run, pause)

    monkeypatch.setattr(Run, "train", noting)
    return seen


@pytest.fixture(scope="module")
def browser():
    from browsing import CHROMIUM, sync_api

    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory):
    from browsing import MADE

    folder = tmp_path_factory.mktemp("pages")
    write(folder / "report.html", MADE)
    return folder


@pytest.fixture(scope="module")
def address(report_folder):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=report_folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def visit(browser, report_folder):
    """Opens a page, in a window of its own. Nothing may go wrong there, pop up, or be loaded from anywhere."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(5000)
    tab, troubles = context.new_page(), []
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("dialog", lambda dialog: (troubles.append(dialog.type), dialog.accept()))
    tab.on("request", lambda request: None if request.url.startswith(("data:", "blob:", tab.start)) else troubles.append(request.url))

    def go(made=None, url=None):
        if made is not None:
            write(report_folder / "other.html", made)
        tab.start = url or (report_folder / ("report.html" if made is None else "other.html")).as_uri()
        tab.goto(tab.start)
        return tab

    tab.troubles = troubles
    yield go
    context.close()
    assert troubles == []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests without their browser should not go unnoticed among the others."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "test_page" in report.nodeid]
    for reason in {report.longrepr[2].removeprefix("Skipped: ") for report in skipped}:
        terminalreporter.write_line(f"Note: the tests of the review page were {reason}")
