#!/usr/bin/env python3
"""Opens report pages in headless Chromium and prints what there is to see, as JSON.

usage: look_at_pages.py SCRATCH PAGE...

A PAGE is FILE:WIDTH:MODE with the mode light, dark, noscript or print. Exits 77 without a browser.
"""

import json
import pathlib
import struct
import sys
import zlib

ROOT = pathlib.Path(__file__).absolute().parents[3]
sys.path.insert(0, str(ROOT / "tools/scripts"))
import chromium  # noqa: E402

NO_BROWSER = 77
# Marks that draw data: what Vega calls the axes' and legends' own parts is left out.
MARKS = """Object.fromEntries([...document.querySelectorAll('.chart')].map(chart => [chart.id,
  chart.querySelectorAll(['rect', 'symbol', 'rule', 'text'].map(
    kind => `.plot .mark-${kind}.role-mark > *`)).length]))"""
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
ROWS = """[...document.querySelectorAll('.ranking tbody tr')].filter(
  row => row.checkVisibility() && row.offsetHeight > 0).length"""
# Folds out, filters and sorts, as a reader would.
USE = """(() => {
  const table = document.querySelector('.ranking');
  if (!table || !table.querySelector('input')) return null;
  const layouts = () => [...table.tBodies[0].rows].filter(r => !r.classList.contains('out'))
    .map(r => r.cells[1].querySelector('code').textContent);
  const type = (column, text) => {
    const input = table.querySelectorAll('input')[column];
    input.value = text;
    input.dispatchEvent(new Event('input'));
  };
  const seen = {};
  document.querySelector('.more-rows').click();
  seen.all = layouts().length;
  type(1, 'zero=1');
  seen.filtered = layouts();
  type(1, '');
  type(0, '<= 3');
  seen.compared = layouts();
  type(0, '');
  table.querySelectorAll('th button')[0].click();
  seen.reversed = layouts()[0];
  table.querySelectorAll('th button')[0].click();
  return seen;
})()"""
TOOLTIP = """(() => {
  const mark = document.querySelector('.plot .mark-rect.role-mark > path');
  if (!mark) return null;
  const box = mark.getBoundingClientRect();
  mark.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: box.x + 2,
                                                      clientY: box.y + 2}));
  mark.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: box.x + 2,
                                                  clientY: box.y + 2}));
  const tooltip = document.querySelector('.tooltip');
  return tooltip && tooltip.textContent;
})()"""


def colours_of(png):
    """How many colours a PNG of 8-bit RGB or RGBA has."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8 and kind in (2, 6), "not RGB"
    place, data = 8, b""
    while place < len(png):
        length, name = struct.unpack(">I4s", png[place:place + 8])
        if name == b"IDAT":
            data += png[place + 8:place + 8 + length]
        place += 12 + length
    data, size = zlib.decompress(data), 3 if kind == 2 else 4
    stride, above, colours = width * size, bytes(width * size), set()
    for y in range(height):
        method, line = data[y * (stride + 1)], bytearray(data[y * (stride + 1) + 1:][:stride])
        for i in range(stride):
            left = line[i - size] if i >= size else 0
            corner = above[i - size] if i >= size else 0
            guess = left + above[i] - corner
            nearest = min((left, above[i], corner), key=lambda each: abs(guess - each))
            line[i] = line[i] + (0, left, above[i], (left + above[i]) // 2, nearest)[method] & 255
        colours |= {bytes(line[i:i + 3]) for i in range(0, stride, size)}
        above = line
    return len(colours)


def look(browser, file, width, mode):
    page = chromium.Page(browser, file, int(width), dark=mode == "dark", scripts=mode != "noscript",
                         media="print" if mode == "print" else "screen")
    seen = {
        "overflow": page.evaluate(OVERFLOW),
        "width": page.evaluate("innerWidth"),
        "marks": page.evaluate(MARKS),
        "rows": page.evaluate(ROWS),
        "colours": colours_of(page.screenshot(scale=0.2)),
        "background": page.evaluate("getComputedStyle(document.body).backgroundColor"),
        "use": page.evaluate(USE) if mode != "noscript" else None,
        "tooltip": page.evaluate(TOOLTIP) if mode != "noscript" else None,
    }
    return {**seen, "messages": page.messages(), "requests": page.requests()}


def main():
    if chromium.find() is None:
        return NO_BROWSER
    with chromium.Browser(sys.argv[1]) as browser:
        print(json.dumps({view: look(browser, *view.rsplit(":", 2)) for view in sys.argv[2:]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
