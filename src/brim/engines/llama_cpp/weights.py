"""On which device each weight lands, and how many bytes it takes there; it lays out nothing else.

Source: llama.cpp b11434, src/llama-model.cpp `load_tensors`, src/llama-model-loader.cpp `create_tensor`, src/llama-arch.cpp `LLM_TENSOR_INFOS`,
ggml/src/ggml-cuda/ggml-cuda.cu `ggml_backend_cuda_buffer_type_get_alloc_size`.
"""

from struct import pack, unpack

from brim.engines.llama_cpp.hparams import HEADLESS, Hparams, Wanting, block_of
from brim.errors import Usage
from brim.facts.device import DeviceSpec
from brim.facts.dtypes import GGML_BLOCKS, ggml_row_bytes, ggml_tensor_bytes
from brim.facts.workload import LlamaWorkload

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

    from brim.engines.llama_cpp.repacked import Laid
    from brim.engines.llama_cpp.spread import Spread

HOST = "cpu"
OUTPUT_FIRST = 7490  # with fewer layers on cards than the model has, the output layer is among them (PR 18148, December 2025)
_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_ON_HOST = ("token_embd.weight", "position_embd.weight", "token_types.weight", "per_layer_token_embd.weight")
_WITH_LAYERS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_ON_FIRST = ("token_embd_norm.weight", "token_embd_norm.bias", "per_layer_model_proj.weight", "per_layer_proj_norm.weight", "hrm.z_l_init")
NO_ROWS = (
    9890  # `make_gpu_buft_list` throws where a backend has no split buffers (issues 25594 and 25884); CUDA's were removed shortly before (PR 24216, June 2026)
)
REPACKED = 4282  # weights are laid out anew as they are loaded (PR 10446, 7 December 2024); before, files were made for one kind of processor
PINNED = frozenset(("cuda", "rocm", "hip", "musa", "xpu", "sycl", "vulkan", "cann"))  # backends with host buffers, which come first in `make_cpu_buft_list`
_NO_MUL_MAT = frozenset(("TQ1_0", "TQ2_0", "Q8_1"))


class Placement:
    """Where things live: `layers[il]` and `output` are device ids, `tensors` maps a name to the devices that hold it, `held` sums bytes and `counts` tensors by device.

    With `--split-mode tensor` the cards work `together` as one device, which has the first one's id in all of the above but `held` and `counts`; `spread` knows each card's slices.
    """

    __slots__ = (
        "counts",
        "full",
        "gpus",
        "graph",
        "held",
        "key",
        "laid",
        "layers",
        "mapped",
        "output",
        "overridden",
        "split",
        "spread",
        "strays",
        "tensors",
        "together",
        "walked",
    )

    def __init__(self) -> None:
        self.layers: list[str] = []
        self.output = HOST
        self.tensors: dict[str, tuple[str, ...]] = {}
        self.held: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.gpus: tuple[DeviceSpec, ...] = ()
        self.full = False
        self.mapped = True
        self.overridden = False
        self.split = "layer"
        self.spread: Spread | None = None
        self.together: tuple[DeviceSpec, ...] = ()
        self.key: tuple[object, ...] = ()
        self.strays: set[int] = set()  # blocks with a tensor that is not where its block is
        self.walked: tuple[int, ...] = ()  # the layers that `walk` chose, once it was asked
        self.laid: dict[tuple[frozenset[str], int], Laid] = {}  # the host's weights by instructions and build (`repacked.lay_out`)
        self.graph = 0  # equal numbers, equal graphs (`walk.graph_of`)


def stored_bytes(dtype: str, dims: "tuple[int, ...]", device: str) -> int:
    """Bytes of a tensor in a buffer: padded to 128 on an accelerator, with one partial row where a quantised row is no multiple of 512; to 32 on the host."""
    size = ggml_tensor_bytes(dtype, dims)
    if device.startswith(HOST):
        return -(-size // 32) * 32
    if device.startswith(("cuda", "rocm", "musa")) and GGML_BLOCKS[dtype][0] > 1 and dims[0] % 512:
        size += ggml_row_bytes(dtype, 512 - dims[0] % 512)
    return -(-size // 128) * 128


def lays_anew(workload: LlamaWorkload, placement: "Placement", version: int) -> bool:
    """Whether the CPU may lay weights out anew: not with --no-repack, nor beside cards whose backend has host buffers, unless --no-host passes those over."""
    if workload.repack is False or version < REPACKED or not placement.held.get(HOST):
        return False
    return workload.no_host is True or not any(device.backend in PINNED for device in placement.gpus)


def accelerators(workload: LlamaWorkload, devices: "tuple[DeviceSpec, ...]") -> "tuple[DeviceSpec, ...]":
    """The devices that the engine will use, in its order; one of them with `--split-mode none`."""
    gpus = tuple(device for device in devices if device.backend not in ("cpu", "host"))
    if workload.split_mode == "none" and gpus:
        chosen = workload.main_gpu or 0
        if chosen >= len(gpus):
            raise Usage(f"--main-gpu {chosen}: there are {len(gpus)} card(s), counted from 0")
        return gpus[chosen : chosen + 1] or gpus[:1]
    return gpus


def _layer_device(gpus: "tuple[DeviceSpec, ...]", workload: LlamaWorkload, blocks: int, version: int) -> "list[str]":
    """The device of each block and, last, of the output layer (`get_layer_buft_list`)."""
    asked = workload.gpu_layers
    count = blocks + 1 if asked is None or asked < 0 else asked
    last = blocks + 1 if version >= OUTPUT_FIRST else blocks  # the output layer goes to a card first; before, when all blocks have
    start, active = max(last - count, 0), min(count, blocks + 1) if gpus else 0
    points = _split_points(workload.tensor_split, gpus)
    placed = []
    for il in range(blocks + 1):
        if il < start or il - start >= active:
            placed.append(HOST)
        else:
            share = _single((il - start) / active)
            placed.append(gpus[min(sum(point <= share for point in points), len(gpus) - 1)].id)
    return placed


def _single(number: float) -> float:
    """The nearest 32-bit float: the engine reckons its split in those, and a layer on a boundary goes where their rounding puts it (three equal cards)."""
    return float(unpack("f", pack("f", number))[0])


def _split_points(split: "tuple[float, ...]", gpus: "tuple[DeviceSpec, ...]") -> "list[float]":
    """Where each card's share of the layers ends, from 0 to 1: by `-ts`, else by free memory."""
    shares = [_single(share) for share in split[: len(gpus)]]
    shares += [0.0] * (len(gpus) - len(shares))
    if not any(shares):
        shares = [_single(float(device.free_bytes)) for device in gpus]
    points: list[float] = []
    for share in shares:
        points.append(_single((points[-1] if points else 0.0) + share))
    return [_single(point / points[-1]) for point in points] if points and points[-1] else points


def _unsupported(hp: Hparams, name: str, dims: "tuple[int, ...]", dtype: str) -> bool:
    """Weights that CUDA cannot use where they are needed, so that they stay on the host (`weight_buft_supported`)."""
    if name.endswith("ssm_conv1d.weight"):
        return dims[1] % 128 != 0
    if name.endswith("ssm_a") and hp.arch not in ("qwen3next", "qwen35", "qwen35moe", "kimi-linear"):
        state, inner = int(hp.get("ssm.state_size", 0)), int(hp.get("ssm.inner_size", 0))
        if dims[0] == 1:
            return state not in (96, 128, 256) or (inner // dims[1]) % 16 != 0
        return state != 16 or dims[1] % 128 != 0
    return dtype in _NO_MUL_MAT


def _overrides(workload: LlamaWorkload) -> "list[tuple[re.Pattern[str], str]]":
    """`-ot` patterns in order, then the experts of `--n-cpu-moe`."""
    if not workload.override_tensors and not workload.cpu_experts:
        return []
    import re

    patterns = []
    for pattern, where in workload.override_tensors:
        patterns.append((re.compile(pattern), where))
    count = workload.cpu_experts or 0
    if count >= 1 << 20:
        patterns.append((re.compile(_EXPERTS), HOST))
    elif count:
        patterns.append((re.compile(rf"blk\.({'|'.join(str(il) for il in range(count))}){_EXPERTS}"), HOST))
    return patterns


def _buffer_device(where: str, gpus: "tuple[DeviceSpec, ...]") -> str:
    """The device that a buffer type names (`CPU`, `CUDA0`, `CUDA_Host`)."""
    lowered = where.lower()
    for device in gpus:
        if lowered in (device.id, device.id.replace(":", "")):
            return device.id
    return HOST


def place(hp: Hparams, workload: LlamaWorkload, devices: "tuple[DeviceSpec, ...]", *, load_mtp: bool = False, version: int = OUTPUT_FIRST) -> Placement:
    """Put every tensor of the file on its device. Blocks of next-token heads are skipped unless they are asked for."""
    made = Placement()
    gpus = accelerators(workload, devices)
    if workload.split_mode == "row" and version >= NO_ROWS and any(device.backend not in ("sycl", "xpu") for device in gpus):
        raise Wanting(f"llama.cpp since b{NO_ROWS} refuses --split-mode row: its cards have no buffers that are split by rows (layer or tensor)")
    if workload.split_mode == "tensor":
        if not gpus:
            raise Wanting("llama.cpp refuses --split-mode tensor without an accelerator")
        from brim.engines.llama_cpp.spread import Spread

        made.together, made.spread = gpus, Spread(hp, len(gpus), tuple(workload.tensor_split))
        gpus = gpus[:1]
    made.gpus = gpus
    placed = _layer_device(gpus, workload, hp.blocks, version)
    made.layers, made.output = placed[:-1], placed[-1]
    asked = workload.gpu_layers
    made.full = bool(gpus) and (asked is None or asked < 0 or asked > hp.blocks)
    patterns = _overrides(workload) if gpus else []
    made.overridden = bool(patterns)
    made.split = workload.split_mode or "layer"
    made.mapped = workload.mmap is not False
    made.key = (workload.override_tensors, workload.cpu_experts, made.split, load_mtp)
    turned = (home for il, home in enumerate(made.layers[: hp.layers]) if hp.arch != "gemma4" or not hp.windowed[il])
    with_layers = tuple(dict.fromkeys(turned))
    for name, (dims, dtype) in hp.tensors.items():
        homes = _homes(hp, made, name, with_layers, load_mtp=load_mtp)
        for pattern, where in patterns:
            if homes and pattern.search(name):
                homes = (_buffer_device(where, gpus),)
                break
        else:
            if homes and homes[0] != HOST and _unsupported(hp, name, dims, dtype):
                homes = (HOST,)
        made.tensors[name] = homes
        if len(gpus) and homes:
            block = block_of(name)
            if block is not None and homes[0] != made.layers[block[0]]:
                made.strays.add(block[0])
        for home in homes:
            _hold(made, name, dims, dtype, home)
    return made


def _hold(made: Placement, name: str, dims: "tuple[int, ...]", dtype: str, home: str) -> None:
    """Count a tensor's bytes where it lies; cards that work together hold a slice each."""
    if made.spread is None or home == HOST:
        made.counts[home] = made.counts.get(home, 0) + 1
        made.held[home] = made.held.get(home, 0) + stored_bytes(dtype, dims, home)
        return
    for device, slice_ in zip(made.together, made.spread.tensor(name, dims, dtype), strict=True):
        made.counts[device.id] = made.counts.get(device.id, 0) + 1
        made.held[device.id] = made.held.get(device.id, 0) + (stored_bytes(dtype, slice_, device.id) if 0 not in slice_ else 0)


def _homes(hp: Hparams, made: Placement, name: str, with_layers: "tuple[str, ...]", *, load_mtp: bool) -> "tuple[str, ...]":
    """The devices that hold a tensor before overrides."""
    block = block_of(name)
    if block is not None:
        il = block[0]
        if il >= hp.blocks or (il >= hp.layers and not load_mtp):
            return ()
        return (made.layers[il],)
    if name in _ON_HOST:
        tied = name == "token_embd.weight" and "output.weight" not in hp.tensors and hp.arch not in HEADLESS
        # gemma 3n and 4 create the output copy before the embedding, so that both exist even on one device (mapped pages of a file exist once)
        twice = made.output != HOST or (hp.arch in ("gemma3n", "gemma4") and not made.mapped)
        return (HOST, made.output) if tied and twice else (HOST,)
    if name in _WITH_LAYERS:
        return with_layers
    if name in _ON_FIRST and not (name.startswith("token_embd_norm") and hp.arch in ("lfm2", "lfm2moe")):
        return (made.layers[0],)
    return (made.output,)


_PLACED: "list[tuple[Hparams, tuple[object, ...], Placement]]" = []


def placed(hp: Hparams, workload: LlamaWorkload, devices: "tuple[DeviceSpec, ...]", *, load_mtp: bool, version: int) -> Placement:
    """`place`, remembered for the last few: a search over contexts asks for the same placement again and again."""
    key = (
        workload.split_mode, workload.main_gpu, workload.gpu_layers, workload.tensor_split, workload.override_tensors, workload.cpu_experts, devices, load_mtp, workload.mmap is not False, version >= OUTPUT_FIRST,
        version >= NO_ROWS,
    )  # fmt: skip
    for known, asked, found in _PLACED:
        if known is hp and asked == key:
            return found
    found = place(hp, workload, devices, load_mtp=load_mtp, version=version)
    _PLACED.insert(0, (hp, key, found))
    del _PLACED[4:]
    return found
