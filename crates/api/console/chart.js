// A chart of a rate over time, drawn as SVG, and the same numbers as a table.

import { h, put, say, svg } from './dom.js'
import { clock, moment, rate } from './text.js'

const HEIGHT = 180
const LEFT = 88
const BOTTOM = 22
const TOP = 8
const STEPS = [1, 2, 3, 4, 5, 6, 8, 10]
/** Rows of the table. */
const ROWS = 20

/** The next round number at or above a rate in bits, so that the axis has round numbers. */
function roundAbove(bits) {
  if (bits <= 0) return 1000
  const power = 10 ** Math.floor(Math.log10(bits))
  return STEPS.map(step => step * power).find(step => step >= bits) ?? 10 * power
}

/** Neighbouring points that are further apart than three steps are not joined: nobody looked in between. */
function segments(points, step) {
  const parts = []
  for (const point of points) {
    const part = parts.at(-1)
    if (part && point[0] - part.at(-1)[0] <= 3 * step) part.push(point)
    else parts.push([point])
  }
  return parts
}

/**
 * `draw(points, {from, to, step})` takes points `[milliseconds, bytes per second]`.
 * The drawing follows the width that there is.
 */
export function chart(title) {
  const area = svg('path', { class: 'area' })
  const line = svg('path', { class: 'line' })
  const grid = svg('g', { class: 'grid' })
  const cursor = svg('g', { class: 'cursor', visibility: 'hidden' }, svg('line', { y1: TOP, y2: HEIGHT - BOTTOM }), svg('circle', { r: 4 }))
  const drawing = svg('svg', { role: 'img', height: HEIGHT }, grid, area, line, cursor)
  const readout = h('p', { class: 'readout', 'aria-hidden': 'true' })
  const body = h('tbody')
  const table = h('details', { class: 'numbers' }, h('summary', null, 'As a table'),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${title}, as a table` },
      h('table', null, h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Time'), h('th', { scope: 'col' }, 'Rate'))), body)))
  const node = h('figure', { class: 'chart' }, drawing, readout, table)
  let shown = { points: [], from: 0, to: 1, step: 1000 }
  let place

  function draw() {
    const { points, from, to, step } = shown
    const width = drawing.clientWidth || node.clientWidth
    if (!width) return
    const peak = Math.max(0, ...points.map(point => point[1]))
    const top = roundAbove(peak * 8) / 8
    const x = at => LEFT + (at - from) / Math.max(1, to - from) * (width - LEFT - 8)
    const y = value => HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)
    place = { x, y, width }
    drawing.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
    const parts = segments(points, step)
    const path = part => part.map(([at, value], n) => `${n ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('')
    line.setAttribute('d', parts.map(path).join(''))
    area.setAttribute('d', parts.map(part =>
      `${path(part)}L${x(part.at(-1)[0]).toFixed(1)} ${y(0)}L${x(part[0][0]).toFixed(1)} ${y(0)}Z`).join(''))
    const labels = [0, 0.5, 1].map(share => [
      svg('line', { x1: LEFT, x2: width - 8, y1: y(top * share), y2: y(top * share) }),
      svg('text', { x: LEFT - 8, y: y(top * share) + 4, 'text-anchor': 'end' }, rate(top * share)),
    ])
    const times = (width > 520 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1]).map(share =>
      svg('text', { x: x(from + (to - from) * share), y: HEIGHT - 4, 'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle' },
        clock(from + (to - from) * share)))
    put(grid, labels, times)
    const now = points.at(-1)?.[1] ?? 0
    drawing.setAttribute('aria-label', points.length
      ? `${title}: ${rate(now)} at the end, ${rate(peak)} at most, from ${moment(from)} to ${moment(to)}`
      : `${title}: nothing yet`)
    if (table.open) rows()
  }

  function rows() {
    const { points } = shown
    const every = Math.max(1, Math.ceil(points.length / ROWS))
    const some = points.filter((_, at) => (points.length - 1 - at) % every === 0).reverse()
    put(body, some.map(([at, value]) => h('tr', null, h('td', null, moment(at)), h('td', null, rate(value)))))
  }

  function point(event) {
    const { points, from, to } = shown
    if (!place || !points.length) return
    const at = from + (event.offsetX - LEFT) / (place.width - LEFT - 8) * (to - from)
    const nearest = points.reduce((best, other) => Math.abs(other[0] - at) < Math.abs(best[0] - at) ? other : best)
    cursor.setAttribute('visibility', 'visible')
    cursor.setAttribute('transform', `translate(${place.x(nearest[0]).toFixed(1)} 0)`)
    cursor.lastChild.setAttribute('cy', place.y(nearest[1]))
    say(readout, `${moment(nearest[0])}: ${rate(nearest[1])}`)
  }

  drawing.addEventListener('pointermove', point)
  drawing.addEventListener('pointerleave', () => {
    cursor.setAttribute('visibility', 'hidden')
    say(readout, '')
  })
  table.addEventListener('toggle', rows)
  const watcher = new ResizeObserver(draw)
  watcher.observe(drawing)
  return {
    node,
    draw(points, { from, to, step }) {
      shown = { points, from, to, step }
      draw()
    },
    stop: () => watcher.disconnect(),
  }
}
