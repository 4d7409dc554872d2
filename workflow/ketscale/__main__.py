"""`python -m ketscale`: the command `ketscale` of this Python."""

import sys

from ketscale.cli import main

sys.exit(main())
