"""What people put before a llama.cpp command: `VAR=value`, `env`, `nice`, `systemd-run`, a shell's `-c`, `docker run IMAGE`; pure.

Guarantees: the words that are left begin with the program that would run; variables set on the way join the environment (a container's `-e` too), paths inside a
container come back as the host knows them. Not covered: compose files, a script in a shell's `-c` that does more than start one program, `--env-file`.
"""

from brim.engines.llama_cpp.command import program_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# commands that only start another one, and how many words of their own each option of theirs takes
_WRAPPERS: "dict[str, dict[str, int]]" = {
    "nice": {"-n": 1, "--adjustment": 1}, "ionice": {"-c": 1, "-n": 1, "-p": 1}, "nohup": {}, "setsid": {}, "time": {"-f": 1, "-o": 1},
    "stdbuf": {"-i": 1, "-o": 1, "-e": 1},
    "taskset": {"-c": 1, "--cpu-list": 1}, "sudo": {"-u": 1, "-g": 1}, "chrt": {}, "prlimit": {},
    "numactl": dict.fromkeys(("-m", "-N", "-C", "-i", "-p", "--membind", "--cpunodebind", "--physcpubind", "--interleave", "--preferred"), 1),
    "exec": {}, "command": {}, "doas": {"-u": 1}, "prime-run": {}, "valgrind": {}, "strace": {"-o": 1, "-e": 1}, "gdb": {"-ex": 1, "-x": 1},
    "timeout": {"-k": 1, "-s": 1}, "srun": {"-n": 1, "-p": 1, "-N": 1, "-c": 1, "-G": 1}, "env": {"-u": 1, "-C": 1}, "systemd-inhibit": {},
    "caffeinate": {"-t": 1, "-w": 1}, "screen": {"-S": 1, "-dmS": 1, "-L": 0}, "perf": {"-e": 1, "-o": 1, "-F": 1}, "nsys": {"-o": 1, "-t": 1},
    "conda": {"-n": 1, "-p": 1}, "mamba": {"-n": 1, "-p": 1}, "micromamba": {"-n": 1, "-p": 1},
    "systemd-run": {"-p": 1, "--property": 1, "-u": 1, "--unit": 1, "--slice": 1, "-E": 1, "--setenv": 1, "-M": 1, "--uid": 1, "--gid": 1},
}  # fmt: skip
# wrappers whose first plain word is theirs, not the command
_OWN_WORD = {"timeout": 1, "chrt": 1, "perf": 1, "nsys": 1, "conda": 1, "mamba": 1, "micromamba": 1}
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ash"))

# options of `docker run`, `podman run` and `docker exec` that take no word (docs.docker.com/reference/cli/docker/container/run, podman-run(1)); all others take one
_ALONE = frozenset((
    "--detach", "--disable-content-trust", "--help", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable", "--privileged", "--publish-all",
    "--quiet", "--read-only", "--rm", "--sig-proxy", "--tty", "--use-api-socket", "--env-host", "--http-proxy", "--no-hosts", "--no-hostname", "--passwd",
    "--replace", "--rmi", "--tls-verify", "--read-only-tmpfs", "--unsetenv-all",
))  # fmt: skip
# `llama.cpp:full` starts tools.sh, whose first word picks the program
_TOOLS = {"s": "llama-server", "r": "llama-completion", "b": "llama-bench", "p": "llama-perplexity"}
_TOOL_WORDS = frozenset(("--server", "-s", "--run", "-r", "--bench", "-b", "--perplexity", "-p"))
_LLAMA_IMAGES = ("llama.cpp", "llama-cpp", "llamacpp", "llama-server")
_PATH_VARIABLES = ("LLAMA_ARG_MODEL", "LLAMA_ARG_MMPROJ", "LLAMA_ARG_SPEC_DRAFT_MODEL", "MODEL")


def unwrap(words: tuple[str, ...], environ: "Mapping[str, str]") -> "tuple[tuple[str, ...], Mapping[str, str]]":
    """Drops `VAR=value`, `env`, `nice`, `numactl`, `docker run IMAGE` and the like from the front; variables set there join the environment."""
    own = dict(environ)
    while words:
        head = program_name(words[0])
        if _is_assignment(words[0]):
            _set_variable(own, words[0])
            words = words[1:]
        elif head in ("docker", "podman") and len(words) > 2:
            return _container(words[1:], own)
        elif head in _SHELLS and len(words) > 2 and words[1].startswith("-") and words[1].endswith("c"):
            inner = _script(words[2])
            if not inner:
                break
            words = inner
        elif head in _WRAPPERS:
            rest = words[1:]
            if head == "systemd-run":
                for name, value in _valued(rest):
                    if name in ("-E", "--setenv"):
                        _set_variable(own, value)
            words = _skip_own(rest, _WRAPPERS[head], _OWN_WORD.get(head, 0))
        else:
            break
    return words, own


def _is_assignment(word: str) -> bool:
    return "=" in word and word.split("=", 1)[0].isidentifier()


def _set_variable(environ: dict[str, str], word: str, outer: "Mapping[str, str] | None" = None) -> None:
    """`KEY=value` into the environment; a bare `KEY` hands on what is set outside."""
    key, equals, value = word.partition("=")
    if equals:
        environ[key] = value
    elif outer is not None and key in outer:
        environ[key] = outer[key]


