"""Asks llama.cpp's engine room what a user asked: the model and its companions read, the engine priced for each workload, the gate and the solver consulted."""

from brim.engines.base import Part, Plan
from brim.engines.llama_cpp import price
from brim.engines.llama_cpp.companions import Companions, price_with
from brim.engines.llama_cpp.defaults import TRAINED_CONTEXT, resolve
from brim.engines.llama_cpp.growth import growth, warnings
from brim.engines.llama_cpp.startup import Start, turned
from brim.errors import BrimError, CannotTell, Unreadable, Usage
from brim.facts.workload import LlamaWorkload
from brim.gate import DOES_NOT_FIT, FITS, judge
from brim.knobs import NAMES, Trial, last_resorts, make, micro_batch, pricer, slots
from brim.lineup import chosen_by_engine, left_visible, specs, with_host
from brim.planner import Answer, Solver
from brim.prediction import Prediction, predict
from brim.units import format_bytes
from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from brim.engines.llama_cpp.command import Command
    from brim.facts.device import Device
    from brim.facts.model import Checkpoint
    from brim.planner import Knob

    Read = Callable[[str], Checkpoint]
    Learn = Callable[[str], Callable[[Plan], Plan] | None]

SWEEP = 64  # combinations of a sweep that are priced
FLAG_TEXT = 160  # characters of one flag that are shown
ROUNDS = 6  # how often a split is chosen anew
# what the user fixed, by workload field → the knob that is then left alone
_FIXES = {
    "ctx": "ctx", "ctx_per_slot": "ctx", "slots": "slots", "ctk": "kv-type", "ctv": "kv-type", "gpu_layers": "layers", "cpu_experts": "experts",
    "override_tensors": "experts", "tensor_split": "split", "ubatch": "ubatch",
}  # fmt: skip


class Solution(Record):
    """The answer of `brim solve`: for which knobs, what was found, and where nothing fits the nearest thing that does (None: nothing does)."""

    checkpoint: "Checkpoint"
    wanted: tuple[str, ...]
    answer: Answer
    nearest: Answer | None
    devices: "tuple[Device, ...]"
    caveats: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """`fits`, `does_not_fit` or `cannot_tell`, as the gate says it of the answer."""
        return judge(self.answer.plan, self.devices).verdict


def fixed_by(workload: LlamaWorkload) -> frozenset[str]:
    """The knobs that a workload, as its user wrote it, leaves no choice about."""
    return frozenset(knob for field, knob in _FIXES.items() if getattr(workload, field) not in (None, ()))


def companions(workload: LlamaWorkload, read: "Read") -> tuple[Companions, tuple[str, ...]]:
    """The draft model, projector and adapters that the workload names, read from their files; what could not be read is named, never guessed."""
    missing: list[str] = []

    def opened(path: "str | None", role: str) -> "Checkpoint | None":
        if path is None:
            return None
        try:
            return read(path)
        except BrimError as fault:
            missing.append(f"the {role} {path} ({fault})")
            return None

    found = Companions(
        draft=opened(workload.draft_model, "draft model"),
        projector=opened(workload.mmproj, "projector"),
        adapters=tuple(one for path in workload.lora if (one := opened(path, "adapter")) is not None),
    )
    return found, tuple(missing)


def _engine(devices: "tuple[Device, ...]", beside: Companions, missing: tuple[str, ...], version: int) -> "Callable[[Checkpoint, LlamaWorkload], Plan]":
    """The price of one checkpoint and workload on these devices, companions included; what could not be read stands in `missing`."""
    accelerators = with_host(devices)

    def ask(checkpoint: "Checkpoint", workload: LlamaWorkload) -> Plan:
        plan = price_with(checkpoint, workload, accelerators, beside, version=version, price=price)
        if workload.program == "llama-cli" and workload.outputs is None and not plan.missing:
            fewer = price_with(checkpoint, workload.replace(outputs=workload.slots), accelerators, beside, version=version, price=price)
            plan = plan.replace(parts=tuple(map(_widen, plan.parts, fewer.parts)))
        return plan.replace(missing=plan.missing + missing) if missing else plan

    return ask


