"""A llama.cpp command line means to brim what it means to llama.cpp (common/arg.cpp and each program's main, b11434)."""

import pytest

from brim.engines.llama_cpp.command import read
from brim.engines.llama_cpp.defaults import ROWS
from brim.engines.llama_cpp.options import options
from brim.engines.llama_cpp.settings import APPLY, UNPRICED
from brim.errors import Usage

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


def words(line: str) -> list[str]:
    """A command line without quotes, as its words."""
    return line.split()


# (command, what the first workload must hold)
MEANS = [
    # the server's own defaults: slots auto is 4 on one shared cache; logits for the slots only
    ("llama-server -m a.gguf", {"slots": 4, "kv_unified": True, "outputs": 4, "ctx": 0, "batch": 2048, "ubatch": 512, "flash_attn": "auto", "gpu_layers": -1}),
    ("llama-server -m a.gguf -np 4", {"slots": 4, "kv_unified": False, "outputs": 4}),
    ("llama-server -m a.gguf -np -1", {"slots": 4, "kv_unified": True}),
    ("llama-server -m a.gguf -np 2 -kvu", {"slots": 2, "kv_unified": True, "outputs": 2}),
    ("llama-server -m a.gguf -no-kvu", {"slots": 4, "kv_unified": True}),  # auto sets it afterwards (server.cpp)
    ("llama-server -m a.gguf -c 32768 -np 4 -ngl 99", {"ctx": 32768, "slots": 4, "gpu_layers": 99}),
    ("llama-server -m a.gguf --ctx-size 4096 --ctx-size 8192", {"ctx": 8192}),
    ("llama-server -m a.gguf --ctx_size 4096", {"ctx": 4096}),  # underscores become dashes
    ("llama-server -m a.gguf -c 32k", {"ctx": 32}),  # std::stoi
    ("llama-server -m a.gguf -b 4096 -ub 1024", {"batch": 4096, "ubatch": 1024}),
    ("llama-server -m a.gguf -fa on", {"flash_attn": "on"}),
    ("llama-server -m a.gguf -fa 0", {"flash_attn": "off"}),
    ("llama-server -m a.gguf -fa -c 4096", {"flash_attn": "on", "ctx": 4096}),  # builds before August 2025
    ("llama-server -m a.gguf -ngl all", {"gpu_layers": -2}),
    ("llama-server -m a.gguf -ngl auto", {"gpu_layers": -1}),
    ("llama-server -m a.gguf -ngl 0", {"gpu_layers": 0}),
    ("llama-server -m a.gguf --gpu-layers 12", {"gpu_layers": 12}),
    ("llama-server -m a.gguf -ctk q8_0 -ctv q4_0", {"ctk": "q8_0", "ctv": "q4_0"}),
    ("llama-server -m a.gguf -nkvo --no-op-offload", {"kv_offload": False, "op_offload": False}),
    ("llama-server -m a.gguf -cmoe", {"override_tensors": ((EXPERTS, "CPU"),)}),
    ("llama-server -m a.gguf -ncmoe 12", {"cpu_experts": 12}),
    ("llama-server -m a.gguf -ncmoe 12 -ncmoe 3", {"cpu_experts": 12}),  # each adds overrides
    ("llama-server -m a.gguf -fa -1 -c 512", {"flash_attn": "auto", "ctx": 512}),  # a value, not an option
    ("llama-cli -m a.gguf -np 0", {"slots": 1}),
    ("llama-server -m a.gguf -ncffn 1", {"override_tensors": ((r"blk\.0\.ffn_(up|down|gate)\.", "CPU"),)}),
    ("llama-server -m a.gguf -ot exps=CPU -ot a=CUDA0,b=CUDA1", {"override_tensors": (("exps", "CPU"), ("a", "CUDA0"), ("b", "CUDA1"))}),
    ("llama-server -m a.gguf -sm row -ts 3,1 -mg 1", {"split_mode": "row", "tensor_split": (3.0, 1.0), "main_gpu": 1}),
    ("llama-server -m a.gguf -ts 3/1", {"tensor_split": (3.0, 1.0)}),
    ("llama-server -m a.gguf --swa-full", {"swa_full": True}),
    ("llama-server -m a.gguf", {"swa_full": False, "mmap": True, "fit": True, "ctx_checkpoints": 32, "cache_ram_mib": 8192}),
    ("llama-server -m a.gguf -cram 0 -ctxcp 4 -cms 256", {"cache_ram_mib": 0, "ctx_checkpoints": 4, "checkpoint_step": 256}),
    ("llama-server -m a.gguf -fit off", {"fit": False}),
    ("llama-server -m a.gguf -fitt 512 -fitc 8192", {"fit_target_mib": (512,), "fit_ctx": 8192}),
    ("llama-server -m a.gguf -lm none", {"mmap": False, "load_mode": "none"}),
    ("llama-server -m a.gguf -lm mmap+mlock", {"mmap": True, "load_mode": "mmap+mlock"}),
    ("llama-server -m a.gguf --no-mmap", {"mmap": False}),
    ("llama-server -m a.gguf --mlock", {"mmap": True, "load_mode": "mmap+mlock"}),
    ("llama-server -m a.gguf -nr --no-host", {"repack": False, "no_host": True}),
    ("llama-server -m a.gguf --kv-unified-per-slot 8192", {"ctx": 32768, "slots": 4}),
    ("llama-server -m a.gguf --kv-unified-per-slot 8192 -c 0", {"ctx": 0}),
    ("llama-server -m a.gguf --embedding", {"embeddings": True, "batch": 512, "outputs": 512}),
    ("llama-server -m a.gguf --rerank -ub 1024", {"embeddings": True, "pooling": "rank", "batch": 1024, "outputs": 1024}),
    ("llama-server -m a.gguf --pooling mean", {"outputs": 2048}),
    # drafts: rows of logits are slots × (1 + drafted tokens)
    ("llama-server -m a.gguf -np 2 --spec-type draft-mtp", {"outputs": 8, "rollback_rows": 3, "load_mtp": True}),
    ("llama-server -m a.gguf -np 1 --spec-type draft-mtp --spec-draft-n-max 2", {"outputs": 3, "rollback_rows": 2}),
    ("llama-server -m a.gguf -np 1 -md d.gguf --spec-type draft-simple", {"outputs": 4, "rollback_rows": 0, "draft_model": "d.gguf"}),
    ("llama-server -m a.gguf -np 1 -md d.gguf", {"outputs": 1, "draft_model": "d.gguf"}),  # without --spec-type nothing is drafted
    ("llama-server -m a.gguf -np 1 --spec-default", {"outputs": 65}),
    ("llama-server -m a.gguf -np 1 --spec-type ngram-map-k", {"outputs": 49}),
    ("llama-server -m a.gguf -np 64 --spec-default", {"outputs": 2048}),  # never above the batch
    ("llama-server -m a.gguf -hfd o/d:Q8_0 -ngld 5 -ctkd q8_0", {"draft_model": "hf:o/d:Q8_0", "draft_gpu_layers": 5, "draft_ctk": "q8_0"}),
    ("llama-server -m a.gguf -mm p.gguf --no-mmproj-offload --image-max-tokens 512", {"mmproj": "p.gguf", "mmproj_offload": False, "image_max_tokens": 512}),
    ("llama-server -m a.gguf --lora l.gguf,k.gguf --lora-scaled j.gguf:0.5", {"lora": ("l.gguf", "k.gguf", "j.gguf")}),
    ("llama-server --gpt-oss-20b-default", {"ctx": 262144, "slots": 2, "batch": 32768, "ubatch": 2048, "outputs": 2}),
    ("llama-server --fim-qwen-7b-default", {"ctx": 0, "batch": 1024, "ubatch": 1024, "slots": 4}),
    # options that take a value keep it, whatever it looks like
    ("llama-server -m a.gguf --chat-template -c -c 4096", {"ctx": 4096}),
    ("llama-server -m a.gguf --temp 0 --host 0.0.0.0 --port 8080 -c 4096", {"ctx": 4096}),
    ("llama-server -m a.gguf -n -1 -c 4096", {"ctx": 4096}),
    ("llama-server -m a.gguf --control-vector-layer-range 1 2 -c 4096", {"ctx": 4096}),
    # other programs
    ("llama-cli -m a.gguf", {"slots": 1, "kv_unified": False, "outputs": None}),
    ("llama-completion -m a.gguf -p -hello -c 4096", {"slots": 1, "outputs": None, "ctx": 4096}),
    ("llama-fit-params -m a.gguf -fitp on -c 4096", {"slots": 1, "outputs": None}),
    ("llama-perplexity -m a.gguf -f wiki.txt", {"ctx": 2048, "slots": 4, "batch": 2048, "outputs": None}),
    ("llama-perplexity -m a.gguf -f wiki.txt -c 8192", {"ctx": 8192, "slots": 1, "batch": 2048}),
    ("llama-perplexity -m a.gguf -f wiki.txt --hellaswag", {"slots": 4, "kv_unified": True, "ctx": 2048}),
    ("llama-imatrix -m a.gguf -f x -c 1024", {"slots": 2, "ctx": 2048}),
    ("llama-embedding -m a.gguf -p x", {"slots": 256, "kv_unified": True, "embeddings": True, "batch": 2048, "ubatch": 2048}),
    ("llama-embedding -m a.gguf -p x -c 8192 --attention causal", {"batch": 8192, "ubatch": 512}),
    ("llama-batched-bench -m a.gguf -c 16384 -npp 128 -ntg 128 -npl 1,2,8", {"ctx": 16384, "slots": 8, "kv_unified": False}),
    ("llama-speculative -m a.gguf -md d.gguf", {"outputs": 4, "draft_model": "d.gguf"}),
    ("llama-lookahead -m a.gguf", {"slots": 31, "kv_unified": True}),
    ("llama serve -m a.gguf -c 4096", {"program": "llama-server", "ctx": 4096}),
    ("llama server -m a.gguf", {"program": "llama-server"}),
    ("llama fit-params -m a.gguf", {"program": "llama-fit-params"}),
    # in front of the program
    ("./build/bin/llama-server -m a.gguf -c 512", {"ctx": 512}),
    ("C:\\llama\\llama-server.exe -m a.gguf -c 512", {"ctx": 512}),
    ("LLAMA_ARG_CTX_SIZE=512 llama-server -m a.gguf", {"ctx": 512}),
    ("env LLAMA_ARG_CTX_SIZE=512 nice -n 10 llama-server -m a.gguf", {"ctx": 512}),
    ("numactl --interleave=all llama-server -m a.gguf -c 512", {"ctx": 512}),
    ("taskset -c 0-3 llama-server -m a.gguf -c 512", {"ctx": 512}),
    ("timeout 60 llama-server -m a.gguf -c 512", {"ctx": 512}),
    ("docker run --gpus all -v /m:/m -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/a.gguf -c 512", {"ctx": 512, "slots": 4}),
    # packagings
    ("python -m llama_cpp.server --model a.gguf --n_ctx 8192 --n_gpu_layers -1", {"ctx": 8192, "gpu_layers": -2, "batch": 512, "swa_full": True}),
    ("python3 -m llama_cpp.server --model=a.gguf --type_k=8 --type_v 8 --flash_attn true", {"ctx": 2048, "ctk": "q8_0", "ctv": "q8_0", "flash_attn": "on"}),
    ("koboldcpp --model a.gguf --contextsize 16384 --gpulayers 33 --flashattention --quantkv 1", {"ctx": 16384, "gpu_layers": 33, "ctk": "q8_0"}),
    ("python koboldcpp.py a.gguf --useswa", {"ctx": 8192, "swa_full": False}),
    ("lms load some/model --context-length 8192 --gpu max", {"ctx": 8192, "gpu_layers": -2}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), MEANS, ids=[line for line, _ in MEANS])
