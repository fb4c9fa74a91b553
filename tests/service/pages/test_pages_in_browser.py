"""The pages in a real browser: Debian's Chromium, driven by Playwright.

Each page in both themes, as wide as a phone and as a screen: nothing is loaded from elsewhere, nothing fails, nothing
is cut off, and axe-core finds no violation. Jobs are submitted, followed and cancelled by keyboard alone, and without
scripts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from instance import clean_env
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.service.conftest import PASSWORD, POLICY, accounted
from tests.service.test_ownership import flat

from headrace.experiments.report.archive import complete
from headrace.service.pages import login, routes
from headrace.service.store import database, users
from sizes import size
from studies import study, valued
from waiting import PATIENCE, until

CHROMIUM = shutil.which("chromium")
HEADRACE = str(Path(sys.executable).parent / "headrace")
# Theme and width in px, the first for those who run it by themselves.
VIEWS = [("dark", 390), ("light", 1280), ("light", 360), ("light", 390), ("dark", 1280)]
# Each page as the address that shows it; RUNS, WAITS and FAILED are jobs.
PAGES = {
    "/": ["/"],
    "/login": ["/login"],
    "/jobs": ["/jobs", "/jobs?state=failed", "/jobs?state=nosuch"],
    "/jobs/{id}": ["/jobs/RUNS", "/jobs/WAITS", "/jobs/FAILED", "/jobs/fNoSuchJob"],
    "/jobs/{id}/priority": ["/jobs/WAITS/priority", "/jobs/FAILED/priority"],
    "/submit": ["/submit", "/submit?from=RUNS"],
    "/queue": ["/queue"],
    "/machine": ["/machine", "/machine?state=down"],
    "/statistics": ["/statistics", "/statistics?span=90d"],
    "/banks": ["/banks", "/banks?span=24h"],
    "/banks/{bank:path}": ["/banks/physics", "/banks/biology?said=bank", "/banks/nosuch"],
    "/banks/{bank:path}/users/{user}": ["/banks/physics/users/boss"],
    "/experiments": ["/experiments"],
    "/experiments/{experiment:path}": ["/experiments/study", "/experiments/half", "/experiments/nosuch"],
    "/people": ["/people"],
    "/v2/docs": ["/v2/docs"],
}
# Routes that are asked for by pages and links.
NO_PAGES = {
    *("/jobs/{id}/output.txt", "/jobs/{id}/output/events", "/charts.css"),
    "/experiments/{experiment:path}/report.html",
}

expect.set_options(timeout=PATIENCE * 1000)
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium"),
]


class Site:
    """The service with an administrator, and a browser; `jobs` are jobs of the administrator, as PAGES names them."""

    def __init__(self, url: str, browser: Browser) -> None:
        self.url = url
        self.browser = browser
        self.jobs: dict[str, str] = {}

    def address(self, path: str) -> str:
        for name, id in self.jobs.items():
            path = path.replace(name, id)
        return self.url + path

    def page(self, logged_in: bool = True, **options: Any) -> tuple[Page, list[str]]:
        """A page in a new context, and what goes wrong in it, as texts."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(PATIENCE * 1000)
        wrong: list[str] = []

        def asked(request: Any) -> None:
            if not request.url.startswith((self.url + "/", "data:")):
                wrong.append(f"asks for {request.url}")

        def failed(request: Any) -> None:
            # What is under way when a page is left is aborted.
            if "ERR_ABORTED" not in request.failure:
                wrong.append(f"{request.url} failed: {request.failure}")

        page = context.new_page()
        page.on("request", asked)
        page.on("requestfailed", failed)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        # A status of 400 and more of the page itself is told as an error.
        page.on(
            "console", lambda said: said.type == "error" and "status of 4" not in said.text and wrong.append(said.text)
        )
        if logged_in:
            page.goto(f"{self.url}/login")
            page.fill("input[name=name]", "boss")
            page.fill("input[name=password]", PASSWORD)
            page.press("input[name=password]", "Enter")
            page.wait_for_url(re.compile("/jobs"))
        return page, wrong

    def submit(self, name: str, command: str, whole_node: bool = False) -> str:
        """Submit a job by the form; its id."""
        page, _ = self.page()
        page.goto(f"{self.url}/submit")
        page.fill("#command", command)
        page.fill("#name", name)
        if whole_node:
            page.fill("#nodes", "1")
            page.check("input[name=exclusive]")
        page.click('button[value="submit"]')
        page.wait_for_url(re.compile("/jobs/f"))
        id = page.url.rpartition("/")[2].partition("?")[0]
        page.context.close()
        return id


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    file = tmp_path_factory.mktemp("site") / "api.sqlite"
    store = database.open_file(str(file))
    users.add(store, "boss", PASSWORD, True)
    (experiments := file.parent / "experiments").mkdir()
    complete(str(study(experiments)))
    study(experiments, name="half", outcome=valued({}), ended=5, errors={("lammps-1", 1): b"no such input\n" * 9})
    associations = [("boss", 200_000, "physics"), ("cy", 200_001, "physics"), ("dee", 200_002, "plants")]
    with accounted(file.parent, POLICY, associations) as instance, sync_playwright() as playwright:
        instance.flux("submit", "--urgency=hold", "--job-name=later", "true")
        argv = [HEADRACE, "api", "start", "--port=0", "--json", "--auth=users", f"--database={file}"]
        argv.append(f"--experiments={experiments}")
        env = clean_env(FLUX_URI=instance.uri)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, cwd=file.parent) as process:
            assert process.stdout is not None
            try:
                site = Site(json.loads(process.stdout.readline())["url"], browser)
                site.jobs["FAILED"] = site.submit("bad", "sh -c 'echo no such input >&2; exit 2'")
                instance.flux("job", "wait-event", site.jobs["FAILED"], "clean")
                site.jobs["RUNS"] = site.submit("simulation", "sh -c 'echo step 1; sleep 1000'")
                site.jobs["WAITS"] = site.submit("report", "true", whole_node=True)
                # Other jobs go first.
                instance.flux("job", "urgency", site.jobs["WAITS"], "1")
                yield site
            finally:
                browser.close()
                process.terminate()
        instance.flux("cancel", "--all")


