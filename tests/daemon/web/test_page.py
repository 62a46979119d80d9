"""The page in a real Chromium: what it shows, that it moves, and that it changes something for the token alone."""

import concurrent.futures
import contextlib
import json
import pathlib
import socket
from collections.abc import Iterator

import numpy as np
import pytest

import shmreplay as sr
from tests.daemon.web.browser import Browser, Page
from tests.daemon.web.fake_stats import FakeStats
from tests.daemon.web.served import Served
from tests.daemon.web.test_site import asker_of
from tests.support.daemons import DaemonProcess, table
from tests.support.waiting import WAIT_S, eventually

STEP = {"x": np.ones(3, np.float32), "n": 7}
ROWS = "document.querySelectorAll('tbody tr').length"
CLIENT_ROWS = "[...document.querySelectorAll('.client.row')].filter(row => !row.hidden)"
MODEL = "import('/screen.js').then(screen => screen.model)"
SIZES = {"desktop": (1440, 900), "tablet": (820, 1100), "phone": (390, 844)}


@contextlib.contextmanager
def opened(browser: Browser, address: str, width: int = 1280, height: int = 900, **media: str) -> Iterator[Page]:
    """A page that is asked for and shows something; nothing may have been complained of at its end."""
    page = browser.open(address, width, height, **media)
    try:
        page.wait_until("document.querySelector('#state').textContent === 'live'")
        yield page
        assert page.complaints() == []
    finally:
        page.close()


@pytest.fixture(scope="module")
def many(browser: Browser, served: Served) -> Iterator[Page]:
    """The page of 50 tables and 1,000 clients, which several tests look at."""
    with opened(browser, served.address) as page:
        page.wait_until(f"{ROWS} === 50")
        yield page


# --- 50 tables and 1,000 clients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.one_quick
def test_all_of_it_can_be_read_on_any_screen(
    browser: Browser, served: Served, size: str, scheme: str, tmp_path: pathlib.Path
) -> None:
    with opened(browser, served.address, *SIZES[size], prefers_color_scheme=scheme) as page:
        page.wait_until(f"{ROWS} === 50")
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the screen"
        assert contrast(page, "body") > 7
        for selector in ("td.name", "#facts dt", ".badge.warn", "#troubles button", "#said", "button.danger"):
            assert contrast(page, selector) > 4.5, selector
        assert (page.run("getComputedStyle(document.documentElement).getPropertyValue('--back')") < "#8") == (
            scheme == "dark"
        )
        page.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 20_000  # one of a single colour has 5,000


CONTRAST = """(selector => {
    const light = text => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255)
            .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b;
    };
    let element = document.querySelector(selector);
    const text = light(getComputedStyle(element).color);
    while (/, 0\\)$/.test(getComputedStyle(element).backgroundColor)) element = element.parentElement;
    const back = light(getComputedStyle(element).backgroundColor);
    return (Math.max(text, back) + .05) / (Math.min(text, back) + .05);
})"""


def contrast(page: Page, selector: str) -> float:
    """Of a text to what is behind it, as WCAG has it: 4.5 is the least for reading, 7 is comfortable."""
    found: float = page.run(f"{CONTRAST}({json.dumps(selector)})")
    return found


def test_only_those_clients_are_drawn_that_are_on_the_screen(many: Page) -> None:
    assert "1,000" in many.run("document.querySelector('#client-count').textContent")
    assert 5 < many.run(f"{CLIENT_ROWS}.length") < 40
    assert many.run(f"{CLIENT_ROWS}[0].innerText").startswith("10000")
    many.run("document.querySelector('#client-scroll').scrollTop = 1e9")
    many.wait_until(f"{CLIENT_ROWS}.some(row => row.innerText.startsWith('10999'))")
    many.run("document.querySelector('#client-scroll').scrollTop = 0")


def test_clients_are_found_by_what_they_are(many: Page) -> None:
    many.click("#client-filter")
    many.type("learner table_07")
    many.wait_until("document.querySelector('#client-count').textContent === '2 of 1,000'")
    assert all("← table_07" in text for text in many.run(f"{CLIENT_ROWS}.map(row => row.innerText)"))
    many.type("")
    many.run("document.activeElement.value = ''; document.activeElement.dispatchEvent(new Event('input'))")
    many.click(".client.top button[data-key=waits]")
    many.wait_until(f"{CLIENT_ROWS}[0].innerText.includes('to sample: table_43, 74 s')")


