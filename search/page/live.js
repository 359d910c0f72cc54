// Asks the page's own server for what is new, and puts it in.
const REFRESH_MS = 1000;
const live = document.getElementById('live');
const connection = document.getElementById('connection');
let version = live.dataset.version;

// A refresh would take a filter that is being typed.
function isBusy() {
  return document.activeElement instanceof HTMLInputElement &&
      live.contains(document.activeElement);
}

async function refresh() {
  try {
    const answer = await fetch('state?since=' + encodeURIComponent(version), {cache: 'no-store'});
    if (answer.status === 200 && !isBusy()) {
      const state = await answer.json();
      version = state.version;
      live.innerHTML = state.html;
      live.dataset.version = version;
      await draw();
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
