"""The OpenAI routes over the engine model, with a real HTTP client."""

import asyncio
import dataclasses
import json

import aiohttp
import pytest


async def events(answer):
    """The data of each server-sent event."""
    text = (await answer.read()).decode()
    assert text.endswith("\n\n")
    return [event.removeprefix("data: ") for event in text.split("\n\n") if event]


async def test_a_chat_streams_one_event_per_token_and_the_usage(run_server):
    """Role, tokens, the reason with the last one, usage where asked for, [DONE]."""
    async with run_server() as running:
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": "one two three"}],
            "max_tokens": 5,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with running.session.post(f"{running.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
            *chunks, done = await events(answer)
    decoded = [json.loads(chunk) for chunk in chunks]
    choices = [chunk["choices"][0] for chunk in decoded[:-1]]

    assert done == "[DONE]"
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["delta"]["content"] for choice in choices[1:]] == [" token"] * 5
    assert [choice["finish_reason"] for choice in choices] == [None] * 5 + ["length"]
    assert decoded[-1]["choices"] == []
    assert decoded[-1]["usage"]["prompt_tokens"] == 4
    assert decoded[-1]["usage"]["completion_tokens"] == 5
    assert len({chunk["id"] for chunk in decoded}) == 1


async def test_a_completion_streams_text(run_server):
    """Without a role; a single token is first and last at once."""
    async with run_server() as running:
        for tokens in (1, 4):
            body = {"model": "m", "prompt": [1, 2, 3], "max_tokens": tokens, "stream": True}
            async with running.session.post(f"{running.url}/v1/completions", json=body) as answer:
                *chunks, _ = await events(answer)
            assert "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks) == " token" * tokens


