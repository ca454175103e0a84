# Everything happens in .venv, which is made on first use. Needs Python 3.11 or newer.
PYTHON ?= python3
EXTRAS ?= dev
BIN := .venv/bin

.NOTPARALLEL:
.PHONY: demo test test-photos lint format clean

demo: .venv/installed  ## train on the built-in data, half of its labels wrong
	$(BIN)/sprl train

test: .venv/installed-$(EXTRAS)  ## EXTRAS=dev,parquet,huggingface,examples tests optional readers and examples too
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

# PyPI's torchvision, which timm imports, is built for torch with CUDA; beside torch for CPUs it breaks Lightning and Transformers. It stands apart.
test-photos: .venv/installed-$(EXTRAS)  ## networks of timm; EXTRAS must have huggingface
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps --upgrade --target .venv/photos timm torchvision
	PYTHONPATH=.venv/photos OMP_NUM_THREADS=1 $(BIN)/pytest -n auto tests/test_photos.py

lint: .venv/installed-$(EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-$(EXTRAS)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

define install
	@echo "Installing into .venv, PyTorch among others: about two minutes, more where the network is slow; nothing is shown meanwhile"
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("sprl needs Python 3.11 or newer: make PYTHON=python3.12 demo")'
	$(BIN)/python -c '' 2> /dev/null || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable "$(1)"
	touch $@
endef

.venv/installed: pyproject.toml constraints.txt
	$(call install,.)

.venv/installed-$(EXTRAS): pyproject.toml constraints.txt
	$(call install,.[$(EXTRAS)])

clean:
	rm -rf .venv
