"""The page at / in a real browser: asks the model, by keyboard alone, on a phone and on a desk, light and dark."""

import time

import pytest
from asking import Running, flats, rows_of
from chromium import PROGRAM, Chromium

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium on this machine; on Debian: apt-get install chromium"
)

BEYOND = """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && e.getClientRects().length
    && (e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5))
    .map(e => e.outerHTML.slice(0, 120))"""
UNNAMED = """[...document.querySelectorAll('input, select, button')].filter(e => !e.labels?.length
    && !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.outerHTML.slice(0, 120))"""
SMALLEST = """Math.min(...[...document.querySelectorAll('svg text')].map(e =>
    parseFloat(getComputedStyle(e).fontSize) * e.closest('svg').getBoundingClientRect().width / 360))"""
HEADLINE = "document.getElementById('headline').textContent"
FOCUS = "document.activeElement.id"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    running = Chromium(tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def server(models, tmp_path_factory, new_flats):
    folder = tmp_path_factory.mktemp("server")
    files = [str(models / "flats.gpnn"), str(models / "plain.gpnn")]
    running = Running(*files, "--jobs", "1", "--log", str(folder / "log"), folder=folder)
    some = new_flats[:300]
    running.ask("POST", "/observe", {"rows": rows_of(some), "y": some["price"].tolist()})
    yield running
    running.stop()


def until(browser, condition: str, wanted=True):
    for _ in range(200):
        if (found := browser.evaluate(condition)) == wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"{condition}: {found!r}, not {wanted!r}; {browser.evaluate(HEADLINE)}")


def opened(browser, server, width=1200, dark=False):
    visit = browser.open(f"http://127.0.0.1:{server.port}/", width, dark)
    until(browser, "document.querySelectorAll('#outcomes svg').length", 2)
    return visit


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_is_whole(browser, server, width, dark):
    visit = opened(browser, server, width, dark)
    assert visit.messages == []
    assert all(address.startswith((f"http://127.0.0.1:{server.port}/", "data:")) for address in visit.requests)
    assert browser.evaluate("document.querySelectorAll('svg').length") == 4
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(BEYOND) == []
    assert browser.evaluate(UNNAMED) == []
    assert browser.evaluate(SMALLEST) > 9
    assert browser.evaluate("document.querySelectorAll('#near tbody tr').length") == 8
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background.strip("rgb()").split(", "))) < 150) == dark


def test_by_keyboard_alone(browser, server):
    """From the top: to the first slider, along it, into the number beside it, to the menu, to the reset."""
    opened(browser, server)
    typical = browser.evaluate(HEADLINE)
    reached = []
    while not reached or reached[-1] != "field-0-slider":
        browser.press("Tab")
        reached.append(browser.evaluate(FOCUS))
        assert len(reached) < 10, reached
    browser.press("ArrowRight", 40)
    until(browser, f"{HEADLINE} !== {typical!r}")
    browser.press("Tab")
    assert browser.evaluate(FOCUS) == "field-0"
    browser.evaluate("document.activeElement.select()")
    for letter in "500":
        browser.press(letter)
    until(browser, "document.querySelector('.beyond label')?.textContent", "area")
    assert "take it with care" in browser.evaluate("document.getElementById('lead').textContent")
    while browser.evaluate("document.activeElement.type") != "reset":
        browser.press("Tab")
        reached.append(browser.evaluate(FOCUS))
        assert len(reached) < 40, reached
    assert {"field-2", "field-3", "field-4"} <= set(reached)
    browser.press("Enter")
    until(browser, HEADLINE, typical)
    facts = server.ask("GET", "/model").json["columns"]
    row = {column["name"]: column["typical"] for column in facts}
    mean = server.ask("POST", "/predict", {"rows": [row]}).json["mean"][0]
    assert typical == f"price: {mean:,.{max(0, 3 - len(str(int(abs(mean)))) + 1)}f}".rstrip("0").rstrip(".")


def test_every_input_moves(browser, server):
    opened(browser, server)
    for number in range(5):
        browser.evaluate(
            f"document.getElementById('moved').selectedIndex = {number};"
            "document.getElementById('moved').dispatchEvent(new Event('change'))"
        )
        name = browser.evaluate("document.getElementById('moved').value")
        until(browser, f"document.querySelector('#sweep svg')?.getAttribute('aria-label').includes('with {name}:')")
        assert "NaN" not in browser.evaluate("document.querySelector('#sweep').innerHTML")


def test_another_model(browser, server):
    opened(browser, server)
    browser.evaluate(
        "document.getElementById('models').value = 'plain';"
        "document.getElementById('models').dispatchEvent(new Event('change'))"
    )
    until(browser, f"{HEADLINE}.startsWith('y: ')")
    assert browser.evaluate("document.querySelectorAll('#fields .field').length") == 3


def test_a_table_comes_back(browser, server, tmp_path):
    table = flats(50, seed=4)
    table.to_csv(tmp_path / "new.csv", index=False)
    opened(browser, server)
    browser.choose_file("#file", tmp_path / "new.csv")
    until(browser, "document.querySelector('#table-text a')?.download", "new_predicted.csv")
    assert "50 rows predicted" in browser.evaluate("document.getElementById('table-text').textContent")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    browser.choose_file("#file", tmp_path / "bad.csv")
    until(browser, "document.getElementById('table-text').textContent.includes('no column')")


def test_a_token_is_asked_for(browser, models, tmp_path):
    (tmp_path / "tokens").write_text("# for the page\nsome-token-of-twenty\n")
    running = Running(str(models / "plain.gpnn"), "--token-file", str(tmp_path / "tokens"), folder=tmp_path)
    try:
        browser.open(f"http://127.0.0.1:{running.port}/")
        until(browser, FOCUS, "token")
        for letter in "some-token-of-twenty":
            browser.press(letter)
        browser.press("Enter")
        until(browser, f"{HEADLINE}.startsWith('y: ')")
    finally:
        running.stop()


def test_what_can_be_asked(browser, server):
    for width in (360, 1200):
        visit = browser.open(f"http://127.0.0.1:{server.port}/docs", width)
        assert visit.messages == []
        assert browser.evaluate("document.querySelectorAll('.card').length") == 9
        assert browser.evaluate(BEYOND) == []
