// A form that becomes a job file and is handed in.

import { get, post } from '../api.js'
import { announce, h, problem, put, say } from '../dom.js'
import { counted, duration, size } from '../text.js'
import { jobFields, newKey } from '../job_form.js'

export const title = 'New job'

export function show(main) {
  const refused = h('div')
  const preview = h('pre', { tabindex: '0' })
  const found = h('div', { role: 'status' })
  let isShown = true
  const fields = jobFields(false)
  const form = h('form', { class: 'fields', onsubmit: handIn, oninput: draw }, refused, fields.nodes,
    h('details', null, h('summary', null, 'The job file'), preview),
    found, h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Hand in'), h('button', { type: 'button', onclick: rehearse }, 'Rehearse')))
  put(main, h('h1', { tabindex: '-1' }, 'New job'), form)
  let key = newKey()

  function draw() {
    say(preview, JSON.stringify(fields.file(form), null, 2))
  }

  async function handIn(event) {
    event.preventDefault()
    const button = form.querySelector('button.main')
    button.disabled = true
    try {
      const taken = await post('/jobs', fields.file(form), { 'Idempotency-Key': key })
      announce(taken.is_new ? 'The job is handed in' : 'This job was there already')
      location.assign(`#/job/${taken.id}`)
    } catch (error) {
      put(refused, problem(error))
      refused.scrollIntoView({ block: 'nearest' })
      // What was refused is another job next time; what may have been taken is the same one.
      if (error.status >= 400 && error.status < 500) key = newKey()
    } finally {
      button.disabled = false
    }
  }

  /** What the job would do, found out by its endpoints. */
  async function rehearse({ target }) {
    if (!form.reportValidity()) return
    target.disabled = true
    put(refused)
    say(found, 'The endpoints look at what there is to do...')
    try {
      const { id } = await post('/rehearsals', fields.file(form))
      let seen = await get(`/rehearsals/${id}`)
      while (isShown && seen.code === undefined) {
        await new Promise(resolve => setTimeout(resolve, 500))
        seen = await get(`/rehearsals/${id}`)
      }
      if (seen.code) throw { message: seen.text ?? `the rehearsal is ${seen.status}`, hint: seen.hint }
      const time = seen.predicted
        ? `about ${duration(seen.predicted.p50)} (${duration(seen.predicted.p5)} to ${duration(seen.predicted.p95)}), by what ${counted(seen.predicted.jobs, 'job', 'jobs')} like it took`
        : 'cannot be said yet: no job between the two has moved anything'
      put(found, h('dl', { class: 'facts' },
        [['Would copy', `${counted(seen.files, 'file', 'files')}, ${size(seen.bytes)}`], ['Left as they are', counted(seen.skipped, 'file', 'files')],
          ['Would remove', counted(seen.removed, 'object', 'objects')], ['Would take', time]].map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value)))))
    } catch (error) {
      say(found, '')
      put(refused, problem(error))
      refused.scrollIntoView({ block: 'nearest' })
    } finally {
      target.disabled = false
    }
  }

  fields.ask(refused).then(draw)
  return () => { isShown = false }
}
