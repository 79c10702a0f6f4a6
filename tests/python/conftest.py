"""What holds for all tests."""

from hypothesis import settings

# No test may fail because a machine is busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
