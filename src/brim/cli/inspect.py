"""brim inspect: what is in a model, from its headers alone."""

import sys

from brim import api
from brim.cli.words import Parser, emit, show
from brim.reports import inspection


def main(argv: list[str]) -> int:
    """Exit 0, or the code of the fault: 2 where the path is missing, 5 where it is no good checkpoint."""
    parser = Parser("inspect", "What is in a model: architecture, parameters, layers, number formats, sizes. Only headers are read.")
    parser.add_argument("model", metavar="MODEL", help="a GGUF, safetensors, ONNX, PyTorch or shape file, a config.json, or a model folder")
    parser.add_argument("--json", action="store_true", help="print brim.inspect/1")
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    parser.add_argument("--explain", action="store_true", help="say where each fact comes from, and list the metadata")
    parser.add_argument("--shape", action="store_true", help="print a shape file (JSON): the model without its weights, for a bug report")
    asked = parser.parse_args(argv)
    checkpoint, anatomy = api.inspect(asked.model)
    if asked.shape:
        emit(api.shape_file(checkpoint))
    elif asked.json:
        emit(inspection.document(checkpoint, anatomy, tensors=asked.tensors))
    else:
        show(inspection.text(checkpoint, anatomy, tensors=asked.tensors, explain=asked.explain))
    sys.stdout.flush()
    return 0
