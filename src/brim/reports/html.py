"""The report of a run as one self-contained HTML page: verdict first, then time, prediction beside measurement, claims; values in, characters out.

No script, no font, no address is loaded. Light and dark follow the reader's system. Charts are SVG stretched to the width of the page; their labels are HTML, so that
they keep their size on a phone. Levels are told by pattern and by word, never by colour alone.
"""

from html import escape

from brim.reports import drawing
from brim.units import format_bytes, format_ns
from brim.values import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from brim.claim import Verdict
    from brim.facts.evidence import Evidence, Mark, Series

NOT_FINISHED = "Not finished: there is no report of how this run ended"
STYLE = """
:root{color-scheme:light dark;--bg:#fbfbf9;--card:#fff;--ink:#1c1e21;--soft:#5a6068;--line:#d9dce1;--series:#1f5fbf;--area:#1f5fbf33;--limit:#b3261e;
--run:#2e7d4f;--throttle:#b06a00;--block:#b3261e;--unknown:#6b7280;--good:#1d6b40;--bad:#a3211a}
@media (prefers-color-scheme:dark){:root{--bg:#14161a;--card:#1d2026;--ink:#e9ebee;--soft:#a5acb6;--line:#353a43;--series:#7fb0ff;--area:#7fb0ff33;--limit:#ff8a80;
--run:#6fcf97;--throttle:#ffb74d;--block:#ff8a80;--unknown:#9aa3af;--good:#7fdca4;--bad:#ff8a80}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:60rem;margin:0 auto;padding:1rem}h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.8rem 0 .5rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.9rem 1rem;margin:.6rem 0}
.soft{color:var(--soft)}.verdict{font-size:1.25rem;font-weight:650}.good{color:var(--good)}.bad{color:var(--bad)}code{font-size:.85em;overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.5rem;margin:.6rem 0}.facts div{background:var(--card);border:1px solid var(--line);
border-radius:.5rem;padding:.5rem .7rem}.facts b{display:block;font-size:1.05rem;font-weight:600}.facts span{color:var(--soft);font-size:.85rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:.35rem .5rem;border-bottom:1px solid var(--line);
text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:500}
.chart{margin:.4rem 0 1rem}.chart svg{display:block;width:100%;height:9rem;background:var(--bg);border:1px solid var(--line)}.chart svg.strip{height:1.1rem;border-top:0}
.axis{display:flex;justify-content:space-between;color:var(--soft);font-size:.85rem}.legend{color:var(--soft);font-size:.85rem}.legend b{color:var(--limit);font-weight:600}
.curve{fill:none;stroke:var(--series);stroke-width:1.6}.span{fill:var(--area)}.limit{stroke:var(--limit);stroke-width:1.6;stroke-dasharray:6 4}
.mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}.run{fill:var(--run)}.throttle{fill:var(--throttle)}.block{fill:var(--block)}.unknown{fill:var(--unknown)}
.hatch{stroke:var(--bg);stroke-width:2}ol,ul{padding-left:1.3rem;margin:.4rem 0}li{margin:.15rem 0}.tag{font-weight:650}
"""


def page(
    report: "Mapping[str, Any]",
    plan: "Mapping[str, Any]",
    found: "Evidence",
    verdicts: "Sequence[Verdict]",
    *,
    series: "Sequence[Series]",
    bands: "Sequence[tuple[float, float, str]]",
    marks: "Sequence[Mark]",
    chain_fault: str,
    seconds: float,
) -> str:
    """The whole page. `report` and `plan` may be empty: the page then says what is not there."""
    body = [
        _head(report, found, chain_fault),
        _facts(report, found),
        "<h2>Over time</h2>",
        _charts(series, bands, marks, seconds),
        _levels(found),
        _events(marks),
        _watchdog(report),
        _comparison(report, plan),
        _claims(verdicts),
        _signals(found),
        _interruptions(found),
        _foot(report),
    ]
    title = escape(f"brim: run {found.run}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>\n<body><main>\n' + "\n".join(part for part in body if part) + "\n</main></body></html>\n"
    )


