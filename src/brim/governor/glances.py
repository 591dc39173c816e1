"""Between two whole looks, while nothing is near: waits, glances at free memory alone, and keeps what it saw; whatever moves ends it at once.

A whole look touches a hundred times as much code and data as a glance, and once a second all of it has to come back into the processor's caches. What a glance
does not ask (pressure, disk, who is of the job) is asked at least every `quiet.LONGEST_NS`; the kernel's own notices, a signal, the end of the job and a word on
the control page end the glances at once. Each glance becomes a sample in the journal, with what it read and nothing else; they are written down by fives, every
four seconds at the latest, and by the next whole look after it has acted.
"""

from brim import control
from brim.governor.notes import SELDOM_NS
from brim.journal.store import COMPANY, COMPANY_NS
from brim.policy import quiet
from brim.policy.states import RUN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from brim.control import Page
    from brim.facts.settings import Limits
    from brim.governor.eyes import Eyes, Seen
    from brim.policy.quiet import Quiet
    from brim.policy.states import State
    from brim.probes.wakes import Wakes
    from brim.seams import Clock, Sink

    Extremes = tuple[int, int | None, int | None]


class Glances:
    """Glances over one run; those since the last whole look are kept until the next one has been decided on and acted upon."""

    def __init__(self, limits: "Limits", *, eyes: "Eyes", journal: "Sink", clock: "Clock", wakes: "Wakes", page: "Page | None") -> None:
        self._limits, self._eyes, self._journal, self._clock, self._wakes, self._page = limits, eyes, journal, clock, wakes, page
        self._written = 0  # how many of those kept are in the journal
        self._kept: list[tuple[int, int, int, int, int, int, int]] = []  # monotonic and wall ns; free, held and available bytes; the job's step and tokens
        self._after: Seen | None = None

    def until_needed(self, band: "Quiet", seen: "Seen", asked: "Callable[[], bool]") -> tuple[str, ...]:
        """Wait and glance until a whole look is due; the names of what came (none: the time is over, or free memory left the band). `seen` is the look that gave the band."""
        limits, page, poll = self._limits, self._page, self._limits.poll_ns
        said = None if page is None else page.said()
        self._after = seen
        while True:
            wakes = self._wakes.wait(poll)
            now = self._clock.now_ns()
            if wakes or asked() or now >= band.until_ns:
                return wakes
            if page is not None:
                page.beat(now)
                if page.said() != said:
                    return ()
            glance = self._eyes.glance()
            if glance is None:
                return ()
            available, held = glance
            free = quiet.free_bytes(limits, available, held)
            if not band.low <= free <= band.high:
                return ()
            step, tokens = (0, 0) if page is None else (page.words[control.W_STEP], page.words[control.W_TOKENS])
            self._kept.append((now, self._clock.wall_ns(), free, held, available, step, tokens))
            if len(self._kept) - self._written >= COMPANY or now - self._kept[self._written][0] >= COMPANY_NS or poll > SELDOM_NS:
                self._write()

    def caught_up(self, state: "State") -> "State":
        """The state as if each glance since had been a whole look."""
        return quiet.catch_up(self._limits, state, [(row[0], row[2]) for row in self._kept]) if self._kept else state

    def write_down(self) -> "Extremes":
        """The rest as samples, before that of the whole look that ended them; how many there were, and the most held and the least free (bytes) of them all."""
        found = len(self._kept), max((row[3] for row in self._kept), default=None), min((row[2] for row in self._kept), default=None)
        self._write()
        self._kept.clear()
        self._written = 0
        return found

    def _write(self) -> None:
        """Those that are not in the journal yet."""
        words = None if self._after is None else self._after.look.words
        for now, wall, free, held, available, step, tokens in self._kept[self._written :]:
            processes = 0 if self._after is None else len(self._after.pids)
            body: dict[str, object] = {"level": RUN, "held_bytes": held, "free_bytes": free, "processes": processes, "host": {"available_bytes": available}}
            if words is not None:
                body["job"] = {"step": step, "tokens": tokens, "phase": words.phase}
            self._journal.append("sample", body, durable=False, may_wait=self._limits.poll_ns <= SELDOM_NS, stamp=(now, wall))
        self._written = len(self._kept)
