"""Draws the live line on a terminal and plain, stamped lines elsewhere; it knows nothing of what they mean."""

import os
import shutil
import sys
import time

from brim.reports.live import line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brim.facts.look import Look
    from brim.facts.settings import Limits
    from brim.policy.states import Decision

EVERY_NS = 200_000_000


def plain(text: str) -> None:
    """One stamped line on stderr, in one write; a closed terminal stops nothing."""
    stamp = time.strftime("%H:%M:%S")
    try:
        os.write(2, f"{stamp} brim: {text}\n".encode(errors="replace"))
    except OSError:
        return


class Line:
    """The line at the bottom of a terminal. Notices scroll above it."""

    def __init__(self) -> None:
        self._drawn_ns = 0
        self._shown = False
        self._colour = "NO_COLOR" not in os.environ and os.environ.get("TERM", "") != "dumb"

    def show(self, limits: "Limits", decision: "Decision", look: "Look", now: int) -> None:
        """Draw it anew, at most five times a second."""
        if now - self._drawn_ns < EVERY_NS:
            return
        self._drawn_ns = now
        width = shutil.get_terminal_size((100, 24)).columns - 1
        sys.stderr.write("\r\x1b[K" + line(limits, decision.state, look, now, width=width, colour=self._colour))
        sys.stderr.flush()
        self._shown = True

    def say(self, text: str) -> None:
        """A notice above the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
        plain(text)
