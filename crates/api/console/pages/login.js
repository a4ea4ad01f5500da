// For strangers: how to get in. Nothing of the hub is shown here.

import { post } from '../api.js'
import { h, problem, put } from '../dom.js'

export const title = 'Log in'

export function show(main, { entered, error }) {
  const failed = h('div', null, error && problem(error))
  const code = h('input', { name: 'code', type: 'password', required: true, autocomplete: 'one-time-code', spellcheck: 'false' })
  const form = h('form', { class: 'fields card', async onsubmit(event) {
    event.preventDefault()
    try {
      await post('/session', { code: code.value.trim() })
      entered()
    } catch (refused) {
      code.value = ''
      put(failed, problem(refused))
    }
  } },
  h('p', null, 'Run ', h('code', null, 'thalweg console'), ' and open the address that it prints. It works once, and for one minute.'),
  failed,
  h('label', null, h('span', null, 'Or the code at its end'), code),
  h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Log in')))
  put(main, h('h1', { tabindex: '-1' }, 'Log in'), form)
  return () => {}
}
