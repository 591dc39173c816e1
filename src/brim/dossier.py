"""Opens a run's folder and joins its journal, plan and report into evidence and claims; what is concluded is decided in evidence.py and claim.py."""

import json
import os

from brim import control, evidence
from brim.errors import BrimError, BrokenJournal, Unreadable
from brim.facts.engine import copied_bytes
from brim.facts.evidence import Comparison, Evidence
from brim.facts.settings import FLOOR_BYTES
from brim.journal import blocks, store
from brim.records import report_digest
from brim.stores import digest, files
from brim.values import Missing, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from brim.claim import Verdict
    from brim.facts.profile import Profile
    from brim.journal.store import Line

DEFAULT_POLL_NS = 10**9
HEAT_LIMITS = ("max_temp_c", "max_temperature_c", "max_temp")


class Opened(Record):
    """A run's folder, read: its report (None while it runs or after a crash), its plan, its event lines, and whether the chain holds (and why not)."""

    folder: str
    report: "Mapping[str, Any] | None"
    plan: "Mapping[str, Any] | None"
    lines: "tuple[Line, ...]"
    chain_holds: bool
    chain_fault: str


def open_run(folder: str, *, verify: bool = True) -> Opened:
    """Read a run's folder. `Unreadable` where there is no journal; a chain that does not hold is told, not raised."""
    path = os.path.join(folder, "journal.db")
    report, plan = _document(folder, "report.json"), _document(folder, "plan.json")
    holds, fault = True, ""
    if verify:
        try:
            over = finished(folder)
            if over and report is None:
                raise BrokenJournal(f"{os.path.join(folder, 'report.json')}: {_no_report(folder)}")
            store.verify(path, None if report is None else str(report.get("journal_head")), finished=over)
        except BrokenJournal as broken:
            holds, fault = False, str(broken)
    lines = tuple(store.events(path))
    wrong = papers(folder, report, lines) if verify and holds else []
    return Opened(folder=folder, report=report, plan=plan, lines=lines, chain_holds=holds and not wrong, chain_fault=fault or "; ".join(wrong))


def finished(folder: str) -> bool:
    """Whether any paper of the folder says that the run has ended: a report in any form, or a resume state with an exit code."""
    if any(os.path.lexists(os.path.join(folder, name)) for name in ("report.json", "report.md")):
        return True
    if (_document(folder, "resume.json") or {}).get("exit_code") is not None:
        return True
    from brim.reports.html import NOT_FINISHED

    try:
        with open(os.path.join(folder, "report.html"), encoding="utf-8", errors="replace") as file:
            return NOT_FINISHED not in file.read()  # the page can be made of a run that is going, too
    except OSError:
        return False


def interrupted(folder: str) -> "dict[str, Any] | None":
    """The end record of a run whose papers do not say that it ended: brim itself was ended between the record and the papers. None for any other run."""
    if finished(folder):
        return None
    last = None
    for line in store.events(os.path.join(folder, "journal.db")):
        last = line
    return body_of(last) if last is not None and last.kind == "end" else None


def foretold(folder: str) -> str:
    """What brim was doing when it was killed, and had not yet written into the journal: it stands on the control page, under no chain. Empty for any other run."""
    if finished(folder):
        return ""
    path = next((str(body_of(line).get("control", "")) for line in store.events(os.path.join(folder, "journal.db")) if line.kind == "launched"), "")
    try:
        page = control.Page(path) if path else None
    except (OSError, ValueError):
        return ""
    if page is None:
        return ""
    there = page.foretold() if not os.path.exists(f"/proc/{page.words[control.W_GOVERNOR_PID]}") else None
    page.close()
    return "" if there is None else there[2].strip()


