// One job: where it stands and why, its rate since it began, what failed, what happened to it.

import { get, may, patch as change } from '../api.js'
import { chart } from '../chart.js'
import { announce, foreign, h, problem, put, say } from '../dom.js'
import { badge, bar, ends, howFar, patch, patchRates, verbs } from '../job_parts.js'
import { calmly, listen } from '../live.js'
import { ago, count, CURES, counted, duration, endpointOf, isEnd, moment, rate, REASONS, secondsLeft, size, sourceOf } from '../text.js'

const FAILURES = 100

export const title = 'Job'

/** Names and what stands for them; those without a value are left out. */
function facts(list) {
  return h('dl', { class: 'facts' }, list.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false)
    .map(([name, value, is_wide]) => h('div', { class: is_wide && 'wide' }, h('dt', null, name), h('dd', null, value))))
}

const link = endpoint => h('a', { href: `#/endpoint/${encodeURIComponent(endpoint)}` }, foreign(endpoint))

const capital = text => text.charAt(0).toUpperCase() + text.slice(1)

/** A text of the hub, in which the ids of other jobs lead to them. */
const linked = text => text.split(/\b([0-9a-f]{32})\b/).map((part, at) => at % 2 ? h('a', { href: `#/job/${part}`, class: 'mono' }, part) : foreign(part))

/** What it means that a job went well. */
const outcome = ({ kind, options }) => options?.['dry-run'] ? 'It was rehearsed: nothing was copied or removed.'
  : kind === 'check' ? 'Source and destination were compared, and nothing differs.' : 'Everything arrived and was verified.'

/** What is going on, in a sentence, and what to do about it. */
function standing(job) {
  const until = job.until && ` Next look ${ago(job.until)}.`
  const hint = job.hint && h('p', { class: 'hint' }, foreign(job.hint))
  switch (job.status) {
    case 'running': {
      const left = secondsLeft(job)
      return [h('p', null, h('b', null, rate(job.bytes_per_second)), left === undefined ? '' : `, ${duration(left)} left`),
        job.bottleneck && h('p', null, foreign(job.bottleneck))]
    }
    case 'queued': case 'waiting':
      return [h('p', null, h('b', null, capital(REASONS[job.reason] ?? 'waits for its turn'))), job.text && h('p', null, linked(job.text), '.', until), hint]
    case 'paused':
      return [h('p', null, 'It rests until somebody resumes it.', job.text && [' ', foreign(job.text)])]
    case 'stopping':
      return [h('p', null, 'It was told to stop, and its endpoint has not confirmed that yet.')]
    case 'succeeded':
      return [h('p', null, outcome(job.job)), job.report?.bottleneck && h('p', null, foreign(job.report.bottleneck))]
    default:
      return [h('p', null, foreign(job.text || job.report?.message || job.status)), hint,
        job.code !== undefined && h('p', { class: 'when' }, `exit code ${job.code}`)]
  }
}

