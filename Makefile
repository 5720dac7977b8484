# Every target sets up what is missing, so that a fresh clone needs nothing but Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLUSTER := $(VENV)/.cluster

# What the check of words covers.
VOCABULARY := docs tests bench charts examples src README.md CHANGELOG.md CONTRIBUTING.md

# Where the compiled engine is built: the wheel, and the wheel unpacked.
COMPILED := build/compiled

.PHONY: venv demo test bench check docs wheel-compiled test-compiled clean
.DEFAULT_GOAL := demo

$(CLUSTER): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "pykueue needs Python 3.11 or newer; try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[cluster]'
	@touch $@

$(READY): $(CLUSTER)
	@echo "Setting up the tools for tests and checks (once) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

venv: $(CLUSTER)

demo: $(CLUSTER)
	@$(BIN)/pykueue demo

test: $(READY)
	@$(BIN)/pytest -n auto --dist loadfile

bench: $(READY)
	@$(BIN)/python -m bench.baseline

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -m pykueue.api.crds --check
	@$(BIN)/python -m pykueue.embedded.jobset --check
	@$(BIN)/python -m pykueue.embedded.schema --check
	@$(BIN)/python -m pykueue.manager.install --check
	@$(BIN)/python tools/component_table.py --check
	@$(BIN)/python tools/kind_table.py --check
	@$(BIN)/python tools/rights_table.py --check
	@$(BIN)/python tools/reference_pages.py --check
	@$(BIN)/python tools/vocabulary.py $(VOCABULARY)

# The engine and parts of the manager and the cluster as C extensions, for this platform and version of Python
# (docs/decisions/0022-compiled-engine.md).
wheel-compiled: $(READY)
	@rm -rf $(COMPILED)/wheel $(COMPILED)/lib build/lib.*
	@PYKUEUE_COMPILE=1 $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --wheel-dir $(COMPILED)/wheel .
	@ls $(COMPILED)/wheel/*.whl

# What is compiled of the manager, the server and the cluster is tested with fewer tests: all of them would take minutes.
COMPILED_TESTS := tests/engine tests/conformance/test_engine_conformance.py \
  tests/kube/test_kube_informer.py tests/kube/test_informer_streamed.py tests/kube/test_kube_controller.py \
  tests/manager/test_manager_rules.py tests/manager/test_manager_edited.py tests/manager/test_manager_life.py \
  tests/cli/test_cli_memory.py \
  $(addprefix tests/embedded/test_,$(addsuffix .py, \
    apiserver_admission apiserver_builtin_admission apiserver_custom apiserver_front apiserver_fuzz apiserver_http \
    apiserver_lists_and_watches apiserver_objects apiserver_refused_writes apiserver_rights apiserver_tokens \
    apiserver_wrong_types bounds_bodies bounds_objects compiled_cluster jobcontroller_indexed jobcontroller_running \
    nodes_pods patch_json_and_merge podkind_pod podkind_templates podscheduler_native podscheduler_placing \
    podscheduler_spreading schema_builtin schema_custom schema_rules store_sqlite))

# The tests of the engine, and some of the others, with it.
test-compiled: wheel-compiled
	@$(BIN)/python -m zipfile -e $(COMPILED)/wheel/*.whl $(COMPILED)/lib
	@PYTHONPATH=$(COMPILED)/lib $(BIN)/python -c \
	  'from pykueue.extras import engine_is_compiled; assert engine_is_compiled(), "the engine is not compiled"'
	@PYTHONPATH=$(COMPILED)/lib $(BIN)/pytest -n auto --dist loadfile $(COMPILED_TESTS)

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "file://$(CURDIR)/build/site/index.html"

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