def test_a_command_line_means_what_the_program_makes_of_it(line: str, expected: dict) -> None:
    """Each line's first workload holds what llama.cpp would hold."""
    command = read(words(line), {})
    assert command is not None
    held = {field: getattr(command.workloads[0], field) for field in expected}
    assert held == expected


MODELS = [
    ("llama-server -m dir/a.gguf", "dir/a.gguf"),
    ("llama-server --model a.gguf", "a.gguf"),
    ("llama-server -hf org/name", "hf:org/name"),
    ("llama-server -hf org/name:Q4_K_M", "hf:org/name:Q4_K_M"),
    ("llama-server -hf org/name -hff f.gguf", "hf:org/name:f.gguf"),
    ("llama-server -mu https://x/a.gguf", "https://x/a.gguf"),
    ("llama-server -m local.gguf -hf org/name", "hf:org/name"),
    ("llama-server", None),
    ("ollama run qwen3:8b", "ollama:qwen3:8b"),
    ("llama-bench -m a.gguf,b.gguf", "a.gguf"),
    ("docker run -v /data/models:/models:ro ghcr.io/ggml-org/llama.cpp:server -m /models/a.gguf", "/data/models/a.gguf"),
    ("docker run -v /m:/in -e LLAMA_ARG_MODEL=/in/a.gguf ghcr.io/ggml-org/llama.cpp:server-cuda -ngl 99", "/m/a.gguf"),
]


