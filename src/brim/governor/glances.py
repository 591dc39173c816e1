"""Between two whole looks, while nothing is near: waits, glances at free memory alone, and keeps what it saw; whatever moves ends it at once.

A whole look touches a hundred times as much code and data as a glance, and once a second all of it has to come back into the processor's caches. What a glance
does not ask (pressure, disk, who is of the job) is asked at least every `quiet.LONGEST_NS`; the kernel's own notices, a signal, the end of the job and a word on
the control page end the glances at once. Each glance becomes a sample in the journal, with what it read and nothing else; they are written down by fives, every
four seconds at the latest, and by the next whole look after it has acted. Where the built loop looks and polls are a second or more apart, a commit would cost more
than all that it records: then it is every two minutes, and at the next poll when somebody looks at the run from outside.
"""

from brim import control
from brim.governor.notes import SELDOM_NS
from brim.journal.store import COMPANY, COMPANY_NS
from brim.policy import quiet
from brim.policy.states import RUN
from brim.probes import kept
from brim.probes.vigil import FULL, MOVED, WOKEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brim.control import Page
    from brim.facts.settings import Limits
    from brim.governor.eyes import Eyes, Seen
    from brim.governor.vigils import Vigils
    from brim.policy.quiet import Quiet
    from brim.policy.states import State
    from brim.probes.kept import File
    from brim.probes.wakes import Wakes
    from brim.seams import Clock, Sink

    Extremes = tuple[int, int | None, int | None]

# So long may what the built loop saw wait for the journal, where polls are at least this far apart.
PATIENCE_NS, PATIENT_POLL_NS = 120_000_000_000, 1_000_000_000


