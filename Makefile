# For users: `make demo` and `make test`. For developers: `make check`, the quick checks.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
REC := build/demo

.PHONY: demo test check lint types contracts gpu clean

# pip installs with torch pinned: an open range would install several GB of CUDA packages on a CPU machine.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,examples]"
	touch $@

demo: $(VENV)/installed
	rm -rf $(REC)
	$(BIN)/autocompile tune examples/embedding.py --budget 3m --strategy quick --output $(REC)
	$(BIN)/python examples/embedding.py $(REC)

test: lint types contracts
	$(BIN)/python -m pytest -m "not gpu" -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
		--ignore tests/real/test_profile.py
	$(BIN)/python -m pytest -m "not gpu" tests/real/test_profile.py

check: lint types contracts
	$(BIN)/python -m pytest -m "not gpu and not real" -q

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	$(BIN)/mypy

contracts: $(VENV)/installed
	$(BIN)/lint-imports

# For a machine with an NVIDIA GPU where only torch is installed, in calls of ten minutes: see studies/gpu/run.py.
gpu:
	$(PYTHON) studies/gpu/run.py $(if $(WHEELS),--wheels $(WHEELS)) $(if $(PART),--part $(PART)) \
		$(if $(DEVICE),--device $(DEVICE)) $(if $(STEPS),--steps $(STEPS))

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
