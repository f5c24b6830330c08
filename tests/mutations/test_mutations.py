"""Each rule of the table is guarded: without it, its named test fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mutations.check import Checker, Verdict, copy_tree, mutate
from tests.mutations.table import MUTATIONS, Edit, Mutation

RULES = {
    *("hold", "drain", "pending counts", "replicas never omitted"),
    *("server-side apply by force", "nothing unchecked"),
}


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    with Checker() as running:
        yield running


def test_every_rule_has_a_mutation() -> None:
    """The table covers the rules that must not get lost."""
    assert {mutation.rule for mutation in MUTATIONS} == RULES


def test_the_named_tests_pass_with_the_rules_in_place(checker: Checker, tmp_path: Path) -> None:
    """In an untouched copy: a test that fails anyway would prove nothing."""
    code, output = checker.run(copy_tree(tmp_path), *sorted({mutation.test for mutation in MUTATIONS}))
    assert code == 0, output


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.name}")
def test_without_the_rule_its_named_test_fails(mutation: Mutation, checker: Checker, tmp_path: Path) -> None:
    """The mutation is caught by an assertion, not by a broken import."""
    verdict, output = checker.check(mutation, tmp_path)
    assert verdict is Verdict.CAUGHT, f"{verdict}: {mutation.test}\n{output}"


def test_a_rule_whose_text_is_gone_is_an_error(tmp_path: Path) -> None:
    """A table that no longer fits the code says so."""
    gone = Mutation("hold", "x", (Edit("operator/goodput/decide/replicas.py", "no such text", ""),), "")
    with pytest.raises(ValueError, match=r"0 times, not once"):
        mutate(copy_tree(tmp_path), gone)
