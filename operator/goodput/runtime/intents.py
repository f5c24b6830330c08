"""From a Model and the SLO that it names to a `ModelIntent`, with every problem that reading alone can find."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from goodput.api import SLO, Model
from goodput.api.model import ModelSpec
from goodput.api.quality import quality_of
from goodput.domain.architecture import Architecture
from goodput.domain.change import fingerprint
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.errors import InvalidObject, Unread
from goodput.domain.identity import CHECK_POOL, Key
from goodput.domain.intent import ModelIntent, Objective, Problem, RoutingMode, ScalingMode
from goodput.perfmodel.catalogue import architecture as built_in_architecture
from goodput.perfmodel.config import architecture_from_config
from goodput.runtime.entries import Entry
from goodput.runtime.serving import as_loaded, precision_of, speculation_of, workload_of
from goodput.runtime.settings import Settings
from goodput.runtime.supply import tolerations_json

if TYPE_CHECKING:
    # Offline nothing is observed: the command line starts without what observing needs.
    from goodput.adapters.records import OwnPod

# Text of a key of a ConfigMap in a namespace; None: there is no such ConfigMap, '' no such key. Raises Unread.
ConfigMapText = Callable[[str, str, str], str | None]

# How a kubelet says that what an environment variable comes from is not there.
_MISSING_OBJECT = re.compile(r'(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found')
_MISSING_KEY = re.compile(r"couldn't find key \S+ in (?P<kind>Secret|ConfigMap) (?:[^/\s]+/)?(?P<name>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a Model is read against."""

    settings: Settings
    slo: Entry[SLO] | None
    gpu_types: frozenset[str]
    # GPUType whose object is wrong -> what is wrong with it
    gpu_type_faults: Mapping[str, str]
    # served name -> the Model that has it, for this namespace
    served_names: Mapping[str, Key]
    config_map_text: ConfigMapText
    pods: tuple[OwnPod, ...] = ()
    # Type that the Model runs on although its GPUType was deleted ('' if not so).
    deleted_gpu_type: str = ""
    # Type that the Model runs on of which nothing is known: its GPUType went, or was spoilt, before this process began.
    unknown_gpu_type: str = ""
    # Problems that the last write found.
    apply_problems: tuple[Problem, ...] = ()


def objective_of(slo: SLO) -> Objective:
    """The bounds of an SLO."""
    spec = slo.spec
    return Objective(
        ttft_seconds=spec.ttft_seconds,
        tpot_seconds=spec.tpot_seconds,
        e2e_seconds=spec.deadline_seconds if spec.batch else spec.e2e_seconds,
        attainment=spec.attainment_share,
        min_requests=spec.min_requests,
        batch=spec.batch,
    )


def intent_of(entry: Entry[Model], around: Surroundings) -> ModelIntent | None:
    """What this Model wants; None if it was never valid."""
    model = entry.value
    if model is None:
        return None
    spec = model.spec
    problems: list[Problem] = list(around.apply_problems)
    if entry.error is not None:
        problems.append(_stalled(entry.error.reason, f"{entry.error} (what runs stays as it was)"))
    slo_key = Key(model.slo_namespace, spec.slo.name)
    objective = _objective(model, slo_key, around, problems)
    architecture = _architecture(model, around, problems)
    precision, wrong_precision = precision_of(spec.precision, architecture)
    speculation, wrong_speculation = speculation_of(spec.speculative, architecture)
    problems += [problem for problem in (wrong_precision, wrong_speculation) if problem is not None]
    _check_gpu_types(model, around, problems)
    _check_served_name(model, entry.key, around, problems)
    _check_image(model, around, problems)
    _check_pods(model, around, problems)
    parallelism = spec.parallelism
    mode = ScalingMode(spec.scaling.mode) if spec.scaling.mode else around.settings.default_mode
    return ModelIntent(
        key=entry.key,
        uid=entry.uid,
        generation=entry.generation,
        model=spec.model,
        served_name=model.served_name,
        slo=slo_key,
        objective=objective,
        architecture=as_loaded(architecture, precision),
        priority=_priority(around),
        gpu_types=tuple(spec.gpu_types),
        tolerations=tolerations_json(spec.template.tolerations if spec.template else ()),
        tensor_parallel=parallelism.tensor if parallelism else None,
        pipeline_parallel=parallelism.pipeline if parallelism else None,
        precision=precision,
        workload=workload_of(spec.workload),
        speculation=speculation,
        min_replicas=spec.scaling.min_replicas,
        max_replicas=spec.scaling.max_replicas,
        max_cost_per_hour=spec.scaling.max_cost,
        mode=mode,
        routing=RoutingMode(spec.routing.mode),
        admission=spec.routing.admission == "Auto",
        paused=spec.paused,
        quality=quality_of(spec),
        asked=_written(spec, *_MADE_FROM),
        judge=_written(spec, "quality_check"),
        check_seconds=spec.quality_check.job_template.spec.active_deadline_seconds if spec.quality_check else None,
        problems=tuple(dict.fromkeys(problems)),
    )


