"""The JSON Schema (draft 2020-12) of every document that brim prints; tests validate real output against them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MISSING = {
    "type": "object",
    "properties": {"missing": {"enum": ["not_supported", "denied", "failed", "gone"]}, "detail": {"type": "string"}},
    "required": ["missing", "detail"],
}
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_BYTES = {"type": "integer", "minimum": 0}
_NULLABLE_BOOL = {"type": ["boolean", "null"]}
_SPAN = {
    "type": "object",
    "properties": {"low": _BYTES, "likely": _BYTES, "high": _BYTES},
    "required": ["low", "likely", "high"],
    "additionalProperties": False,
}


def _or_missing(schema: "dict[str, Any]") -> "dict[str, Any]":
    return {"anyOf": [schema, _MISSING]}


def _document(name: str, properties: "dict[str, Any]", *, optional: tuple[str, ...] = ()) -> "dict[str, Any]":
    """A document with its version word; every property is required unless it is named as optional."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "type": "object",
        "properties": {"schema": {"const": name}, **properties},
        "required": ["schema", *(key for key in properties if key not in optional)],
    }


_BUDGET = {
    "type": "object",
    "properties": {
        "backend": _TEXT,
        "total_bytes": _or_missing(_BYTES),
        "usable_bytes": _or_missing(_BYTES),
        "reserve_fraction": {"type": "number", "minimum": 0, "maximum": 1},
        "source": _TEXT,
        "approximate": {"type": "boolean"},
        "fell_back": {"type": "boolean"},
        "hypothetical": {"type": "boolean"},
        "says": _TEXT,
    },
    "required": ["backend", "total_bytes", "usable_bytes", "reserve_fraction", "source", "approximate", "fell_back", "says"],
}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}
_DEVICE = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "backend": _TEXT,
        "name": _TEXT,
        "memory": {"type": "object", "additionalProperties": _or_missing(_BYTES), "required": ["total_bytes", "free_bytes", "available_bytes"]},
        "budget": _BUDGET,
        "index": {"type": "integer"},
        "physical_index": _or_missing({"type": "integer"}),
        "state": {"enum": ["ok", "asleep", "lost", "unreachable", "stale", "hypothetical"]},
        "unified": _FLAG,
        **dict.fromkeys(("unified_because", "soc"), _TEXT),
        **dict.fromkeys(("uuid", "pci_bus_id", "compute_capability", "driver_version", "runtime_version", "mig", "parent_uuid"), _or_missing(_TEXT)),
        **dict.fromkeys(
            (
                *("temperature_c", "memory_temperature_c", "slowdown_temperature_c", "shutdown_temperature_c", "max_operating_temperature_c"),
                *("power_draw_w", "power_limit_w", "power_enforced_w", "power_min_w", "power_max_w", "power_default_w"),
                *("fan_percent", "utilisation_percent", "clock_sm_mhz", "clock_memory_mhz"),
            ),
            _or_missing(_NUMBER),
        ),
        "ecc_uncorrected": _or_missing({"type": "integer"}),
        **dict.fromkeys(("remap_pending", "remap_failed", "persistence"), _or_missing(_FLAG)),
        **dict.fromkeys(("throttle_reasons", "instructions"), _or_missing(_TEXTS)),
        "processes": _or_missing(
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"pid": {"type": "integer"}, "used_bytes": _or_missing(_BYTES), "name": _TEXT},
                    "required": ["pid", "used_bytes"],
                },
            }
        ),
        "faults": _TEXTS,
        "warnings": _TEXTS,
        "sources": _TEXTS,
    },
    "required": ["id", "backend", "name", "memory", "temperature_c", "power_limit_w", "budget"],
}
_HOST = {
    "type": "object",
    "properties": {
        **dict.fromkeys(
            ("total_bytes", "available_bytes", "swap_total_bytes", "swap_free_bytes", "cgroup_limit_bytes", "cgroup_usage_bytes"), _or_missing(_BYTES)
        ),
        **dict.fromkeys(("psi_some_avg10", "psi_full_avg10", "cpu_temperature_c", "nvme_temperature_c"), _or_missing(_NUMBER)),
    },
    "required": ["total_bytes", "available_bytes", "cgroup_limit_bytes"],
}
_ASKED = {
    "type": "object",
    "properties": {"source": _TEXT, "outcome": _TEXT, "detail": _TEXT, "elapsed_ns": {"type": "integer"}, "install": _TEXT},
    "required": ["source", "outcome", "detail", "elapsed_ns"],
}
_MAYBE = {"type": ["number", "null"]}
_MODEL = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "backend", "memory_from", "source"), _TEXT),
        "memory_bytes": _BYTES,
        **dict.fromkeys(("bandwidth_gbs", "power_w", "slowdown_c", "shutdown_c"), _MAYBE),
        "compute": {"type": ["string", "null"]},
        "unified": _FLAG,
    },
    "required": ["name", "backend", "memory_bytes", "source"],
}
_FIT_DEVICE = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "budget": _BUDGET,
        "available_bytes": _or_missing(_BYTES),
        "required_bytes": _SPAN,
        "fits": _NULLABLE_BOOL,
        "fits_now": _NULLABLE_BOOL,
    },
    "required": ["id", "budget", "required_bytes", "fits"],
}
_PART = {
    "type": "object",
    "properties": {"name": _TEXT, "device": _TEXT, "bytes": _SPAN, "rule": _TEXT, "source": _TEXT},
    "required": ["name", "device", "bytes", "rule", "source"],
}
_CHECKPOINT = {
    "type": "object",
    "properties": {
        "state": {"enum": ["acknowledged", "signalled", "none"]},
        "step": {"type": "integer"},
        "path": _TEXT,
        "took_ns": {"type": "integer"},
        "detail": _TEXT,
    },
    "required": ["state"],
}
_VERDICT = {"enum": ["fits", "does_not_fit", "cannot_tell"]}
_COMPARISON = {
    "type": "object",
    "properties": {
        "part": _TEXT,
        "predicted_bytes": _BYTES,
        "measured_bytes": {"type": ["integer", "null"]},
        "difference_bytes": {"type": ["integer", "null"]},
        "source": _TEXT,
    },
    "required": ["part", "predicted_bytes", "measured_bytes", "difference_bytes", "source"],
}

