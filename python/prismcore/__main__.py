"""``python -m prismcore``: the same as the command ``prism``."""

from __future__ import annotations

import sys

from prismcore.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
