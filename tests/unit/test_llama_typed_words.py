"""Command lines as people type them in public threads and configurations (llama.cpp, ik_llama.cpp, llama-swap, koboldcpp, Ollama): what holds memory is understood.

Only the words are facts; paths are shortened. `${PORT}` stands where llama-swap puts its own number.
"""

import shlex

import pytest

from brim.engines.llama_cpp.command import Command, read
from brim.errors import Usage

IMAGE = "ghcr.io/ggml-org/llama.cpp"
DIGEST = "sha256:" + "0123456789abcdef" * 4

# (line, what it must mean: fields of the first workload, or of the command where it has one of that name; `runs` counts the workloads)
TYPED: "list[tuple[str, dict[str, object]]]" = [
    (
        "llama-server --host 127.0.0.1 --port 61443 --model m.gguf --ctx-size 8192 --threads 16 --batch-size 2048 --ubatch-size 2048 --jinja "
        "--reasoning-format deepseek -lv 4",
        {"model": "m.gguf", "ctx": 8192, "batch": 2048, "ubatch": 2048, "slots": 4, "unpriced": ()},
    ),
    (
        "llama-server --model m.gguf --port 39083 --no-webui --offline -c 4096 -np 1 --log-verbosity 4 --no-log-prefix --no-log-timestamps --load-mode none "
        "--flash-attn auto --embedding -b 2048 -ub 2048 --context-shift --keep 4",
        {"ctx": 4096, "slots": 1, "embeddings": True, "mmap": False, "flash_attn": "auto", "ubatch": 2048, "unpriced": ()},
    ),
    (
        "./llama-server -m m.gguf --port 8888 --jinja --n-predict -1 --n-gpu-layers 99 --flash-attn off --temp 0.7 --ctx-size 32768 --mlock --ubatch-size 512 "
        "--batch-size 2048 --cache-reuse 512 --cache-ram -1 --ctx-checkpoints 16 --offline --parallel 1 --kv-unified --context-shift --prio-batch 3 --prio 3 "
        "--no-mmap --alias X",
        {"ctx": 32768, "slots": 1, "flash_attn": "off", "gpu_layers": 99, "cache_ram_mib": -1, "ctx_checkpoints": 16, "mmap": False, "unpriced": ()},
    ),
    (
        r'./llama-server --model m.gguf --alias X -fa -fmoe -rtr -c 40960 -ctk q8_0 -ctv q8_0 --threads 8 --no-kv-offload -ot "blk\.\d+\.attn=CUDA2" '
        r'-ot "blk\.(0|1|2)\.=CUDA0"',
        {
            "flash_attn": "on", "ctx": 40960, "ctk": "q8_0", "ctv": "q8_0", "kv_offload": False, "unpriced": ("-fmoe", "-rtr"),
            "override_tensors": ((r"blk\.\d+\.attn", "CUDA2"), (r"blk\.(0|1|2)\.", "CUDA0")),
        },
    ),
    (
        r'CUDA_VISIBLE_DEVICES="1,2,0" ./build/bin/llama-server --model m.gguf -ngl 64 -c 131072 -mla 3 -fa -amb 512 -fmoe -t 32 -ctk q8_0 '
        r'-ot "blk\.[0-7]\..*_exps\.=CUDA2,exps=CPU" --parallel 1 --numa distribute -ser 7,1 -b 4096 -ub 4096 --no-mmap -ts 1,1,0',
        {
            "visible": ("1", "2", "0"), "ctx": 131072, "gpu_layers": 64, "tensor_split": (1.0, 1.0, 0.0), "ubatch": 4096, "slots": 1,
            "override_tensors": ((r"blk\.[0-7]\..*_exps\.", "CUDA2"), ("exps", "CPU")), "unpriced": ("-mla 3", "-amb 512", "-fmoe", "-ser 7,1"),
        },
    ),
    (
        "CUDA_VISIBLE_DEVICES=0,1,2,3 numactl --interleave=all ./bin/llama-sweep-bench -m m.gguf -t 48 -c 32768 --numa distribute -ngl 94 -ctk q8_0 -ctv q8_0 "
        "-rtr -ub 1024 -ot exps=CPU",
        {"ctx": 32768, "gpu_layers": 94, "ubatch": 1024, "visible": ("0", "1", "2", "3"), "unpriced": ("-rtr",)},
    ),
    (
        "LD_LIBRARY_PATH=/x GGML_HEXAGON_NDEV=4 ./bin/llama-cli --no-mmap -m m.gguf -t 4 --ctx-size 8192 --batch-size 128 -ctk q8_0 -ctv q8_0 -fa on -ngl 99 "
        "--device HTP0,HTP1,HTP2,HTP3 -no-cnv -f surfing.txt",
        {"devices": ("HTP0", "HTP1", "HTP2", "HTP3"), "batch": 128, "ctk": "q8_0", "ctx": 8192, "mmap": False},
    ),
    (r"llama-cli.exe --model d:\\m.gguf --cache-type-k q5_0 --threads 16 --n-gpu-layers 5 --prompt '…'", {"model": r"d:\m.gguf", "ctk": "q5_0", "gpu_layers": 5}),
    (r"'C:\llama.cpp\build\bin\Release\llama-server.exe' -m 'C:\m.gguf' -c 8192 -ngl 99", {"program": "llama-server", "model": r"C:\m.gguf", "ctx": 8192}),
    ("./main -m m.gguf -n 400 -e -p 'What are you?'", {"program": "llama-completion", "model": "m.gguf"}),
    ("./server -m m.gguf -c 2048 -ngl 33", {"program": "llama-server", "ctx": 2048, "gpu_layers": 33}),
    ("./perplexity -m m.gguf -f wiki.test.raw -c 512", {"program": "llama-perplexity", "ctx": 2048, "slots": 4}),
    ("./build/bin/llama-cli -hf ggml-org/gpt-oss-20b-GGUF --ctx-size 0 --jinja -ub 2048 -b 2048", {"model": "hf:ggml-org/gpt-oss-20b-GGUF", "ctx": 0}),
    ("llama-server --hf-repo o/starcoder-Q5_K_M-GGUF --hf-file starcoder-q5_k_m.gguf -c 2048", {"model": "hf:o/starcoder-Q5_K_M-GGUF:starcoder-q5_k_m.gguf"}),
    ("llama-server -m m.gguf -c 131072 -np 1 -ngl 26 -b 1024 -ub 1024 --host 0.0.0.0", {"ctx": 131072, "slots": 1, "gpu_layers": 26, "batch": 1024, "ubatch": 1024}),
    (
        "llama-server -m m.gguf --ctx-size 16384 --parallel 1 --batch-size 512 --ubatch-size 128 --flash-attn auto --no-context-shift --n-predict 2048 --jinja "
        "--reasoning off --chat-template-kwargs '{\"enable_thinking\":false}' --temp 0.2 --top-p 0.9",
        {"ctx": 16384, "batch": 512, "ubatch": 128, "unpriced": ()},
    ),
    # llama-swap's `cmd:` lines
    (
        "/home/u/llama-server --port ${PORT} --model m.gguf -ngl 99 -c 8192 --flash-attn on -np 1 -t 4 --mlock --direct-io --jinja --no-context-shift",
        {"ctx": 8192, "flash_attn": "on", "mmap": False, "unpriced": ()},
    ),
    (
        "/app/llama-server --port ${PORT} -hf b/google_gemma-4-E2B-it-GGUF:Q4_K_M -ngl 99 --ctx-size 8192 --jinja --flash-attn on --cache-type-k q8_0 "
        "--cache-type-v q8_0",
        {"model": "hf:b/google_gemma-4-E2B-it-GGUF:Q4_K_M", "ctk": "q8_0", "ctv": "q8_0", "mmproj_auto": True},
    ),
    ("llama-server --port ${PORT} -m x.gguf -c 8192 -ngl 99 --embedding", {"embeddings": True, "ctx": 8192}),
    ("llama-server --port ${PORT} --model m.gguf --n-gpu-layers 999 --ctx-size 262144 --split-mode none --main-gpu 0", {"split_mode": "none", "main_gpu": 0}),
    (
        "llama-server -hf C/gpt-oss-120b-GGUF --hf-file x.gguf --port ${PORT} --ctx-size 65536 --batch-size 512 --ubatch-size 512 --split-mode layer "
        "--tensor-split 1.3,3 --n-cpu-moe 24 --threads 8 --chat-template-kwargs '{\"reasoning_effort\": \"high\"}' --jinja",
        {"model": "hf:C/gpt-oss-120b-GGUF:x.gguf", "tensor_split": (1.3, 3.0), "cpu_experts": 24, "ubatch": 512, "unpriced": ()},
    ),
    (
        "llama-server --port ${PORT} --model m.gguf --alias a --mmproj p.gguf --flash-attn on --parallel 5 --jinja --ctx-size 131072 --ctx-checkpoints 128 "
        "--timeout 1200 --kv-unified",
        {"mmproj": "p.gguf", "slots": 5, "kv_unified": True, "ctx_checkpoints": 128},
    ),
    ("llama-server -hf Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M --port 8080 -c 8192", {"model": "hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", "ctx": 8192}),
    (
        "llama-server -hf g/Qwen3.8-27B-GGUF:Q4_K_M -hfd i/Qwen3.8-27B-DFlash2-GGUF:Q4_K_M --spec-type draft-dflash --spec-draft-n-max 7",
        {"draft_model": "hf:i/Qwen3.8-27B-DFlash2-GGUF:Q4_K_M", "spec_types": ("draft-dflash",), "draft_max": 7},
    ),
    ("llama-server -hf u/Qwen3.6-35B-A3B-MTP-GGUF:UD-Q4_K_XL -c 65536 --spec-type draft-mtp --spec-draft-n-max 2", {"spec_types": ("draft-mtp",), "draft_max": 2}),
    ("llama-server -hf u/Qwen3.5-9B-GGUF:Q4_K_M --no-mmproj -c 8192 --port 8080", {"mmproj_auto": False, "ctx": 8192}),
    (
        "LLAMA_CACHE=/d GGML_CUDA_FORCE_MMQ=true GGML_CUDA_ENABLE_UNIFIED_MEMORY=1 ./llama-server -hf u/Qwen3.5-35B-A3B-GGUF:Q8_0 -c 262144 -ngl 99 "
        "--split-mode layer --tensor-split 1,1 --main-gpu 0 --cont-batching --prio 3 --min_p 0.00 --threads 8",
        {"ctx": 262144, "tensor_split": (1.0, 1.0), "gpu_layers": 99, "unpriced": ()},
    ),
    (
        "llama-server -m m.gguf --model-draft d.gguf --spec-type draft-mtp --spec-draft-n-max 3 --spec-draft-p-min 0.1 --ctx-size 32768 --ubatch-size 512 -ngl 999 "
        "-ngld 999 -fa on --parallel 1 --cache-type-k q8_0 --cache-type-v q5_1 --cache-ram 0 --jinja",
        {"draft_model": "d.gguf", "draft_gpu_layers": 999, "ctv": "q5_1", "cache_ram_mib": 0, "unpriced": ()},
    ),
    ("llama-server -m m.gguf -md d.gguf -ngl 99 -ngld 99 --draft-max 16 --draft-min 5 -cd 4096 -devd CUDA1", {"draft_model": "d.gguf", "draft_max": 16, "unpriced": ("-cd 4096",)}),
    ('llama-server -m m.gguf -ot ".ffn_.*_exps.=CPU" -ngl 99', {"override_tensors": ((".ffn_.*_exps.", "CPU"),)}),
    ('llama-server -m m.gguf -ot "blk.(0|1).ffn_.*=CUDA0" --override-tensor exps=CPU', {"override_tensors": (("blk.(0|1).ffn_.*", "CUDA0"), ("exps", "CPU"))}),
    ("llama-server -m m.gguf --n_gpu_layers 20 --ctx_size 4096 --flash_attn on", {"gpu_layers": 20, "ctx": 4096, "flash_attn": "on"}),
    ("llama-server -m m.gguf --rpc 192.168.1.2:50052,192.168.1.3:50052 -ngl 99 -c 4096", {"unpriced": ("--rpc 192.168.1.2:50052,192.168.1.3:50052",)}),
    ("llama-server -m m.gguf -ngl 99 -c 16384 -dev none", {"devices": ()}),
    ("llama-server -m m.gguf --embedding --pooling mean -c 8192 -b 8192 -ub 8192", {"embeddings": True, "pooling": "mean", "ubatch": 8192}),
    ("llama-server --models-dir /models --models-max 2 -c 8192", {"model": None, "unpriced": ("--models-dir /models",)}),
    ("llama-perplexity -m m.gguf -ctk q8_0 -fa on -ngl 99 -f wiki.test.raw -c 512 --chunks 20", {"ctk": "q8_0", "ctx": 2048, "slots": 4}),
    ("llama-imatrix -m m.gguf -f cal.txt -o im.dat -ngl 99 -c 512 --chunks 100", {"ctx": 2048, "slots": 4, "gpu_layers": 99}),
    ("llama-batched-bench -m m.gguf -c 16384 -b 2048 -ub 512 -npp 128,256 -ntg 128 -npl 1,2,4,8", {"slots": 8, "ctx": 16384}),
    # variables and what stands before the program
    (
        "LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_N_PARALLEL=2 LLAMA_ARG_CACHE_RAM=0 LLAMA_ARG_KV_UNIFIED=1 LLAMA_ARG_CACHE_TYPE_K=q8_0 LLAMA_ARG_CACHE_TYPE_V=q8_0 "
        "LLAMA_ARG_FLASH_ATTN=1 llama-server -m m.gguf",
        {"ctx": 4096, "slots": 2, "cache_ram_mib": 0, "kv_unified": True, "ctk": "q8_0", "ctv": "q8_0", "flash_attn": "on"},
    ),
    ('sudo -E env "PATH=$PATH" ./llama-server -m m.gguf -c 4096 -ngl 10', {"ctx": 4096, "gpu_layers": 10}),
    ("numactl --cpunodebind 0 --membind 0 ./llama-server -m m.gguf -c 2048", {"ctx": 2048}),
    ("taskset -c 0-15 ./llama-cli -m m.gguf -t 16 -c 2048 -n 128", {"ctx": 2048}),
    ("sh -c 'exec llama-server -m m.gguf -c 4096 -ngl 99'", {"ctx": 4096, "gpu_layers": 99}),
    *((f"bash -c 'llama-server -m m.gguf -c 4096 {rest}'", {"ctx": 4096, "unpriced": ()}) for rest in ("2>&1", "2>/dev/null", "&> log", "|& tee log", "2>&1 | tee log")),
    ("bash -c '\n  llama-server \\\n -m m.gguf \\\n\t-c 4096\n'", {"ctx": 4096, "unpriced": ()}),
    ("bash -lc \"CUDA_VISIBLE_DEVICES=1 ./llama-server -m m.gguf -c 4096 -ot 'blk.(0|1)=CPU' > /tmp/log 2>&1\"", {"ctx": 4096, "visible": ("1",), "override_tensors": (("blk.(0|1)", "CPU"),)}),
    ("gdb -ex run --args ./llama-server -m m.gguf -c 4096", {"ctx": 4096}),
    ("screen -dmS llm ./llama-server -m m.gguf -c 4096", {"ctx": 4096}),
    ("prime-run ./llama-server -m m.gguf -c 4096", {"ctx": 4096}),
    ("conda run -n llama python -m llama_cpp.server --model m.gguf --n_ctx 4096", {"engine": "llama-cpp-python", "ctx": 4096}),
    # containers
    (
        "docker run -d --name llama-server -p 5006:5006 -v /data:/app llamacppserver:v2 llama-server --jinja -fa on -m /app/Q.gguf "
        "--chat-template-file /app/t.jinja --host 0.0.0.0 --port 5006",
        {"program": "llama-server", "model": "/data/Q.gguf", "flash_attn": "on"},
    ),
    ('docker run --gpus all -v /p:/models local/llama.cpp:full-cuda --run -m /models/7B/m.gguf -p "x" -n 512 --n-gpu-layers 1', {"program": "llama-completion", "model": "/p/7B/m.gguf"}),
    ('docker run --gpus all -v /p:/models local/llama.cpp:light-cuda -m /models/7B/m.gguf -p "x" -n 512', {"program": "llama-cli", "model": "/p/7B/m.gguf"}),
    (f"docker run -p 8080:8080 --gpus all -v /p:/models {IMAGE}:server-cuda -m /models/x.gguf -c 32768 -ngl 999 -np 1", {"model": "/p/x.gguf", "ctx": 32768, "slots": 1}),
    (
        "docker run --rm -it --gpus all -v /p:/models -e LLAMA_ARG_CTX_SIZE=4096 -e LLAMA_ARG_N_PARALLEL=3 --env=LLAMA_ARG_N_GPU_LAYERS=999 "
        f"-e LLAMA_ARG_FLASH_ATTN=1 -e LLAMA_ARG_MODEL=/models/x.gguf {IMAGE}:server-cuda",
        {"model": "/p/x.gguf", "ctx": 4096, "slots": 3, "gpu_layers": 999, "flash_attn": "on"},
    ),
    (f"docker run --gpus all -v /p:/models {IMAGE}:server-cuda@{DIGEST} -m /models/x.gguf -c 4096", {"program": "llama-server", "ctx": 4096}),
    (f"docker run -v /m:/models --entrypoint /app/llama-bench {IMAGE}:full-cuda -m /models/m.gguf -p 512 -n 0", {"program": "llama-bench", "model": "/m/m.gguf", "runs": 1}),
    (f"docker run --rm --volume=/m:/models:ro {IMAGE}:full --bench -m /models/m.gguf -ngl 99 -n 0", {"program": "llama-bench", "model": "/m/m.gguf"}),
    (f"docker run --env CUDA_VISIBLE_DEVICES=1 --mount type=bind,source=/m,target=/models {IMAGE}:server-cuda-b6500 -m /models/m.gguf", {"model": "/m/m.gguf", "visible": ("1",)}),
    (f"docker run -v 'C:\\llm:/models' {IMAGE}:server -m /models/m.gguf", {"model": r"C:\llm/m.gguf"}),
    (f"podman run --device nvidia.com/gpu=all --security-opt=label=disable --replace -v ./models:/models:Z {IMAGE}:server-vulkan -m /models/m.gguf -c 8192", {"model": "./models/m.gguf"}),
    ("docker exec -it ollama ollama run llama3.2", {"model": "ollama:llama3.2"}),
    ("docker run -d -p 11434:11434 -e OLLAMA_CONTEXT_LENGTH=16384 -e OLLAMA_KV_CACHE_TYPE=q8_0 -e OLLAMA_FLASH_ATTENTION=1 ollama/ollama:rocm", {"engine": "ollama", "ctx": 16384, "ctk": "q8_0"}),
    # llama-bench
    ("llama-bench -m m.gguf -ngl 99 -ctk q8_0 -ctv q8_0 -fa 1 -ncmoe 24 -p 512 -n 128 -r 3 -o csv", {"ctk": "q8_0", "flash_attn": "on", "cpu_experts": 24, "runs": 2}),
    ("llama-bench -m m.gguf -pg 512,128 -t 16 -r 40 -o csv", {"runs": 3}),
    ("llama-bench -m m.gguf -t 16,24,32 --poll 0,100 -b 2048 -ub 2048 -p 0 -n 64 -r 3 --progress -mmp 0 --no-host 1", {"mmap": False, "no_host": True, "runs": 1}),
    ("llama-bench -m m.gguf -ngl 0,10,20 -b 256,512 -ub 128 -d 0,4096 -sm none -mg 1", {"runs": 24, "split_mode": "none", "main_gpu": 1}),
    # koboldcpp
    ("python koboldcpp.py --model m.gguf --usevulkan 0 --gpulayers 999", {"engine": "koboldcpp", "model": "m.gguf", "gpu_layers": 999, "ctx": 8192}),
    ("./koboldcpp --model m.gguf --port 5001 --usevulkan --gpulayers 32", {"gpu_layers": 32}),
    ("python koboldcpp.py --model m.gguf --rpc 192.168.1.16:50052 --gpulayers 999", {"unpriced": ("--rpc 192.168.1.16:50052",)}),
    ("nohup /opt/koboldcpp/koboldcpp-linux-x64 --model m.gguf --port 5001", {"model": "m.gguf"}),
    (
        "koboldcpp.exe --model m.gguf --usecublas normal 0 mmq --gpulayers 43 --contextsize 16384 --flashattention --quantkv 1 --blasbatchsize 1024",
        {"ctx": 16384, "flash_attn": "on", "ctk": "q8_0", "ctv": "q8_0", "batch": 1024, "gpu_layers": 43},
    ),
    # llama-cpp-python's server
    ("python -m llama_cpp.server --model m.gguf --host 0.0.0.0 --port 1234 --n_gpu_layers -1", {"gpu_layers": -2, "ctx": 2048, "unpriced": ()}),
    ("python -m llama_cpp.server --model m.gguf --n_gpu_layers -1 --tensor_split 0.7 0.3 --chat_format alpaca", {"tensor_split": (0.7, 0.3), "unpriced": ()}),
    (
        "systemd-run --user --scope --slice=a.slice -p MemoryMax=7G --setenv=CUDA_VISIBLE_DEVICES=0 python -m llama_cpp.server --model m.gguf --n_gpu_layers -1 "
        "--n_ctx 4096 --chat_format chatml",
        {"visible": ("0",), "ctx": 4096},
    ),
    ("MODEL=m.gguf python -m llama_cpp.server --n_gpu_layers=64", {"model": "m.gguf", "gpu_layers": 64}),
    ("python3 -m llama_cpp.server --model m.gguf --n_ctx 8192 --type_k 8 --type_v 8 --flash_attn true", {"ctk": "q8_0", "ctv": "q8_0", "flash_attn": "on"}),
    ("python3 -m llama_cpp.server --hf_model_repo_id Q/Qwen2-0.5B-Instruct-GGUF --model '*q8_0.gguf'", {"model": "hf:Q/Qwen2-0.5B-Instruct-GGUF:q8_0"}),
    ("python3 -m llama_cpp.server --model m.gguf --cache true --n_seq_max 4", {"unpriced": ("--cache true", "--n_seq_max 4")}),
    # Ollama and LM Studio
    ("OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 OLLAMA_KEEP_ALIVE=-1 ollama serve", {"ctk": "q8_0", "ctv": "q8_0", "flash_attn": "on", "model": None}),
    ("OLLAMA_NUM_PARALLEL=4 OLLAMA_CONTEXT_LENGTH=8192 ollama run qwen2.5:7b --verbose", {"model": "ollama:qwen2.5:7b", "slots": 4, "ctx": 32768}),
    ("OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=0 ollama run qwen2.5:7b", {"flash_attn": "off", "ctk": "f16", "ctv": "f16"}),
    ("ollama run llama3.1:70b-instruct-q4_0 --keepalive 1h 'hi'", {"model": "ollama:llama3.1:70b-instruct-q4_0"}),
    ("lms load qwen2.5-7b-instruct --gpu=max --context-length=8192", {"model": "qwen2.5-7b-instruct", "ctx": 8192, "gpu_layers": -2}),
]  # fmt: skip


