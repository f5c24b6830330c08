"""Why a decision is neither one replica fewer nor one more, in words with numbers and units."""

from __future__ import annotations

from goodput.domain.decision import Rejected, number


def neighbours(
    replicas: int, load_rps: float | None, peak_rps: float, capacity_rps: float, fewest: int = 0
) -> tuple[Rejected, ...]:
    """Why not one replica fewer, and why not one more; the author allows no fewer than `fewest`."""
    if load_rps is None or capacity_rps <= 0.0:
        return ()
    found = []
    if replicas > 0:
        fewer = replicas - 1
        have = fewer * capacity_rps
        if load_rps > have:
            reason = f"{number(have)} requests/s of capacity is less than the {number(load_rps)} to provide for"
        elif peak_rps > have:
            reason = (
                f"{number(have)} requests/s of capacity is less than the highest load to provide for in the window,"
                f" {number(peak_rps)}"
            )
        elif fewer < fewest:
            reason = f"spec.scaling.minReplicas is {fewest}"
        else:
            reason = "load has not left room for the whole window"
        found.append(Rejected(f"{fewer} replicas", reason))
    have = replicas * capacity_rps
    if have >= load_rps and replicas >= fewest:
        reason = f"{replicas} give {number(have)} requests/s, the load to provide for is {number(load_rps)}"
    else:
        reason = "a limit stops it"
    found.append(Rejected(f"{replicas + 1} replicas", reason))
    return tuple(found)
