"""Looks at a job's status page in Chromium, for page_browser_test.cpp.

page_browser.py CASE LINK PROFILE ARTEFACTS: opens the link, and prints a line for each step that
the page has shown. Screenshots go to ARTEFACTS.
"""

import http.server
import os
import pathlib
import sys
import threading

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

GENEROUS = 60  # seconds; what is waited for comes at once


class Page:
    """The page in a browser of its own."""

    def __init__(self, case, link, profile, artefacts):
        self.case = case
        self.artefacts = pathlib.Path(artefacts)
        options = webdriver.ChromeOptions()
        options.add_argument("--headless=new")
        options.add_argument("--disable-gpu")
        options.add_argument("--disable-dev-shm-usage")
        options.add_argument("--disable-background-networking")
        options.add_argument("--no-first-run")
        options.add_argument(f"--user-data-dir={profile}")
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.screen(1300, 1000)
        self.driver.get(link)

    def screen(self, width, height, dark=False, mobile=False):
        """Gives the page this screen."""
        self.size = (width, height, mobile)
        self.dark = dark
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def shot(self, name):
        """Keeps a picture of the whole page."""
        width, height, mobile, dark = *self.size, self.dark
        # The part below the screen is not rendered.
        self.screen(width, self.ask("document.documentElement.scrollHeight"), dark, mobile)
        self.driver.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        )
        self.driver.save_screenshot(str(self.artefacts / f"{self.case}_{name}.png"))
        self.screen(width, height, dark, mobile)

    def ask(self, script, *arguments):
        """The value that JavaScript returns."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def until(self, script, *arguments):
        """Waits until JavaScript says that it is so."""
        wait = WebDriverWait(self.driver, GENEROUS, poll_frequency=0.05)
        wait.until(lambda _: self.ask(script, *arguments), f"never came true: {script} {arguments}")

    def text(self, element):
        """The text of an element with this id."""
        return self.ask("document.getElementById(arguments[0]).textContent", element)

    def until_workers(self, number):
        """Waits until so many workers with a rank are in the picture and in the numbers."""
        self.until(
            "document.querySelectorAll('#picture .cell[data-look=work]').length === arguments[0]"
            " && document.getElementById('world-size').textContent === String(arguments[0])",
            number,
        )

    def check_console(self, allowed=()):
        """Nothing went wrong in the page."""
        for entry in self.driver.get_log("browser"):
            expected = any(word in entry["message"] for word in allowed)
            assert expected or entry["level"] not in ("SEVERE", "WARNING"), entry


def say(step):
    """Tells the test what has been seen."""
    print(step, flush=True)


def check_link_is_used_up(page):
    """The address bar has neither key nor token, and there is no cookie."""
    assert page.ask("location.pathname + location.search + location.hash") == "/"
    assert page.driver.get_cookies() == [], page.driver.get_cookies()


def loss(page):
    """A worker is lost, a new one takes its place, and the job ends."""
    page.until_workers(3)
    check_link_is_used_up(page)
    assert page.ask("document.querySelectorAll('#picture [data-rank0]').length") == 1
    assert page.text("state") == "running"
    before = int(page.text("world-number"))
    page.until("document.getElementById('steps').textContent.endsWith('/s')")
    page.until("document.getElementById('link').dataset.link === 'live'")
    say("three workers are shown")

    cause = "was killed by SIGKILL"
    page.until("document.getElementById('worlds-table').textContent.includes(arguments[0])", cause)
    page.until("document.getElementById('events').textContent.includes(arguments[0])", cause)
    page.until("Number(document.getElementById('world-number').textContent) > arguments[0]", before)
    page.until_workers(3)
    page.until("document.querySelectorAll('#entries .bar .part[data-part=connect]').length >= 1")
    assert page.ask("document.querySelector('#worlds-plot .line').getAttribute('d').length") > 20
    page.shot("after")
    say("the loss is shown")

    page.until("document.getElementById('link').textContent === 'closed'")
    assert "exit code 0" in page.text("notice"), page.text("notice")
    assert page.ask("document.querySelectorAll('#picture .cell').length") >= 3
    assert page.ask("document.querySelectorAll('#events .event').length") >= 3
    page.shot("end")
    say("the end is shown")
    page.check_console(allowed=("ERR_CONNECTION_REFUSED", "ERR_EMPTY", "ERR_INCOMPLETE"))


def hosts(page):
    """A host comes with three slots; then the page on several screens."""
    page.until_workers(2)
    say("two workers are shown")
    page.until_workers(5)
    names = page.ask("[...document.querySelectorAll('.host-name')].map((e) => e.textContent)")
    assert names == ["localhost", "127.0.0.1"], names
    page.until("document.getElementById('worlds-table').textContent.includes('joined')")
    say("the new host is shown")

    grounds = set()
    for dark in (False, True):
        for width, mobile in ((1300, False), (390, True)):
            page.screen(width, 900, dark, mobile)
            page.until("innerWidth === arguments[0]", width)
            page.until("document.querySelector('#worlds-plot svg').clientWidth < innerWidth")
            assert page.ask("document.documentElement.scrollWidth") <= width
            widest = page.ask(
                "Math.max(...[...document.querySelectorAll('main > *, section, .plot, .events')]"
                ".map((e) => e.getBoundingClientRect().right))"
            )
            assert widest <= width, widest
            grounds.add(page.ask("getComputedStyle(document.body).backgroundColor"))
            check_contrast(page)
            page.shot(f"{width}_{'dark' if dark else 'light'}")
    assert len(grounds) == 2, grounds
    page.check_console()


def check_contrast(page):
    """Text stands out from its ground as WCAG AA wants it, once its colours have changed."""
    page.until("document.getAnimations().length === 0")
    low = page.ask("""(() => {
      const parts = (color) => color.match(/[\\d.]+/g).map(Number);
      const light = (color) => {
        const [r, g, b] = parts(color).map((c) => {
          c /= 255;
          return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ground = (e) => {
        for (; e; e = e.parentElement) {
          const color = getComputedStyle(e).backgroundColor;
          if (parts(color)[3] !== 0) return color;
        }
        return 'rgb(255, 255, 255)';
      };
      const low = [];
      const all = 'h1, h2, h3, p, dt, dd, summary, th, td, .cell, .badge, .event span, time, label';
      for (const e of document.querySelectorAll(all)) {
        if (!e.textContent.trim() || !e.checkVisibility()) continue;
        const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) low.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio]);
      }
      return low;
    })()""")
    assert low == [], low


def keyboard(page):
    """Everything can be reached and used without a pointer."""
    page.until_workers(3)
    press = lambda *keys: ActionChains(page.driver).send_keys(*keys).perform()  # noqa: E731
    focused = "(document.activeElement.id || document.activeElement.className)"
    press(Keys.TAB)
    assert page.ask(focused) == "skip", page.ask(focused)
    assert page.ask("document.activeElement.getBoundingClientRect().left") >= 0
    press(Keys.ENTER)
    assert page.ask(focused) == "main", page.ask(focused)

    press(Keys.TAB)
    assert page.ask(focused) == "picture", page.ask(focused)
    outline = page.ask("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", outline
    assert "rank 0" in page.text("detail"), page.text("detail")
    press(Keys.ARROW_RIGHT)
    assert "rank 1" in page.text("detail"), page.text("detail")
    press(Keys.END)
    assert "rank 2" in page.text("detail"), page.text("detail")
    active = page.ask(
        "document.getElementById("
        "document.getElementById('picture').getAttribute('aria-activedescendant'))"
        ".getAttribute('aria-label')"
    )
    assert active.startswith("rank 2"), active

    press(Keys.TAB)
    press(Keys.ENTER)
    page.until("document.getElementById('workers-details').open")
    page.until("document.querySelectorAll('#workers-table tr').length === 3")
    reach(page, press, "worlds-plot")
    press(Keys.END)
    assert page.text("worlds-readout").startswith("World "), page.text("worlds-readout")
    reach(page, press, "workers", attribute="name")
    press(Keys.SPACE)
    assert not page.ask("document.querySelector('input[name=workers]').checked")
    reach(page, press, "search")
    press("no such event")
    page.until("document.querySelectorAll('#events .event').length === 0")
    reach(page, press, "events")
    page.shot("focus")
    check_names(page)
    page.check_console()


def reach(page, press, wanted, attribute="id"):
    """Presses Tab until an element has the focus."""
    for _ in range(60):
        press(Keys.TAB)
        if page.ask("document.activeElement.getAttribute(arguments[0])", attribute) == wanted:
            return
    raise AssertionError(f"Tab does not lead to {wanted}")


def check_names(page):
    """A screen reader has a name for whatever can have the focus, and for each part."""
    nameless = page.ask("""[...document.querySelectorAll(
      'section, [tabindex="0"], input, form, [role=listbox] [role=option]')].filter((e) =>
      !e.getAttribute('aria-label') && !e.labels?.length &&
      !document.getElementById(e.getAttribute('aria-labelledby'))?.textContent)
      .map((e) => e.outerHTML.slice(0, 80))""")
    assert nameless == [], nameless
    assert page.ask("document.querySelectorAll('main').length") == 1
    assert page.ask("document.querySelectorAll('h1').length") == 1
    assert page.ask("document.getElementById('announcement').getAttribute('aria-live')") == "polite"
    assert "3 workers" in page.text("announcement"), page.text("announcement")


def text(page):
    """The command of this job looks like HTML."""
    page.until("document.getElementById('command').textContent.includes('<img src=x onerror=')")
    assert page.ask("document.images.length") == 0
    assert (
        page.ask("document.querySelectorAll('script:not([src]), style, [style*=url]').length") == 0
    )
    page.check_console()


SHOWN_TO_STRANGER = []  # the header fields of each request


class Stranger(http.server.BaseHTTPRequestHandler):
    """Another user's program, at another port of the machine."""

    def do_GET(self):
        """Answers with a page."""
        SHOWN_TO_STRANGER.append(self.headers)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>stranger</title>")

    def log_message(self, *_):
        """Says nothing."""


