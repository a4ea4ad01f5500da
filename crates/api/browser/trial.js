// The console in Chromium, against a hub and two endpoints: `node trial.js --thalweg FILE --chromium FILE --modules FOLDER [--shots FOLDER]`.
//
// Every page in both themes at the width of a telephone and of a desk: no finding of axe-core, nothing beyond the edge, no breach of the
// content policy, no script error. Then what people do: filter, follow, pause, resume, hand in, all by keyboard; names that want to be
// markup; a hub that is killed and comes back. Each check is a line; the last line counts them.

import { createRequire } from 'node:module'
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { House, until } from './house.js'

const { values: options } = parseArgs({ options: {
  thalweg: { type: 'string' }, chromium: { type: 'string' }, modules: { type: 'string' }, shots: { type: 'string' } } })
const installed = createRequire(join(options.modules, 'anything'))
const { chromium } = installed('playwright-core')
const AXE = readFileSync(installed.resolve('axe-core/axe.min.js'), 'utf8')
const WIDTHS = [360, 1440]
const THEMES = ['light', 'dark']

let passed = 0
const failures = []

async function check(what, call) {
  try {
    await call()
    passed += 1
    console.log(`ok      ${what}`)
  } catch (error) {
    failures.push(what)
    console.log(`FAILED  ${what}\n        ${String(error.message).replaceAll('\n', '\n        ')}`)
  }
}

function demand(is, message) {
  if (!is) throw new Error(message)
}

const house = await House.build(options.thalweg)
const site = `http://${house.address}`
/** The cookie of the one who is logged in. */
let storageState
const browser = await chromium.launch({ executablePath: options.chromium, args: ['--no-sandbox'] })
try {
  const jobs = await house.fill()
  await house.command('token', 'new', 'telescope', '--scopes', 'read,submit', '--expires', '1h', '--token-file', 'token')
  await house.command('rule', 'add', 'allow token:telescope list,read berlin:telescope')
  await check('a code of `thalweg console` lets a browser in once, and strangers see nothing', () => logIn())
  const pages = {
    now: '', jobs: 'jobs', waiting: 'jobs?status=waiting', running: `job/${jobs.running}`, failed: `job/${jobs.failed}`, blocked: `job/${jobs.blocked}`,
    succeeded: `job/${jobs.succeeded}`, markup: `job/${jobs.markup}`, gone: `job/${'0'.repeat(32)}`, endpoints: 'endpoints', endpoint: 'endpoint/oslo', new: 'new', access: 'access',
    schedules: 'schedules', rates: 'rates/berlin', unmanaged: 'rates/oslo', audit: 'audit', refusals: 'audit?q=code%22%3A6',
  }
  for (const colorScheme of THEMES) {
    for (const width of WIDTHS) {
      for (const [name, path] of Object.entries(pages)) {
        await check(`${name}, ${colorScheme}, ${width}`, () => look(name, path, colorScheme, width))
      }
    }
  }
  await check('the list is filtered, and the filter stands in the address', () => filter())
  await check('a job is followed, paused and resumed by keyboard', () => steer(jobs.running))
  await check('a job is handed in by keyboard', () => handIn())
  await check('a refusal is shown with its hint', () => refused())
  await check('a schedule is made, run, paused, resumed and removed', () => schedule())
  await check('a cap is changed, and its endpoint keeps to it', () => cap())
  await check('the audit log is searched, and found whole', () => audit())
  await check('a hub that is killed is noticed, and its history is there when it is back', () => killed(jobs.running))
  await check('ten thousand jobs are scrolled through with few rows in the document', () => many())
} finally {
  await browser.close()
  await house.end()
}
console.log(`${passed} passed, ${failures.length} failed`)
process.exitCode = failures.length === 0 ? 0 : 1

/** A page of its own, in which every error is an error. */
async function open(path, { colorScheme = 'light', width = 1440 } = {}) {
  const context = await browser.newContext({ storageState, colorScheme, viewport: { width, height: width < 500 ? 760 : 900 }, reducedMotion: 'reduce' })
  const page = await context.newPage()
  page.wrongs = []
  page.on('pageerror', error => page.wrongs.push(`script: ${error.message}`))
  page.on('console', message => {
    if (message.type() === 'error' && !/status of 40[01346]/.test(message.text())) page.wrongs.push(message.text())
  })
  page.on('request', request => {
    if (!request.url().startsWith(site)) page.wrongs.push(`asked elsewhere: ${request.url()}`)
  })
  await page.addInitScript(() => {
    window.alert = () => { window.wasFooled = true }
    addEventListener('securitypolicyviolation', event => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))
  })
  await page.goto(path.startsWith('http') ? path : `${site}/#/${path}`)
  await page.waitForSelector('main h1')
  await settled(page)
  return page
}

/** Nothing was asked for half a second but the stream of events. */
async function settled(page) {
  let asked = 0
  const count = () => { asked += 1 }
  page.on('request', count)
  await until('the page to rest', async () => {
    const before = asked
    await page.waitForTimeout(400)
    return asked === before
  }, 20)
  page.off('request', count)
}

