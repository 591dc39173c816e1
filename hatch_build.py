"""Builds the one file of C (src/brim/probes/vigil.c) where there is a C compiler; where there is none brim is pure Python, and costs more while nothing happens."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = os.path.join("src", "brim", "probes")


class Build(BuildHookInterface):
    """Compiles before a wheel is made (an editable one, too: the library then lies in the source tree, which git ignores)."""

    def initialize(self, version, build_data):
        """Add the library to the wheel, which is then one for this platform and every Python."""
        target = os.path.join(ROOM, "libvigil.so")
        if self.target_name != "wheel" or not sys.platform.startswith("linux") or not compile_vigil(self.root, target):
            return
        build_data["artifacts"].append(target)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def compile_vigil(root, target):
    """Say whether the library is there, built from the source beside it."""
    compiler = shlex.split(os.environ.get("CC", "")) or [found for found in map(shutil.which, ("cc", "gcc", "clang")) if found][:1]
    fresh = os.path.join(root, target + ".new")
    command = [*compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", fresh, os.path.join(root, ROOM, "vigil.c")]
    try:
        subprocess.run(command if compiler else ["false"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        print(f"brim: {ROOM}/vigil.c was not built ({fault}); the governor then looks with the interpreter alone", file=sys.stderr)
        return False
    os.replace(fresh, os.path.join(root, target))  # a process that has the old one mapped keeps it
    return True
