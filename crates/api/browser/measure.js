// What the console takes: its size, its first paint, and how long the list of 10,000 jobs takes to show a filter, with the browser's
// processor slowed down to a quarter. `node measure.js --thalweg FILE --chromium FILE --modules FOLDER --rounds N` prints JSON lines.

import { createRequire } from 'node:module'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { gzipSync } from 'node:zlib'
import { House, until } from './house.js'

const { values: options } = parseArgs({ options: {
  thalweg: { type: 'string' }, chromium: { type: 'string' }, modules: { type: 'string' }, rounds: { type: 'string', default: '10' },
  console: { type: 'string' } } })
const { chromium } = createRequire(join(options.modules, 'anything'))('playwright-core')
const JOBS = 10_000
const SLOWER = 4
const tell = line => console.log(JSON.stringify(line))

const files = readdirSync(options.console, { recursive: true }).filter(name => name.includes('.')).map(name => readFileSync(join(options.console, name)))
tell({ what: 'size', files: files.length, bytes: files.reduce((sum, file) => sum + file.length, 0),
  gzip_bytes: files.reduce((sum, file) => sum + gzipSync(file, { level: 9 }).length, 0) })

const house = await House.build(options.thalweg)
const browser = await chromium.launch({ executablePath: options.chromium, args: ['--no-sandbox'] })
try {
  const lines = Array.from({ length: JOBS }, (_, n) => JSON.stringify({
    source: `berlin:survey/dir-${n % 100}/file-${n}`, destination: `oslo:survey/${n}`, after: n > 0 ? ['first'] : undefined, name: n > 0 ? undefined : 'first',
    windows: n > 0 ? undefined : [{ days: ['sun'], from: '03:00', to: '03:01', zone: 'UTC' }], labels: { lot: String(n % 7) } }))
  await house.ask('POST', '/jobs:batch', lines.join('\n'))
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
  const page = await context.newPage()
  await page.goto(await house.wayIn())
  await page.waitForSelector('nav a[aria-current]')
  const session = await context.newCDPSession(page)
  await session.send('Emulation.setCPUThrottlingRate', { rate: SLOWER })
  for (let round = 0; round < Number(options.rounds); round += 1) {
    for (const cache of ['cold', 'warm']) {
      await session.send('Network.setCacheDisabled', { cacheDisabled: cache === 'cold' })
      await page.goto('about:blank')
      const began = performance.now()
      await page.goto(`http://${house.address}/#/jobs`)
      await page.waitForSelector('.virtual li')
      const rows_ms = performance.now() - began
      const first_contentful_paint_ms = await until('a paint', () => page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime))
      tell({ what: 'first paint', cache, slower: SLOWER, round, first_contentful_paint_ms, rows_ms })
    }
  }
  for (let round = 0; round < Number(options.rounds); round += 1) {
    for (const [text, rows] of [['dir-4', 'a thousand'], ['dir-42', 'a hundred'], [`file-${1000 + round}`, 'one']]) {
      // From the key that changes the field to the frame that shows the rows; and how much of it the hub took to answer.
      const found = await page.evaluate(async text => {
        const field = document.querySelector('input[type=search]')
        const list = document.querySelector('.virtual')
        const is = () => [...list.querySelectorAll('.ends')].every(row => row.textContent.includes(text)) && list.children.length > 0
        field.value = ''
        field.dispatchEvent(new Event('input', { bubbles: true }))
        await new Promise(resolve => setTimeout(resolve, 1500))
        const began = performance.now()
        field.value = text
        field.dispatchEvent(new Event('input', { bubbles: true }))
        while (!is()) await new Promise(requestAnimationFrame)
        await new Promise(requestAnimationFrame)
        const ms = performance.now() - began
        const asked = performance.getEntriesByType('resource').filter(entry => entry.name.includes('/jobs?') && entry.startTime >= began).at(-1)
        performance.clearResourceTimings()
        return { ms, hub_ms: asked?.duration }
      }, text)
      tell({ what: 'filter', jobs: JOBS, slower: SLOWER, round, rows, ...found })
    }
  }
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage')
    return (await session.send('Runtime.getHeapUsage')).usedSize
  }
  tell({ what: 'heap', bytes: await heap(), nodes: await page.evaluate(() => document.querySelectorAll('*').length) })
} finally {
  await browser.close()
  await house.end()
}
