"""HTTP endpoints of the operator: /metrics, /readyz (in sync) and /livez (the loop turns)."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

# '' is well; anything else says what is not.
Probe = Callable[[], str]


async def serve(host: str, port: int, *, metrics: Callable[[], bytes], ready: Probe, live: Probe) -> web.AppRunner:
    """Start listening; the caller calls `cleanup()` of what is returned.

    Raises:
        OSError: the address is taken.
    """

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def probe(check: Probe) -> Callable[[web.Request], object]:
        async def answer(_: web.Request) -> web.Response:
            problem = check()
            return web.Response(text=problem or "ok", status=503 if problem else 200)

        return answer

    application = web.Application()
    application.router.add_get("/metrics", show_metrics)
    application.router.add_get("/readyz", probe(ready))  # type: ignore[arg-type]
    application.router.add_get("/livez", probe(live))  # type: ignore[arg-type]
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