def _widen(part: Part, fewer: Part) -> Part:
    """llama-cli reserves a whole micro-batch of logits, or its slots' rows only where it runs the server inside: the span holds both."""
    if part.bytes == fewer.bytes:
        return part
    low = min(part.bytes.low, fewer.bytes.low)
    return part.replace(bytes=part.bytes.replace(low=low), rule=f"{part.rule}; with logits for the slots only {fewer.bytes.likely}")


def _room(devices: "Sequence[Device]") -> dict[str, int]:
    """Usable bytes of the devices whose ceiling is known."""
    return {device.id: device.budget.usable_bytes for device in devices if isinstance(device.budget.usable_bytes, int)}


def fit_llama(
    checkpoint: "Checkpoint",
    workloads: tuple[LlamaWorkload, ...],
    devices: "tuple[Device, ...]",
    *,
    read: "Read",
    version: int,
    fixed: frozenset[str] = frozenset(),
    caveats: tuple[str, ...] = (),
    defaults: tuple[str, ...] = (),
    unpriced: tuple[str, ...] = (),
    learn: "Learn" = lambda _architecture: None,
) -> Prediction:
    """Price each workload, judge the one that asks for most, and find the largest context and the nearest thing that fits."""
    beside, missing = companions(workloads[0], read)
    bare = pricer(checkpoint, _engine(devices, beside, missing, version))
    ask = _taught(bare, learn(checkpoint.architecture))
    candidates = _candidates(workloads)
    worst = _worst([Trial(workload=one) for one in candidates], ask, devices)
    if len(workloads) > 1:
        caveats = (*caveats, f"{len(workloads)} combinations, one after another; the one that asks for most is shown")
    solver = Solver(ask, _room(devices))

    def at(ctx: "int | None") -> Plan:
        return solver.plan(worst if ctx is None else worst.replace(workload=worst.workload.replace(ctx=ctx)))

    def nearest() -> tuple[str, ...]:
        return _suggestions(checkpoint, worst, solver, devices, fixed)

    found = predict(checkpoint, at, devices, caveats, nearest)
    grows = () if found.plan.missing else growth(found.plan, worst.workload)
    host = next((device.budget.usable_bytes for device in devices if device.id == "cpu"), None)
    said = warnings(found.plan, grows, host if isinstance(host, int) else None)
    start = _started(checkpoint, worst, found, devices, fixed, beside, version)
    return found.replace(
        grows=grows, defaults=defaults, unpriced=unpriced, caveats=found.caveats + said + _adapts(start, devices), start=start,
        bare=None if ask is bare else bare(worst), resolved=worst.workload,
    )  # fmt: skip


def _taught(bare: "Callable[[Trial], Plan]", lesson: "Callable[[Plan], Plan] | None") -> "Callable[[Trial], Plan]":
    """The price with this machine's own lesson applied, where it has one."""
    return bare if lesson is None else lambda trial: lesson(bare(trial))


def _started(
    checkpoint: "Checkpoint", trial: Trial, found: Prediction, devices: "tuple[Device, ...]", fixed: frozenset[str], beside: Companions, version: int
) -> "Start | None":
    """What llama.cpp's own --fit would make of it at the start, where it is on and changes something, or gives up."""
    workload = trial.workload
    if not workload.fit or found.plan.missing or trial.mix or version < TRAINED_CONTEXT:
        return None
    host = next((device.memory.total_bytes for device in devices if device.id == "cpu"), None)
    engine = _engine(devices, Companions(draft=beside.draft, projector=None, adapters=()), (), version)
    return turned(checkpoint, workload, specs(devices), host if isinstance(host, int) else None, lambda one: engine(checkpoint, one), ctx_given="ctx" in fixed)


