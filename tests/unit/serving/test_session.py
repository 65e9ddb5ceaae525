"""Session cookies: format, keys, what counts as no session."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import TimestampSigner

from gym_compose.serving import session as sessions
from gym_compose.serving.session import Session, SessionCookie, read_cookies, signing_secret

NAME = "Weather___weather_1"


def cookie_of(secret: str = NAME) -> SessionCookie:
    return SessionCookie(NAME, secret)


def scope(cookie: str) -> dict[str, object]:
    return {"type": "http", "headers": [(b"cookie", cookie.encode("latin-1"))]}


@pytest.fixture(autouse=True)
def no_deployment_key() -> Iterator[None]:
    yield
    sessions.set_deployment_key(None)


def test_the_value_is_what_the_field_writes() -> None:
    session = Session(session_id=str(uuid.uuid4()))
    header = cookie_of().dump(session).decode()
    assert header.startswith(f"{NAME}=")
    assert header.endswith("; path=/; Max-Age=1209600; httponly; samesite=lax")
    value = header.split("=", 1)[1].split(";")[0]
    payload = base64.b64decode(TimestampSigner(NAME).unsign(value))
    assert payload == json.dumps(session).encode()  # json.dumps: "key": "value" with a space, as Starlette writes it


def test_a_cookie_written_by_starlettes_rule_is_read() -> None:
    value = TimestampSigner(NAME).sign(base64.b64encode(json.dumps({"session_id": "s1", "agent_session_id": "a"}).encode())).decode()
    assert cookie_of().load(scope(f"other=1; {NAME}={value}")) == {"session_id": "s1", "agent_session_id": "a"}
    assert cookie_of().load(scope(f'{NAME}="{value}"')).id == "s1"


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "other=1",
        f"{NAME}=",
        f"{NAME}=garbage",
        f"{NAME}=a.b.c",
        f"{NAME}=" + TimestampSigner("another key").sign(base64.b64encode(b'{"session_id":"s1"}')).decode(),
        f"{NAME}=" + TimestampSigner(NAME).sign(base64.b64encode(b"[1]")).decode(),
        f"{NAME}=" + TimestampSigner(NAME).sign(base64.b64encode(b'{"session_id": 7}')).decode(),
        f"{NAME}=" + TimestampSigner(NAME).sign(b"not base64 \xff").decode("latin-1"),
        f"x{NAME}=" + TimestampSigner(NAME).sign(base64.b64encode(b'{"session_id":"s1"}')).decode(),
    ],
)
def test_a_cookie_that_does_not_verify_is_a_new_session(cookie: str) -> None:
    loaded = cookie_of().load(scope(cookie))
    assert uuid.UUID(loaded.id).version == 4
    assert list(loaded) == ["session_id"]


def test_an_expired_cookie_is_a_new_session(monkeypatch: pytest.MonkeyPatch) -> None:
    old = cookie_of()
    value = old.dump(Session(session_id="s1")).decode().split("=", 1)[1].split(";")[0]
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda self: 2**33)
    assert cookie_of().load(scope(f"{NAME}={value}")).id != "s1"


def test_a_cookie_that_came_back_is_sent_again_until_its_session_changes_or_it_is_old() -> None:
    now = [0.0]
    cookie = SessionCookie(NAME, NAME, clock=lambda: now[0])
    first = cookie.dump(Session(session_id="s1"))
    sent = first.decode().split(";")[0]
    session = cookie.load(scope(sent))
    assert cookie.dump(session) == first
    session["agent_session_id"] = "a"
    assert cookie.load(scope(cookie.dump(session).decode().split(";")[0])) == {"session_id": "s1", "agent_session_id": "a"}
    assert cookie.load(scope(sent)) == {"session_id": "s1"}  # what is remembered does not change with a session
    now[0] = sessions.RESENT_SECONDS
    assert cookie.load(scope(sent)).text is None
    assert cookie.load(scope(sent)).id == "s1"


def test_only_so_many_cookies_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "REMEMBERED", 2)
    cookie = cookie_of()
    sent = [cookie.dump(Session(session_id=f"s{number}")).decode().split(";")[0] for number in range(3)]
    loaded = [cookie.load(scope(text)) for text in sent]
    assert [session.id for session in loaded] == ["s0", "s1", "s2"]
    assert [session.text is None for session in loaded] == [True, False, False]


def test_the_secret_is_the_cookie_name_until_the_launcher_gives_a_key() -> None:
    assert signing_secret(NAME) == NAME
    sessions.set_deployment_key("run key")
    assert signing_secret(NAME) != signing_secret("Other___x") != NAME
    forged = SessionCookie(NAME, NAME).dump(Session(session_id="s1")).decode().split("=", 1)[1].split(";")[0]
    assert cookie_of(signing_secret(NAME)).load(scope(f"{NAME}={forged}")).id != "s1"


@given(st.text(alphabet=st.characters(blacklist_characters=';"', min_codepoint=33, max_codepoint=126), min_size=1), st.booleans())
def test_values_survive_the_header(value: str, quoted: bool) -> None:
    text = f'"{value}"' if quoted else value
    assert read_cookies(f"a=1; name={text};b=2") == {"a": "1", "name": value, "b": "2"}


@given(st.text(max_size=80))
def test_any_header_is_read_without_an_error(text: str) -> None:
    assert all(name and ";" not in name for name in read_cookies(text))
