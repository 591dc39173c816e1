"""Drives the governor's mind by hand: one device, one job, a clock that moves when it is told to."""

from brim.facts.device import Budget, Device, Host, Memory, Reading
from brim.facts.look import SAME, JobWords, Look
from brim.facts.process import Usage
from brim.facts.settings import SECOND, Limits
from brim.policy import begin, decide
from brim.policy.states import CHECKPOINT, PAUSE, RESUME, SLOW, STOP
from brim.units import GIB
from brim.values import Missing

GONE = Missing(reason="gone", detail="GPU is lost")
FAILED = Missing(reason="failed", detail="NVML did not answer")
BUDGET = Budget(backend="cuda", total_bytes=24 * GIB, usable_bytes=24 * GIB, reserve_fraction=0.0, source="test")
LIMITS = Limits(floor_bytes=GIB, throttle_margin_bytes=2 * GIB, max_temp_c=83.0, grace_ns=20 * SECOND)


class Drive:
    """A run in slow motion. `look` changes what is seen and lets the mind decide; `did` are the names of the last intents (without notices)."""

    def __init__(self, limits=LIMITS, *, listens=True, device="cuda:0", backend="cuda"):
        self.limits, self.now, self.device, self.backend = limits, 1000 * SECOND, device, backend
        self.state = begin(self.now)
        self.free, self.temp, self.reasons, self.faults, self.load, self.draw = 20 * GIB, 60.0, (), (), 90.0, 200.0
        self.ecc, self.host, self.rows, self.held, self.remap_failed = 0, Host(), True, 10 * GIB, False
        self.words = (
            JobWords(beat_ns=self.now, step=1, tokens=0, phase="training", asked=0, seen=0, answered=0, evaluations=0, checkpoint_complete=False)
            if listens
            else None
        )
        self.leader, self.others, self.on_term, self.wishes, self.ready, self.reading_age = SAME, 0, "caught", (), False, 0
        self.log, self.last = [], None

    def look(self, after=1.0, **changes):
        for key, value in changes.items():
            assert hasattr(self, key), key
            setattr(self, key, value)
        self.now += int(after * SECOND)
        device = Device(
            id=self.device, backend=self.backend, name="card", memory=Memory(free_bytes=self.free), budget=BUDGET, temperature_c=self.temp,
            throttle_reasons=self.reasons, faults=self.faults, utilisation_percent=self.load, power_draw_w=self.draw, ecc_uncorrected=self.ecc,
            remap_failed=self.remap_failed,
        )  # fmt: skip
        if self.words is not None:
            self.words = self.words.replace(beat_ns=self.now)
        look = Look(
            reading=Reading(at_ns=self.now - self.reading_age, devices=(device,) if self.rows else (), host=self.host),
            usage=Usage(held_bytes=GIB, mapped_file_bytes=0, peak_bytes=GIB, processes=1, by="test"),
            words=self.words, leader=self.leader, others=self.others, leader_on_term=self.on_term, wishes=self.wishes, ready=self.ready,
            held=((self.device, self.held),),
        )  # fmt: skip
        self.last = decide(self.limits, self.state, look, self.now)
        self.state = self.last.state
        for intent in self.last.intents:
            self.log.append((intent.action, intent.stage))
            if self.words is not None and (intent.action in (SLOW, PAUSE, RESUME) or (intent.action in (CHECKPOINT, STOP) and intent.stage == "asked")):
                self.words = self.words.replace(asked=self.words.asked + 1)
        return self

    def answer(self, step=7, took=1.0):
        """The job answers the present request with a complete checkpoint."""
        words = self.words
        self.words = words.replace(
            seen=words.asked, answered=words.asked, checkpoint_step=step, checkpoint_complete=True, checkpoint_request=words.asked,
            checkpoint_started_ns=self.now - int(took * SECOND), checkpoint_ended_ns=self.now,
        )  # fmt: skip
        return self

    @property
    def did(self):
        return [intent.action + (f":{intent.stage}" if intent.stage else "") for intent in self.last.intents if intent.action != "notify"]

    @property
    def said(self):
        return " | ".join(intent.why for intent in self.last.intents)

    def level(self, kind="memory"):
        return next(track.level for track in self.state.tracks if track.name == f"{kind}:{self.device}")

    def steady(self, seconds, every=1.0, **changes):
        for _ in range(int(seconds / every)):
            self.look(every, **changes)
        return self