async def test_usage_can_run_along(run_server):
    """continuous_usage_stats: every event says how far it is."""
    async with run_server() as running:
        options = {"include_usage": True, "continuous_usage_stats": True}
        body = {"model": "m", "prompt": [1], "max_tokens": 3, "stream": True, "stream_options": options}
        async with running.session.post(f"{running.url}/v1/completions", json=body) as answer:
            *chunks, _ = await events(answer)

    assert [json.loads(chunk)["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 3]


async def test_a_unary_answer_holds_everything(run_server):
    """Text, reason and usage; 16 tokens where a completion names no limit."""
    async with run_server() as running:
        status, body = await running.post(prompt=list(range(20)))
        chat_status, chat = await running.post(
            "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_completion_tokens=3
        )

    assert (status, chat_status) == (200, 200)
    assert body["choices"][0]["text"] == " token" * 16
    assert body["usage"] == {
        "prompt_tokens": 20,
        "completion_tokens": 16,
        "total_tokens": 36,
        "prompt_tokens_details": None,
    }
    assert chat["choices"][0]["message"]["content"].split() == ["token"] * 3


async def test_a_chat_without_a_limit_stops_by_itself(run_server):
    """At the same length each time, with the reason `stop`; not before min_tokens."""
    async with run_server() as running:
        ask = {"messages": [{"role": "user", "content": "hi"}]}
        first, second = [await running.post("/v1/chat/completions", **ask) for _ in range(2)]
        _, longer = await running.post("/v1/chat/completions", **ask, min_tokens=300)

    assert first[1]["choices"][0]["finish_reason"] == "stop"
    assert first[1]["usage"] == second[1]["usage"]
    assert longer["usage"]["completion_tokens"] == 300


@pytest.mark.parametrize(
    ("body", "status", "kind", "text"),
    [
        ({"model": "other", "prompt": "x"}, 404, "NotFoundError", "The model `other` does not exist."),
        ({"prompt": [1] * 8192}, 400, "BadRequestError", "maximum context length is 8192 tokens"),
        ({"prompt": [1] * 8000, "max_tokens": 200}, 400, "BadRequestError", "for a total of 8200 tokens"),
        ({"prompt": "x", "max_tokens": 0}, 400, "BadRequestError", "max_tokens must be at least 1"),
        ({"prompt": "x", "max_tokens": 2, "min_tokens": 3}, 400, "BadRequestError", "min_tokens"),
        ({"prompt": "x", "n": 2}, 400, "BadRequestError", "not simulated"),
        ({}, 400, "BadRequestError", "prompt"),
        ({"prompt": "x", "stream_options": {"include_usage": True}}, 400, "BadRequestError", "stream=True"),
    ],
)
async def test_mistakes_get_the_answers_of_vllm(run_server, body, status, kind, text):
    """Status, type and message of the error object."""
    async with run_server() as running:
        got, answer = await running.post(**body)

    assert got == status
    assert answer["error"]["type"] == kind
    assert answer["error"]["code"] == status
    assert text in answer["error"]["message"]


async def test_bad_json_and_unknown_routes(run_server):
    """400, 404, 405."""
    async with run_server() as running:
        async with running.session.post(f"{running.url}/v1/completions", data=b"{") as answer:
            assert answer.status == 400
        async with running.session.get(f"{running.url}/nothing") as answer:
            assert (answer.status, await answer.json()) == (404, {"detail": "Not Found"})
        async with running.session.get(f"{running.url}/v1/completions") as answer:
            assert answer.status == 405
        async with running.session.get(f"{running.url}/is_sleeping") as answer:
            assert answer.status == 404


async def test_small_routes(run_server):
    """Health, ping, version, models, load, tokenize."""
    async with run_server("--enable-server-load-tracking") as running:
        for path in ("/health", "/ping"):
            async with running.session.get(running.url + path) as answer:
                assert (answer.status, await answer.read()) == (200, b"")
        async with running.session.get(f"{running.url}/version") as answer:
            assert await answer.json() == {"version": "0.33.0"}
        async with running.session.get(f"{running.url}/v1/models") as answer:
            models = (await answer.json())["data"]
        async with running.session.get(f"{running.url}/load") as answer:
            assert await answer.json() == {"server_load": 0}
        _, counted = await running.post("/tokenize", prompt="one two three")

    assert [(model["id"], model["root"], model["max_model_len"]) for model in models] == [
        ("m", "big/model", 8192),
        ("also", "big/model", 8192),
    ]
    assert counted["count"] == 3


async def test_an_api_key_is_asked_for(run_server):
    """On /v1 only."""
    async with run_server("--api-key", "secret") as running:
        status, _ = await running.post(prompt="x")
        assert status == 401
        headers = {"Authorization": "Bearer secret"}
        async with running.session.get(f"{running.url}/v1/models", headers=headers) as answer:
            assert answer.status == 200
        async with running.session.get(f"{running.url}/health") as answer:
            assert answer.status == 200


async def test_a_full_queue_answers_503_and_counts(run_server):
    """The second request meets --max-num-queued-reqs 1; rejections are counted by reason."""
    async with run_server("--max-num-queued-reqs", "1") as running:
        long = asyncio.ensure_future(running.post(prompt="x", max_tokens=200))
        await asyncio.sleep(0.05)
        status, answer = await running.post(prompt="x")
        metrics = await running.metrics()
        assert (await long)[0] == 200

    assert status == 503
    assert answer["error"]["type"] == "Service Unavailable"
    label = 'vllm:admission_rejections_total{model_name="m",reason="%s"}'
    assert metrics[label % "max_num_queued_reqs"] == 1
    assert metrics[label % "max_num_queued_tokens"] == 0


async def test_a_client_that_leaves_frees_its_place_and_is_counted_nowhere(run_server):
    """As vLLM: running falls to 0, no success, no per-request histogram, but its first token was seen."""
    async with run_server() as running:
        body = {"model": "m", "prompt": [1] * 100, "max_tokens": 4000, "stream": True}
        async with aiohttp.ClientSession() as leaving:
            answer = await leaving.post(f"{running.url}/v1/completions", json=body)
            await answer.content.readany()
            assert (await running.metrics())['vllm:num_requests_running{engine="0",model_name="m"}'] == 1
        await asyncio.sleep(0.05)
        metrics = await running.metrics()

    labels = '{engine="0",model_name="m"}'
    assert metrics[f"vllm:num_requests_running{labels}"] == 0
    assert metrics[f"vllm:kv_cache_usage_perc{labels}"] == 0
    assert metrics[f"vllm:e2e_request_latency_seconds_count{labels}"] == 0
    assert metrics[f"vllm:time_to_first_token_seconds_count{labels}"] == 1
    assert metrics[f"vllm:prompt_tokens_total{labels}"] == 100
    success = {name: value for name, value in metrics.items() if name.startswith("vllm:request_success_total")}
    assert len(success) == 5
    assert set(success.values()) == {0}


async def test_many_streams_at_once_are_complete(run_server):
    """40 clients, each gets exactly its tokens; the engine's counters agree."""
    async with run_server() as running:

        async def one(index):
            body = {"model": "m", "prompt": [index] * 30, "max_tokens": 20 + index, "stream": True}
            async with running.session.post(f"{running.url}/v1/completions", json=body) as answer:
                return len(await events(answer)) - 1

        counts = await asyncio.gather(*(one(index) for index in range(40)))
        metrics = await running.metrics()

    assert counts == [20 + index for index in range(40)]
    assert metrics['vllm:generation_tokens_total{engine="0",model_name="m"}'] == sum(counts)
    assert metrics['vllm:request_success_total{engine="0",finished_reason="length",model_name="m"}'] == 40
    assert metrics['vllm:num_requests_running{engine="0",model_name="m"}'] == 0


async def test_tokens_come_at_the_simulated_pace(run_server):
    """100 steps of the plant take at least their simulated time and not much more: lateness does not add up."""
    async with run_server() as running:
        times = running.server.engine.times
        loop = asyncio.get_running_loop()
        began = loop.time()
        await running.post(prompt=[1], max_tokens=200)
        took = loop.time() - began
    simulated = 0.001 + sum(times.step_seconds(0, 1, context) for context in range(200))

    assert simulated <= took
    assert took < simulated + 0.5


async def test_faster_time_shortens_the_wait_and_leaves_the_figures(run_server, fast_plant):
    """At speed 5 a request of a simulated second takes a fifth of one, and is a second in the metrics."""
    slow = dataclasses.replace(fast_plant, step_overhead_seconds=0.1)
    async with run_server(plant=slow, speed=5.0) as running:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await running.post(prompt=[1], max_tokens=11)
        took = loop.time() - began
        metrics = await running.metrics()

    assert 0.2 <= took < 0.8
    assert 1.0 <= metrics['vllm:request_decode_time_seconds_sum{engine="0",model_name="m"}'] < 1.1


async def test_while_draining_new_requests_get_500_and_old_ones_end(run_server):
    """As measured on vLLM; health and metrics stay 200."""
    async with run_server() as running:
        old = asyncio.ensure_future(running.post(prompt="x", max_tokens=100))
        await asyncio.sleep(0.05)
        running.server.drain()
        status, answer = await running.post(prompt="x")
        async with running.session.get(f"{running.url}/health") as health:
            assert health.status == 200
        await running.metrics()
        assert (await old)[1]["usage"]["completion_tokens"] == 100

    assert status == 500
    assert answer["error"]["message"] == "cannot schedule new futures after shutdown"
