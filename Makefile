# What a person runs here. CONTRIBUTING.md explains the targets; the build itself is CMake's.
.PHONY: demo test test-asan test-tsan test-planted test-wheel bench conformance format docs clean system-packages
.SILENT:
.DELETE_ON_ERROR:

PYTHON ?= python3
JOBS ?= $(shell nproc)
SYSTEM_PACKAGES = tools/system_packages.sh

# What pip installs stands in pyproject.toml, and is installed again when that changes; `docs` for `make docs` alone.
READY = .venv/.ready
REQUIREMENTS = import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  extras = p["optional-dependencies"]; docs = extras.pop("docs"); \
  print(*(docs if "docs" in sys.argv else p["dependencies"] + sum(extras.values(), [])), sep="\n")
IN_VENV = . .venv/bin/activate &&
BUILT_PACKAGE = PYTHONPATH=$(CURDIR)/build/release/python

demo: build-release-gradwire_package
	$(IN_VENV) $(BUILT_PACKAGE) OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 3 examples/parameter_server.py

test: system-packages build-release-all
	$(IN_VENV) python tools/tidy.py
	$(IN_VENV) ruff check -q . && ruff format -q --check . && echo "ruff: clean"
	$(IN_VENV) ctest --preset release -j $(JOBS)
	$(IN_VENV) MYPYPATH=python mypy python/gradwire
	$(IN_VENV) $(BUILT_PACKAGE) pytest tests/python

test-asan test-tsan: test-%: system-packages build-%-all
	$(IN_VENV) ctest --preset $* -j $(JOBS)

# Whether the simulated jobs notice mistakes that are planted in the library (tests/sim/planted_test.cc).
test-planted: system-packages build-planted-planted_tests
	build/planted/tests/planted_tests --gtest_brief=1

# The package as `pip install .` gives it, away from the source tree.
test-wheel: $(READY)
	rm -rf build/wheels build/wheel_test
	$(IN_VENV) CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) pip wheel --quiet --disable-pip-version-check --no-build-isolation \
	  --no-deps --wheel-dir build/wheels .
	$(IN_VENV) pip install --quiet --disable-pip-version-check --no-deps --target build/wheel_test build/wheels/*.whl
	$(IN_VENV) PYTHONPATH=$(CURDIR)/build/wheel_test pytest tests/python/test_calls.py

bench: build-release-all
	$(IN_VENV) $(BUILT_PACKAGE) python benchmarks/add.py

# PyTorch's own tests of its RPC, on gradwire. FLAGS='--start spawn --select test_add' and the like narrow it.
CONFORMANCE = python run_suite.py --target gradwire.compat --compare baseline.tsv --exclude not_applicable.tsv profiling.tsv
CONFORMANCE_TESTS = ^((TensorPipeAgent|Jit|FaultyAgent|ReinforcementLearning|)RpcTest|ParameterServerTest|(TensorPipeAgent|FaultyAgent|)DistAutogradTest|DistOptimizerTest|(ThreeWorkers|)RemoteModuleTest|DdpUnderDistAutogradTest|DdpComparisonTest)
conformance: build-release-gradwire_package
	$(IN_VENV) cd tests/conformance && $(BUILT_PACKAGE) $(CONFORMANCE) --select '$(CONFORMANCE_TESTS)' $(FLAGS)

format: $(READY)
	git ls-files '*.cc' '*.h' | xargs clang-format -i
	$(IN_VENV) ruff format . && ruff check --fix .

# The reference of both APIs. A warning is an error. BackendType is made when it is asked for, and pdoc does not ask.
PYTHON_DOCS = import pathlib, pdoc, gradwire.rpc as rpc; rpc.BackendType = rpc.BackendType; \
  pdoc.render.configure(docformat="google"); \
  pdoc.pdoc("gradwire", "!gradwire.compat", "!gradwire._C", output_directory=pathlib.Path("build/docs/python"))
docs: build-release-gradwire_package
	$(SYSTEM_PACKAGES) docs
	.venv/bin/python -c '$(REQUIREMENTS)' docs > .venv/docs.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/docs.txt
	rm -rf build/docs && mkdir -p build/docs
	$(IN_VENV) $(BUILT_PACKAGE) python -W error -c '$(PYTHON_DOCS)'
	doxygen docs/Doxyfile
	echo "build/docs/python/index.html, build/docs/cpp/index.html"

clean:
	rm -rf build

# build-<preset>-<CMake target>
build-%: $(READY)
	$(IN_VENV) tools/build.sh $(firstword $(subst -, ,$*)) $(lastword $(subst -, ,$*)) $(JOBS)

system-packages:
	$(SYSTEM_PACKAGES) tests

$(READY): pyproject.toml
	$(SYSTEM_PACKAGES)
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	echo "installing Python packages into .venv"
	.venv/bin/python -c '$(REQUIREMENTS)' > .venv/requirements.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/requirements.txt
	touch $@
