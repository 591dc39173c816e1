"""Ready-made stops for the trainers that people use: transformers, Lightning, a plain PyTorch loop, a JAX loop; one decision over all ranks, at a step boundary.

Rank 0 alone reads the control page; what it read is handed to the others (torch.distributed broadcast, or a function of yours), so that no rank stops while the others wait
for it in a collective. Without a governor everything here does nothing. Nothing is imported before it is used: `TransformersCallback` and `LightningCallback` are made
when they are first asked for, from the library that is there.
"""

import os

from brim import client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def torch_agree(code: int) -> int:
    """Hand rank 0's directive to every rank of torch.distributed (gloo, nccl, …); `code` itself where there is no process group of several."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return code
    backend = torch.distributed.get_backend()
    device = torch.device("cuda", torch.cuda.current_device()) if "nccl" in str(backend) else torch.device("cpu")
    word = torch.tensor([code], dtype=torch.int32, device=device)
    torch.distributed.broadcast(word, src=0)
    return int(word.item())


def jax_agree(code: int) -> int:
    """Hand process 0's directive to every process of a multi-host JAX program; `code` itself where there is one process."""
    import sys

    jax = sys.modules.get("jax")
    if jax is None or jax.process_count() == 1:
        return code
    from jax.experimental import multihost_utils  # type: ignore[import-not-found]

    return int(multihost_utils.broadcast_one_to_all(code))


class Loop:
    """A training loop of your own.

        loop = Loop(save=lambda step: save(path), path=path)
        for step in loop.steps(range(loop.start, 10_000)):
            train_one_step()
        if loop.stopped: ...

    `save(step)` is called on every rank at the same step boundary; it writes the checkpoint whole (aside, then renamed) and may return its path. `agree` makes the ranks decide
    as one; every `agree_every` steps, because a broadcast costs something. `phase("loading")` until the first step, `training` afterwards.
    """

    def __init__(
        self,
        save: "Callable[[int], str | os.PathLike[str] | None]",
        path: "str | os.PathLike[str]" = "",
        *,
        agree: "Callable[[int], int]" = torch_agree,
        agree_every: int = 1,
    ) -> None:
        self._save, self._path, self._agree, self._every = save, path, agree, max(1, agree_every)
        self.start = client.resume_step(0)
        self.resume_from = client.resume_from()
        self.stopped = False
        client.phase("loading")

    def steps(self, numbers: "range") -> "Any":
        """The step numbers, with a look at the governor after each; ends early where the job shall stop."""
        client.phase("training")
        for number in numbers:
            yield number
            if self.after(number):
                return

    def after(self, number: int, tokens: int = 0) -> bool:
        """Step `number` is done: save where that is asked, and say whether to stop now."""
        code = client.step(number, tokens)
        if number % self._every == 0:
            code = self._agree(code)
        elif code >= client.CHECKPOINT:
            code = client.RUN  # the others do not know yet: at the next common step
        if code >= client.CHECKPOINT:
            client.phase("saving")
            where = self._save(number)
            client.checkpointed(where or self._path, number)
            client.phase("training")
        self.stopped = code == client.STOP
        return self.stopped


def _transformers() -> type:
    from transformers import TrainerCallback  # type: ignore[import-not-found]

    class TransformersCallback(TrainerCallback):  # type: ignore[misc]
        """For `transformers.Trainer(callbacks=[TransformersCallback()])`: saves through the trainer's own checkpoints, stops after one; tells steps, tokens, evaluations.

        Resume with `trainer.train(resume_from_checkpoint=brim.client.resume_from() or None)`.
        """

        def __init__(self, *, agree: "Callable[[int], int]" = torch_agree) -> None:
            self._agree, self._stop, self._asked, self._tokens = agree, False, False, 0

        def on_train_begin(self, args: "Any", state: "Any", control: "Any", **_: object) -> "Any":
            """Loading is over."""
            client.phase("training")
            return control

        def on_step_end(self, args: "Any", state: "Any", control: "Any", **_: object) -> "Any":
            """Look, agree, and ask the trainer to save."""
            seen = int(getattr(state, "num_input_tokens_seen", 0) or 0)
            code = self._agree(client.step(int(state.global_step), max(0, seen - self._tokens)))
            self._tokens = max(seen, self._tokens)
            if code >= client.CHECKPOINT:
                client.phase("saving")
                self._asked, self._stop = True, code == client.STOP
                control.should_save = True
            return control

        def on_save(self, args: "Any", state: "Any", control: "Any", **_: object) -> "Any":
            """The trainer has written its checkpoint folder."""
            path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            client.checkpointed(path, int(state.global_step), complete=os.path.exists(os.path.join(path, "trainer_state.json")))
            client.phase("training")
            if self._asked and self._stop:
                control.should_training_stop = True
            self._asked = False
            return control

        def on_evaluate(self, args: "Any", state: "Any", control: "Any", **_: object) -> "Any":
            """An evaluation is done."""
            client.evaluated()
            return control

    return TransformersCallback


def _lightning() -> type:
    try:
        from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found]
    except ImportError:
        from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found]

    class LightningCallback(Callback):  # type: ignore[misc]
        """For `Trainer(callbacks=[LightningCallback("ckpt")])`: saves `brim-STEP.ckpt` into the folder with the trainer's own writer, then stops where that is asked."""

        def __init__(self, folder: str = "checkpoints", *, agree: "Callable[[int], int]" = torch_agree) -> None:
            self._folder, self._agree = folder, agree

        def on_train_start(self, trainer: "Any", pl_module: "Any") -> None:
            """Loading is over."""
            client.phase("training")

        def on_train_batch_end(self, trainer: "Any", pl_module: "Any", outputs: "Any", batch: "Any", batch_idx: int) -> None:
            """Look, agree, save, stop."""
            step = int(trainer.global_step)
            code = self._agree(client.step(step))
            if code < client.CHECKPOINT:
                return
            client.phase("saving")
            path = os.path.join(self._folder, f"brim-{step}.ckpt")
            trainer.save_checkpoint(path)
            client.checkpointed(path, step)
            client.phase("training")
            if code == client.STOP:
                trainer.should_stop = True

        def on_validation_end(self, trainer: "Any", pl_module: "Any") -> None:
            """A validation is done (the check before training is none)."""
            if not trainer.sanity_checking:
                client.evaluated()

    return LightningCallback


_MADE = {"TransformersCallback": _transformers, "LightningCallback": _lightning}


def __getattr__(name: str) -> type:
    """Make a callback class from the library that is there, when it is first asked for."""
    if name not in _MADE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _MADE[name]()
    globals()[name] = made
    return made