def typed(line: str) -> "Command | None":
    """What brim reads from a line as a shell would hand it over."""
    return read(shlex.split(line.replace("${PORT}", "5800")), {})


def test_there_are_enough_lines() -> None:
    assert len(TYPED) >= 80


@pytest.mark.parametrize(("line", "means"), TYPED, ids=[line[:60] for line, _ in TYPED])
def test_means(line: str, means: "dict[str, object]") -> None:
    command = typed(line)
    assert command is not None
    for name, value in means.items():
        if name == "runs":
            assert len(command.workloads) == value
        else:
            assert getattr(command if hasattr(command, name) else command.workloads[0], name) == value, name


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("llama-server -m m.gguf -ctk turbo3 -ctv turbo3", "turbo3"),  # a fork's cache type
        ("llama-server -m m.gguf -ctk q8_1", "q8_1"),
        ("llama-server -m m.gguf -ngl", "needs a value"),
        ("llama-server -m m.gguf --n-cpu-moe abc", "no whole number"),
        ("llama-server -m m.gguf -sm rows", "rows"),
        ("llama-server -m m.gguf -fa maybe", "maybe"),
        ("llama-server -m m.gguf -c -1", "below 0"),
        ("llama-server -m m.gguf -np 0", "0 slots"),
        ("bash -c 'llama-server -m m.gguf -c abc'", "no whole number"),
        ("docker run ghcr.io/ggml-org/llama.cpp:server -m m.gguf -ub", "needs a value"),
        ("python -m llama_cpp.server --model m.gguf --type_k 99", "no cache type"),
        ("llama-bench -m m.gguf -fa maybe", "maybe"),
    ],
)
def test_refused_where_the_engine_refuses(line: str, said: str) -> None:
    with pytest.raises(Usage, match=said):
        typed(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("llama-server -m m.gguf -c 16k", "reads this as 16"),
        ("llama-server -m m.gguf --ctx-size=8192", "two words"),
        ("llama-server -m m.gguf -fa -c 4096", "since August 2025"),
        ("llama-server -m m.gguf --unknown-flag 3", "no option"),
        ("llama-bench -m a.gguf -m b.gguf -p 0 -n 128,256,512", "only the first"),
        ("./main -m m.gguf -c 512", "may differ"),
        ("python -m llama_cpp.server --model m.gguf", "logits_all"),
        ("OLLAMA_KV_CACHE_TYPE=q8_0 ollama run qwen2.5:7b", "OLLAMA_FLASH_ATTENTION"),
        ("OLLAMA_NUM_PARALLEL=4 ollama run qwen2.5:7b", "4096 tokens a slot"),
    ],
)
def test_said_beside(line: str, said: str) -> None:
    command = typed(line)
    assert command is not None
    assert any(said in caveat for caveat in command.caveats)


