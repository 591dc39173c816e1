"""A small shell that outlives the governor for one purpose: when the governor dies without a word, it ends the job (`--die-with-me`); it decides nothing else.

It waits on a pipe that only the governor holds open. A word on the pipe is a good end; silence and then the end of the pipe mean that the governor was
killed: then the leader gets SIGTERM (if its birth still matches), after the grace its group and cgroup get SIGKILL. One line on stderr says so: no journal can.
"""

import contextlib
import os
import subprocess

_WATCH = """
trap '' INT TERM HUP
read -r word
[ "$word" = done ] && exit 0
same() {{ set -- $(sed 's/.*) //' "/proc/{pid}/stat" 2>/dev/null); [ "${{20}}" = "{birth}" ]; }}
echo "brim: the governor of job {pid} is dead; ending the job (--die-with-me)" >&2
same && kill -TERM -{pid} 2>/dev/null
same && kill -CONT -{pid} 2>/dev/null
[ -n "{kill}" ] && echo 0 > "{kill}/cgroup.freeze" 2>/dev/null
n=0
while [ $n -lt {ticks} ] && kill -0 -{pid} 2>/dev/null; do sleep 0.1; n=$((n+1)); done
kill -KILL -{pid} 2>/dev/null
[ -n "{kill}" ] && echo 1 > "{kill}/cgroup.kill" 2>/dev/null
sleep 0.2
for made in {made}; do rmdir "$made" 2>/dev/null; done
exit 0
"""


class Keeper:
    """The shell and its pipe; `close` is the good end."""

    def __init__(self, pid: int, birth: int, *, grace_ns: int, kill_dir: str = "", made: tuple[str, ...] = ()) -> None:
        reader, self._writer = os.pipe()
        quoted = " ".join(f"'{path}'" for path in made)
        script = _WATCH.format(pid=pid, birth=birth, ticks=max(1, grace_ns // 100_000_000), kill=kill_dir, made=quoted)
        try:
            self._process = subprocess.Popen(["/bin/sh", "-c", script, "brim-keeper"], stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True)
        finally:
            os.close(reader)
        self.pid = self._process.pid

    def close(self) -> None:
        """Say that the governor ends well."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b"done\n")
        os.close(self._writer)
        self._process.wait(5)
