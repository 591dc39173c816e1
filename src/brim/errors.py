"""Every way we can fail, drawn as one tree, each with its exit code and its hint, and it imports nothing of ours.

    BrimError                      1  our bug
    ├── Usage                      2  a word, flag or value that we do not understand
    │   └── Unreadable             2  a path that is missing or may not be read
    ├── Refused                    3  the gate said no
    ├── CannotTell                 4  an input that matters is missing
    ├── BadCheckpoint              5  it is there, but it is no good checkpoint
    │   ├── NotACheckpoint            no format of ours
    │   ├── EmptyFile                 zero bytes
    │   ├── NotARegularFile           FIFO, device, socket
    │   ├── UnsupportedVersion        a format version that we do not read
    │   ├── Truncated                 the file ends inside the header or before its tensors end
    │   ├── BadHeader                 a count, length, offset or type that cannot be true
    │   ├── TooLarge                  a header above the cap
    │   ├── BadTensor                 a tensor whose type, shape or place is impossible
    │   └── BadShards                 shards missing, extra or of different models
    ├── NoSuchDevice               6  one device was named and it gave nothing
    ├── BrokenJournal              7  the chain does not hold
    ├── ClaimNotSupported          8  a claim that was asked for is not supported
    ├── KilledByOther              9  the child was killed by the kernel or someone else, with proof
    └── Stopped                   75  the governor stopped it

Each class carries `exit_code`, a stable `reason` word for JSON, and a `hint` that an instance may replace.
"""


class BrimError(Exception):
    """The root: everything that brim raises on purpose."""

    exit_code = 1
    reason = "internal"
    hint = "This is a defect in brim; please report it with the command line."

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class Usage(BrimError):
    """A word, flag or value that we do not understand."""

    exit_code = 2
    reason = "usage"
    hint = "See --help."


class Unreadable(Usage):
    """A path that is missing or may not be read."""

    reason = "unreadable"
    hint = "Check the path and its permissions."


class Refused(BrimError):
    """The gate said no."""

    exit_code = 3
    reason = "refused"
    hint = "Make the workload smaller, or use --force to start anyway."


class CannotTell(BrimError):
    """An input that matters is missing."""

    exit_code = 4
    reason = "cannot_tell"
    hint = "Give what is missing."


class BadCheckpoint(BrimError):
    """It is there, but it is no good checkpoint."""

    exit_code = 5
    reason = "bad_checkpoint"
    hint = "Download or convert the file again."


class NotACheckpoint(BadCheckpoint):
    """No format that brim knows."""

    reason = "not_a_checkpoint"
    hint = "Give a GGUF file, a safetensors file or folder, a config.json or a shape file."


class EmptyFile(BadCheckpoint):
    """Zero bytes."""

    reason = "empty_file"


class NotARegularFile(BadCheckpoint):
    """A FIFO, a device or a socket."""

    reason = "not_a_regular_file"
    hint = "Give a regular file."


class UnsupportedVersion(BadCheckpoint):
    """A format version that brim does not read."""

    reason = "unsupported_version"


class Truncated(BadCheckpoint):
    """The file ends inside its header, or before its tensors end."""

    reason = "truncated"
    hint = "The download was cut off; fetch the file again."


class BadHeader(BadCheckpoint):
    """A count, a length, an offset or a type that cannot be true."""

    reason = "bad_header"


class TooLarge(BadCheckpoint):
    """A header above the cap."""

    reason = "too_large"


class BadTensor(BadCheckpoint):
    """A tensor whose type, shape or place is impossible."""

    reason = "bad_tensor"


class BadShards(BadCheckpoint):
    """Shards that are missing, extra or of different models."""

    reason = "bad_shards"


class NoSuchDevice(BrimError):
    """One device was named and it gave nothing."""

    exit_code = 6
    reason = "no_such_device"
    hint = "Run `brim probe` to see what is here."


class BrokenJournal(BrimError):
    """The hash chain does not hold."""

    exit_code = 7
    reason = "broken_journal"
    hint = "The run folder was altered or damaged; do not rely on it."


class ClaimNotSupported(BrimError):
    """A claim that was asked for is not supported by the evidence."""

    exit_code = 8
    reason = "claim_not_supported"
    hint = "Run `brim claims RUN` to see what is missing."


class KilledByOther(BrimError):
    """The child was killed by the kernel or by someone else, and there is proof."""

    exit_code = 9
    reason = "killed_by_other"
    hint = "See report.json for the counter or log record."


class Stopped(BrimError):
    """The governor stopped the job."""

    exit_code = 75
    reason = "stopped"
    hint = "See resume.json; `brim resume` goes on where this is possible."