export function show(main, { id }) {
  const heading = h('h1', { tabindex: '-1' }, 'Job')
  const state = badge('queued')
  const buttons = h('p', { class: 'verbs' })
  const failed = h('div')
  const sentence = h('div', { class: 'standing' })
  const progressed = bar()
  const far = h('p', { class: 'about' })
  const rateChart = chart('Rate of this job')
  const chartPart = h('section', { class: 'card', 'aria-labelledby': 'rate' }, h('h2', { id: 'rate' }, 'Rate'), rateChart.node)
  const details = h('section', { class: 'card', 'aria-labelledby': 'details' })
  const failures = h('section', { class: 'card', 'aria-labelledby': 'failures', hidden: true })
  const past = h('section', { class: 'card', 'aria-labelledby': 'past' })
  const rateField = h('input', { name: 'rate', placeholder: 'no limit', autocomplete: 'off' })
  const classField = h('select', { name: 'class' }, ['high', 'normal', 'low'].map(name => h('option', { value: name }, name)))
  const priorityField = h('input', { name: 'priority', type: 'number', min: -128, max: 127 })
  const changes = h('details', { hidden: true }, h('summary', null, 'Change its rate, class or priority'), h('form', { class: 'changes', onsubmit: changeIt },
    h('label', null, h('span', null, 'Rate at most'), rateField), h('label', null, h('span', null, 'Class'), classField),
    h('label', null, h('span', null, 'Priority'), priorityField), h('button', null, 'Change')))
  const file = h('pre', { tabindex: '0' })
  const parts = h('div', { hidden: true }, h('div', { class: 'top' }, state.node, buttons),
    h('section', { class: 'card', 'aria-label': 'State' }, sentence, progressed.node, far, changes),
    chartPart, failures, details, past,
    h('section', { class: 'card', 'aria-labelledby': 'same' }, h('h2', { id: 'same' }, 'From a shell'),
      h('pre', { tabindex: '0' }, `thalweg job show ${id}\nthalweg job watch ${id}`),
      h('details', null, h('summary', null, 'The job file'), file)))
  put(main, h('p', { class: 'crumb' }, h('a', { href: '#/jobs' }, 'Jobs')), heading, failed, parts)

  let job
  let points = []
  let step = 1000
  let finished = false
  const trouble = error => put(failed, problem(error))

  function draw() {
    if (finished || !job) return
    document.title = `${job.status}: ${sourceOf(job.job)} – Thalweg`
    state.update(job.status)
    put(sentence, standing(job))
    progressed.update(job, 'done')
    progressed.node.hidden = job.files.listed === 0 || job.status === 'succeeded'
    say(far, job.files.listed + job.files.ok > 0 ? `${howFar(job)}${job.files.skipped > 0 ? `; ${count(job.files.skipped)} were there already` : ''}${job.files.failed > 0 ? `; ${count(job.files.failed)} failed` : ''}` : '')
    drawChart()
  }

  /** Only what differs; refused if the job changed since it was shown. */
  async function changeIt(event) {
    event.preventDefault()
    const { rate, class: kind, priority } = job.job
    const wanted = {}
    if (rateField.value.trim() !== (rate ?? '')) wanted.rate = rateField.value.trim() || null
    if (classField.value !== (kind ?? 'normal')) wanted.class = classField.value
    if (Number(priorityField.value) !== (priority ?? 0)) wanted.priority = Number(priorityField.value)
    if (Object.keys(wanted).length === 0) return
    try {
      job = await change(`/jobs/${id}`, wanted, job.version)
      changes.open = false
      announce('The job is changed')
      drawRest()
    } catch (error) {
      await look()
      trouble(error)
    }
  }

  function drawChart() {
    chartPart.hidden = points.length < 2
    if (chartPart.hidden) return
    const from = points[0][0]
    rateChart.draw(points, { from, to: Math.max(points.at(-1)[0], from + 10 * step), step })
  }

  function drawRest() {
    put(heading, ends(job.job ? job : { job: {} }, 1000))
    put(buttons, verbs(job, steered => steered === null ? location.assign('#/jobs') : look(), trouble))
    const { job: wish, report } = job
    put(details, h('h2', { id: 'details' }, 'Details'), facts([
      ['From', link(endpointOf(wish?.source))], ['To', link(endpointOf(wish?.destination))],
      ['Carried out by', job.executor && link(job.executor)],
      ['Kind', wish?.kind], ['Class', wish?.class ?? 'normal'], ['Project', wish?.project && foreign(wish.project)], ['Priority', wish?.priority],
      ['Rate at most', wish?.rate && foreign(wish.rate)],
      ['Handed in', [moment(job.created), ' by ', foreign(job.owner)]], ['Begun', job.begun && moment(job.begun)], ['Ended', job.ended && moment(job.ended)],
      ['Start by', wish?.start_by && moment(wish.start_by)], ['Finish by', wish?.finish_by && moment(wish.finish_by)],
      ['Attempt', job.attempt > 0 ? count(job.attempt) : undefined],
      ['After', wish?.after && wish.after.map(other => h('a', { href: `#/job/${other}`, class: 'mono' }, other))],
      ['Labels', wish?.labels && Object.entries(wish.labels).map(([name, value]) =>
        h('a', { class: 'label', href: `#/jobs?label=${encodeURIComponent(`${name}=${value}`)}` }, foreign(`${name}=${value}`, 200)))],
      ['Took', report?.seconds > 0 && isEnd(job.status) && duration(report.seconds)],
      ['Average', report && report.seconds > 0 && isEnd(job.status) && report.bytes > 0 ? rate(report.bytes / report.seconds) : undefined],
      ['Sent', report?.sent > 0 && size(report.sent)], ['Durable', report?.durable && foreign(report.durable)], ['Removed', report?.removed ? counted(report.removed, 'object', 'objects') : undefined],
      ['Id', h('span', { class: 'mono' }, job.id), true],
    ]))
    changes.hidden = isEnd(job.status) || !may('steer')
    if (!changes.open) {
      rateField.value = wish?.rate ?? ''
      classField.value = wish?.class ?? 'normal'
      priorityField.value = wish?.priority ?? 0
    }
    say(file, JSON.stringify(wish, null, 2))
    draw()
  }

  async function look() {
    try {
      job = await get(`/jobs/${id}`)
      if (finished) return
      put(failed)
      parts.hidden = false
      drawRest()
      await Promise.all([lookAtFailures(), lookAtPast()])
    } catch (error) {
      if (finished) return
      trouble(error)
      if (error.status === 404) parts.hidden = true
    }
  }

  async function lookAtFailures() {
    const has = job.files.failed > 0 || job.report?.files?.failed > 0
    const found = has ? await get(`/jobs/${id}/failures?limit=${FAILURES}`) : []
    if (finished) return
    failures.hidden = found.length === 0
    const untold = (job.report?.files?.failed ?? 0) - found.length
    put(failures, h('h2', { id: 'failures' }, 'What failed'),
      h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'What failed, as a table' }, h('table', null,
        h('thead', null, h('tr', null, ['Path', 'Kind', 'What happened'].map(name => h('th', { scope: 'col' }, name)))),
        h('tbody', null, found.map(one => h('tr', null, h('td', { class: 'mono' }, foreign(one.path, 1000)), h('td', null, foreign(one.reason)), h('td', null, foreign(one.message, 1000))))))),
      [...new Set(found.map(one => one.reason))].filter(kind => CURES[kind]).map(kind => h('p', { class: 'hint' }, h('b', null, kind), `: ${CURES[kind]}`)),
      untold > 0 && h('p', { class: 'about' }, `and ${count(untold)} more`))
  }

  async function lookAtPast() {
    const found = await get(`/jobs/${id}/events`)
    if (finished) return
    put(past, h('h2', { id: 'past' }, 'What happened'), h('ol', { class: 'past' }, found.map(event => h('li', null,
      h('time', { datetime: event.at }, moment(event.at)), badge(event.status).node,
      h('span', null, [REASONS[event.reason] ?? event.reason, event.text, event.status === 'running' && event.executor && `at ${event.executor}, attempt ${event.attempt}`]
        .filter(Boolean).map((part, at) => [at > 0 && ': ', foreign(part, 400)]))))))
  }

  async function lookBack() {
    try {
      const found = await get(`/jobs/${id}/samples`)
      if (finished) return
      step = found.step * 1000
      points = found.points.map(([at, , , bytesPerSecond]) => [at, bytesPerSecond])
      drawChart()
    } catch (error) {
      if (!finished && error.status !== 404) trouble(error)
    }
  }

  const soon = calmly(500, () => { look(); lookBack() })
  const stops = [
    listen('status', event => {
      if (event.job !== id || !job) return
      patch(job, event)
      draw()
      soon()
    }),
    listen('rates', rates => {
      const mine = rates.jobs.find(other => other.id === id)
      if (!mine || !job) return
      patchRates(new Map([[id, job]]), rates)
      if (!points.length || rates.at >= points.at(-1)[0] + step) points.push([rates.at, mine.bytes_per_second])
      draw()
    }),
    listen('reset', soon),
  ]
  look()
  lookBack()
  return () => {
    finished = true
    soon.stop()
    rateChart.stop()
    stops.forEach(stop => stop())
  }
}
