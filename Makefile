# Everything runs in .venv, made from what the machine's own Python can install.
PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: clients gguf demo test test-slow test-clients test-lowest lint docs site speed container release clean

demo: .venv/bench
	$(BIN)/tpatcher demo

test: .venv/dev lint
	$(BIN)/pytest -n 2 --dist loadfile --cov --cov-report=term

test-slow: .venv/dev
	$(BIN)/pytest -m slow

test-clients: .venv/dev clients
	$(BIN)/pytest tests/service/test_clients.py

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
	$(BIN)/pip install --quiet $(TORCH)
	touch $@

.venv/bench: .venv/torch pyproject.toml
	$(BIN)/pip install --quiet -e ".[bench]"
	touch $@

.venv/dev: .venv/torch pyproject.toml
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $@ .venv/bench

# llama.cpp is compiled, which takes minutes: the tests that want it skip without it.
gguf: .venv/gguf
.venv/gguf: .venv/dev
	$(BIN)/pip install --quiet -e ".[gguf]"
	touch $@

# The lower ends of the ranges in pyproject.toml, in a venv of their own. Torch stays what it is, and so
# do the tools that test: those are no part of what is promised.
LOWEST := .venv-lowest
RUNTIME := bench data lora onnx ray serve
TOOLS := pytest pytest-xdist hypothesis httpx openai schemathesis jaxtyping pyyaml nbformat
test-lowest: .venv/dev
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/pip install --quiet $(TORCH)
	echo "$(TORCH)" | $(BIN)/uv pip compile --quiet --resolution lowest-direct pyproject.toml \
		$(RUNTIME:%=--extra %) --constraint - --output-file $(LOWEST)/all.txt
	grep --invert-match --extended-regexp "^(torch|cuda|nvidia|triton)" $(LOWEST)/all.txt > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/pip install --quiet -r $(LOWEST)/lowest.txt
	$(LOWEST)/bin/pip install --quiet --constraint $(LOWEST)/lowest.txt $(TOOLS)
	$(LOWEST)/bin/pip install --quiet --no-deps -e .
	$(LOWEST)/bin/pytest -n 2 --dist loadfile -W default  # old versions warn of what is newer than they are

docs: .venv/dev
	$(BIN)/python -c "from tests.test_docs import reference; print(reference(), end='')" > docs/cli.md

site: docs
	$(BIN)/mkdocs build --strict

speed: .venv/bench
	$(BIN)/python -m speed --json speed.json

container: .venv/dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python .ci/container.py

release: .venv/dev
	$(BIN)/python .ci/release.py

clean:
	rm -rf .venv .venv-clients .venv-lowest build dist site *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache
