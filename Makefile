# Every target does its own set-up: the virtual environment, the locked install, the package in place. When nothing
# changed since the last call that costs a fraction of a second. Needs Python 3.11 or newer, make and a C compiler.
#   PYTHON   the interpreter to make the environment with       make test PYTHON=python3.13
#   JOBS     how many processes the tests run in                make test JOBS=8
#   ARGS     more arguments for pytest                          make test ARGS="-k pad -x"
#   MINUTES  how long to fuzz, TARGETS what (models plans files cuda)  make fuzz MINUTES=60
#   OPENVINO all, quick or off: tests of the OpenVINO provider  make test-all OPENVINO=off
#   SHARD    a part of the tests on a GPU, such as 1/3          make test-gpu SHARD=1/3
#   ROWS     rows of the benchmark on a GPU                     make bench-gpu ROWS="resnet50:1 bert_base"
#   CUDA     all, quick or off: tests of the CUDA provider      make test-all CUDA=off
#   SERVE    all, quick or off: tests of the server            make test-all SERVE=off
#   TENSORRT all, quick or off: tests of the tensorrt module    make test-all TENSORRT=off
#   CPP      all, quick or off: plugins and programs in C++     make test-all CPP=off
#   NOTEBOOKS all, quick or off: notebooks, tests with PyTorch  make test-all NOTEBOOKS=off
#   BROWSER  all or quick: reports and the site in a browser    make test-browser BROWSER=quick
#   SITE     where the site of the documentation goes            make docs SITE=public
#   BASE     the revision to compare builds with                make replay BASE=origin/main
#   CHROMIUM the browser that reports are tested in             make test-browser CHROMIUM=/usr/local/bin/chrome

# Tests start hundreds of processes: without byte code on disk each compiles ONNX and SymPy anew, three seconds a process.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
JOBS ?= auto
ARGS ?=
OPENVINO ?= all
CUDA ?= all
TENSORRT ?= all
CPP ?= all
NOTEBOOKS ?= all
BROWSER ?= all
DOCS ?= all
SERVE ?= all
SITE ?=
SHARD ?=
ROWS ?=
TOOL ?= memcheck
MINUTES ?= 10
BASE ?=
TARGETS ?=

VENV := .venv
RUN := $(VENV)/bin/python -m
OPENVINO_VENV := .venv-openvino
CUDA_VENV := .venv-cuda
# Tests of another package that need Triton and the device of paper.
ON_PAPER := $(patsubst %,tests/tensorrt/%.py,builtin/test_compilation builtin/test_kernels builtin/test_layouts \
	builtin/test_paper_device builtin/test_types plugin/test_aot)
TENSORRT_VENV := .venv-tensorrt
SERVE_VENV := .venv-serve
SERVE_CLIENT_VENV := .venv-serve-client
RAY_VENV := .venv-serve-ray
NOTEBOOKS_VENV := .venv-notebooks
RELEASE_VENV := .venv-release
BROWSER_VENV := .venv-browser
DOCS_VENV := .venv-docs
# Where the site is made, commands of this package are found as if it were installed.
DOCS_METADATA := $(abspath build/docs-metadata)
CHROMIUM ?= $(firstword $(wildcard $(addprefix /usr/bin/,chromium chromium-browser google-chrome)))
SOURCE := packages/dovetail/src packages/onnxruntime-ep-dovetail/src
PYTEST := $(RUN) pytest
# A suite that has no test file yet is left out, because pytest calls an empty run a failure.
suites = $(foreach suite,$(1),$(if $(shell find tests/$(suite) -name 'test_*.py' 2>/dev/null),tests/$(suite)))

QUICK := $(call suites,null cpu ort_ep adversarial examples meta)
# What compiles C++ first.
NATIVE := tests/cpu/plugin/native tests/cpu/runtime/embedded
# What takes long for what it finds: checks of whole plugins and providers, and many runs in threads.
HEAVY := $(addprefix tests/cpu/plugin/native/test_native_,broken.py docs.py life.py stale.py) \
	tests/null/plugin/check/test_corpus.py tests/null/plugin/check/test_callbacks.py \
	tests/null/plugin/check/test_rules.py tests/null/plugin/check/test_later_runs.py tests/null/plugin/check/cases/test_discovery.py tests/cpu/testing \
	tests/ort_ep/lifetime tests/ort_ep/device/test_exits.py tests/adversarial/network/test_growth.py \
	tests/adversarial/network/test_mutated_models.py tests/adversarial/plan/test_manifest_fuzz.py \
	tests/adversarial/plan/test_manifest_attacks.py tests/adversarial/plan/test_partition_attacks.py \
	tests/ort_ep/context/test_hostile_contexts.py tests/ort_ep/library/test_build.py \
	tests/examples/test_tutorials.py tests/examples/test_examples.py tests/ort_ep/weights/test_given_weights.py \
	tests/cpu/network/api/test_every_layer.py tests/null/cli/test_starters.py tests/cpu/tools/test_plugin_device.py
# What `make test` leaves out of the other files.
MARKED = $(filter-out $(HEAVY) $(HEAVY:=/%),$(shell grep -rl --include='test_*.py' 'mark\.slow' $(QUICK) | grep -v $(NATIVE:%=-e '^%/')))
# What may differ between versions of Python: not the arithmetic of kernels, which is NumPy's.
MATRIX := $(call suites,null/plugin cpu/runtime) --ignore tests/cpu/runtime/devices \
	--ignore tests/null/plugin/check/test_corpus.py --ignore tests/null/plugin/check/test_rules.py
# What may differ between versions of ONNX Runtime, marked so in the tests.
VERSIONS := $(call suites,ort_ep)
LONG := $(call suites,conformance)
# The others compare with a peer over minutes: `make bench`, on a machine that does nothing else.
BENCH := tests/bench/test_overhead.py tests/bench/test_plan_load.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo docs test test-all test-heavy test-cpp test-newest test-ray test-serve test-gpu metadata-gpu sanitize-gpu bench-gpu test-cuda test-notebooks test-browser test-openvino test-tensorrt test-pythons test-versions test-long bench fuzz replay check lint format lock notebooks report-pictures venv wheels workflows clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

venv: ## Make or refresh .venv from the lock file.
	@tools/venv $(VENV) $(PYTHON)

demo: venv ## Build, tune, check, save, reload and time a model with a custom operator.
	@$(VENV)/bin/python examples/demo.py

test: venv ## Run the tests and the doctests: seven minutes on two cores.
	$(PYTEST) -n $(JOBS) -m "not slow" $(QUICK) $(addprefix --ignore ,$(HEAVY) $(NATIVE)) \
		--doctest-modules $(SOURCE) $(ARGS)

test-cpp: venv ## Plugins and programs in C++, with g++ where there is one: three minutes.
ifneq ($(CPP),off)
	$(PYTEST) -n $(JOBS) $(NATIVE) $(if $(filter quick,$(CPP)),-m "not slow" $(addprefix --ignore ,$(HEAVY))) $(ARGS)
endif

test-heavy: venv ## The corpus of the checker, the kit for providers, threads and ends in ONNX Runtime, slow tests: six minutes.
	$(PYTEST) -n $(JOBS) $(HEAVY) $(ARGS)
	$(PYTEST) -n $(JOBS) -m slow $(MARKED) $(ARGS)

test-all: test test-heavy test-cpp test-openvino test-cuda test-tensorrt test-serve test-ray test-notebooks docs test-browser test-versions test-newest test-long ## Also the long suites, benchmarks, other providers, ONNX Runtimes and Pythons.

test-openvino: venv ## The tests of packages/dovetail-openvino, in an environment of their own: five minutes.
ifneq ($(OPENVINO),off)
	@status=0; tools/provider_venv openvino $(OPENVINO_VENV) $(VENV) || status=$$?; \
	if [ $$status -eq 3 ] && [ "$(OPENVINO)" = quick ]; then \
		echo "Left out: the OpenVINO provider, whose locked packages cannot be installed on this machine."; \
	elif [ $$status -ne 0 ]; then exit $$status; \
	else $(OPENVINO_VENV)/bin/python -m pytest -n $(JOBS) \
		$(if $(filter quick,$(OPENVINO)),-m "not slow") tests/openvino $(ARGS); fi
endif

test-cuda: venv ## The tests of packages/dovetail-cuda that need no GPU, in an environment of their own: a minute.
ifneq ($(CUDA),off)
	@status=0; tools/provider_venv cuda $(CUDA_VENV) $(VENV) || status=$$?; \
	if [ $$status -eq 3 ] && [ "$(CUDA)" = quick ]; then \
		echo "Left out: the CUDA provider, whose locked packages cannot be installed on this machine."; \
	elif [ $$status -ne 0 ]; then exit $$status; \
	else PYTHONPATH=packages/dovetail-tensorrt/src $(CUDA_VENV)/bin/python -m pytest -n $(JOBS) \
		$(if $(filter quick,$(CUDA)),-m "not slow") tests/cuda/host $(ON_PAPER) $(ARGS); fi
endif

test-tensorrt: venv ## The tests of packages/dovetail-tensorrt, in an environment of their own: three minutes.
ifneq ($(TENSORRT),off)
	@status=0; tools/provider_venv tensorrt $(TENSORRT_VENV) $(VENV) || status=$$?; \
	if [ $$status -eq 3 ] && [ "$(TENSORRT)" = quick ]; then \
		echo "Left out: the tensorrt module, whose locked packages cannot be installed on this machine."; \
	elif [ $$status -ne 0 ]; then exit $$status; \
	else $(TENSORRT_VENV)/bin/python -m pytest -n $(JOBS) \
		$(if $(filter quick,$(TENSORRT)),-m "not slow") tests/tensorrt \
		--ignore-glob '*/samples/*' --ignore-glob '*/migrate/plugins/*' --ignore-glob '*/builtin/kernels/*' \
		--ignore-glob '*/builtin/interpreted.py' \
		--doctest-modules packages/dovetail-tensorrt/src $(ARGS); fi
endif

test-serve: venv ## The tests of packages/dovetail-serve, in an environment of their own, with tritonclient in another.
ifneq ($(SERVE),off)
	@status=0; tools/provider_venv serve $(SERVE_VENV) $(VENV) || status=$$?; \
	[ $$status -ne 0 ] || [ "$(SERVE)" = quick ] || tools/provider_venv serve-client $(SERVE_CLIENT_VENV) $(VENV) || status=$$?; \
	if [ $$status -eq 3 ] && [ "$(SERVE)" = quick ]; then \
		echo "Left out: the server, whose locked packages cannot be installed on this machine."; \
	elif [ $$status -ne 0 ]; then exit $$status; \
	else SERVE_CLIENT=$(if $(filter quick,$(SERVE)),,$(abspath $(SERVE_CLIENT_VENV)/bin/python)) CHROMIUM=$(CHROMIUM) \
		$(SERVE_VENV)/bin/python -m pytest -n $(JOBS) $(if $(filter quick,$(SERVE)),-m "not slow") \
		tests/serve --ignore tests/serve/ray --doctest-modules packages/dovetail-serve/src \
		--ignore packages/dovetail-serve/src/dovetail_serve/ray $(ARGS); fi
endif

test-ray: venv ## The tests of packages/dovetail-serve over Ray, each cluster in a network of its own: three minutes.
	@tools/provider_venv serve $(SERVE_VENV) $(VENV)
	@tools/provider_venv serve-ray $(RAY_VENV) $(SERVE_VENV)
	$(RAY_VENV)/bin/python -m pytest tests/serve/ray --doctest-modules packages/dovetail-serve/src/dovetail_serve/ray $(ARGS)

test-notebooks: venv ## The notebooks, and what needs PyTorch, in an environment of their own: two minutes.
ifneq ($(NOTEBOOKS),off)
	@status=0; tools/provider_venv notebooks $(NOTEBOOKS_VENV) $(VENV) || status=$$?; \
	if [ $$status -eq 3 ] && [ "$(NOTEBOOKS)" = quick ]; then \
		echo "Left out: the notebooks, whose locked packages cannot be installed on this machine."; \
	elif [ $$status -ne 0 ]; then exit $$status; \
	else $(NOTEBOOKS_VENV)/bin/python -m pytest -n $(JOBS) \
		$(if $(filter quick,$(NOTEBOOKS)),-m "not slow") tests/torch tests/cpu/test_reprs_and_notebooks.py $(ARGS); fi
endif

notebooks: venv ## Run the notebooks of docs/notebooks and keep their outputs: a minute.
	@tools/provider_venv notebooks $(NOTEBOOKS_VENV) $(VENV)
	$(NOTEBOOKS_VENV)/bin/python tools/notebooks

test-browser: venv ## Reports and the site of make docs in a real browser, Debian's chromium or CHROMIUM=, offline: six minutes.
	@status=0; if [ -z "$(CHROMIUM)" ]; then \
		echo "Left out: reports and the site in a browser, as there is no chromium here (apt-get install chromium)."; \
	else tools/provider_venv browser $(BROWSER_VENV) $(VENV) || status=$$?; \
		if [ $$status -eq 3 ]; then \
			echo "Left out: reports and the site in a browser, as playwright cannot be installed on this machine."; \
		elif [ $$status -ne 0 ]; then exit $$status; \
		else CHROMIUM=$(CHROMIUM) $(BROWSER_VENV)/bin/python -m pytest -n 0 \
			$(if $(filter quick,$(BROWSER)),-m "not slow") tests/browser $(ARGS); fi; fi

docs: venv ## The site of the documentation in build/site, or SITE=, with a folder for this version: a minute.
	@status=0; tools/provider_venv serve $(SERVE_VENV) $(VENV) || status=$$?; \
	[ $$status -ne 0 ] || tools/provider_venv docs $(DOCS_VENV) $(SERVE_VENV) || status=$$?; \
	if [ $$status -eq 3 ] && [ "$(DOCS)" = quick ]; then \
		echo "Left out: the site of the documentation, whose locked packages cannot be installed on this machine."; \
	elif [ $$status -ne 0 ]; then exit $$status; \
	else $(VENV)/bin/python tools/metadata $(DOCS_METADATA) packages/dovetail-tensorrt && \
		PYTHONPATH=$(DOCS_METADATA):$(abspath packages/dovetail-tensorrt/src) $(DOCS_VENV)/bin/python -m tools.docs_site $(SITE); fi

report-pictures: venv ## Make the pictures of docs/report.md anew, with a browser.
	@tools/provider_venv browser $(BROWSER_VENV) $(VENV)
	CHROMIUM=$(CHROMIUM) $(BROWSER_VENV)/bin/python -m tests.browser.pictures docs/images

# What runs on a machine with a CUDA device: its own Python, whatever that has installed, and our sources with metadata.
GPU_PACKAGES := $(addprefix packages/,dovetail dovetail-cuda dovetail-tensorrt onnxruntime-ep-dovetail)
GPU_PATH := $(subst $() ,:,$(abspath $(GPU_PACKAGES:=/src) build/gpu/metadata $(subst :, ,$(PYTHONPATH)) .))
test-gpu sanitize-gpu bench-gpu: export PYTHONPATH := $(GPU_PATH)
test-gpu sanitize-gpu bench-gpu: export SHARD := $(SHARD)
test-gpu sanitize-gpu bench-gpu: metadata-gpu

metadata-gpu:
	@tools/metadata build/gpu/metadata $(GPU_PACKAGES)

GPU_PYTEST := pytest -c /dev/null --rootdir . -p no:cacheprovider -W ignore::DeprecationWarning -q

test-gpu: ## What needs a CUDA device, with a Python (PYTHON=) that has PyTorch, CuPy, Triton and cuda-bindings.
	$(PYTHON) -m $(GPU_PYTEST) tests/cuda/gpu tests/tensorrt/builtin/test_gpu.py tests/tensorrt/gpu $(ARGS)

# Plans are built and kept first: the tool would watch hundreds of timings of each.
SANITIZED := $(GPU_PYTEST) $(patsubst %,tests/cuda/gpu/test_%.py,models attention convolutions categories) \
	-k "not costs and not overlap and not multiply and not next"
sanitize-gpu: export PLANS := $(abspath build/gpu/plans)
sanitize-gpu: ## compute-sanitizer over kernels (TOOL=memcheck, racecheck or synccheck) on a CUDA device.
	@mkdir -p $(PLANS)
	$(PYTHON) -m $(SANITIZED) $(ARGS)
	compute-sanitizer --tool $(TOOL) --error-exitcode 9 $(PYTHON) -m $(SANITIZED) $(ARGS)

bench-gpu: ## Ten exported models on a CUDA device against the best peers (ROWS="resnet50:1 bert_base"): 8 minutes.
	$(PYTHON) -m benchmarks.gpu $(ROWS) $(ARGS)

test-versions: venv ## The tests of the execution provider with other versions of ONNX Runtime: two minutes.
	$(VENV)/bin/python tools/ort_versions -n $(JOBS) -m "versions and not slow" $(VERSIONS) $(ARGS)

test-newest: venv ## What may differ between versions of Python, on the newest of this machine.
	MATRIX=newest tools/matrix $(VENV) -n $(JOBS) -m "not slow" $(MATRIX) $(ARGS)

# Benchmarks measure, so they run alone and in one process, and last.
test-long: venv ## Conformance, and the benchmarks that have limits.
ifneq ($(LONG),)
	$(PYTEST) -n $(JOBS) -m "not slow" $(LONG) $(ARGS)
endif
ifneq ($(BENCH),)
	$(PYTEST) -p no:xdist $(BENCH) $(ARGS)
endif

test-pythons: venv ## What may differ between versions of Python, on every one of this machine.
	tools/matrix $(VENV) -n $(JOBS) -m "not slow" $(MATRIX) $(ARGS)

fuzz: venv ## Fuzz models, plans, CUDA plans and other files for MINUTES; counts and the corpus in tests/fuzz grow.
	@tools/provider_venv cuda $(CUDA_VENV) $(VENV)
	$(CUDA_VENV)/bin/python -m tests.fuzz $(MINUTES) $(TARGETS)

replay: venv ## Write what fixed models build to, and print the difference from BASE=; ARGS=--quick for a subset.
	@[ "$(CUDA)" = off ] || tools/provider_venv cuda $(CUDA_VENV) $(VENV)
	@PYTHONPATH=tools $(if $(filter off,$(CUDA)),$(VENV),$(CUDA_VENV))/bin/python -m replay \
		$(if $(filter off,$(CUDA)),--suite cpu) $(if $(BASE),--base $(BASE)) $(ARGS)

bench: venv ## Benchmarks as tests, real models, onnx's node tests in ONNX Runtime: about 40 minutes.
	$(PYTEST) -p no:xdist tests/bench $(ARGS)
	$(PYTEST) -n $(JOBS) tests/conformance/models tests/conformance/ort_ep $(ARGS)

lint: venv ## Style, formatting, types and import contracts.
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(VENV)/bin/lint-imports --no-logo

check: lint test ## The one check command: lint, then test.

format: venv ## Format the code and mend what ruff can mend.
	$(RUN) ruff format
	$(RUN) ruff check --fix

wheels: venv ## Build wheels and sources into dist, for each Python here, and run the README with them: three minutes.
	@tools/provider_venv release $(RELEASE_VENV) $(VENV)
	@rm -rf dist
	@$(VENV)/bin/python tools/wheels dist
	@$(RELEASE_VENV)/bin/python tools/try_wheels dist

workflows: venv ## Look over the workflows for what could be attacked.
	@tools/provider_venv release $(RELEASE_VENV) $(VENV)
	$(RELEASE_VENV)/bin/zizmor --offline --quiet .github/workflows

lock: ## Write the lock files anew: requirements/dev.txt, models.txt, onnxruntime.txt, openvino.txt, cuda.txt, tensorrt.txt, notebooks.txt, release.txt, browser.txt, docs.txt and those of the server.
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --custom-compile-command "make lock" \
		--upgrade --extra all --extra onnxruntime packages/dovetail/pyproject.toml requirements/dev.in \
		--output-file requirements/dev.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes --no-deps \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		requirements/models.in --output-file requirements/models.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		--constraint requirements/dev.txt --no-emit-package numpy requirements/openvino.in \
		--output-file requirements/openvino.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		requirements/cuda.in --output-file requirements/cuda.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		requirements/tensorrt.in --output-file requirements/tensorrt.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		--constraint requirements/dev.txt requirements/notebooks.in --output-file requirements/notebooks.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		--constraint requirements/dev.txt requirements/release.in --output-file requirements/release.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		--constraint requirements/dev.txt --no-emit-package typing-extensions requirements/browser.in \
		--output-file requirements/browser.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		--constraint requirements/dev.txt requirements/docs.in --output-file requirements/docs.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		--constraint requirements/dev.txt requirements/serve.in --output-file requirements/serve.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		requirements/serve-client.in --output-file requirements/serve-client.txt
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" --upgrade \
		--constraint requirements/dev.txt --constraint requirements/serve.txt \
		requirements/serve-ray.in --output-file requirements/serve-ray.txt
	# One file cannot ask for several versions of a package, so each is locked by itself.
	printf '# Each of these is fetched by itself; written by\n#    make lock\n' >requirements/onnxruntime.txt
	sed -n '/^onnxruntime/p' requirements/onnxruntime.in | while read -r version; do \
		echo "$$version" | .venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 \
			--generate-hashes --no-deps --no-emit-index-url --no-emit-find-links --no-annotate --no-header - \
			>>requirements/onnxruntime.txt || exit 1; \
	done
	rm -rf .venv-lock

clean: ## Remove the environments, the caches and what a build leaves.
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist packages/*/dist
	find packages tests examples tools docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