def _priority(around: Surroundings) -> int:
    """Of its SLO, as far as the administrator lets SLOs of that namespace go."""
    slo = around.slo.value if around.slo is not None else None
    if slo is None:
        return 0
    most = around.settings.most_priority(slo.metadata.namespace)
    return slo.spec.priority if most is None else min(slo.spec.priority, most)


# What a canary is made from.
_MADE_FROM = (
    *("model", "revision", "precision", "speculative", "served_name", "credentials", "image_pull_secrets"),
    *("gpu_types", "parallelism", "routing", "engine", "template"),
)


def _written(spec: ModelSpec, *fields: str) -> str:
    """A fingerprint of these fields.

    What says nothing is left out, whoever wrote it: the API server fills in each default that its schema has, so those
    of a newer schema stand in every object from its upgrade on.
    """
    written = spec.model_dump(mode="json", include=set(fields), exclude_none=True, exclude_defaults=True)
    written.get("engine", {}).pop("update", None)
    told = {name: value for name, value in written.items() if value != {}}
    return fingerprint(orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode())


def _stalled(reason: ConditionReason, message: str, *, fatal: bool = True) -> Problem:
    return Problem(type=ConditionType.STALLED, reason=reason, message=message, fatal=fatal)


def _unplaced(reason: ConditionReason, message: str, *, fatal: bool = True) -> Problem:
    return Problem(type=ConditionType.PLACED, reason=reason, message=message, fatal=fatal)


def _objective(model: Model, key: Key, around: Surroundings, problems: list[Problem]) -> Objective | None:
    entry = around.slo
    watched = around.settings.namespaces
    unseen = ""
    if watched and key.namespace not in watched:
        unseen = (
            f"spec.slo: SLO {key.name} cannot be seen, since namespace {key.namespace} is not among the operator's "
            "watchNamespaces: have its administrator add it, or name an SLO of a namespace that is"
        )
    where = "this namespace" if key.namespace == model.metadata.namespace else f"namespace {key.namespace}"
    if entry is None or entry.value is None:
        told = f" ({entry.error})" if entry is not None and entry.error is not None else ""
        missing = f"spec.slo: there is no valid SLO {key.name} in {where}{told}: create it or name another"
        problems.append(_stalled(ConditionReason.SLO_NOT_FOUND, unseen or missing))
        return None
    if not entry.value.allows(model.metadata.namespace):
        problems.append(
            _stalled(
                ConditionReason.SLO_NOT_ALLOWED,
                f"spec.slo: SLO {key.name} of namespace {key.namespace} does not allow namespace "
                f"{model.metadata.namespace}: its owner adds it to spec.allowedNamespaces",
            )
        )
        return None
    if entry.deleted and unseen:
        message = f"{unseen}; serving on by its last objectives"
        problems.append(_stalled(ConditionReason.SLO_NOT_FOUND, message, fatal=False))
    elif entry.error is not None:
        problems.append(
            _stalled(
                ConditionReason.SLO_NOT_FOUND,
                f"spec.slo: SLO {key.name} in {where} is wrong ({entry.error}); serving on by its last valid "
                "objectives: mend it or name another",
                fatal=False,
            )
        )
    elif entry.deleted:
        problems.append(
            _stalled(
                ConditionReason.SLO_DELETED,
                f"spec.slo: SLO {key.name} in {where} was deleted; serving on by its last objectives: create it again "
                "or name another",
                fatal=False,
            )
        )
    return objective_of(entry.value)


def _architecture(model: Model, around: Surroundings, problems: list[Problem]) -> Architecture | None:
    given = model.spec.architecture
    try:
        if given is None:
            found = built_in_architecture(model.spec.model)
            if found is None:
                problems.append(
                    _unplaced(
                        ConditionReason.ARCHITECTURE_UNKNOWN,
                        f"spec.architecture: {model.spec.model} is not in the built-in catalogue: give the fields of "
                        "its config.json, or a ConfigMap that holds it",
                    )
                )
            return found
        if given.config_map_ref is None:
            return architecture_from_config(model.spec.model, given.to_config())
        reference = given.config_map_ref
        text = around.config_map_text(model.metadata.namespace, reference.name, reference.key)
        if not text:
            what = "ConfigMap" if text is None else f"key {reference.key} in ConfigMap"
            problems.append(
                _stalled(
                    ConditionReason.CONFIGMAP_NOT_FOUND,
                    f"spec.architecture.configMapRef: there is no {what} {reference.name} in this namespace: create it",
                )
            )
            return None
        config: Any = orjson.loads(text)
        if not isinstance(config, dict):
            raise InvalidObject("spec.architecture.configMapRef", "the text is not a JSON object")
        return architecture_from_config(model.spec.model, config)
    except orjson.JSONDecodeError as error:
        problems.append(
            _unplaced(
                ConditionReason.ARCHITECTURE_INVALID, f"spec.architecture.configMapRef: the text is not JSON: {error}"
            )
        )
    except InvalidObject as error:
        problems.append(_unplaced(ConditionReason.ARCHITECTURE_INVALID, str(error)))
    except Unread as error:
        problems.append(_stalled(ConditionReason.CONFIGMAP_UNREADABLE, f"spec.architecture.configMapRef: {error}"))
    return None


