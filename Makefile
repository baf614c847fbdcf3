# Everything runs in .venv, made from what the machine's own Python can install.
PYTHON ?= python3
BIN := .venv/bin
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: clients demo test lint docs speed clean

demo: .venv/bench
	$(BIN)/tpatcher demo

test: .venv/dev lint
	$(BIN)/pytest -n 2 --dist loadfile --cov --cov-report=term

# LiteLLM and LangChain want other versions than ours of what both need: a place of their own
clients: .venv-clients/done

.venv-clients/done: pyproject.toml
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/pip install --quiet "litellm>=1.60" "langchain-openai>=0.3"
	touch $@

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/torch:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch==2.13.0
	touch $@

.venv/bench: .venv/torch pyproject.toml
	$(BIN)/pip install --quiet -e ".[bench]"
	touch $@

.venv/dev: .venv/torch pyproject.toml
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $@ .venv/bench

docs: .venv/dev
	$(BIN)/python -c "from tests.test_docs import reference; print(reference(), end='')" > docs/cli.md

speed: .venv/bench
	$(BIN)/python -m speed --json speed.json

clean:
	rm -rf .venv .venv-clients build *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache
