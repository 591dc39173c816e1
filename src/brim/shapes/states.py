"""Blocks that keep a state instead of a cache: Mamba 1 and 2, gated delta nets, short convolutions and their kin; weights and facts of each.

`conv_elements` counts the inputs that a convolution of length K must remember (K - 1 columns, as llama.cpp keeps them; transformers keeps K).
Sources: transformers 5.24 modeling files named at each block; llama.cpp b11434 src/llama-hparams.cpp (n_embd_r, n_embd_s).
"""

from brim.facts.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.shapes.blueprint import Blueprint
    from brim.shapes.fields import Fields


def rank_of(f: "Fields", name: str, width: int) -> int:
    """Mamba's step rank: a number, or `auto` for a sixteenth of the width, rounded up."""
    value = f.raw(name)
    if value is None or value == "auto":
        return -(-width // 16)
    return f.checked(name, value, 1, 1 << 20)


def mamba1(b: "Blueprint", p: str, width: int, inner: int, state: int, kernel: int, rank: int, *, conv_bias: bool, bias: bool, norms: bool = False) -> State:
    """Mamba 1 (models/mamba, jamba): a state of `inner` × `state`; Jamba adds norms on step, B and C."""
    b.vector(p + "A_log", "state", state, inner)
    b.vector(p + "D", "state", inner)
    b.conv(p + "conv1d", "conv", kernel, 1, inner, bias=inner if conv_bias else 0)
    b.linear(p + "in_proj", "state_in", width, 2 * inner, bias=bias)
    b.linear(p + "x_proj", "state", inner, rank + 2 * state)
    b.linear(p + "dt_proj", "state", rank, inner, bias=True)
    b.linear(p + "out_proj", "state_out", inner, width, bias=bias)
    for name, size in (("dt", rank), ("b", state), ("c", state)) if norms else ():
        b.norm(f"{p}{name}_layernorm", size)
    return State(kind="mamba", conv_elements=(kernel - 1) * inner, state_elements=inner * state, inner_width=inner)


def mamba2(
    b: "Blueprint",
    p: str,
    width: int,
    inner: int,
    heads: int,
    groups: int,
    state: int,
    kernel: int,
    *,
    conv_bias: bool,
    bias: bool,
    out_bias: bool,
    norm: bool = True,
) -> State:
    """Mamba 2 (models/mamba2, bamba, falcon_h1, nemotron_h): convolution over values, B and C; a state of `inner` × `state`."""
    mixed = inner + 2 * groups * state
    for name in ("dt_bias", "A_log", "D"):
        b.vector(p + name, "state", heads)
    b.conv(p + "conv1d", "conv", kernel, 1, mixed, bias=mixed if conv_bias else 0)
    b.linear(p + "in_proj", "state_in", width, inner + mixed + heads, bias=bias)
    if norm:
        b.norm(p + "norm", inner)
    b.linear(p + "out_proj", "state_out", inner, width, bias=out_bias)
    return State(kind="mamba2", conv_elements=(kernel - 1) * mixed, state_elements=inner * state, inner_width=inner, heads=heads)


def mamba2_of(f: "Fields", b: "Blueprint", p: str, width: int, *, inner: int = 0, out_bias: bool | None = None, norm: bool = True) -> State:
    """Mamba 2 by the `mamba_*` fields that Bamba, Falcon-H1 and Granite share."""
    heads = f.whole("mamba_n_heads", 1, 1 << 16)
    inner = inner or f.whole("mamba_expand", 1, 64) * width
    if f.raw("mamba_d_head") not in (None, "auto"):
        each = f.whole("mamba_d_head")
        if each * heads != inner:
            raise f.bad("mamba_d_head", f"({each}) times mamba_n_heads ({heads}) is not the inner width {inner}")
    bias = f.flag("mamba_proj_bias")
    return mamba2(
        b,
        p,
        width,
        inner,
        heads,
        f.whole("mamba_n_groups", 1, 1 << 16),
        f.whole("mamba_d_state"),
        f.whole("mamba_d_conv", 1, 1024),
        conv_bias=f.flag("mamba_conv_bias"),
        bias=bias,
        out_bias=bias if out_bias is None else out_bias,
        norm=norm,
    )


def delta_net(f: "Fields", b: "Blueprint", p: str, width: int, *, fused: bool) -> State:
    """Gated delta net (models/qwen3_next, qwen3_5): a state of key × value width for every value head; `fused` projections in Qwen3-Next."""
    keys, values = f.whole("linear_num_key_heads", 1, 1 << 16), f.whole("linear_num_value_heads", 1, 1 << 16)
    key_dim, value_dim, kernel = f.whole("linear_key_head_dim"), f.whole("linear_value_head_dim"), f.whole("linear_conv_kernel_dim", 1, 1024)
    f.divides("linear_num_key_heads", "linear_num_value_heads", keys, values)
    k, v = keys * key_dim, values * value_dim
    b.vector(p + "dt_bias", "state", values)
    b.vector(p + "A_log", "state", values)
    b.conv(p + "conv1d", "conv", kernel, 1, 2 * k + v)
    if fused:
        b.linear(p + "in_proj_qkvz", "state_in", width, 2 * k + 2 * v)
        b.linear(p + "in_proj_ba", "state", width, 2 * values)
    else:
        b.linear(p + "in_proj_qkv", "state_in", width, 2 * k + v)
        b.linear(p + "in_proj_z", "state_in", width, v)
        b.linear(p + "in_proj_b", "state", width, values)
        b.linear(p + "in_proj_a", "state", width, values)
    b.norm(p + "norm", value_dim)
    b.linear(p + "out_proj", "state_out", v, width)
    conv, kept = (kernel - 1) * (2 * k + v), values * key_dim * value_dim
    return State(kind="gated_delta_net", conv_elements=conv, state_elements=kept, inner_width=v, heads=values)


def short_conv(b: "Blueprint", p: str, width: int, kernel: int, *, bias: bool) -> State:
    """LFM2's double-gated short convolution (models/lfm2): only the last inputs are kept."""
    b.linear(p + "in_proj", "state_in", width, 3 * width, bias=bias)
    b.conv(p + "conv", "conv", kernel, 1, width, bias=width if bias else 0)
    b.linear(p + "out_proj", "state_out", width, width, bias=bias)
    return State(kind="short_conv", conv_elements=(kernel - 1) * width, state_elements=0, inner_width=width)


def kimi_delta(b: "Blueprint", p: str, width: int, heads: int, dim: int, kernel: int) -> State:
    """Kimi Delta Attention (models/kimi_linear): gates of low rank, three convolutions, a state of `dim` × `dim` for every head."""
    inner = heads * dim
    for name in ("q", "k", "v"):
        b.linear(f"{p}{name}_proj", "state_in", width, inner)
        b.conv(f"{p}{name}_conv1d", "conv", kernel, 1, inner)
    b.vector(p + "A_log", "state", 1, heads, 1, 1)
    b.vector(p + "dt_bias", "state", inner)
    for name in ("f", "g"):
        b.linear(f"{p}{name}_a_proj", "state", width, dim)
        b.linear(f"{p}{name}_b_proj", "state", dim, inner)
    b.linear(p + "b_proj", "state", width, heads)
    b.norm(p + "o_norm", dim)
    b.linear(p + "o_proj", "state_out", inner, width)
    return State(kind="kda", conv_elements=(kernel - 1) * 3 * inner, state_elements=heads * dim * dim, inner_width=inner, heads=heads)


def lightning(b: "Blueprint", p: str, width: int, heads: int, dim: int, block: int) -> State:
    """MiniMax's lightning attention (models/minimax): a state of `dim` × `dim` for every head; its decay tables are saved with it (`block` 0: they are not)."""
    inner = heads * dim
    b.norm(p + "norm", inner)
    b.linear(p + "qkv_proj", "state_in", width, 3 * inner)
    b.linear(p + "out_proj", "state_out", inner, width)
    b.linear(p + "output_gate", "state", width, inner)
    tables = (
        ("slope_rate", (1, 1, heads)),
        ("query_decay", (1, block, heads)),
        ("key_decay", (1, block, heads)),
        ("diagonal_decay", (block, block, heads, 1)),
    )
    for name, dims in tables if block else ():
        b.vector(p + name, "state", *dims, op="buffer")
    return State(kind="lightning", conv_elements=0, state_elements=heads * dim * dim, inner_width=inner, heads=heads)
