// The fields of a job file, for whoever hands in a job and for whoever makes a schedule.

import { get } from './api.js'
import { h, problem, put } from './dom.js'

export const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone

export const select = (name, options) => h('select', { name }, options.map(([value, text]) => h('option', { value }, text)))
export const input = (name, attributes) => h('input', { name, autocomplete: 'off', spellcheck: 'false', ...attributes })
/** The hint is no part of the name, and is read after it. */
export function field(label, control, hint) {
  const id = `hint-${control.name}`
  if (hint) control.setAttribute('aria-describedby', id)
  return h('div', { class: 'field' }, h('label', null, h('span', null, label), control), hint && h('p', { class: 'hint', id }, hint))
}
export const check = (name, text, attributes) => h('label', { class: 'check' }, input(name, { type: 'checkbox', ...attributes }), h('span', null, text))
export const days = (prefix, label) => h('div', { class: 'days', role: 'group', 'aria-label': label }, DAYS.map(day => check(`${prefix}-${day}`, day)))

/** A moment as the hub wants it, with this browser's offset from UTC. */
function withOffset(local) {
  if (!local) return undefined
  const minutes = -new Date(local).getTimezoneOffset()
  const two = number => String(Math.floor(Math.abs(number))).padStart(2, '0')
  return `${local.length === 16 ? `${local}:00` : local}${minutes < 0 ? '-' : '+'}${two(minutes / 60)}:${two(minutes % 60)}`
}

const lines = text => text.split('\n').map(line => line.trim()).filter(Boolean)

/** Without what is empty. */
export function filled(file) {
  const isEmpty = value => value === undefined || value === '' || typeof value === 'object' && Object.keys(value).length === 0
  return Object.fromEntries(Object.entries(file).filter(([, value]) => !isEmpty(value)))
}

/** `nodes` for a form, and `file(form)`, the job file that stands in them. A job that begins again and again has no moments of its own. */
export function jobFields(isRecurring) {
  const from = select('from', [])
  const to = select('to', [])
  const nodes = [
    h('fieldset', null, h('legend', null, 'From'), field('Endpoint', from),
      field('Paths', h('textarea', { name: 'paths', rows: 2, required: true, spellcheck: 'false' }), 'one a line; a trailing slash means the contents')),
    h('fieldset', null, h('legend', null, 'To'), field('Endpoint', to), field('Path', input('path'), 'a trailing slash means: into this directory')),
    h('fieldset', null, h('legend', null, 'How'),
      field('Kind', select('kind', [['copy', 'copy'], ['sync', 'sync: leave out what is there already'], ['move', 'move: remove from the source what has arrived'], ['check', 'check: compare, and copy nothing']])),
      check('delete', 'with sync, delete what the source does not have'),
      field('Class', select('class', [['', 'normal'], ['high', 'high'], ['low', 'low']])),
      field('Rate at most', input('rate', { placeholder: '80Mbit' }), 'as for --bwlimit: a rate, or a timetable')),
    h('details', null, h('summary', null, isRecurring ? 'More' : 'When, and more'),
      !isRecurring && h('fieldset', null, h('legend', null, 'When'),
        field('Start by', input('start_by', { type: 'datetime-local' })), field('Finish by', input('finish_by', { type: 'datetime-local' })),
        days('day', 'Days of its window'),
        field('Only from', input('window_from', { type: 'time' })), field('to', input('window_to', { type: 'time' }), `in ${ZONE}`)),
      h('fieldset', null, h('legend', null, 'More'),
        field('Project', input('project')), field('Priority', input('priority', { type: 'number', min: -128, max: 127 }), '-128 to 127, among your own jobs'),
        !isRecurring && field('After the jobs', h('textarea', { name: 'after', rows: 2, spellcheck: 'false' }), 'ids, one a line'),
        field('Labels', h('textarea', { name: 'labels', rows: 2, spellcheck: 'false' }), 'name=value, one a line'),
        field('Filters', h('textarea', { name: 'filter', rows: 2, spellcheck: 'false' }), 'rules of sync, one a line: - *.tmp'),
        check('reread', 'read everything again at the destination and compare'))),
  ]

  function file(form) {
    const value = name => form.elements[name]?.value.trim() ?? ''
    const is = name => form.elements[name]?.checked ?? false
    const sources = lines(value('paths')).map(path => `${from.value}:${path}`)
    const labels = Object.fromEntries(lines(value('labels')).map(line => {
      const at = line.indexOf('=')
      return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1)]
    }))
    const chosen = DAYS.filter(day => is(`day-${day}`))
    const window = value('window_from') && value('window_to') && { ...chosen.length ? { days: chosen } : {}, from: value('window_from'), to: value('window_to'), zone: ZONE }
    return filled({
      kind: value('kind'), source: sources.length === 1 ? sources[0] : sources, destination: `${to.value}:${value('path')}`,
      class: value('class'), rate: value('rate'), project: value('project'), priority: value('priority') === '' ? undefined : Number(value('priority')),
      start_by: withOffset(value('start_by')), finish_by: withOffset(value('finish_by')), windows: window ? [window] : undefined,
      after: lines(value('after')), labels,
      options: filled({ delete: is('delete') || undefined, verify: is('reread') ? 'reread' : undefined, filter: lines(value('filter')) }),
    })
  }

  /** Asks which endpoints there are. What is wrong is shown in `refused`. */
  async function ask(refused) {
    try {
      const found = await get('/endpoints')
      if (found.length === 0) put(refused, problem({ message: 'the hub knows no endpoint', hint: 'add one on the page Endpoints first' }))
      for (const list of [from, to]) put(list, found.map(({ name }) => h('option', { value: name }, name)))
      if (found.length > 1) to.value = found[1].name
    } catch (error) {
      put(refused, problem(error))
    }
  }
  return { nodes, file, ask }
}

/** One key for one form: a second click is the same submission. */
export const newKey = () => crypto.getRandomValues(new Uint8Array(16)).reduce((text, byte) => text + byte.toString(16).padStart(2, '0'), '')