def ports(page):
    """The browser comes to another port of the same address, and back; then in another tab."""
    page.until_workers(2)
    ours = page.ask("location.href")
    secrets = page.ask("Object.values(localStorage)")
    assert len(secrets) == 1, secrets
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        page.driver.get(f"http://127.0.0.1:{stranger.server_port}/")
        page.until("document.title === 'stranger'")
        assert page.ask("Object.values(localStorage)") == []
        assert page.ask("document.cookie") == ""
        stranger.shutdown()
    assert SHOWN_TO_STRANGER
    for headers in SHOWN_TO_STRANGER:
        assert "Cookie" not in headers, headers
        assert secrets[0] not in str(headers), headers

    page.driver.get(ours)
    page.until_workers(2)
    page.driver.switch_to.new_window("tab")
    page.driver.get(ours)
    page.until_workers(2)
    page.driver.execute_script("localStorage.clear()")
    page.driver.refresh()
    page.until("document.getElementById('notice').textContent.includes('hvdrun page ')")


def lost(page):
    """Hvdrun stands still, goes on, and then goes without a word."""
    page.until_workers(2)
    page.until("document.getElementById('link').dataset.link === 'live'")
    say("two workers are shown")
    page.until("document.getElementById('link').textContent === 'connection lost'")
    assert "does not answer" in page.text("notice"), page.text("notice")
    say("hvdrun is missed")
    page.until("document.getElementById('link').dataset.link === 'live'")
    say("hvdrun is back")
    page.until("document.getElementById('link').textContent === 'connection lost'")
    assert "cannot be reached" in page.text("notice"), page.text("notice")
    assert page.ask("document.querySelectorAll('#picture .cell[data-look=work]').length") == 2
    page.shot("connection")


def main():
    """Runs one case."""
    case, *arguments = sys.argv[1:]
    page = Page(case, *arguments)
    cases = {"loss": loss, "hosts": hosts, "keyboard": keyboard, "text": text}
    cases |= {"lost": lost, "ports": ports}
    is_well = False
    try:
        cases[case](page)
        is_well = True
    finally:
        if not is_well:
            page.shot("failed")
            print(page.driver.get_log("browser"), file=sys.stderr)
        page.driver.quit()


if __name__ == "__main__":
    main()
