"""`python -m brim`."""

import sys

from brim.cli import main

sys.exit(main())
