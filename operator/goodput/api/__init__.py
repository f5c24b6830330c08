"""What users write, as pydantic models: `SLO`, `Model` and `GPUType` of `goodput.dev/v1alpha1`.

The CRDs in `crds/` are generated from these models (`scripts/generate`). Each rule stands once, beside its field, as a
CEL expression for the API server and as a Python check for files read offline.
"""

from goodput.api.gputype import GPUType, GPUTypeSpec
from goodput.api.model import Model, ModelSpec
from goodput.api.slo import SLO, SLOSpec

GROUP = "goodput.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

__all__ = ["API_VERSION", "GROUP", "SLO", "VERSION", "GPUType", "GPUTypeSpec", "Model", "ModelSpec", "SLOSpec"]
