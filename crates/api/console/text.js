// Numbers, times and states in words: the units of the command line.

const three = number => number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2)

function scaled(number, base, units) {
  let at = 0
  while (number >= base * 0.9995 && at < units.length - 1) {
    number /= base
    at += 1
  }
  return `${at === 0 ? Math.round(number) : three(number)} ${units[at]}`
}

/** Bits per second, in powers of 1000, as networks are measured. */
export const rate = bytesPerSecond => scaled(bytesPerSecond * 8, 1000, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s'])
/** Bytes, in powers of 1024, as storage is measured. */
export const size = bytes => scaled(bytes, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'])
export const count = number => number.toLocaleString('en')
export const counted = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`

/** How long something takes: two units at most. */
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`
  const [minutes, hours, days] = [seconds / 60, seconds / 3600, seconds / 86400].map(Math.floor)
  if (minutes < 10) return `${minutes} min ${Math.floor(seconds % 60)} s`
  if (minutes < 60) return `${minutes} min`
  if (hours < 48) return `${hours} h ${minutes % 60} min`
  return `${days} d ${hours % 24} h`
}

const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' })
const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })

/** A moment in this browser's time zone: the time of today, otherwise with its day. */
export function moment(when) {
  const date = new Date(when)
  if (Number.isNaN(date.getTime())) return ''
  return date.toDateString() === new Date().toDateString() ? CLOCK.format(date) : DAY.format(date)
}
/** The same of what begins at full minutes. */
export const minute = when => moment(when).replace(/^(\d+:\d+):\d+$/, '$1')
export const clock = when => CLOCK.format(new Date(when))

/** A moment seen from now. */
export function ago(when) {
  const seconds = (Date.now() - new Date(when).getTime()) / 1000
  if (Number.isNaN(seconds)) return ''
  const coarse = Math.abs(seconds) < 60 ? Math.max(1, Math.abs(seconds)) : Math.round(Math.abs(seconds) / 60) * 60
  const text = duration(Math.round(coarse)).replace(/ 0 s$|\.0(?= s$)/, '')
  return seconds >= 0 ? `${text} ago` : `in ${text}`
}

export const isEnd = status => ['succeeded', 'partial', 'failed', 'cancelled'].includes(status)

/** A sign beside the word and the colour, for those who do not tell colours apart. */
export const SIGNS = {
  queued: '◷', waiting: '◔', running: '▶', stopping: '◼', paused: '❚❚',
  succeeded: '✓', partial: '◐', failed: '✕', cancelled: '⊘',
}

/** What a job waits for, in a few words; the hub's own sentence follows it. */
export const REASONS = {
  retry: 'tries again', endpoint: 'an endpoint does not answer', unreachable: 'the endpoints do not reach each other',
  space: 'the destination is full', credentials: 'needs a ticket', dependency: 'comes after another job',
  destination: 'another job writes there', window: 'outside its times', slot: 'waits for its turn', deadline: 'its deadline passed',
}

const NEEDS_WORDS = ['retry', 'space', 'credentials', 'unreachable']

/** What helps, by the kind of a failure. */
export const CURES = {
  'not-found': 'it was gone when it was read; a retry lists the source again',
  permission: 'give the user who runs that endpoint the right to it, then retry',
  changed: 'it was written to while it was read; retry when its writer has finished',
  'no-space': 'make room at the destination, then retry',
  'in-the-way': 'move what stands there aside, then retry',
  'name-refused': 'the destination does not take such a name; rename it at the source',
  'read-error': 'the source’s storage failed; its host’s kernel log says why',
  'write-error': 'the destination’s storage failed; its host’s kernel log says why',
  'digest-mismatch': 'bytes changed on their way or in storage; retry, and suspect the hardware if it happens again',
  'read-only': 'the destination is mounted read-only',
  duplicate: 'two sources have the same name at the destination; submit them as two jobs',
}

/** The sources of a job file, in one line. */
export function sourceOf(job) {
  const sources = [job?.source ?? []].flat()
  return sources.length > 1 ? `${sources[0]} and ${sources.length - 1} more` : sources[0] ?? ''
}

/** The endpoint of a location. */
export const endpointOf = location => String([location].flat()[0] ?? '').split(':')[0]

/** Why a job stands where it stands, as one line. */
export function why(job) {
  if (job.status === 'running') return job.bottleneck ?? ''
  const reason = REASONS[job.reason] ?? job.reason ?? ''
  const text = job.text ?? ''
  // Of the others the hub's sentence says it all.
  const line = reason && text && NEEDS_WORDS.includes(job.reason) ? `${reason}: ${text}` : text || reason
  return job.until && !isEnd(job.status) ? `${line}${line ? '; ' : ''}next look ${ago(job.until)}` : line
}

/** Bytes at the destination or on their way there: a large file is not delivered before its end, but it moves. */
export const reached = job => Math.max(job.bytes.ok, job.bytes_reached ?? 0)

/** How much of a job is done, from 0 to 1, as far as that is known. */
export function progress(job) {
  const { files, bytes } = job
  if (job.status === 'succeeded') return 1
  const total = bytes.listed > 0 ? bytes.listed : files.listed
  const done = bytes.listed > 0 ? reached(job) : files.ok + files.skipped
  return total > 0 ? Math.min(1, done / total) : 0
}

/** Seconds that are left at this rate. */
export function secondsLeft(job) {
  const left = job.bytes.listed - reached(job)
  return job.bytes_per_second > 0 && left > 0 ? left / job.bytes_per_second : undefined
}
