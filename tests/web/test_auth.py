import base64

import pytest

from support.burrow.recorded_bodies import recorded_body
from support.web.credentials import make_credentials
from support.web.website import make_website

TOKEN = "rèad-me"
READ = ["/", "/group?cluster=a&consumer=b", "/api/v1/groups", "/api/v1/group?cluster=a&consumer=b", "/api/v1/reporters",
        "/api/v1/event-log", "/openapi.json", "/config", "/reporters", "/reporters/prometheus"]  # fmt: skip
OPEN = ["/healthz", "/readyz", "/heartbeat"]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": "Bearer " + token.encode().decode("latin-1")}


def as_password(token: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anyone:{token}".encode()).decode()}


@pytest.mark.parametrize("path", READ)
def test_readers_send_the_token_as_bearer_or_as_password(path: str) -> None:
    client = make_website(credentials=make_credentials(api_token=TOKEN)).client
    refused = client.get(path)
    assert refused.status_code == 401
    assert refused.headers.getlist("WWW-Authenticate") == [
        'Basic realm="karrot", charset="UTF-8"',
        'Bearer realm="karrot"',
    ]
    assert client.get(path, headers=bearer("wrong")).status_code == 401
    assert client.get(path, headers=as_password("wrong")).status_code == 401
    assert client.get(path, headers=bearer(TOKEN)).status_code in (200, 404)
    assert client.get(path, headers=as_password(TOKEN)).status_code in (200, 404)


@pytest.mark.parametrize("token", ["a:b", ":", "x" * 30_000], ids=["a colon", "only a colon", "30,000 letters"])
def test_a_token_may_have_colons_and_any_length(token: str) -> None:
    client = make_website(credentials=make_credentials(api_token=token)).client
    for headers in (bearer(token), as_password(token)):
        assert client.get("/api/v1/groups", headers=headers).status_code == 200


def test_a_token_in_another_place_opens_nothing() -> None:
    client = make_website(credentials=make_credentials(api_token=TOKEN)).client
    username = "Basic " + base64.b64encode(f"{TOKEN}:".encode()).decode()
    alone = "Basic " + base64.b64encode(TOKEN.encode()).decode()
    for authorization in (username, alone, bearer(f"anyone:{TOKEN}")["Authorization"]):
        assert client.get("/api/v1/groups", headers={"Authorization": authorization}).status_code == 401


@pytest.mark.parametrize("path", READ)
def test_everybody_can_read_without_a_token(path: str) -> None:
    assert make_website().client.get(path).status_code in (200, 404)


BROWSER = {"Accept-Language": "en", "Accept": "text/html,*/*"}
EVENT = recorded_body("karrot_v1.9.5_err_stop.json")


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example", "Content-Type": "text/plain"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_page_of_another_site_cannot_forge_an_event(headers: dict[str, str], method: str) -> None:
    website = make_website(external_url="https://karrot.example")
    answer = website.client.open("/burrow", method=method, data=EVENT, headers=BROWSER | headers)
    assert (answer.status_code, answer.get_json()["code"]) == (403, "cross_site")
    assert website.log.size().events == 0


@pytest.mark.parametrize("host", ["evil.example", "evil.example.:5000", "karrot.example.evil.example", "x.10.0.0.com"])
def test_a_page_cannot_read_after_its_name_got_the_address_of_karrot(host: str) -> None:
    client = make_website(external_url="https://karrot.example/karrot").client
    for path in (*READ, *OPEN, "/metrics", "/nothing"):
        answer = client.get(path, headers={**BROWSER, "Host": host, "Accept": "*/*"})
        assert (answer.status_code, answer.get_json()["code"]) == (403, "cross_site")


@pytest.mark.parametrize(
    "headers",
    [
        *({**BROWSER, "Host": host} for host in ("karrot.example", "KARROT.example:5000", "karrot:5000", "localhost")),
        *({**BROWSER, "Host": host} for host in ("10.0.0.7:5000", "[::1]:5000", "karrot.tools.svc.cluster.local")),
        *({**BROWSER, "Host": host} for host in ("[::ffff:10.0.0.7]", "karrot.example.:5000", "karrot.home.arpa")),
        *({"Host": host} for host in ("karrot.tools:5000", "10.0.0.7:5000", "internal-1.elb.amazonaws.com")),
    ],
)
def test_programs_may_use_every_name_and_browsers_the_known_ones(headers: dict[str, str]) -> None:
    website = make_website(external_url="https://karrot.example/karrot")
    assert website.client.post("/burrow", data=EVENT, headers=headers).status_code == 202
    for path in ("/", "/metrics", "/readyz", "/api/v1/groups"):
        assert website.client.get(path, headers=headers).status_code == 200


def test_without_an_external_url_every_name_is_known() -> None:
    headers = BROWSER | {"Host": "karrot.example:5000", "Origin": "http://karrot.example:5000"}
    website = make_website()
    assert website.client.get("/", headers=headers).status_code == 200
    assert website.client.post("/burrow", data=EVENT, headers=headers).status_code == 202


@pytest.mark.parametrize("path", OPEN)
def test_probes_never_need_a_token(path: str) -> None:
    assert (
        make_website(credentials=make_credentials(api_token=TOKEN), metrics_auth=True).client.get(path).status_code
        == 200
    )


def test_metrics_need_the_token_only_if_the_setting_is_on() -> None:
    assert make_website(credentials=make_credentials(api_token=TOKEN)).client.get("/metrics").status_code == 200
    guarded = make_website(credentials=make_credentials(api_token=TOKEN), metrics_auth=True).client
    assert guarded.get("/metrics").status_code == 401
    assert guarded.get("/metrics", headers=bearer(TOKEN)).status_code == 200


def test_the_token_of_readers_does_not_open_the_webhook() -> None:
    client = make_website(credentials=make_credentials(api_token=TOKEN, token="tok")).client
    body = recorded_body("karrot_v1.9.5_warn.json")
    assert client.post("/burrow", data=body, headers=bearer(TOKEN)).status_code == 401
    assert client.post("/burrow", data=body, headers=bearer("tok")).status_code == 202
    assert client.get("/api/v1/groups", headers=bearer("tok")).status_code == 401


@pytest.mark.parametrize("path", READ)
def test_the_previous_token_of_readers_is_valid_too(path: str) -> None:
    client = make_website(credentials=make_credentials(api_token="new", api_token_previous=TOKEN)).client
    for token in ("new", TOKEN):
        assert client.get(path, headers=bearer(token)).status_code in (200, 404)
        assert client.get(path, headers=as_password(token)).status_code in (200, 404)
    for wrong in ("", "old", f"new{TOKEN}"):
        assert client.get(path, headers=bearer(wrong)).status_code == 401
        assert client.get(path, headers=as_password(wrong)).status_code == 401


def test_both_tokens_of_readers_open_the_metrics() -> None:
    credentials = make_credentials(api_token="new", api_token_previous=TOKEN)
    client = make_website(credentials=credentials, metrics_auth=True).client
    statuses = [client.get("/metrics", headers=bearer(token)).status_code for token in ("new", TOKEN, "other")]
    assert statuses == [200, 200, 401]


def test_no_secret_is_in_a_repr() -> None:
    names = ("password", "password_previous", "token", "token_previous", "api_token", "api_token_previous")
    credentials = make_credentials(username="burrow", **dict.fromkeys(names, "canary"))
    assert repr(credentials) == "Credentials()"
    assert "canary" not in repr(make_website(credentials=credentials).context)
