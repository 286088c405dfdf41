"""The client's tests need aiohttp, for the client and for the server it talks to."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the client needs aiohttp")
sys.path.insert(0, str(Path(__file__).parent))
