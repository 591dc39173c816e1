"""What llama.cpp's own `--fit` would turn before it loads: the context first, then layers and experts; a measure of any trial in, the turned settings out.

A port of the decisions of common/fit.cpp `common_params_fit_impl`, b11434, integer for integer; a harness compiles that very file and compares (tests/evidence).
The measure is the caller's: bytes by device for a context, a number of layers, a split and overrides, as the engine's dry load counts them (weights, caches, compute).
Not covered: devices that do not tell their memory; the engine's own limit of 4096 overrides.
"""

from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST = (1 << 32) - 1
_EXPERTS = r"ffn_(up|down|gate_up|gate)_(ch|)exps"
# what of the first partial layer of a device goes elsewhere; all further ones give their experts (`common_layer_fraction_t`)
_PARTS = {"attn": r"ffn_(gate|up|gate_up|down).*", "up": r"ffn_(gate|gate_up|down).*", "gate": r"ffn_down.*", "moe": _EXPERTS}


class Trial(Record):
    """Settings to measure. `layers` None: all, as asked for. `split` are layers by device, empty for one device; `overrides` are (pattern, buffer)."""

    ctx: int
    layers: int | None = None
    split: tuple[int, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()


class Measured(Record):
    """What a trial takes on each device, in bytes: in all, and of that the weights. `host` is the host's part."""

    used: tuple[int, ...]
    model: tuple[int, ...]
    host: int = 0


class Asked(Record):
    """The question: what is free and must stay free on each device (bytes), and what the user left open. `host` is the host's total memory, for a run without cards.

    `blocks` are the model's layers (with next-token blocks where they are loaded), `trained` its context, `streams` the caches of their own; `ctx` 0 is open; `least`
    is the smallest context that may be taken, None for none smaller than the full one; `layers` are those that the user fixed.
    """

    free: tuple[int, ...]
    margins: tuple[int, ...]
    buffers: tuple[str, ...]
    host: int
    blocks: int
    trained: int
    experts: bool
    streams: int = 1
    ctx: int = 0
    least: int | None = None
    layers: int | None = None
    split_fixed: bool = False
    overrides_fixed: bool = False
    split_mode: str = "layer"


class Turned(Record):
    """The answer: the trial that the engine would load, whether its targets are met (else it loads all the same), and its own words where they are not."""

    trial: Trial
    met: bool
    why: str = ""


class _Share:
    """Layers of one device: all of them, and how many of those are partial (`ngl_t`)."""

    __slots__ = ("layers", "overflow", "part")

    def __init__(self, layers: int = 0, part: int = 0, overflow: str = "moe") -> None:
        self.layers, self.part, self.overflow = layers, part, overflow

    def copy(self) -> "_Share":
        return _Share(self.layers, self.part, self.overflow)

    @property
    def full(self) -> int:
        return self.layers - self.part


def _towards_zero(top: int, bottom: int) -> int:
    """Division as C does it, in the 32 bits that the result is kept in; a bottom of nothing gives the smallest step."""
    if not bottom:
        return 1
    whole = abs(top) // abs(bottom)
    return (whole if (top < 0) == (bottom < 0) else -whole) & _MOST


def adapt(asked: Asked, measure: "Callable[[Trial], Measured]") -> Turned:
    """What `--fit on` makes of the question. Measures a few dozen trials."""
    count = len(asked.free)
    most = min(asked.trained * asked.streams, _MOST)
    ctx = asked.ctx or most
    full = measure(Trial(ctx=ctx))
    if not count:
        spare = asked.host - full.host
        if spare >= asked.margins[0]:
            return Turned(trial=Trial(ctx=ctx), met=True)
    elif all(free - used >= margin for free, used, margin in zip(asked.free, full.used, asked.margins, strict=True)):
        return Turned(trial=Trial(ctx=ctx), met=True)
    ctx, done = _shorter(asked, measure, full, ctx, most)
    if done:
        return Turned(trial=Trial(ctx=ctx), met=True)
    why = _forbidden(asked)
    if why:
        return Turned(trial=Trial(ctx=ctx), met=False, why=why)
    return Turned(trial=_Filling(asked, measure, ctx).fill(), met=True)


def _shorter(asked: Asked, measure: "Callable[[Trial], Measured]", full: Measured, ctx: int, most: int) -> tuple[int, bool]:
    """Step 2: the context that is taken, and whether that was all (`step 2` of the source)."""
    count = len(asked.free)
    free = asked.host if not count else sum(asked.free)
    margins = asked.margins[0] if not count else sum(asked.margins)
    used = full.host if not count else sum(full.used)
    least = _MOST if asked.least is None else min(asked.least * asked.streams, _MOST)
    if free - used - margins >= 0 or asked.ctx or most <= least:
        return ctx, False
    target = free - margins
    if count > 1:
        layer = sum(full.model) // max(asked.blocks if asked.layers is None else min(asked.layers, asked.blocks), 1)
        target -= (count + 1) * layer // (6 if asked.experts else 2)
    small = measure(Trial(ctx=least))
    smallest = small.host if not count else sum(small.used)
    if target <= smallest:
        return least, False
    ctx = least + (most - least) * (target - smallest) // (used - smallest)
    ctx = max(ctx - ctx % (256 * asked.streams), least)
    return ctx, count <= 1


def _forbidden(asked: Asked) -> str:
    """What the user fixed, so that the engine gives up and loads as asked."""
    if not asked.free:
        return "was unable to fit model into system memory by reducing context"
    if asked.layers is not None:
        return "n_gpu_layers already set by user"
    if len(asked.free) > 1 and asked.split_fixed:
        return "tensor_split already set by user"
    if len(asked.free) > 1 and asked.split_mode == "row":
        return "changing weight allocation for LLAMA_SPLIT_MODE_ROW not implemented"
    if asked.overrides_fixed:
        return "tensor_buft_overrides already set by user"
    return ""


class _Filling:
    """Steps 3 and 4: devices are filled back to front with layers (of a mixture of experts without its experts), then front to back with whole ones."""

    def __init__(self, asked: Asked, measure: "Callable[[Trial], Measured]", ctx: int) -> None:
        self.asked, self.measure, self.ctx = asked, measure, ctx
        self.count = len(asked.free)
        self.targets = [free - margin for free, margin in zip(asked.free, asked.margins, strict=True)]
        self.shares = [_Share() for _ in asked.free]
        self.homes = ["CPU"] * self.count
        self.used: Sequence[int] = self._used(self.shares, self.homes)

    def trial(self, shares: "list[_Share]", homes: "list[str]") -> Trial:
        """The settings for these shares (`set_ngl_tensor_split_tbo`)."""
        layers = sum(share.layers for share in shares)
        at = self.asked.blocks + 1 - layers
        overrides: list[tuple[str, str]] = []
        for share, home in zip(shares, homes, strict=True):
            at += share.full
            for il in range(at, at + share.part):
                first = il == at
                overrides.append((rf"blk\.{il}\.{_PARTS[share.overflow if first else 'moe']}", home if first else "CPU"))
            at += share.part
        split = tuple(share.layers for share in shares) if self.count > 1 else ()
        return Trial(ctx=self.ctx, layers=layers, split=split, overrides=tuple(overrides))

    def _used(self, shares: "list[_Share]", homes: "list[str]") -> "Sequence[int]":
        return self.measure(self.trial(shares, homes)).used

    def fill(self) -> Trial:
        """The settings that the engine arrives at."""
        surplus = 0
        if self.asked.experts:
            apart = self.measure(Trial(ctx=self.ctx, overrides=((rf"blk\.\d+\.{_EXPERTS}", "CPU"),)))
            surplus = sum(self.asked.free) - sum(apart.used) - sum(self.asked.margins)
        for at in reversed(range(self.count)):
            self._back_to_front(at)
        if self.asked.experts and surplus > 0:
            self._front_to_back()
        return self.trial(self.shares, self.homes)

    def _step(self, delta: int, at: int, high: "Sequence[int]") -> int:
        """The method of false position: how many more layers to try."""
        step = _towards_zero(delta * (self.targets[at] - self.used[at]), high[at] - self.used[at])
        return min(max(step, 1), delta - 1)

    def _back_to_front(self, at: int) -> None:
        last, experts = at == self.count - 1, self.asked.experts
        left = self.asked.blocks + 1 - sum(share.layers for share in self.shares[at + 1 :])
        high = [share.copy() for share in self.shares]
        high[at].layers = left
        if experts:
            high[at].part = left - 1 if last else left
        if left <= 0:
            return
        above = self._used(high, self.homes)
        if above[at] <= self.targets[at]:
            self.shares, self.used = high, above
            return
        while (delta := high[at].layers - self.shares[at].layers) > 1:
            step = self._step(delta, at, above)
            test = [share.copy() for share in self.shares]
            test[at].layers += step
            if experts:
                test[at].part += step - 1 if last and not test[at].part else step
            found = self._used(test, self.homes)
            if found[at] <= self.targets[at]:
                self.shares, self.used = test, found
            else:
                high, above = test, found

    def _front_to_back(self) -> None:
        """Step 4: turn layers without experts into whole ones while there is room, and then part of one more."""
        self.dense = next((at for at in range(self.count) if all(share.layers > 0 for share in self.shares[at:])), self.count)
        at = 0
        while at <= self.dense < self.count:
            self._whole(at)
            if self.dense < self.count and self.shares[self.dense].layers > (0 if at < self.count - 1 else 1):
                self._one_more(at)
            at += 1

    def _whole(self, at: int) -> None:
        high = [share.copy() for share in self.shares]
        for other in range(self.dense, self.count):
            moved = high[other].layers if other < self.count - 1 else high[other].layers - 1
            high[at].layers += moved
            high[other].layers -= moved
            high[other].part = 0
        above = self._used(high, self.homes)
        if above[at] <= self.targets[at]:
            self.shares, self.used, self.dense = high, above, self.count - 1
            return
        while (delta := high[at].full - self.shares[at].full) > 1:
            step, dense, converted = self._step(delta, at, above), self.dense, 0
            test = [share.copy() for share in self.shares]
            while dense < self.count:
                some = min(step - converted, test[dense].part & _MOST)
                test[dense].layers -= some
                test[dense].part -= some
                test[at].layers += some
                converted += some
                if test[dense].part & _MOST:
                    break
                dense += 1
            found = self._used(test, self.homes)
            if found[at] <= self.targets[at]:
                self.shares, self.used, self.dense = test, found, dense
            else:
                high, above = test, found

    def _one_more(self, at: int) -> None:
        """Part of one more layer: attention and up, then gate too; else attention alone."""
        test, dense = [share.copy() for share in self.shares], self.dense
        test[dense].layers -= 1
        test[dense].part -= 1
        test[at].layers += 1
        test[at].part += 1
        if not test[dense].part:
            dense += 1
        homes = list(self.homes)
        if at < self.count - 1:
            homes[at] = self.asked.buffers[at + 1]
        test[at].overflow = "up"
        if self._took(at, test, homes, dense):
            test[at].overflow = "gate"
            self._took(at, test, homes, dense)
        else:
            test[at].overflow = "attn"
            self._took(at, test, homes, dense)

    def _took(self, at: int, test: "list[_Share]", homes: "list[str]", dense: int) -> bool:
        found = self._used(test, homes)
        after = at + 1
        if found[at] < self.targets[at] and (after == self.count or found[after] < self.targets[after]):
            self.shares, self.homes, self.used, self.dense = [share.copy() for share in test], homes, found, dense
            return True
        return False
