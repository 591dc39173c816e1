"""Which groups of nodes CUDA replaces by one kernel, because what such a group reads must stay alive until it has run.

Source: llama.cpp b11434, ggml/src/ggml-cuda/ggml-cuda.cu `ggml_backend_cuda_graph_optimize` and its matchers, topk-moe.cu. Other backends keep nothing alive.
"""

from brim.engines.llama_cpp import tensor as g
from brim.engines.llama_cpp.tensor import T, is_contiguous
from brim.facts.dtypes import GGML_BLOCKS

_MOST_REDUCED = 15  # MOE_WEIGHTED_REDUCTION_MAX_EXPERTS


def _elidable(nodes: "list[T]", indices: "list[int]", outputs: "tuple[int, ...]") -> bool:
    """Whether all but the outputs are used only inside the group (`ggml_can_fuse_subgraph_ext`)."""
    group = [nodes[index] for index in indices]
    for place, (index, node) in enumerate(zip(indices, group, strict=True)):
        if index in outputs:
            continue
        if node.output:
            return False
        uses = sum(1 for other in group[place + 1 :] for operand in other.src if operand is node)
        if uses != node.uses:
            return False
        source = node.view
        while source is not None:
            if source not in group and source.usage != g.WEIGHTS:
                return False
            source = source.view
    return True


def _split_product(t: T) -> "tuple[T, T] | None":
    """(experts, weights) of a product of a full and a broadcast operand."""
    for full, narrow in ((t.src[0], t.src[1]), (t.src[1], t.src[0])):
        if full.ne == t.ne and is_contiguous(full) and narrow.ne == (1, *t.ne[1:]) and is_contiguous(narrow) and full.type == narrow.type == "F32":
            return full, narrow
    return None


def weighted_sum(nodes: "list[T]", start: int) -> "tuple[list[T], T, int] | None":
    """An expert sum that one kernel replaces: (what it keeps alive, its last node, how many nodes) (`ggml_cuda_match_moe_weighted_reduction`)."""
    first = nodes[start]
    if first.op != "MUL" or first.type != "F32" or not is_contiguous(first):
        return None
    kept: list[T] = []
    weighted, muls = first, 1
    if start + 1 < len(nodes) and nodes[start + 1].op == "MUL" and nodes[start + 1].type == "F32":
        outer, inner = _split_product(nodes[start + 1]), _split_product(first)
        if outer is not None and inner is not None and outer[0] is first:
            kept, weighted, muls = [inner[0], outer[1], inner[1]], nodes[start + 1], 2
    if not kept:
        split = _split_product(first)
        if split is None:
            return None
        kept = [split[0], split[1]]
    used, tokens = weighted.ne[1], weighted.ne[2] * weighted.ne[3]
    count = 2 * used + muls - 1
    if not 2 <= used <= _MOST_REDUCED or start + count > len(nodes):
        return None
    last = _views_and_sums(nodes, start + muls, start + count, weighted, used, tokens)
    if last is None or not _elidable(nodes, list(range(start, start + count)), (start + count - 1,)):
        return None
    return kept, nodes[start + count - 1], count


def _views_and_sums(nodes: "list[T]", start: int, end: int, weighted: T, used: int, tokens: int) -> "T | None":
    """The views of the experts' rows and the additions behind them, in the order that the kernel wants."""
    views: list[T] = []
    previous: T | None = None
    sums = 0
    nb = g.strides(weighted)
    for node in nodes[start:end]:
        if node.op == "VIEW":
            step = g.strides(node)
            wrong = len(views) >= used or node.src[0] is not weighted or node.ne != (weighted.ne[0], tokens, 1, 1) or step[1] != nb[2]
            if wrong or node.offset != len(views) * nb[1]:
                return None
            views.append(node)
            continue
        if node.op != "ADD" or len(views) < 2 or sums + 1 >= len(views):
            return None
        if node.src[0] is not (views[0] if sums == 0 else previous) or node.src[1] is not views[sums + 1]:
            return None
        previous = node
        sums += 1
    return previous if len(views) == used and sums == used - 1 else None


def _gate_pattern(nodes: "list[T]", start: int) -> "tuple[int, tuple[int, int]] | None":
    """The nodes of an expert choice from its activation to its weights: (count, the two nodes that stay) (`ggml_cuda_topk_moe_fusion`)."""
    node = nodes[start]
    if node.op == "UNARY" and node.detail != "sigmoid":
        return None
    at, limit = start + 1, len(nodes)

    def follows(op: str, source: T) -> bool:
        return at < limit and nodes[at].op == op and nodes[at].src[0] is source

    if not follows("RESHAPE", node):
        return None
    reshaped = nodes[at]
    at += 1
    biased = follows("ADD", node)
    at += biased
    if not follows("ARGSORT", nodes[at - 1] if biased else node):
        return None
    at += 1
    if not follows("VIEW", nodes[at - 1]):
        return None
    at += 1
    if at >= limit or nodes[at].op != "GET_ROWS" or nodes[at].src[0] is not reshaped or nodes[at].src[1] is not nodes[at - 1]:
        return None
    ids = at - 1
    at += 1
    if at < limit and nodes[at].op == "RESHAPE" and _normalised(nodes, at):
        at += 5
    if at < limit and nodes[at].op == "SCALE" and nodes[at].src[0] is nodes[at - 1]:
        at += 1
    return at - start, (ids, at - 1)


