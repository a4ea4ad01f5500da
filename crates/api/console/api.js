// Questions to the hub. A refusal becomes a `Refused` with what happened and what to do.

const BASE = '/api/v1'

/** Who looks, and what that one may do: `name`, `scopes`, `is_admin`. */
export let me = { name: '', scopes: [], is_admin: false }
export const may = scope => me.scopes.includes(scope) || me.is_admin

export class Refused extends Error {
  constructor(status, body) {
    super(body.detail ?? `the hub answered ${status}`)
    this.status = status
    this.hint = body.hint
    this.code = body.code
  }
}

/** Called when the hub no longer knows who asks. */
let onStranger = () => {}
export const whenStranger = call => { onStranger = call }

async function ask(method, path, { body, headers, signal } = {}) {
  const init = { method, signal, credentials: 'same-origin', headers: { ...headers } }
  if (body !== undefined) {
    init.body = JSON.stringify(body)
    init.headers['Content-Type'] = 'application/json'
  }
  let answer
  try {
    answer = await fetch(BASE + path, init)
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new Refused(0, { detail: 'the hub does not answer', hint: 'check that `thalweg hub` runs; this page keeps trying' })
  }
  const text = await answer.text()
  let value
  try {
    value = text ? JSON.parse(text) : undefined
  } catch {
    throw new Refused(answer.status, { detail: 'the answer is not JSON', hint: 'is this address really a hub?' })
  }
  if (answer.ok) return { value, tag: answer.headers.get('etag') }
  if (answer.status === 401 && path !== '/session') onStranger()
  throw new Refused(answer.status, value ?? {})
}

export const get = async (path, signal) => (await ask('GET', path, { signal })).value
export const post = async (path, body, headers) => (await ask('POST', path, { body, headers })).value
export const patch = async (path, body, version) => (await ask('PATCH', path, { body, headers: { 'If-Match': `"${version}"` } })).value
export const remove = async path => (await ask('DELETE', path)).value

export async function knowMe() {
  me = await get('/session')
}

/** A page of jobs: `words` are the filter's, empty ones are left out. */
export function jobs(words, signal) {
  const asked = new URLSearchParams(Object.entries(words).filter(([, value]) => value !== '' && value !== undefined && value !== null))
  return get(`/jobs?${asked}`, signal)
}