def test_tables_are_found_and_sorted(many: Page) -> None:
    many.click("#table-filter")
    many.type("paused")
    many.wait_until(f"{ROWS} === 5")
    assert many.run("[...document.querySelectorAll('tbody tr')].map(row => row.dataset.table)") == [
        f"table_{number}7" for number in range(5)
    ]
    many.run("document.activeElement.value = ''; document.activeElement.dispatchEvent(new Event('input'))")
    many.click("th[data-key=name] button")
    many.wait_until("document.querySelector('tbody tr').dataset.table === 'table_49'")
    assert many.run("document.querySelector('th[data-key=name]').getAttribute('aria-sort')") == "descending"
    many.click("th[data-key=name] button")


def test_faults_come_first_and_each_blocked_call_is_listed_with_its_reason(many: Page) -> None:
    assert "table_03: 3 calls to sample wait, the longest for 34 s" in many.run("$('troubles').innerText")
    assert many.run("document.title").startswith("(10) shmreplayd default")
    waits = many.run("document.querySelector('#waits').innerText")
    assert "table_43 3 calls to sample wait, the longest for 74 s." in waits
    assert "at 8 samples per insert)" in waits
    assert "learner 10043 (74 s), learner 10093 (74 s)" in waits


def test_a_ratio_is_held_against_one_that_is_asked_for_where_the_limiter_has_bounds(many: Page) -> None:
    shown = "[...document.querySelectorAll('tbody tr')].slice(0, 5).map(row => row.innerText.includes(' of 8'))"
    many.wait_until(f"({shown}).some(found => found)")
    assert many.run(shown) == [False, True, True, True, False]


def test_the_bar_of_a_ratio_is_as_full_as_the_ratio_is_reached(many: Page) -> None:
    row = "document.querySelector('tbody tr[data-table=table_01]')"
    many.wait_until(f"/[\\d.]+ of 8/.test({row}.innerText)")
    reached, width = many.run(
        f"""(() => {{
            const cell = {row}.querySelector('.bar .fill-sample').closest('td');
            return [parseFloat(cell.innerText), parseFloat(cell.querySelector('b').style.width)];
        }})()"""
    )
    assert width == pytest.approx(min(100, 100 * reached / 8), abs=0.2)


def test_the_busiest_table_is_opened(browser: Browser, served: Served) -> None:
    with opened(browser, served.address) as page:
        page.wait_until(f"{ROWS} === 50 && document.querySelectorAll('#detail-charts .legend i').length > 2")
        rates = """%s.then(async model => {
            while (model.history.count < 2) await new Promise(requestAnimationFrame);
            return Object.fromEntries([...model.tables.values()].map(
                ({ name, series }) => [name, series.inserts[1] + series.samples[1]]));
        })"""
        found = page.run(rates % MODEL)
        assert page.run("$('detail-name').textContent") == max(found, key=lambda name: found[name])


def test_a_pane_that_is_cut_says_so_and_scrolls(browser: Browser, served: Served) -> None:
    with opened(browser, served.address) as page:
        page.wait_until("getComputedStyle($('detail-more')).display === 'block'")
        assert page.run("$('detail-more').getBoundingClientRect().bottom <= innerHeight")
        page.run("$('detail-scroll').scrollTop = 1e6")
        page.wait_until("getComputedStyle($('detail-more')).display === 'none'")


