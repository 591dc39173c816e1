"""brim fit: whether a model fits, with the arithmetic."""

import sys

from brim import api
from brim.cli.words import Parser, count, emit, fraction
from brim.errors import CannotTell, Refused
from brim.facts.workload import LlamaWorkload
from brim.gate import DOES_NOT_FIT, FITS
from brim.reports import documents, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

EXIT_CODES = {FITS: 0, DOES_NOT_FIT: Refused.exit_code}


def add_workload(parser: Parser) -> None:
    """The flags of a llama.cpp workload, in its own words."""
    group = parser.add_argument_group("workload (llama.cpp's words; defaults are llama-server's)")
    group.add_argument("--ctx", type=count, metavar="N", help="context in tokens (default: as trained)")
    group.add_argument("--slots", type=count, metavar="N", help="parallel sequences (default: 4 that share one cache)")
    group.add_argument("--batch", type=count, metavar="N", help="logical batch (default 2048)")
    group.add_argument("--ubatch", type=count, metavar="N", help="micro-batch (default 512)")
    group.add_argument("--kv-unified", action="store_const", const=True, help="slots share one cache")
    group.add_argument("--ctk", metavar="TYPE", help="K cache type (default f16)")
    group.add_argument("--ctv", metavar="TYPE", help="V cache type (default f16)")
    group.add_argument("--flash-attn", choices=("on", "off", "auto"), help="flash attention (default auto)")
    group.add_argument("--outputs", type=count, metavar="N", help="rows of logits reserved (default: what llama-server reserves)")


def workload(asked: "Namespace") -> LlamaWorkload:
    """The workload that these flags describe."""
    names = ("ctx", "slots", "batch", "ubatch", "kv_unified", "ctk", "ctv", "flash_attn", "outputs")
    return LlamaWorkload(**{name: getattr(asked, name) for name in names})


def main(argv: list[str]) -> int:
    """Exit 0 fits, 3 does not fit, 4 cannot tell."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    if any(word in ("--train", "--config") or word.startswith(("--train=", "--config=")) for word in own):
        from brim.cli.fit_train import main as fit_training

        return fit_training(argv)
    parser = Parser("fit", "Whether a model fits this device, before it runs.")
    parser.add_argument("model", metavar="MODEL", help="a GGUF, safetensors, ONNX, PyTorch or shape file, a config.json, or a model folder")
    parser.add_argument("--json", action="store_true", help="print brim.fit/1")
    parser.add_argument("--explain", action="store_true", help="print the rule and the source of each part")
    parser.add_argument("--reserve", type=fraction, metavar="FRACTION", help="hold back this share of the device (0…1)")
    add_workload(parser)
    asked = parser.parse_args(argv)
    answer = api.fit(asked.model, workload(asked), reserve=asked.reserve)
    if asked.json:
        emit(documents.prediction(answer))
    else:
        print(text.prediction(answer, explain=asked.explain))
    sys.stdout.flush()
    return EXIT_CODES.get(answer.verdict, CannotTell.exit_code)
