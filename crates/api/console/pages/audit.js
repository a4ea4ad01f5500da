// Who did what, the newest first, and whether the log is whole. For administrators.

import { get } from '../api.js'
import { foreign, h, headed, problem, put, say, table } from '../dom.js'
import { calmly } from '../live.js'
import { count, moment } from '../text.js'

const HEADS = ['When', 'Who', 'Did', 'To what', 'What came of it']
const PAGE = 100
const PATIENCE = 120

export const title = 'Audit'

export function show(main, { query }) {
  const failed = h('div')
  const chain = h('div', { role: 'status' })
  const search = h('input', { type: 'search', name: 'q', value: query.get('q') ?? '', placeholder: 'a name, a verb, a path, …', autocomplete: 'off', spellcheck: 'false', oninput: () => wanted() })
  const summary = h('p', { class: 'about', role: 'status' })
  const rows = h('tbody')
  const more = h('button', { type: 'button', hidden: true, onclick: () => load(true) }, 'Older lines')
  put(main, h('h1', { tabindex: '-1' }, 'Audit'), failed,
    h('section', { class: 'card', 'aria-labelledby': 'chain' }, h('h2', { id: 'chain' }, 'The log'), chain,
      h('p', { class: 'verbs' }, h('button', { type: 'button', onclick: verify }, 'Check it again'))),
    h('form', { class: 'filter', role: 'search', onsubmit: event => event.preventDefault() }, h('label', null, h('span', null, 'Find'), search)),
    summary,
    h('section', { class: 'card', 'aria-label': 'Lines' },
      h('div', { class: 'lines' }, table('Lines, as a table', HEADS, rows)),
      h('p', { class: 'verbs' }, more)))
  let finished = false
  let oldest
  let turn = 0
  const wanted = calmly(PATIENCE, () => load(false))

  function row(line) {
    const { n, time, who, do: did, target, code, text } = line
    // What a job did is seen at the job.
    const job = /^[0-9a-f]{32}(?= |$)/.exec(target)?.[0]
    const what = job ? [h('a', { href: `#/job/${job}` }, h('code', null, `${job.slice(0, 8)}…`)), foreign(target.slice(32), 400)] : foreign(target, 400)
    return headed(HEADS, h('tr', null, h('td', null, h('time', { datetime: time, title: `line ${n}` }, moment(time))), h('td', null, foreign(who)), h('td', null, did), h('td', null, what),
      h('td', null, code === 0 ? h('span', { class: 'badge succeeded' }, h('span', { 'aria-hidden': 'true' }, '✓'), h('span', null, 'done'))
        : [h('span', { class: 'badge failed' }, h('span', { 'aria-hidden': 'true' }, '✕'), h('span', null, `code ${code}`)), text && h('p', { class: 'why' }, foreign(text, 400))])))
  }

  async function load(isMore) {
    const mine = turn += 1
    const q = search.value.trim()
    const asked = new URLSearchParams({ order: 'newest', limit: PAGE, ...q ? { q } : {}, ...isMore && oldest ? { after: oldest } : {} })
    history.replaceState(null, '', `#/audit${q ? `?${new URLSearchParams({ q })}` : ''}`)
    try {
      const found = await get(`/audit?${asked}`)
      if (finished || mine !== turn) return
      put(failed)
      if (!isMore) put(rows)
      rows.append(...found.map(row))
      oldest = found.at(-1)?.n ?? oldest
      more.hidden = found.length < PAGE
      const { length } = rows.children
      say(summary, length === 0 ? 'No line is like this.' : `${count(length)} ${length === 1 ? 'line' : 'lines'}${found.length < PAGE ? '' : ', the newest; older ones below'}`)
    } catch (error) {
      if (!finished && mine === turn) put(failed, problem(error))
    }
  }

  async function verify() {
    put(chain, h('p', { class: 'about' }, 'Every line is being looked at …'))
    try {
      const { is_whole, first, last, digest, text } = await get('/audit/chain')
      if (finished) return
      put(chain, is_whole
        ? [h('p', null, h('span', { class: 'badge succeeded' }, h('span', { 'aria-hidden': 'true' }, '✓'), h('span', null, 'whole')), ` Lines ${count(first)} to ${count(last)} follow one another, and none is missing.`),
          h('p', { class: 'about' }, 'The digest of the last one, to be compared later with a copy kept elsewhere: ', h('code', null, digest))]
        : problem({ message: text, hint: 'the lines before it are as they were written; look at who can write the hub’s state directory, and at its backups' }))
    } catch (error) {
      if (!finished) put(chain, problem(error))
    }
  }

  load(false)
  verify()
  return () => {
    finished = true
    wanted.stop()
  }
}