_SLICES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"word": _TEXT, "tensors": _BYTES, "stored_bytes": _BYTES, "elements": _BYTES},
        "required": ["word", "tensors", "stored_bytes", "elements"],
        "additionalProperties": False,
    },
}
_TENSOR = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "dims": {"type": "array", "items": _BYTES},
        "dtype": _TEXT,
        "offset": _BYTES,
        "stored_bytes": _BYTES,
        "elements": _BYTES,
        "shard": _BYTES,
    },
    "required": ["name", "dims", "dtype", "offset", "stored_bytes", "elements", "shard"],
    "additionalProperties": False,
}
_NUMBER_OR_MISSING = _or_missing({"type": "number"})
_GOVERNOR_DECISION = {
    "type": "object",
    "properties": {
        "risk_level": {"enum": ["run", "throttle", "block", "unknown"]},
        "run_12b_compressed_on_3090_allowed": {"type": "boolean"},
        "dense_12b_full_train_on_3090_allowed": {"const": False},
        "reason": _TEXT,
    },
    "required": ["risk_level", "run_12b_compressed_on_3090_allowed", "dense_12b_full_train_on_3090_allowed", "reason"],
}
# The governor report has a version word of its own (`schema_version`), which its profile gives; it carries no `schema`.
_GOVERNOR_REPORT: "dict[str, Any]" = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "governor report",
    "type": "object",
    "properties": {
        "schema_version": _TEXT,
        "created_at": _TEXT,
        "hardware_target": _TEXT,
        "model_target": _TEXT,
        "gpu": {
            "oneOf": [
                {
                    "properties": {
                        "available": {"const": True},
                        "name": _or_missing(_TEXT),
                        **dict.fromkeys(("memory_total_mb", "memory_free_mb", "power_limit_w", "temperature_c"), _NUMBER_OR_MISSING),
                    },
                    "required": ["available", "name", "memory_total_mb", "memory_free_mb", "power_limit_w", "temperature_c", "command"],
                },
                {"properties": {"available": {"const": False}, "error": _TEXT}, "required": ["available", "error", "command"]},
            ]
        },
        "gpus": {"type": "array"},
        "preflight": {
            "type": "object",
            "required": ["path", "dense_class_params", "purefield_estimated_params", "bf16_weights_gb", "int4_raw_weights_gb"],
        },
        "runtime_profile": {"type": "object"},
        "watchdog": {"type": "object", "required": ["max_temp_c", "min_free_vram_gb", "poll_seconds", "actions"]},
        "decision": _GOVERNOR_DECISION,
        "decisions": {"type": "array", "items": _GOVERNOR_DECISION},
        "claim_gate": {
            "type": "object",
            "properties": {"no_bottleneck_forever_claim_allowed": {"const": False}, "world_best_performance_claim_allowed": {"const": False}},
            "required": ["no_bottleneck_forever_claim_allowed", "stable_long_run_claim_requires_soak_test_hours", "world_best_performance_claim_allowed"],
        },
        "json_path": _TEXT,
        "markdown_path": _TEXT,
    },
    "required": [
        "schema_version", "created_at", "hardware_target", "model_target", "gpu", "preflight", "runtime_profile", "watchdog", "decision", "claim_gate",
        "json_path", "markdown_path",
    ],
}  # fmt: skip