async function close(page) {
  const { wrongs } = page
  await page.context().close()
  demand(wrongs.length === 0, wrongs.join('\n'))
}

async function logIn() {
  let page = await open('jobs')
  demand(await page.locator('h1').textContent() === 'Log in', 'a stranger is not asked to log in')
  demand(await page.locator('nav a').count() === 0, 'a stranger sees pages')
  await close(page)
  const way = await house.wayIn()
  page = await open(way)
  await page.waitForSelector('nav a[aria-current]')
  demand(!page.url().includes('code'), 'the code stays in the address')
  storageState = await page.context().storageState()
  await close(page)
  const cookies = storageState
  storageState = undefined
  page = await open(way)
  demand(await page.locator('h1').textContent() === 'Log in', 'a code lets in twice')
  demand((await page.locator('.problem').textContent()).includes('good once'), 'no reason is given')
  await close(page)
  storageState = cookies
}

async function look(name, path, colorScheme, width) {
  const page = await open(path, { colorScheme, width })
  if (options.shots) {
    mkdirSync(options.shots, { recursive: true })
    await page.screenshot({ path: join(options.shots, `${name}-${colorScheme}-${width}.png`), fullPage: true })
  }
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  demand(over <= 0, `${over} pixels beyond the edge`)
  demand(!await page.evaluate(() => window.wasFooled), 'text became script')
  // The policy lets no script in, not even this one: it goes in beside the page.
  const session = await page.context().newCDPSession(page)
  await session.send('Page.setBypassCSP', { enabled: true })
  await session.send('Runtime.evaluate', { expression: AXE })
  const { result } = await session.send('Runtime.evaluate', { awaitPromise: true, returnByValue: true,
    expression: `axe.run(document, { resultTypes: ['violations'] }).then(found => found.violations.map(one =>
      one.id + ': ' + one.help + ' ' + one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | ')))` })
  demand(Array.isArray(result.value), JSON.stringify(result).slice(0, 400))
  demand(result.value.length === 0, result.value.join('\n'))
  await close(page)
}

async function filter() {
  const page = await open('jobs')
  const all = await page.locator('.virtual li').count()
  await page.getByRole('searchbox').fill('telescope')
  await until('fewer rows', async () => await page.locator('.virtual li').count() < all)
  demand(page.url().endsWith('#/jobs?q=telescope'), page.url())
  await page.getByLabel('State').selectOption('succeeded')
  await until('one row', async () => await page.locator('.virtual li').count() === 1)
  await page.reload()
  await until('the same row', async () => await page.locator('.virtual li').count() === 1)
  await close(page)
}

async function steer(id) {
  const page = await open('jobs?status=running')
  await page.locator('.virtual a').first().focus()
  await page.keyboard.press('j')
  await page.keyboard.press('k')
  demand(await page.evaluate(() => document.activeElement.closest('li')?.dataset.at) === '0', 'k did not come back to the first row')
  await page.keyboard.press('x')
  demand(await page.locator('.chosen').isVisible(), 'x chose nothing')
  await page.goto(`${site}/#/job/${id}`)
  await page.waitForSelector('.chart .line[d^=M]')
  const rate = await page.locator('.standing b').textContent()
  demand(/bit\/s$/.test(rate), `no rate: ${rate}`)
  await until('what limits it', async () => (await page.locator('.standing').textContent()).includes('limited by'))
  await page.getByRole('button', { name: 'Pause' }).focus()
  await page.keyboard.press('Enter')
  await page.waitForSelector('.top .badge.paused', { timeout: 20_000 })
  await page.getByRole('button', { name: 'Resume' }).focus()
  await page.keyboard.press('Enter')
  await page.waitForSelector('.top .badge.running', { timeout: 20_000 })
  await page.getByText('Change its rate').click()
  await page.getByLabel('Rate at most').fill('160Mbit')
  await page.keyboard.press('Enter')
  await until('the rate that was set', async () => (await house.ask('GET', `/jobs/${id}`)).job.rate === '160Mbit')
  await page.getByRole('button', { name: 'Cancel…' }).click()
  await page.getByRole('button', { name: 'Leave it' }).waitFor()
  await page.keyboard.press('Enter')
  await page.waitForSelector('dialog', { state: 'detached' })
  demand(await page.locator('.top .badge.running').count() === 1, 'what was left alone does not run')
  await close(page)
}

async function handIn() {
  const page = await open('new')
  await page.getByLabel('Paths').focus()
  await page.keyboard.type('telescope/notes.txt')
  await page.getByLabel('Path', { exact: true }).focus()
  await page.keyboard.type('handed-in/')
  await page.getByRole('button', { name: 'Hand in' }).focus()
  await page.keyboard.press('Enter')
  await page.waitForSelector('.top .badge.succeeded', { timeout: 30_000 })
  await close(page)
}

async function refused() {
  const page = await open('new')
  await page.getByLabel('Paths').fill('../etc/passwd')
  await page.getByRole('button', { name: 'Hand in' }).click()
  await page.waitForSelector('.problem .hint')
  demand((await page.locator('.problem').textContent()).includes('cannot leave it'), 'another refusal')
  await close(page)
}