def recover(folder: str) -> bool:
    """Write report.json and report.md of an interrupted ending from its end record, once the chain is proved; False where there is nothing to recover.

    Not covered: what a profile would have added. `BrokenJournal` where the chain does not hold, `Unreadable` where the folder cannot be written.
    """
    from brim.reports import markdown

    if not os.path.isfile(os.path.join(folder, "journal.db")) or (end := interrupted(folder)) is None:
        return False
    report = end.get("report")
    if not isinstance(report, dict):
        return False
    _count, head = store.verify(os.path.join(folder, "journal.db"), None, finished=True)
    if report_digest(report) != end.get("report_sha256"):
        raise BrokenJournal(f"{folder}: the report in the end record is not the one whose SHA-256 stands there")
    report["journal_head"] = head
    files.write_whole(os.path.join(folder, "report.json"), json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    files.write_whole(os.path.join(folder, "report.md"), markdown.run(report))
    return True


def _no_report(folder: str) -> str:
    """Why a finished run's report cannot be had."""
    return "is no JSON object" if os.path.lexists(os.path.join(folder, "report.json")) else "is missing, although the run's other papers say that it ended"


def verified(folder: str) -> tuple[str, int, str]:
    """Prove a run: (journal path, lines, head). `BrokenJournal` names what does not hold; a run that is finished must have its report and its end record."""
    path, report = os.path.join(folder, "journal.db"), _document(folder, "report.json")
    over = finished(folder)
    if over and os.path.isfile(path) and report is None:
        raise BrokenJournal(f"{os.path.join(folder, 'report.json')}: {_no_report(folder)}")
    count, head = store.verify(path, None if report is None else str(report.get("journal_head")), finished=over)
    if wrong := papers(folder, report, store.events(path)):
        raise BrokenJournal("; ".join(wrong))
    return path, count, head


def papers(folder: str, report: "Mapping[str, Any] | None", lines: "Iterable[Line]") -> list[str]:
    """What in the folder's papers is not what the chain says: plan.json and the report by their SHA-256, the report's end and peaks by their values.

    Not covered: what a profile adds to a report afterwards (`profile`, `watchdog`), which repeats lines of the chain.
    """
    said = {line.kind: body_of(line) for line in reversed(tuple(lines)) if line.kind in ("gate", "child_end", "end")}
    wrong = []
    digest_then = said.get("gate", {}).get("plan_sha256")
    if digest_then and _sha256(os.path.join(folder, "plan.json")) != digest_then:
        wrong.append(f"{os.path.join(folder, 'plan.json')}: is not the plan that was made before the launch")
    pairs = [("child_end", "peak_held_bytes"), ("child_end", "peak_mapped_bytes"), ("end", "exit_code")]
    for kind, key in pairs if report is not None else ():
        if key in said.get(kind, {}) and said[kind][key] != report.get(key):  # type: ignore[union-attr]
            wrong.append(f"{os.path.join(folder, 'report.json')}: {key} is {report.get(key)!r}, and the journal says {said[kind][key]!r}")  # type: ignore[union-attr]
    told = said.get("end", {}).get("report_sha256")
    if report is not None and told and report_digest(report) != told and not wrong:
        wrong.append(f"{os.path.join(folder, 'report.json')}: was altered: it is not the report whose SHA-256 the end record holds")
    return wrong


def _sha256(path: str) -> str:
    from hashlib import sha256

    try:
        with open(path, "rb") as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _document(folder: str, name: str) -> "Mapping[str, Any] | None":
    """A JSON object of the folder, None where it is absent or damaged (the chain's head then shows it)."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def body_of(line: "Line") -> "dict[str, Any]":
    """A line's body, an empty object where it is damaged."""
    try:
        found = json.loads(line.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def gathered(folder: str) -> evidence.Gathered:
    """Every sample of a run, thinned ones first (they are the oldest)."""
    seen = evidence.Gathered()
    path = os.path.join(folder, "journal.db")
    for bucket in store.buckets(path):
        seen.add_bucket(bucket)
    for line in store.samples(path):
        body = body_of(line)
        seen.add(line.at_ns, line.wall_ns, str(body.get("level", "unknown")), blocks.flat(body))
    for line in store.events(path):
        value = body_of(line).get("value") if line.kind == "throughput" else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            seen.add_value("throughput", line.at_ns, value)
    return seen


def run_of(opened: Opened, seen: evidence.Gathered, *, now_ns: int | None = None) -> evidence.Run:
    """What evidence needs to know of an opened run. `now_ns` closes a run that is still going; else it ends with its end record or its last line."""
    lines = opened.lines
    begin = next((body_of(line) for line in lines if line.kind == "begin"), {})
    told = begin.get("limits")
    limits: Mapping[str, Any] = told if isinstance(told, dict) else {}
    last = max([line.at_ns for line in lines] + [at for at, _ in seen.levels[-1:]], default=0)
    launched = next((line.at_ns for line in lines if line.kind == "launched"), None)
    ended = next((line.at_ns for line in reversed(lines) if line.kind == "child_end"), None)
    return evidence.Run(
        name=os.path.basename(os.path.abspath(opened.folder)),
        start_ns=launched if launched is not None else lines[0].at_ns if lines else 0,
        end_ns=now_ns if now_ns is not None else ended if ended is not None else last,
        poll_ns=max(int(limits.get("poll_ns") or 0), DEFAULT_POLL_NS),
        limits=_limits(limits, seen.tracks),
        required=_required(limits, seen.tracks),
        events=tuple((line.at_ns, _event_kind(line), body_of(line)) for line in lines),
        governed=launched is not None,
        journal_holds=opened.chain_holds,
        end_record=any(line.kind == "end" for line in lines),
        priced=_priced(opened.plan),
        comparisons=_comparisons(opened, seen),
        **_quality(opened),
    )


def evidence_of(opened: Opened, seen: "evidence.Gathered | None" = None, *, now_ns: int | None = None) -> Evidence:
    """The evidence of an opened run; see `run_of`."""
    seen = gathered(opened.folder) if seen is None else seen
    return evidence.of(run_of(opened, seen, now_ns=now_ns), seen)


def page(folder: str, profile: "Profile | None" = None, seen: "evidence.Gathered | None" = None) -> str:
    """The self-contained HTML page of a run. `Unreadable` where there is no journal."""
    from brim import claim as court
    from brim.reports import html

    opened = open_run(folder)
    seen = gathered(folder) if seen is None else seen
    run = run_of(opened, seen)
    found = evidence.of(run, seen)
    verdicts = court.judge(court.rules_of(profile.claims if profile is not None else _run_profile_claims(opened)), found)
    return html.page(
        opened.report or {}, opened.plan or {}, found, verdicts, series=evidence.series(run, seen), bands=evidence.bands(run, seen), marks=evidence.marks(run),
        chain_fault=opened.chain_fault, seconds=(run.end_ns - run.start_ns) / 1e9,
    )  # fmt: skip


def _event_kind(line: "Line") -> str:
    """A fault and a restart go by these names whatever the governor's own words for their lines are."""
    if line.kind in ("resume", "restart", "resumed"):
        return "restart"
    return "fault" if "fault" in line.kind else line.kind


def _limits(limits: "Mapping[str, Any]", names: "Iterable[str]") -> dict[str, float]:
    """The limit of every signal that has one."""
    heat = next((limits[key] for key in HEAT_LIMITS if isinstance(limits.get(key), (int, float))), None)
    budgets = {str(pair[0]): pair[1] for pair in limits.get("memory_budgets") or () if isinstance(pair, (list, tuple)) and len(pair) == 2}
    budgets.setdefault("cpu", limits.get("memory_budget_bytes"))
    found: dict[str, float] = {}
    for name in names:
        device, _, last = name.rpartition(".")
        # A floor for the launch counts the job's own memory: the top value has it counted, a card's bare free memory is held to the ordinary floor.
        floor = FLOOR_BYTES if limits.get("floor_counts_job") and device else limits.get("floor_bytes")
        bound = {"free_bytes": floor, "held_bytes": budgets.get(device or "cpu"), "temperature_c": heat}.get(last)
        if isinstance(bound, (int, float)) and not isinstance(bound, bool):
            found[name] = bound
    return found


def _required(limits: "Mapping[str, Any]", names: "Iterable[str]") -> tuple[str, ...]:
    """The signals that the run's limits rest on: free memory always, temperature where it has a limit."""
    held = _limits(limits, names)
    wanted = [name for name in sorted(held) if name.rpartition(".")[2] in ("free_bytes", "temperature_c")]
    return tuple(wanted) or ("free_bytes",)


def _priced(plan: "Mapping[str, Any] | None") -> bool | None:
    answer = (plan or {}).get("prediction")
    if not isinstance(answer, dict):
        return None
    return not answer.get("missing") and bool(answer.get("parts"))


def peaks(report: "Mapping[str, Any] | None", seen: evidence.Gathered) -> dict[str, int]:
    """The most that the job held on each device, in bytes: on the host anonymous, shared and mapped memory of its processes, on a card what the samples say.

    Mapped pages whose copies the CPU uses are left out (`copied_bytes`).
    """
    found: dict[str, int] = {}
    held, mapped = (report or {}).get("peak_held_bytes"), (report or {}).get("peak_mapped_bytes")
    if isinstance(held, int) and isinstance(mapped, int):
        copied = copied_bytes((report or {}).get("engine_buffers") or ())
        found["cpu"] = held + mapped - min(copied, mapped)
    for name, track in seen.tracks.items():
        device, _, last = name.rpartition(".")
        if last == "held_bytes" and device and track.values:
            found[device] = int(max(track.values))
    return found


FOREIGN_BYTES = 64 << 20


def foreign(seen: evidence.Gathered) -> str:
    """What spoils a measurement: memory on a card that somebody else took or gave back while the job ran (free and held together must stay the same); empty where nothing did."""
    said = []
    for name, track in seen.tracks.items():
        device, _, last = name.rpartition(".")
        free = dict(seen.tracks[f"{device}.free_bytes"].points) if f"{device}.free_bytes" in seen.tracks else {}
        if last != "held_bytes" or not device or not free:
            continue
        both = [free[at] + value for at, value in track.points if at in free]
        if both and max(both) - min(both) > FOREIGN_BYTES:
            said.append(f"foreign processes on {device}: {int(max(both) - min(both)) >> 20} MiB came or went")
    return "; ".join(said)


def _comparisons(opened: Opened, seen: evidence.Gathered) -> tuple[Comparison, ...]:
    """The measured peak beside the predicted span, device by device. On the host the job holds its program too, which a plan prices once a run here has taught it."""
    answer = (opened.plan or {}).get("prediction")
    if not isinstance(answer, dict):
        return ()
    spans: dict[str, list[int]] = {}
    for part in answer.get("parts", ()):
        span = spans.setdefault(str(part.get("device")), [0, 0, 0])
        for index, end in enumerate(("low", "likely", "high")):
            span[index] += int(part.get("bytes", {}).get(end, 0))
    measured = peaks(opened.report, seen)
    if any(device not in measured for device in spans):
        return ()  # one device that nobody measured leaves the comparison open
    return tuple(
        Comparison(device=device, low=low, likely=likely, high=high, measured=measured[device], within=low <= measured[device] <= high)
        for device, (low, likely, high) in spans.items()
    )


def _quality(opened: Opened) -> "dict[str, bool | Missing]":
    """What the run's own quality line says."""
    line = next((body_of(line) for line in reversed(opened.lines) if line.kind == "quality"), None)
    path = (line or {}).get("artifact")
    if line is None or not isinstance(path, str):
        return {}
    try:
        unchanged = digest.of_file(path, None, 0) == line.get("sha256")
    except BrimError:
        unchanged = False
    return {"quality_passed": line.get("passed") is True, "artifact_unchanged": unchanged}


def claims(run: "str | Opened", profile: "Profile | None" = None) -> "tuple[Verdict, ...]":
    """Every claim of the profile (default: the one that the run was started with, else the built-in ones) judged on the run's evidence."""
    from brim import claim as court

    opened = open_run(run) if isinstance(run, str) else run
    rules = court.rules_of(profile.claims if profile is not None else _run_profile_claims(opened))
    return court.judge(rules, evidence_of(opened))


def _run_profile_claims(opened: Opened) -> "tuple[Any, ...]":
    """The claims of the profile that the run names; the built-in ones where it names none or the file is gone."""
    named = next((body_of(line).get("profile") for line in opened.lines if line.kind in ("begin", "profile")), None)
    if not isinstance(named, str):
        return ()
    from brim.card_report import load_profile

    try:
        return load_profile(named).claims
    except BrimError:
        return ()


def runs(state: str) -> "list[dict[str, Any]]":
    """Every run folder under `state`, the oldest first: name, folder, when it began, how it ended, bytes on disk. A folder without a journal is no run."""
    parent = os.path.join(state, "runs")
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return []
    rows = []
    for name in names:
        folder = os.path.join(parent, name)
        if not os.path.isfile(os.path.join(folder, "journal.db")):
            continue
        report = _document(folder, "report.json") or {}
        rows.append({
            "run": name, "folder": folder, "began_wall_ns": report.get("began_wall_ns"), "lasted_ns": report.get("lasted_ns"),
            "exit_code": report.get("exit_code"), "ended_by": report.get("ended_by") or "not finished", "command": report.get("command"),
            "bytes": _bytes_of(folder),
        })  # fmt: skip
    return rows


def _bytes_of(folder: str) -> int:
    whole = 0
    for where, _, names in os.walk(folder):
        for file in names:
            try:
                whole += os.lstat(os.path.join(where, file)).st_size
            except OSError:
                continue
    return whole


def remove(folder: str) -> None:
    """Remove one run folder and everything in it; `Unreadable` where it is no run or cannot be removed."""
    import shutil

    if not os.path.isfile(os.path.join(folder, "journal.db")):
        raise Unreadable(f"{folder}: is no run folder, so it is not removed")
    try:
        shutil.rmtree(folder)
    except OSError as fault:
        raise Unreadable(f"{folder}: cannot be removed: {fault.strerror or fault}") from None
