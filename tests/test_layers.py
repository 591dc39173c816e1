"""The house plan as a table of allowed arrows: a module may import only what stands in its row (STYLE.md, section 3)."""

import ast
import pathlib

SRC = pathlib.Path(__file__).parent.parent / "src" / "brim"

GROUND = {"values", "units", "errors"}
STOREY_1 = {"facts", "records", "seams"}
SPINE = {"engines", "budget", "planner", "gate", "policy", "prediction", "reports", "packing", "anatomy", "implied"}
SPINE |= {"knobs", "lineup", "again"}
SPINE |= {"availability", "cards", "masks", "pool", "visible"}
EDGES = {"ledger", "readers", "probes", "actions", "journal", "clock"}
JOIN = {"book", "admission", "launch", "hardware", "governor", "api", "checkpoint", "forms", "pages"}
SPINE |= {"shapes", "outlook", "training_solver"}
JOIN |= {"training", "resumption", "watching", "following"}
TOP = {"cli", "integrations"}
SPINE |= {"asking", "second_opinion"}
# evidence, claims and profiles
SPINE |= {"calibration", "claim", "coverage", "evidence", "profile", "quality", "runtime_report", "trend", "watchdog"}
EDGES |= {"stores"}
JOIN |= {"card_report", "dossier", "learning", "profiled", "verbs"}

_BASE = GROUND | STOREY_1
# room → rooms of ours that it may import (itself is always allowed)
ALLOWED: dict[str, set[str]] = {
    "values": set(),
    "errors": set(),
    "units": {"values"},
    "facts": GROUND,
    "records": GROUND,
    "seams": _BASE,
    "engines": _BASE,
    "budget": _BASE,
    "planner": _BASE | {"engines"},
    "knobs": _BASE | {"engines", "planner"},
    "lineup": _BASE | {"budget"},
    "second_opinion": _BASE | {"engines"},
    "asking": _BASE | {"engines", "planner", "knobs", "lineup", "gate", "prediction"},
    "gate": _BASE | {"availability", "engines", "planner"},
    "policy": _BASE,
    "prediction": _BASE | {"availability", "engines", "planner", "gate"},
    "shapes": GROUND | {"facts"},
    "outlook": _BASE | {"engines", "gate"},
    "training_solver": _BASE | {"engines", "planner", "gate"},
    "reports": _BASE | SPINE,
    "packing": _BASE,
    "anatomy": _BASE,
    "implied": _BASE,
    "readers": _BASE,
    "probes": _BASE,
    "actions": _BASE,
    "journal": _BASE,
    "clock": _BASE,
    "again": _BASE,
    "watching": _BASE | {"control"},
    "resumption": _BASE | SPINE | EDGES | {"api", "launch"},
    "control": set(),
    "client": {"control"},
    "ledger": _BASE,
    "availability": _BASE,
    "cards": _BASE,
    "pool": _BASE | {"budget"},
    "visible": _BASE,
    "masks": _BASE,
    "hardware": _BASE | SPINE | EDGES | {"following"},
    "following": _BASE | EDGES,
    "sight": _BASE | SPINE | EDGES | {"hardware", "__init__"},
    "admission": _BASE | SPINE | EDGES,
    "pages": _BASE | {"control"},
    "governor": _BASE | SPINE | EDGES | {"control", "hardware"},
    "launch": _BASE | SPINE | EDGES | {"admission", "governor", "hardware", "book", "control", "pages", "__init__"},
    "book": _BASE | SPINE | EDGES | {"governor"},
    "checkpoint": _BASE | {"shapes", "engines", "implied", "readers", "forms"},
    "forms": _BASE | {"packing", "shapes", "engines", "implied", "readers", "checkpoint"},
    "api": _BASE | SPINE | EDGES | {"sight", "admission", "training", "governor", "launch", "hardware", "checkpoint", "__init__"},
    "training": _BASE | SPINE | EDGES | {"checkpoint"},
    "__init__": _BASE | SPINE | JOIN | {"client"},
    "__main__": {"cli"},
    "cli": _BASE | SPINE | {"api", "clock", "hardware", "__init__"},
    "integrations": {"__init__", "client"},
}
# evidence, claims and profiles
ALLOWED |= {
    "calibration": _BASE | {"engines", "trend"},
    "evidence": _BASE | {"coverage", "trend"},
    **dict.fromkeys(("claim", "coverage", "profile", "quality", "runtime_report", "trend", "stores", "watchdog"), _BASE),
    "card_report": _BASE | SPINE | EDGES,
    "dossier": _BASE | SPINE | EDGES | {"card_report", "control"},
    "learning": _BASE | SPINE | EDGES,
    "verbs": _BASE | SPINE | EDGES | {"api", "card_report", "dossier", "learning"},
}
ALLOWED["card_report"] |= {"hardware"}
ALLOWED["api"] |= {"dossier"}
ALLOWED["profiled"] = ALLOWED["verbs"] | {"verbs"}
ALLOWED["api"] |= {"learning", "profiled"}
ALLOWED["cli"] |= {"card_report", "verbs", "resumption", "watching"}
# Modules through which a pure room would reach the outside world: files, processes, the network, a clock, chance, the environment.
IMPURE = {"os", "io", "pathlib", "time", "datetime", "subprocess", "socket", "random", "signal", "threading", "sqlite3", "shutil", "tempfile", "urllib", "mmap"}
IMPURE_CALLS = {"open", "print", "input", "eval", "exec"}


