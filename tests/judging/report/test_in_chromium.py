"""The page in a real browser: nothing refused, nothing fetched, every chart there, on a phone and on a desk."""

import pytest
from chromium import PROGRAM, Chromium

from gpnn import report

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium on this machine; on Debian: apt-get install chromium"
)

BOXES = """[...document.querySelectorAll('figure, svg')].map(e => e.getBoundingClientRect())
    .map(box => [box.width, box.height])"""
BEYOND = """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll')
    && (e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5))
    .map(e => e.outerHTML.slice(0, 80))"""
COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg text')).fill]"
SMALLEST = """Math.min(...[...document.querySelectorAll('svg text')].map(e =>
    parseFloat(getComputedStyle(e).fontSize) * e.closest('svg').getBoundingClientRect().width / 360))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    running = Chromium(tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory, wavy_diagnosis):
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.write(wavy_diagnosis, path)
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_is_whole(browser, page, width, dark):
    visit = browser.open(page, width, dark)
    assert visit.messages == []
    assert visit.requests == [page.as_uri()]
    boxes = browser.evaluate(BOXES)
    assert len(boxes) == 9 + 11
    assert all(100 < box[0] <= width and box[1] > 40 for box in boxes)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(BEYOND) == []
    assert browser.evaluate(SMALLEST) > 9.5  # pixels


def test_dark_is_dark(browser, page):
    def brightness(colours):
        return [sum(map(int, colour.strip("rgb()").split(", "))) for colour in colours]

    browser.open(page, dark=False)
    paper, ink = brightness(browser.evaluate(COLOURS))
    assert paper > 600 > 300 > ink
    browser.open(page, dark=True)
    paper, ink = brightness(browser.evaluate(COLOURS))
    assert paper < 150 < 400 < ink


def test_the_policy_holds(browser, page, tmp_path):
    """That a page with a script and a foreign picture is caught, so that silence above means something."""
    broken = tmp_path / "broken.html"
    extra = "<script>document.title = 'ran'</script><img src='https://example.invalid/x.png'></main>"
    broken.write_text(page.read_text().replace("</main>", extra))
    assert len([message for message in browser.open(broken).messages if "Content Security Policy" in message]) == 2
    assert browser.evaluate("document.title") == "gpnn: height"