SCHEMAS: "dict[str, dict[str, Any]]" = {
    "probe": _document(
        "brim.probe/1",
        {
            "devices": {"type": "array", "items": _DEVICE},
            "host": _HOST,
            "warnings": _TEXTS,
            "notes": _TEXTS,
            "asked": {"type": "array", "items": _ASKED},
        },
        optional=("notes", "asked"),
    ),
    "doctor": _document(
        "brim.doctor/1",
        {
            "facts": {"type": "object", "additionalProperties": _TEXT},
            "asked": {"type": "array", "items": _ASKED},
            "devices": {"type": "array", "items": {"type": "object", "required": ["id", "name", "state", "budget"], "properties": {"budget": _BUDGET}}},
            "notes": _TEXTS,
            "warnings": _TEXTS,
        },
    ),
    "devices": _document("brim.devices/1", {"devices": {"type": "array", "items": _MODEL}}),
    "fit": _document(
        "brim.fit/1",
        {
            "verdict": _VERDICT,
            "reasons": _TEXTS,
            "model": {
                "type": "object",
                "properties": {"architecture": _TEXT, "name": _TEXT, "parameters": {"type": "integer"}, "file_bytes": _BYTES, "source": _TEXT},
                "required": ["architecture", "name", "parameters", "file_bytes", "source"],
            },
            "engine": {"type": "object", "properties": {"name": _TEXT, "version": _TEXT}, "required": ["name", "version"]},
            "workload": {"type": "object"},
            "devices": {"type": "array", "items": _FIT_DEVICE},
            "parts": {"type": "array", "items": _PART},
            "max_ctx": {"type": ["integer", "null"]},
            "missing": _TEXTS,
            "suggestions": _TEXTS,
            "grows": {"type": "array", "items": _PART},
            "defaults": _TEXTS,
            "unpriced": _TEXTS,
            "caveats": _TEXTS,
            "asked_engine": {"type": "object"},
            "engine_fit": {
                "type": "object",
                "properties": {
                    "flags": _TEXTS,
                    "met": {"type": "boolean"},
                    "why": _TEXT,
                    "devices": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"id": _TEXT, "required_bytes": _SPAN}, "required": ["id", "required_bytes"]},
                    },
                },
                "required": ["flags", "met", "why", "devices"],
            },
        },
        optional=("grows", "defaults", "unpriced", "asked_engine", "engine_fit"),
    ),
    "run": _document(
        "brim.run/1",
        {
            "run_dir": _TEXT,
            "command": _TEXTS,
            "began_wall_ns": {"type": "integer"},
            "lasted_ns": {"type": "integer"},
            "exit_code": {"type": "integer"},
            "ended_by": _TEXT,
            "reason": _TEXT,
            "child_status": {"type": ["integer", "null"]},
            "limits": {"type": "object"},
            "verdict": {"anyOf": [_VERDICT, {"type": "null"}]},
            "reasons": _TEXTS,
            "comparison": {"type": "array", "items": _COMPARISON},
            "engine_buffers": {"type": "array", "items": {"type": "object"}},
            "peak_held_bytes": {"anyOf": [_BYTES, _MISSING, {"type": "null"}]},
            "peak_mapped_bytes": {"anyOf": [_BYTES, _MISSING, {"type": "null"}]},
            "lowest_free_bytes": {"anyOf": [{"type": "integer"}, _MISSING, {"type": "null"}]},
            "level_ns": {"type": "object", "additionalProperties": {"type": "integer"}},
            "looks": {"type": "integer"},
            "cause": _TEXT,
            "checkpoint": _CHECKPOINT,
            "checkpoints_answered": {"type": "integer"},
            "checkpoints_unanswered": {"type": "integer"},
            "stop_stages": _TEXTS,
            "after": _TEXT,
            "journal_head": _TEXT,
        },
    ),
    "inspect": _document(
        "brim.inspect/1",
        {
            "name": _TEXT,
            "form": {"enum": ["gguf", "safetensors", "config", "shape", "peft", "mlx", "onnx", "torch"]},
            "role": _TEXT,
            "architecture": _TEXT,
            "source": _TEXT,
            "shards": _TEXTS,
            "file_bytes": _BYTES,
            "weights_bytes": _BYTES,
            "tensor_count": _BYTES,
            "quantisation": _TEXT,
            "parameters": _or_missing(_BYTES),
            "active_parameters": _or_missing(_BYTES),
            "context_trained": _or_missing(_BYTES),
            "layers": _TEXT,
            "shape": {"type": "object"},
            "by_role": _SLICES,
            "by_format": _SLICES,
            "unusual": _TEXTS,
            "tensors": {"type": "array", "items": _TENSOR},
        },
        optional=("tensors",),
    ),
    "top": _document(
        "brim.top/1",
        {
            "run": _TEXT,
            "command": _TEXTS,
            "began_wall_ns": {"type": "integer"},
            "sample_wall_ns": {"type": "integer"},
            "sample": {"type": ["object", "null"]},
            "limits": {"type": "object"},
            "last": {"type": "array", "items": {"type": "object", "required": ["wall_ns", "kind", "body"]}},
            "ended": {"type": "boolean"},
            "job_pid": {"type": "integer"},
        },
        optional=("job_pid",),
    ),
    "resume": _document(
        "brim.resume/1",
        {
            "command": _TEXTS,
            "cwd": _TEXT,
            "environ": {"type": "object", "additionalProperties": _TEXT},
            "environ_not_kept": _TEXTS,
            "limits": {"type": "object"},
            "exit_code": {"type": ["integer", "null"]},
            "stopped_by": _TEXT,
            "cause": _TEXT,
            "reason": _TEXT,
            "checkpoint": _CHECKPOINT,
            "attempt": {"type": "integer"},
            "resumed_run": _TEXT,
        },
    ),
    "soak": _document("brim.soak/1", {"exit_code": {"type": "integer"}, "report": {"type": "object"}, "claims": {"type": ["object", "null"]}}),
    "verify": _document(
        "brim.verify/1",
        {
            "journal": _TEXT,
            "lines": {"type": "integer"},
            "head": _TEXT,
            "intact": {"type": "boolean"},
            "finished": {"type": "boolean"},
            "interrupted": {"type": "boolean"},
            "foretold": _TEXT,
            "signed_by": {"type": ["string", "null"]},
        },
        optional=("finished", "interrupted", "foretold"),
    ),
    "claims": _document(
        "brim.claims/1",
        {
            "run": _TEXT,
            "chain_fault": _TEXT,
            "claims": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": _TEXT, "says": _TEXT, "allowed": {"type": "boolean"}, "evidence": _TEXTS, "missing": _TEXTS, "never_needs": _TEXTS},
                    "required": ["name", "allowed", "evidence", "missing"],
                },
            },
            "evidence": {
                "type": "object",
                "properties": {"measures": {"type": "object"}},
                "required": ["measures", "signals", "interruptions", "level_seconds"],
            },
        },
    ),
    "quality": _document(
        "brim.quality/1",
        {
            "artifact": _TEXT,
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "passed": {"type": "boolean"},
            "reason": _TEXT,
            "metric": _TEXT,
            "value": {"type": "number"},
            "baseline": {"type": "number"},
            "drop": {"type": "number"},
            "allowed_drop": {"type": "number"},
            "command": _TEXTS,
            "at_wall_ns": {"type": "integer"},
        },
        optional=("metric", "value", "baseline", "drop", "allowed_drop", "command", "at_wall_ns"),
    ),
    "runs": _document(
        "brim.runs/1",
        {
            "runs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"run": _TEXT, "folder": _TEXT, "ended_by": _TEXT, "bytes": _BYTES},
                    "required": ["run", "folder", "began_wall_ns", "lasted_ns", "exit_code", "ended_by", "command", "bytes"],
                },
            }
        },
    ),
    "calibration": _document(
        "brim.calibration/1",
        {
            "observations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"predicted_bytes": _BYTES, "measured_bytes": _BYTES},
                    "required": ["at", "run", "engine", "version", "device", "architecture", "part", "predicted_bytes", "measured_bytes", "foreign"],
                },
            },
            "summary": {"type": "array", "items": {"type": "object", "required": ["key", "part", "runs", "newest", "residual_bytes", "left_out"]}},
        },
    ),
    "profiles": _document(
        "brim.profiles/1",
        {"profiles": {"type": "array", "items": {"type": "object", "required": ["name", "origin", "path", "description", "fault"]}}},
    ),
    "profile": _document(
        "brim.profile/1",
        {
            "name": _TEXT,
            "source": _TEXT,
            "description": _TEXT,
            **{section: {"type": "object"} for section in ("hardware", "model", "limits", "watchdog", "runtime_profile", "quality", "report")},
            "claims": {"type": "array", "items": {"type": "object"}},
        },
    ),
    "governor-report": _GOVERNOR_REPORT,
    "error": _document("brim.error/1", {"code": {"type": "integer"}, "reason": _TEXT, "message": _TEXT, "hint": _TEXT}),
}