@pytest.mark.parametrize(
    "line",
    [
        "./flash-moe -m m --serve -np 2 -c 4096", "python server.py --listen --api --model m --n-gpu-layers 33", "llama-swap --config config.yaml",
        "docker compose up llama", "docker model run ai/qwen3:8B-Q4_K_M", "ollama create x -f Modelfile", "ollama pull qwen3",
        "bash -c 'cd x && ./llama-server -m m.gguf'", "bash -c 'llama-server -m \"m.gguf'", "./main --help", "docker run --rm", "docker run ubuntu ls", "docker exec c",
        "sh -c ''", "sh -c 'llama-server -m m.gguf # -c 4096'", "sh -c 'llama-server -m m.gguf\nllama-server -m n.gguf -c 4096'",
    ],
)  # fmt: skip
def test_another_program_is_none_of_ours(line: str) -> None:
    assert typed(line) is None


def test_a_container_does_not_see_the_variables_outside() -> None:
    """Docker hands on only what `-e` names, a bare name included (docs.docker.com/reference/cli/docker/container/run)."""
    line = shlex.split("docker run -e LLAMA_ARG_N_PARALLEL ghcr.io/ggml-org/llama.cpp:server -m m.gguf")
    command = read(line, {"LLAMA_ARG_CTX_SIZE": "512", "LLAMA_ARG_N_PARALLEL": "2"})
    assert command is not None
    assert (command.workloads[0].ctx, command.workloads[0].slots) == (0, 2)
