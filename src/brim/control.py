"""The control page: one memory-mapped file, governor's words on its first half, the job's on its second; it decides nothing.

Every field but one is a single aligned 64-bit word, read and written whole, so it is never seen half-written. The one longer field, the last
checkpoint, stands behind a sequence word (odd while it is written) and a checksum: a reader sees the old record, the new one, or "try again".
The governor's half also holds the one act that it has begun and that its journal has not taken yet: should it be killed there, the page still says what it did.
A directive carries its own number in the same word as its code, so an answer always names the request it answers.

Guarantees: one writer a half; a page that is cut short, foreign or of another version is refused with `ValueError`. Layout version 1, native byte order (both
sides run on one machine). Not covered: more than one writer in the job (ranks other than 0 and forked children only read; `client` sees to it).
"""

import mmap
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class CheckpointNote(NamedTuple):
        """What the job says of its last checkpoint; `seconds` of work are `ended_ns - started_ns` where the start is known (else 0)."""

        step: int
        started_ns: int
        ended_ns: int
        complete: bool
        request: int
        path: str
else:

    def CheckpointNote(**fields):  # noqa: N802
        """The value is made on first use: the class costs an import that a job's step loop need not pay."""
        global CheckpointNote  # noqa: PLW0603
        from collections import namedtuple

        CheckpointNote = namedtuple("CheckpointNote", "step started_ns ended_ns complete request path")
        return CheckpointNote(**fields)


SIZE = 8192
MAGIC = int.from_bytes(b"brimctl\x01", "little")

# Codes of a directive, in rising order.
RUN, SLOW, PAUSE, CHECKPOINT, STOP = range(5)
NAMES = ("run", "slow", "pause", "checkpoint", "stop")

# Words that the governor writes.
W_MAGIC, W_DIRECTIVE, W_DEADLINE, W_GOVERNOR_BEAT, W_GOVERNOR_PID, W_SLOW_PERMILLE, W_STALE_AFTER, W_DIE_WITH_ME, W_RESUMED_FROM = range(9)
# Whoever looks at the run from outside counts this up: what was seen and is not in the journal yet is then written at the next poll.
W_WATCHED = 9
# What the governor is about to do, until its journal has it: the stamps, the text, and a sum over them (0 where nothing stands there).
W_AHEAD_LENGTH, W_AHEAD_SUM, W_AHEAD_AT, W_AHEAD_WALL = range(64, 68)
AHEAD_AT, AHEAD_MAX = 68 * 8, 4096 - 68 * 8
# Words that the job writes (second half of the page: never on one cache line with the governor's).
W_JOB_PID, W_JOB_BEAT, W_STEP, W_TOKENS, W_PHASE, W_SEEN, W_ANSWERED, W_EVALUATIONS = range(512, 520)
W_CK_SEQ, W_CK_STEP, W_CK_STARTED, W_CK_ENDED, W_CK_COMPLETE, W_CK_REQUEST, W_CK_LENGTH, W_CK_SUM = range(528, 536)
# Where the job's words stand that change only when it says something: offset and length in bytes.
SAID = ((W_JOB_PID * 8, 8), (W_PHASE * 8, (W_CK_SUM + 1 - W_PHASE) * 8))
PATH_AT, PATH_MAX = 4096 + 512, 3072
U64 = (1 << 64) - 1


def pack_name(name: str) -> int:
    """A phase name as one word: the first eight bytes of its ASCII form."""
    return int.from_bytes(name.encode("ascii", "replace")[:8], "little")


def unpack_name(word: int) -> str:
    """The phase name in a word; empty where none was said."""
    return word.to_bytes(8, "little").rstrip(b"\0").decode("ascii", "replace")