def test_no_page_is_forgotten() -> None:
    routers = login.public, login.router, routes.router
    found = {
        path for router in routers for path, route in flat(router.routes) if "GET" in getattr(route, "methods", ())
    }
    assert found - NO_PAGES == PAGES.keys() - {"/v2/docs"}


@pytest.mark.parametrize("number", range(size("views")))
@pytest.mark.parametrize("path", [path for paths in PAGES.values() for path in paths])
def test_each_page_can_be_read_by_everybody(site: Site, path: str, number: int) -> None:
    theme, width = VIEWS[number]
    viewport = {"width": width, "height": 800}
    page, wrong = site.page(path != "/login", color_scheme=theme, viewport=viewport, reduced_motion="reduce")
    page.goto(site.address(path))
    expect(page.locator("h1")).to_be_visible()
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page).response["violations"]
    shown = [(one["id"], one["help"], [node["html"] for node in one["nodes"]][:3]) for one in found]
    page.context.close()
    assert not shown and not wrong, (shown, wrong)


@pytest.mark.parametrize("path", [path for paths in PAGES.values() for path in paths])
def test_each_page_has_its_contents_without_scripts(site: Site, path: str) -> None:
    page, wrong = site.page(path != "/login", java_script_enabled=False, viewport={"width": 390, "height": 800})
    page.goto(site.address(path))
    expect(page.locator("h1")).to_be_visible()
    scripted, _ = site.page(path != "/login", viewport={"width": 390, "height": 800})
    scripted.goto(site.address(path))
    for heading in scripted.locator("h1, h2").all_inner_texts():
        assert heading in page.locator("h1, h2").all_inner_texts()
    page.context.close()
    scripted.context.close()
    assert not wrong


def test_a_report_has_its_styles_and_charts_but_no_scripts_and_no_session(site: Site) -> None:
    page, wrong = site.page(viewport={"width": 1280, "height": 800})
    page.goto(f"{site.url}/experiments/study")
    page.click("text=Report")
    expect(page.locator("h1")).to_contain_text("Experiment study")
    # Only the file's own style makes charts of this size.
    assert page.evaluate("getComputedStyle(document.querySelector('table')).borderCollapse") == "collapse"
    assert page.evaluate("self.origin") == "null" and page.locator("svg").count() >= 3
    page.context.close()
    assert not wrong


def reach(page: Page, selector: str, key: str = "Tab") -> None:
    """Go on by a key until an element has the focus, which must be seen."""
    for _ in range(100):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", selector
            return
    raise AssertionError(f"{selector} is not reached by {key}")


