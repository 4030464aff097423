# make up: start the mesh.  make test: check it.  The rest is for working on it; see CONTRIBUTING.md.

PYTHON ?= python3
ROOT ?= $(or $(MESH_ROOT),shared)
ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: up test lint live soak bench lock clean need-python

up: .venv/ready
	@.venv/bin/mesh init --root "$(ROOT)"
	@exec .venv/bin/mesh up --root "$(ROOT)" $(ARGS)

test: lint
	.venv-test/bin/pytest -m "not live and not soak" -n auto --maxprocesses 4 --dist worksteal

lint: .venv-test/ready
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy

live: .venv/ready .venv-test/ready
	.venv-test/bin/pytest -m "live and not soak"

soak: .venv/ready .venv-test/ready
	.venv-test/bin/pytest -m "live or soak" --timeout 3600

bench: .venv/ready
	.venv/bin/python -m benchmarks $(ARGS)

# Pins every package with its hashes, for all platforms, after an edit of pyproject.toml. Needs uv.
lock:
	uv pip compile pyproject.toml --all-extras --group build --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --quiet --output-file requirements.lock
	uv pip compile pyproject.toml --all-extras --group build --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --quiet --output-file requirements-dev.lock

clean:
	rm -rf .venv .venv-test .pytest_cache .mypy_cache .ruff_cache .hypothesis dist bench.json

need-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not: install it, or name it: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Python's venv module is missing: apt install python3-venv (or your system's package of that name)" >&2; exit 1; }

.venv/ready: requirements.lock pyproject.toml | need-python
	@echo "Making the environment (once) …"
	@$(call environment,.venv,requirements.lock)

.venv-test/ready: requirements-dev.lock pyproject.toml | need-python
	@echo "Making the environment for tests (once) …"
	@$(call environment,.venv-test,requirements-dev.lock)

# A folder of its own for each: what tests need would make every start of the mesh slower.
environment = rm -rf $(1) && $(PYTHON) -m venv $(1) \
  && $(1)/bin/pip install --quiet --require-hashes -r $(2) \
  && $(1)/bin/pip install --quiet --no-deps --no-build-isolation -e . \
  && touch $(1)/ready