def _head(report: "Mapping[str, Any]", found: "Evidence", chain_fault: str) -> str:
    by, code = report.get("ended_by"), report.get("exit_code")
    if not report:
        word, kind = NOT_FINISHED, "bad"
    elif by == "child" and code == 0:
        word, kind = "Ended by itself, with success", "good"
    elif by == "end":
        word, kind = "Ended at its time, as asked", "good"
    elif code == 3:
        word, kind = "Refused by the gate: it was not started", "bad"
    else:
        word, kind = f"Ended by {by}, exit code {code}", "bad"
    reason = f"<p>{escape(str(report['reason']))}</p>" if report.get("reason") else ""
    chain = f'<p class="bad">✗ The journal does not hold: {escape(chain_fault)}</p>' if chain_fault else '<p class="good">✓ The journal’s chain holds.</p>'
    command = " ".join(str(item) for item in report.get("command", ()))
    sign = "✓" if kind == "good" else "✗"
    return (
        f'<p class="soft">brim · run {escape(found.run)}</p><h1 class="verdict {kind}">{sign} {escape(word)}</h1>{reason}{chain}'
        f'<p class="soft"><code>{escape(command)}</code></p>'
    )


def _facts(report: "Mapping[str, Any]", found: "Evidence") -> str:
    lasted = report.get("lasted_ns")
    rows = [
        ("lasted", format_ns(lasted) if isinstance(lasted, int) else "unknown"),
        ("continuous", _number(found.measures.get("continuous_hours"), " h")),
        ("coverage", _share(found.measures.get("coverage"))),
        ("held at the peak", _bytes(report.get("peak_held_bytes"))),
        ("lowest free", _bytes(report.get("lowest_free_bytes"))),
        ("prediction", str(report.get("verdict") or "not made").replace("_", " ")),
        ("faults", str(found.measures.get("faults"))),
        ("throughput drift", _share(found.measures.get("throughput_drift"))),
    ]
    return '<div class="facts">' + "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in rows) + "</div>"


def _charts(series: "Sequence[Series]", bands: "Sequence[tuple[float, float, str]]", marks: "Sequence[Mark]", seconds: float) -> str:
    if not series:
        return '<p class="card">No signal was recorded for long enough to be drawn.</p>'
    drawn = []
    for index, one in enumerate(series):
        scale, unit = ((1 << 30, "GiB") if max(high for _, _, high in one.points) >= 1 << 30 else (1 << 20, "MiB")) if one.unit == "bytes" else (1, one.unit)
        low, high, picture = drawing.chart(one, [mark.at_s for mark in marks if mark.kind != "level"], seconds)
        limit = "" if isinstance(one.limit, Missing) else f" · <b>- - {escape(one.side)} {one.limit / scale:.4g} {unit}</b>"
        drawn.append(
            f'<div class="card chart"><b>{escape(one.name)}</b> <span class="legend">{unit}{limit}</span><div class="axis"><span>{high / scale:.4g} {unit}</span></div>'
            f'{picture}{drawing.strip(bands, seconds, f"h{index}")}<div class="axis"><span>{low / scale:.4g} {unit}</span><span>{escape(_clock(seconds))}</span></div></div>'
        )
    legend = '<p class="legend">Under each chart, the level: ▬ plain green: run · striped amber: throttle · crossed red: block · grey: unknown · empty: no sample. Dotted: an event other than a change of level.</p>'
    return "".join(drawn) + legend


def _levels(found: "Evidence") -> str:
    rows = "".join(f"<tr><td>{escape(level.replace('_', ' '))}</td><td>{escape(_clock(spent))}</td></tr>" for level, spent in found.level_seconds.items())
    return f'<h2>Time in each level</h2><div class="card scroll"><table><tr><th>level</th><th>time</th></tr>{rows}</table></div>' if rows else ""


def _events(marks: "Sequence[Mark]", most: int = 40) -> str:
    if not marks:
        return ""
    rows = "".join(
        f'<li><span class="soft">{escape(_clock(one.at_s))}</span> <span class="tag">{escape(one.kind)}</span> {escape(one.text)}</li>' for one in marks[:most]
    )
    more = f'<p class="soft">and {len(marks) - most} more in the journal</p>' if len(marks) > most else ""
    return f'<h2>Events</h2><div class="card"><ul>{rows}</ul>{more}</div>'


