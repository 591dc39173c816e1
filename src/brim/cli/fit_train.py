"""brim fit --train: whether one training step fits, with the arithmetic; parsed here, priced by the engine `train`, and torch is never imported."""

import sys

from brim import api
from brim.cli.words import Asked, Parser, count, emit, fraction, show, split_command
from brim.errors import CannotTell, Refused, Usage
from brim.facts.training import OPTIMIZERS as OPTIMIZER_NAMES
from brim.facts.training import TrainWorkload
from brim.gate import DOES_NOT_FIT, FITS
from brim.reports import documents, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT_CODES = {FITS: 0, DOES_NOT_FIT: Refused.exit_code}
_SHARDINGS = {"ddp": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"}
# The words of other programs for the same things.
_ALIASES = {
    "precision": {"pure-bf16": "bf16", "pure_bf16": "bf16", "bf16-true": "bf16", "bf16-mixed": "bf16-autocast", "autocast": "bf16-autocast", "amp": "bf16-autocast",
                  "fp16-mixed": "fp16-autocast", "fp16-true": "fp16", "32-true": "fp32"},
    "checkpointing": {"on": "full", "true": "full", "yes": "full", "off": "none", "false": "none", "no": "none", "offload": "offloaded"},
    "attention": {"fa2": "flash", "flash_attention_2": "flash", "fa3": "flash", "flash_attention_3": "flash"},
    "base": {"4bit": "nf4", "8bit": "int8", "int4": "nf4"},
}  # fmt: skip
_FSDP = {"full": "fsdp", "grad-op": "fsdp-grad-op", "hybrid": "fsdp-hybrid", "2": "fsdp2"}


def whole(text: str) -> int:
    """A whole number; the engine says in its own sentence what it may be."""
    try:
        return int(text)
    except ValueError:
        raise Usage(f"{text!r} is no whole number") from None


def add_training(parser: Parser) -> None:
    """The words of a training step; what is not given stands in the configuration files, else has its default."""
    group = parser.add_argument_group("training step")
    group.add_argument("--train", metavar="METHOD", help="full, lora, qlora, dora or freeze")
    group.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="transformers/TRL, Axolotl, LLaMA-Factory, torchtune, accelerate or DeepSpeed file"
    )
    group.add_argument("--batch", type=whole, metavar="N", help="micro-batch of one card (default 1)")
    group.add_argument("--seq", type=whole, metavar="N", help="tokens a sequence (default 2048)")
    group.add_argument("--accumulation", type=whole, metavar="N", help="micro-batches a step (default 1)")
    group.add_argument(
        "--optimizer", metavar="O", help="adamw, adamw_foreach, adamw_fused, adamw_8bit, adamw_paged, adafactor, lion, sgd, muon, … (default adamw)"
    )
    group.add_argument("--precision", metavar="P", help="fp32, bf16-autocast (default), fp16-autocast, bf16, fp16, mixed, fp8")
    group.add_argument("--base", metavar="TYPE", help="frozen weights under an adapter: fp32, bf16, fp16, int8, nf4, nf4-dq")
    group.add_argument("--attn", dest="attention", metavar="A", help="flash, sdpa (default) or eager")
    group.add_argument("--checkpointing", metavar="C", help="none, full (default), selective or offloaded")
    group.add_argument("--loss", metavar="L", help="full (default), shifted, chunked or fused logits and cross-entropy")
    group.add_argument("--padded", action="store_const", const=True, help="the batch is padded, so attention sees a mask")
    group.add_argument("--lora-rank", type=whole, metavar="R", help="rank of the adapter (default 16)")
    group.add_argument("--lora-dropout", type=float, metavar="P", help="dropout before the adapter (default 0)")
    group.add_argument("--targets", metavar="T", help="adapted layers: all-linear (default), or names, comma between them")
    group.add_argument("--adapter-dtype", dest="adapter", metavar="TYPE", help="adapter weights: fp32, bf16, fp16 (default: as the precision)")
    group.add_argument("--trainable-layers", type=whole, metavar="N", help="layers that learn under freeze (default 2)")
    group.add_argument("--zero", metavar="STAGE", help="DeepSpeed ZeRO: 1, 2 or 3")
    group.add_argument("--fsdp", metavar="KIND", help="full, grad-op, hybrid or 2 (FSDP2)")
    group.add_argument("--ranks", type=whole, metavar="N", help="cards that share the step (default: as many as devices)")
    group.add_argument("--nodes", type=whole, metavar="N", help="machines they are in (default 1)")
    group.add_argument("--offload", metavar="WHAT", help="none (default), optimizer, all or nvme")
    group.add_argument("--compile", dest="compiled", action="store_const", const=True, help="torch.compile")
    group.add_argument("--fused-backward", action="store_const", const=True, help="the optimiser steps inside backward")
    group.add_argument("--eval-batch", dest="evaluation_batch", type=count, metavar="N", help="evaluation batch (default: no evaluation)")
    group.add_argument("--workers", type=whole, metavar="N", help="loader workers a card (default 0)")


