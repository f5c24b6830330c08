"""`--metrics-from` reaches the NetworkPolicy of engine pods, or is refused with its name."""

from __future__ import annotations

import click
import pytest

from goodput.runtime.rendering import render_settings
from goodput_controllers.main import main, settings_of


def _given(value: str) -> dict[str, object]:
    context = main.make_context("goodput-operator", ["--metrics-from", value, "--lease-namespace", "x"])
    return dict(context.params)


def test_named_scrapers_are_what_rendering_gets() -> None:
    """A JSON list of peers comes through as it was written."""
    settings = settings_of(_given('[{"podSelector": {"matchLabels": {"app": "prometheus"}}}]'))
    expected = ({"podSelector": {"matchLabels": {"app": "prometheus"}}},)
    assert render_settings(settings, pod_monitor=False).metrics_from == expected


@pytest.mark.parametrize("value", ["", "{}", "[1]", "[{}]", "[{"])
def test_anything_else_is_refused(value: str) -> None:
    """What is no list of peers ends the process with the name of the flag, rather than opening or closing a port."""
    with pytest.raises(click.BadParameter) as refused:
        settings_of(_given(value))
    assert refused.value.param_hint == "--metrics-from"