async function schedule() {
  const page = await open('schedules')
  await page.getByText('Make a schedule').click()
  await page.getByLabel('Name').fill('each-quarter')
  await page.getByLabel('Times').fill('*:00, *:30')
  await page.getByLabel('mon', { exact: true }).check()
  await page.getByLabel('Time zone').fill('UTC')
  await page.getByLabel('Paths').fill('telescope/notes.txt')
  await page.getByLabel('Path', { exact: true }).fill('scheduled/')
  await page.getByLabel('Paths').focus()
  await page.getByRole('button', { name: 'Make the schedule' }).focus()
  await page.keyboard.press('Enter')
  const own = page.locator('.cards li').filter({ hasText: 'each-quarter' })
  await own.getByText('each hour at :00, :30, on mon (UTC)').waitFor()
  const press = async (name, is) => {
    await own.getByRole('button', { name }).focus()
    await page.keyboard.press('Enter')
    await is()
  }
  await press(/^Run now/, () => own.locator('.badge.succeeded').waitFor({ timeout: 30_000 }))
  await press(/^Pause/, () => own.getByText('not before it is resumed').waitFor())
  await press(/^Resume/, () => own.getByRole('button', { name: /^Pause/ }).waitFor())
  await press(/^Remove/, () => page.getByRole('button', { name: 'Remove it' }).click())
  await own.waitFor({ state: 'detached' })
  await close(page)
}

async function cap() {
  const page = await open('rates/berlin')
  const row = page.locator('tr').filter({ hasText: 'office' })
  await row.getByText(/out .*bit\/s of 400 Mbit\/s/).waitFor()
  await row.getByRole('button', { name: 'Change office' }).focus()
  await page.keyboard.press('Enter')
  await page.getByLabel('At most').fill('120Mbit')
  await page.keyboard.press('Enter')
  await row.getByText(/of 120 Mbit\/s/).waitFor()
  const agreed = (await house.commandAt('berlin', 'contract', 'ls', '--json')).split('\n').filter(Boolean).map(line => JSON.parse(line))
  demand(agreed.find(one => one.name === 'office').rate === '120Mbit', JSON.stringify(agreed))
  await until('what is moved to be within the cap', async () => {
    const { shares } = await house.ask('GET', '/endpoints/berlin/terms')
    const out = shares.filter(share => share.direction === 'out').reduce((sum, share) => sum + share.bytes_per_second, 0)
    return out > 0 && out <= 15e6 * 1.1
  })
  await page.getByLabel('At most').fill('fast')
  await page.getByLabel('Name').fill('office')
  await page.getByRole('button', { name: 'Agree to it' }).click()
  await page.locator('.problem').getByText('fast').waitFor()
  await close(page)
}

async function audit() {
  const page = await open('audit')
  await page.getByText('whole', { exact: true }).waitFor()
  await page.getByRole('searchbox').fill('CONTRACT CHANGE')
  await until('the lines of contracts alone', async () => {
    const texts = await page.locator('.lines tbody tr').allTextContents()
    return texts.length > 0 && texts.every(text => text.includes('contract change'))
  })
  demand(page.url().includes('#/audit?q='), page.url())
  await page.reload()
  await page.locator('.lines tbody tr').first().waitFor()
  await close(page)
}

async function killed(id) {
  const page = await open(`job/${id}`)
  await page.waitForSelector('.chart .line[d^=M]')
  // What is new of a history is written down every ten seconds.
  const points = async () => (await house.ask('GET', `/jobs/${id}/samples`)).points.length
  await until('a history', async () => await points() > 12)
  await house.killHub()
  await page.waitForSelector('body.cut', { timeout: 20_000 })
  await house.startHub()
  // Who was logged in at the hub before is not any more.
  await page.getByRole('heading', { name: 'Log in' }).waitFor({ timeout: 30_000 })
  demand(await points() > 2, 'the history is gone')
  page.wrongs = page.wrongs.filter(wrong => !/Failed to load resource|ERR_/.test(wrong))
  storageState = undefined
  const again = await open(await house.wayIn())
  storageState = await again.context().storageState()
  await again.goto(`${site}/#/job/${id}`)
  await again.waitForSelector('.chart .line[d^=M]')
  await close(again)
  await close(page)
}

async function many() {
  const lines = Array.from({ length: 10_000 }, (_, n) => JSON.stringify({
    source: `berlin:many/dir-${n % 100}/file-${n}`, destination: `oslo:many/${n}`, after: ['first'], labels: { lot: String(n % 7) } }))
  lines[0] = JSON.stringify({ name: 'first', source: 'berlin:gen:1x1GiB', destination: 'oslo:many-first', rate: '8Mbit' })
  await house.ask('POST', '/jobs:batch', lines.join('\n'))
  const page = await open('jobs')
  const end = /^10,0\d\d jobs$/
  await until('the last of them', async () => {
    await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight))
    await page.waitForTimeout(50)
    const rows = await page.locator('.virtual li').count()
    demand(rows < 60, `${rows} rows in the document`)
    return end.test(await page.locator('.above p').textContent())
  })
  await close(page)
}