_WAY = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "kind": {"enum": ["inference", "training"]},
        "verdict": {"enum": ["allowed", "blocked", "cannot_tell"]},
        "devices": {"type": "integer", "minimum": 1},
        "needed_bytes": _SPAN,
        "usable_bytes": {"type": ["integer", "null"]},
        "margin_bytes": {"type": ["integer", "null"]},
        "states_bytes": _BYTES,
        "reason": _TEXT,
        "flags": _TEXT,
    },
    "required": ["name", "kind", "verdict", "devices", "needed_bytes", "usable_bytes", "margin_bytes", "reason"],
}
SCHEMAS["preflight"] = _document(
    "brim.preflight/1",
    {
        "model": _TEXT,
        "parameters": {"type": "integer", "minimum": 1},
        "assumed_shape": {"type": "boolean"},
        "device": _TEXT,
        "batch": {"type": "integer", "minimum": 1},
        "seq": {"type": "integer", "minimum": 1},
        "ways": {"type": "array", "items": _WAY},
        "caveats": _TEXTS,
        "dense_class_params": {"type": "integer"},
        "purefield_estimated_params": {"type": "integer"},
        "purefield_vram": {
            "type": "object",
            "properties": {
                "bf16_weights_gb": {"type": "number"},
                "int4_raw_weights_gb": {"type": "number"},
                "rtx_3090_24gb_int4_or_adapter_feasible": {"type": "boolean"},
            },
            "required": ["bf16_weights_gb", "int4_raw_weights_gb", "rtx_3090_24gb_int4_or_adapter_feasible"],
        },
        "report_path": _TEXT,
    },
)
SCHEMAS["solve-train"] = _document(
    "brim.solve-train/1",
    {
        "verdict": _VERDICT,
        "fits": {"type": "boolean"},
        "model": _TEXT,
        "for": {"enum": ["batch", "seq", "method", "zero", "gpus"]},
        "answer": _TEXT,
        "next": _TEXT,
        "workload": {"type": "object"},
        "peak_moment": _TEXT,
        "devices": {"type": "array", "items": {"type": "object"}},
        "parts": {"type": "array", "items": _PART},
        "words": {"type": "object"},
        "suggestions": _TEXTS,
        "caveats": _TEXTS,
    },
)