def test_charts_move_and_tell_what_is_under_the_pointer(many: Page) -> None:
    many.click("tbody tr[data-table=table_02]")
    many.wait_until("document.querySelector('#detail-name').textContent === 'table_02'")
    drawn = "[...document.querySelectorAll('#overview canvas, #detail-charts canvas')].map(c => c.toDataURL())"
    many.wait_until("/inserts \\d/.test(document.querySelector('#detail-charts .legend').innerText)")
    many.run(f"window.before = {drawn}")
    many.wait_until(f"{drawn}.filter((now, place) => now !== before[place]).length >= 5")
    many.wait_until("/mean/.test([...document.querySelectorAll('#detail-charts .legend')].at(-1).innerText)")
    place = many.run(
        """(() => {
            const chart = document.querySelector('#detail-charts canvas');
            chart.scrollIntoView({block: 'center'});
            const box = chart.getBoundingClientRect();
            return {x: box.right - 20, y: box.y + 40};
        })()"""
    )
    many.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
    many.wait_until("/ ago$/.test(document.querySelector('#detail-charts .legend').innerText.trim())")


def test_drawing_stops_where_somebody_wants_to_look(many: Page) -> None:
    many.click("#freeze")
    many.wait_until("document.querySelector('#state').textContent === 'frozen'")
    seen = many.run(f"{MODEL}.then(model => model.history.count)")
    assert (
        many.run(f"import('/main.js').then(main => main.tick()).then(() => {MODEL}).then(m => m.history.count)") == seen
    )
    drawn = "document.querySelector('#overview canvas').toDataURL()"
    many.run(f"window.before = {drawn}")
    many.click("#freeze")
    many.wait_until(f"{drawn} !== before && $('state').textContent === 'live'")


def test_on_a_phone_a_table_takes_the_screen_and_gives_it_back(browser: Browser, served: Served) -> None:
    with opened(browser, served.address, *SIZES["phone"]) as page:
        page.wait_until(f"{ROWS} === 50")
        assert page.run("document.querySelector('#detail').hidden")
        page.click("tbody tr[data-table=table_03]")
        page.wait_until("document.querySelector('#detail').getBoundingClientRect().width === innerWidth")
        assert "3 calls to sample wait" in page.run("document.querySelector('#detail-why').innerText")
        page.click("#detail-back")
        page.wait_until("document.querySelector('#detail').hidden")


def test_a_phone_shows_who_waits(browser: Browser, served: Served) -> None:
    with opened(browser, served.address, *SIZES["phone"]) as page:
        page.wait_until(f"{ROWS} === 50")
        assert page.run("$('waits').getBoundingClientRect().top < $('tables').getBoundingClientRect().top")
        page.click("#client-filter")
        page.type("learner table_03 waits")
        page.wait_until(f"{CLIENT_ROWS}.some(row => row.innerText.includes('waits to sample: table_03, 34 s'))")


def test_no_name_becomes_html(browser: Browser, tmp_path: pathlib.Path) -> None:
    served = Served(FakeStats(2, 30, actor="<img src=x:>"), tmp_path / "token")
    try:
        with opened(browser, served.address) as page:
            page.wait_until(f"{CLIENT_ROWS}.some(row => row.innerText.includes('<img src=x:>'))")
            assert page.run("document.images.length") == 0
    finally:
        served.close()


