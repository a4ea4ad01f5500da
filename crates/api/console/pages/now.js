// What happens now: the rate of everything, what runs, what needs somebody, and what waits for what.

import { get, jobs } from '../api.js'
import { chart } from '../chart.js'
import { foreign, h, keyed, problem, put, say } from '../dom.js'
import { ends, patchRates, row, verbs } from '../job_parts.js'
import { calmly, listen } from '../live.js'
import { ago, count, counted, rate, REASONS } from '../text.js'

const WINDOW = 15 * 60 * 1000
/** The chart shows at least so much. */
const LEAST = 2 * 60 * 1000
/** What only a person can mend, if it lasts. */
const NEEDS = ['credentials', 'space', 'unreachable', 'endpoint']
const RECENT = 24 * 3600 * 1000
const SHOWN = 50

export const title = 'Now'

export function show(main) {
  const total = h('p', { class: 'total' }, '–')
  const running = h('p', { class: 'about' })
  const rateChart = chart('Rate of all jobs, the last 15 minutes')
  const failed = h('div')
  const runs = h('ul', { class: 'jobs' })
  const noRuns = h('p', { class: 'empty' })
  const needs = h('ul', { class: 'needs' })
  const needsPart = h('section', { 'aria-labelledby': 'needs', class: 'attention', hidden: true }, h('h2', { id: 'needs' }, 'Needs you'), needs)
  const states = h('ul', { class: 'states' })
  const waits = h('ul', { class: 'jobs' })
  const waitsMore = h('p', { class: 'empty' })
  put(main,
    h('h1', { tabindex: '-1' }, 'Now'), failed,
    h('section', { class: 'card headline', 'aria-label': 'Rate' }, h('div', null, total, running), rateChart.node),
    needsPart,
    h('section', { 'aria-labelledby': 'runs' }, h('h2', { id: 'runs' }, 'Running'), runs, noRuns),
    h('section', { 'aria-labelledby': 'waits' }, h('h2', { id: 'waits' }, 'Next, and why it waits'), states, waits, waitsMore))

  const known = new Map()
  let points = []
  let finished = false
  const item = make => job => {
    const part = make(job)
    return { node: h('li', null, part.node), update: part.update }
  }
  const showRuns = keyed(runs, item(row))
  const showWaits = keyed(waits, item(row))
  const showNeeds = keyed(needs, need)

  function need(job) {
    const link = h('a', { href: `#/job/${job.id}` })
    const what = h('p')
    const hint = h('p', { class: 'hint' })
    const buttons = h('p', { class: 'verbs' })
    let shownVersion
    return {
      node: h('li', null, h('div', null, h('p', null, link), what, hint), buttons),
      update(job) {
        if (shownVersion === job.version) return
        shownVersion = job.version
        put(link, ends(job, 200))
        put(what, h('b', null, job.status === 'waiting' ? REASONS[job.reason] : job.status), job.text ? ': ' : '', foreign(job.text, 400),
          h('span', { class: 'when' }, ` (${ago(job.ended ?? job.created)})`))
        put(hint, foreign(job.hint, 400))
        hint.hidden = !job.hint
        put(buttons, verbs(job, look, trouble))
      },
    }
  }

  const trouble = error => put(failed, problem(error))

  function drawRuns() {
    const list = [...known.values()].filter(job => job.status === 'running' || job.status === 'stopping')
    list.sort((a, b) => b.bytes_per_second - a.bytes_per_second || (a.begun < b.begun ? -1 : 1))
    showRuns(list.slice(0, SHOWN))
    const more = list.length - SHOWN
    say(noRuns, list.length === 0 ? 'Nothing runs.' : more > 0 ? `and ${count(more)} more` : '')
    say(running, list.length === 0 ? 'nothing runs' : counted(list.length, 'job runs', 'jobs run'))
  }

  function drawChart() {
    const to = Date.now()
    points = points.filter(point => point[0] > to - WINDOW - 5000)
    // A hub that has just begun has little to show: then it is shown larger.
    const from = Math.max(to - WINDOW, Math.min(to - LEAST, points[0]?.[0] ?? to))
    rateChart.draw(points, { from, to, step: 1000 })
    say(total, rate(points.at(-1)?.[1] ?? 0))
  }

  async function look() {
    try {
      const [now, ends, waiting, open, summary] = await Promise.all([
        jobs({ status: 'running,stopping', limit: 200 }),
        jobs({ status: 'failed,partial', limit: 10 }),
        jobs({ status: 'waiting', limit: 100 }),
        jobs({ status: 'queued,waiting,paused', order: 'oldest', limit: 15 }),
        get('/summary'),
      ])
      if (finished) return
      put(failed)
      known.clear()
      for (const job of now.jobs) known.set(job.id, job)
      drawRuns()
      const urgent = waiting.jobs.filter(job => NEEDS.includes(job.reason))
      const ended = ends.jobs.filter(job => Date.now() - new Date(job.ended) < RECENT)
      showNeeds([...urgent, ...ended].slice(0, 12))
      needsPart.hidden = urgent.length + ended.length === 0
      showWaits(open.jobs)
      put(states, Object.entries(summary.open).sort().map(([status, number]) =>
        h('li', null, h('a', { href: `#/jobs?status=${status}` }, h('b', null, count(number)), ` ${status}`))))
      say(waitsMore, open.jobs.length === 0 ? 'Nothing waits.' : open.next ? 'Above are the oldest.' : '')
    } catch (error) {
      if (!finished) trouble(error)
    }
  }

  async function lookBack() {
    try {
      const found = await get('/samples')
      if (finished) return
      points = found.points.map(([at, bytesPerSecond]) => [at, bytesPerSecond])
      drawChart()
    } catch {
      // Whoever may not see all jobs sees from now on what is told of the own ones.
    }
  }

  const soon = calmly(1000, look)
  const stops = [
    listen('status', soon), listen('reset', () => { soon(); lookBack() }),
    listen('rates', rates => {
      patchRates(known, rates)
      points.push([rates.at, rates.jobs.reduce((sum, job) => sum + job.bytes_per_second, 0)])
      drawChart()
      drawRuns()
    }),
  ]
  look()
  lookBack()
  const again = setInterval(look, 15_000)
  return () => {
    finished = true
    clearInterval(again)
    soon.stop()
    rateChart.stop()
    stops.forEach(stop => stop())
  }
}
