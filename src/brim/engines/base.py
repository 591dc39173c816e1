"""The question every engine model answers: given facts, device and workload, a breakdown of named parts, each with a span, a rule and a source."""

from brim.units import Span, total
from brim.values import Record

PART_NAMES = (
    "weights", "kv_cache", "kv_cache_swa", "recurrent_state", "compute_buffer", "output_buffer", "mmproj", "draft", "context_overhead", "graph_capture",
    "activations", "gradients", "optimizer_state", "master_weights", "adapter", "communication", "logits", "allocator_slack",
)  # fmt: skip


class Part(Record):
    """One named allocation in a plan.

    `device` is the id of the device that holds it (`cpu`, `cuda:0`). `rule` is the arithmetic with the model's own numbers in it, so that a person can
    redo it; `source` names the project, file, function and version that the rule was read from, or the measurement.
    """

    name: str
    device: str
    bytes: Span
    rule: str
    source: str


class Plan(Record):
    """All parts of one model + engine + workload. `missing` names what kept a part from being priced: then no verdict but `cannot_tell` may be drawn."""

    engine: str
    engine_version: str
    parts: tuple[Part, ...]
    workload: "dict[str, object]"
    missing: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def on(self, device: str) -> Span:
        """The sum of the parts on one device."""
        return total([part.bytes for part in self.parts if part.device == device])

    def total(self) -> Span:
        """The sum of all parts."""
        return total([part.bytes for part in self.parts])
