"""Every option that llama.cpp's programs know, with its arity and its environment variable, and nothing about what it does.

Source: common/arg.cpp `common_params_parser_init` at b11434 (361 `common_arg` rows, preset-only rows left out); old spellings from earlier builds are in
`OLD`. Why a table: an option that is not in it is *unknown*; one that is in it but not priced is *known*; and a value is never taken for an option, because
the arity of each is here. The table is text, split on first use: parsing a command line is the only thing that pays for it.

A line `@a b` says which programs (llama.cpp's LLAMA_EXAMPLE_* words) the cells below belong to; a bare `@` is every program. A cell is
`KIND names~negated=ENVIRONMENT`. Kinds: `f` a flag, `b` a switch with a negated form, `i` one whole number (`std::stoi`), `v` one value, `w` two values,
`r` removed (one value; b11434 ends with an error).
"""

TABLE = """
@
f -h,--help,--usage; f --version; f -cl,--cache-list; f --completion-bash; i -t,--threads=LLAMA_ARG_THREADS; i -tb,--threads-batch; v -C,--cpu-mask
v -Cr,--cpu-range; v --cpu-strict; i --prio; v --poll; v -Cb,--cpu-mask-batch; v -Crb,--cpu-range-batch; i --cpu-strict-batch; i --prio-batch
i --poll-batch; i -c,--ctx-size=LLAMA_ARG_CTX_SIZE; i -n,--predict,--n-predict=LLAMA_ARG_N_PREDICT; i -b,--batch-size=LLAMA_ARG_BATCH
i -ub,--ubatch-size=LLAMA_ARG_UBATCH; i --keep; f --swa-full=LLAMA_ARG_SWA_FULL; v -fa,--flash-attn=LLAMA_ARG_FLASH_ATTN; v -p,--prompt
b --perf~--no-perf=LLAMA_ARG_PERF; v -f,--file; v -bf,--binary-file; b -e,--escape~--no-escape; v --samplers; v -s,--seed
v --sampler-seq,--sampling-seq; f --ignore-eos; v --temp,--temperature=LLAMA_ARG_TEMPERATURE; i --top-k=LLAMA_ARG_TOP_K; v --top-p=LLAMA_ARG_TOP_P
v --min-p=LLAMA_ARG_MIN_P; v --top-nsigma,--top-n-sigma; v --xtc-probability; v --xtc-threshold; v --typical,--typical-p; i --repeat-last-n
v --repeat-penalty=LLAMA_ARG_REPEAT_PENALTY; v --presence-penalty=LLAMA_ARG_PRESENCE_PENALTY; v --frequency-penalty=LLAMA_ARG_FREQUENCY_PENALTY
v --dry-multiplier; v --dry-base; i --dry-allowed-length; i --dry-penalty-last-n; v --dry-sequence-breaker; v --adaptive-target; v --adaptive-decay
v --dynatemp-range; v --dynatemp-exp; i --mirostat; v --mirostat-lr; v --mirostat-ent; v -l,--logit-bias; v --grammar; v --grammar-file
v -j,--json-schema; v -jf,--json-schema-file; f -bs,--backend-sampling=LLAMA_ARG_BACKEND_SAMPLING; v --rope-scaling=LLAMA_ARG_ROPE_SCALING_TYPE
v --rope-scale=LLAMA_ARG_ROPE_SCALE; v --rope-freq-base=LLAMA_ARG_ROPE_FREQ_BASE; v --rope-freq-scale=LLAMA_ARG_ROPE_FREQ_SCALE
i --yarn-orig-ctx=LLAMA_ARG_YARN_ORIG_CTX; v --yarn-ext-factor=LLAMA_ARG_YARN_EXT_FACTOR; v --yarn-attn-factor=LLAMA_ARG_YARN_ATTN_FACTOR
v --yarn-beta-slow=LLAMA_ARG_YARN_BETA_SLOW; v --yarn-beta-fast=LLAMA_ARG_YARN_BETA_FAST
b -kvo,--kv-offload~-nkvo,--no-kv-offload=LLAMA_ARG_KV_OFFLOAD; b --repack~-nr,--no-repack=LLAMA_ARG_REPACK; f --no-host=LLAMA_ARG_NO_HOST
v -ctk,--cache-type-k=LLAMA_ARG_CACHE_TYPE_K; v -ctv,--cache-type-v=LLAMA_ARG_CACHE_TYPE_V; v -dt,--defrag-thold=LLAMA_ARG_DEFRAG_THOLD
i -np,--parallel=LLAMA_ARG_N_PARALLEL; v --rpc=LLAMA_ARG_RPC; v -lm,--load-mode=LLAMA_ARG_LOAD_MODE; v -lzm,--lazy-mode=LLAMA_ARG_LAZY_MODE
v --numa=LLAMA_ARG_NUMA; v -dev,--device=LLAMA_ARG_DEVICE; f --list-devices; v -ot,--override-tensor=LLAMA_ARG_OVERRIDE_TENSOR
f -cmoe,--cpu-moe=LLAMA_ARG_CPU_MOE; i -ncmoe,--n-cpu-moe=LLAMA_ARG_N_CPU_MOE; i -ncffn,--n-cpu-ffn=LLAMA_ARG_N_CPU_FFN
v -ngl,--gpu-layers,--n-gpu-layers=LLAMA_ARG_N_GPU_LAYERS; v -sm,--split-mode=LLAMA_ARG_SPLIT_MODE; v -ts,--tensor-split=LLAMA_ARG_TENSOR_SPLIT
i -mg,--main-gpu=LLAMA_ARG_MAIN_GPU; v -fit,--fit=LLAMA_ARG_FIT; v -fitt,--fit-target=LLAMA_ARG_FIT_TARGET; i -fitc,--fit-ctx=LLAMA_ARG_FIT_CTX
f --check-tensors; v --override-kv; b --op-offload~--no-op-offload; v --lora; v --lora-scaled; v --control-vector; v --control-vector-scaled
w --control-vector-layer-range; v -m,--model=LLAMA_ARG_MODEL; v -mu,--model-url=LLAMA_ARG_MODEL_URL; v -dr,--docker-repo=LLAMA_ARG_DOCKER_REPO
v -hf,-hfr,--hf-repo=LLAMA_ARG_HF_REPO; v -hff,--hf-file=LLAMA_ARG_HF_FILE; v -hft,--hf-token=HF_TOKEN; f --log-disable
v --log-file=LLAMA_ARG_LOG_FILE; b --log-jsonl~--no-log-jsonl=LLAMA_ARG_LOG_JSONL; v --log-colors=LLAMA_ARG_LOG_COLORS; f -v,--verbose,--log-verbose
f --offline=LLAMA_ARG_OFFLINE; i -lv,--verbosity,--log-verbosity=LLAMA_ARG_LOG_VERBOSITY; b --log-prefix~--no-log-prefix=LLAMA_ARG_LOG_PREFIX
b --log-timestamps~--no-log-timestamps=LLAMA_ARG_LOG_TIMESTAMPS; v --spec-draft-type-k,-ctkd,--cache-type-k-draft=LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K
v --spec-draft-type-v,-ctvd,--cache-type-v-draft=LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V
@cli
v --server-base; b --show-timings~--no-show-timings=LLAMA_ARG_SHOW_TIMINGS
@cli completion embedding retrieval
f --verbose-prompt
@cli completion
b --display-prompt~--no-display-prompt; f -st,--single-turn; f -mli,--multiline-input; f --simple-io
@cli completion lookup speculative
v -co,--color
@lookup server
v -lcs,--lookup-cache-static; v -lcd,--lookup-cache-dynamic
@server
i --kv-unified-per-slot=LLAMA_ARG_KV_UNIFIED_PER_SLOT; i -cms,--checkpoint-min-step=LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
b --cache-idle-slots~--no-cache-idle-slots=LLAMA_ARG_CACHE_IDLE_SLOTS; f --spm-infill
b -cb,--cont-batching~-nocb,--no-cont-batching=LLAMA_ARG_CONT_BATCHING; i --mtmd-batch-max-tokens=LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
v -a,--alias=LLAMA_ARG_ALIAS; v --tags=LLAMA_ARG_TAGS; v --host=LLAMA_ARG_HOST; i --port=LLAMA_ARG_PORT; f --reuse-port=LLAMA_ARG_REUSE_PORT
v --path=LLAMA_ARG_STATIC_PATH; v --cors-origins=LLAMA_ARG_CORS_ORIGINS; v --cors-methods=LLAMA_ARG_CORS_METHODS
v --cors-headers=LLAMA_ARG_CORS_HEADERS; b --cors-credentials~--no-cors-credentials=LLAMA_ARG_CORS_CREDENTIALS; v --api-prefix=LLAMA_ARG_API_PREFIX
v --ui-config,--webui-config=LLAMA_ARG_UI_CONFIG; v --ui-config-file,--webui-config-file=LLAMA_ARG_UI_CONFIG_FILE
b --ui-mcp-proxy,--webui-mcp-proxy~--no-ui-mcp-proxy,--no-webui-mcp-proxy=LLAMA_ARG_UI_MCP_PROXY; v --tools=LLAMA_ARG_TOOLS
v --tools-runtime=LLAMA_ARG_TOOLS_RUNTIME; v --mcp-servers-config=LLAMA_ARG_MCP_SERVERS_CONFIG; v --mcp-servers-json=LLAMA_ARG_MCP_SERVERS_JSON
b -ag,--agent~-no-ag,--no-agent=LLAMA_ARG_AGENT; b --ui,--webui~--no-ui,--no-webui=LLAMA_ARG_UI; f --rerank,--reranking=LLAMA_ARG_RERANKING
v --api-key=LLAMA_API_KEY; v --api-key-file=LLAMA_ARG_API_KEY_FILE; v --ssl-key-file=LLAMA_ARG_SSL_KEY_FILE
v --ssl-cert-file=LLAMA_ARG_SSL_CERT_FILE; i -to,--timeout=LLAMA_ARG_TIMEOUT; i --sse-ping-interval=LLAMA_ARG_SSE_PING_INTERVAL
i --threads-http=LLAMA_ARG_THREADS_HTTP; b --cache-prompt~--no-cache-prompt=LLAMA_ARG_CACHE_PROMPT; i --cache-reuse=LLAMA_ARG_CACHE_REUSE
f --metrics=LLAMA_ARG_ENDPOINT_METRICS; f --props=LLAMA_ARG_ENDPOINT_PROPS; b --slots~--no-slots=LLAMA_ARG_ENDPOINT_SLOTS; v --slot-save-path
v --media-path; v --models-dir=LLAMA_ARG_MODELS_DIR; v --models-preset=LLAMA_ARG_MODELS_PRESET; i --models-max=LLAMA_ARG_MODELS_MAX
b --models-autoload~--no-models-autoload=LLAMA_ARG_MODELS_AUTOLOAD; b --prefill-assistant~--no-prefill-assistant=LLAMA_ARG_PREFILL_ASSISTANT
v -sps,--slot-prompt-similarity; f --lora-init-without-apply; i --sleep-idle-seconds; r --spec-ngram-size-n; r --spec-ngram-size-m
r --spec-ngram-min-hits; f --fim-qwen-1.5b-default; f --fim-qwen-3b-default; f --fim-qwen-7b-default; f --fim-qwen-7b-spec; f --fim-qwen-14b-spec
f --fim-qwen-30b-default
@cli server
i -ctxcp,--ctx-checkpoints,--swa-checkpoints=LLAMA_ARG_CTX_CHECKPOINTS; i -cram,--cache-ram=LLAMA_ARG_CACHE_RAM
v --chat-template-kwargs=LLAMA_ARG_CHAT_TEMPLATE_KWARGS; v --log-prompts-dir; v --spec-synth-len=LLAMA_ARG_SPEC_SYNTH_LEN
v --spec-synth-rates=LLAMA_ARG_SPEC_SYNTH_RATES; f --gpt-oss-20b-default; f --gpt-oss-120b-default; f --vision-gemma-4b-default
f --vision-gemma-12b-default; f --spec-default
@batched bench parallel perplexity server
b -kvu,--kv-unified~-no-kvu,--no-kv-unified=LLAMA_ARG_KV_UNIFIED
@cli completion imatrix perplexity server
b --context-shift~--no-context-shift=LLAMA_ARG_CONTEXT_SHIFT
@imatrix perplexity retrieval
i --chunks
@cli completion diffusion mtmd
v -sys,--system-prompt
@cli completion diffusion
v -sysf,--system-prompt-file
@imatrix
v --in-file; i -ofreq,--output-frequency; v --output-format; i --save-frequency; f --process-output; f --nextn; b --ppl~--no-ppl
i --chunk,--from-chunk; f --show-statistics; f --parse-special
@completion
i -ptc,--print-token-count; v --prompt-cache; f --prompt-cache-all; f --prompt-cache-ro; b -cnv,--conversation~-no-cnv,--no-conversation
f -i,--interactive; f -if,--interactive-first; f --in-prefix-bos; v --in-prefix; v --in-suffix; i -gaw,--grp-attn-w=LLAMA_ARG_GRP_ATTN_W
@cli completion server
v -r,--reverse-prompt; f -sp,--special; v --reasoning-format=LLAMA_ARG_THINK; v -rea,--reasoning=LLAMA_ARG_REASONING
v --reasoning-effort=LLAMA_ARG_REASONING_EFFORT; i --reasoning-budget=LLAMA_ARG_THINK_BUDGET
v --reasoning-budget-message=LLAMA_ARG_THINK_BUDGET_MESSAGE; b --reasoning-preserve~--no-reasoning-preserve=LLAMA_ARG_REASONING_PRESERVE
v --chat-template-file=LLAMA_ARG_CHAT_TEMPLATE_FILE; b --skip-chat-parsing~--no-skip-chat-parsing=LLAMA_ARG_SKIP_CHAT_PARSING
@cli completion debug embedding mtmd perplexity retrieval server
b --warmup~--no-warmup
@debug embedding retrieval server
v --pooling=LLAMA_ARG_POOLING
@embedding
v --attention; v --embd-output-format; v --embd-separator; v --cls-separator
@completion passkey
i -gan,--grp-attn-n=LLAMA_ARG_GRP_ATTN_N
@perplexity
f --hellaswag; i --hellaswag-tasks; f --winogrande; i --winogrande-tasks; f --multiple-choice; i --multiple-choice-tasks; f --kl-divergence
v --save-all-logits,--kl-divergence-base; i --ppl-stride; i --ppl-output-type
@parallel
i -ns,--sequences
@cli mtmd server tts
v -mm,--mmproj=LLAMA_ARG_MMPROJ; v -mmu,--mmproj-url=LLAMA_ARG_MMPROJ_URL; b --mmproj-offload~--no-mmproj-offload=LLAMA_ARG_MMPROJ_OFFLOAD
v -mmdev,--mmproj-device=MTMD_BACKEND_DEVICE; i --image-min-tokens=LLAMA_ARG_IMAGE_MIN_TOKENS; i --image-max-tokens=LLAMA_ARG_IMAGE_MAX_TOKENS
v --video-fps=LLAMA_ARG_VIDEO_FPS; i --video-timestamp-interval=LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL; v --video-ffmpeg-dir=LLAMA_ARG_VIDEO_FFMPEG_DIR
@cli download mtmd server
b --mmproj-auto~--no-mmproj,--no-mmproj-auto=LLAMA_ARG_MMPROJ_AUTO
@cli mtmd
v --image,--audio,--video
@fit_params
v -fitp,--fit-print=LLAMA_ARG_FIT_ESTIMATE
@download
f --mtp; f --dflash; f --eagle3
@retrieval
v --context-file; i --chunk-size; v --chunk-separator
@parallel passkey
i --junk
@passkey
i --pos
@cli cvector_generator export_graph_ops export_lora finetune imatrix results tts
v -o,--output,--output-file
@tokenize
f --ids; f --stdin; f --no-bos; f --no-parse-special; f --show-count
@bench parallel
f -pps; f -tgs
@bench
v -npp; v -ntg; v -npl; v --output-format
@debug embedding server
i --embd-normalize
@debug server
f --embedding,--embeddings=LLAMA_ARG_EMBEDDINGS
@cli completion mtmd server
b --jinja~--no-jinja=LLAMA_ARG_JINJA; v --chat-template=LLAMA_ARG_CHAT_TEMPLATE
@cvector_generator
v --positive-file; v --negative-file; i --pca-batch; i --pca-iter; v --method
@cli server speculative
v --spec-draft-hf,-hfd,-hfrd,--hf-repo-draft=LLAMA_ARG_SPEC_DRAFT_HF_REPO; i --spec-draft-threads,-td,--threads-draft
i --spec-draft-threads-batch,-tbd,--threads-batch-draft; v --spec-draft-cpu-mask,-Cd,--cpu-mask-draft
v --spec-draft-cpu-range,-Crd,--cpu-range-draft; i --spec-draft-cpu-strict,--cpu-strict-draft; i --spec-draft-prio,--prio-draft
i --spec-draft-poll,--poll-draft; v --spec-draft-cpu-mask-batch,-Cbd,--cpu-mask-batch-draft; i --spec-draft-cpu-strict-batch,--cpu-strict-batch-draft
i --spec-draft-prio-batch,--prio-batch-draft; i --spec-draft-poll-batch,--poll-batch-draft
v --spec-draft-override-tensor,-otd,--override-tensor-draft; f --spec-draft-cpu-moe,-cmoed,--cpu-moe-draft=LLAMA_ARG_SPEC_DRAFT_CPU_MOE
i --spec-draft-n-cpu-moe,--spec-draft-ncmoe,-ncmoed,--n-cpu-moe-draft=LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE
v --spec-draft-p-split,--draft-p-split=LLAMA_ARG_SPEC_DRAFT_P_SPLIT; v --spec-draft-p-min,--draft-p-min=LLAMA_ARG_SPEC_DRAFT_P_MIN
b --spec-draft-backend-sampling~--no-spec-draft-backend-sampling=LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING
v --spec-draft-sampling=LLAMA_ARG_SPEC_DRAFT_SAMPLING; v --spec-draft-device,-devd,--device-draft
v --spec-draft-ngl,-ngld,--gpu-layers-draft,--n-gpu-layers-draft=LLAMA_ARG_N_GPU_LAYERS_DRAFT; v --spec-type=LLAMA_ARG_SPEC_TYPE
i --spec-ngram-mod-n-min; i --spec-ngram-mod-n-max; i --spec-ngram-mod-n-match; i --spec-ngram-simple-size-n; i --spec-ngram-simple-size-m
i --spec-ngram-simple-min-hits; i --spec-ngram-map-k-size-n; i --spec-ngram-map-k-size-m; i --spec-ngram-map-k-min-hits
i --spec-ngram-map-k4v-size-n; i --spec-ngram-map-k4v-size-m; i --spec-ngram-map-k4v-min-hits
@speculative
v --spec-draft-cpu-range-batch,-Crbd,--cpu-range-batch-draft
@cli lookup server speculative
i --spec-draft-n-max=LLAMA_ARG_SPEC_DRAFT_N_MAX; i --spec-draft-n-min=LLAMA_ARG_SPEC_DRAFT_N_MIN; r --draft,--draft-n,--draft-max=LLAMA_ARG_DRAFT_MAX
r --draft-min,--draft-n-min=LLAMA_ARG_DRAFT_MIN
@cli imatrix server speculative
v --spec-draft-model,-md,--model-draft=LLAMA_ARG_SPEC_DRAFT_MODEL
@tts
v --tts-lang; v --tts-speaker-file
@diffusion
i --diffusion-steps; f --diffusion-visual; v --diffusion-eps; i --diffusion-algorithm; v --diffusion-alg-temp; i --diffusion-block-length
v --diffusion-cfg-scale; v --diffusion-add-gumbel-noise
@finetune
v -lr,--learning-rate; v -lr-min,--learning-rate-min; v -decay-epochs,--learning-rate-decay-epochs; v -wd,--weight-decay; v -val-split,--val-split
i -epochs,--epochs; v -opt,--optimizer
@results
f --check
@debug
f --save-logits; v --logits-output-dir; v --tensor-filter
@embedding server
f --embd-gemma-default
"""

# Spellings of earlier builds that b11434 refuses ("invalid argument"), as people still write them: the same cells, and what took their place.
# --no-mmap, --mlock and --direct-io became --load-mode; --draft-max became --spec-draft-n-max; the draft model follows the target's context now.
OLD = """
f --no-mmap; f --mmap; f --mlock; f -dio,--direct-io; f -ndio,--no-direct-io; i -cd,--ctx-size-draft=LLAMA_ARG_CTX_SIZE_DRAFT; f -nopo; f -dkvc,--dump-kv-cache
f --log-enable; f --log-append; f --log-new; f -nommq,--no-mul-mat-q; f -mmq,--mul-mat-q; f --memory-f32
f -cml,--chatml; f -ins,--instruct; i --n-gqa; f --low-vram; i --lookup-ngram-min
"""


class Option:
    """One row: its canonical long name, kind, the programs that know it (empty: all), its environment variable, and whether this build still takes it."""

    __slots__ = ("env", "kind", "name", "negated", "old", "programs")

    def __init__(self, name: str, kind: str, negated: tuple[str, ...], env: str, programs: frozenset[str], *, old: bool) -> None:
        self.name, self.kind, self.negated, self.env, self.programs, self.old = name, kind, negated, env, programs, old


def _cell(text: str, programs: frozenset[str], *, old: bool) -> tuple[Option, list[str]]:
    """One cell as an option and the words that name it; the canonical name is its first long one, else its first."""
    kind, _, rest = text.partition(" ")
    words, _, env = rest.partition("=")
    names, _, negated = words.partition("~")
    spellings = names.split(",")
    canonical = next((word for word in spellings if word.startswith("--")), spellings[0])
    return Option(canonical, kind, tuple(negated.split(",")) if negated else (), env, programs, old=old), spellings


def _read() -> tuple[dict[str, Option], list[Option]]:
    """The two tables above as word → option (a word may be a negated form) and the list of options."""
    by_word: dict[str, Option] = {}
    rows: list[Option] = []
    for table, old in ((TABLE, False), (OLD, True)):
        programs: frozenset[str] = frozenset()
        for line in table.strip().splitlines():
            if line.startswith("@"):
                programs = frozenset(line[1:].split())
                continue
            for text in line.split("; "):
                option, spellings = _cell(text, programs, old=old)
                rows.append(option)
                for word in (*spellings, *option.negated):
                    known = by_word.setdefault(word, option)
                    if known is not option and known.programs:  # one spelling, two rows (--output-format): known to the programs of both
                        known.programs = known.programs | option.programs if option.programs else frozenset()
    return by_word, rows


_cache: "list[tuple[dict[str, Option], list[Option]]]" = []


def options() -> tuple[dict[str, Option], list[Option]]:
    """Word → option, and every option; read once."""
    if not _cache:
        _cache.append(_read())
    return _cache[0]
