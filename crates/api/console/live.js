// What changes while one looks: one stream of events for the whole page, closed while nobody sees it.
//
// A change of a job comes with a number, and after a gap the stream goes on behind the last one. Rates come once a second,
// have no number and are not repeated.

const listeners = { status: new Set(), rates: new Set(), reset: new Set(), state: new Set(), refused: new Set() }
let source
let last
let isUp
let isWanted = false

function tell(kind, data) {
  for (const listener of [...listeners[kind]]) listener(data)
}

function setUp(is) {
  if (isUp === is) return
  isUp = is
  tell('state', is)
}

function open() {
  if (source || !isWanted || document.hidden) return
  const after = last === undefined ? '' : `&after=${last}`
  source = new EventSource(`/api/v1/events?rates=true${after}`)
  source.addEventListener('open', () => setUp(true))
  source.addEventListener('status', event => {
    last = event.lastEventId
    tell('status', JSON.parse(event.data))
  })
  source.addEventListener('rates', event => tell('rates', JSON.parse(event.data)))
  // The numbers of before are none of this hub's any more: what is shown is asked for again.
  source.addEventListener('reset', event => {
    last = event.lastEventId
    close()
    tell('reset')
    open()
  })
  source.addEventListener('error', () => {
    setUp(false)
    // The browser reconnects on its own, except where the hub refused.
    if (source?.readyState !== EventSource.CLOSED) return
    close()
    tell('refused')
    setTimeout(open, 3000)
  })
}

function close() {
  source?.close()
  source = undefined
}

export function start() {
  isWanted = true
  open()
}

export function stop() {
  isWanted = false
  close()
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) return close()
  open()
  if (isWanted) tell('reset')
})
addEventListener('pagehide', close)

/** Listens until the function that it returns is called. Kinds: `status`, `rates`, `reset`, `state`, `refused`. */
export function listen(kind, listener) {
  listeners[kind].add(listener)
  return () => listeners[kind].delete(listener)
}

/** Calls at most once in so many milliseconds, the last time after the last wish. */
export function calmly(pause, call) {
  let timer
  let before = 0
  const wish = () => {
    if (timer) return
    timer = setTimeout(() => {
      timer = undefined
      before = Date.now()
      call()
    }, Math.max(0, before + pause - Date.now()))
  }
  wish.stop = () => clearTimeout(timer)
  return wish
}
