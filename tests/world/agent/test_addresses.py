"""Pod and node addresses."""

from __future__ import annotations

import pytest

from goodput_world.agent.addresses import AddressPool


def test_addresses_are_used_again_last() -> None:
    """An address that was just released is not given to the next pod."""
    pool = AddressPool("127.5.0.0/16")
    first = pool.take("a")
    pool.release("a")

    assert pool.take("b") != first
    assert pool.take("b") == pool.take("b")


def test_a_pod_keeps_its_address_over_a_restart_of_the_agent() -> None:
    """The wanted address is given if nobody has it and it is in the range."""
    pool = AddressPool("127.5.0.0/16")

    assert pool.take("a", "127.5.7.7") == "127.5.7.7"
    assert pool.take("b", "127.5.7.7") != "127.5.7.7"
    assert pool.take("c", "127.6.7.7").startswith("127.5.")
    assert pool.owner_of("127.5.7.7") == "a"


def test_a_small_range_runs_out() -> None:
    """With a clear error."""
    pool = AddressPool("127.5.0.0/23")
    for number in range(254):
        pool.take(str(number))

    with pytest.raises(RuntimeError, match="used up"):
        pool.take("one more")


def test_nodes_and_pods_never_share() -> None:
    """Nodes count down from the end of the range."""
    pool = AddressPool("127.5.0.0/16")

    assert pool.node() == "127.5.255.254"
    assert pool.take("a", "127.5.255.254") != "127.5.255.254"