def _adapts(start: "Start | None", devices: "tuple[Device, ...]") -> tuple[str, ...]:
    """The sentence for that: the engine keeps 1024 MiB of each card free, whatever brim's reserve is."""
    if start is None:
        return ()
    if not start.met and not start.flags:
        return (f"llama.cpp's --fit is on and changes nothing ({start.why}): the engine loads as asked",)
    held = ", ".join(f"{format_bytes(start.plan.on(device.id).likely)} on {device.id}" for device in devices if start.plan.on(device.id).high)
    here = {FITS: "which fits here", DOES_NOT_FIT: "which is beyond what brim may use here"}.get(
        judge(start.plan, devices).verdict, "and whether that fits here cannot be told"
    )
    flags = [flag if len(flag) <= FLAG_TEXT else f"{flag[:FLAG_TEXT]}… ({flag.count(',') + 1} patterns)" for flag in start.flags]
    more = f"; then it gives up ({start.why})" if not start.met else ""
    return (f"llama.cpp's --fit is on: the engine starts with {' '.join(flags)} instead ({held}), {here}{more}; --fit off keeps what was asked for",)


def fit_command(
    words: "Sequence[str]",
    environ: "Mapping[str, str]",
    devices: "tuple[Device, ...]",
    *,
    read: "Read",
    version: int,
    model: "str | Checkpoint | None" = None,
    caveats: tuple[str, ...] = (),
    learn: "Learn" = lambda _architecture: None,
) -> Prediction:
    """The same for a command line. `CannotTell` where no program of llama.cpp's is in it, or where it names no model and none was given."""
    from brim.engines.llama_cpp.command import read as read_command

    command = read_command(words, environ)
    if command is None:
        raise CannotTell(
            f"brim does not know the command {words[0] if words else ''!r}", hint="It is governed all the same by `brim run`; `brim fit MODEL` prices a model."
        )
    named = model if model is not None else command.model
    if named is None:
        raise CannotTell(f"the {command.program} command names no model", hint="Give the model before the --: brim fit MODEL -- COMMAND")
    if isinstance(named, str):
        named = _opened(named, command.local_file, read)
    workloads, defaults = command_workloads(command), command.defaults
    older, told = resolve(command.given, version)
    if workloads == (resolve(command.given)[0],) != (older,):  # an older build's own defaults; what a sweep sets is left alone
        workloads, defaults = (older,), told
    chosen, strangers = chosen_by_engine(left_visible(devices, command.visible), command.devices)
    return fit_llama(
        named, workloads, chosen, read=read, version=version, fixed=fixed_by(command.given),
        caveats=(*caveats, *command.caveats, *strangers), defaults=defaults, unpriced=command.unpriced, learn=learn,
    )  # fmt: skip


def _opened(named: str, local: "str | None", read: "Read") -> "Checkpoint":
    """The model that a command names; with a URL or a hub name, the local file beside it is tried first. `CannotTell` where a name from afar cannot be read here."""
    if local is not None and local != named:
        try:
            return read(local)
        except Unreadable:
            pass
    afar = named.startswith(("hf:", "ollama:", "http://", "https://"))
    try:
        return read(named)
    except Unreadable as fault:
        if afar:
            raise CannotTell(
                f"the model {named} cannot be read here: {fault}", hint="Download it, and give the file before the --: brim fit FILE -- COMMAND"
            ) from None
        raise


def _candidates(workloads: tuple[LlamaWorkload, ...]) -> tuple[LlamaWorkload, ...]:
    """Of a sweep, what may ask for most: the longest context of each other combination, and of many combinations those with the largest batches and caches."""
    longest: dict[LlamaWorkload, LlamaWorkload] = {}
    for one in workloads:
        key = one.replace(ctx=0)
        held = longest.get(key)
        if held is None or (one.ctx or 0) > (held.ctx or 0):
            longest[key] = one
    found = sorted(longest.values(), key=lambda one: (one.ctx or 0, one.ubatch or 0, one.gpu_layers or 0), reverse=True)
    return tuple(found[:SWEEP])


def _worst(trials: list[Trial], ask: "Callable[[Trial], Plan]", devices: "tuple[Device, ...]") -> Trial:
    """The trial with the least room left on any device, or the largest in all where no ceiling is known."""
    if len(trials) == 1:
        return trials[0]
    room = _room(devices)

    def need(trial: Trial) -> tuple[float, int]:
        plan = ask(trial)
        return max((plan.on(device).high / usable for device, usable in room.items() if usable), default=0.0), plan.total().high

    return max(trials, key=need)


