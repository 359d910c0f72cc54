'use strict';
// Draws the charts, and makes the ranking sort and filter. Without it the page is complete, if
// plainer: every figure stands in a table.

const ROWS_IN_SIGHT = 20;

// Colours are the style sheet's variables, so the charts follow light, dark and print by themselves.
const CHART_STYLE = {
  background: 'transparent',
  padding: {left: 2, right: 4, top: 2, bottom: 6},
  axis: {
    labelColor: 'var(--quiet)', titleColor: 'var(--quiet)', gridColor: 'var(--line)',
    domainColor: 'var(--line)', tickColor: 'var(--line)', titleFontWeight: 'normal',
    labelFontSize: 11, titleFontSize: 12,
  },
  legend: {labelColor: 'var(--ink)', labelFontSize: 12, labelLimit: 240},
};

// Shows lines of [what, how much] beside the pointer; as text, never as markup.
function showTooltip(handler, event, item, lines) {
  document.querySelectorAll('.tooltip').forEach(old => old.remove());
  if (!lines) return;
  const box = document.body.appendChild(document.createElement('div'));
  box.className = 'tooltip';
  for (const [what, value] of lines) {
    box.appendChild(document.createElement('div')).textContent = what + ': ' + value;
  }
  const left = Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 4);
  const top = Math.min(event.clientY + 12, innerHeight - box.offsetHeight - 4);
  box.style.left = Math.max(4, left) + 'px';
  box.style.top = Math.max(4, top) + 'px';
}

function drawChart(figure) {
  const plot = figure.querySelector('.plot');
  const specification = JSON.parse(figure.querySelector('script').textContent);
  // The interpreter evaluates a chart's expressions without making code of text.
  const view = new vega.View(vega.parse(specification, CHART_STYLE, {ast: true}), {
    expr: vega.expressionInterpreter, renderer: 'svg', container: plot, hover: false,
    tooltip: showTooltip,
  });
  let width = plot.clientWidth;
  const drawn = view.width(width).runAsync();
  new ResizeObserver(() => {
    if (plot.clientWidth === width || plot.clientWidth === 0) return;
    width = plot.clientWidth;
    view.width(width).runAsync();
  }).observe(plot);
  return drawn;
}

// The number at the head of a cell; cells without one come last.
function numberOf(text) {
  const number = parseFloat(text.replace(/,/g, '').replace('\u2212', '-'));
  return Number.isNaN(number) ? Infinity : number;
}

// ">= 3000" and the like compare with the number; anything else must occur in the text.
function matches(text, wanted) {
  const comparison = /^\s*([<>]=?)\s*(-?[\d.,]+)\s*$/.exec(wanted);
  if (!comparison) return text.toLowerCase().includes(wanted.trim().toLowerCase());
  const number = numberOf(text);
  const bound = numberOf(comparison[2]);
  if (number === Infinity) return false;
  if (comparison[1][0] === '<') return number < bound || (comparison[1] === '<=' && number === bound);
  return number > bound || (comparison[1] === '>=' && number === bound);
}

// The reader's choices for the ranking. They outlive the table, which a live page makes anew.
// Columns go by their headings: a later table may have others.
const choice = {column: null, down: false, wanted: {}, all: false, tools: false};

function makeInteractive(section) {
  const table = section.querySelector('table');
  const body = table.tBodies[0];
  const folded = section.querySelector('details.rest');
  if (folded) {
    body.append(...folded.querySelector('tbody').rows);
    folded.remove();
  }
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const texts = new Map(rows.map(row => [row, [...row.cells].map(cell => cell.textContent)]));
  const more = document.createElement('button');
  more.type = 'button';
  more.className = 'more-rows';
  table.parentElement.after(more);
  const tools = document.createElement('button');
  tools.type = 'button';
  tools.className = 'tools';
  tools.textContent = 'Sort and filter';
  table.parentElement.before(tools);
  const names = heads.map(head => head.textContent);

  function update() {
    let found = 0;
    for (const row of rows) {
      const fits = names.every((name, i) => {
        const want = choice.wanted[name] || '';
        return want.trim() === '' || matches(texts.get(row)[i], want);
      });
      if (fits) ++found;
      row.classList.toggle('out', !fits || (!choice.all && found > ROWS_IN_SIGHT));
    }
    table.classList.toggle('with-tools', choice.tools);
    more.hidden = found <= ROWS_IN_SIGHT;
    more.textContent =
      choice.all ? 'Show the first ' + ROWS_IN_SIGHT : 'Show all ' + found + ' rows';
  }

  function sort() {
    const column = names.indexOf(choice.column);
    if (column < 0) return;
    const sign = choice.down ? -1 : 1;
    const isNumber = heads[column].classList.contains('number');
    const compare = (a, b) => {
      const [left, right] = [texts.get(a)[column], texts.get(b)[column]];
      if (!isNumber) return sign * left.localeCompare(right);
      const [x, y] = [numberOf(left), numberOf(right)];
      if (x === y) return 0;
      return x === Infinity ? 1 : y === Infinity ? -1 : sign * (x - y);
    };
    rows.sort(compare);
    body.append(...rows);
    heads.forEach((head, i) => head.setAttribute('aria-sort',
      i !== column ? 'none' : choice.down ? 'descending' : 'ascending'));
  }

  heads.forEach((head, i) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = names[i];
    button.title = 'Sort by this column';
    button.addEventListener('click', () => {
      // Rows come in the order of the first column.
      const shown = choice.column || names[0];
      choice.down = shown === names[i] && !choice.down;
      choice.column = names[i];
      sort();
      update();
    });
    const input = document.createElement('input');
    input.setAttribute('aria-label', 'Filter by ' + names[i]);
    input.title = head.classList.contains('number') ? 'For example > 100' : 'Text to look for';
    input.value = choice.wanted[names[i]] || '';
    input.addEventListener('input', () => {
      choice.wanted[names[i]] = input.value;
      update();
    });
    head.replaceChildren(button, input);
  });
  tools.addEventListener('click', () => {
    choice.tools = !choice.tools;
    update();
  });
  more.addEventListener('click', () => {
    choice.all = !choice.all;
    update();
  });
  sort();
  update();
}

function draw() {
  const ranking = document.getElementById('ranking');
  if (ranking) makeInteractive(ranking);
  return Promise.all([...document.querySelectorAll('.chart')].map(drawChart)).then(() => {
    document.documentElement.dataset.drawn = 'true';
  });
}

draw();
