"""The paged KV pool and its prefix cache."""

import pytest

from goodput.simulator.kvcache import BlockPool


def test_the_null_block_is_never_handed_out():
    """A pool of n blocks gives n - 1, as vLLM keeps one aside."""
    pool = BlockPool(10)

    assert len(pool.allocate(9, 0.0)) == 9
    assert pool.allocate(1, 0.0) is None


def test_a_pool_needs_a_usable_block():
    """One block is the null block alone."""
    with pytest.raises(ValueError, match="blocks"):
        BlockPool(1)


def test_a_failed_allocation_changes_nothing():
    """Too few free blocks: None, and the free ones stay."""
    pool = BlockPool(5)
    pool.allocate(2, 0.0)

    assert pool.allocate(3, 0.0) is None
    assert pool.free_blocks == 2


def test_released_blocks_are_found_again_until_evicted():
    """Content stays cached after release, and goes when the space is needed."""
    pool = BlockPool(5)
    blocks = pool.allocate(2, 0.0)
    for block, value in zip(blocks, (11, 12), strict=True):
        pool.remember(block, value)
    pool.release(blocks)

    assert pool.lookup([11, 12, 13], 3) == blocks
    pool.allocate(4, 1.0)
    assert pool.lookup([11], 1) == []


def test_the_tail_of_a_prefix_goes_first():
    """A sequence gives its blocks back in reverse, so the start of the prefix survives longest."""
    pool = BlockPool(5)
    blocks = pool.allocate(4, 0.0)
    for block, value in zip(blocks, (1, 2, 3, 4), strict=True):
        pool.remember(block, value)
    pool.release(blocks)
    pool.allocate(2, 1.0)

    assert pool.lookup([1, 2, 3, 4], 4) == blocks[:2]


def test_a_shared_block_is_free_only_when_nobody_holds_it():
    """Two holders, two releases."""
    pool = BlockPool(3)
    blocks = pool.allocate(1, 0.0)
    pool.remember(blocks[0], 7)
    pool.take_cached(blocks, 0.5)
    pool.release(blocks)

    assert pool.used_blocks == 1
    pool.release(blocks)
    assert pool.used_blocks == 0


def test_a_duplicate_takes_over_when_the_first_copy_is_evicted():
    """Two blocks with one hash: the second answers once the first is gone."""
    pool = BlockPool(4)
    first, second = pool.allocate(2, 0.0)
    pool.remember(first, 7)
    pool.remember(second, 7)
    pool.release([first])
    pool.allocate(2, 1.0)  # the never used one, then the first

    assert pool.lookup([7], 1) == [second]


def test_residency_reports_at_eviction_the_gaps_between_the_last_four_touches():
    """As vLLM: the gap from allocation to the first touch is never reported, older gaps are forgotten."""
    pool = BlockPool(2, residency_sample=1.0)
    block = pool.allocate(1, 10.0)
    pool.remember(block[0], 7)
    pool.release(block)
    for touched in (11.0, 13.0, 16.0, 20.0, 25.0):
        pool.take_cached(block, touched)
        pool.release(block)
    assert pool.drain_evictions() == []
    pool.allocate(1, 40.0)
    (eviction,) = pool.drain_evictions()

    assert eviction.reuse_gaps_seconds == (3.0, 4.0, 5.0)
    assert eviction.lifetime_seconds == 30.0
    assert eviction.idle_seconds == 15.0
    assert pool.drain_evictions() == []


def test_sampling_watches_about_the_share_asked_for():
    """One block in ten at 0.1."""
    pool = BlockPool(1001, residency_sample=0.1)
    blocks = pool.allocate(1000, 0.0)
    pool.release(blocks)
    pool.allocate(1000, 1.0)

    assert 95 <= len(pool.drain_evictions()) <= 105


def test_without_sampling_nothing_is_watched():
    """No residency is kept when nobody asked."""
    pool = BlockPool(3)
    pool.release(pool.allocate(2, 0.0))
    pool.allocate(2, 1.0)

    assert pool.drain_evictions() == []