def _suggestions(checkpoint: "Checkpoint", trial: Trial, solver: Solver, devices: "tuple[Device, ...]", fixed: frozenset[str]) -> tuple[str, ...]:
    """What would fit instead, the least costly to the user first, with the flags."""
    accelerators = tuple(device.id for device in devices if device.backend != "cpu")
    found = solver.nearest(trial, last_resorts(checkpoint, trial, accelerators, frozenset()))
    if found is None or not found.fits:
        return ("nothing that brim can turn makes it fit: a larger device, or another model",)
    says = [_says(knob, value, found) for knob, value in found.chosen]
    warned = [knob for knob, _ in found.chosen if knob in fixed]
    flags = " ".join(found.flags)
    left = ", ".join(f"{format_bytes(margin)} left on {device}" for device, margin in found.margins.items())
    sentence = f"it fits with {' and '.join(says)}" + (f" ({flags})" if flags else "") + f"; {left}"
    return (sentence, *(f"that changes {knob}, which you set" for knob in warned))


def _says(knob: str, value: str, found: Answer) -> str:
    names = {"ctx": "a context of {}", "slots": "{} slots", "kv-type": "a {} cache", "ubatch": "a micro-batch of {}", "layers": "{} layers on the cards"}
    if knob == "experts":
        return f"the experts of {value} layers on the host"
    if knob == "quant":
        weights = sum(part.bytes.likely for part in found.plan.parts if part.name == "weights")
        return f"a {value} file (weights {format_bytes(weights)})"
    return names[knob].format(value)


def parse_wanted(text: "Sequence[str]") -> tuple[str, ...]:
    """`--for ctx,slots` or several: the knobs in order of preference. `Usage` for a name that is none."""
    wanted = tuple(dict.fromkeys(name.strip() for part in text for name in part.split(",") if name.strip()))
    for name in wanted:
        if name not in NAMES:
            raise Usage(f"--for {name!r}: no knob of that name", hint=f"Knobs: {', '.join(NAMES)}.")
    if not wanted:
        raise Usage("--for: name at least one knob", hint=f"Knobs: {', '.join(NAMES)}.")
    return wanted


def solve_llama(
    checkpoint: "Checkpoint",
    workload: LlamaWorkload,
    wanted: tuple[str, ...],
    devices: "tuple[Device, ...]",
    *,
    read: "Read",
    version: int,
    caveats: tuple[str, ...] = (),
    learn: "Learn" = lambda _architecture: None,
) -> Solution:
    """The largest workload that fits, for these knobs in order of preference; what the user fixed stays. `Usage` where a wanted knob is fixed or cannot be turned."""
    fixed = fixed_by(workload)
    for name in wanted:
        if name in fixed:
            raise Usage(f"--for {name}: you fixed it yourself", hint="Leave its flag out, or solve for another knob.")
    if "quant" in wanted and not checkpoint.tensors:
        raise CannotTell(
            f"{checkpoint.name}: a quantisation's size needs the tensor directory, and there is none", hint="Give a GGUF or a shape file with tensors."
        )
    accelerators = tuple(device.id for device in devices if device.backend != "cpu")
    if not accelerators and any(name in ("layers", "experts", "split") for name in wanted):
        raise Usage("--for layers, experts and split need an accelerator", hint="Give one: --device cuda:24GiB.")
    if "split" in wanted and len(accelerators) < 2:
        raise Usage("--for split needs two accelerators or more", hint="Give them: --device cuda:24GiB --device cuda:12GiB.")
    resolved, _ = resolve(workload, version)
    if "slots" in wanted and workload.kv_unified is None:
        resolved = resolved.replace(kv_unified=False)  # an explicit -np leaves the cache in one piece a slot (tools/server/server.cpp, b11434)
    beside, missing = companions(resolved, read)
    ask = _taught(pricer(checkpoint, _engine(devices, beside, missing, version)), learn(checkpoint.architecture))
    solver = Solver(ask, _room(devices))
    trial = Trial(workload=resolved)
    others = _others(checkpoint, trial, wanted, fixed, accelerators)
    answer = solver.solve(trial, [make(name, checkpoint, trial, solver, accelerators) for name in wanted], others)
    if "split" in wanted and len(wanted) > 1:
        answer = _settle_split(checkpoint, trial, wanted, solver, accelerators, others, answer)
    nearest = None
    if not answer.fits and not answer.missing:
        knobs = [make(name, checkpoint, trial, solver, accelerators) for name in wanted]
        turned = [knob for knob in last_resorts(checkpoint, trial, accelerators, fixed) if knob.name not in wanted]
        nearest = _nearest(trial, knobs, turned, solver)
    return Solution(checkpoint=checkpoint, wanted=wanted, answer=answer, nearest=nearest, devices=devices, caveats=caveats + answer.plan.caveats)


