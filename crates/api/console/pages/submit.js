// A form that becomes a job file and is handed in.

import { post } from '../api.js'
import { announce, h, problem, put, say } from '../dom.js'
import { jobFields, newKey } from '../job_form.js'

export const title = 'New job'

export function show(main) {
  const refused = h('div')
  const preview = h('pre', { tabindex: '0' })
  const fields = jobFields(false)
  const form = h('form', { class: 'fields', onsubmit: handIn, oninput: draw }, refused, fields.nodes,
    h('details', null, h('summary', null, 'The job file'), preview),
    h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Hand in')))
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
      // What is handed in next is another job.
      key = newKey()
    } finally {
      button.disabled = false
    }
  }

  fields.ask(refused).then(draw)
  return () => {}
}
