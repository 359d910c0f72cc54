// Asks the page's own server for what is new, and puts it in.
const REFRESH_MS = 1000;
const live = document.getElementById('live');
const connection = document.getElementById('connection');
let version = live.dataset.version;

function foldOf(details) {
  return details.closest('[id]').id + ' ' + details.querySelector('summary').textContent;
}

// Puts in the new text. What the reader opened stays open, and the cursor stays in its filter; what
// was chosen for the ranking is kept by page.js.
function replace(html) {
  const open = new Set([...live.querySelectorAll('details[open]')].map(foldOf));
  const old = live.contains(document.activeElement) ? document.activeElement : null;
  live.style.minHeight = live.offsetHeight + 'px';  // charts are drawn later
  live.innerHTML = html;
  for (const details of live.querySelectorAll('details')) details.open = open.has(foldOf(details));
  const drawn = draw().then(() => { live.style.minHeight = ''; });
  if (old instanceof HTMLInputElement) {
    const same = [...live.querySelectorAll('input')].find(
      input => input.getAttribute('aria-label') === old.getAttribute('aria-label'));
    if (same) {
      same.focus({preventScroll: true});
      same.setSelectionRange(old.selectionStart, old.selectionEnd);
    }
  }
  return drawn;
}

async function refresh() {
  try {
    const answer = await fetch('state?since=' + encodeURIComponent(version), {cache: 'no-store'});
    if (answer.status === 200) {
      const state = await answer.json();
      version = state.version;
      live.dataset.version = version;
      await replace(state.html);
    } else if (!answer.ok) {
      throw new Error((await answer.json()).error.message);
    }
    connection.hidden = true;
  } catch (error) {
    connection.textContent = 'This is the last that was heard of the search: ' + error.message;
    connection.hidden = false;
  }
  setTimeout(refresh, REFRESH_MS);
}

setTimeout(refresh, REFRESH_MS);