def test_a_job_is_submitted_followed_and_cancelled_by_keyboard_alone(site: Site) -> None:
    page, wrong = site.page()
    reach(page, "a.skip")
    reach(page, 'nav a[href="/submit"]')
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/submit"))
    reach(page, "#command")
    page.keyboard.type("sh -c 'echo first; until test -e /nosuch; do sleep 1; echo more; done'")
    reach(page, "#name")
    page.keyboard.type("by keyboard")
    reach(page, 'button[value="submit"]')
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/jobs/f"))
    expect(page.locator("h1")).to_contain_text("by keyboard")
    # Lines come onto the page that was loaded before they were written.
    until(lambda: page.locator("#written").inner_text().count("more") >= 2)
    expect(page.locator(".headline")).to_contain_text("Running")
    reach(page, 'form[action$="/cancel"] button')
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_be_visible()
    expect(page.locator(".headline")).to_contain_text("Canceled")
    page.context.close()
    assert not wrong


def test_the_same_without_scripts(site: Site) -> None:
    page, wrong = site.page(java_script_enabled=False)
    page.goto(f"{site.url}/submit")
    page.fill("#command", "sh -c 'echo first; sleep 1000'")
    page.fill("#name", "without scripts")
    page.click('button[value="submit"]')
    page.wait_for_url(re.compile("/jobs/f"))

    def again(text: str) -> bool:
        page.reload()
        return text in page.locator("main").inner_text()

    until(lambda: again("first"))
    page.click('form[action$="/cancel"] button')
    until(lambda: again("Canceled"))
    page.context.close()
    assert not wrong


def test_a_filter_stays_in_the_address_and_a_list_is_live(site: Site) -> None:
    page, wrong = site.page()
    page.goto(f"{site.url}/jobs?state=pending")
    before = page.locator("tbody tr").count()
    assert before >= 2
    expect(page.locator("#live")).to_be_visible()
    also = site.submit("also waits", "true", whole_node=True)
    expect(page.locator("tbody tr")).to_have_count(before + 1)
    page.reload()
    assert page.url.endswith("/jobs?state=pending")
    expect(page.locator("select[name=state]")).to_have_value("pending")
    # Jobs of other tests would wait behind it.
    page.goto(f"{site.url}/jobs/{also}")
    page.click('form[action$="/cancel"] button')
    expect(page.locator(".said")).to_be_visible()
    page.context.close()
    assert not wrong


def test_output_is_searched_without_loading_the_page_again(site: Site) -> None:
    page, wrong = site.page()
    page.goto(site.address("/submit"))
    page.fill("#command", "sh -c 'echo step one; exec sleep 1000'")
    page.click('button[value="submit"]')
    page.wait_for_url(re.compile("/jobs/f"))
    expect(page.locator("#written")).to_contain_text("step one")
    page.evaluate("window.loadedOnce = true")
    # Live parts rest, a search does not.
    page.click("#live")
    page.fill('input[name="find"]', "STEP")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("1 line has STEP")
    expect(page.locator("#found mark")).to_have_text("step")
    assert page.evaluate("window.loadedOnce") is True
    assert not Axe().run(page).response["violations"]
    page.context.close()
    assert not wrong


def test_a_phone_shows_reasons_and_boxes_without_scrolling_to_the_side(site: Site) -> None:
    page, wrong = site.page(viewport={"width": 390, "height": 900})
    for path, parts in (("/jobs", (".about", 'input[name="job"]', "thead a")), ("/queue", (".about",))):
        page.goto(site.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for part in parts:
            found = page.locator(f"table.cards {part}").all()
            assert found
            for one in found:
                box = one.bounding_box()
                assert box is None or (box["x"] >= 0 and box["x"] + box["width"] <= 390), part
    page.context.close()
    assert not wrong


def test_a_line_that_is_rewritten_is_shown_once_while_it_is_followed(site: Site) -> None:
    page, wrong = site.page()
    pieces = [
        {"done": [["green", "ok"], ["", "\n"]], "line": [["", "10%"]]},
        {"done": [], "line": [["", "20%"]]},
        {"done": [["", "100%\n"]], "line": []},
    ]
    events = [{"writer": "stdout 7", "stream": "stdout", **piece} for piece in pieces]
    body = "".join(f"id: {number}\ndata: {json.dumps(event)}\n\n" for number, event in enumerate(events))
    page.route(
        "**/output/events*",
        lambda route: route.fulfill(body=body + "event: end\ndata:\n\n", content_type="text/event-stream"),
    )
    page.goto(site.address("/jobs/RUNS"))
    expect(page.locator("#written")).to_contain_text("ok")
    expect(page.locator("#written .green")).to_have_text("ok")
    until(lambda: page.locator("#written").evaluate("one => one.textContent").endswith("ok\n100%\n"))
    page.context.close()
    assert not wrong
