// A hub and two endpoints, each a process of its own in a directory of its own.
//
// The hub answers browsers on a port of the loopback, without TLS. `node house.js THALWEG` keeps such a house until it is stopped, with jobs of each kind, to look at the console by hand.

import { spawn, execFile } from 'node:child_process'
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const SITES = ['berlin', 'oslo']

export async function until(what, call, seconds = 60) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const found = await call()
    if (found) return found
    if (Date.now() > end) throw new Error(`waited ${seconds} s for ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

/** The same port again after a restart, so that a page finds its hub. */
async function freePort() {
  const server = createServer()
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise(resolve => server.close(resolve))
  return port
}

export class House {
  constructor(thalweg, dir) {
    this.thalweg = thalweg
    this.dir = dir
    this.children = []
  }

  static async build(thalweg) {
    const house = new House(thalweg, await mkdtemp(join(tmpdir(), 'thalweg-console-')))
    for (const name of SITES) {
      await mkdir(join(house.dir, name, 'root'), { recursive: true })
      await house.start(name, ['serve', '--listen', '127.0.0.1:0', '--root', 'root', '--name', name, '--ticket-file', '../ticket-' + name])
    }
    await mkdir(join(house.dir, 'user'))
    house.address = `127.0.0.1:${await freePort()}`
    await house.startHub()
    // Of one of them the hub manages the rates.
    const [managed] = SITES
    await house.commandAt(managed, 'ticket', 'new', '--manage-rates', '--expires', '30d', '--ticket-file', '../ticket-' + managed + '-managed')
    await rename(join(house.dir, 'ticket-' + managed + '-managed'), join(house.dir, 'ticket-' + managed))
    for (const name of SITES) await house.command('endpoint', 'add', name, '--ticket-file', '../ticket-' + name, '--hub')
    return house
  }

  environment(home) {
    const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('THALWEG_')))
    const of = name => join(this.dir, home, name)
    return { ...own, HOME: join(this.dir, home), XDG_CONFIG_HOME: of('config'), XDG_STATE_HOME: of('state'), XDG_CACHE_HOME: of('cache'),
      XDG_DATA_HOME: of('data'), XDG_RUNTIME_DIR: of('run') }
  }

  /** Starts a process and waits until it says that it is ready. */
  async start(home, words) {
    const child = spawn(this.thalweg, words, { cwd: join(this.dir, home), env: this.environment(home), stdio: ['ignore', 'pipe', 'pipe'] })
    this.children.push(child)
    let said = ''
    child.stderr.on('data', text => { said += text })
    await new Promise((resolve, reject) => {
      child.stdout.once('data', resolve)
      child.once('exit', code => reject(new Error(`thalweg ${words[0]} ended with ${code}: ${said}`)))
    })
    return child
  }

  async startHub() {
    await mkdir(join(this.dir, 'user', 'run'), { recursive: true, mode: 0o700 })
    this.hub = await this.start('user', ['hub', '--state-dir', '../hub', '--listen', this.address])
  }

  /** As `kill -9` does it. */
  async killHub() {
    this.hub.kill('SIGKILL')
    await new Promise(resolve => this.hub.once('exit', resolve))
  }

  async commandAt(home, ...words) {
    const { stdout } = await run(this.thalweg, words, { cwd: join(this.dir, home), env: this.environment(home) })
    return stdout
  }

  command(...words) {
    return this.commandAt('user', ...words)
  }

  async write(site, path, content) {
    const whole = join(this.dir, site, 'root', path)
    await mkdir(join(whole, '..'), { recursive: true })
    await writeFile(whole, content)
  }

  /** Asks the hub on its socket. */
  ask(method, path, body) {
    return new Promise((resolve, reject) => {
      const asked = request({ socketPath: join(this.dir, 'user', 'run', 'thalweg', 'hub.sock'), method, path: '/api/v1' + path, headers: { host: 'hub' } }, answer => {
        let text = ''
        answer.on('data', part => { text += part })
        answer.on('end', () => {
          const value = text && JSON.parse(text)
          if (answer.statusCode < 300) resolve(value)
          else reject(new Error(`${method} ${path}: ${answer.statusCode} ${text}`))
        })
      })
      asked.on('error', reject)
      asked.end(typeof body === 'string' ? body : body && JSON.stringify(body))
    })
  }

  /** An address that lets one browser in. */
  async wayIn() {
    const { url } = JSON.parse(await this.command('console', '--json'))
    return `http://${this.address}/${url.slice(url.indexOf('#'))}`
  }

  async submit(job) {
    return (await this.ask('POST', '/jobs', job)).id
  }

  /** Jobs of each kind: running, waiting, ended well and badly, and one with a name that wants to be markup. */
  async fill() {
    const jobs = {}
    await this.write('berlin', 'telescope/notes.txt', 'seeing 0.8"')
    for (let n = 0; n < 40; n += 1) await this.write('berlin', `telescope/night-${n}.fits`, 'x'.repeat(20_000))
    jobs.succeeded = await this.submit({ source: 'berlin:telescope/', destination: 'oslo:archive/telescope/', labels: { campaign: 'spring' } })
    jobs.failed = await this.submit({ source: 'berlin:run-41/missing', destination: 'oslo:runs/' })
    await this.write('berlin', 'blocked/a', 'file')
    await this.write('oslo', 'blocked/a/b', 'in the way')
    jobs.blocked = await this.submit({ source: 'berlin:blocked/', destination: 'oslo:blocked/', options: { compare: 'size' } })
    jobs.markup = await this.submit({ source: 'berlin:<img src=x onerror=alert(1)>', destination: 'oslo:"><script>alert(2)</script>', labels: { '<b>': '</b>' } })
    jobs.running = await this.submit({ source: 'berlin:gen:60000x1MiB', destination: 'oslo:null:', rate: '240Mbit', class: 'high', project: 'survey', labels: { campaign: 'spring' } })
    jobs.second = await this.submit({ source: 'oslo:gen:1x20GiB', destination: 'berlin:null:', rate: '80Mbit' })
    jobs.third = await this.submit({ source: 'berlin:gen:4000x64KiB', destination: 'oslo:simulated/', rate: '16Mbit', class: 'low' })
    jobs.after = await this.submit({ source: 'berlin:telescope/', destination: 'oslo:later/', after: [jobs.running] })
    jobs.window = await this.submit({ source: 'berlin:telescope/notes.txt', destination: 'oslo:nightly/', windows: [{ days: ['sun'], from: '03:00', to: '03:30', zone: 'UTC' }] })
    jobs.paused = await this.submit({ source: 'berlin:telescope/', destination: 'oslo:paused/', after: [jobs.running] })
    await this.ask('POST', `/jobs/${jobs.paused}/pause`)
    for (let n = 0; n < 4; n += 1) await this.submit({ source: `berlin:gen:${1000 + n}x4KiB`, destination: `oslo:queue/${n}/`, rate: '1Mbit' })
    await this.commandAt('berlin', 'contract', 'link', '10Gbit')
    await this.commandAt('berlin', 'contract', 'add', 'office', '--direction', 'out', '--rate', '400Mbit')
    await this.commandAt('berlin', 'contract', 'add', 'mirror', '--class', 'low', '--rate', 'Mon-08:00,200Mbit Fri-18:00,off')
    const nightly = { source: 'berlin:gen:20x4KiB', destination: 'oslo:nights/', class: 'low' }
    await this.ask('POST', '/schedules', { name: 'nightly', times: { at: ['02:30'], days: ['mon', 'tue', 'wed', 'thu', 'fri'], zone: 'Europe/Berlin' }, job: nightly })
    await this.ask('POST', '/schedules/nightly/run')
    await this.ask('POST', '/schedules', { name: 'quarterly', times: { at: ['*:00', '*:15', '*:30', '*:45'] }, job: { source: 'berlin:gen:10x1KiB', destination: 'oslo:quarterly/' } })
    await this.ask('POST', '/schedules', { name: 'old', times: { at: ['12:00'] }, job: { source: 'oslo:archive/', destination: 'berlin:back/' } })
    await this.ask('POST', '/schedules/old/pause')
    const status = async name => (await this.ask('GET', `/jobs/${jobs[name]}`)).status
    await until('the jobs to stand as they should', async () =>
      await status('succeeded') === 'succeeded' && await status('failed') === 'failed' && (await this.ask('GET', `/jobs/${jobs.blocked}/failures`)).length > 0 && await status('running') === 'running')
    return jobs
  }

  async end() {
    for (const child of this.children) child.kill('SIGKILL')
    await rm(this.dir, { recursive: true, force: true, maxRetries: 5 })
  }
}

if (process.argv[1] === import.meta.filename) {
  const house = await House.build(process.argv[2])
  console.log(JSON.stringify(await house.fill()))
  console.log(await house.wayIn())
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => house.end().then(() => process.exit(0)))
}
