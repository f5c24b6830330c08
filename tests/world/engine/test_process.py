"""The process as a kubelet sees it: refused until ready, exit codes, drains, hangs, admission by the node."""

import asyncio
import json
import signal
import socket
import sys
import time

import aiohttp
import pytest

from goodput.simulator.plant import Plant


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
async def start(tmp_path, fast_plant):
    """Start engine processes; whatever still runs at the end is killed."""
    plant_file = tmp_path / "plant.json"
    plant_file.write_text(json.dumps({name: getattr(fast_plant, name) for name in Plant.__dataclass_fields__}))
    processes = []

    async def run(*arguments, **environment):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "goodput_world.engine",
            *arguments,
            env={"GOODPUT_SIM_PLANT": str(plant_file), "PATH": "/usr/bin", **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def session():
    """A client."""
    async with aiohttp.ClientSession() as opened:
        yield opened


async def ready(session, url):
    """Wait until the server listens."""
    deadline = time.monotonic() + 30
    while True:
        try:
            async with session.get(f"{url}/health") as answer:
                assert answer.status == 200
                return
        except aiohttp.ClientConnectorError:  # refused; anything else is a finding
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def serve(start, session, *arguments, **environment):
    """A ready process and its address."""
    port = free_port()
    process = await start("serve", "m", "--host", "127.0.0.1", "--port", str(port), *arguments, **environment)
    url = f"http://127.0.0.1:{port}"
    await ready(session, url)
    return process, url


async def stream(session, url, tokens):
    """Open a stream and wait for its first bytes."""
    body = {"model": "m", "prompt": [1, 2], "max_tokens": tokens, "stream": True}
    answer = await session.post(f"{url}/v1/completions", json=body)
    assert answer.status == 200
    return answer, await answer.content.readany()


async def test_version(start):
    """What an init container or a person asks."""
    process = await start("--version")
    output, _ = await process.communicate()

    assert (process.returncode, output) == (0, b"0.33.0\n")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["serve", "m", "--nope"], 2, "vllm: error: unrecognized arguments: --nope"),
        (["bench"], 2, "vllm: error"),
        (["serve", "m", "--gpu-memory-utilization", "2"], 1, "gpu_memory_utilization"),
        (["serve", "m", "--max-model-len", "9000"], 1, "ValueError: User-specified max_model_len"),
        (["serve", "m", "--kv-transfer-config", '{"x": 1}'], 2, "unexpected keyword argument 'x'"),
    ],
)
async def test_a_wrong_command_line_ends_at_once(start, arguments, code, text):
    """2 for usage, 1 for configuration and memory."""
    process = await start(*arguments)
    output, _ = await process.communicate()

    assert process.returncode == code
    assert text in output.decode()


async def test_without_a_plant_it_says_what_is_missing(start):
    """The variable to set."""
    process = await start("serve", "m", GOODPUT_SIM_PLANT="")
    output, _ = await process.communicate()

    assert process.returncode == 1
    assert "GOODPUT_SIM_PLANT" in output.decode()


async def test_connections_are_refused_until_the_engine_is_ready(start, session):
    """For the start-up time; then health, models and metrics answer at once. Phases are logged."""
    port = free_port()
    began = time.monotonic()
    arguments = ["serve", "m", "--port", str(port)]
    process = await start(*arguments, GOODPUT_SIM_STARTUP_SECONDS="1.5", POD_IP_BIND="127.0.0.1")
    await asyncio.sleep(0.8)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    await ready(session, f"http://127.0.0.1:{port}")
    took = time.monotonic() - began
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.status == 200
    process.terminate()
    output, _ = await process.communicate()

    assert took >= 1.5
    assert process.returncode == 0
    assert "init engine (profile, create kv cache, warmup model) took" in output.decode()


async def test_sigterm_during_start_up_ends_it(start):
    """Nothing to drain."""
    process = await start("serve", "m", "--port", str(free_port()), GOODPUT_SIM_STARTUP_SECONDS="60")
    await process.stdout.readline()
    process.terminate()

    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_sigterm_with_a_shutdown_timeout_loses_no_token(start, session):
    """The stream ends whole, new requests get 500, health stays 200, and the process goes when idle."""
    process, url = await serve(start, session, "--shutdown-timeout", "30")
    answer, received = await stream(session, url, 400)
    process.terminate()
    await asyncio.sleep(0.1)
    async with session.post(f"{url}/v1/completions", json={"model": "m", "prompt": "x"}) as refused:
        status, text = refused.status, await refused.text()
    async with session.get(f"{url}/health") as health:
        assert health.status == 200
    received += await answer.read()

    assert status == 500
    assert "cannot schedule new futures after shutdown" in text
    assert received.count(b'"text"') == 400
    assert received.endswith(b"data: [DONE]\n\n")
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_the_shutdown_timeout_cuts_what_outlasts_it(start, session):
    """After one second the long stream breaks."""
    process, url = await serve(start, session, "--shutdown-timeout", "1")
    answer, _ = await stream(session, url, 8000)
    process.terminate()
    with pytest.raises(aiohttp.ClientPayloadError):
        await answer.read()

    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_sigterm_without_a_shutdown_timeout_hangs_the_clients(start, session):
    """vLLM's default: no byte and no EOF, new connections refused, the process stays until it is killed."""
    process, url = await serve(start, session)
    answer, _ = await stream(session, url, 8000)
    process.terminate()
    await asyncio.sleep(0.3)
    while True:
        try:
            await asyncio.wait_for(answer.content.readany(), 0.5)
        except TimeoutError:
            break
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answer.content.readany(), 1.0)
    async with aiohttp.ClientSession() as other:
        with pytest.raises(aiohttp.ClientConnectorError):
            await other.get(f"{url}/health")

    assert process.returncode is None
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL


async def test_the_node_decides_who_may_connect(start, session, tmp_path):
    """One question per connection, with peer, pod and port; a refusal closes it before anything is read."""
    questions = []
    verdict = {"allow": True}

    async def node(reader, writer):
        questions.append(json.loads(await reader.readline()))
        writer.write(json.dumps(verdict).encode() + b"\n")
        await writer.drain()
        writer.close()

    path = str(tmp_path / "admit.sock")
    async with await asyncio.start_unix_server(node, path):
        _, url = await serve(start, session, GOODPUT_SIM_ADMIT=path, POD="team/llama-0")
        verdict["allow"] = False
        async with aiohttp.ClientSession() as other:
            with pytest.raises(aiohttp.ClientConnectionError):
                await other.get(f"{url}/health")

    assert questions[0]["pod"] == "team/llama-0"
    assert questions[0]["peer"][0] == "127.0.0.1"
    assert str(questions[0]["port"]) == url.rsplit(":", 1)[1]


async def test_a_node_that_does_not_answer_refuses(start, session, tmp_path):
    """A policy that cannot be asked is no permission."""
    port = free_port()
    await start("serve", "m", "--host", "127.0.0.1", "--port", str(port), GOODPUT_SIM_ADMIT=str(tmp_path / "none"))
    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        await asyncio.wait_for(ready(session, f"http://127.0.0.1:{port}"), 20)


async def test_a_process_is_small(start, session):
    """Resident memory below 60 MB: hundreds of engines fit on a laptop."""
    process, _ = await serve(start, session)
    status = open(f"/proc/{process.pid}/status", encoding="ascii").read()  # noqa: SIM115
    kilobytes = int(status.split("VmRSS:")[1].split()[0])

    assert kilobytes < 60_000
