// The endpoints that the hub knows: whether each answers, what it does, and how to add one.

import { get, jobs, me, post } from '../api.js'
import { announce, foreign, h, keyed, problem, put, say } from '../dom.js'
import { patchRates, row } from '../job_parts.js'
import { calmly, listen } from '../live.js'
import { counted, endpointOf, rate } from '../text.js'

const STATES = { up: ['✓', 'answers'], down: ['✕', 'does not answer'], unknown: ['◷', 'was not needed yet'] }

export const title = 'Endpoints'

function health(endpoint) {
  const [sign, words] = STATES[endpoint.health] ?? ['•', endpoint.health]
  return [h('p', { class: `badge health-${endpoint.health}` }, h('span', { 'aria-hidden': 'true' }, sign), h('span', null, words)),
    endpoint.text && h('p', { class: 'why' }, foreign(endpoint.text, 400)),
    endpoint.health === 'up' && !endpoint.takes_orders && h('p', { class: 'why' }, 'It carries out no jobs itself; other endpoints send to it and fetch from it.')]
}

function addresses(endpoint) {
  return h('dl', { class: 'facts' },
    h('div', null, h('dt', null, 'Addresses'), h('dd', { class: 'mono' }, endpoint.addresses.map(address => h('div', null, foreign(address))))),
    h('div', { class: 'wide' }, h('dt', null, 'Identity'), h('dd', { class: 'mono' }, foreign(endpoint.pin))),
    h('div', null, h('dt', null, 'Open jobs'), h('dd', null, h('a', { href: `#/jobs?status=open&endpoint=${encodeURIComponent(endpoint.name)}` }, counted(endpoint.jobs, 'job', 'jobs')))))
}

/** All of them. */
export function show(main) {
  const failed = h('div')
  const list = h('div', { class: 'cards' })
  const ticket = h('textarea', { name: 'ticket', required: true, rows: 4, autocomplete: 'off', spellcheck: 'false' })
  const name = h('input', { name: 'name', required: true, autocomplete: 'off', spellcheck: 'false' })
  const refused = h('div')
  const form = h('form', { class: 'fields', async onsubmit(event) {
    event.preventDefault()
    try {
      const added = await post('/endpoints', { name: name.value.trim(), ticket: ticket.value.trim() })
      form.reset()
      put(refused)
      announce(`The hub knows ${added.name} now`)
      look()
    } catch (error) {
      put(refused, problem(error))
    }
  } },
  h('p', null, 'On the endpoint’s host, ', h('code', null, 'thalweg ticket new NAME'), ' prints a ticket. What it allows is all that the hub’s jobs can do there.'),
  refused,
  h('label', null, h('span', null, 'Name'), name), h('label', null, h('span', null, 'Ticket'), ticket),
  h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Add the endpoint')))
  put(main, h('h1', { tabindex: '-1' }, 'Endpoints'), failed, list,
    me.is_admin && h('details', { class: 'card' }, h('summary', null, 'Add an endpoint'), form))
  let finished = false
  async function look() {
    try {
      const found = await get('/endpoints')
      if (finished) return
      put(failed)
      put(list, found.length === 0 ? h('p', { class: 'empty' }, 'The hub knows no endpoint yet.') : found.map(endpoint =>
        h('section', { class: 'card' }, h('h2', null, h('a', { href: `#/endpoint/${encodeURIComponent(endpoint.name)}` }, foreign(endpoint.name))),
          health(endpoint), addresses(endpoint))))
    } catch (error) {
      if (!finished) put(failed, problem(error))
    }
  }
  look()
  const again = setInterval(look, 5000)
  return () => {
    finished = true
    clearInterval(again)
  }
}

/** One of them. */
export function showOne(main, { id: name }) {
  const failed = h('div')
  const card = h('section', { class: 'card', 'aria-label': 'State' })
  const rates = h('p', { class: 'total' }, '–')
  const runs = h('ul', { class: 'jobs' })
  const others = h('ul', { class: 'jobs' })
  const empty = h('p', { class: 'empty' })
  put(main, h('p', { class: 'crumb' }, h('a', { href: '#/endpoints' }, 'Endpoints')), h('h1', { tabindex: '-1' }, foreign(name)), failed,
    card, h('section', { class: 'card', 'aria-label': 'Rate' }, rates),
    h('section', { 'aria-labelledby': 'runs' }, h('h2', { id: 'runs' }, 'Running here'), runs, empty),
    h('section', { 'aria-labelledby': 'latest' }, h('h2', { id: 'latest' }, 'The latest'), others,
      h('p', null, h('a', { href: `#/jobs?endpoint=${encodeURIComponent(name)}` }, 'All jobs of this endpoint'))))
  const item = job => {
    const part = row(job)
    return { node: h('li', null, part.node), update: part.update }
  }
  const showRuns = keyed(runs, item)
  const showOthers = keyed(others, item)
  let known = new Map()
  let finished = false

  function draw() {
    const list = [...known.values()].filter(job => job.status === 'running')
    showRuns(list)
    say(empty, list.length === 0 ? 'Nothing runs here.' : '')
    const sum = of => list.filter(of).reduce((total, job) => total + job.bytes_per_second, 0)
    const out = sum(job => endpointOf(job.job?.source) === name)
    const into = sum(job => endpointOf(job.job?.destination) === name)
    say(rates, `${rate(out)} out, ${rate(into)} in`)
  }

  async function look() {
    try {
      const [found, now, latest] = await Promise.all([
        get('/endpoints'), jobs({ status: 'running,stopping', endpoint: name, limit: 200 }), jobs({ endpoint: name, limit: 15 })])
      if (finished) return
      const endpoint = found.find(one => one.name === name)
      put(failed, !endpoint && problem({ message: `the hub knows no endpoint ${name}` }))
      if (endpoint) put(card, health(endpoint), addresses(endpoint))
      known = new Map(now.jobs.map(job => [job.id, job]))
      draw()
      showOthers(latest.jobs.filter(job => !known.has(job.id)))
    } catch (error) {
      if (!finished) put(failed, problem(error))
    }
  }

  const soon = calmly(1000, look)
  const stops = [listen('status', soon), listen('reset', soon), listen('rates', now => { patchRates(known, now); draw() })]
  look()
  const again = setInterval(look, 10_000)
  return () => {
    finished = true
    clearInterval(again)
    soon.stop()
    stops.forEach(stop => stop())
  }
}
