"""Read, decide, foretell, look again, act, record, sleep: one screen, in that order; what is foretold outlives us, and no act waits on a disk."""

from itertools import chain

from brim import control, policy
from brim.actions.notify import to_stderr
from brim.facts.process import Checkpointed, Ending
from brim.governor.eyes import Eyes
from brim.governor.glances import Glances
from brim.governor.hands import Hands
from brim.governor.notes import Notes
from brim.policy import foresight, quiet
from brim.policy.foresight import REQUESTS
from brim.policy.states import CHECKPOINT, ENDED, KILLING, NOTIFY, STOP, VERIFY, Intent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from brim.control import Page
    from brim.facts.process import Identity
    from brim.facts.settings import Limits
    from brim.governor.eyes import Seen
    from brim.governor.vigils import Vigils
    from brim.policy.foresight import Foreseen
    from brim.policy.states import Decision, State
    from brim.probes.wakes import Wakes
    from brim.seams import Clock, Sink

    Done = tuple[Intent, tuple[int, int], str, int]  # what was done, the stamp of its beginning, the outcome in words, how long it took (ns)

    class Job(Protocol):
        """The child as the governor sees it."""

        identity: Identity
        pidfd: int

        def poll(self) -> int | None:
            """The exit status, or None while it runs."""
            ...

        def attend(self, pids: tuple[int, ...] = ()) -> None:
            """Reap what became our child, lend the terminal where it is asked for."""
            ...

        def tend(self) -> None:
            """The part of `attend` that is done at glances, too."""
            ...

        def is_ready(self) -> bool:
            """Whether the engine has said that it is ready."""
            ...


__all__ = ["Ending", "Eyes", "Governor", "Hands"]

RECORD_DEADLINE_NS = 50_000_000  # a stop never waits longer than this for its record
GIVE_UP_KILLS = 60
CROSSED_NS = 100_000_000  # the kernel tells of a threshold before our own count shows it: look once more, soon, also where the job grows no further
# A list of processes is no snapshot (one may fork behind the place that is being read and then end): nobody is left when two lists in a row say so.
ALONE_LOOKS = 2
CODES = {STOP: control.STOP, CHECKPOINT: control.CHECKPOINT}


