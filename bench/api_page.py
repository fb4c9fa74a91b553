"""What readers of the service's pages wait for and load, and what the service takes beside a bare FastAPI application.

A job writes the time into each line; the page that follows it, in Debian's Chromium, notes when the line is there.
Needs `chromium`, and Playwright of the extra `test`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from api import Service, get, ours
from measure import Row, cpu_seconds, flux_command, pss, report
from playwright.sync_api import Page, sync_playwright

LINES = 60
# The time in milliseconds in each line, five lines a second.
WRITER = f"for n in $(seq {LINES}); do date +%s%3N; sleep .2; done"
PAGES = ("/jobs", "/submit", "/queue", "/machine", "/statistics")
BARE = """\
import fastapi, uvicorn
app = fastapi.FastAPI()
@app.get("/")
async def root(): return {}
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error")
"""
# Collects [time at which a text was there, text] of what is added to the output.
OBSERVE = """
window.seen = [];
const written = document.getElementById("written");
new MutationObserver(changes => {
  for (const change of changes) for (const node of change.addedNodes) seen.push([Date.now(), node.textContent]);
}).observe(written, {childList: true});
"""


def bare(port: int = 5078) -> Service:
    process = subprocess.Popen([sys.executable, "-c", BARE.replace("PORT", str(port))], text=True)
    service = Service("bare FastAPI", process, f"http://127.0.0.1:{port}")
    while process.poll() is None:
        try:
            get(service.url + "/")
            return service
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the bare application does not start")


def delays(page: Page, url: str) -> list[float]:
    """Milliseconds from when each line was written until it was on the page."""
    submit = [flux_command(), "submit", "sh", "-c", WRITER]
    job = subprocess.run(submit, capture_output=True, text=True, check=True).stdout.strip()
    page.goto(f"{url}/jobs/{job}")
    page.evaluate(OBSERVE)
    deadline = time.monotonic() + 120
    while len("".join(text for _, text in page.evaluate("seen")).split()) < LINES - 10 and time.monotonic() < deadline:
        page.wait_for_timeout(500)
    seen = page.evaluate("seen")
    return [at - int(line) for at, text in seen for line in text.split()]


def first_view(page: Page, url: str) -> tuple[int, int]:
    """Requests and bytes of bodies until the page is there, with nothing cached."""
    bodies: list[int] = []
    page.on("response", lambda answer: bodies.append(len(answer.body())))
    page.goto(url, wait_until="networkidle")
    return len(bodies), sum(bodies)


def memory(when: str, services: list[Service]) -> list[Row]:
    sizes = [pss(service.process.pid) / 1e6 for service in services]
    note = f"{sizes[0] / sizes[1]:.2f} of the bare application, at most 1.8"
    return [
        Row(f"PSS {when}, {one.name}", size, "MB", "", note if one is services[0] else "")
        for one, size in zip(services, sizes)
    ]


def drive() -> None:
    """Runs inside the instance and prints the rows as JSON."""
    subprocess.run([flux_command(), "submit", "--cc=1-50", "--quiet", "--wait", "true"], check=True)
    services = [ours(), bare()]
    try:
        rows = measured(services)
    finally:
        for service in services:
            service.process.terminate()
            service.process.wait()
    print(json.dumps([row.__dict__ for row in rows]))


def measured(services: list[Service]) -> list[Row]:
    one = services[0]
    rows = memory("at start", services)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for path in PAGES:
            context = browser.new_context()
            number, size = first_view(context.new_page(), one.url + path)
            rows.append(Row(f"first view of {path}", size / 1000, "kB", "150", f"{number} requests, at most 10"))
            context.close()
        found = delays(browser.new_page(), one.url)
        rows.append(Row("a line is on the page after", statistics.median(found), "ms", "250", f"of {len(found)} lines"))
        browser.close()
    begin = [cpu_seconds(service.process.pid) for service in services]
    time.sleep(30)
    for service, before in zip(services, begin):
        used = (cpu_seconds(service.process.pid) - before) / 30 * 100
        rows.append(Row(f"idle, {service.name}", used, "% of a core", "0.1" if service is one else ""))
    rows += memory("idle", services)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        drive()
        return
    with tempfile.TemporaryDirectory() as folder:
        inside = [sys.executable, os.path.abspath(__file__), "--inside"]
        done = subprocess.run([flux_command(), "start", *inside], cwd=folder, stdout=subprocess.PIPE, check=True)
    report([Row(**row) for row in json.loads(done.stdout)], options.json)


if __name__ == "__main__":
    main()
