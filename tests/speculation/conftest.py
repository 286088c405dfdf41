"""Property tests run without hypothesis' deadline: cores are shared, and a pause is no failure."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