def _normalised(nodes: "list[T]", at: int) -> bool:
    """RESHAPE, SUM_ROWS, CLAMP, DIV, RESHAPE behind the chosen weights."""
    if at + 4 >= len(nodes):
        return False
    chain = all(nodes[at + step].op == op and nodes[at + step].src[0] is nodes[at + step - 1] for step, op in enumerate(("RESHAPE", "SUM_ROWS", "CLAMP")))
    return (
        chain and nodes[at + 3].op == "DIV" and nodes[at + 3].src[1] is nodes[at + 2] and nodes[at + 3].src[0] is nodes[at]
        and nodes[at + 4].op == "RESHAPE" and nodes[at + 4].src[0] is nodes[at + 3]
    )  # fmt: skip


def chosen_experts(nodes: "list[T]", start: int) -> int:
    """How many nodes of an expert choice one kernel replaces, 0 for none."""
    if nodes[start].op not in ("UNARY", "SOFT_MAX"):
        return 0
    found = _gate_pattern(nodes, start)
    if found is None:
        return 0
    count, outputs = found
    node, ids = nodes[start], nodes[outputs[0]]
    nb = g.strides(ids)
    total = nb[1] // nb[0]
    if (total & (total - 1) or total > 512) and total not in (288, 576):
        return 0
    if node.op == "SOFT_MAX" and node.detail == "masked":
        return 0
    if not is_contiguous(node.src[0]) or not is_contiguous(nodes[outputs[1]]):
        return 0
    return count if _elidable(nodes, list(range(start, start + count)), outputs) else 0


def _shared_expert(nodes: "list[T]", routed: int, at: int) -> bool:
    """Whether the shared expert's gate and up at `at` can run together with the routed ones at `routed` (`ggml_cuda_match_shared_expert`)."""
    indices = [routed, routed + 1, routed + 2, at, at + 1, at + 2]
    if [nodes[index].op for index in indices] != ["MUL_MAT_ID", "MUL_MAT_ID", "GLU", "MUL_MAT", "MUL_MAT", "GLU"]:
        return False
    unit, other = nodes[routed + 2], nodes[at + 2]
    if len(unit.src) < 2 or len(other.src) < 2 or unit.detail != other.detail or not _elidable(nodes, indices, (routed + 2, at + 2)):
        return False
    gate, up, gate2, up2 = unit.src[0], unit.src[1], other.src[0], other.src[1]
    if {id(gate), id(up)} != {id(nodes[routed]), id(nodes[routed + 1])} or {id(gate2), id(up2)} != {id(nodes[at]), id(nodes[at + 1])}:
        return False
    weight, weight2, cur = up.src[0], up2.src[0], up.src[1]
    if GGML_BLOCKS[weight.type][0] == 1 or weight.place is None or weight.type != weight2.type or weight.ne[:2] != weight2.ne[:2] or weight.ne[3] != 1:
        return False
    if not _fusable(gate, up) or not _fusable(gate2, up2):
        return False
    if cur.op != "RESHAPE" or cur.src[0] is not up2.src[1] or cur.ne[1] != 1 or cur.ne[3] != 1 or not is_contiguous(up2.src[1]):
        return False
    return weight2.op == "NONE" and gate2.src[0].op == "NONE"


def _fusable(gate: T, up: T) -> bool:
    """`ggml_cuda_should_fuse_mul_mat`: same weight type and shape, same operands."""
    a, b = gate.src[0], up.src[0]
    return a.type == b.type and a.ne == b.ne and gate.src[1:] == up.src[1:]


def keep_alive(nodes: "list[T]") -> "list[tuple[list[T], T]]":
    """The lifetimes that the card's fusions prolong in one split: (tensors, the node until which they stay). Reorders `nodes` where a shared expert is drawn forward."""
    kept: list[tuple[list[T], T]] = []
    at = 0
    while at + 5 < len(nodes):
        if nodes[at].op == "MUL_MAT_ID":
            at = _draw_forward(nodes, at, kept)
        at += 1
    at = 0
    while at < len(nodes):
        summed = weighted_sum(nodes, at)
        if summed is not None:
            kept.append((summed[0], summed[1]))
            at += summed[2] - 1
        count = chosen_experts(nodes, at)
        if count and at + count < len(nodes):
            for node in nodes[at : at + count]:
                kept.append(([node, *node.src], nodes[at + count]))
            at += count - 1
        at += 1
    return kept


def _draw_forward(nodes: "list[T]", at: int, kept: "list[tuple[list[T], T]]") -> int:
    """Move a shared expert's gate and up behind the routed ones; the index to go on from."""
    for other in range(at + 3, len(nodes) - 2):
        if nodes[other].op == "MUL_MAT_ID" and nodes[other + 1].op == "MUL_MAT_ID":
            break
        if nodes[other].op != "MUL_MAT" or not _shared_expert(nodes, at, other):
            continue
        nodes[at + 3 : other + 3] = nodes[other : other + 3] + nodes[at + 3 : other]
        up = nodes[at + 2].src[1]
        kept.append(([up.src[1], up.src[2]], nodes[at + 5]))
        return at + 5
    return at