def _nearest(trial: Trial, wanted: "list[Knob]", others: "list[Knob]", solver: Solver) -> Answer | None:
    """What else would have to be turned for the wanted knobs to stand at their floor (else at their least), and how far they then go."""
    for at in (lambda knob: knob.floor, lambda _knob: 0):
        base = trial
        for knob in wanted:
            base = knob.put(base, knob.values[min(at(knob), len(knob.values) - 1)])
        found = solver.nearest(base, others)
        if found is not None and found.fits:
            further = solver.solve(found.trial, wanted)
            if not further.fits:
                return found
            return further.replace(chosen=found.chosen + further.chosen, flags=tuple(dict.fromkeys(found.flags + further.flags)), steps=())
    return None


def _settle_split(
    checkpoint: "Checkpoint", trial: Trial, wanted: tuple[str, ...], solver: Solver, accelerators: tuple[str, ...], others: "list[Knob]", answer: Answer
) -> Answer:
    """The best split hangs on the other knobs and they on it: choose it again where they ended, for as long as they gain."""
    knobs = [make(name, checkpoint, trial, solver, accelerators) for name in wanted if name != "split"]
    chosen = dict(answer.chosen)
    standing = tuple(_index(knob, chosen) for knob in knobs)
    for _ in range(ROUNDS):
        at = answer.trial
        assert isinstance(at, Trial)
        split = make("split", checkpoint, at, solver, accelerators)
        best = split.values[-1]
        base = split.put(trial, best)
        again = solver.solve(base, [split.replace(values=(best,), floor=0) if name == "split" else _named(knobs, name) for name in wanted], others)
        reached = tuple(_index(knob, dict(again.chosen)) for knob in knobs)
        if not again.fits or reached <= standing:
            break
        answer, standing = again, reached
    return answer


def _named(knobs: "list[Knob]", name: str) -> "Knob":
    return next(knob for knob in knobs if knob.name == name)


def _index(knob: "Knob", chosen: dict[str, str]) -> int:
    """Where a knob stands, by the text of its value."""
    return next(i for i, value in enumerate(knob.values) if str(value) == chosen[knob.name])


def _others(checkpoint: "Checkpoint", trial: Trial, wanted: tuple[str, ...], fixed: frozenset[str], accelerators: tuple[str, ...]) -> "list[Knob]":
    """The knobs that were not asked for, to be priced one step up and down. What the user fixed is priced too: it is his to change."""
    del fixed
    found = list(last_resorts(checkpoint, trial, accelerators, frozenset((*wanted, "quant"))))  # another mix is no step, and sizing them all takes seconds
    names = {knob.name for knob in found} | set(wanted)
    return found + [one for one in (slots(trial.workload), micro_batch(trial.workload)) if one.name not in names]


def command_workloads(command: "Command") -> tuple[LlamaWorkload, ...]:
    """The workloads of a command, with what was not priced listed in each."""
    return tuple(one.replace(unpriced=command.unpriced) for one in command.workloads)


def as_the_engine_would(answer: Prediction, workload: LlamaWorkload, devices: "tuple[Device, ...]", built_for: "tuple[str, ...] | None", version: int) -> Plan:
    """The plan of the workload as the engine can express it, on the devices that it saw, with the host's weights laid out for `built_for`, where that is known."""
    lined = tuple(spec.replace(built_for=built_for) if spec.backend == "cpu" else spec for spec in with_host(devices))
    return price(answer.checkpoint, workload, lined, version=version)