class Governor:
    """Watches one job until it has ended. `ask` may be called from a signal handler."""

    def __init__(
        self,
        job: "Job",
        limits: "Limits",
        *,
        eyes: Eyes,
        hands: Hands,
        journal: "Sink",
        clock: "Clock",
        wakes: "Wakes",
        page: "Page | None",
        watch: "Callable[[Decision, Seen, int], None]",
        glances: bool = False,
        vigils: "Vigils | None" = None,
    ) -> None:
        self._job, self._limits, self._eyes, self._hands, self._journal = job, limits, eyes, hands, journal
        self._clock, self._wakes, self._page, self._watch = clock, wakes, page, watch
        self._asked, self._rest = 0, False
        self._glances = Glances(limits, eyes=eyes, journal=journal, clock=clock, wakes=wakes, page=page, vigils=vigils) if glances else None
        self._notes = Notes(limits, journal)
        self._vigils = vigils if page is not None else None
        self._foreseen: tuple[Foreseen, Seen] | None = None
        self._page_lost = False
        self._level_ns: dict[str, int] = {}
        self._stages: list[str] = []
        self._after = ""

    def ask(self) -> None:
        """Somebody wants brim to end: the first time by checkpoint and stop, the second by SIGTERM, the third by SIGKILL."""
        self._asked += 1

    def ask_to_rest(self) -> None:
        """Somebody wants brim to stand still (Ctrl-Z): the job does so with it. From a signal handler."""
        self._rest = True

    def _rest_a_while(self, state: "State") -> None:
        """Stop the job, then ourselves, until we are continued. Not during a stop: that one has a deadline."""
        self._rest = False
        if state.halt is not None:
            return
        if self._glances is not None:
            self._glances.write_on()  # what was seen before
        self._record("intent", {"kind": "rest", "reason": "brim was asked to stand still (SIGTSTP)"})
        began = self._clock.now_ns()
        outcome = self._hands.rest()
        if self._page is not None:
            self._page.beat(self._clock.now_ns())
        outcome += "; " + self._hands.wake()
        self._record("outcome", {"kind": "rest", "outcome": outcome, "took_ns": self._clock.now_ns() - began}, wait=False)

    def govern(self) -> Ending:
        """Look, decide and act until nobody of the job is left."""
        alone = 0
        wakes: tuple[str, ...] = ()
        pids: tuple[int, ...] = ()
        before = began = self._clock.now_ns()
        state = policy.begin(began)
        while True:
            state, before = self._own_up(state, before)
            if self._rest:
                self._rest_a_while(state)
            status, now = self._job.poll(), self._clock.now_ns()
            if self._page is not None:
                self._page.beat(now)
            seen = self._eyes.look(
                now,
                wishes=self._wishes(now - began, status),
                wakes=wakes,
                halting=state.halt is not None,
                ended=status is not None,
                ready=self._job.is_ready(),
            )
            pids = seen.pids
            if not self._page_lost and self._vigils is not None and self._vigils.page_lost:
                self._tell_lost_page(state, seen, now)
            decision = policy.decide(self._limits, state if self._glances is None else self._glances.caught_up(state), seen.look, now)
            self._level_ns[decision.state.level] = self._level_ns.get(decision.state.level, 0) + now - before
            before, was, state = now, state, decision.state
            stamp = now, self._clock.wall_ns()
            done = self._ask_first(decision, seen)
            self._notes.note(was, decision, seen, stamp, self._glances)
            self._do_all(decision.intents, seen, done, stamp)
            self._watch(decision, seen, now)
            self._job.attend(pids)
            self._ask_anew(wakes, state)
            alone = alone + 1 if status is not None and seen.look.others == 0 and (state.halt is None or state.halt.stage == ENDED) else 0
            if alone >= ALONE_LOOKS and status is not None:
                return self._ended(status, state)
            if state.halt is not None and state.halt.kills >= GIVE_UP_KILLS:
                return self._ended(-9 if status is None else status, state)
            if status is not None:
                self._wakes.forget(self._job.pidfd)  # it stays readable from now on
            wakes = self._wait(decision, seen, wakes, now, ended=status is not None, alone=alone)

    def _tell_lost_page(self, state: "State", seen: "Seen", now: int) -> None:
        """The job has cut its control page short: from here on it says nothing, and is told things by signals alone."""
        self._page_lost = True
        if self._glances is not None:
            self._glances.write_on()  # what was seen before
        why = "the job has cut its control page short: it can only be signalled from now on"
        self._journal.append("level", {"level": state.level, "reason": why}, durable=False, stamp=(now, self._clock.wall_ns()))
        self._hands.do(Intent(action=NOTIFY, why=why, level=state.level), seen.look)

    def _wait(self, decision: "Decision", seen: "Seen", wakes: tuple[str, ...], now: int, *, ended: bool, alone: int) -> tuple[str, ...]:
        """Wait for the next whole look, where nothing is near with glances alone; the names of what came (`wakes`: what ended the last wait)."""
        if ended:
            return self._wakes.wait(min(decision.next_look_ns, 5_000_000 if alone else 50_000_000))
        self._foresee(decision.state, seen, now)
        if any(name.startswith("threshold") for name in wakes):
            return self._wait_ready(min(decision.next_look_ns, CROSSED_NS))
        band = quiet.NOT_QUIET if self._glances is None or wakes else quiet.quiet(self._limits, seen.look, decision, now, watched=self._glances.watched())
        if self._glances is None or band.until_ns <= now:
            return self._wait_ready(decision.next_look_ns)
        return self._glances.until_needed(band, seen, decision.state, self._heard)

    def _wait_ready(self, nanoseconds: int) -> tuple[str, ...]:
        """Wait, where something is foreseen in the loop that makes the request."""
        if self._vigils is None or not self._vigils.armed:
            return self._wakes.wait(nanoseconds)
        return self._wakes.wait(0) if self._vigils.wait(self._clock.now_ns(), nanoseconds) else ()

    def _foresee(self, state: "State", seen: "Seen", now: int) -> None:
        """Decide now what will be asked of the job when it holds too much, and get it ready."""
        self._foreseen = None
        words, page = seen.look.words, self._page
        if self._vigils is None or page is None:
            return
        self._vigils.disarm()
        files = self._eyes.files(counts=True)
        if words is None or page.words[control.W_AHEAD_LENGTH] or not files:  # the page still tells of an act that the journal has not taken
            return
        look = seen.look.replace(words=words.replace(asked=page.words[control.W_DIRECTIVE] >> 8))
        found = foresight.foresee(self._limits, state, look, now)
        if found is not None:
            self._foreseen = found, seen
            self._vigils.lay_out(files)
            self._vigils.arm(found.over, CODES[found.intent.action], grace_ns=self._limits.grace_ns, text=f"{_kind(found.intent)}: {found.intent.why}\n")

    def _own_up(self, state: "State", before: int) -> "tuple[State, int]":
        """Take over a request that was made while we waited, as if we had looked then; the state after it, and when that was."""
        fired = None if self._vigils is None or self._foreseen is None else self._vigils.fired()
        if fired is None or self._foreseen is None or self._page is None:
            return state, before
        (foreseen, seen), (held, *at) = self._foreseen, fired
        stamp = at[0], at[1]
        caught = state if self._glances is None else self._glances.caught_up(state)
        look, decision, same = foresight.came(self._limits, caught, foreseen, held, stamp[0])
        seen = seen.replace(look=look)
        self._level_ns[decision.state.level] = self._level_ns.get(decision.state.level, 0) + stamp[0] - before
        code = CODES[foreseen.intent.action]
        made = foresight.request(decision) if same else foreseen.intent
        outcome = f"request {self._page.words[control.W_DIRECTIVE] >> 8} on the control page: {control.NAMES[code]}"
        self._notes.note(state, decision, seen, stamp, self._glances, sample=False)
        done: list[Done] = [] if made is None else [(made, stamp, outcome, 0)]
        if not same:
            self._do_all((foreseen.intent,), seen, done, stamp)
            done = self._ask_first(decision, seen)
        self._do_all(decision.intents, seen, done, stamp)
        return decision.state, stamp[0]

    def _heard(self) -> bool:
        """At a glance: see to the job's orphans and its terminal (which may bring us a Ctrl-Z), and say whether anybody has asked for something."""
        self._job.tend()
        return bool(self._asked or self._rest)

    def _ask_anew(self, wakes: tuple[str, ...], state: "State") -> None:
        """A threshold of the kernel was crossed without a limit being passed: set it where the limit is now."""
        room = min((trend.samples[-1][1] for trend in state.trends if trend.device == "cpu" and trend.samples), default=0) - self._limits.floor_bytes
        for name in wakes:
            if name.startswith("threshold") and room > 0 and state.halt is None:
                self._wakes.again(name, room + 1)

    def _wishes(self, age: int, status: "int | None") -> tuple[str, ...]:
        """What is wanted from outside: by signals to us, by the clock of a soak, by a leader that failed and left others behind."""
        found = [word for word, times in (("stop", 1), ("stop_now", 2), ("kill", 3)) if self._asked >= times]
        if self._limits.run_ns and age >= self._limits.run_ns:
            found.append("end")
        if status is not None and status != 0:
            found.append("leftover")
        return tuple(found)

    def _ask_first(self, decision: "Decision", seen: "Seen") -> "list[Done]":
        """Put requests on the control page before the journal has them; signals and brakes come after their record, as anything does that cannot be taken back.

        The request and what it is for go onto the page together, in memory that outlives us; the journal's commit costs milliseconds on a machine that was idle.
        """
        done: list[Done] = []
        foretold = ""
        for intent in decision.intents if self._page is not None else ():
            if intent.action == NOTIFY:
                continue
            if (intent.action, intent.stage) not in REQUESTS:
                break  # what comes first is done first
            stamp = self._clock.now_ns(), self._clock.wall_ns()
            foretold += f"{_kind(intent)}: {intent.why}\n"
            self._page.foretell(*stamp, foretold)  # type: ignore[union-attr]
            outcome = self._hands.do(intent, seen.look)
            done.append((intent, stamp, outcome, self._clock.now_ns() - stamp[0]))
        return done

    def _do_all(self, intents: "tuple[Intent, ...]", seen: "Seen", done: "list[Done]", stamp: "tuple[int, int]") -> None:
        """Write the notices down, and what is `done`; do the rest, each after its record; and only then tell people: what is told can wait, the act cannot."""
        acts = [intent for intent in intents if intent.action != NOTIFY]
        for intent in intents:
            if intent.action == NOTIFY:
                self._journal.append("level", {"level": intent.level, "reason": intent.why}, durable=False, may_wait=bool(acts), stamp=stamp)
        taken = [self._record("intent", {"kind": _kind(intent), "reason": intent.why}, stamp=at) for intent, at, _, _ in done]
        if taken and all(taken) and self._page is not None:
            self._page.told()
        told = ((intent, outcome, took) for intent, _at, outcome, took in done)
        for intent, outcome, took in chain(told, (self._recorded(intent, seen) for intent in acts[len(done) :])):
            if intent.action == STOP:
                self._stages.append(intent.stage)
            if intent.action == VERIFY:
                self._after = outcome
            kind = _kind(intent)
            self._record("outcome", {"kind": kind, "outcome": outcome, "took_ns": took}, wait=False)
            self._hands.do(intent.replace(action=NOTIFY, why=f"{kind}: {intent.why}; {outcome}"), seen.look)
        for intent in intents:
            if intent.action == NOTIFY:
                self._hands.do(intent, seen.look)

    def _recorded(self, intent: "Intent", seen: "Seen") -> "tuple[Intent, str, int]":
        """Record, then act (the hands look at the identity again)."""
        self._record("intent", {"kind": _kind(intent), "reason": intent.why})
        began = self._clock.now_ns()
        outcome = self._hands.do(intent, seen.look)
        return intent, outcome, self._clock.now_ns() - began

    def _record(self, kind: str, body: "dict[str, object]", *, wait: bool = True, stamp: "tuple[int, int] | None" = None) -> bool:
        """Try the record within the deadline; where the disk does not answer, say so, and let the record follow, marked late. False then.

        Once it is there our own death cannot take it away; the flush to the disk follows.
        """
        if not wait:
            return self._journal.append(kind, body, durable=False)
        if self._journal.append(kind, body, synced=False, deadline_ns=RECORD_DEADLINE_NS, stamp=stamp):
            return True
        to_stderr(f"the journal did not take the record {kind} {body} in {RECORD_DEADLINE_NS // 10**6} ms; going on without it")
        self._journal.append(kind, {**body, "late": True}, durable=False, stamp=stamp)
        return False

    def _ended(self, status: int, state: "State") -> Ending:
        """Nobody of the job is left (or nobody can be killed)."""
        for text in self._hands.finish():
            self._journal.append("outcome", {"kind": "finish", "outcome": text}, durable=False)
        halt = state.halt
        by = {"": "child", "leftover": "child", "outside": "signal", "end": "end"}.get(halt.cause if halt else "", "governor")
        held, mapped, free = self._notes.extremes
        if halt is not None and halt.stage == KILLING:
            self._after = "SIGKILL was sent again and again and somebody is still there (a process in an uninterruptible sleep?)"
        return Ending(
            status=status, by=by, reason=halt.why if halt else "", peak_held_bytes=held, peak_mapped_bytes=mapped, lowest_free_bytes=free,
            level_ns=self._level_ns, looks=self._notes.looks, cause=halt.cause if halt else "", checkpoint=checkpoint_of(state), answered=state.answers + int(bool(halt and halt.answered)),
            unanswered=state.unanswered + int(bool(halt and halt.number >= 0 and not halt.answered)), stages=tuple(self._stages), after=self._after,
        )  # fmt: skip


def _kind(intent: "Intent") -> str:
    """What an intent is called in the journal."""
    return intent.action + (f":{intent.stage}" if intent.stage else "")


def checkpoint_of(state: "State", path: str = "") -> Checkpointed:
    """What is known of the last checkpoint: acknowledged, only signalled for, or none."""
    if state.checkpoint_at_ns >= 0:
        return Checkpointed(
            state="acknowledged", step=state.checkpoint_step, path=path or state.checkpoint_path, at_ns=state.checkpoint_at_ns, took_ns=state.checkpoint_ns
        )
    if state.signalled_ns >= 0:
        return Checkpointed(state="signalled", at_ns=state.signalled_ns)
    return Checkpointed(state="none")
