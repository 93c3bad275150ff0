PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: demo test integration lint clean

demo: $(STAMP)
	$(BIN)/repair-ray demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

integration: $(STAMP)
	$(BIN)/python -m pytest -m integration $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check repair_ray tests benchmarks
	$(BIN)/ruff format --check repair_ray tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

$(STAMP): requirements.txt requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $(STAMP)

clean:
	rm -rf $(VENV) runs
