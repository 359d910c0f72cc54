#!/usr/bin/env python3
"""Watches a study on its dashboard in headless Chromium; prints what it sees.

usage: use_dashboard.py TRIMTAB FOLDER      exits 77 without a browser

FOLDER holds whole.db, a study. The dashboard shows FOLDER/study.db, which is empty at first.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).absolute().parents[3]
sys.path.insert(0, str(ROOT / "tools/scripts"))
import chromium  # noqa: E402

NO_BROWSER = 77
# Sorts by the layout, downwards, opens the figures of a chart and types into a filter.
CHOOSE = """(() => {
  const button = () => document.querySelectorAll('#ranking th button')[1];
  button().click();
  button().click();
  document.querySelector('.chart details').open = true;
  const filter = document.querySelectorAll('#ranking th input')[1];
  filter.value = 'tp=2';
  filter.dispatchEvent(new Event('input'));
  filter.focus();
})()"""
KEPT = """(() => {
  const head = document.querySelectorAll('#ranking th')[1];
  const rows = [...document.querySelectorAll('#ranking tbody tr:not(.out)')].map(
    row => row.cells[1].textContent);
  return {sort: head.getAttribute('aria-sort'), filter: head.querySelector('input').value,
          rows: rows,
          sorted: rows.every((row, i) => i === 0 || rows[i - 1].localeCompare(row) >= 0),
          open: document.querySelector('.chart details').open,
          focused: document.activeElement === head.querySelector('input')};
})()"""


def main():
    trimtab, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if chromium.find() is None:
        return NO_BROWSER
    study = folder / "study.db"
    study.touch()
    server = subprocess.Popen([trimtab, "dashboard", "--study", study], stdout=subprocess.PIPE,
                              text=True)
    try:
        url = server.stdout.readline().strip()
        with chromium.Browser(folder) as browser:
            page = chromium.Page(browser, url, width=1280)

            def wait(condition):
                end = time.monotonic() + chromium.PATIENCE_S
                while not page.evaluate(condition):
                    if time.monotonic() > end:
                        raise RuntimeError("waited in vain for " + condition)
                    time.sleep(0.02)

            phase = "document.getElementById('phase').textContent"
            page.evaluate("window.loads = 1")
            seen = {"url": url, "before": page.evaluate(phase)}
            os.replace(folder / "whole.db", study)
            wait("document.querySelector('#ranking tbody tr') !== null")
            wait("document.querySelector('.chart .plot svg') !== null")
            seen["after"] = page.evaluate(phase)
            seen["loads"] = page.evaluate("window.loads")
            page.evaluate(CHOOSE)
            version = page.evaluate("live.dataset.version")
            os.utime(study)
            wait(f"live.dataset.version !== '{version}'")
            seen["kept"] = page.evaluate(KEPT)
            seen["rows"] = page.evaluate("document.querySelectorAll('#ranking tbody tr').length")
            seen["charts"] = page.evaluate("document.querySelectorAll('.chart .plot svg').length")
            seen["overflow"] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            seen["messages"] = page.messages()
            seen["requests"] = page.requests()
            server.send_signal(signal.SIGINT)
            seen["exit_code"] = server.wait(chromium.PATIENCE_S)
            wait("!document.getElementById('connection').hidden")
            seen["connection"] = page.evaluate("document.getElementById('connection').textContent")
    finally:
        server.kill()
        server.wait()
    print(json.dumps(seen))
    return 0


sys.exit(main())
