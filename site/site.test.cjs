// The site as a visitor has it: dist/site in Chromium, on a screen and on a telephone, light and dark.
// `make site-test` runs it. `SCREENSHOTS=FOLDER` keeps a picture of each page in each form.

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, test } = require('node:test');
const { chromium } = require('playwright-core');

const SITE = path.resolve(__dirname, '../dist/site');
const HOST = 'http://plait.test/';
const FORMS = [1440, 390].flatMap((width) => ['light', 'dark'].map((colors) => ({ width, colors })));
// What WCAG asks of text.
const CONTRAST_MIN = 4.5;

const pages = fs.readdirSync(SITE, { recursive: true })
  .filter((file) => file.endsWith('.html') && !['toc.html'].includes(file)).sort();
let browser;

before(async () => {
  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(fs.existsSync);
  assert(executablePath, 'no Chromium: apt-get install chromium');
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
});
after(() => browser?.close());

// A tab that gets the files of the site from no server; what it asks of any other host fails.
async function tab({ width, colors }) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: colors });
  await context.route('**', (route) => {
    const { origin, pathname } = new URL(route.request().url());
    const file = path.join(SITE, decodeURIComponent(pathname));
    const isThere = `${origin}/` === HOST && fs.existsSync(file) && fs.statSync(file).isFile();
    return isThere ? route.fulfill({ path: file }) : route.fulfill({ status: 404, body: `no ${route.request().url()}` });
  });
  const page = await context.newPage();
  page.missed = [];
  page.on('response', (response) => { if (response.status() === 404) page.missed.push(response.url()); });
  return page;
}

// In the page: what sticks out of the window and cannot be scrolled to, and text that is hard to read.
function look(contrastMin) {
  const content = document.querySelector('main');
  const scrolls = (element) => ['auto', 'scroll'].includes(getComputedStyle(element).overflowX);
  const inScroller = (element) => {
    for (let e = element.parentElement; e && e !== content.parentElement; e = e.parentElement) if (scrolls(e)) return true;
    return false;
  };
  const said = (element) => `${element.tagName} ${(element.textContent || element.src || '').trim().slice(0, 60)}`;
  const wide = [...content.querySelectorAll('*')].filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) && !inScroller(element);
  }).map(said);

  const numbers = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(e).backgroundColor);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const pale = new Set();
  for (const element of content.querySelectorAll('h1, h2, h3, h4, p, li, td, th, a, code, code span')) {
    if (!element.textContent.trim() || !element.getClientRects().length) continue;
    const [a, b] = [numbers(getComputedStyle(element).color).slice(0, 3), behind(element)].map(luminance);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < contrastMin) pale.add(`${contrast.toFixed(2)}: ${said(element)}`);
  }
  // The smallest letters of a picture, in pixels of the screen.
  const small = [...content.querySelectorAll('img')].filter((img) => img.clientWidth > 0 && img.clientWidth / img.naturalWidth * 13 < 9).map((img) => img.src);
  return { wide, pale: [...pale], small, page: document.documentElement.scrollWidth - innerWidth };
}

for (const form of FORMS) {
  test(`each page fits ${form.width} pixels and can be read, ${form.colors}`, async () => {
    const page = await tab(form);
    const bad = [];
    for (const file of pages) {
      await page.goto(HOST + file);
      const found = await page.evaluate(look, CONTRAST_MIN);
      if (found.page > 0) bad.push(`${file}: ${found.page} pixels too wide`);
      for (const kind of ['wide', 'pale', 'small']) bad.push(...found[kind].slice(0, 3).map((what) => `${file}: ${kind}: ${what}`));
      if (process.env.SCREENSHOTS) {
        const name = `${file.replaceAll('/', '_')}-${form.width}-${form.colors}.png`;
        await page.screenshot({ path: path.join(process.env.SCREENSHOTS, name) });
      }
    }
    bad.push(...page.missed.map((url) => `missing: ${url}`));
    assert.deepStrictEqual(bad, []);
    assert(pages.length > 50, `${pages.length} pages`);
  });
}

test('each link of the site leads to a page and a place in it', async () => {
  const page = await tab({ width: 1440, colors: 'light' });
  const [links, places] = [[], new Map()];
  for (const file of pages) {
    await page.goto(HOST + file);
    const found = await page.evaluate(() => ({
      ids: [...document.querySelectorAll('[id]')].map((element) => element.id),
      hrefs: [...document.querySelectorAll('a[href]')].map((a) => a.href),
    }));
    places.set(file, new Set(found.ids));
    links.push(...found.hrefs.map((href) => ({ file, url: new URL(href) })));
  }
  const broken = links.filter(({ url }) => `${url.origin}/` === HOST).filter(({ url }) => {
    const to = decodeURIComponent(url.pathname.slice(1)) || 'index.html';
    const anchor = decodeURIComponent(url.hash.slice(1));
    return places.has(to) ? anchor && !places.get(to).has(anchor) : !fs.existsSync(path.join(SITE, to)) || to.endsWith('.md');
  });
  assert.deepStrictEqual([...new Set(broken.map(({ file, url }) => `${file}: ${url}`))], []);
  assert(links.length > 1000, `${links.length} links`);
});

for (const form of [FORMS[0], FORMS[2]]) {
  test(`the search finds "database is locked" at ${form.width} pixels`, async () => {
    const page = await tab(form);
    await page.goto(HOST + 'index.html');
    await page.keyboard.press('s');
    await page.keyboard.type('database is locked');
    const results = page.locator('#mdbook-searchresults a');
    await results.first().waitFor({ timeout: 20000 });
    await page.waitForFunction(() => document.querySelector('#mdbook-searchresults a')?.pathname.endsWith('docs/runbook.html'));
    await results.first().click();
    await page.waitForURL(/runbook/);
    assert.match(await page.locator('main').innerText(), /database is locked/i);
  });
}
