// Opens reports in a headless browser, light and dark, at 1200 and at 375 pixels: no console message, no request, nothing wider than the
// screen, every picture with its texts, and nothing serious that axe finds.
//
//   CHROMIUM=/usr/bin/chromium node check.mjs REPORT.html...        needs puppeteer-core and axe-core beside it, or in NODE_PATH's folder
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';

const require = createRequire(path.resolve(process.env.BROWSER_PACKAGES ?? import.meta.dirname, 'package.json'));
const puppeteer = require('puppeteer-core');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const screens = [1200, 375].flatMap((width) => ['light', 'dark'].map((scheme) => ({ width, scheme })));

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'], headless: true });
let wrong = 0;
for (const file of process.argv.slice(2)) {
  for (const { width, scheme } of screens) {
    const page = await browser.newPage();
    const told = [];
    let requests = 0;
    page.on('console', (m) => told.push(`console: ${m.text()}`));
    page.on('pageerror', (e) => told.push(`error: ${e}`));
    page.on('request', () => (requests += 1));
    await page.setViewport({ width, height: 800, isMobile: width < 600 });
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.goto('file://' + path.resolve(file), { waitUntil: 'load' });
    if (requests !== 1) told.push(`${requests - 1} requests besides the page`);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (over > 0) told.push(`${over} pixels wider than the screen`);
    const bare = await page.evaluate(() => [...document.querySelectorAll('svg[role=img]')].filter((s) => !s.querySelector('title') || !s.querySelector('desc')).length);
    if (bare) told.push(`${bare} pictures without texts`);
    await page.evaluate(() => [...document.querySelectorAll('details')].slice(0, 6).forEach((d) => (d.open = true)));
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
    for (const v of found.violations.filter((v) => ['serious', 'critical'].includes(v.impact))) told.push(`axe: ${v.id} (${v.impact}), ${v.nodes.length} times: ${v.nodes[0].html.slice(0, 160)}`);
    console.log(`${file} ${width} ${scheme}: ${told.length ? told.join('; ') : 'nothing to say'}`);
    wrong += told.length;
    await page.close();
  }
}
await browser.close();
process.exit(wrong ? 1 : 0);
