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
_DEVICE = {
    "type": "object",
    "properties": {"id": _TEXT, "backend": _TEXT, "name": _TEXT, "memory": {"type": "object"}, "budget": _BUDGET},
    "required": ["id", "backend", "name", "memory", "temperature_c", "power_limit_w", "budget"],
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

SCHEMAS: "dict[str, dict[str, Any]]" = {
    "probe": _document("brim.probe/1", {"devices": {"type": "array", "items": _DEVICE}, "host": {"type": "object"}, "warnings": _TEXTS}),
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
            "caveats": _TEXTS,
        },
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
    "verify": _document("brim.verify/1", {"journal": _TEXT, "lines": {"type": "integer"}, "head": _TEXT, "intact": {"type": "boolean"}}),
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
