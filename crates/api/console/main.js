// The frame: who looks, which page, and what leads to it. Addresses are `#/page?filter`, so that each can be kept and sent on.

import { get, knowMe, may, me, post, remove, whenStranger } from './api.js'
import { foreign, h, put } from './dom.js'
import { listen, start, stop } from './live.js'

const PAGES = [
  { path: '', label: 'Now', load: () => import('./pages/now.js') },
  { path: 'jobs', label: 'Jobs', load: () => import('./pages/jobs.js') },
  { path: 'job', load: () => import('./pages/job.js') },
  { path: 'endpoints', label: 'Endpoints', load: () => import('./pages/endpoints.js') },
  { path: 'endpoint', load: async () => ({ ...await import('./pages/endpoints.js'), show: (await import('./pages/endpoints.js')).showOne }) },
  { path: 'schedules', label: 'Schedules', load: () => import('./pages/schedules.js') },
  { path: 'rates', label: 'Rates', load: () => import('./pages/rates.js'), scope: 'admin' },
  { path: 'new', label: 'New job', load: () => import('./pages/submit.js'), scope: 'submit' },
  { path: 'access', label: 'Access', load: () => import('./pages/access.js'), scope: 'admin' },
  { path: 'audit', label: 'Audit', load: () => import('./pages/audit.js'), scope: 'admin' },
]
/** Whose entry of the navigation stands for a page that has none. */
const ABOVE = { job: 'jobs', endpoint: 'endpoints' }

const main = document.getElementById('main')
const nav = document.querySelector('nav')
const who = document.querySelector('.who')
let leave = () => {}
/** Counts pages, so that a slow one does not come after a later one. */
let turn = 0
let isIn = false

function drawNav(current) {
  put(nav, PAGES.filter(page => page.label && (!page.scope || may(page.scope))).map(({ path, label }) =>
    h('a', { href: `#/${path}`, 'aria-current': path === (ABOVE[current] ?? current) && 'page' }, label)))
}

async function enter(load, parameters) {
  const mine = turn += 1
  const page = await load()
  if (mine !== turn) return
  leave()
  document.title = `${page.title} – Thalweg`
  scrollTo(0, 0)
  leave = page.show(main, parameters)
}

async function route(event) {
  if (!isIn) return
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?')
  if (path === 'main') return
  const [name, id] = path.split('/')
  const page = PAGES.find(page => page.path === name) ?? PAGES[0]
  drawNav(page.path)
  await enter(page.load, { id: id && decodeURIComponent(id), query: new URLSearchParams(query) })
  // Who reads by ear or by keyboard begins at the top of the new page.
  if (event) main.querySelector('h1')?.focus({ preventScroll: true })
}

function stranger(error) {
  isIn = false
  stop()
  put(nav)
  put(who)
  enter(() => import('./pages/login.js'), { entered: begin, error })
}

async function begin() {
  try {
    await knowMe()
  } catch (error) {
    if (error.status === 401) return stranger()
    put(main, h('h1', null, 'The hub does not answer'), h('p', null, foreign(error.message)), h('p', { class: 'hint' }, foreign(error.hint)))
    setTimeout(begin, 3000)
    return
  }
  isIn = true
  put(who, foreign(me.name), h('button', { type: 'button', class: 'quiet', onclick: logOut }, 'Log out'))
  start()
  route()
}

async function logOut() {
  await remove('/session').catch(() => {})
  location.assign('/')
}

/** The one-time code of `thalweg console` stands behind the `#`, which no server and no log sees; it is gone before anything is shown. */
async function logIn(code) {
  history.replaceState(null, '', '/')
  try {
    await post('/session', { code })
  } catch (error) {
    return stranger(error)
  }
  return begin()
}

listen('state', isUp => document.body.classList.toggle('cut', !isUp))
whenStranger(() => stranger())
// The stream was refused: because nobody is logged in any more, or for another reason that the page tells when it asks again.
listen('refused', () => get('/session').catch(error => { if (error.status === 401) stranger() }))
addEventListener('hashchange', route)
document.querySelector('.skip').addEventListener('click', event => {
  event.preventDefault()
  main.focus()
})
const code = new URLSearchParams(location.hash.slice(1)).get('code')
if (code) logIn(code)
else begin()
