// How one endpoint shares its rates out: its contracts, what is used of each, its jobs, and what may be changed. For administrators.

import { get, jobs, patch } from '../api.js'
import { announce, confirmed, foreign, h, headed, problem, put, table } from '../dom.js'
import { field, filled, input, select } from '../job_form.js'
import { rate } from '../text.js'

const EVERY = 2000
const OF_CONTRACT = ['Name', 'Of which jobs', 'Now, of at most', 'Guaranteed', '']
const OF_JOB = ['Job', 'Of whom', 'Class', 'Way', 'Moves', 'May have', 'What holds it']
const WAYS = { in: 'what comes in', out: 'what goes out' }

export const title = 'Rates'

/** The jobs that a contract is of. */
const isOf = ({ class: ofClass, user, peer, direction }) => share =>
  (!ofClass || ofClass === share.class) && (!user || user === share.user) && (!direction || direction === share.direction) && (!peer || share.peer.startsWith(peer))

export function show(main, { id }) {
  const failed = h('div')
  const which = select('endpoint', [])
  which.addEventListener('change', () => { location.hash = `#/rates/${encodeURIComponent(which.value)}` })
  const body = h('div')
  put(main, h('h1', { tabindex: '-1' }, 'Rates'),
    h('p', { class: 'about' }, 'Each endpoint shares its rates out among its jobs, whoever asked for them. Its contracts hold there, also while the hub is away.'),
    h('div', { class: 'fields' }, field('Endpoint', which)), failed, body)
  let endpoints = []
  let endpoint
  let terms
  let finished = false
  let parts
  const nameOf = pin => endpoints.find(one => one.pin.startsWith(pin))?.name ?? `${pin.slice(0, 8)}…`

  async function change(changes, said) {
    try {
      terms = await patch(`/endpoints/${encodeURIComponent(endpoint)}/terms`, { version: terms.version, ...changes }, terms.version)
      put(failed)
      announce(said)
      draw()
      return true
    } catch (error) {
      put(failed, problem(error))
      failed.scrollIntoView({ block: 'nearest' })
      return false
    }
  }

  /** What is there once, and filled anew at each look. */
  function build() {
    const link = input('link', { placeholder: '10Gbit' })
    const linkForm = h('form', { class: 'changes', async onsubmit(event) {
      event.preventDefault()
      await change({ link: link.value.trim() || null }, link.value.trim() ? 'The rate of the link is noted' : 'The rate of the link is not known any more')
    } }, h('label', null, h('span', null, 'It carries, each way'), link), h('button', null, 'Set'))
    const peers = select('peer', [['', 'any'], ...endpoints.filter(one => one.name !== endpoint).map(one => [one.pin, one.name])])
    const form = h('form', { class: 'fields', onsubmit: agree },
      h('div', { class: 'pairs' },
        field('Name', input('name', { required: true, pattern: '[A-Za-z0-9._\\-]{1,64}' }), 'that of another one replaces it'),
        field('Of which class', select('class', [['', 'any'], ['high', 'high'], ['normal', 'normal'], ['low', 'low']])),
        field('Direction', select('direction', [['', 'each, separately'], ['in', 'in'], ['out', 'out']])),
        field('Other end', peers), field('Ticket', input('user'), 'its id, as `thalweg ticket ls` prints it; `serve` for that without limits'),
        field('At most', input('rate', { placeholder: '2Gbit' }), 'a rate, or a timetable: Mon-08:00,2Gbit Fri-18:00,off'),
        field('Guaranteed', input('guarantee', { placeholder: '500Mbit' }), 'needs the rate of the link'),
        field('Mark (DSCP)', input('dscp', { type: 'number', min: 0, max: 63 }))),
      h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Agree to it')))
    async function agree(event) {
      event.preventDefault()
      const value = name => form.elements[name].value.trim()
      const contract = filled({ class: value('class'), direction: value('direction'), peer: value('peer'), user: value('user'),
        rate: value('rate'), guarantee: value('guarantee'), dscp: value('dscp') === '' ? undefined : Number(value('dscp')) })
      if (await change({ contracts: { [value('name')]: contract } }, `${value('name')} holds within a second`)) form.reset()
    }
    const details = h('details', null, h('summary', null, 'Add or change a contract'), form)
    parts = { link, linkState: h('p'), contracts: h('tbody'), jobs: h('tbody'), form, details }
    put(body,
      h('section', { class: 'card', 'aria-labelledby': 'link' }, h('h2', { id: 'link' }, 'The link'), parts.linkState, linkForm),
      h('section', { class: 'card', 'aria-labelledby': 'contracts' }, h('h2', { id: 'contracts' }, 'Contracts'),
        table('Contracts, as a table', OF_CONTRACT, parts.contracts), details),
      h('section', { class: 'card', 'aria-labelledby': 'shares' }, h('h2', { id: 'shares' }, 'Jobs that run there'),
        table('Jobs, as a table', OF_JOB, parts.jobs)))
  }

  function use(contract) {
    const found = terms.shares.filter(isOf(contract))
    // Each direction has the rate for itself.
    const of = way => found.filter(share => share.direction === way).reduce((sum, share) => sum + share.bytes_per_second, 0)
    const ways = contract.direction ? [contract.direction] : found.length === 0 ? [] : ['in', 'out'].filter(way => found.some(share => share.direction === way))
    const most = contract.bytes_per_second_max
    const upTo = most ? rate(most) : contract.rate ?? 'no bound'
    if (ways.length === 0) return h('span', { class: 'about' }, `no job, of ${upTo}`)
    return ways.map(way => {
      const now = of(way)
      const percent = most ? Math.min(100, Math.round(now / most * 100)) : 0
      const bar = h('span', { class: 'bar', role: 'meter', 'aria-label': `used of it, ${way}`, 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': percent }, h('span'))
      bar.firstChild.style.width = `${percent}%`
      return h('div', { class: 'use' }, h('span', null, `${way === 'in' ? 'in' : 'out'} ${rate(now)} of ${upTo}`), most && bar)
    })
  }

  function contractRow([name, contract]) {
    const { class: ofClass, user, peer, direction, guarantee, dscp } = contract
    const of = [ofClass && `class ${ofClass}`, peer && `with ${nameOf(peer)}`, user && `ticket ${user}`, direction && WAYS[direction]].filter(Boolean)
    const edit = () => {
      const { form, details } = parts
      details.open = true
      for (const key of ['class', 'direction', 'user', 'rate', 'guarantee', 'dscp']) form.elements[key].value = contract[key] ?? ''
      const known = [...form.elements.peer.options].find(option => peer && option.value.startsWith(peer))
      if (peer && !known) form.elements.peer.append(h('option', { value: peer }, nameOf(peer)))
      form.elements.peer.value = known?.value ?? peer ?? ''
      form.elements.name.value = name
      form.elements.rate.focus()
    }
    const end = async () => {
      if (!await confirmed(`End the contract ${name}?`, 'Its jobs have what is left by the others, within a second.', 'End it')) return
      change({ contracts: { [name]: null } }, `${name} holds no more`)
    }
    return headed(OF_CONTRACT, h('tr', null, h('th', { scope: 'row' }, foreign(name)), h('td', null, foreign(of.join(', ') || 'all')), h('td', null, use(contract)),
      h('td', null, [guarantee, dscp !== undefined && `DSCP ${dscp}`].filter(Boolean).join(', ') || '–'),
      h('td', null, h('p', { class: 'verbs' }, h('button', { type: 'button', 'aria-label': `Change ${name}`, onclick: edit }, 'Change'),
        h('button', { type: 'button', class: 'quiet', 'aria-label': `End ${name}`, onclick: end }, 'End…')))))
  }

  function shareRow(share) {
    const { client, class: ofClass, direction, bytes_per_second: moves, rate: most, by, order, job } = share
    return headed(OF_JOB, h('tr', null, h('td', null, job ? h('a', { href: `#/job/${job}` }, h('code', null, `${job.slice(0, 8)}…`)) : h('code', null, `${order.slice(0, 8)}…`)),
      h('td', null, foreign(client, 200)), h('td', null, ofClass), h('td', null, direction),
      h('td', null, most || moves ? rate(moves) : 'not measured'), h('td', null, most ? rate(most) : 'all there is'), h('td', null, foreign(by, 200))))
  }

  const none = (columns, text) => h('tr', null, h('td', { colspan: columns, class: 'empty' }, text))

  function draw() {
    if (!terms.may_manage) {
      parts = undefined
      put(body, h('section', { class: 'card' }, h('p', null, 'The hub may not see or change how ', foreign(endpoint), ' shares its rates out.'),
        h('p', { class: 'hint' }, 'on the endpoint’s host, make a ticket for that, and have the hub redeem it'),
        h('pre', { tabindex: '0' }, `thalweg ticket new --manage-rates --ticket-file hub.ticket\nthalweg endpoint add ${endpoint} --ticket-file hub.ticket --hub`)))
      return
    }
    if (!parts) build()
    const { link, linkState, contracts, jobs } = parts
    put(linkState, terms.link ? [h('b', null, terms.link), ' each way is shared out: high 16, normal 4 and low 1 of 21 parts where all want more.'] : 'How much it carries is not known: lower classes give way when a higher one is held up.')
    if (document.activeElement !== link && !link.matches(':user-valid, :user-invalid')) link.value = terms.link ?? ''
    // Nobody's focus is taken away for a number that changed.
    if (!contracts.contains(document.activeElement)) {
      const all = Object.entries(terms.contracts)
      put(contracts, all.length === 0 ? none(5, 'There is none.') : all.map(contractRow))
    }
    const order = terms.shares.toSorted((a, b) => b.bytes_per_second - a.bytes_per_second)
    put(jobs, order.length === 0 ? none(7, 'No job runs there.') : order.map(shareRow))
  }

  /** Names of ours for the orders there. */
  let ours = new Map()
  async function look() {
    if (!endpoint || document.hidden) return
    const asked = endpoint
    try {
      const [found, running] = await Promise.all([get(`/endpoints/${encodeURIComponent(asked)}/terms`), jobs({ status: 'running', endpoint: asked, limit: 200 })])
      if (finished || asked !== endpoint) return
      ours = new Map(running.jobs.map(job => [job.order, job.id]))
      terms = { ...found, shares: found.shares.map(share => ({ ...share, job: ours.get(share.order) })) }
      put(failed)
      draw()
    } catch (error) {
      if (!finished) put(failed, problem(error))
    }
  }

  get('/endpoints').then(found => {
    if (finished) return
    endpoints = found
    if (found.length === 0) return put(body, h('p', { class: 'empty' }, 'The hub knows no endpoint yet.'))
    endpoint = found.find(one => one.name === id)?.name ?? found[0].name
    put(which, found.map(({ name }) => h('option', { value: name }, name)))
    which.value = endpoint
    look()
  }, error => put(failed, problem(error)))
  const again = setInterval(look, EVERY)
  return () => {
    finished = true
    clearInterval(again)
  }
}