def test_of_a_damaged_arena_nothing_is_shown_but_that_it_is(browser: Browser, tmp_path: pathlib.Path) -> None:
    served = Served(FakeStats(2, 3, {"error": "No space left on device"}, is_damaged=True), tmp_path / "token")
    try:
        with opened(browser, served.address) as page:
            page.wait_until(f"{ROWS} === 3")
            assert page.run("[...document.querySelectorAll('#troubles .bad')].map(item => item.textContent)") == [
                "The last checkpoint was not saved: No space left on device",
                "Arena damaged has failed: its index is damaged",
                "The files of arena damaged were removed from /dev/shm: the next daemon will not find it",
            ]
            page.click("tbody tr[data-table=damaged]")
            page.wait_until("$('detail-facts').innerText.includes('its index is damaged') && $('detail-charts').hidden")
            page.click("th[data-key=inserts] button")
            page.wait_until("document.querySelector('tbody tr:last-child').dataset.table === 'damaged'")
    finally:
        served.close()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else is given, for servers that listen there one after the other."""
    with socket.socket() as keeper:  # it does not listen: then others that reuse the address may
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]


def test_a_daemon_that_goes_is_told_of_and_found_again(browser: Browser, tmp_path: pathlib.Path, port: int) -> None:
    served = Served(FakeStats(2, 3), tmp_path / "token", port)
    page = browser.open(served.address)
    try:
        page.wait_until(f"{ROWS} === 2")
    finally:
        served.close()
    page.wait_until("/^no answer from the daemon since .*; trying again$/.test($('state').textContent)")
    again = Served(FakeStats(3, 3), tmp_path / "token", port)
    try:
        page.wait_until(f"{ROWS} === 3 && $('state').textContent === 'live'")
    finally:
        page.close()
        again.close()


# --- a real daemon, and changes ----------------------------------------------------------------------------------


def test_a_real_daemon_is_changed_with_its_token_alone(browser: Browser, shown: DaemonProcess) -> None:
    asker = asker_of(shown)
    with shown.connect() as client:
        limiter = sr.rate_limiters.SampleToInsertRatio(2, 2, 10)
        client.create_tables([table("replay", rate_limiter=limiter)])
        handle = client.table("replay")
        handle.insert(STEP)
        page = browser.open(asker.address)
        page.wait_until("document.querySelector('#detail-name').textContent === 'replay'")
        page.click(button("Pause inserts"))
        page.wait_until("$('dialog').open")
        assert page.run("document.querySelector('#dialog pre').innerText") == f"cat {asker.token_path}"
        page.type("not this")
        page.click("#dialog button[type=submit]")
        page.wait_until(
            "$('dialog').innerText.includes('The daemon does not accept this token. It may be from an earlier start.')"
        )
        assert not handle.info().paused_inserts
        page.type(asker.token)
        page.click("#dialog button[type=submit]")
        page.wait_until("$('said').innerText.includes('replay: inserts are paused until somebody resumes them.')")
        assert handle.info().paused_inserts
        page.wait_until("$('detail-badges').innerText.includes('inserts paused')")
        page.click(button("Resume"))
        page.wait_until("$('said').innerText.includes('replay: resumed.')")
        assert not handle.info().paused_inserts
        set_ratio(page)
        info = handle.info()
        assert (info.samples_per_insert, info.min_size_to_sample, info.min_diff, info.max_diff) == (3, 2, -4, 16)
        page.click("#checkpoint")
        page.wait_until("$('said').innerText.includes('Saved as ')")
        page.click(button("Reset …"))
        page.wait_until("$('dialog').open")
        page.type("replay")
        page.click("#dialog button[type=submit]")
        page.wait_until("$('said').innerText.includes('replay is empty.')")
        assert len(handle) == 0
        page.click(button("Drop …"))
        page.wait_until("$('dialog').open")
        page.type("other")
        page.click("#dialog button[type=submit]")
        page.wait_until("$('dialog').innerText.includes('The name is replay.')")
        assert "replay" in client.tables()
        page.type("replay")
        page.click("#dialog button[type=submit]")
        page.wait_until("$('table-empty').innerText.startsWith('There are no tables yet.')")
        assert client.tables() == {}
        # The browser itself tells of the two answers that were refusals.
        assert [text for text in page.complaints() if "401" not in text and "400" not in text] == []
        page.close()


def button(text: str) -> str:
    """The selector of an action's button, which is told from the others by its place."""
    actions = ["Pause inserts", "Pause samples", "Resume", "Set ratio …", "Reset …", "Drop …"]
    return f"#detail-actions button:nth-child({actions.index(text) + 1})"


def set_ratio(page: Page) -> None:
    """To 3 samples per insert, after one that cannot be."""
    page.click(button("Set ratio …"))
    page.wait_until("$('dialog').open")
    assert page.run("[...document.querySelectorAll('#dialog input')].map(input => input.value)") == ["2", "2", ""]
    page.type("-1")
    page.click("#dialog button[type=submit]")
    page.wait_until("$('said').innerText.includes('the ratio is -1.0; expected a finite number > 0')")
    page.click(button("Set ratio …"))
    page.wait_until("$('dialog').open")
    page.type("3")
    page.click("#dialog button[type=submit]")
    page.wait_until("$('said').innerText.includes('replay: the ratio is now 3 samples per insert.')")


