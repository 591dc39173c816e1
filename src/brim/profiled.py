"""Turns a profile into what a run needs beside its limits: the gates before the launch, the watch over its exported file, and its part of the report."""

import os

from brim import dossier, learning, runtime_report, verbs, watchdog
from brim.errors import BrimError
from brim.facts.extras import Answer
from brim.stores import files
from brim.units import GIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from brim.facts.device import Reading
    from brim.facts.profile import Profile
    from brim.prediction import Prediction


def gates(profile: "Profile", artifact: str, *, floor: int, max_temp: "float | None") -> "tuple[Callable[[Reading], Answer], ...]":
    """The gates of a profile in order: what it is (always open, for the journal), its card, its exported file."""
    found: list[Callable[[Reading], Answer]] = [lambda _reading: _named(profile)]
    if profile.report and "compressed" in profile.model:
        found.append(lambda reading: _card(profile, reading, floor, max_temp))
    if profile.quality.get("required"):
        found.append(lambda _reading: _quality(profile, artifact))
    return tuple(found)


def _named(profile: "Profile") -> Answer:
    body = {"name": profile.name, "source": os.path.abspath(profile.source), "actions": list(profile.watchdog.get("actions", ()))}
    return Answer(admitted=True, reason="", kind="profile", body=body)


def _card(profile: "Profile", reading: "Reading", floor: int, max_temp: "float | None") -> Answer:
    """Refuse at level block, and where the preflight says that the run is not feasible. What cannot be seen refuses nothing here: the profile asks for telemetry by a limit."""
    figures = runtime_report.preflight_from(runtime_report.preflight_document(profile, profile.source), profile.source)
    limits = runtime_report.limits_of(profile, figures, max_temp, floor / GIB)
    telemetry = runtime_report.telemetry_of(reading, "the first look of this run")
    made, _ = runtime_report.decide_all(telemetry, limits, figures)
    admitted = made.risk_level != "block" and figures.feasible
    body = {"verdict": made.risk_level, "reasons": [made.reason], "by": f"profile {profile.name}"}
    return Answer(admitted=admitted, reason=f"profile {profile.name}: {made.reason}", kind="gate", body=body)


def _quality(profile: "Profile", artifact: str) -> Answer:
    """Refuse a file whose gate has not passed. A run that names no file has nothing to be judged, and says so."""
    if not artifact:
        reason = "the profile asks for a quality gate, and this run names no exported file (--artifact)"
        return Answer(admitted=True, reason=reason, kind="quality", body={"passed": False, "reason": reason, "event": "launch"})
    try:
        passed, why, digest = verbs.quality_of(artifact, str(profile.quality.get("metric", "")))
    except BrimError as fault:
        passed, why, digest = False, str(fault), ""
    body = {"passed": passed, "reason": why, "event": "launch", "artifact": os.path.abspath(artifact), "sha256": digest}
    return Answer(admitted=passed, reason=f"quality gate of {artifact}: {why} (brim quality --artifact {artifact} …)", kind="quality", body=body)


class ArtifactWatch:
    """Sees when the exported file changes while the job runs; hashes and judges it only after the job has ended."""

    def __init__(self, profile: "Profile", artifact: str) -> None:
        self._profile, self._path = profile, os.path.abspath(artifact)
        self._mark = self._seen = self._look()
        self._open = False

    def _look(self) -> "tuple[int, ...]":
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_size, found.st_mtime_ns, found.st_ino

    def look(self) -> "tuple[Mapping[str, Any], ...]":
        """One line when the file begins to differ from what it was; a file that is still being written gives no second one until it has rested for a look."""
        now = self._look()
        settled, self._seen = now == self._seen, now
        if self._open and settled:
            self._mark, self._open = now, False
        if now == self._mark or self._open:
            return ()
        self._open = True
        return ({"passed": False, "reason": f"{self._path} was exported again: its quality gate is open", "event": "export", "artifact": self._path},)

    def close(self) -> "tuple[Mapping[str, Any], ...]":
        """The gate run again where the file changed and the profile gives its command; then how the file stands at the end."""
        lines: list[Mapping[str, Any]] = [*self.look()]
        rules = self._profile.quality
        try:
            passed, why, digest = verbs.quality_of(self._path, str(rules.get("metric", "")))
            if not passed and rules.get("command") and "baseline" in rules:
                document = verbs.quality_gate(
                    self._path, tuple(rules["command"]), baseline=rules["baseline"], metric=str(rules.get("metric", "")), max_drop=str(rules.get("max_drop", 0))
                )
                passed, why, digest = document["passed"], document["reason"], document["sha256"]
                lines.append({"passed": passed, "reason": why, "event": "rerun", "artifact": self._path, "sha256": digest})
        except BrimError as fault:
            passed, why, digest = False, str(fault), ""
        return (*lines, {"passed": passed, "reason": why, "event": "end", "artifact": self._path, "sha256": digest})


def complete(folder: str, report: "Mapping[str, Any]", profile: "Profile | None", prediction: "Prediction | None" = None) -> "Mapping[str, Any]":
    """Learn from a finished run, add the profile's part to its reports, and write its HTML page. The journal's head stays what it was."""
    import json

    seen = dossier.gathered(folder)
    if prediction is not None:
        learning.remember(prediction, report, dossier.peaks(report, seen), dossier.foreign(seen))
    if profile is not None:
        opened = dossier.open_run(folder, verify=False)
        lines = [(line.at_ns, line.kind, dossier.body_of(line)) for line in opened.lines]
        rows = watchdog.summary(tuple(profile.watchdog.get("actions", ())), lines)
        report = {**report, "profile": {"name": profile.name, "source": profile.source}, "watchdog": rows}
        files.write_whole(os.path.join(folder, "report.json"), json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        from brim.reports import markdown

        files.write_whole(os.path.join(folder, "report.md"), markdown.run(dict(report)))
    files.write_whole(os.path.join(folder, "report.html"), dossier.page(folder, profile, seen))
    return report
