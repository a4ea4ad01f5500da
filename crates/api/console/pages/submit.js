// A form that becomes a job file and is handed in.

import { get, post } from '../api.js'
import { announce, h, problem, put, say } from '../dom.js'

const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']

export const title = 'New job'

/** A moment as the hub wants it, with this browser's offset from UTC. */
function withOffset(local) {
  if (!local) return undefined
  const date = new Date(local)
  const minutes = -date.getTimezoneOffset()
  const two = number => String(Math.floor(Math.abs(number))).padStart(2, '0')
  return `${local.length === 16 ? `${local}:00` : local}${minutes < 0 ? '-' : '+'}${two(minutes / 60)}:${two(minutes % 60)}`
}

const lines = text => text.split('\n').map(line => line.trim()).filter(Boolean)

export function show(main) {
  const select = (name, options) => h('select', { name }, options.map(([value, text]) => h('option', { value }, text)))
  const input = (name, attributes) => h('input', { name, autocomplete: 'off', spellcheck: 'false', ...attributes })
  /** The hint is no part of the name, and is read after it. */
  const field = (label, control, hint) => {
    const id = `hint-${control.name}`
    if (hint) control.setAttribute('aria-describedby', id)
    return h('div', { class: 'field' }, h('label', null, h('span', null, label), control), hint && h('p', { class: 'hint', id }, hint))
  }
  const from = select('from', [])
  const to = select('to', [])
  const refused = h('div')
  const preview = h('pre', { tabindex: '0' })
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  const form = h('form', { class: 'fields', onsubmit: handIn, oninput: show },
    refused,
    h('fieldset', null, h('legend', null, 'From'), field('Endpoint', from),
      field('Paths', h('textarea', { name: 'paths', rows: 2, required: true, spellcheck: 'false' }), 'one a line; a trailing slash means the contents')),
    h('fieldset', null, h('legend', null, 'To'), field('Endpoint', to), field('Path', input('path'), 'a trailing slash means: into this directory')),
    h('fieldset', null, h('legend', null, 'How'),
      field('Kind', select('kind', [['copy', 'copy'], ['sync', 'sync: leave out what is there already']])),
      h('label', { class: 'check' }, input('delete', { type: 'checkbox' }), h('span', null, 'with sync, delete what the source does not have')),
      field('Class', select('class', [['', 'normal'], ['high', 'high'], ['low', 'low']])),
      field('Rate at most', input('rate', { placeholder: '80Mbit' }), 'as for --bwlimit: a rate, or a timetable')),
    h('details', null, h('summary', null, 'When, and more'),
      h('fieldset', null, h('legend', null, 'When'),
        field('Start by', input('start_by', { type: 'datetime-local' })), field('Finish by', input('finish_by', { type: 'datetime-local' })),
        h('div', { class: 'days', role: 'group', 'aria-label': 'Days of its window' }, DAYS.map(day => h('label', { class: 'check' }, input(`day-${day}`, { type: 'checkbox' }), h('span', null, day)))),
        field('Only from', input('window_from', { type: 'time' })), field('to', input('window_to', { type: 'time' }), `in ${zone}`)),
      h('fieldset', null, h('legend', null, 'More'),
        field('Project', input('project')), field('Priority', input('priority', { type: 'number', min: -128, max: 127 }), '-128 to 127, among your own jobs'),
        field('After the jobs', h('textarea', { name: 'after', rows: 2, spellcheck: 'false' }), 'ids, one a line'),
        field('Labels', h('textarea', { name: 'labels', rows: 2, spellcheck: 'false' }), 'name=value, one a line'),
        field('Filters', h('textarea', { name: 'filter', rows: 2, spellcheck: 'false' }), 'rules of sync, one a line: - *.tmp'),
        h('label', { class: 'check' }, input('reread', { type: 'checkbox' }), h('span', null, 'read everything again at the destination and compare')))),
    h('details', null, h('summary', null, 'The job file'), preview),
    h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Hand in')))
  put(main, h('h1', { tabindex: '-1' }, 'New job'), form)

  /** One key for one form: a second click is the same job. */
  let key = crypto.getRandomValues(new Uint8Array(16)).reduce((text, byte) => text + byte.toString(16).padStart(2, '0'), '')
  let finished = false

  function jobFile() {
    const value = name => form.elements[name].value.trim()
    const is = name => form.elements[name].checked
    const sources = lines(form.elements.paths.value).map(path => `${from.value}:${path}`)
    const options = {}
    if (is('delete')) options.delete = true
    if (is('reread')) options.verify = 'reread'
    if (value('filter')) options.filter = lines(value('filter'))
    const labels = Object.fromEntries(lines(value('labels')).map(line => {
      const at = line.indexOf('=')
      return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1)]
    }))
    const days = DAYS.filter(day => is(`day-${day}`))
    const window = value('window_from') && value('window_to') && { ...days.length ? { days } : {}, from: value('window_from'), to: value('window_to'), zone }
    const file = {
      kind: value('kind'), source: sources.length === 1 ? sources[0] : sources, destination: `${to.value}:${value('path')}`,
      class: value('class'), rate: value('rate'), project: value('project'), priority: value('priority') === '' ? undefined : Number(value('priority')),
      start_by: withOffset(value('start_by')), finish_by: withOffset(value('finish_by')), windows: window ? [window] : undefined,
      after: lines(value('after')), labels, options,
    }
    const isEmpty = value => value === undefined || value === '' || typeof value === 'object' && Object.keys(value).length === 0
    return Object.fromEntries(Object.entries(file).filter(([, value]) => !isEmpty(value)))
  }

  function show() {
    say(preview, JSON.stringify(jobFile(), null, 2))
  }

  async function handIn(event) {
    event.preventDefault()
    const button = form.querySelector('button.main')
    button.disabled = true
    try {
      const taken = await post('/jobs', jobFile(), { 'Idempotency-Key': key })
      announce(taken.is_new ? 'The job is handed in' : 'This job was there already')
      location.assign(`#/job/${taken.id}`)
    } catch (error) {
      put(refused, problem(error))
      refused.scrollIntoView({ block: 'nearest' })
      // What is handed in next is another job.
      key = `${key}'`.slice(-100)
    } finally {
      button.disabled = false
    }
  }

  get('/endpoints').then(found => {
    if (finished) return
    if (found.length === 0) put(refused, problem({ message: 'the hub knows no endpoint', hint: 'add one on the page Endpoints first' }))
    for (const list of [from, to]) put(list, found.map(({ name }) => h('option', { value: name }, name)))
    if (found.length > 1) to.value = found[1].name
    show()
  }, error => put(refused, problem(error)))
  return () => { finished = true }
}
