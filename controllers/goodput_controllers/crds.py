"""Whether the CRDs of the cluster are those that this operator was built with. Helm upgrades none: people do."""

from __future__ import annotations

import logging

from goodput.adapters.kinds import CRDS
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import KubeError
from goodput.api.kinds import KINDS, schema_hash
from goodput.api.schema import HASH_ANNOTATION

log = logging.getLogger(__name__)


async def compare_crds(api: KubeApi) -> list[str]:
    """Names of CRDs with another schema than ours, each told in the log; what cannot be read is not judged.

    Not fatal: versions differ by additions only, and what an older one lacks is told where it is missing.
    """
    others = []
    for kind in KINDS:
        name = f"{kind.plural}.{kind.group}"
        try:
            found = await api.get(CRDS, None, name)
        except KubeError as error:
            log.info("CRD %s is not compared with this operator's: %s", name, error)
            continue
        has = (found["metadata"].get("annotations") or {}).get(HASH_ANNOTATION, "none")
        if has != schema_hash(kind):
            log.warning(
                "CRD %s has schema %s, this operator was built with %s: apply crds/ of its release, server-side",
                name,
                has,
                schema_hash(kind),
            )
            others.append(name)
    return others
