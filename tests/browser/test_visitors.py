"""Servers of their own: one that is shared, by browsers and without, and one that cannot write."""

import contextlib
import re
import urllib.error
import urllib.request

import psutil
import pytest
from driving import START, fresh_page, go, run, served, settled, sound, upload
from permissions import heed_permissions
from playwright.sync_api import expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from waiting import until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from mlem_core.tasks import visitors
from mlem_core.tasks.visitors import signature


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """A shared server for all tests of this file."""
    folder = tmp_path_factory.mktemp("server")
    settings = folder / "shared.toml"
    settings.write_text("upload_mb = 0.5\nuploads_mb = 1\n")
    with served(folder, MLEM_SHARED=str(settings)) as app:
        yield app


def asked(url, **more):
    """The status of an answer, its text, and the cookie that it gives."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **more), timeout=30) as answer:
            given = answer.headers.get("set-cookie", "").partition(";")[0]
            return answer.status, answer.read().decode(), given
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), ""


@contextlib.contextmanager
def window(app, cookie, **headers):
    """The connection of a page that a browser with a cookie shows, and its session."""
    host = app.url.removeprefix("http://")
    headers = {"Origin": app.url, "Cookie": cookie, **headers}
    stream = f"ws://{host}/_stcore/stream"
    with connect(
        stream, subprotocols=["streamlit"], additional_headers=headers, max_size=None
    ) as page:
        first = BackMsg()
        first.rerun_script.query_string = ""
        page.send(first.SerializeToString())
        while True:
            said = ForwardMsg.FromString(bytes(page.recv(60)))  # type: ignore[arg-type]
            if said.WhichOneof("type") == "new_session":
                break
        yield page, said.new_session.initialize.session_id


@pytest.mark.parametrize(
    ("origin", "opens"),
    [
        ("{}", True),
        ("http://localhost:9", False),  # a browser sends the cookie of a host to all its ports
        ("http://127.0.0.1:{port}", False),
        ("http://other.org", False),
        ("null", False),
    ],
)
def test_only_pages_of_the_server_open_a_session(app, origin, opens):
    _, _, cookie = asked(app.url)
    origin = origin.format(app.url, port=app.url.rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        if not opens:
            refused = stack.enter_context(pytest.raises(InvalidStatus))
        stack.enter_context(window(app, cookie, Origin=origin))
    assert opens or refused.value.response.status_code == 403
    put = f"{app.url}/_stcore/upload_file/any/file"
    status, text, _ = asked(put, data=b"", headers={"Origin": origin}, method="PUT")
    assert status == 403 and ("another origin" in text) is not opens


def test_a_token_that_no_server_has_given_is_nobody_s(app):
    root = app.cache.absolute()
    name, _, token = asked(app.url)[2].partition("=")
    given = [token, visitors.new_token(root)]
    invented = [token.partition(".")[0], "a" * 43, f"{'a' * 43}.{token.partition('.')[2]}"]
    for one in (*given, *invented):
        there = {*(root / "visitors").glob("*/address")}
        forwarded = "198.51.100.1, 203.0.113.7"  # the last is the proxy's word
        with window(app, f"{name}={one}", **{"X-Forwarded-For": forwarded}):
            until(lambda there=there: {*(root / "visitors").glob("*/address")} - there)
        (new,) = {*(root / "visitors").glob("*/address")} - there
        assert (new.parent == visitors._store(one, root)) is (one in given), one
        assert new.read_text() == signature("203.0.113.7", root)
        again = asked(app.url, headers={"Cookie": f"{name}={one}"})[2]
        assert (again == f"{name}={one}") is (one in given)


def test_uploads_are_counted_as_they_come(app):
    cookie, other = (asked(app.url)[2] for _ in range(2))
    xsrf = asked(f"{app.url}/_stcore/health")[2]

    def put(session, n_bytes, name):
        head = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.csv"\r\n\r\n'
        headers = {
            "Content-Type": "multipart/form-data; boundary=x",
            "X-Xsrftoken": xsrf.partition("=")[2],
            "Cookie": f"{cookie}; {xsrf}",
        }
        body = head + b"x" * n_bytes + b"\r\n--x--\r\n"
        url = f"{app.url}/_stcore/upload_file/{session}/{name}"
        return asked(url, data=body, headers=headers, method="PUT")[0]

    with window(app, cookie) as (_, one), window(app, cookie) as (_, two):
        assert put(one, 700_000, "large") == 413
        assert [put(one, 400_000, name) for name in "ab"] == [204, 204]
        # Another window of the same visitor has no room of its own, another visitor has.
        assert put(two, 400_000, "c") == 413
        with window(app, other) as (_, theirs):
            assert put(theirs, 400_000, "d") == 204
    until(lambda: put(one, 10, "late") == 400)
    with window(app, cookie) as (_, again):
        # Files of nothing take place too.
        assert 8 < [put(again, 0, f"{n}") for n in range(20)].index(413) < 18


@pytest.mark.slow
def test_visitors_see_what_is_theirs(browser, app, small_csv):
    tmp_path = app.cache.parent
    listens = [
        one.laddr.ip
        for one in psutil.Process(app.process).net_connections()
        if one.status == psutil.CONN_LISTEN
    ]
    assert set(listens) <= {"127.0.0.1", "::1"} and listens
    first, second = fresh_page(browser), fresh_page(browser)
    first.goto(app.url + "/new?models=mini-bert&layers=0")
    upload(first, small_csv)
    asked = first.url.partition("?")[2]
    run(first)
    first.wait_for_url(re.compile(r"/\?"), timeout=START)
    settled(first)
    assert str(tmp_path) not in first.content()
    job = first.url.partition("analysis=")[2].partition("&")[0]
    for address in (f"/profiles?analysis={job}", f"/new?{asked}"):
        second.goto(app.url + address)
        expect(second.get_by_text("not on this machine").first).to_be_visible()
    second.goto(app.url)
    lines = second.locator('[class*="st-key-line-of-"]')
    expect(lines).to_have_count(1)
    # The same browser is the same visitor, and no page can read who it is.
    first.goto(app.url)
    expect(first.locator('[class*="st-key-line-of-"]')).to_have_count(2)
    assert "mlem_visitor" not in second.evaluate("document.cookie")
    for page in (first, second):
        assert str(tmp_path) not in page.content()
        page.context.close()
    assert "Traceback" not in app.log.read_text()


@pytest.mark.browser
@pytest.mark.slow
def test_a_server_that_may_write_nothing_shows_all_and_keeps_nothing(tmp_path, browser, small_csv):
    closed = [tmp_path / name for name in ("home", "cache")]
    for folder in closed:
        folder.mkdir(mode=0o555)
    page = fresh_page(browser)
    with served(tmp_path, before=heed_permissions, HOME=str(tmp_path / "home")) as shut:
        page.goto(f"{shut.url}/?analysis=example")
        for screen in ("Why", "Layer map", "Confidence", "Report", "New analysis"):
            go(page, screen)
            sound(page, shut)
        refused = page.get_by_test_id("stMain").get_by_text(re.compile("cannot be written")).first
        run(page)
        expect(refused).to_be_visible()
        page.reload()
        settled(page)
        expect(refused).to_have_count(0)
        page.locator('input[type="file"]').first.set_input_files(small_csv)
        expect(refused).to_be_visible()
        sound(page, shut)
        page.context.close()
    assert not any(one for folder in closed for one in folder.iterdir())
