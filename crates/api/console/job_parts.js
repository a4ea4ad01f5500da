// What several pages show of a job: its state, its bar, a row of it, and what can be done with it.

import { may, post, remove } from './api.js'
import { announce, confirmed, foreign, h, put, say } from './dom.js'
import { ago, count, counted, duration, isEnd, progress, rate, reached, secondsLeft, SIGNS, size, sourceOf, why } from './text.js'

/** The state as a word with its sign and colour. */
export function badge(status) {
  const sign = h('span', { 'aria-hidden': 'true' })
  const word = h('span')
  const node = h('span', null, sign, word)
  const part = {
    node,
    update(status) {
      node.className = `badge ${status}`
      say(sign, SIGNS[status] ?? '•')
      say(word, status)
    },
  }
  part.update(status)
  return part
}

/** How much is done. */
export function bar() {
  const inner = h('span')
  const node = h('span', { class: 'bar', role: 'progressbar', 'aria-label': 'done', 'aria-valuemin': 0, 'aria-valuemax': 100 }, inner)
  return {
    node,
    update(job, label) {
      const percent = Math.floor(progress(job) * 100)
      node.setAttribute('aria-valuenow', percent)
      node.setAttribute('aria-label', label)
      inner.style.width = `${percent}%`
    },
  }
}

/** How far a job is, in words. */
export function howFar(job) {
  const { files, bytes } = job
  const moved = reached(job)
  const delivered = files.ok + files.skipped
  const ofFiles = files.listed > delivered ? `${count(delivered)} of ${counted(files.listed, 'file', 'files')}` : counted(delivered, 'file', 'files')
  const ofBytes = bytes.listed > moved ? `${size(moved)} of ${size(bytes.listed)}` : size(moved)
  return `${ofFiles}, ${ofBytes}`
}

/** The two ends of a job, which break at the arrow if they have to. */
export function ends(job, longest) {
  return [foreign(sourceOf(job.job), longest), h('span', { class: 'arrow' }, h('span', { 'aria-hidden': 'true' }, ' → '),
    h('span', { class: 'aside' }, ' to ')), foreign(job.job?.destination, longest)]
}

/** A row of a list of jobs: a link to the job, with what is known of it at this moment. */
export function row() {
  const state = badge('queued')
  const names = h('span', { class: 'ends' })
  const line = h('span', { class: 'why' })
  const progressed = bar()
  const numbers = h('span', { class: 'numbers' })
  const when = h('span', { class: 'when' })
  const node = h('a', { class: 'job' }, state.node, names, line, progressed.node, numbers, when)
  let id
  return {
    node,
    update(job) {
      if (id !== job.id) {
        id = job.id
        node.href = `#/job/${id}`
        put(names, ends(job, 300))
      }
      state.update(job.status)
      // An id in full says no more than its first digits here.
      say(line, why(job).slice(0, 400).replace(/\b([0-9a-f]{8})[0-9a-f]{24}\b/g, '$1…'))
      progressed.update(job, `done of ${sourceOf(job.job)}`)
      progressed.node.hidden = !['running', 'stopping', 'paused'].includes(job.status) || job.files.listed === 0
      const left = secondsLeft(job)
      if (job.status === 'running') {
        say(numbers, rate(job.bytes_per_second))
        say(when, left === undefined ? '' : `${duration(left)} left`)
      } else {
        say(numbers, job.bytes.ok > 0 ? size(job.bytes.ok) : '')
        say(when, ago(job.ended ?? job.created))
      }
    },
  }
}

const CERTAIN = {
  cancel: ['Cancel this job?', 'What was verified is kept; a retry goes on with it.', 'Cancel the job'],
  rm: ['Forget this job?', 'The hub keeps nothing of it. What was copied stays.', 'Forget the job'],
}

/** The verbs that make sense for a job as it stands. */
export function verbsOf({ status, reason }) {
  if (isEnd(status)) return ['retry', 'rm']
  if (status === 'paused') return ['resume', 'cancel']
  if (status === 'waiting' && reason !== 'dependency' && reason !== 'destination' && reason !== 'window') return ['retry', 'pause', 'cancel']
  if (status === 'stopping') return ['cancel']
  return ['pause', 'cancel']
}

const LABELS = { pause: 'Pause', resume: 'Resume', cancel: 'Cancel…', retry: 'Retry', rm: 'Forget…' }

/** Does something with one job. Resolves to the job as it stands then, or to `null` if it is forgotten. */
export async function steer(id, verb) {
  if (verb === 'rm') {
    await remove(`/jobs/${id}`)
    return null
  }
  return post(`/jobs/${id}/${verb}`)
}

/** Buttons for what can be done with a job; those that lose something ask first. `done` gets what `steer` resolves to, `failed` its error. */
export function verbs(job, done, failed) {
  return !may('steer') ? [] : verbsOf(job).map(verb => h('button', {
    type: 'button',
    class: CERTAIN[verb] ? 'quiet' : 'plain',
    async onclick(event) {
      const button = event.currentTarget
      button.disabled = true
      try {
        if (CERTAIN[verb] && !await confirmed(...CERTAIN[verb])) return
        const steered = await steer(job.id, verb)
        announce(steered === null ? 'The job is forgotten' : `The job is ${steered.status}`)
        done(steered)
      } catch (error) {
        failed(error)
      } finally {
        button.disabled = false
      }
    },
  }, verb === 'retry' && !isEnd(job.status) ? 'Try now' : LABELS[verb]))
}

/** Takes note of what an event says of a job that is shown. */
export function patch(job, event) {
  const { status, reason, text, attempt, executor, code } = event
  Object.assign(job, { status, reason: reason ?? undefined, text: text ?? undefined, attempt, executor: executor ?? undefined, code: code ?? undefined })
  job.until = undefined
  if (status !== 'running') job.bytes_per_second = 0
  if (isEnd(status)) job.ended ??= event.at
  else job.ended = undefined
}

/** Takes note of what runs, and how fast. */
export function patchRates(jobs, rates) {
  for (const now of rates.jobs) {
    const job = jobs.get(now.id)
    if (job) Object.assign(job, { files: now.files, bytes: now.bytes, bytes_reached: now.bytes_reached, bytes_per_second: now.bytes_per_second, bottleneck: now.bottleneck })
  }
}
