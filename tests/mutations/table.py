"""Rules that must not get lost. Each is taken out of the source, and its named test must then fail.

An edit holds the exact text of the rule: a change of that text asks for a change here too.
"""

from __future__ import annotations

from dataclasses import dataclass

_REPLICAS = "tests/decide/test_replicas.py::"
_ENGINE = "tests/resources/test_engine.py::"
_OBJECTS = "tests/resources/test_objects.py::"
_GATE = "tests/decide/test_change.py::test_users_never_get_what_was_to_be_checked_and_was_not"


@dataclass(frozen=True, slots=True)
class Edit:
    """`old`, which occurs once in the file `path`, becomes `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule taken out; `test` is the pytest id that must fail without it."""

    rule: str
    name: str
    edits: tuple[Edit, ...]
    test: str


_NOT_FRESH = Edit(
    "operator/goodput/decide/replicas.py",
    """    if not situation.fresh:
        return Wanted(current, Rule.HOLD_METRICS, room_since, peak, window)
""",
    "",
)

MUTATIONS = (
    Mutation(
        rule="hold",
        name="missing metrics are no load",
        edits=(
            Edit(
                "operator/goodput/decide/replicas.py",
                """    if situation.load_rps is None:
        return Wanted(current, Rule.HOLD_METRICS, 0.0, 0.0, window)
    tolerated = situation.load_rps /""",
                "    tolerated = (situation.load_rps or 0.0) /",
            ),
            _NOT_FRESH,
        ),
        test=_REPLICAS + "test_missing_or_broken_metrics_hold_the_plan_and_say_so",
    ),
    Mutation(
        rule="hold",
        name="a pod without metrics stops no scale-down",
        edits=(_NOT_FRESH,),
        test=_REPLICAS + "test_one_mute_pod_stops_scale_down_but_not_scale_up",
    ),
    Mutation(
        rule="drain",
        name="no preStop",
        edits=(
            Edit(
                "operator/goodput/resources/engine/pod.py",
                """        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
""",
                "",
            ),
        ),
        test=_ENGINE + "test_the_drain_fits_into_the_grace_period",
    ),
    Mutation(
        rule="drain",
        name="no --shutdown-timeout",
        edits=(
            Edit(
                "operator/goodput/resources/engine/args.py",
                """        "--shutdown-timeout",
        str(SHUTDOWN_TIMEOUT_SECONDS),
""",
                "",
            ),
        ),
        test=_ENGINE + "test_the_drain_fits_into_the_grace_period",
    ),
    Mutation(
        rule="drain",
        name="the default grace period",
        edits=(
            Edit(
                "operator/goodput/resources/engine/pod.py",
                """        "terminationGracePeriodSeconds": GRACE_SECONDS,
""",
                """        "terminationGracePeriodSeconds": 30,
""",
            ),
        ),
        test=_ENGINE + "test_the_drain_fits_into_the_grace_period",
    ),
    Mutation(
        rule="drain",
        name="routers are killed with their requests",
        edits=(
            Edit(
                "operator/goodput/resources/router.py",
                """        "terminationGracePeriodSeconds": GRACE_SECONDS,
""",
                "",
            ),
        ),
        test="tests/resources/test_router.py::test_a_router_outlives_its_requests",
    ),
    Mutation(
        rule="pending counts",
        name="misses add a replica at every tick while others start",
        edits=(
            Edit(
                "operator/goodput/decide/replicas.py",
                "if situation.certain_misses and situation.coming == 0:",
                "if situation.certain_misses:",
            ),
        ),
        test=_REPLICAS + "test_misses_add_nothing_while_a_lost_replica_comes_back",
    ),
    Mutation(
        rule="pending counts",
        name="pods without a node are not on their way",
        edits=(
            Edit(
                "operator/goodput/domain/observed.py",
                """            elif state is PodState.PENDING:
                starting += 1
""",
                """            elif state is PodState.PENDING:
""",
            ),
        ),
        test=_REPLICAS + "test_misses_add_nothing_while_a_lost_replica_comes_back",
    ),
    Mutation(
        rule="pending counts",
        name="what is asked for comes on top of what is on its way",
        edits=(
            Edit(
                "operator/goodput/decide/replicas.py",
                "    up = needed(tolerated, situation.capacity_rps, situation.lacking)\n",
                "    up = needed(tolerated, situation.capacity_rps, situation.lacking) + situation.starting\n",
            ),
        ),
        test=_REPLICAS + "test_pending_and_starting_pods_count_as_capacity_on_its_way",
    ),
    Mutation(
        rule="replicas never omitted",
        name="replicas left to a default",
        edits=(
            Edit(
                "operator/goodput/resources/engine/deployment.py",
                """        "replicas": render.replicas,
""",
                "",
            ),
        ),
        test=_OBJECTS + "test_replicas_are_always_written",
    ),
    Mutation(
        rule="replicas never omitted",
        name="no replicas where there are none",
        edits=(
            Edit(
                "operator/goodput/resources/engine/deployment.py",
                """        "replicas": render.replicas,
""",
                """        **({"replicas": render.replicas} if render.replicas else {}),
""",
            ),
        ),
        test=_OBJECTS + "test_replicas_are_always_written",
    ),
    Mutation(
        rule="server-side apply by force",
        name="no force",
        edits=(
            Edit(
                "operator/goodput/adapters/kube.py",
                'query={"fieldManager": FIELD_MANAGER, "force": "true"}',
                'query={"fieldManager": FIELD_MANAGER}',
            ),
        ),
        test="tests/adapters/test_kube.py::test_apply_forces_our_fields",
    ),
    Mutation(
        rule="nothing unchecked",
        name="a Job that ended is one that succeeded",
        edits=(
            Edit(
                "operator/goodput/decide/change.py",
                "            if seen.check.succeeded:\n",
                "            if seen.check.ended:\n",
            ),
        ),
        test=_GATE,
    ),
    Mutation(
        rule="nothing unchecked",
        name="what passed lets another change through",
        edits=(
            Edit(
                "operator/goodput/decide/change.py",
                "    if mark.id == seen.id:\n        return mark\n",
                "    if mark.id:\n        return mark\n",
            ),
        ),
        test=_GATE,
    ),
    Mutation(
        rule="nothing unchecked",
        name="the canary of another change counts",
        edits=(
            Edit(
                "operator/goodput/decide/change.py",
                "self.canary.exists and self.canary.change == self.id",
                "self.canary.exists",
            ),
        ),
        test=_GATE,
    ),
)
