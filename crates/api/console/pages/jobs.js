// All jobs, filtered by the hub. The filter stands in the address; only the rows in sight are in the document.

import { get, jobs, may } from '../api.js'
import { announce, confirmed, h, problem, put, say } from '../dom.js'
import { patch, patchRates, row, steer } from '../job_parts.js'
import { calmly, listen } from '../live.js'
import { count, counted, sourceOf } from '../text.js'

/** As many as fill a window; what is typed is answered by so many. */
const PAGE = 60
/** More is asked for when fewer than these are left below, and then as many. */
const AHEAD = 30
const MORE = 500
const SPARE = 6
/** The hub is asked at most this often while somebody types: at once, and once more after the last key. */
const PATIENCE = 60
const STATUSES = ['open', 'queued', 'waiting', 'running', 'paused', 'succeeded', 'partial', 'failed', 'cancelled']

export const title = 'Jobs'

export function show(main, { query }) {
  const words = {
    q: query.get('q') ?? '', status: query.get('status') ?? '', endpoint: query.get('endpoint') ?? '',
    label: query.get('label') ?? '', owner: query.get('owner') ?? '', order: query.get('order') ?? '',
  }
  const field = (name, label, input) => h('label', null, h('span', null, label), input, name === 'q' && h('span', { class: 'aside' }, 'in the job file'))
  const choice = (name, options) => h('select', { name, onchange: filtered }, options.map(([value, text]) =>
    h('option', { value, selected: words[name] === value }, text)))
  const search = h('input', { type: 'search', name: 'q', value: words.q, placeholder: 'a path, a label, …', autocomplete: 'off', spellcheck: 'false', oninput: () => wanted() })
  const endpoints = choice('endpoint', [['', 'any'], ...words.endpoint ? [[words.endpoint, words.endpoint]] : []])
  const label = h('input', { name: 'label', value: words.label, placeholder: 'name=value', autocomplete: 'off', oninput: () => wanted() })
  const form = h('form', { class: 'filter', role: 'search', onsubmit: event => event.preventDefault() },
    field('q', 'Find', search),
    field('status', 'State', choice('status', [['', 'any'], ...STATUSES.map(status => [status, status])])),
    field('endpoint', 'Endpoint', endpoints),
    field('label', 'Label', label),
    field('order', 'Order', choice('order', [['', 'newest first'], ['oldest', 'oldest first']])))
  const summary = h('p', { class: 'about', role: 'status' })
  const failed = h('div')
  const chosenText = h('span')
  const chosenPart = h('div', { class: 'chosen', hidden: true }, chosenText,
    ['pause', 'resume', 'retry', 'cancel'].map(verb => h('button', { type: 'button', onclick: () => steerAll(verb) }, verb)),
    h('button', { type: 'button', class: 'quiet', onclick: () => { chosen.clear(); draw() } }, 'choose none'))
  const list = h('ul', { class: 'jobs virtual', 'aria-label': 'Jobs', onkeydown: keyPressed })
  put(main, h('h1', { tabindex: '-1' }, 'Jobs'), form, failed, h('div', { class: 'above' }, summary, chosenPart), list,
    h('p', { class: 'keys' }, 'In the list: ', h('kbd', null, 'j'), ' and ', h('kbd', null, 'k'), ' go down and up, ', h('kbd', null, 'Enter'),
      ' opens, ', h('kbd', null, 'x'), ' chooses.'))

  let loaded = []
  let known = new Map()
  let next = null
  let asking
  let finished = false
  const wanted = calmly(PATIENCE, filtered)
  const chosen = new Set()
  /** Rows in the document, by position. */
  const placed = new Map()

  function filtered() {
    for (const name of Object.keys(words)) {
      const input = form.elements[name]
      if (input) words[name] = input.value.trim()
    }
    const asked = new URLSearchParams(Object.entries(words).filter(([, value]) => value))
    history.replaceState(null, '', `#/jobs${asked.size ? `?${asked}` : ''}`)
    load()
  }

  /** What is asked of the hub; a label that is not written out yet is not asked for. */
  const asked = () => ({ ...words, label: words.label.includes('=') ? words.label : '' })

  async function load() {
    asking?.abort()
    asking = new AbortController()
    const { signal } = asking
    try {
      const page = await jobs({ ...asked(), limit: PAGE }, signal)
      if (finished) return
      put(failed)
      loaded = page.jobs
      known = new Map(loaded.map(job => [job.id, job]))
      next = page.next
      for (const id of [...chosen]) if (!known.has(id)) chosen.delete(id)
      draw()
    } catch (error) {
      if (error.name !== 'AbortError' && !finished) put(failed, problem(error))
    } finally {
      if (asking?.signal === signal) asking = undefined
    }
  }

  async function loadMore() {
    if (asking || next === null) return
    asking = new AbortController()
    const { signal } = asking
    try {
      const page = await jobs({ ...asked(), after: next, limit: MORE }, signal)
      if (finished) return
      for (const job of page.jobs) {
        if (known.has(job.id)) continue
        known.set(job.id, job)
        loaded.push(job)
      }
      next = page.next
    } catch (error) {
      if (error.name !== 'AbortError' && !finished) put(failed, problem(error))
      return
    } finally {
      if (asking?.signal === signal) asking = undefined
    }
    draw()
  }

  let height = 0
  function rowHeight() {
    height = parseFloat(getComputedStyle(list).getPropertyValue('--row')) * parseFloat(getComputedStyle(document.documentElement).fontSize)
  }

  function makeRow() {
    const part = row()
    const box = h('input', { type: 'checkbox', tabindex: '-1', onchange: () => choose(node.dataset.id, box.checked) })
    const node = h('li', null, h('label', { class: 'box' }, box), part.node)
    return { node, part, box }
  }

  function fillRow(placedRow, at) {
    const job = loaded[at]
    const { node, part, box } = placedRow
    node.dataset.id = job.id
    node.dataset.at = at
    node.setAttribute('aria-posinset', at + 1)
    node.setAttribute('aria-setsize', next === null ? loaded.length : -1)
    node.style.top = `${at * height}px`
    box.checked = chosen.has(job.id)
    box.setAttribute('aria-label', `choose ${sourceOf(job.job)}`.slice(0, 200))
    part.update(job)
  }

  function draw() {
    if (finished) return
    if (!height) rowHeight()
    list.style.height = `${loaded.length * height}px`
    const above = -list.getBoundingClientRect().top
    const first = Math.max(0, Math.floor(above / height) - SPARE)
    const last = Math.min(loaded.length, Math.ceil((above + innerHeight) / height) + SPARE)
    const free = []
    for (const [at, placedRow] of placed) {
      if (at >= first && at < last || placedRow.node.contains(document.activeElement) && at < loaded.length) continue
      placed.delete(at)
      placedRow.node.remove()
      free.push(placedRow)
    }
    for (let at = first; at < last; at += 1) if (!placed.has(at)) placed.set(at, free.pop() ?? makeRow())
    // In the document they stand in their order, which is the order of the Tab key; none that stays is moved.
    let before = list.firstElementChild
    for (const at of [...placed.keys()].sort((a, b) => a - b)) {
      const { node } = placed.get(at)
      if (node === before) before = before.nextElementSibling
      else list.insertBefore(node, before)
    }
    for (const [at, placedRow] of placed) fillRow(placedRow, at)
    const shown = next === null ? counted(loaded.length, 'job', 'jobs') : `the first ${count(loaded.length)} jobs; more as you scroll`
    say(summary, loaded.length === 0 && !asking ? 'No job is like this.' : shown)
    chosenPart.hidden = chosen.size === 0 || !may('steer')
    say(chosenText, `${count(chosen.size)} chosen: `)
    if (next !== null && loaded.length - last < AHEAD) loadMore()
  }

  function choose(id, is) {
    if (is) chosen.add(id)
    else chosen.delete(id)
    draw()
  }

  function keyPressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const item = event.target.closest('li')
    const at = Number(item?.dataset.at)
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key]
    if (step && Number.isInteger(at)) {
      event.preventDefault()
      const to = Math.min(loaded.length - 1, Math.max(0, at + step))
      const top = list.getBoundingClientRect().top + to * height
      if (top < 0 || top + height > innerHeight) scrollBy(0, top - innerHeight / 2)
      draw()
      placed.get(to)?.part.node.focus({ preventScroll: true })
    } else if (event.key === 'x' && item) {
      event.preventDefault()
      choose(item.dataset.id, !chosen.has(item.dataset.id))
    }
  }

  async function steerAll(verb) {
    const ids = [...chosen]
    const about = `${verb} ${counted(ids.length, 'job', 'jobs')}`
    if (verb === 'cancel' && !await confirmed(`Cancel ${counted(ids.length, 'job', 'jobs')}?`, 'What was verified is kept; a retry goes on with it.', 'Cancel them')) return
    let refused
    let done = 0
    for (const id of ids) {
      try {
        const job = await steer(id, verb)
        if (known.has(id)) Object.assign(known.get(id), job)
        chosen.delete(id)
        done += 1
      } catch (error) {
        refused = error
      }
    }
    announce(`${about}: ${done} done`)
    put(failed, refused && problem(refused))
    draw()
  }

  const soon = calmly(1000, draw)
  const reload = calmly(2000, () => { if (scrollY < 200 && chosen.size === 0 && !list.contains(document.activeElement)) load() })
  const stops = [
    listen('status', event => {
      const job = known.get(event.job)
      if (job) patch(job, event)
      soon()
      reload()
    }),
    listen('rates', rates => { patchRates(known, rates); soon() }),
    listen('reset', load),
  ]
  const scrolled = () => requestAnimationFrame(draw)
  const resized = () => { rowHeight(); draw() }
  addEventListener('scroll', scrolled, { passive: true })
  addEventListener('resize', resized)
  load()
  get('/endpoints').then(found => {
    if (finished) return
    for (const { name } of found) if (name !== words.endpoint) endpoints.append(h('option', { value: name }, name))
  }, () => {})
  return () => {
    finished = true
    asking?.abort()
    wanted.stop()
    soon.stop()
    reload.stop()
    stops.forEach(stop => stop())
    removeEventListener('scroll', scrolled)
    removeEventListener('resize', resized)
  }
}