def _watchdog(report: "Mapping[str, Any]") -> str:
    rows = []
    for row in report.get("watchdog") or ():
        last = row.get("last")
        said = f"{last['at_s']:.1f} s: {last['did']}: {last['because']}" if last else "not needed"
        rows.append(f"<li><b>{escape(row['action'])}</b>: {row['times']} × · {escape(said)}</li>")
    return f'<h2>Watchdog</h2><div class="card"><ul>{"".join(rows)}</ul></div>' if rows else ""


def _comparison(report: "Mapping[str, Any]", plan: "Mapping[str, Any]") -> str:
    rows = report.get("comparison") or ()
    if not rows:
        return '<h2>Prediction beside measurement</h2><p class="card">No model that brim could price was named, so nothing was predicted.</p>'
    parts = {part.get("name"): part.get("source", "") for part in (plan.get("prediction") or {}).get("parts", ())}
    text = "".join(
        f"<tr><td>{escape(str(row.get('part')))}</td><td>{_bytes(row.get('predicted_bytes'))}</td><td>{_bytes(row.get('measured_bytes'))}</td>"
        f"<td>{_signed(row.get('difference_bytes'))}</td></tr>"
        for row in rows
    )
    learnt = sorted({source for source in parts.values() if str(source).startswith("measured here")})
    note = "".join(f'<p class="soft">{escape(str(source))}</p>' for source in learnt)
    head = "<tr><th>part</th><th>predicted</th><th>measured</th><th>difference</th></tr>"
    return f'<h2>Prediction beside measurement</h2><div class="card scroll"><table>{head}{text}</table>{note}</div>'


def _claims(verdicts: "Sequence[Verdict]") -> str:
    drawn = []
    for one in verdicts:
        never = not one.allowed and not one.evidence
        word, kind, sign = ("allowed", "good", "✓") if one.allowed else ("never" if never else "not yet", "bad", "✗")
        items = "".join(f"<li>✓ {escape(text)}</li>" for text in one.evidence) + "".join(f"<li>✗ {escape(text)}</li>" for text in one.missing)
        drawn.append(f'<div class="card"><span class="tag {kind}">{sign} {word}</span> <b>{escape(one.name)}</b><br>{escape(one.says)}<ul>{items}</ul></div>')
    return "<h2>Claims</h2>" + "".join(drawn)


def _signals(found: "Evidence") -> str:
    rows = []
    for one in found.signals:
        if one.count:
            scale, unit = (1 << 20, "MiB") if one.unit == "bytes" else (1, one.unit)
            cells = "".join(f"<td>{_cell(value, scale)}</td>" for value in (one.low, one.p50, one.p95, one.p99, one.high, one.limit))
            rows.append(f"<tr><td>{escape(one.name)} ({escape(unit)})</td>{cells}<td>{one.coverage:.2%}</td></tr>")
    head = "<tr><th>signal</th><th>least</th><th>p50</th><th>p95</th><th>p99</th><th>most</th><th>limit</th><th>coverage</th></tr>"
    return f'<h2>Signals</h2><div class="card scroll"><table>{head}{"".join(rows)}</table></div>' if rows else ""


def _interruptions(found: "Evidence") -> str:
    lines = [f"{_clock(one.at_s)}: {one.kind} of {_clock(one.length_s)}: {one.what}" for one in found.interruptions[:40]] + list(found.notes)
    return '<h2>Interruptions</h2><div class="card"><ul>' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul></div>" if lines else ""


def _foot(report: "Mapping[str, Any]") -> str:
    return f'<p class="soft">Journal head <code>{escape(str(report.get("journal_head", "none")))}</code>. `brim verify` recomputes the chain; without a signature it proves consistency, not authorship.</p>'


def _clock(seconds: float) -> str:
    return format_ns(int(seconds * 1e9))


def _bytes(value: object) -> str:
    return format_bytes(value) if isinstance(value, int) else "–"


def _signed(value: object) -> str:
    return ("+" if isinstance(value, int) and value >= 0 else "") + _bytes(value)


def _cell(value: object, scale: int) -> str:
    return f"{value / scale:.1f}" if isinstance(value, (int, float)) else "–"


def _number(value: object, unit: str) -> str:
    return f"{value:.3g}{unit}" if isinstance(value, (int, float)) else "unknown"


def _share(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, (int, float)) else "not measured"