def _check_gpu_types(model: Model, around: Surroundings, problems: list[Problem]) -> None:
    if around.deleted_gpu_type:
        problems.append(
            _unplaced(
                ConditionReason.GPU_TYPE_NOT_FOUND,
                f"GPUType {around.deleted_gpu_type} was deleted; serving on by the last one seen: create it again, or "
                "name another in spec.gpuTypes",
                fatal=False,
            )
        )
    faults = around.gpu_type_faults
    lost = around.unknown_gpu_type
    if lost and (not model.spec.gpu_types or lost in model.spec.gpu_types):
        # Not its author's wish to run on another: all pods would be replaced.
        what = f"is wrong, mend it ({faults[lost]})" if lost in faults else "is gone, create it again"
        problems.append(
            _unplaced(
                ConditionReason.GPU_TYPE_NOT_FOUND,
                f"GPUType {lost} {what} or name others in spec.gpuTypes: until then pods on it go on as they are, and "
                "are not managed",
            )
        )
    unknown = sorted(set(model.spec.gpu_types) - around.gpu_types - {lost})
    if unknown:
        told = [
            f"{name} is neither built in nor a GPUType of this cluster: create it or name another{_alike(name, around)}"
            for name in unknown
            if name not in faults
        ]
        told += [
            f"GPUType {name} is wrong, mend it or name another: {faults[name]}" for name in unknown if name in faults
        ]
        problems.append(
            _unplaced(
                ConditionReason.GPU_TYPE_NOT_FOUND,
                f"spec.gpuTypes: {'; '.join(told)}",
                # Types that do exist can still be used.
                fatal=len(unknown) == len(set(model.spec.gpu_types)),
            )
        )


_MIG = re.compile(r"-\dg\.")  # slices of cards


def _alike(name: str, around: Surroundings) -> str:
    known = sorted(name for name in around.gpu_types if not _MIG.search(name))
    close = [each for each in known if each.startswith(name)] or difflib.get_close_matches(name, known, n=3)
    return f", such as {' or '.join(close)}" if close else ""


def _check_served_name(model: Model, key: Key, around: Surroundings, problems: list[Problem]) -> None:
    holder = around.served_names.get(model.served_name, key)
    if holder != key:
        problems.append(
            _stalled(
                ConditionReason.SERVED_NAME_CONFLICT,
                f"spec.servedName: Model {holder.name} of this namespace serves {model.served_name} already: choose "
                "another name",
            )
        )


def _check_image(model: Model, around: Surroundings, problems: list[Problem]) -> None:
    images = [("spec.engine.image", model.spec.engine.image)]
    if model.spec.quality_check is not None:
        containers = model.spec.quality_check.job_template.spec.template.spec.containers
        images += [
            (f"spec.qualityCheck.jobTemplate: image of container {each.name}", each.image) for each in containers
        ]
    for field, image in images:
        if image is None or around.settings.image_allowed(image):
            continue
        problems.append(
            _stalled(
                ConditionReason.IMAGE_NOT_ALLOWED,
                f"{field}: {image} is none of the images that this cluster's Goodput allows: "
                f"{', '.join(around.settings.allowed_images)}",
            )
        )


def _check_pods(model: Model, around: Surroundings, problems: list[Problem]) -> None:
    for pod in around.pods:
        if pod.trouble != "CreateContainerConfigError":
            continue
        found = _MISSING_OBJECT.fullmatch(pod.trouble_message) or _MISSING_KEY.fullmatch(pod.trouble_message)
        if found is None:
            continue
        kind, name = found["kind"].lower(), found["name"]
        reason = ConditionReason.SECRET_NOT_FOUND if kind == "secret" else ConditionReason.CONFIGMAP_NOT_FOUND
        field = _field_of_secret(model, name, around.settings) if kind == "secret" else "spec.template"
        if pod.pool == CHECK_POOL:
            field = "spec.qualityCheck.jobTemplate"
        message = f"{field}: {pod.trouble_message}: create it; pod {pod.key.name} waits for it"
        problems.append(_stalled(reason, message, fatal=False))
        return


def _field_of_secret(model: Model, name: str, settings: Settings) -> str:
    """Where a Model names this Secret, or could name another."""
    credentials = model.spec.credentials
    if credentials is not None and credentials.secret_ref.name == name:
        return "spec.credentials.secretRef"
    for variable in model.spec.engine.env:
        if variable.value_from is not None and variable.value_from.secret_key_ref.name == name:
            return f"spec.engine.env[{variable.name}]"
    if credentials is None and model.claim_and_path is None and settings.default_credentials_secret == name:
        return "spec.credentials.secretRef (unset, so the operator's default)"
    return "spec.template"