@pytest.mark.parametrize(("line", "model"), MODELS)
def test_the_model_is_found(line: str, model: str | None) -> None:
    """-m, -mu, -hf and -hff name the model in llama.cpp's order."""
    command = read(words(line), {})
    assert command is not None
    assert command.model == model


ENVIRONMENT = [
    ({"LLAMA_ARG_CTX_SIZE": "4096"}, "llama-server -m a", "ctx", 4096),
    ({"LLAMA_ARG_CTX_SIZE": "4096"}, "llama-server -m a -c 512", "ctx", 512),  # the word wins
    ({"LLAMA_ARG_KV_OFFLOAD": "0"}, "llama-server -m a", "kv_offload", False),
    ({"LLAMA_ARG_NO_KV_OFFLOAD": "anything"}, "llama-server -m a", "kv_offload", False),  # being there is enough
    ({"LLAMA_ARG_SWA_FULL": "1"}, "llama-server -m a", "swa_full", True),
    ({"LLAMA_ARG_SWA_FULL": "0"}, "llama-server -m a", "swa_full", False),
    ({"LLAMA_ARG_N_PARALLEL": "3"}, "llama-server -m a", "slots", 3),
    ({"LLAMA_ARG_FLASH_ATTN": "off"}, "llama-server -m a", "flash_attn", "off"),
    ({"LLAMA_ARG_N_GPU_LAYERS": "7"}, "llama-cli -m a", "gpu_layers", 7),
    ({"LLAMA_ARG_CTX_CHECKPOINTS": "3"}, "llama-perplexity -m a", "ctx_checkpoints", 0),  # no option of that program
    ({"OLLAMA_CONTEXT_LENGTH": "8192", "OLLAMA_KV_CACHE_TYPE": "q8_0", "OLLAMA_NUM_PARALLEL": "2"}, "ollama run x", "ctx", 16384),
    ({"N_CTX": "4096"}, "python -m llama_cpp.server --model a", "ctx", 4096),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "line", "field", "value"), ENVIRONMENT)