_FIELDS = (
    "batch", "seq", "accumulation", "optimizer", "precision", "base", "attention", "checkpointing", "loss", "padded", "lora_rank", "lora_dropout", "adapter",
    "trainable_layers", "ranks", "nodes", "offload", "compiled", "fused_backward", "evaluation_batch", "workers",
)  # fmt: skip


def workload(asked: Asked, base: TrainWorkload) -> TrainWorkload:
    """`base` with what was given on the command line."""
    changes: dict[str, Any] = {name: getattr(asked, name) for name in _FIELDS if getattr(asked, name) is not None}
    for name, words in _ALIASES.items():
        if name in changes:
            changes[name] = words.get(changes[name], changes[name])
    if "optimizer" in changes:
        from brim.engines.train.rules import OPTIMIZERS

        changes["optimizer"] = changes["optimizer"] if changes["optimizer"] in OPTIMIZER_NAMES else OPTIMIZERS.get(changes["optimizer"], changes["optimizer"])
    if asked.train is not None:
        changes["method"] = asked.train
    if asked.targets is not None:
        names = tuple(word.strip() for word in asked.targets.split(",") if word.strip())
        changes["targets"] = ("all-linear",) if "all" in names else names
    for flag, words in (("zero", _SHARDINGS), ("fsdp", _FSDP)):
        given = getattr(asked, flag)
        if given is not None:
            if given not in words and not (flag == "zero" and given == "0"):
                raise Usage(f"--{flag} {given}: brim knows {', '.join(word for word in words if word != 'ddp')}")
            changes["sharding"] = words.get(given, "ddp" if (asked.ranks or 1) > 1 else "none")
    return base.replace(**changes)


def main(argv: list[str]) -> int:
    """Exit 0 fits, 3 does not fit, 4 cannot tell."""
    parser = Parser("fit --train", "Whether one training step fits, before it runs.")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a folder with a config.json, or such a file (default: the one a --config names)")
    parser.add_argument("--json", action="store_true", help="print brim.fit/1")
    parser.add_argument("--explain", action="store_true", help="print the rule and the source of each part")
    parser.add_argument("--reserve", type=fraction, metavar="FRACTION", help="hold back this share of each device (0…1)")
    parser.add_argument("--device", action="append", default=[], metavar="D", help='cuda:24GiB, "RTX 3090", a probed id; repeat it for several cards')
    add_training(parser)
    own, command = split_command(argv)
    asked = parser.parse_args(own)
    base, named = api.training_configs(asked.config) if asked.config else (TrainWorkload(), "")
    if command:
        found = api.training_command(command)
        if found is None:
            raise CannotTell(
                f"{command[0]}: neither a training file nor trainer arguments that brim knows are named",
                hint="Give the step as flags: brim fit MODEL --train …",
            )
        base, named = found
    model = asked.model or named
    if not model:
        raise Usage("fit --train: a MODEL is needed", hint="Give a folder with a config.json.")
    answer = api.fit_training(model, workload(asked, base), devices=asked.device or None, reserve=asked.reserve)
    if asked.json:
        emit(documents.prediction(answer))
    else:
        show(text.prediction(answer, explain=asked.explain))
    sys.stdout.flush()
    return EXIT_CODES.get(answer.verdict, CannotTell.exit_code)