def test_an_idle_table_is_no_trouble(browser: Browser, shown: DaemonProcess) -> None:
    with shown.connect() as client:
        client.create_tables([table("imported")])
    with shown.connect() as other:
        other.table("imported").insert(STEP)
        other.table("imported").sample(1)
    with opened(browser, asker_of(shown).address) as page:
        page.wait_until("$('detail-badges').innerText === 'no writers no learners'")
        assert page.run("$('troubles').hidden")
        assert page.run("document.querySelectorAll('.badge.warn, .badge.bad').length") == 0
        assert page.run("document.title").startswith("shmreplayd ")
    with shown.connect() as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        client.pause("imported", inserts=True, samples=False)
        call = pool.submit(client.table("imported").insert, STEP, timeout_s=WAIT_S)
        eventually(lambda: client.tables()["imported"]["blocked_inserts"] == 1)
        with opened(browser, asker_of(shown).address) as page:
            page.wait_until(
                "$('troubles').innerText.includes('imported: all learners have gone, and 1 call waits for them')"
            )
        client.resume("imported")
        call.result(WAIT_S)
        client.drop_table("imported")


def test_a_blocked_call_at_a_real_daemon_is_shown_with_its_reason(browser: Browser, shown: DaemonProcess) -> None:
    with shown.connect() as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        client.create_tables([table("waited")])
        call = pool.submit(client.table("waited").sample, 1, timeout_s=WAIT_S)
        eventually(lambda: client.tables()["waited"]["blocked_samples"] == 1)
        with opened(browser, asker_of(shown).address) as page:
            page.wait_until("$('waits').innerText.includes('1 call to sample waits')")
            assert "the table is empty; waiting for an insert" in page.text()
            client.table("waited").insert(STEP)
            call.result(WAIT_S)
            page.wait_until("$('waits').hidden")
        client.drop_table("waited")


def test_a_link_with_the_token_unlocks_and_leaves_it_nowhere(browser: Browser, served: Served) -> None:
    with opened(browser, f"{served.address}/#token={served.token}") as page:
        assert page.run("$('lock').textContent") == "Forget the token"
        assert page.run("location.href") == f"{served.address}/"
        before = len(served.commands.asked)
        page.click("#checkpoint")
        page.wait_until("$('said').innerText.includes('Saved as /saved/1.checkpoint.')")
        assert [request["command"] for request in served.commands.asked[before:]] == ["checkpoint"]
        page.click("#lock")
        page.wait_until("$('lock').textContent === 'Enter the token …'")
        assert page.run("sessionStorage.length + localStorage.length") == 0


def test_the_browser_holds_it_to_its_policy(browser: Browser, served: Served) -> None:
    page = browser.open(served.address)
    tried = "(() => { try { %s; return 'done' } catch (error) { return error.name } })()"
    assert page.run(tried % "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')") == "TypeError"
    assert page.run(tried % "document.write('x')") == "TypeError"
    assert page.complaints() != []
    before = len(page.complaints())
    page.run(f"fetch({json.dumps(served.address.replace('127.0.0.1', 'localhost'))}).catch(() => null)")
    page.run("new Promise(resolve => { const image = new Image(); image.onerror = resolve; image.src = '/x.png'; })")
    refused = page.complaints()[before:]
    for directive in ("connect-src", "img-src"):
        assert any(directive in text for text in refused), refused
    page.close()


def test_another_page_can_neither_read_nor_change(browser: Browser, served: Served) -> None:
    page = browser.open("data:text/html,<title>another</title>")
    page.wait_until("document.title === 'another'")
    before = list(served.commands.asked)
    tried = """fetch(%s, %s).then(answer => answer.type, error => error.name)"""
    stats, drop = json.dumps(f"{served.address}/api/stats"), json.dumps(f"{served.address}/api/drop")
    assert page.run(tried % (stats, "{}")) == "TypeError"
    assert page.run(tried % (stats, "{mode: 'no-cors'}")) == "TypeError"  # of another site: kept from it altogether
    change = {"method": "POST", "mode": "no-cors", "body": '{"tables": ["table_00"]}'}
    page.run(tried % (drop, json.dumps(change)))
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    assert page.run(tried % (drop, json.dumps({**change, "mode": "cors", "headers": headers}))) == "TypeError"
    assert served.commands.asked == before
    page.close()