def test_the_environment_sits_below_the_words(environ: dict, line: str, field: str, value: object) -> None:
    """LLAMA_ARG_* variables apply, negated forms by being there, and a word goes before them."""
    command = read(words(line), environ)
    assert command is not None
    assert getattr(command.workloads[0], field) == value


REFUSED = [
    "llama-server -m a.gguf -c",
    "llama-server -m a.gguf -c many",
    "llama-server -m a.gguf -fa maybe",
    "llama-server -m a.gguf -ctk q3_0",
    "llama-server -m a.gguf -np 0",
    "llama-server -m a.gguf -sm diagonal",
    "llama-server -m a.gguf -ot nothing",
    "llama-server -m a.gguf --spec-type magic",
    "llama-server -m a.gguf -ncmoe -3",
    "llama-server -m a.gguf --lora-scaled a.gguf",
    "llama-bench -m a.gguf -p 1-2-3-x",
    "llama-bench -m a.gguf -p 1-8*1",
    "llama-bench -m a.gguf -ctk q3_K",
    "llama-bench -m a.gguf -pg 512",
]  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_what_llama_cpp_refuses_is_a_usage_error_that_names_the_option(line: str) -> None:
    """A value that is missing or cannot be read is one clear sentence, with the option in it."""
    with pytest.raises(Usage, match=r"-\w"):
        read(words(line), {})


def test_unknown_options_are_kept_and_known_ones_told_from_them() -> None:
    """An option nobody knows is listed with its words; one that holds no memory is not; one that may hold memory is."""
    command = read(words("llama-server -m a.gguf --moon-phase full --temp 0.7 --rpc host:50052 -c 4096"), {})
    assert command is not None
    assert command.unpriced == ("--moon-phase full", "--rpc host:50052")
    assert command.workloads[0].ctx == 4096


@pytest.mark.parametrize("option", ["--host 0.0.0.0", "--no-ui", "--draft-min 3", "--no-mmap"])
def test_an_option_that_ends_the_program_is_said(option: str) -> None:
    """llama-cli at b11434 has no --host, --draft-min is removed, --no-mmap is an old spelling: the engine would end, and a caveat says so."""
    command = read(words(f"llama-cli -m a.gguf {option}"), {})
    assert command is not None
    assert any(option.split(maxsplit=1)[0] in line for line in command.caveats)


def test_equals_is_not_llama_cpps_spelling() -> None:
    """--ctx-size=4096 ends llama.cpp; brim prices what was meant and says it."""
    command = read(words("llama-server -m a.gguf --ctx-size=4096"), {})
    assert command is not None
    assert command.workloads[0].ctx == 4096
    assert any("--ctx-size=4096" in line for line in command.caveats)


def test_foreign_commands_are_not_ours() -> None:
    """A program that is none of llama.cpp's or its packagings' is None, not a guess."""
    for line in ("python train.py", "vllm serve x", "ls", "ollama list", "lms ps", ""):
        assert read(words(line), {}) is None