class Glances:
    """Glances over one run; those since the last whole look are kept until the next one has been decided on and acted upon."""

    def __init__(
        self, limits: "Limits", *, eyes: "Eyes", journal: "Sink", clock: "Clock", wakes: "Wakes", page: "Page | None", vigils: "Vigils | None" = None
    ) -> None:
        self._limits, self._eyes, self._journal, self._clock, self._wakes, self._page = limits, eyes, journal, clock, wakes, page
        self._vigils = vigils
        patient = vigils is not None and limits.poll_ns >= PATIENT_POLL_NS
        self._patience = PATIENCE_NS if patient else COMPANY_NS
        self._company = max(1, PATIENCE_NS // limits.poll_ns) if patient else COMPANY
        self._watched = 0  # what stood on the page when somebody who looks from outside was served last
        self._written = 0  # how many of those kept are in the journal
        self._kept: list[tuple[int, int, int, int, int, int, int]] = []  # monotonic and wall ns; free, held and available bytes; the job's step and tokens
        self._after: Seen | None = None
        self._state: State | None = None  # as of the whole look, and then of as many of those kept as were followed already
        self._followed = 0

    def watched(self) -> bool:
        """Whether the built loop will look between glances, also at what is asked seldom."""
        return self._vigils is not None and bool(self._files())

    def _files(self) -> "list[File]":
        return self._eyes.files(counts=self._limits.budget("cpu") is not None)

    def until_needed(self, band: "Quiet", seen: "Seen", state: "State", asked: "Callable[[], bool]") -> tuple[str, ...]:
        """Wait and glance until a whole look is due; the names of what came (none: the time is over, or free memory left the band). `seen` and `state`: of the look that gave the band."""
        page, poll = self._page, self._limits.poll_ns
        files = self._files()
        self._after, self._state, self._followed = seen, state, 0
        numbers = kept.numbers(files) if files and self._vigils is not None else None
        while True:
            wakes = self._wait(files, numbers, band, seen)
            now = self._clock.now_ns()
            if wakes is None:
                return ()
            if wakes or asked() or now >= band.until_ns:
                return wakes
            if page is not None:
                page.beat(now)
                if page.said() != seen.said:
                    return ()
            numbers = kept.numbers(files) if files else None
            sizes = None if numbers is None else self._eyes.sizes(numbers)
            if sizes is None or not band.low <= quiet.free_bytes(self._limits, *sizes) <= band.high:
                return ()
            if not self._kept or now - self._kept[-1][0] > poll // 2:  # the loop may have seen just this
                step, tokens = (0, 0) if page is None else (page.words[control.W_STEP], page.words[control.W_TOKENS])
                self._keep(now, self._clock.wall_ns(), sizes, step, tokens)
            if self._is_due(now):
                self.write_on()

    def _wait(self, files: "Sequence[File]", numbers: "tuple[int, ...] | None", band: "Quiet", seen: "Seen") -> tuple[str, ...] | None:
        """Wait for the next poll, or with the built loop for as many as all is well at: the names of what came. None where a glance would not do."""
        vigils = self._vigils
        if vigils is None or numbers is None:
            return self._wakes.wait(self._limits.poll_ns)
        vigils.lay_out(files)
        while (why := self._keep_vigil(vigils, numbers, band, seen.said)) == FULL:  # all was well; it is only to be written down
            self.write_on()
        wakes = self._wakes.wait(0) if why == WOKEN else ()
        # There is a request to own up to; who is of the job must be asked anew; what moved is nothing that a glance reads.
        if vigils.has_asked or (why == MOVED and (self._eyes.lists or vigils.needs_look)):
            return wakes or None
        return wakes

    def _keep_vigil(self, vigils: "Vigils", numbers: "tuple[int, ...]", band: "Quiet", said: bytes) -> int:
        """Let the built loop look while these numbers stay so near that free memory cannot leave the band; why it came back."""
        sizes = self._eyes.sizes(numbers)
        free = band.low if sizes is None else quiet.free_bytes(self._limits, *sizes)
        slack = max(0, min(free - band.low, band.high - free))
        room = max(1, self._company - len(self._kept) + self._written)
        why, rows = vigils.keep(numbers, slack, said, watched=self._watched, poll_ns=self._limits.poll_ns, until_ns=band.until_ns, room=room)
        for at, wall, seen, step, tokens in rows:
            told = self._eyes.sizes(seen)
            if told is not None:
                self._keep(at, wall, told, step, tokens)
        return why

    def _keep(self, at: int, wall: int, sizes: tuple[int, int], step: int, tokens: int) -> None:
        available, held = sizes
        self._kept.append((at, wall, quiet.free_bytes(self._limits, available, held), held, available, step, tokens))

    def _is_due(self, now: int) -> bool:
        """Whether what waits for the journal has company, has waited long enough, is all there will be for a while, or is looked for from outside."""
        waits, looked = len(self._kept) - self._written, 0 if self._page is None else self._page.words[control.W_WATCHED]
        if looked != self._watched:
            self._watched = looked
            return True
        return waits > 0 and (waits >= self._company or now - self._kept[self._written][0] >= self._patience or self._limits.poll_ns > SELDOM_NS)

    def write_on(self) -> None:
        """Write down what waits, and let the forecast follow it: little is left for the moment when something happens."""
        self._write()
        self._follow()

    def _follow(self) -> None:
        if self._state is not None:
            self._state = quiet.catch_up(self._limits, self._state, [(row[0], row[2]) for row in self._kept[self._followed :]])
            self._followed = len(self._kept)

    def caught_up(self, state: "State") -> "State":
        """The state as if each glance since had been a whole look."""
        if not self._kept or self._state is None:
            return state
        self._follow()
        return self._state

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
        rows = self._kept[self._written :]
        processes = 0 if self._after is None else len(self._after.pids)
        for place, (now, wall, free, held, available, step, tokens) in enumerate(rows, 1):
            body: dict[str, object] = {"level": RUN, "held_bytes": held, "free_bytes": free, "processes": processes, "host": {"available_bytes": available}}
            if words is not None:
                body["job"] = {"step": step, "tokens": tokens, "phase": words.phase}
            self._journal.append("sample", body, durable=False, may_wait=self._limits.poll_ns <= SELDOM_NS, more=place < len(rows), stamp=(now, wall))
        self._written = len(self._kept)
