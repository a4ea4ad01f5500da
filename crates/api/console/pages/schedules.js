// Jobs that begin again and again: when next, what came of the last time, and a form for another one.

import { get, may, me, post, remove } from '../api.js'
import { announce, confirmed, foreign, h, problem, put } from '../dom.js'
import { DAYS, days, field, input, jobFields, ZONE } from '../job_form.js'
import { badge, ends } from '../job_parts.js'
import { calmly, listen } from '../live.js'
import { ago, minute } from '../text.js'

export const title = 'Schedules'

/** When it begins, as one would say it. */
export function timesOf({ at, days, zone }) {
  const which = !days?.length || days.length === DAYS.length ? 'every day' : days.join() === 'mon,tue,wed,thu,fri' ? 'on weekdays' : days.join() === 'sat,sun' ? 'at weekends' : `on ${days.join(', ')}`
  const hourly = at.filter(time => time.startsWith('*:')).map(time => time.slice(1))
  const fixed = at.filter(time => !time.startsWith('*:'))
  const parts = [hourly.length > 0 && `each hour at ${hourly.join(', ')}`, fixed.length > 0 && `at ${fixed.join(', ')}`].filter(Boolean)
  return `${parts.join(' and ')}, ${which} (${zone || 'UTC'})`
}

export function show(main) {
  const failed = h('div')
  const list = h('ul', { class: 'cards', 'aria-label': 'Schedules' })
  const refused = h('div')
  const fields = jobFields(true)
  const form = h('form', { class: 'fields', onsubmit: add }, refused,
    h('fieldset', null, h('legend', null, 'When'),
      field('Name', input('name', { required: true, pattern: '[A-Za-z0-9._\\-]{1,64}' }), 'letters, digits, -, _ and .'),
      field('Times', input('at', { required: true, placeholder: '02:30' }), '02:30 for that time of day, *:15 for each hour; several with commas between them'),
      days('on', 'Days'), field('Time zone', input('zone', { value: ZONE }), 'no day chosen means every day')),
    fields.nodes,
    h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Make the schedule')))
  put(main, h('h1', { tabindex: '-1' }, 'Schedules'), failed, list,
    may('submit') && h('details', { class: 'card' }, h('summary', null, 'Make a schedule'), form))
  let finished = false

  async function add(event) {
    event.preventDefault()
    const value = name => form.elements[name].value.trim()
    const on = DAYS.filter(day => form.elements[`on-${day}`].checked)
    const times = { at: value('at').split(',').map(time => time.trim()).filter(Boolean), ...on.length ? { days: on } : {}, ...value('zone') ? { zone: value('zone') } : {} }
    try {
      const added = await post('/schedules', { name: value('name'), times, job: fields.file(form) })
      form.reset()
      form.elements.zone.value = ZONE
      put(refused)
      announce(`${added.name} begins ${ago(added.next)} for the first time`)
      await look()
    } catch (error) {
      put(refused, problem(error))
      refused.scrollIntoView({ block: 'nearest' })
    }
  }

  /** Does it, and shows what came of it. */
  async function does(call, said) {
    try {
      const after = await call()
      put(failed)
      announce(said(after))
    } catch (error) {
      if (!finished) put(failed, problem(error))
      failed.scrollIntoView({ block: 'nearest' })
    }
    await look()
  }

  function buttons({ name, is_paused }) {
    const path = `/schedules/${encodeURIComponent(name)}`
    const button = (text, label, onclick, of = 'plain') => h('button', { type: 'button', class: of, 'aria-label': `${label} ${name}`, onclick }, text)
    return h('p', { class: 'verbs' },
      button('Run now', 'Run now:', () => does(() => post(`${path}/run`), () => `A job of ${name} has begun`)),
      is_paused ? button('Resume', 'Resume', () => does(() => post(`${path}/resume`), after => `${name} begins ${ago(after.next)}`))
        : button('Pause', 'Pause', () => does(() => post(`${path}/pause`), () => `${name} begins no jobs until it is resumed`)),
      button('Remove…', 'Remove', async () => {
        if (!await confirmed(`Remove ${name}?`, 'It begins no more jobs. Those that it began go on.', 'Remove it')) return
        does(() => remove(path), () => `${name} is removed`)
      }, 'quiet'))
  }

  function lastOf(schedule) {
    const { last, last_job, last_status, text } = schedule
    const what = last_job && (last_status ? h('a', { href: `#/job/${last_job}` }, badge(last_status).node) : 'a job that the hub has forgotten')
    return [last ? `${minute(last)} (${ago(last)}) ` : last_job ? 'begun by hand ' : 'not yet', ' ', what, text && h('p', { class: 'why' }, foreign(text, 400))]
  }

  function card(schedule) {
    const { name, owner, times, is_paused, next, upcoming = [] } = schedule
    return h('li', { class: 'card' }, h('h2', null, foreign(name), ' ', is_paused && badge('paused').node),
      h('p', null, ends(schedule, 300)),
      h('dl', { class: 'facts' },
        h('div', { class: 'wide' }, h('dt', null, 'Begins'), h('dd', null, timesOf(times))),
        h('div', { class: 'wide' }, h('dt', null, 'Next'), h('dd', null, is_paused ? 'not before it is resumed' : next ? `${minute(next)} (${ago(next)})` : 'never',
          upcoming.length > 1 && h('span', { class: 'about' }, `; then ${upcoming.slice(1).map(minute).join(', ')}`))),
        h('div', { class: 'wide' }, h('dt', null, 'Last'), h('dd', null, lastOf(schedule))),
        me.is_admin && h('div', null, h('dt', null, 'Owner'), h('dd', null, foreign(owner)))),
      may('steer') && buttons(schedule))
  }

  let shown
  async function look() {
    try {
      const found = await get('/schedules')
      if (finished) return
      // What has not changed is left alone, so that focus stays where it is; the minute is for "in 5 min".
      const state = JSON.stringify([found, Math.floor(Date.now() / 60_000)])
      if (state === shown) return
      shown = state
      const at = [...list.querySelectorAll('button')].indexOf(document.activeElement)
      put(list, found.length === 0 ? h('li', { class: 'empty' }, 'There is no schedule yet.') : found.map(card))
      if (at >= 0) list.querySelectorAll('button')[at]?.focus()
    } catch (error) {
      if (!finished) put(failed, problem(error))
    }
  }

  const soon = calmly(1000, look)
  const stops = [listen('status', soon), listen('reset', soon)]
  look()
  if (may('submit')) fields.ask(refused)
  const again = setInterval(look, 15_000)
  return () => {
    finished = true
    clearInterval(again)
    soon.stop()
    stops.forEach(stop => stop())
  }
}