def test_llama_bench_makes_every_combination_once() -> None:
    """Lists and ranges multiply; the context of each test is prompt + generated + depth; whole batches of logits."""
    command = read(words("llama-bench -m a.gguf -p 512,1024 -n 128 -pg 256,64 -d 0,4096 -ctk f16,q8_0 -fa on -ngl 99,0 -nkvo 0"), {})
    assert command is not None
    contexts = {512, 1024, 128, 320, 4608, 5120, 4224, 4416}
    assert {one.ctx for one in command.workloads} == contexts
    assert len(command.workloads) == len(contexts) * 2 * 2
    assert {one.kv_offload for one in command.workloads} == {True}
    assert all(one.outputs is None and one.slots == 1 and one.swa_full is False for one in command.workloads)


RANGES = [("128-512", 385), ("128-512+128", 4), ("1-64*2", 7), ("5", 1), ("1,2,4-8+2", 5)]


@pytest.mark.parametrize(("text", "count"), RANGES)
def test_llama_bench_reads_ranges(text: str, count: int) -> None:
    """first-last, +step and *mult (llama-bench.cpp parse_int_range)."""
    command = read(["llama-bench", "-m", "a.gguf", "-p", text, "-n", "0"], {})
    assert command is not None
    assert len(command.workloads) == count


def test_devices_are_the_engines_names() -> None:
    """--device CUDA0,CUDA1 and none; CUDA_VISIBLE_DEVICES beside them."""
    command = read(words("CUDA_VISIBLE_DEVICES=1,0 llama-server -m a.gguf -dev CUDA0,CUDA1"), {"CUDA_VISIBLE_DEVICES": "0"})
    assert command is not None
    assert command.devices == ("CUDA0", "CUDA1")
    assert command.visible == ("1", "0")
    none = read(words("llama-server -m a.gguf -dev none"), {"CUDA_VISIBLE_DEVICES": "1"})
    assert none is not None
    assert none.devices == ()
    assert none.visible is None  # it was there before the command: the probe has already applied it


def test_secrets_are_not_kept() -> None:
    """A token or key on the line or in the environment never reaches the command's record."""
    command = read(words("llama-server -m a.gguf --api-key sesame -hft hf_secret"), {"HF_TOKEN": "hf_other", "LLAMA_API_KEY": "open"})
    assert all(secret not in repr(command) for secret in ("sesame", "hf_secret", "hf_other", "open"))


def test_every_setter_belongs_to_a_known_option() -> None:
    """No setter can be dead: its name is a canonical name in the table; every defaults row has its source."""
    names = {option.name for option in options()[1]}
    assert set(APPLY) <= names
    assert names >= UNPRICED
    assert all(row.source for row in ROWS.values())


def test_a_file_beside_a_repository_is_kept_as_where_to_find_it() -> None:
    command = read(["llama-server", "-m", "x.gguf", "-hf", "o/n"], {})
    assert command is not None
    assert command.local_file == "x.gguf"
    assert command.mmproj_auto


@pytest.mark.parametrize(
    ("version", "wanted"),
    [(5192, ("off", 1, 4096, 0)), (6325, ("auto", 1, 4096, 0)), (6925, ("auto", 4, 4096, 8192)), (7410, ("auto", 4, 0, 8192)), (11434, ("auto", 4, 0, 8192))],
)
def test_older_builds_have_older_defaults(version, wanted) -> None:
    """llama-server where its user says nothing: flash attention, slots, context and the prompt cache on the host, build by build."""
    from brim.engines.llama_cpp.defaults import resolve
    from brim.facts.workload import LlamaWorkload

    filled, _ = resolve(LlamaWorkload(), version)
    assert (filled.flash_attn, filled.slots, filled.ctx, filled.cache_ram_mib) == wanted
    assert resolve(LlamaWorkload(program="ollama"), version) == resolve(LlamaWorkload(program="ollama"))


@pytest.mark.parametrize(
    ("day", "low", "high"), [((2025, 1), 4400, 4520), ((2025, 5, 20), 5400, 5470), ((2026, 5, 28), 9290, 9420), ((2026, 12, 1), 11434, 11434)]
)
def test_a_day_stands_for_its_newest_build(day, low, high) -> None:
    """Days between known builds give a number between theirs; days from after the newest give that one."""
    from brim.engines.llama_cpp.builds import build_on

    assert low <= build_on(*day) <= high


@pytest.mark.parametrize("day", [(2023, 5), (2025, 13), (2025, 0), (2025, 6, 32)])
def test_a_day_without_a_build_gives_none(day) -> None:
    """Months and days that there are not, and times from before the first known build."""
    from brim.engines.llama_cpp.builds import build_on

    assert build_on(*day) is None
