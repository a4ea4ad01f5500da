// Who may do what: tokens, which say who a program is, and rules, which say what its jobs may touch. For administrators.

import { get, post, remove } from '../api.js'
import { announce, confirmed, foreign, h, headed, problem, put, table } from '../dom.js'
import { ago, moment } from '../text.js'

const SCOPES = { read: 'see its own jobs', submit: 'hand in jobs', steer: 'pause, resume, cancel and forget its own jobs', admin: 'everything, for everybody' }
const OF_TOKEN = ['Name', 'May', 'Ends', '']
const OF_ENDPOINT = ['Endpoint', 'May', 'Where', 'Class at most', 'Ends']
const LIFETIMES = [['an hour', 3600], ['a day', 86_400], ['30 days', 30 * 86_400], ['a year', 365 * 86_400]]

export const title = 'Access'

export function show(main) {
  const failed = h('div')
  const secret = h('div')
  const tokens = h('tbody')
  const rules = h('tbody')
  const name = h('input', { name: 'name', required: true, autocomplete: 'off', spellcheck: 'false' })
  const lifetime = h('select', { name: 'lifetime' }, LIFETIMES.map(([text, seconds]) => h('option', { value: seconds }, text)))
  const tokenForm = h('form', { class: 'fields', onsubmit: addToken }, h('div', { class: 'field' }, h('label', null, h('span', null, 'Name'), name)),
    h('fieldset', null, h('legend', null, 'It may'), Object.entries(SCOPES).map(([scope, text]) =>
      h('label', { class: 'check' }, h('input', { type: 'checkbox', name: scope, checked: scope === 'read' }), h('span', null, h('b', null, scope), `: ${text}`)))),
    h('div', { class: 'field' }, h('label', null, h('span', null, 'For'), lifetime)),
    h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Make the token')))
  const rule = h('input', { name: 'rule', required: true, autocomplete: 'off', spellcheck: 'false', placeholder: 'allow token:NAME read,write berlin:runs/' })
  const ruleForm = h('form', { class: 'fields', onsubmit: addRule }, h('div', { class: 'field' }, h('label', null, h('span', null, 'Rule'), rule)),
    h('p', { class: 'verbs' }, h('button', { class: 'main' }, 'Add the rule')))
  const grants = h('tbody')
  put(main, h('h1', { tabindex: '-1' }, 'Access'), failed,
    h('section', { class: 'card', 'aria-labelledby': 'tokens' }, h('h2', { id: 'tokens' }, 'Tokens'), secret, table('Tokens, as a table', OF_TOKEN, tokens),
      h('details', null, h('summary', null, 'Make a token'), tokenForm)),
    h('section', { class: 'card', 'aria-labelledby': 'rules' }, h('h2', { id: 'rules' }, 'Rules'),
      h('p', { class: 'about' }, 'What jobs of a token may touch. Without a rule, nothing.'), table('Rules, as a table', ['Rule', ''], rules),
      h('details', null, h('summary', null, 'Add a rule'), ruleForm)),
    h('section', { class: 'card', 'aria-labelledby': 'grants' }, h('h2', { id: 'grants' }, 'What endpoints let the hub do'),
      h('p', { class: 'about' }, 'By the ticket that the hub redeemed there. No rule allows more.'),
      table('Grants, as a table', OF_ENDPOINT, grants)))
  let finished = false

  /** Does it, and shows what came of it. */
  async function does(call) {
    try {
      await call()
      put(failed)
    } catch (error) {
      if (!finished) put(failed, problem(error))
      failed.scrollIntoView({ block: 'nearest' })
    }
    await look()
  }

  function addToken(event) {
    event.preventDefault()
    const scopes = Object.keys(SCOPES).filter(scope => tokenForm.elements[scope].checked)
    return does(async () => {
      const made = await post('/tokens', { name: name.value.trim(), scopes, seconds: Number(lifetime.value) })
      tokenForm.reset()
      put(secret, h('p', null, 'The token of ', foreign(made.principal), ', which is shown this once:'), h('pre', { tabindex: '0' }, made.token))
      announce('The token is made; it is shown above the list')
    })
  }

  function addRule(event) {
    event.preventDefault()
    return does(async () => {
      await post('/rules', { rule: rule.value.trim() })
      ruleForm.reset()
      announce('The rule holds')
    })
  }

  const withdraw = (what, path, text) => h('button', { type: 'button', 'aria-label': `Withdraw ${text}`, async onclick() {
    if (!await confirmed(`Withdraw this ${what}?`, `${text}. Open jobs that nothing allows any more are cancelled at once.`, 'Withdraw it')) return
    does(async () => {
      const { cancelled } = await remove(path)
      announce(cancelled > 0 ? `Withdrawn; jobs cancelled: ${cancelled}` : 'Withdrawn')
    })
  } }, 'Withdraw…')

  async function look() {
    try {
      const [allTokens, allRules] = await Promise.all([get('/tokens'), get('/rules')])
      if (finished) return
      put(tokens, allTokens.map(token => headed(OF_TOKEN, h('tr', null, h('td', null, foreign(token.name)), h('td', null, token.scopes.join(', ')),
        h('td', null, `${moment(token.expires)} (${token.is_expired ? 'over' : ago(token.expires)})`),
        h('td', null, withdraw('token', `/tokens/${encodeURIComponent(token.name)}`, token.name))))),
      allTokens.length === 0 && h('tr', null, h('td', { colspan: 4 }, 'There is none.')))
      put(rules, allRules.map(one => h('tr', null, h('td', { class: 'mono' }, foreign(one.rule)), h('td', null, withdraw('rule', `/rules/${one.id}`, one.rule)))),
        allRules.length === 0 && h('tr', null, h('td', { colspan: 2 }, 'There is none.')))
    } catch (error) {
      if (!finished) put(failed, problem(error))
    }
  }

  /** Each is asked separately: one that is away holds up no other. */
  async function askGrants() {
    const found = await get('/endpoints')
    if (finished) return
    const rows = found.map(({ name }) => h('tr', null, h('td', null, h('a', { href: `#/endpoint/${encodeURIComponent(name)}` }, foreign(name))), h('td', { colspan: 4, class: 'about' }, 'is being asked …')))
    put(grants, found.length === 0 ? h('tr', null, h('td', { colspan: 5 }, 'The hub knows no endpoint yet.')) : rows)
    found.forEach(async ({ name }, at) => {
      const cells = await get(`/endpoints/${encodeURIComponent(name)}/terms`).then(grantOf, error => [h('td', { colspan: 4, class: 'about' }, foreign(error.message, 300))])
      rows[at].replaceChildren(rows[at].firstChild, ...cells)
      if (cells.length > 1) headed(OF_ENDPOINT, rows[at])
    })
  }

  function grantOf({ may_read, may_write, path, class_max, expires, may_manage }) {
    const may = [may_read && 'read', may_write && 'write', may_manage && 'manage rates'].filter(Boolean)
    return [may.join(', ') || 'nothing', foreign(path || 'the whole root'), class_max, expires ? `${moment(expires)} (${ago(expires)})` : 'when it is revoked'].map(text => h('td', null, text))
  }

  look()
  askGrants().catch(error => put(failed, problem(error)))
  return () => { finished = true }
}
