"""What holds for all tests."""

import os

from hypothesis import settings

# No test may fail because a machine is busy. A gate (CI=1) runs the same examples each time, so that it
# speaks of the change before it; ``make fuzz`` looks for others.
settings.register_profile("untimed", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("untimed")
