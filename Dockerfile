# docker build --target operator -t goodput-operator:0.1.0 .
# docker build --target router   -t goodput-router:0.1.17 .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# The versions that are tested. Hashes go: pip takes constraints without them only.
COPY requirements.lock ./
RUN sed -nE 's/^([A-Za-z0-9._-]+==[^ ;\\]+).*/\1/p' requirements.lock > /constraints.txt

FROM build AS operator-build
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY controllers controllers
RUN pip wheel --no-deps --wheel-dir /wheels . \
    && python -m venv /opt/goodput \
    && /opt/goodput/bin/pip install --constraint /constraints.txt /wheels/*.whl \
    && /opt/goodput/bin/pip uninstall --yes pip

FROM build AS router-build
RUN python -m venv /opt/router \
    && /opt/router/bin/pip install --constraint /constraints.txt vllm-router \
    && /opt/router/bin/pip uninstall --yes pip

FROM ${PYTHON_IMAGE} AS runtime
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
RUN useradd --uid 1000 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin goodput
WORKDIR /tmp
USER 1000:1000

FROM runtime AS router
COPY --from=router-build /opt/router /opt/router
ENV PATH=/opt/router/bin:$PATH
EXPOSE 8080 29000
ENTRYPOINT ["vllm-router"]

FROM runtime AS operator
COPY --from=operator-build /opt/goodput /opt/goodput
ENV PATH=/opt/goodput/bin:$PATH
EXPOSE 8080
ENTRYPOINT ["goodput-operator"]
