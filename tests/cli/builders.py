"""Manifests as a user writes them."""

from __future__ import annotations

from typing import Any

import yaml


def manifests(model: str = "meta-llama/Llama-3.1-8B-Instruct", slo: dict[str, Any] | None = None, **spec: Any) -> str:
    """An SLO and a Model that names it; `slo` None: that of a chat."""
    bounds = slo if slo is not None else {"ttft": "500ms", "tpot": "50ms", "attainment": "95%"}
    documents = (
        {"apiVersion": "goodput.dev/v1alpha1", "kind": "SLO", "metadata": {"name": "wanted"}, "spec": bounds},
        {
            "apiVersion": "goodput.dev/v1alpha1",
            "kind": "Model",
            "metadata": {"name": "m"},
            "spec": {"model": model, "slo": "wanted", **spec},
        },
    )
    return yaml.safe_dump_all(documents, sort_keys=False)