_SOLVED = {
    "type": "object",
    "properties": {
        "fits": {"type": "boolean"},
        "chosen": {"type": "object", "additionalProperties": _TEXT},
        "flags": _TEXTS,
        "workload": {"type": "object"},
        "margin_bytes": {"type": "object", "additionalProperties": {"type": "integer"}},
        "parts": {"type": "array", "items": _PART},
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "knob": _TEXT,
                    "value": _TEXT,
                    "upwards": {"type": "boolean"},
                    "bytes_by_device": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "fits": {"type": "boolean"},
                },
                "required": ["knob", "value", "upwards", "bytes_by_device", "fits"],
            },
        },
        "plans_priced": {"type": "integer", "minimum": 1},
        "missing": _TEXTS,
    },
    "required": ["fits", "chosen", "flags", "workload", "margin_bytes", "parts", "steps", "plans_priced", "missing"],
}
SCHEMAS["solve"] = _document(
    "brim.solve/1",
    {
        "verdict": _VERDICT,
        "for": _TEXTS,
        "model": {"type": "object"},
        "engine": {"type": "object"},
        "answer": _SOLVED,
        "nearest": {"anyOf": [_SOLVED, {"type": "null"}]},
        "devices": {"type": "array", "items": {"type": "object"}},
        "caveats": _TEXTS,
    },
)
