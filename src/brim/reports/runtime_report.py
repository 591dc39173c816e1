"""The governor report for people: the document's values in, Markdown out; no number is computed here."""

from brim.reports.text import marked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def markdown(document: "Mapping[str, Any]", title: str) -> str:
    """The Markdown of one report: a title, the facts as a list, and what is run and watched."""
    gpus = document.get("gpus") or [document["gpu"]]
    decision, preflight = document["decision"], document["preflight"]
    lines = [f"# {title}", "", f"{document['model_target']} on {document['hardware_target']}, {document['created_at']}.", ""]
    for gpu in gpus:
        which = f" {gpu['index']}" if len(gpus) > 1 else ""
        lines += [
            f"- GPU{which}: {_name(gpu)}",
            f"- Free VRAM{which}: {_said(gpu.get('memory_free_mb'), lambda mib: f'{mib / 1024:.2f} GB')}",
            f"- Temperature{which}: {_said(gpu.get('temperature_c'), lambda heat: f'{heat:g} °C')}",
        ]
        if len(gpus) > 1:
            lines.append(f"- Risk level{which}: {document['decisions'][gpu['index']]['risk_level']}")
    lines += [
        f"- Dense class parameters: {preflight['dense_class_params']:,}",
        f"- Compressed (PureField) estimated parameters: {preflight['purefield_estimated_params']:,}",
        f"- INT4 raw weights: {preflight['int4_raw_weights_gb']:.4f} GB",
        f"- Risk level: {decision['risk_level']}",
        f"- Compressed run allowed: {_word(decision['run_12b_compressed_on_3090_allowed'])}",
        f"- Dense training allowed: {_word(decision['dense_12b_full_train_on_3090_allowed'])}",
        f'- "No bottleneck forever" claim allowed: {_word(document["claim_gate"]["no_bottleneck_forever_claim_allowed"])}',
        f"- Reason: {marked(decision['reason'])}",
        "",
        "## Runtime profile",
        "",
        *(f"- {key}: {_word(value)}" for key, value in document["runtime_profile"].items()),
        "",
        "## Watchdog",
        "",
        f"- max_temp_c: {document['watchdog']['max_temp_c']:g}",
        f"- min_free_vram_gb: {document['watchdog']['min_free_vram_gb']:.4f}",
        f"- poll_seconds: {document['watchdog']['poll_seconds']:g}",
        *(f"- action: {action}" for action in document["watchdog"]["actions"]),
        "",
    ]
    return "\n".join(lines)


def _name(gpu: "Mapping[str, Any]") -> str:
    if not gpu["available"]:
        return f"unavailable ({marked(' '.join(str(gpu['error']).split()))})"
    return marked(gpu["name"]) if isinstance(gpu["name"], str) else "unknown"


def _said(value: object, show: "Any") -> str:
    return show(value) if isinstance(value, (int, float)) else "unknown"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)
