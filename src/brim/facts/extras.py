"""What a run may have beside its limits: where notices go, who watches, and what it goes on from."""

from brim.values import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from brim.facts.look import Look
    from brim.facts.settings import Limits


class Extras(Record):
    """What a run may have beside its limits: where notices go, who watches, and what it goes on from."""

    notify_command: tuple[str, ...] = ()
    webhook: str = ""
    watch: "Callable[[Limits, Any, Look, int], None] | None" = None
    say: "Callable[[str], None] | None" = None
    resume_from: str = ""
    resume_step: int = -1
    resumed_run: str = ""
    attempt: int = 0
    cwd: str = ""