class Page:
    """A mapped control page. `words` is its 64-bit view; the methods are the only multi-word moves."""

    __slots__ = ("_map", "path", "words")

    def __init__(self, path: str) -> None:
        """Map an existing page; `ValueError` where it is none of ours, `OSError` where it cannot be opened."""
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        try:
            if os.fstat(handle).st_size != SIZE:
                raise ValueError(f"{path}: a control page has {SIZE} bytes, this has {os.fstat(handle).st_size}")
            self._map = mmap.mmap(handle, SIZE)
        finally:
            os.close(handle)
        self.path = path
        self.words = memoryview(self._map).cast("Q")
        if self.words[W_MAGIC] != MAGIC:
            self.close()
            raise ValueError(f"{path}: not a control page of this version")

    @classmethod
    def create(cls, path: str, *, stale_after_ns: int, die_with_me: bool = False, resumed_from: int = 0) -> "Page":
        """Make a page that nobody can see half-made (written aside, then renamed), readable by this user only."""
        aside = f"{path}.{os.getpid()}.new"
        first = bytearray(SIZE)
        view = memoryview(first).cast("Q")
        view[W_MAGIC], view[W_GOVERNOR_PID], view[W_STALE_AFTER] = MAGIC, os.getpid(), stale_after_ns
        view[W_DIE_WITH_ME], view[W_RESUMED_FROM] = int(die_with_me), resumed_from
        view.release()
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, first)
        finally:
            os.close(handle)
        os.replace(aside, path)
        return cls(path)

    def close(self) -> None:
        """Let the mapping go; the file stays."""
        self.words.release()
        self._map.close()

    # governor → job

    def direct(self, code: int, deadline_ns: int = 0, *, slow_permille: int = 0) -> int:
        """Give a directive; returns its number. The deadline is written first: whoever sees the new directive may at worst read an older deadline."""
        words = self.words
        number = (words[W_DIRECTIVE] >> 8) + 1 & U64 >> 8  # whatever a stray writer has left there
        words[W_DEADLINE] = deadline_ns
        words[W_SLOW_PERMILLE] = slow_permille
        words[W_DIRECTIVE] = number << 8 | code
        return number

    def beat(self, now_ns: int) -> None:
        """The governor is alive."""
        self.words[W_GOVERNOR_BEAT] = now_ns

    # governor → whoever comes after it

    def foretell(self, at_ns: int, wall_ns: int, text: str) -> None:
        """Note what is about to be done, where the governor's own death cannot take it away and no disk is waited for. Longer texts are cut."""
        length = self.prepare(text)
        self.words[W_AHEAD_AT], self.words[W_AHEAD_WALL] = at_ns, wall_ns
        self.words[W_AHEAD_LENGTH] = length

    def prepare(self, text: str) -> int:
        """Let a text stand ready to be told: it is as soon as its length, which is given back, is written behind its stamps."""
        words, raw = self.words, text.encode("utf-8", "replace")[:AHEAD_MAX]
        words[W_AHEAD_LENGTH] = 0
        self._map[AHEAD_AT : AHEAD_AT + len(raw)] = raw
        words[W_AHEAD_SUM] = _sum(len(raw), (), raw)
        return len(raw)

    def told(self) -> None:
        """The journal has what was foretold."""
        self.words[W_AHEAD_LENGTH] = 0

    def foretold(self) -> "tuple[int, int, str] | None":
        """(monotonic ns, wall ns, text) of what was about to be done and is in no journal yet; None where there is nothing, or it was not written to its end."""
        words = self.words
        length, at_ns, wall_ns = words[W_AHEAD_LENGTH], words[W_AHEAD_AT], words[W_AHEAD_WALL]
        if not 0 < length <= AHEAD_MAX:
            return None
        raw = self._map[AHEAD_AT : AHEAD_AT + length]
        return (at_ns, wall_ns, raw.decode("utf-8", "replace")) if words[W_AHEAD_SUM] == _sum(length, (), raw) else None

    # job → governor

    def note_checkpoint(self, *, step: int, started_ns: int, ended_ns: int, complete: bool, request: int, path: str) -> None:
        """Publish the last checkpoint. Readers meanwhile get None, never a mixture."""
        words, raw = self.words, os.fsencode(path)[:PATH_MAX]
        sequence = words[W_CK_SEQ] | 1
        words[W_CK_SEQ] = sequence
        self._map[PATH_AT : PATH_AT + len(raw)] = raw
        fields = (step & U64, started_ns, ended_ns, int(complete), request, len(raw))
        for at, value in zip(range(W_CK_STEP, W_CK_SUM), fields, strict=True):
            words[at] = value
        words[W_CK_SUM] = _sum(sequence + 1, fields, raw)
        words[W_CK_SEQ] = sequence + 1

    def said(self) -> bytes:
        """Everything the job says but its beat and its counters of steps and tokens, to tell whether it has said something new."""
        return b"".join(self._map[at : at + size] for at, size in SAID)

    @property
    def map(self) -> mmap.mmap:
        """The page itself, for whoever looks at it by its address."""
        return self._map

    def last_checkpoint(self) -> "CheckpointNote | None":
        """The last checkpoint that the job published; None where there is none or one is being written (look again)."""
        words = self.words
        for _ in range(8):
            sequence = words[W_CK_SEQ]
            if sequence == 0:
                return None
            if sequence & 1:
                continue
            fields = tuple(words[at] for at in range(W_CK_STEP, W_CK_SUM))
            raw = self._map[PATH_AT : PATH_AT + min(fields[5], PATH_MAX)]
            if words[W_CK_SUM] == _sum(sequence, fields, raw) and words[W_CK_SEQ] == sequence:
                step = fields[0] if fields[0] < 1 << 63 else fields[0] - (1 << 64)
                return CheckpointNote(step=step, started_ns=fields[1], ended_ns=fields[2], complete=bool(fields[3]), request=fields[4], path=os.fsdecode(raw))
        return None


def _sum(sequence: int, fields: "tuple[int, ...]", raw: bytes) -> int:
    """A checksum over one checkpoint record and its sequence: what makes the record safe where stores may be seen out of order."""
    from zlib import crc32

    return crc32(raw, crc32(b"".join(value.to_bytes(8, "little") for value in (sequence, *fields))))
