"""What will be asked of the job when it is found to hold too much, decided before that comes: a request that is known already need not wait for a look.

Guarantees: what is foreseen is what `decide` says of the last look with nothing else changed but what the job holds; only a request that is said on the control page is
foreseen (a signal, a brake or a kill comes after its record and a fresh look). When it has come, `decide` is asked again with what was read then, and that is what counts.
"""

from brim import policy
from brim.facts.look import SAME, Look
from brim.facts.settings import Limits
from brim.policy.halt import listens
from brim.policy.signals import floor_of, known
from brim.policy.states import ASKED, CHECKPOINT, NOTIFY, STOP, Decision, Intent, State
from brim.values import Missing, Record

REQUESTS = ((STOP, ASKED), (CHECKPOINT, ASKED))  # what is only said to the job, on the control page


class Foreseen(Record):
    """The request that is due as soon as the job holds more than `over` bytes on the host; `look` is the last one."""

    over: int
    intent: Intent
    look: Look


def foresee(limits: Limits, state: State, look: Look, now: int) -> "Foreseen | None":
    """The next request, or None where there is none that can be foreseen. `look.words.asked` must be the number that stands on the page now."""
    budget, held = limits.budget("cpu"), known(look.held_on("cpu"))
    if budget is None or held is None or state.halt is not None or look.leader != SAME or not listens(look):
        return None
    floor = floor_of(limits)
    for short in (floor + limits.margin("cpu"), floor):
        over = budget - short
        if held <= over:
            intent = request(policy.decide(limits, state, _holding(look, over + 1, now), now))
            if intent is not None:
                return Foreseen(over=over, intent=intent, look=look)
    return None


def request(decision: Decision) -> "Intent | None":
    """The one act of a decision, where it is a request on the control page."""
    acts = [intent for intent in decision.intents if intent.action != NOTIFY]
    return acts[0] if len(acts) == 1 and (acts[0].action, acts[0].stage) in REQUESTS else None


def came(limits: Limits, state: State, foreseen: Foreseen, held: int, at_ns: int) -> "tuple[Look, Decision, bool]":
    """The look and the decision now that the request was made, as the job held so much; and whether the request is that of the decision (a jump may ask for more)."""
    look = _holding(foreseen.look, held, at_ns)
    decision = policy.decide(limits, state, look, at_ns)
    found = request(decision)
    if found is not None and (found.action, found.stage) == (foreseen.intent.action, foreseen.intent.stage):
        return look, decision, True
    assert look.words is not None
    look = look.replace(words=look.words.replace(asked=look.words.asked + 1))
    return look, policy.decide(limits, state, look, at_ns), False


def _holding(look: Look, held: int, at_ns: int) -> Look:
    """The look, had the job held so many bytes on the host then."""
    usage = look.usage if isinstance(look.usage, Missing) else look.usage.replace(held_bytes=held)
    told = tuple((device, held if device == "cpu" else count) for device, count in look.held)
    return look.replace(reading=look.reading.replace(at_ns=at_ns), usage=usage, held=told, wishes=(), wakes=())
