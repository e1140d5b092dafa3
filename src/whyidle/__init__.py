"""whyidle: where the GPU time of a training run went, what it was lost to, and how to get it back.

The public names load on first use, so that ``import whyidle`` costs nothing in a program that
may never need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["WhyidleError", "__version__", "diagnose", "open_trace"]

if TYPE_CHECKING:
    from whyidle.diagnosis import diagnose as diagnose
    from whyidle.errors import WhyidleError as WhyidleError
    from whyidle.readers import open_trace as open_trace


def __getattr__(name: str) -> Any:
    if name == "diagnose":
        from whyidle.diagnosis import diagnose

        return diagnose
    if name == "open_trace":
        from whyidle.readers import open_trace

        return open_trace
    if name == "WhyidleError":
        from whyidle.errors import WhyidleError

        return WhyidleError
    raise AttributeError(f"module 'whyidle' has no attribute {name!r}")
