"""Views of pools for tests of rival laws."""

from goodput.simulator.rivals.view import PodPhase, PodView, PoolView

EDGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)


def ready(count, **values):
    """So many ready pods, all alike."""
    return (PodView(phase=PodPhase.READY, **values),) * count


def starting(count):
    """So many pods that load weights."""
    return (PodView(phase=PodPhase.STARTING),) * count


def pending(count):
    """So many pods without a GPU."""
    return (PodView(phase=PodPhase.PENDING),) * count


def view(*pods, **values):
    """A pool of these pods over a minute."""
    return PoolView(**{"window_seconds": 60.0, "pods": tuple(pods), "max_replicas": 100, **values})


def run(law, views, start=0.0):
    """The replicas that a law asks for, step by step; each view is given at its interval."""
    state = law.start()
    asked = []
    for number, each in enumerate(views):
        replicas, state = law.step(each, state, start + number * law.interval_seconds)
        asked.append(replicas)
    return asked