def _modules():
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        yield path, parts[0], ast.parse(path.read_text())


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "brim":
                found.update(f"brim.{alias.name}" for alias in node.names)
            else:
                found.add(node.module)
    return found


def test_arrows_point_down_only() -> None:
    """No module imports a room that its row does not allow; a room without a row is a failure too."""
    wrong = []
    for path, room, tree in _modules():
        assert room in ALLOWED, f"{path}: the room {room!r} has no row in the plan"
        for name in _imports(tree):
            if name.split(".")[0] != "brim":
                continue
            other = name.split(".")[1] if "." in name else "__init__"
            if other.startswith("__") and other != "__init__":
                other = "__init__"
            if other != room and other not in ALLOWED[room]:
                wrong.append(f"{path.relative_to(SRC)} imports {name}")
    assert not wrong, wrong


def test_the_spine_does_no_io_and_reads_no_clock() -> None:
    """Ground, facts and spine import nothing through which the outside world could be reached, and call nothing that does."""
    wrong = []
    for path, room, tree in _modules():
        if room not in _BASE | SPINE:
            continue
        wrong += [f"{path.relative_to(SRC)} imports {name}" for name in _imports(tree) if name.split(".")[0] in IMPURE]
        wrong += [
            f"{path.relative_to(SRC)} calls {node.func.id}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
        ]
    assert not wrong, wrong


def test_edges_are_strangers() -> None:
    """A reader does not import another reader but through source.py and text.py; a probe no other edge; engines not each other (ollama may ask llama_cpp)."""
    wrong = []
    for path, room, tree in _modules():
        name = path.stem
        for target in _imports(tree):
            parts = target.split(".")
            if len(parts) < 3 or parts[0] != "brim":
                continue
            if parts[1] == "readers" and room == "readers" and name != "__init__" and parts[2] not in ("source", "text", name):
                wrong.append(f"{path.relative_to(SRC)} imports {target}")
            mine = path.relative_to(SRC).with_suffix("").parts[-1 if room != "engines" else 1] if len(path.relative_to(SRC).parts) > 1 else room
            if (
                parts[1] == "engines"
                and room == "engines"
                and parts[2] not in ("base", "kv", "constants", mine)
                and (mine, parts[2]) != ("ollama", "llama_cpp")
            ):
                wrong.append(f"{path.relative_to(SRC)} imports {target}")
    assert not wrong, wrong


def test_every_module_has_a_room_sign() -> None:
    """The first line of each module's docstring says what the room is for, in one sentence."""
    for path, _, tree in _modules():
        sign = ast.get_docstring(tree)
        assert sign, path
        assert len(sign.splitlines()[0]) > 15 or path.stem == "__main__", path


def test_no_public_name_is_a_room() -> None:
    """A verb that shares its name with a module would turn into that module as soon as somebody imports it."""
    import brim

    rooms = {path.stem if path.stem != "__init__" else path.parent.name for path in [*SRC.glob("*.py"), *SRC.glob("*/__init__.py")]}
    assert not rooms & set(brim.__all__)
