"""Prompt lengths and the names of their blocks."""

import pytest

from goodput_world.engine.prompts import PromptError, from_token_ids, of_chat, of_completion


def test_token_ids_count_exactly():
    """And full blocks only get a hash."""
    prompt = of_completion(list(range(50)), 16)

    assert prompt.tokens == 50
    assert len(prompt.block_hashes) == 3


def test_equal_starts_give_equal_hashes_and_nothing_else_does():
    """Chained: a block's hash says everything before it."""
    a = from_token_ids(list(range(64)), 16).block_hashes
    b = from_token_ids([*range(32), 99, *range(33, 64)], 16).block_hashes
    c = from_token_ids([7, *range(1, 64)], 16).block_hashes

    assert a[:2] == b[:2]
    assert not set(a[2:]) & set(b[2:])
    assert not set(a) & set(c)


def test_hashes_are_the_same_in_every_process():
    """A value fixed once: replicas and restarts agree."""
    assert from_token_ids(list(range(16)), 16).block_hashes == (3502644936733289510,)


def test_a_salt_separates_caches():
    """cache_salt."""
    plain = from_token_ids(list(range(32)), 16).block_hashes

    assert not set(plain) & set(from_token_ids(list(range(32)), 16, "tenant").block_hashes)


def test_text_counts_words():
    """One token each; chat adds one per message."""
    assert of_completion("one two  three", 16).tokens == 3
    assert of_completion("", 16).tokens == 1
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"text": "hi there"}]}]
    assert of_chat(messages, 16).tokens == 6


@pytest.mark.parametrize("prompt", [None, [], [-1], [1, "a"], [[1], [2]], {"a": 1}])
def test_what_is_no_prompt_is_refused(prompt):
    """Absent, empty, negative, mixed, several."""
    with pytest.raises(PromptError, match="prompt"):
        of_completion(prompt, 16)


@pytest.mark.parametrize(
    "messages", [None, [], ["hi"], [{"content": "x"}], [{"role": "user", "content": [{"image": 1}]}]]
)
def test_what_is_no_conversation_is_refused(messages):
    """Absent, empty, without roles, without text."""
    with pytest.raises(PromptError, match="message"):
        of_chat(messages, 16)
