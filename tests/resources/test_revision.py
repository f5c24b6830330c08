"""RENDER_REVISION names what the rendering code makes: other templates need another number."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import yaml

from goodput.domain.identity import LABEL_REVISION
from goodput.resources.inputs import KubeObject, ObjectKey, RenderInput
from goodput.resources.pinning import RENDER_REVISION

RECORD = Path(__file__).parent / "golden" / "render-revisions.yaml"


def test_another_rendering_has_another_revision(
    make_render: Callable[..., RenderInput], rendered_of: Callable[[RenderInput], dict[ObjectKey, KubeObject]]
) -> None:
    """Templates of the smallest Model are those on record for this revision; GOODPUT_UPDATE_GOLDEN=1 adds a new one.

    Without the new number, fleets would not learn that an update waits for them (UpdateAvailable).
    """
    templates = {
        name: item["spec"]["template"]["metadata"]["labels"][LABEL_REVISION]
        for (kind, name), item in rendered_of(make_render()).items()
        if kind == "Deployment"
    }
    record = yaml.safe_load(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if os.environ.get("GOODPUT_UPDATE_GOLDEN") == "1" and RENDER_REVISION not in record:
        record[RENDER_REVISION] = templates
        RECORD.write_text(yaml.safe_dump(record), encoding="utf-8")
    assert record.get(RENDER_REVISION) == templates, "pod templates changed: raise pinning.RENDER_REVISION"