def _valued(words: tuple[str, ...]) -> "Iterator[tuple[str, str]]":
    """Options with their values, as `--name value` and as `--name=value` (both readings of a word are offered: only the caller knows the options)."""
    for i, word in enumerate(words):
        if word == "--":
            return
        if word.startswith("--") and "=" in word:
            name, _, value = word.partition("=")
            yield name, value
        elif word.startswith("-") and i + 1 < len(words):
            yield word, words[i + 1]


def _skip_own(words: tuple[str, ...], arity: dict[str, int], plain: int) -> tuple[str, ...]:
    """The words after a wrapper's own options and its first `plain` plain words; `taskset 0xff CMD` and `taskset -c 0-3 CMD` both end at CMD."""
    i = 0
    while i < len(words):
        word = words[i]
        if word == "--":
            i += 1
            break
        if word.startswith("-"):
            i += 1 + arity.get(word, 0)
        elif plain > 0:
            plain, i = plain - 1, i + 1
        elif word.startswith("0x"):
            i += 1
        else:
            break
    return words[i:]


def _script(text: str) -> tuple[str, ...]:
    """The one command of a shell's `-c` text, up to a pipe or a redirection; empty where the text does more than that (a second line, a comment)."""
    import re
    import shlex

    # a line that goes on is one line; any other end of a line ends the command; the number of what is redirected (`2>&1`) is no word
    text = re.sub(r"(?<=\s)\d(?=[<>])", "", text.replace("\\\n", "").strip())
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    lexer.commenters = ""
    found: list[str] = []
    try:
        for word in lexer:
            if word in ("|", "|&", ">", ">>", ">|", "<", ">&", "&>", "&>>", "&"):
                break
            if set(word) <= set("();<>|&\n") or word.startswith("#"):
                return ()
            found.append(word)
    except ValueError:  # a quote that is never closed
        return ()
    return tuple(found)


def _container(words: tuple[str, ...], outer: "Mapping[str, str]") -> "tuple[tuple[str, ...], Mapping[str, str]]":
    """`docker run … IMAGE ARGS` and `docker exec … NAME CMD`: what starts inside, with the variables and the mounts that are given to it alone."""
    environ: dict[str, str] = {}
    if words[0] == "container":
        words = words[1:]
    if not words or words[0] not in ("run", "exec", "create"):
        return ("docker", *words), environ
    own, at = words[1:], 0
    mounts: list[tuple[str, str]] = []
    entry = None
    while at < len(own) and own[at].startswith("-"):
        word = own[at]
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:])
        alone = name in _ALONE or (not word.startswith("--") and set(word[1:]) <= set("ditPq"))
        at += 1
        if not alone and not equals and not value and at < len(own):
            value, at = own[at], at + 1
        if name in ("-e", "--env"):
            _set_variable(environ, value, outer)
        elif name in ("-v", "--volume", "--mount"):
            mounts.extend(_mounted(name, value))
        elif name == "--entrypoint":
            entry = value
    if at >= len(own):
        return ("docker", *words), environ
    for key in _PATH_VARIABLES:
        if key in environ:
            environ[key] = _outside(environ[key], mounts)
    rest = tuple(_outside(one, mounts) for one in own[at + 1 :])
    if words[0] == "exec":
        return rest or ("docker", *words), environ
    return ((entry, *rest) if entry else _started(own[at], rest)) or ("docker", *words), environ


def _started(image: str, rest: tuple[str, ...]) -> tuple[str, ...]:
    """What an image starts with these arguments: llama.cpp's own images say it by their tag (`.devops/*.Dockerfile`), Ollama's starts `ollama`, others the first argument."""
    name, _, tag = image.split("@", 1)[0].rpartition("/")[2].partition(":")
    if name == "ollama":
        return ("ollama", *(rest or ("serve",)))
    if rest and not rest[0].startswith("-") and "llama.cpp" not in name:
        return rest
    if any(one in name for one in _LLAMA_IMAGES):
        if tag.startswith("full") and rest and rest[0] in _TOOL_WORDS:
            return (_TOOLS[rest[0].lstrip("-")[0]], *rest[1:])
        return ("llama-cli" if tag.startswith("light") else "llama-server", *rest)
    return ()


def _mounted(option: str, value: str) -> list[tuple[str, str]]:
    """(inside, outside) of a mount; a Windows drive keeps its colon."""
    if option == "--mount":
        parts = dict(part.partition("=")[::2] for part in value.split(","))
        inside = parts.get("target") or parts.get("dst") or parts.get("destination")
        outside = parts.get("source") or parts.get("src")
        return [(inside, outside)] if inside and outside else []
    drive = value[:2] if value[1:2] == ":" and value[:1].isalpha() and value[2:3] in ("/", "\\") else ""
    outside, _, inside = value[len(drive) :].partition(":")
    return [(inside.partition(":")[0], drive + outside)] if inside else []


def _outside(word: str, mounts: list[tuple[str, str]]) -> str:
    """A path inside a container as the host knows it, by the volumes that are mounted there."""
    for inside, outside in mounts:
        if word == inside or word.startswith(inside.rstrip("/") + "/"):
            return outside.rstrip("/") + word[len(inside.rstrip("/")) :]
    return word
