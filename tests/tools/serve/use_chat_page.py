#!/usr/bin/env python3
"""Chats on a server's page in headless Chromium as a person would; prints what it sees.

usage: use_chat_page.py SCRATCH URL      exits 77 without a browser
"""

import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).absolute().parents[3]
sys.path.insert(0, str(ROOT / "tools/scripts"))
import chromium  # noqa: E402

NO_BROWSER = 77
TYPE = "document.getElementById({id}).value = {text};" \
       "document.getElementById({id}).dispatchEvent(new Event('change'));"
LAST = "([...document.querySelectorAll('.{kind}')].at(-1)?.textContent ?? '')"
BUTTON = "document.getElementById('send').textContent"


def main():
    scratch, url = sys.argv[1:]
    if chromium.find() is None:
        return NO_BROWSER
    with chromium.Browser(scratch) as browser:
        page = chromium.Page(browser, url, width=390)

        def type_in(field, text):
            page.evaluate(TYPE.format(id=json.dumps(field), text=json.dumps(text)))

        def wait(condition):
            end = time.monotonic() + chromium.PATIENCE_S
            while not page.evaluate(condition):
                if time.monotonic() > end:
                    raise RuntimeError("waited in vain for " + condition)
                time.sleep(0.02)

        def send(text):
            type_in("say", text)
            page.evaluate("document.getElementById('form').requestSubmit()")

        seen = {}
        name = "document.getElementById('model').textContent"
        wait(name + " !== ''")
        seen["without_key"] = page.evaluate(name)
        send("Hello")
        wait("document.querySelector('.error') !== null")
        seen["refused"] = page.evaluate(LAST.format(kind="error"))
        type_in("key", "sesame")
        wait(name + " === 'echo'")
        seen["model"] = page.evaluate(name)
        type_in("system", "Be kind.")
        send("Hello")
        wait(BUTTON + " === 'Send' && " + LAST.format(kind="assistant") + " !== ''")
        seen["answer"] = page.evaluate(LAST.format(kind="assistant")).strip()
        # An answer that would go on for long: the fake repeats this prompt.
        page.evaluate("document.getElementById('fresh').click()")
        type_in("system", "")
        send("x" * 200)
        wait(LAST.format(kind="assistant") + " !== ''")
        seen["running_button"] = page.evaluate(BUTTON)
        page.evaluate("document.getElementById('form').requestSubmit()")
        wait(BUTTON + " === 'Send'")
        seen["stopped"] = page.evaluate(LAST.format(kind="assistant"))
        seen["button_after"] = page.evaluate(BUTTON)
        seen["overflow"] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        page.evaluate("document.getElementById('fresh').click()")
        seen["turns_after_new_chat"] = page.evaluate("document.querySelectorAll('.turn').length")
        seen["messages"] = page.messages()
        seen["requests"] = page.requests()
    print(json.dumps(seen))
    return 0


sys.exit(main())
